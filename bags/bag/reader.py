"""Reading bags: one file, or shards that together are one sequence."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, SupportsIndex, overload

from bags.bag.iteration import in_batches, iterate
from bags.bag.options import ReaderOptions, ShardingLayout, merge
from bags.bag.record_slice import RecordSlice
from bags.bag.records import as_record
from bags.bag.sharding import expand
from bags.bag.shards import Shards
from bags.bag.zstd import Buffer
from bags.concurrency import ClosedHandle
from bags.indexing import Int64s, as_indices, check_index
from bags.storage import store_for

__all__ = ['Reader']


class Reader(Sequence[bytes]):
    """A sequence of the records of a bag, or of several.

    Thread-safe, fork-safe and picklable. Slices are Readers over the same open files. Files are
    opened when first needed and stay as they were then.

    Args:
        file_spec: A path; `name@8.bagz` or `name@*.bagz` for shards `name-00000-of-00008.bagz` …;
            a glob; several with commas between; or an iterable of these.
        options: As `Reader.Options(…)`; copied.
        **keywords: Any option by its name, over those in `options`.

    Raises:
        FileNotFoundError: A file that is not there, or a pattern that matches none.
        IsADirectoryError: A folder, such as a dataset, which `bags.open` opens.
        CorruptError: A file whose limits cannot be right.
        ValueError: Interleaved shards of unequal lengths, or an option that is none.
    """

    Options = ReaderOptions

    def __init__(
        self,
        file_spec: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        options: ReaderOptions | None = None,
        **keywords: Any,
    ) -> None:
        self._options = merge(ReaderOptions, options, keywords)
        if isinstance(file_spec, bytes) or not isinstance(file_spec, str | os.PathLike | Iterable):
            raise TypeError(f'file_spec: expected a path, or several, got {type(file_spec).__name__}')
        specs = [file_spec] if isinstance(file_spec, str | os.PathLike) else list(file_spec)
        filesystem, storage = self._options.filesystem, self._options.storage_options
        store, _ = store_for(specs[0] if specs else '', filesystem, storage)

        def local(path: str) -> str:
            return store_for(path, filesystem, storage)[1]

        paths, self._file_spec = expand(
            specs, lambda path: store.exists(local(path)), lambda folder: store.names(local(folder))
        )
        shards = Shards(list(map(local, paths)), self._options)
        self._start(RecordSlice(shards, range(shards.layout.total)))

    def _start(self, part: RecordSlice) -> None:
        self._part: Any = part
        # What is known of it stays known when it is closed.
        shards = part.shards
        self._range, self._paths = part.chosen, shards.paths
        self._total, self._size = shards.layout.total, shards.size
        self._closed = False
        self._get: Callable[[int], bytes] = part.get
        self.view: Callable[[int], Buffer] = part.get_view

    # What it is.

    @property
    def options(self) -> ReaderOptions:
        """A copy of the options in use."""
        return merge(ReaderOptions, self._options, {})

    @property
    def file_spec(self) -> str:
        """The file spec as one string."""
        return self._file_spec

    @property
    def paths(self) -> list[str]:
        """The files, in order."""
        return list(self._paths)

    def __len__(self) -> int:
        return len(self._range)

    def __repr__(self) -> str:
        part = ''
        if self._range != range(self._total):
            part = f'[{self._range.start}:{self._range.stop}:{self._range.step}]'
        layout = self._options.sharding_layout
        order = '' if layout is ShardingLayout.CONCATENATED else f', {layout.name.lower()}'
        return f'bags.bag.Reader({self._file_spec!r}{order}){part} of {len(self)} records'

    def approximate_bytes_per_record(self) -> float:
        """Returns the mean bytes of a record on disk with its limit; 0.0 if there is none."""
        return self._size / self._total if self._total else 0.0

    @property
    def size(self) -> int:
        """Bytes of the files: records as they are held, and limits."""
        return self._size

    def bytes_before(self, index: int) -> int:
        """Returns the bytes that the records before an index take on disk; of interleaved shards about that.

        Reading them from one index to another costs the difference.
        """
        before: int = self._opened().bytes_before(index)
        return before

    def warm_limits(self) -> None:
        """Reads all limits, so that later reads find them in memory."""
        for shard in range(len(self._paths)):
            self._opened().shards.bags[shard].warm()

    # One record, or a part.

    @overload
    def __getitem__(self, index: SupportsIndex) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Reader: ...

    def __getitem__(self, index: Any) -> Any:
        try:
            return self._get(index)
        except (TypeError, ValueError):  # This way round, those who pass an int do not pay for the question.
            if type(index) is int:
                raise
            if isinstance(index, slice):
                return self._slice(self._range[index])
            return self._get(check_index(index, len(self._range)))

    def _opened(self) -> RecordSlice:
        """Returns what it reads from, unless it is closed."""
        part: RecordSlice = self._part() if self._closed else self._part
        return part

    def _slice(self, chosen: range) -> Reader:
        reader = object.__new__(Reader)
        reader._options, reader._file_spec = self._options, self._file_spec
        reader._start(RecordSlice(self._opened().shards, chosen))
        return reader

    def __reversed__(self) -> Reader:  # type: ignore[override]
        return self[::-1]

    # Many records.

    def read(self) -> list[bytes]:
        """Returns all records."""
        return self._read(range(len(self)))

    def read_range(self, start: int, num_records: int) -> list[bytes]:
        """Returns the records from `start` on, `num_records` of them.

        Raises:
            IndexError: Not all of them are there.
        """
        return self._read(self._subrange(start, num_records))

    def read_indices(self, indices: slice | Iterable[SupportsIndex]) -> list[bytes]:
        """Returns records by index, in the order asked; equal indices give the same object.

        What large results took, 64 MiB to 1 GiB, stays with the process for the next ones until the reader is
        closed.

        Args:
            indices: Integers (a list, a numpy array of any integer type, any iterable; negative ones
                count from the end), or a slice.

        Raises:
            IndexError: An index out of range; nothing is read then.
        """
        if isinstance(indices, slice):
            return self._read(range(len(self))[indices])
        records: list[bytes] = self._part.read_shared(as_indices(indices, len(self)))
        return records

    def views(self, indices: slice | Iterable[SupportsIndex]) -> list[Buffer]:
        """As `read_indices`, but buffers over the files themselves where these are mapped and not compressed.

        A buffer keeps its file mapped as long as it lives, also after `close`.
        """
        if isinstance(indices, slice):
            return self._read(range(len(self))[indices], 'views')
        return self._read(as_indices(indices, len(self)), 'views')

    def _subrange(self, start: int, count: int) -> range:
        try:
            start, count = operator.index(start), operator.index(count)
        except TypeError:
            raise TypeError(f'range: expected two integers, got {start!r} and {count!r}') from None
        if start < 0 or count < 0 or start + count > len(self):
            raise IndexError(f'range [{start}, {start + count}) out of range [0, {len(self)})')
        return range(start, start + count)

    def _read(self, indices: range | Int64s, how: str = 'read') -> list[Any]:
        """Reads by indices that are known to be in range."""
        records: list[Any] = self._part.read(indices, how)
        return records

    # Iterators.

    def __iter__(self) -> Iterator[bytes]:
        return self._iterate(range(len(self)), None)

    def read_range_iter(
        self, start: int, num_records: int, *, read_ahead: int | None = None
    ) -> Iterator[bytes]:
        """Iterates over the records from `start` on, `num_records` of them.

        Args:
            read_ahead: Records read at a time; unless given, as many as take `read_ahead_bytes`.

        Raises:
            IndexError: At once, if not all of them are there.
        """
        return self._iterate(self._subrange(start, num_records), read_ahead)

    def read_indices_iter(
        self, indices: slice | Iterable[SupportsIndex], *, read_ahead: int | None = None
    ) -> Iterator[bytes]:
        """Iterates over records by index; the indices may be an infinite iterator.

        What the indices, or a record, raise comes out where it occurs: after all records before it.
        Indices are taken from the iterator up to two batches ahead of the records.

        Args:
            read_ahead: Records read at a time; unless given, as many as take `read_ahead_bytes`.
        """
        if isinstance(indices, slice):
            return self._iterate(range(len(self))[indices], read_ahead)
        if isinstance(indices, range):
            indices = iter(indices)  # Perhaps not all in range.
        if not isinstance(indices, Iterable):
            raise TypeError(f'indices: expected several integers, got {indices!r}')
        return self._iterate(indices, read_ahead)

    def _iterate(self, indices: Iterable[Any], read_ahead: int | None) -> Iterator[bytes]:
        return iterate(self._opened, indices, read_ahead)

    # Looking for records.

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Returns the first index, from `start` to `stop`, of a record.

        Raises:
            ValueError: No such record.
        """
        record = as_record(value)
        start, stop, _ = slice(start, stop).indices(len(self))
        for first, records in in_batches(self._opened(), start, stop):
            if record in records:
                return first + records.index(record)
        raise ValueError(f'no such record in {self!r}')

    def count(self, value: Any) -> int:
        """Returns how often a record occurs."""
        record = as_record(value)
        return sum(records.count(record) for _, records in in_batches(self._opened(), 0, len(self)))

    def __contains__(self, value: object) -> bool:
        try:
            record = as_record(value)
        except TypeError:
            return False
        return any(record in records for _, records in in_batches(self._opened(), 0, len(self)))

    # Its end.

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Lets go of the files. Slices and buffers made before go on; the Reader itself raises ValueError."""
        self._closed = True
        self._part = self._get = self.view = ClosedHandle(repr(self))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._options, self._file_spec, self._opened().shards, self._range)


def _restore(options: ReaderOptions, file_spec: str, shards: Shards, chosen: range) -> Reader:
    reader = object.__new__(Reader)
    reader._options, reader._file_spec = options, file_spec
    reader._start(RecordSlice(shards, chosen))
    return reader
