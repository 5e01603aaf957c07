"""Writing datasets of many folders, one after the other."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from bags.bag.dictionary import check_dictionary
from bags.dataset.closing import Closing
from bags.dataset.compression import Compression, field_compressions
from bags.dataset.encoder import bind_encoders
from bags.dataset.field_writer import RECORDS, Run
from bags.dataset.reader import DatasetReader
from bags.dataset.shard_index import INDEX
from bags.dataset.shard_list import shard_numbers
from bags.dataset.spec import Spec, check_names, parse_spec
from bags.dataset.writer import DatasetWriter, close_at_exit
from bags.errors import CorruptError, SpecError
from bags.storage import store_for
from bags.validation import at_least, at_least_or_none

__all__ = ['GB', 'ShardedDatasetWriter']

GB = 1 << 30
ROOM = 1 << 24  # Records that a folder's last datapoint finds room for before the next folder is started.


class ShardedDatasetWriter:
    """Writes a dataset of many folders, one after the other. For one thread at a time.

    Args:
        directory: The folder of the shard folders; made, with those above it.
        spec, encoders: As in `DatasetWriter`.
        shard_size: Bytes from which on a shard is full; None for no bound.
        shard_length: Datapoints from which on a shard is full.
        shard_start, shard_step: Folders are numbered `shard_start`, `shard_start + shard_step` and so on, so
            that each of n writers at work at once has folders of its own. The order of datapoints is that
            of the numbers.
        compression, filesystem, storage_options: As in `DatasetWriter`.
        resume: Go on with the last of this writer's folders if it was not closed, else with the next number.
            On a storage of objects, whose files do not grow, one that is not whole is begun anew.

    On a storage of objects a shard that is full is uploaded while the next one fills; an error is raised by a
    later `append` or by `close`, which try again when they are called again.

    Raises:
        FileExistsError: A dataset is there, or, with a `shard_step`, one of the folders; and no `resume`.
        SpecError, BlockingIOError, CorruptError: As in `DatasetWriter`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        spec: Mapping[str, str],
        encoders: Mapping[str, Callable[..., Any]] | None = None,
        shard_size: int | None = 10 * GB,
        shard_length: int | None = None,
        shard_start: int = 0,
        shard_step: int = 1,
        *,
        compression: Compression = None,
        resume: bool = False,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._writer: DatasetWriter | None = None
        self._closed = True  # Until it is open.
        shard_start, shard_step = (
            at_least('shard_start', shard_start, 0),
            at_least('shard_step', shard_step, 1),
        )
        shard_size = at_least_or_none('shard_size', shard_size, 1)
        shard_length = at_least_or_none('shard_length', shard_length, 1)
        self.types: Spec = parse_spec(spec)
        check_names(self.types)
        bind_encoders(self.types, encoders)
        self.store, self.directory = store_for(directory, filesystem, storage_options)
        self._encoders = encoders
        self._shard_size, self._shard_length, self._step = shard_size, shard_length, shard_step
        self._number = shard_start
        self._keywords: dict[str, Any] = {
            'compression': field_compressions(compression, self.types),
            'filesystem': filesystem,
            'storage_options': storage_options,
        }
        self._past_shards = self._past_size = self._past_length = 0
        self._is_begun = False
        self._upload: Closing | None = None
        self.store.make_folder(self.directory)
        self._writer = self._first(shard_start, resume)
        self._closed = False

    def _first(self, start: int, resume: bool) -> DatasetWriter | None:
        """Opens the first folder to write to, and counts those before it."""
        store = self.store
        names = store.names(self.directory)
        if 'spec.json' in names or (not resume and self._step == 1 and names):
            raise FileExistsError(
                errno.EEXIST, 'something is there already (resume=True goes on with shards)', self.directory
            )
        numbers = shard_numbers(store, self.directory)
        mine = [number for number in numbers if number >= start and (number - start) % self._step == 0]
        if mine and not resume:
            raise FileExistsError(
                errno.EEXIST, 'is there already', store.join(self.directory, numbers[mine[0]])
            )
        if not mine:
            return self._start(False)
        if store.is_remote:
            return self._first_uploaded(numbers, mine)
        last = store.join(self.directory, numbers[mine[-1]])
        open_last = 'refs.bag' not in store.names(last) or 'limits.refs.bag' in store.names(last)
        for number in mine[:-1] if open_last else mine:
            self._count(store.join(self.directory, numbers[number]))
        self._find_dictionaries(last)
        self._number = mine[-1] if open_last else mine[-1] + self._step
        return self._start(True, last) if open_last else None

    def _find_dictionaries(self, shard: str) -> None:
        """Goes on with the dictionaries of a shard that is there."""
        compressions, names = self._keywords['compression'], self.store.names(shard)
        for name, how in compressions.items():
            if how.trained and f'{name}.zdict' in names:
                path = self.store.join(shard, f'{name}.zdict')
                compressions[name] = how._replace(dictionary=check_dictionary(self.store.read(path), path))

    def _first_uploaded(self, numbers: dict[int, str], mine: list[int]) -> DatasetWriter | None:
        """Goes on after the last whole shard of a storage whose files do not grow: what is not whole goes."""
        store = self.store
        while mine:
            folder = store.join(self.directory, numbers[mine[-1]])
            names = store.names(folder)
            if 'refs.bag' in names:
                break  # It is written last.
            for name in names:
                if name == 'spec.json' or name.endswith(('.bag', '.bagz', '.zdict')):
                    store.remove(store.join(folder, name))
            self._number = mine.pop()
        for number in mine:
            self._count(store.join(self.directory, numbers[number]))
        if mine:
            self._find_dictionaries(store.join(self.directory, numbers[mine[-1]]))
            self._number = mine[-1] + self._step
            return None  # The next begins with its first datapoint: there may be none.
        return self._start(False)

    def _count(self, path: str) -> None:
        options = {name: value for name, value in self._keywords.items() if name != 'compression'}
        try:
            reader = DatasetReader(path, raw=True, **options)
        except FileNotFoundError as exc:
            raise CorruptError(path, None, 'shard without spec.json') from exc
        if reader._types != self.types:
            raise SpecError(None, f'that of the shards there are, {reader.spec}', self.spec, path)
        self._past_shards += 1
        self._past_size += reader.size
        self._past_length += len(reader)

    def _start(self, resume: bool, path: str | None = None) -> DatasetWriter:
        path = path or self.store.join(self.directory, f'{self._number:06}')
        self.store.remove(self.store.join(self.directory, INDEX))  # It does not tell of this one.
        try:
            return DatasetWriter(path, self.spec, self._encoders, resume=resume, **self._keywords)
        except (FileExistsError, BlockingIOError):
            raise
        except OSError:
            self._is_begun = True  # A full disk, say: the next try goes on with what this one made.
            raise

    # What it is.

    @property
    def spec(self) -> dict[str, str]:
        """The type of each field, sorted by field."""
        return {name: kind.text for name, kind in self.types.items()}

    @property
    def shards(self) -> int:
        """Folders so far, with those found by `resume`."""
        return self._past_shards + (self._writer is not None)

    @property
    def size(self) -> int:
        """Bytes so far, with those found by `resume`."""
        return self._past_size + (self._writer.size if self._writer is not None else 0)

    def __len__(self) -> int:
        return self._past_length + (len(self._writer) if self._writer is not None else 0)

    def __bool__(self) -> bool:
        return True

    @property
    def closed(self) -> bool:
        return self._closed

    def __repr__(self) -> str:
        state = 'closed' if self._closed else 'open'
        return (
            f'bags.ShardedDatasetWriter({self.directory!r}, {self.spec}, {self.shards} shards, '
            f'{len(self)} datapoints, {state})'
        )

    # Writing.

    def append(self, datapoint: Mapping[str, Any], flush: bool | None = None) -> int:
        """Appends a datapoint, wholly or not at all; see `DatasetWriter.append`.

        Returns:
            The index of the datapoint among all that this writer's folders have.
        """
        writer = self._ready()
        return self._past_length + writer.append(datapoint, flush)

    def append_records(self, records: list[Any], flush: bool | None = None) -> int:
        """Appends a datapoint that is encoded already; see `DatasetWriter.append_records`."""
        writer = self._ready()
        return self._past_length + writer.append_records(records, flush)

    def append_runs(self, runs: Mapping[str, Sequence[Run]], refs: Mapping[str, Any]) -> None:
        """Appends many datapoints, all to one folder; see `DatasetWriter.append_runs`."""
        self._ready().append_runs(runs, refs)

    def _ready(self) -> DatasetWriter:
        """Returns the writer of the folder that has room."""
        if self._closed:
            raise ValueError(f'{self!r} is closed')
        if self._upload is not None and self._upload.failed:
            self._end_upload()
        # Not after the datapoint that fills it: if closing fails, nothing was appended.
        if self.is_due:
            self.end_shard()
        return self.begun()

    def begun(self) -> DatasetWriter:
        """Returns the writer of the folder that is being written, however full; there may be none yet."""
        if self._writer is None:
            self._writer = self._start(self._is_begun)
            self._is_begun = False
        return self._writer

    @property
    def current(self) -> DatasetWriter | None:
        """The writer of the folder that is being written; None before the first datapoint of one."""
        return self._writer

    def end_shard(self) -> None:
        """Ends the folder that is being written, if there is one."""
        if self._writer is not None:
            self._end_shard(self._writer)

    @property
    def is_due(self) -> bool:
        """Whether the next datapoint begins another folder."""
        writer = self._writer
        return writer is not None and self.is_full(writer.size, len(writer), writer.largest)

    def is_full(self, size: int, length: int, records: int) -> bool:
        """Tells if a folder of so many bytes, datapoints, and records of a field is full."""
        return (
            (self._shard_size is not None and size >= self._shard_size)
            or (self._shard_length is not None and length >= self._shard_length)
            or records >= RECORDS - ROOM
        )

    def _end_shard(self, writer: DatasetWriter) -> None:
        self._end_upload()
        if not self.store.is_remote:
            writer.close()
        else:
            writer.flush()
        self._past_shards += 1
        self._past_size += writer.size
        self._past_length += len(writer)
        self._number += self._step
        self._keywords['compression'] = writer.compressions  # With the dictionaries it trained.
        self._writer = None
        if self.store.is_remote:
            self._upload = Closing(writer)

    def _end_upload(self) -> None:
        """Waits until the shard before is there; an error is raised, and the next call tries again."""
        if self._upload is not None:
            self._upload.wait()
            self._upload = None

    def flush(self) -> None:
        """Makes all datapoints readable by other processes, and safe from the end of this one."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Flushes, and closes the last folder."""
        if self._closed:
            return
        self._end_upload()
        if self._writer is not None:
            self._writer.close()
        self._closed = True

    def __enter__(self) -> Self:
        return self

    __exit__ = close_at_exit
