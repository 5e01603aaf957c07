"""The base of the writers of datasets: their arguments, and how the folder replaces another."""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Self

from bags.bag.temporary_files import remove_leftovers, remove_tree, temporary_path
from bags.dataset.encoder import Encoder
from bags.dataset.field_writer import Compression, field_compressions
from bags.dataset.listing import dataset_of_shard, shard_numbers
from bags.dataset.metadata import dump_metadata
from bags.dataset.resume import is_derived, is_file_of_dataset
from bags.dataset.spec import check_names, parse_spec, type_texts
from bags.storage import Lock, Store, store_for
from bags.validation import one_of

__all__ = ['BaseWriter', 'remove_derived']


_open_writers: weakref.WeakValueDictionary[int, BaseWriter] = weakref.WeakValueDictionary()
"""By `id`, in the order of their creation: a writer of shards comes before that of its current shard."""


class BaseWriter(ABC):
    """What the writers of one folder and of several share."""

    _closed = True  # Until the folder is open.

    def __init__(
        self,
        directory: str | os.PathLike[str],
        spec: Mapping[str, str],
        encoders: Mapping[str, Callable[..., Any]] | None,
        compression: Compression,
        checksum: bool,
        resume: bool,
        metadata: Mapping[str, Any] | None,
        mode: str,
        storage: dict[str, Any],
    ) -> None:
        self._process = os.getpid()
        _open_writers[id(self)] = self
        self._types = parse_spec(spec)
        check_names(self._types)
        self._compressions = field_compressions(compression, self._types)
        self._metadata: dict[str, Any] | None = None
        if metadata is not None:
            self._metadata = json.loads(dump_metadata(metadata, self._types))
        self._encoder = Encoder(self._types, encoders)
        self._checksum = checksum
        self._storage = storage
        self._store, self.directory = store_for(directory, **storage)
        one_of('mode', mode, ('create', 'overwrite'))
        self._replacement: Replacement | None = None
        if mode == 'overwrite':
            if resume:
                raise ValueError("mode: expected 'create' with resume=True, got 'overwrite'")
            self._replacement = Replacement(self._store, self.directory)
            self.directory = self._replacement.path
        self._made_folder = not self._store.is_remote and not self._store.exists(self.directory)
        self._store.make_folder(self.directory)

    @property
    def spec(self) -> dict[str, str]:
        """The type of each field, sorted by field."""
        return type_texts(self._types)

    @property
    def closed(self) -> bool:
        return self._closed

    def __bool__(self) -> bool:
        return True

    @abstractmethod
    def __len__(self) -> int: ...

    def append(self, datapoint: Mapping[str, Any], flush: bool | None = None) -> int:
        """Appends a datapoint: as a whole, or, if this raises, not at all.

        Args:
            datapoint: A value for each field; for a sequence field any iterable, of which one item is in
                memory at a time. An optional field may be None or left out.
            flush: True makes the datapoint readable by other processes, and safe if this process is killed,
                at once. None (the default) does so every 8 MiB and every second; False only when buffers
                are full.

        Returns:
            The index of the datapoint; of several folders, among all in those of this writer's numbers.

        Raises:
            EncodeError: A field is missing or unknown, or a value cannot be encoded.
            OSError: E.g. the disk is full; nothing was appended.
        """
        return self._append_records(self._encoder.encode(datapoint), flush)

    @abstractmethod
    def _append_records(self, records: list[Any], flush: bool | None = None) -> int:
        """Appends a datapoint that is already encoded, as `Encoder.encode` returns it; see `append`."""

    @abstractmethod
    def flush(self) -> None:
        """Makes all datapoints readable by other processes, and safe if this process is killed."""

    @abstractmethod
    def close(self) -> None:
        """Flushes and closes the dataset. After an error it may be called again."""

    @abstractmethod
    def _abandon(self) -> None:
        """Closes the dataset as unfinished; removes it if it has no datapoint, or was to replace another."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.close()
            return
        with contextlib.suppress(OSError):  # The block's own error matters more.
            self._abandon()

    def __del__(self) -> None:
        # A copy in a forked process has the buffers, but its files are those of the parent. Clients of object
        # stores need threads, which cannot be started while the process ends.
        if not self._closed and self._process == os.getpid() and not self._store.is_remote:
            self._abandon()


@atexit.register
def _abandon_open_writers() -> None:
    # Later, what a writer needs may be finalized before it. All are called, even if one raises.
    with contextlib.ExitStack() as stack:
        for writer in reversed(list(_open_writers.values())):
            stack.callback(writer.__del__)


# Replacing a local dataset: a new one is written beside it, then takes its place by renaming.


class Replacement:
    """A folder that takes the place of a dataset, if there is one. Nothing else may write to that meanwhile.

    Raises:
        ValueError: It is on an object store, where folders cannot be renamed.
        FileExistsError: The folder holds what is no part of a dataset.
        BlockingIOError: A writer is at work in it.
    """

    def __init__(self, store: Store, target: str) -> None:
        if store.is_remote:
            raise ValueError(
                f"{target}: mode='overwrite' needs a local folder, as object stores cannot rename folders: "
                f'write to another folder, then remove this one'
            )
        self._store = store
        self._target = os.path.realpath(target)  # Not a link, which would be renamed itself.
        remove_leftovers(store, self._target)
        self._locks = [_check(store, self._target)] if store.exists(self._target) else []
        self.path = temporary_path(store, self._target)
        """The folder to write."""
        store.make_folder(self.path)
        self._locks.append(store.lock(self.path))

    def swap(self) -> str:
        """Puts the new dataset in place, removes the old one, and returns the path."""
        # A process that is killed in between leaves the old one, which `remove_leftovers` puts back.
        old = self.path.removesuffix('.new') + '.old'
        if self._store.exists(self._target):
            remove_derived(self._store, self._target)
            self._store.rename(self._target, old)
        self._store.rename(self.path, self._target)
        with contextlib.suppress(OSError):  # E.g. files that are open on Windows: `recover` removes the rest.
            remove_tree(self._store, old)
        self.release()
        return self._target

    def release(self) -> None:
        """Lets others write to the dataset again; removes the new one if it did not take its place."""
        with contextlib.suppress(OSError):
            remove_tree(self._store, self.path)
        for lock in self._locks:
            lock.release()


def remove_derived(store: Store, folder: str) -> None:
    """Removes the statistics and key indexes of a dataset. If it is a shard, those of the whole dataset.

    They tell other data by its length and a few datapoints, which may become the same again.
    """
    whole = dataset_of_shard(store, folder)
    if whole is not None:  # They are in its first shard.
        folder = store.join(whole, next(iter(shard_numbers(store, whole).values())))
    for name in filter(is_derived, store.names(folder)):
        store.remove(store.join(folder, name))


def _check(store: Store, folder: str, is_shard: bool = False) -> Lock:
    """Locks a folder in which all is part of a dataset, and no writer at work."""
    lock = store.lock(folder)
    for name in store.names(folder):
        if name.isascii() and name.isdigit() and not is_shard:
            _check(store, store.join(folder, name), True).release()
        elif not is_file_of_dataset(name):
            detail = f'holds {name!r}, which is no part of a dataset: it is not overwritten'
            raise FileExistsError(errno.EEXIST, detail, folder)
    return lock
