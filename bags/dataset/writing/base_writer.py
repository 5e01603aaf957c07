"""Base of the dataset writers: common arguments, and the replacement of an existing dataset."""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn, Self

from bags.bag.temporary_files import remove_leftovers, remove_tree, temporary_path
from bags.dataset.format.file_names import DERIVED, is_file_of_dataset
from bags.dataset.format.json_files import write_json
from bags.dataset.format.listing import dataset_of_shard, shard_numbers
from bags.dataset.format.metadata import (
    METADATA,
    Metadata,
    dump_metadata,
    in_order,
    with_order,
    with_packages,
    without_order,
)
from bags.dataset.format.options import WriterSettings
from bags.dataset.format.registry import encoders as builtin_encoders
from bags.dataset.format.registry import packages_of
from bags.dataset.format.spec import check_names, parse_spec
from bags.dataset.writing.encoder import Encoder, check_mapping, close_files, encode_call
from bags.dataset.writing.episode import ONE_PROCESS, Call, Episode, EpisodeOptions, OpenEpisode
from bags.dataset.writing.field_writer import field_compressions
from bags.storage import Lock, Store, store_for
from bags.validation import one_of, positive_seconds

_open_writers: weakref.WeakValueDictionary[int, BaseWriter] = weakref.WeakValueDictionary()
"""Writers by `id`, in order of creation: a sharded writer precedes the writer of its current shard."""


