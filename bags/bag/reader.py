"""`Reader`: the records of one bag, or of shards that form one sequence."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, SupportsIndex, Unpack, overload

from bags.bag.compression import Buffer
from bags.bag.iteration import in_batches, iterate
from bags.bag.options import ReaderKeywords, ReaderOptions, ShardingLayout
from bags.bag.sharding import expand
from bags.bag.shards import Indices, Shards, global_indices
from bags.concurrency import ClosedHandle
from bags.indexing import as_indices, check_index
from bags.storage import store_for
from bags.storage.urls import plain_path
from bags.validation import as_record, merge


class Reader(Sequence[bytes]):
    """The records of one or several bags, as a sequence.

    Thread-safe, fork-safe and picklable. Slices are Readers over the same open files. A Reader is a snapshot:
    it does not see records written after it was opened.

    Args:
        file_spec: A path; `name@8.bagz` or `name@*.bagz` for shards `name-00000-of-00008.bagz` …;
            a glob; several of these separated by commas; or an iterable of these.
        options: Options as `Reader.Options(…)`; copied.
        **keywords: Options by name; see `ReaderKeywords`. They take precedence over `options`.

    Raises:
        FileNotFoundError: A file does not exist, or a pattern has no match.
        IsADirectoryError: The path is a folder, such as a dataset, which `bags.open` opens.
        CorruptError: The limits of a file are invalid.
        ValueError: Interleaved shards have unequal lengths, or an option is invalid.

    Examples:
        >>> reader = bags.bag.Reader('episodes/000000/task.bag')
        >>> len(reader), reader[1], reader.read_indices([2, 0])
        (4, b'reach 1', [b'reach 2', b'reach 0'])
    """

    Options = ReaderOptions

    def __init__(
        self,
        file_spec: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        options: ReaderOptions | None = None,
        **keywords: Unpack[ReaderKeywords],
    ) -> None:
        options = merge(ReaderOptions, options, keywords)
        file_spec = plain_path(file_spec)
        if isinstance(file_spec, bytes) or not isinstance(file_spec, str | os.PathLike | Iterable):
            raise TypeError(f'file_spec: expected a path or several paths, got {type(file_spec).__name__}')
        specs = [file_spec] if isinstance(file_spec, str | os.PathLike) else [*map(plain_path, file_spec)]
        store, _ = store_for(specs[0] if specs else '', options.filesystem, options.storage_options)

        def in_store(path: str) -> str:
            return store_for(path, options.filesystem, options.storage_options)[1]

        paths, file_spec = expand(
            specs, lambda path: store.exists(in_store(path)), lambda folder: store.names(in_store(folder))
        )
        shards = Shards(list(map(in_store, paths)), options)
        self._open(options, file_spec, shards, range(shards.total))

    def _open(self, options: ReaderOptions, file_spec: str, shards: Shards, chosen: range) -> None:
        self._options, self._file_spec = options, file_spec
        self._shards = shards
        self._range, self._closed = chosen, False
        # These stay available after `close`.
        self._paths, self._total = shards.paths, shards.total
        self._size, self._mean = shards.size, shards.mean
        if len(shards.paths) == 1 and chosen == range(shards.total) and shards.bags[0].count == shards.total:
            # For a whole bag, its own functions are used, which accept any index.
            self._get: Callable[[Any], bytes] = shards.bags[0].get
            self._get_view: Callable[[Any], Buffer] = shards.bags[0].get_view
        else:
            self._get = functools.partial(_get, shards.record, chosen)
            self._get_view = functools.partial(_get, shards.record_view, chosen)

    # Properties.

    @property
    def options(self) -> ReaderOptions:
        """A copy of the options."""
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
        """Returns the mean bytes of a record as stored, without its limit; 0.0 without records."""
        return self._mean

    @property
    def size(self) -> int:
        """Total bytes of the files: records as stored, and limits."""
        return self._size

    def bytes_before(self, index: int) -> int:
        """Returns the number of bytes on disk before a record; approximate for interleaved shards.

        The difference between two indices is the number of bytes that are read from one to the other.
        """
        if not self._range:
            return 0
        inside = index < len(self._range)
        last = max(self._range[0], self._range[-1])
        return self._shards.bytes_before(self._range[index] if inside else last + 1)

    def warm_limits(self) -> None:
        """Reads all limits into memory."""
        for shard in range(len(self._paths)):
            self._shards.bags[shard].warm()

    # One record, or a slice.

    @overload
    def __getitem__(self, index: SupportsIndex) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Reader: ...

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return _restore(self._options, self._file_spec, self._check_open(), _sliced(self._range, index))
        try:
            return self._get(index)
        except (TypeError, ValueError):
            if type(index) is int:
                raise
            return self._get(check_index(index, len(self._range)))

    def view(self, index: SupportsIndex) -> Buffer:
        """Returns a record as a buffer: a view of the file, if it is memory-mapped and not compressed.

        A view keeps its file mapped, even after `close`.
        """
        return self._get_view(check_index(index, len(self._range)))

    def __reversed__(self) -> Reader:  # type: ignore[override]
        return self[::-1]

    # Many records.

    def read(self) -> list[bytes]:
        """Returns all records."""
        return self._shards.read(self._range)

    def read_range(self, start: int, num_records: int) -> list[bytes]:
        """Returns `num_records` records from `start` on.

        Raises:
            IndexError: The range extends beyond the records.
        """
        return self._shards.read(self._range_of(start, num_records))

    def read_indices(self, indices: slice | Iterable[SupportsIndex]) -> list[bytes]:
        """Returns the records at some indices, in their order. Equal indices return the same object.

        Args:
            indices: Integers (a list, a NumPy array of any integer type, or another iterable), where negative
                integers count from the end; or a slice.

        Raises:
            IndexError: An index is out of range. Nothing is read.
        """
        return self._shards.read_shared(self._global(indices))

    def views(self, indices: slice | Iterable[SupportsIndex]) -> list[Buffer]:
        """As `read_indices`, but returns buffers; see `view`."""
        return self._shards.read(self._global(indices), views=True)

    def _global(self, indices: slice | Iterable[SupportsIndex]) -> Indices:
        if isinstance(indices, slice):
            return _sliced(self._range, indices)
        return global_indices(self._range, as_indices(indices, len(self._range)))

    def _range_of(self, start: int, count: int) -> range:
        try:
            start, count = operator.index(start), operator.index(count)
        except TypeError:
            raise TypeError(f'range: expected two integers, got {start!r} and {count!r}') from None
        if start < 0 or count < 0 or start + count > len(self):
            raise IndexError(f'range [{start}, {start + count}) out of range [0, {len(self)})')
        return self._range[start : start + count]

    # Iterators.

    def __iter__(self) -> Iterator[bytes]:
        return iterate(self._check_open, self._range, None, None)

    def read_range_iter(
        self, start: int, num_records: int, *, read_ahead: int | None = None
    ) -> Iterator[bytes]:
        """Iterates over `num_records` records from `start` on.

        Args:
            read_ahead: Number of records read at a time. By default, as many as fit in `read_ahead_bytes`.

        Raises:
            IndexError: The range extends beyond the records. Raised immediately.
        """
        return iterate(self._check_open, self._range_of(start, num_records), None, read_ahead)

    def read_indices_iter(
        self, indices: slice | Iterable[SupportsIndex], *, read_ahead: int | None = None
    ) -> Iterator[bytes]:
        """Iterates over the records at some indices, which may be an infinite iterator.

        An error of the indices, or of a record, is raised after all records before it. Indices are consumed
        up to two batches ahead of the records.

        Args:
            indices: As in `read_indices`. An error of `iter(indices)` is raised immediately.
            read_ahead: Number of records read at a time. By default, as many as fit in `read_ahead_bytes`.
        """
        if isinstance(indices, slice):
            return iterate(self._check_open, _sliced(self._range, indices), None, read_ahead)
        if not isinstance(indices, Iterable):
            raise TypeError(f'indices: expected several integers, got {indices!r}')
        return iterate(self._check_open, self._range, iter(indices), read_ahead)

    # Searching.

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Returns the first index of a record, from `start` to `stop`.

        Raises:
            ValueError: The record does not occur.
        """
        record = as_record(value)
        position, stop, _ = slice(start, stop).indices(len(self))
        for records in in_batches(self._check_open(), self._range[position:stop]):
            if record in records:
                return position + records.index(record)
            position += len(records)
        raise ValueError(f'no such record in {self!r}')

    def count(self, value: Any) -> int:
        """Returns how many times a record occurs."""
        record = as_record(value)
        return sum(records.count(record) for records in in_batches(self._check_open(), self._range))

    def __contains__(self, value: object) -> bool:
        try:
            record = as_record(value)
        except TypeError:
            return False
        return any(record in records for records in in_batches(self._check_open(), self._range))

    # Closing.

    @property
    def closed(self) -> bool:
        return self._closed

    def _check_open(self) -> Shards:
        if self._closed:
            raise ValueError(f'{self!r} is closed')
        return self._shards

    def close(self) -> None:
        """Releases the files. Later reads raise ValueError. Earlier slices and buffers stay valid."""
        self._closed = True
        closed: Any = ClosedHandle(repr(self))
        self._shards = self._get = self._get_view = closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._options, self._file_spec, self._check_open(), self._range)


def _get(read: Callable[[int], Any], chosen: range, index: Any) -> Any:
    return read(chosen[check_index(index, len(chosen))])


class InvalidSlice(IndexError, TypeError, ValueError):
    """A slice has bounds that are not integers, or step 0.

    Säckli raises IndexError; bagz and Python raise TypeError or ValueError.
    """


def _restore(options: ReaderOptions, file_spec: str, shards: Shards, chosen: range) -> Reader:
    reader = object.__new__(Reader)
    reader._open(options, file_spec, shards, chosen)
    return reader


def _sliced(chosen: range, part: slice) -> range:
    try:
        return chosen[part]
    except (TypeError, ValueError) as exc:
        raise InvalidSlice(f'Invalid slice: {exc}') from None
