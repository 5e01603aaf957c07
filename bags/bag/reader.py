"""Reading bags: one file, or shards that together are one sequence."""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, SupportsIndex, overload

import numpy as np

from bags.bag.compression import Buffer
from bags.bag.files import store_for
from bags.bag.gather import Closed
from bags.bag.indices import as_indices, check_index
from bags.bag.iterate import Batch, batches, read_ahead
from bags.bag.limits import Int64s
from bags.bag.options import ReaderOptions, ShardingLayout, merge
from bags.bag.records import as_record
from bags.bag.sharding import expand
from bags.bag.shards import Shards
from bags.errors import BagsError

__all__ = ['Reader']

LONGEST = 4096  # Records an iterator reads at a time, however small they are.
FAR = 16  # Times as much from a storage that is waited for.


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
        specs = [file_spec] if isinstance(file_spec, str | os.PathLike) else list(file_spec)
        filesystem, storage = self._options.filesystem, self._options.storage_options
        store, _ = store_for(specs[0] if specs else '', filesystem, storage)

        def local(path: str) -> str:
            return store_for(path, filesystem, storage)[1]

        paths, self._file_spec = expand(
            specs, lambda path: store.exists(local(path)), lambda folder: store.names(local(folder))
        )
        self._start(Shards(list(map(local, paths)), self._options))

    def _start(self, shards: Shards, part: range | None = None) -> None:
        self._shards: Any = shards
        self._range = range(shards.layout.total) if part is None else part
        # What is known of them stays known when they are closed.
        self._paths, self._total, self._size = shards.paths, shards.layout.total, shards.size
        self._closed = False
        self._get: Callable[[int], bytes]
        self.view: Callable[[int], Buffer]
        self._get, self.view = shards.getters(self._range)

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
        if not self._range:
            return 0
        if index >= len(self._range):
            return self._open_shards().bytes_before(max(self._range[0], self._range[-1]) + 1)
        return self._open_shards().bytes_before(self._range[index])

    def warm_limits(self) -> None:
        """Reads all limits, so that later reads find them in memory."""
        for shard in range(len(self._paths)):
            self._shards.bags[shard].warm()

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
                return self._part(self._range[index])
            return self._get(check_index(index, len(self._range)))

    def _open_shards(self) -> Shards:
        shards: Shards = self._shards() if self._closed else self._shards
        return shards

    def _part(self, part: range) -> Reader:
        reader = object.__new__(Reader)
        reader._options, reader._file_spec = self._options, self._file_spec
        reader._start(self._open_shards(), part)
        return reader

    def __reversed__(self) -> Reader:  # type: ignore[override]
        return self[::-1]

    # Many records.

    def read(self) -> list[bytes]:
        """Returns all records."""
        return self._read(self._range)

    def read_range(self, start: int, num_records: int) -> list[bytes]:
        """Returns the records from `start` on, `num_records` of them.

        Raises:
            IndexError: Not all of them are there.
        """
        return self._read(self._subrange(start, num_records))

    def read_indices(self, indices: slice | Iterable[SupportsIndex]) -> list[bytes]:
        """Returns records by index, in the order asked; equal indices give the same object.

        Args:
            indices: Integers (a list, a numpy array of any integer type, any iterable; negative ones
                count from the end), or a slice.

        Raises:
            IndexError: An index out of range; nothing is read then.
        """
        if isinstance(indices, slice):
            return self._read(self._range[indices])
        chosen = as_indices(indices, len(self._range))
        if len(chosen) > 1:
            ordered = np.sort(chosen)
            if (ordered[1:] == ordered[:-1]).any():
                return self._read_repeated(chosen)
        return self._read(self._global(chosen))

    def _read_repeated(self, chosen: Int64s) -> list[bytes]:
        """Reads by indices that have equal ones among them: each once if there are many, else all."""
        order = np.argsort(chosen, kind='stable')
        ordered = chosen[order]
        repeated = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1
        if 4 * len(repeated) > len(chosen):
            unique, inverse = np.unique(chosen, return_inverse=True)
            records = self._read(self._global(unique))
            return [records[position] for position in inverse.tolist()]
        records = self._read(self._global(chosen))
        for first, second in zip(order[repeated - 1].tolist(), order[repeated].tolist(), strict=True):
            records[second] = records[first]
        return records

    def views(self, indices: slice | Iterable[SupportsIndex]) -> list[Buffer]:
        """As `read_indices`, but buffers over the files themselves where these are mapped and not compressed.

        A buffer keeps its file mapped as long as it lives, also after `close`.
        """
        if isinstance(indices, slice):
            return self._read(self._range[indices], 'views')
        return self._read(self._global(as_indices(indices, len(self._range))), 'views')

    def _global(self, indices: Int64s) -> Int64s:
        part = self._range
        return indices if part.start == 0 and part.step == 1 else part.start + part.step * indices

    def _along(self, indices: range) -> range:
        """Returns global indices of indices in range. A slice would take a stop of -1 for the last."""
        start, step = self._range.start, self._range.step
        return range(start + step * indices.start, start + step * indices.stop, step * indices.step)

    def _subrange(self, start: int, count: int) -> range:
        start, count = operator.index(start), operator.index(count)
        if start < 0 or count < 0 or start + count > len(self._range):
            raise IndexError(f'range [{start}, {start + count}) out of range [0, {len(self._range)})')
        return self._range[start : start + count]

    def _read(self, chosen: range | Int64s, how: str = 'read') -> list[Any]:
        """Reads by global indices that are known to be in range."""
        records: list[Any] = self._shards.read(chosen, how)
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
        self._subrange(start, num_records)
        return self._iterate(range(start, start + num_records), read_ahead)

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
        return self._iterate(indices, read_ahead)

    def _iterate(self, indices: Iterable[Any], read_ahead_count: int | None) -> Iterator[bytes]:
        bags = self._shards.bags
        if isinstance(indices, range) and not indices:
            return iter(())
        mean = self.approximate_bytes_per_record()
        bag = bags[0]
        # What is waited for is read further ahead, by several requests at once.
        times = FAR if self._shards.waits and bag.overlaps else 1
        length = int(times * self._options.read_ahead_bytes // max(mean, 1)) or 1
        length = (
            min(length, times * LONGEST)
            if read_ahead_count is None
            else max(1, operator.index(read_ahead_count))
        )
        if length <= 2 and isinstance(indices, range) and not bag.overlaps:
            get = self._get  # Large records, mapped: the kernel reads ahead by itself.
            return (get(index) for index in indices)
        if isinstance(indices, range):
            starts = range(0, len(indices), length)
            selections: Iterator[Batch] = (Batch(indices[start : start + length]) for start in starts)
        else:
            selections = batches(indices, length)
        return itertools.chain.from_iterable(
            read_ahead(selections, self._expect, self._attempt, bag.overlaps)
        )

    def _attempt(self, indices: Any) -> Batch:
        """Reads a batch; if that fails, one by one up to the record or index that is at fault."""
        try:
            if isinstance(indices, range):
                return Batch(self._read(self._along(indices)))
            return Batch(self.read_indices(indices))
        except (BagsError, LookupError, TypeError, ValueError, OSError):
            records: list[bytes] = []
            for index in indices:
                try:
                    records.append(self[operator.index(index)])
                except Exception as exc:
                    return Batch(records, exc)
            return Batch(records)

    def _expect(self, indices: Any) -> None:
        """Has the kernel read ahead what a batch will want. Errors wait for the read."""
        try:
            if isinstance(indices, range):
                chosen: range | Int64s = self._along(indices)
            else:
                chosen = self._global(as_indices(indices, len(self._range)))
            self._shards.expect(chosen)
        except (BagsError, LookupError, TypeError, ValueError, OSError):
            pass

    # Looking for records.

    def _batches(self, start: int, stop: int) -> Iterator[tuple[int, list[bytes]]]:
        mean = self.approximate_bytes_per_record()
        length = min(int(self._options.read_ahead_bytes // max(mean, 1)) or 1, LONGEST)
        for first in range(start, stop, length):
            yield first, self._read(self._range[first : min(first + length, stop)])

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Returns the first index, from `start` to `stop`, of a record.

        Raises:
            ValueError: No such record.
        """
        record = as_record(value)
        start, stop, _ = slice(start, stop).indices(len(self))
        for first, records in self._batches(start, stop):
            if record in records:
                return first + records.index(record)
        raise ValueError(f'no such record in {self!r}')

    def count(self, value: Any) -> int:
        """Returns how often a record occurs."""
        record = as_record(value)
        return sum(records.count(record) for _, records in self._batches(0, len(self)))

    def __contains__(self, value: object) -> bool:
        try:
            record = as_record(value)
        except TypeError:
            return False
        return any(record in records for _, records in self._batches(0, len(self)))

    # Its end.

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Lets go of the files. Slices and buffers made before go on; the Reader itself raises ValueError."""
        self._closed = True
        self._shards = self._get = self.view = Closed(repr(self))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._options, self._file_spec, self._open_shards(), self._range)


def _restore(options: ReaderOptions, file_spec: str, shards: Shards, part: range) -> Reader:
    reader = object.__new__(Reader)
    reader._options, reader._file_spec = options, file_spec
    reader._start(shards, part)
    return reader