class BaseWriter(ABC):
    """Base class of the writers of single-folder and sharded datasets."""

    closed = True  # Until the folder is open.
    is_inherited = False
    """Whether this process was forked from the process of the writer. The files belong to that process."""
    has_failed = False
    """Whether `close` has failed. It can be called again, unless another writer takes the folder before."""
    was_continued = False
    """Whether another writer has taken the folder after `close` had failed."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        spec: Mapping[str, str],
        encoders: Mapping[str, Callable[..., Any]] | None,
        settings: WriterSettings,
    ) -> None:
        self.process_id = os.getpid()
        _open_writers[id(self)] = self
        self.schema = parse_spec(spec)
        self.order = list(spec)
        """The fields in the order of the given spec."""
        check_names(self.schema)
        self.compressions = field_compressions(settings.compression, self.schema, settings.linked_fields)
        self.linked_fields = set(settings.linked_fields)
        """The fields whose values may be links."""
        self.metadata: Metadata | None = None
        if settings.metadata is not None:
            self.metadata = json.loads(dump_metadata(settings.metadata, self.schema))
        self.encoder = Encoder(self.schema, encoders)
        self.has_own_encoders = encoders is not None
        self.packages = packages_of(self.schema, builtin_encoders if encoders is None else encoders)
        """The package of each field whose type comes from another package."""
        if self.metadata is not None:
            self.metadata = with_packages(self.metadata, self.packages)
        self.settings = settings
        self.checksum = bool(settings.checksum)
        self.store, self.path = store_for(path, **self.settings.storage, durability=settings.durability)
        if settings.resume or settings.mode == 'overwrite':
            _end_failed_writers(self.path)
        self.replacement: Replacement | None = None
        if settings.mode == 'overwrite':
            if settings.resume:
                raise ValueError("mode: expected 'create' with resume=True, got 'overwrite'")
            self.replacement = Replacement(self.store, self.path)
            self.path = self.replacement.path
        self.made_folder = not self.store.is_remote and not self.store.exists(self.path)
        self.store.make_folder(self.path)
        self.store = self.store.hold(self.path)

    @property
    def spec(self) -> dict[str, str]:
        """The type of each field, in the order of the given spec."""
        return {name: self.schema[name].text for name in self.order}

    def write_metadata(self, folders: Iterable[str], stored: Metadata | None) -> None:
        """Writes the metadata of folders if it differs from the stored metadata.

        A resumed dataset keeps its order of fields, and its metadata unless the writer has new metadata.

        Args:
            folders: The folders with datapoints of the dataset.
            stored: The stored metadata; None for a new dataset.
        """
        if stored is not None:
            self.order = list(in_order(self.schema, stored))
        if self.metadata is None:
            self.metadata = with_packages(without_order(stored or {}), self.packages) or None
        metadata = with_order(self.metadata or {}, self.order)
        if metadata != (stored or {}):
            data = dump_metadata(metadata, self.schema)
            for folder in folders:
                write_json(self.store, self.store.join(folder, METADATA), data, self.checksum)

    def accept_links(self, fields: Iterable[str]) -> None:
        """Accepts links as values of these fields."""
        self.linked_fields = set(fields)
        self.encoder.accept_links(self.linked_fields)

    def encode_item(self, field: str, value: Any, item: int | None) -> Any:
        """Returns the record of the value of a plain field, or of one item of a sequence."""
        return self.encoder.encode_item(field, value, item)

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> NoReturn:
        raise TypeError(f'{self!r} cannot be pickled: {ONE_PROCESS}')

    @property
    def state(self) -> str:
        """'open' or 'closed', as `repr` says it."""
        if self.is_inherited:
            return f'open in process {self.process_id}'
        return 'closed' if self.closed else 'open'

    def set_inherited(self) -> None:
        """Ends an open writer in a process that was forked, and leaves its files to the other process."""
        if not self.closed:
            self.closed = self.is_inherited = True

    def expect_open(self) -> None:
        """Raises ValueError if the writer is closed, and RuntimeError in a process that was forked."""
        if self.is_inherited:
            raise RuntimeError(f'{self!r} cannot write in process {os.getpid()}: {ONE_PROCESS}')
        if self.closed:
            raise ValueError(f'{self!r} is closed')

    def expect_folder(self) -> None:
        """Raises OSError if the folder is no longer at its path, or was continued by another writer.

        The writer then holds no locks.
        """
        try:
            if self.was_continued:
                detail = 'another writer has opened the folder since close failed: nothing more is written'
                raise OSError(errno.ESTALE, detail, self.path)
            self.store.expect_held()
        except OSError:
            self.release_locks()
            raise

    @abstractmethod
    def __len__(self) -> int: ...

    def append(self, datapoint: Mapping[str, Any], flush: bool | None = None) -> int:
        """Appends a whole datapoint; if this raises, nothing is appended.

        Args:
            datapoint: A value for each field. The value of a sequence field is any iterable, read one
                item at a time. An optional field may be None or left out.
            flush: True immediately makes the datapoint readable by other processes, and safe if this process
                is killed. None (the default) does this every 8 MiB and every second; False does it only when
                buffers are full.

        Returns:
            The index of the datapoint. In a sharded dataset, it is the index among the shards of this writer.

        Raises:
            EncodeError: A field is missing or unknown, or a value cannot be encoded.
            OSError: E.g. the disk is full; nothing was appended.
        """
        return self.append_records(self.encoder.encode(datapoint), flush)

    def encode_whole(self, datapoint: Mapping[str, Any]) -> list[Any]:
        """Returns the records of a datapoint as `Encoder.encode`, with the records of sequences as lists."""
        records = self.encoder.encode(datapoint)
        return [
            each if type(each) is bytes or not isinstance(each, Iterator) else list(each) for each in records
        ]

    def begin(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        flush: float = 1.0,
        clip_seconds: float = 2.0,
        when_full: Literal['wait', 'raise'] = 'wait',
        copy: bool = True,
    ) -> Episode:
        """Begins a datapoint that is written item by item, such as an episode while it is recorded.

        One datapoint can be open at a time, and `append` raises until it ends. It is written to one shard,
        even if the shard then exceeds `shard_size`.

        Args:
            values: Values of plain fields, as for `Episode.set`.
            flush: In a local folder, items older than this many seconds are safe if this process is killed,
                and with `durability='flush'` also in a power cut. On an object store, a dataset appears when
                it is closed: an open episode is lost if this process is killed.
            clip_seconds: Single frames, and blocks of samples, are encoded in the background as clips of this
                length. They are safe once their clip is: after this time and the delay of the encoder.
            when_full: What `Episode.append` does while 100 MB are queued for encoding or writing: 'wait', or
                'raise' `queue.Full`. `Episode.waits` counts both.
            copy: Whether single frames and blocks of samples are copied. With False, an array must not be
                changed after `Episode.append`; cameras that return a new array each time need no copy.

        Raises:
            EncodeError: As for `Episode.set`; no episode is open then.
            ValueError: The writer is closed, or an episode is open.
        """
        self.expect_open()
        one_of('when_full', when_full, ('wait', 'raise'))
        options = EpisodeOptions(
            positive_seconds('flush', flush), positive_seconds('clip_seconds', clip_seconds), when_full, copy
        )
        values = {} if values is None else values
        check_mapping('values', values)
        call = encode_call(self.schema, self.encode_item, values, None)
        try:
            return Episode(self.begin_episode(call, options, 0), self)
        except BaseException:
            close_files(record for _, record in call)
            raise

    @abstractmethod
    def begin_episode(self, call: Call, options: EpisodeOptions, offset: int) -> OpenEpisode:
        """Begins an episode with the records of plain fields; `offset`: datapoints in earlier shards."""

    @abstractmethod
    def open_episode(self) -> OpenEpisode | None:
        """Returns the open episode, or an episode that an error ended."""

    @abstractmethod
    def append_records(self, records: list[Any], flush: bool | None = None) -> int:
        """Appends a datapoint encoded by `Encoder.encode`; see `append`."""

    @abstractmethod
    def append_block(self, rows: Sequence[list[Any]]) -> None:
        """Appends datapoints encoded by `encode_whole`, in a fraction of the time of separate `append` calls.

        If this raises, the first datapoints may have been appended: `len` gives the count.
        """

    @abstractmethod
    def flush(self) -> None:
        """Makes all datapoints readable by other processes, and safe if this process is killed.

        With `durability='flush'`, they are also on disk.

        Raises:
            OSError: Writing failed; or the folder was removed, moved or replaced, which ends the writer.
        """

    @abstractmethod
    def close(self) -> None:
        """Flushes and closes the dataset. Can be called again after an error.

        Unless `durability='none'`, the dataset is on disk when this returns. In a process that was forked
        from the process of the writer, this does nothing.

        Raises:
            OSError: Writing failed; or the folder was removed, moved or replaced since the writer opened it.
                Then nothing is written or removed at its path, where another writer may have begun.
        """

    @abstractmethod
    def abandon(self) -> None:
        """Closes the dataset as unfinished. Removes it if it is new and empty, or replaces another one.

        After an error, the writer has ended as a killed writer does.
        """

    @abstractmethod
    def release_locks(self) -> None:
        """Releases the locks of the writer."""

    def set_continued(self) -> None:
        """Leaves the folder to another writer."""
        self.was_continued = True
        self.release_locks()

    def leave(self) -> None:
        """Ends as a killed writer does: writes nothing more, and releases the locks."""
        self.release_locks()
        self.store.release()
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            try:
                self.close()
            except BaseException:
                if not self.store.is_remote:
                    with contextlib.suppress(OSError):  # E.g. the disk is full: it ends, and is unlocked.
                        self.abandon()
                raise
            return
        with contextlib.suppress(OSError):  # The error of the `with` block is raised.
            self.abandon()

    def __del__(self) -> None:
        # Not in a forked process: the files belong to the parent. Not on object stores: their clients start
        # threads, which is impossible while the process ends.
        if not self.closed and self.process_id == os.getpid() and not self.store.is_remote:
            episode = self.open_episode()
            if episode is not None and episode.has_thread():
                # The writer was in a reference cycle that was collected in a thread of its episode.
                episode.leave_later(self._abandon_unused)
            else:
                self._abandon_unused()

    def _abandon_unused(self) -> None:
        # E.g. the disk is full: what was flushed stays, and the dataset is unfinished.
        with contextlib.suppress(OSError):
            self.abandon()


def _end_failed_writers(path: str) -> None:
    """Ends the writers of a folder whose `close` has failed, so that they do not keep its lock."""
    for writer in list(_open_writers.values()):
        if writer.has_failed and not writer.closed:
            target = writer.path if writer.replacement is None else writer.replacement.target
            if target == path:
                writer.set_continued()


def _set_inherited() -> None:
    for writer in list(_open_writers.values()):
        writer.set_inherited()


if hasattr(os, 'register_at_fork'):
    os.register_at_fork(after_in_child=_set_inherited)


@atexit.register
def _abandon_open_writers() -> None:
    # Runs before the modules that writers need are finalized. All writers are closed, even if one raises.
    with contextlib.ExitStack() as stack:
        for writer in reversed(list(_open_writers.values())):
            stack.callback(writer.__del__)


# Replacing a local dataset: the new one is written beside it, and then renamed to its path.


class Replacement:
    """A new folder that replaces an existing dataset, if any. The dataset is locked until `release`.

    Raises:
        ValueError: The dataset is on an object store, where folders cannot be renamed.
        FileExistsError: The folder holds files that do not belong to a dataset.
        OSError: Raised by `swap` if the path has another folder than when the writer began.
        BlockingIOError: Another writer has the dataset open.
    """

    def __init__(self, store: Store, target: str) -> None:
        if store.is_remote:
            raise ValueError(
                f"{target}: mode='overwrite' needs a local folder, as object stores cannot rename folders: "
                f'write to another folder, then remove this one'
            )
        self.store = store
        self.target = os.path.realpath(target)  # A symbolic link would be renamed instead of its target.
        remove_leftovers(store, self.target)
        exists = store.exists(self.target)
        self._replaced = store.hold(self.target) if exists else None
        """Holds the folder of the dataset to replace; None if there is none."""
        self._locks = [_check(store, self.target)] if exists else []
        if self._replaced is not None:
            self._replaced.expect_held()  # It is the folder that was locked.
        self.path = temporary_path(store, self.target)
        """The folder to write."""
        store.make_folder(self.path)
        self._locks.append(store.lock(self.path))

    def expect_outside(self, path: str) -> None:
        """Raises ValueError for a linked file that would be removed with the old dataset."""
        if '://' not in path and f'{os.path.realpath(path)}/'.startswith(f'{self.target}/'):
            raise ValueError(
                f'{path}: links cannot lead into the dataset that mode={"overwrite"!r} replaces: write to '
                'another folder'
            )

    def swap(self) -> str:
        """Moves the new dataset into place, removes the old one, and returns the path.

        Where the system can exchange two folders atomically, readers always find the old or the new dataset.
        """
        store, target = self.store, self.target
        remains = self.path
        """The folder to remove: the old dataset."""
        if self._replaced is not None:
            self._replaced.expect_held()
            remove_derived(store, target, is_moved=True)
            # Folders are renamed by path: whether it was the locked one is known afterwards.
            if store.exchange(self.path, target):
                try:
                    self._replaced.expect_held(moved_to=self.path)
                except BaseException:
                    store.exchange(self.path, target)
                    raise
            else:
                # If the process is killed in between, `remove_leftovers` puts the old dataset back.
                remains = self.path.removesuffix('.new') + '.old'
                store.rename(target, remains)
                try:
                    self._replaced.expect_held(moved_to=remains)
                    store.rename(self.path, target)
                except BaseException:
                    store.rename(remains, target)
                    raise
        elif store.exists(target):
            detail = 'was created after this writer began, and is not overwritten'
            raise FileExistsError(errno.EEXIST, detail, target)
        else:
            store.rename(self.path, target)
        store.sync_folder(os.path.dirname(target))
        with contextlib.suppress(OSError):  # E.g. open files on Windows: `recover` removes the rest.
            remove_tree(store, remains)
        self.release()
        return target

    def release(self) -> None:
        """Unlocks the dataset; removes the new one if it was not moved into place."""
        with contextlib.suppress(OSError):
            remove_tree(self.store, self.path)
        for lock in self._locks:
            lock.release()
        if self._replaced is not None:
            self._replaced.release()


def remove_derived(store: Store, folder: str, is_moved: bool = False) -> None:
    """Removes the statistics and key indexes of a dataset; for a shard, of its whole dataset.

    They detect changed data only by its length and a few datapoints, which new data may share.

    Args:
        store, folder: The dataset.
        is_moved: Whether the folder is replaced as a whole, so that its own files need not be removed.
    """
    whole = dataset_of_shard(store, folder)
    if whole is not None:  # The files are in the first shard.
        folder = store.join(whole, next(iter(shard_numbers(store, whole).values())))
    elif is_moved:
        return
    names = list(filter(DERIVED.fullmatch, store.names(folder)))
    for name in names:
        store.remove(store.join(folder, name))
    if names:
        store.sync_folder(folder)


def _check(store: Store, folder: str, is_shard: bool = False) -> Lock:
    """Locks a dataset folder; checks that it holds only a dataset, and that no writer has it open."""
    lock = store.lock(folder)
    for name in store.names(folder):
        if name.isascii() and name.isdigit() and not is_shard:
            _check(store, store.join(folder, name), True).release()
        elif not is_file_of_dataset(name):
            detail = f'holds {name!r}, which is not part of a dataset: not overwritten'
            raise FileExistsError(errno.EEXIST, detail, folder)
    return lock
