"""One bag file, open for reading: its limits, its records, and every check between the two."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from bags.bag.compression import Buffer, Codec, codec_for
from bags.bag.files import File, Hints, Store
from bags.bag.files.mapped import gather
from bags.bag.limits import ENTRY, Int64s, Table, first_bad, locate, parse_tail, prefix_agrees
from bags.bag.options import LimitsPlacement, LimitsStorage, ReaderOptions
from bags.errors import CorruptError

__all__ = ['OpenBag', 'Retry', 'check_index', 'limits_name', 'open_bag']

BLOCK = 1 << 13  # Limits read at a time where they are not mapped: 64 KiB.
WINDOW = 1 << 13  # Records of one size up to this are made in one numpy call.

_pair = struct.Struct('<QQ').unpack_from
_last = struct.Struct('<Q').unpack


class Retry(Exception):
    """The bag changed its form (a writer closed it) while it was being opened."""


def limits_name(path: str, placement: LimitsPlacement = LimitsPlacement.TAIL) -> str:
    """Returns where the limits of a bag are, or wait while it is written."""
    folder, name = os.path.split(path)
    if placement is LimitsPlacement.IDX:
        return os.path.join(folder, os.path.splitext(name)[0] + '.idx')
    return os.path.join(folder, f'limits.{name}')


def open_bag(store: Store, path: str, options: ReaderOptions) -> OpenBag:
    """Opens a bag as it is now: closed, being written, or left by a killed writer.

    Raises:
        FileNotFoundError: No bag, or no separate limits.
        CorruptError: The limits cannot be those of this file.
    """
    for _ in range(8):
        try:
            return _open_bag(store, path, options)
        except Retry:
            continue
    raise CorruptError(path, None, 'keeps changing while it is being opened')


def _open_bag(store: Store, path: str, options: ReaderOptions) -> OpenBag:
    hints = Hints(options.access_pattern, options.cache_policy, options.mapped, options.max_parallelism)
    plain = Hints(mapped=options.mapped, max_parallelism=options.max_parallelism)
    placement = options.limits_placement
    beside = limits_name(path, placement)
    separate = placement in (LimitsPlacement.SEPARATE, LimitsPlacement.IDX)
    # The limits are read before the records: a record is written before its limit is.
    limits = None
    if separate or store.appendable:
        try:
            limits = store.open(beside, plain)
        except FileNotFoundError:
            if separate:
                store.open(path, plain)  # If the bag is missing too, that is the error.
                raise
    file = store.open(path, hints)
    codec = codec_for(path, options.compression, options.max_record_size)
    # A policy for records is not meant for the limits behind them.
    source = file if hints == plain else store.open(path, plain)
    memory = options.limits_storage is LimitsStorage.IN_MEMORY
    if limits is not None:
        count = limits.size // ENTRY
        if not separate:
            tail = _closed_tail(source, _table(limits, 0, count, True), placement is LimitsPlacement.STARTS)
            if tail is not None:
                end, count = tail
                return OpenBag(path, file, source, source.size - count * ENTRY, count, end, codec, memory)
        return OpenBag(path, file, limits, 0, count, file.size, codec, memory)
    try:
        end, count = _parse(source, placement is LimitsPlacement.STARTS)
    except CorruptError:
        if store.appendable and store.exists(beside):
            raise Retry from None
        raise
    return OpenBag(path, file, source, source.size - count * ENTRY, count, end, codec, memory)


def _parse(file: File, starts: bool) -> tuple[int, int]:
    """Returns the end of the records and their number, from the limits at the file's end."""
    if not file.size:
        return 0, 0
    if file.size < ENTRY:
        raise CorruptError(file.path, None, f'{file.size} bytes are too few to hold limits')
    last = _last(file.read(file.size - ENTRY, file.size))[0]
    try:
        end, count = parse_tail(file.size, last, starts)
    except ValueError as exc:
        raise CorruptError(file.path, None, str(exc)) from None
    if starts and (first := _last(file.read(end, end + ENTRY))[0]):
        raise CorruptError(file.path, None, f'expected limits that begin with 0, got {first}')
    return end, count


def _closed_tail(file: File, ends: Int64s, starts: bool) -> tuple[int, int] | None:
    """Looks for limits at the end of a bag that has others beside it.

    Returns:
        The end of the records and their number, if the bag is closed after all (its writer was
        stopped between appending the limits and removing the file beside); None if it is not.

    Raises:
        CorruptError: There is a whole table at the end, and it is another one. A writer never leaves
            a bag that looks so by chance (`Writer._seal`).
    """
    try:
        end, count = _parse(file, starts)
    except CorruptError:
        return None
    if not count:
        return None
    tail = _table(file, file.size - count * ENTRY, count, True)
    whole = bool((tail[1:] >= tail[:-1]).all()) and tail[0] >= 0 and tail[-1] == end
    if not whole:
        return None
    if count < len(ends) or not prefix_agrees(ends, tail):
        raise CorruptError(
            file.path, None, f'has {count} limits at its end, but other ones ({len(ends)}) in {limits_name(file.path)}'
        )
    return end, count


def _table(file: File, offset: int, count: int, memory: bool) -> Any:
    if file.buffer is not None:
        table = np.frombuffer(file.buffer, '<i8', count, offset)
        return table.copy() if memory else table
    if memory:
        return np.frombuffer(bytes(file.read(offset, offset + count * ENTRY)), '<i8')
    return BlockTable(file, offset, count)


class BlockTable:
    """The ends of a bag whose limits are not mapped: read in aligned blocks, each once."""

    def __init__(self, file: File, offset: int, count: int) -> None:
        self.file = file
        self.offset = offset
        self.values = np.empty(count, '<i8')  # Memory is taken where blocks are filled in, not here.
        self.missing = np.ones(-(-count // BLOCK), bool)
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self.values))
            blocks = np.arange(start // BLOCK, -(-stop // BLOCK)) if start < stop else np.empty(0, np.int64)
        else:
            blocks = np.unique(np.asarray(index) % max(1, len(self.values)) // BLOCK)
        if self.missing[blocks].any():
            with self.lock:
                self._load(blocks[self.missing[blocks]])
        return self.values[index]

    def _load(self, blocks: Int64s) -> None:
        starts = self.offset + blocks * (BLOCK * ENTRY)
        stops = np.minimum(starts + BLOCK * ENTRY, self.offset + len(self.values) * ENTRY)
        for block, data in zip(blocks.tolist(), self.file.read_many(starts, stops), strict=True):
            self.values[block * BLOCK : (block + 1) * BLOCK] = np.frombuffer(data, '<i8')
        self.missing[blocks] = False


class OpenBag:
    """A bag of `count` records, as it was when it was opened. Safe to use from any thread.

    `get(i)` is the way to one record; it is a closure over exactly what it needs, as an attribute
    or a check more can be measured there (0.2 µs a record of 100 B).
    """

    def __init__(
        self,
        path: str,
        file: File,
        limits: File,
        offset: int,
        count: int,
        end: int,
        codec: Codec | None,
        memory: bool,
    ) -> None:
        self.path = path
        self.file = file
        self.limits = limits
        self.offset = offset
        """Where the table of ends is in the file of the limits."""
        self.count = count
        self.end = end
        """Bytes that records can be in."""
        self.codec = codec
        self.ends: Table = _table(limits, offset, count, memory)
        self.view = memoryview(file.buffer) if file.buffer is not None else None
        self.get = self._getter()
        self.get_view = self._viewer()
        """As `get`, but without a copy where the bag is mapped and not compressed."""

    @property
    def overlaps(self) -> bool:
        """Whether reads of several bags are worth doing at the same time."""
        return self.file.overlaps or self.limits.overlaps

    @property
    def size(self) -> int:
        """Bytes of the records and their limits."""
        last = int(self.ends[self.count - 1]) if self.count else 0
        return last + self.count * ENTRY

    def _getter(self) -> Callable[[int], bytes]:
        buffer, table, slow = self.file.buffer, self.limits.buffer, self.record
        if buffer is None or table is None:
            return slow
        first, count, end, pair = self.offset - ENTRY, self.count, self.end, _pair
        if self.codec is None:

            def get(index: int) -> bytes:
                if 0 < index < count:
                    start, stop = pair(table, first + 8 * index)
                    if start <= stop <= end:
                        return buffer[start:stop]
                return slow(index)

            return get
        decode = self.codec.decode

        def get_decoded(index: int) -> bytes:
            if 0 < index < count:
                start, stop = pair(table, first + 8 * index)
                if start <= stop <= end:
                    try:
                        return decode(buffer[start:stop])
                    except ValueError:
                        pass
            return slow(index)

        return get_decoded

    def _viewer(self) -> Callable[[int], Buffer]:
        view, table, slow = self.view, self.limits.buffer, self.record_view
        if view is None or table is None or self.codec is not None:
            return self.get
        first, count, end, pair = self.offset - ENTRY, self.count, self.end, _pair

        def get_view(index: int) -> Buffer:
            if 0 < index < count:
                start, stop = pair(table, first + 8 * index)
                if start <= stop <= end:
                    return view[start:stop]
            return slow(index)

        return get_view

    def record(self, index: int) -> bytes:
        """Returns a record, for any index that Python would take, with every check."""
        index = check_index(index, self.count)
        start, stop = self.range(index)
        try:
            data = bytes(self.file.read(start, stop))
        except EOFError as exc:
            raise CorruptError(self.path, index, str(exc)) from exc
        return data if self.codec is None else self.decode(index, data)

    def record_view(self, index: int) -> Buffer:
        if self.view is None or self.codec is not None:
            return self.record(index)
        start, stop = self.range(check_index(index, self.count))
        return self.view[start:stop]

    def decode(self, index: int, frame: Buffer) -> bytes:
        assert self.codec is not None
        try:
            return self.codec.decode(frame)
        except ValueError as exc:
            raise CorruptError(self.path, index, str(exc)) from exc

    def range(self, index: int) -> tuple[int, int]:
        """Returns start and end of a record on disk, for an index in `range(count)`."""
        starts, stops = self.ranges(np.array([index]))
        return int(starts[0]), int(stops[0])

    def ranges(self, indices: Int64s) -> tuple[Int64s, Int64s]:
        """Returns starts and ends of records on disk, for indices in `range(count)`.

        Raises:
            CorruptError: Limits that fall, or lie beyond the records.
        """
        try:
            starts, stops = locate(self.ends, indices)
        except EOFError as exc:
            raise CorruptError(self.path, None, str(exc)) from exc
        bad = first_bad(starts, stops, self.end)
        if bad >= 0:
            self.refuse(int(indices[bad]), int(starts[bad]), int(stops[bad]))
        return starts, stops

    def span(self, start: int, stop: int) -> tuple[Int64s, Int64s]:
        """As `ranges`, for the indices from `start` to `stop`, without a gather."""
        stops = self.ends[start:stop]
        starts = np.empty_like(stops)
        starts[1:] = stops[:-1]
        if start < stop:
            starts[0] = self.ends[start - 1 : start][0] if start else 0
        bad = first_bad(starts, stops, self.end)
        if bad >= 0:
            self.refuse(start + bad, int(starts[bad]), int(stops[bad]))
        return starts, stops

    def refuse(self, index: int, start: int, stop: int) -> None:
        if 0 <= start <= stop:
            raise CorruptError(self.path, index, f'limit {stop} lies beyond the records ({self.end} bytes)')
        raise CorruptError(self.path, index, f'limits fall, from {start} to {stop}')

    def read(self, indices: Int64s, parallelism: int = 1) -> list[bytes]:
        """Returns records by indices in `range(count)`, in the order asked."""
        starts, stops = self.ranges(indices)
        return self._fetch(indices, starts, stops, parallelism)

    def read_span(self, start: int, stop: int, parallelism: int = 1) -> list[bytes]:
        """Returns consecutive records."""
        starts, stops = self.span(start, stop)
        if not len(stops):
            return []
        if self.codec is None and self.file.buffer is not None:
            size = int(stops[0] - starts[0])
            if 0 < size <= WINDOW and bool((stops - starts == size).all()):
                self.file.expect(starts[:1], stops[-1:])
                shape, first = (stop - start,), int(starts[0])
                records: list[bytes] = np.ndarray(shape, f'V{size}', self.file.buffer, first).tolist()
                return records
        return self._fetch(range(start, stop), starts, stops, parallelism)

    def _fetch(
        self, indices: Int64s | range, starts: Int64s, stops: Int64s, parallelism: int
    ) -> list[bytes]:
        try:
            data = self.file.read_many(starts, stops)
        except EOFError as exc:
            raise CorruptError(self.path, None, str(exc)) from exc
        if self.codec is None:
            return data
        try:
            return self.codec.decode_many(data, parallelism)
        except ValueError:
            return [self.decode(int(index), frame) for index, frame in zip(indices, data, strict=True)]

    def views(self, indices: Int64s, parallelism: int = 1) -> list[Any]:
        """As `read`, but buffers over the file itself where it is mapped and not compressed."""
        view = self.view
        if view is None or self.codec is not None:
            return self.read(indices, parallelism)
        starts, stops = self.ranges(indices)
        if len(starts) > 3:
            self.file.expect(starts, stops)
        return [view[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]

    def fixed(self, indices: Int64s, length: int, parallelism: int = 1) -> np.ndarray | None:
        """Returns records of `length` bytes as one new uint8 array (n, length), or None if one is not so long."""
        if self.codec is None and self.file.buffer is not None and length:
            starts, stops = self.ranges(indices)
            if not len(starts):
                return np.empty((0, length), np.uint8)
            if not bool((stops - starts == length).all()):
                return None
            if len(starts) > 3:
                self.file.expect(starts, stops)
            items = gather(self.file.buffer, self.file.size, starts, length)
            return items.view(np.uint8).reshape(len(items), length)
        records = self.read(indices, parallelism)
        if any(len(record) != length for record in records):
            return None
        values = np.empty((len(records), length), np.uint8)
        values.reshape(-1).data[:] = b''.join(records)
        return values

    def warm(self) -> None:
        """Reads all limits."""
        if isinstance(self.ends, np.ndarray) and self.count:
            self.limits.expect(np.array([self.offset]), np.array([self.offset + self.count * ENTRY]))
            self.ends.max()
        else:
            self.ends[0 : self.count]


def check_index(index: Any, count: int) -> int:
    """Returns an index as an int in `range(count)`, counting negative ones from the end.

    Raises:
        TypeError: Not an integer.
        IndexError: Out of range.
    """
    number = int(index.__index__()) if hasattr(index, '__index__') else None
    if number is None:
        raise TypeError(f'index: expected an integer, got {type(index).__name__}')
    if not -count <= number < count:
        raise IndexError(f'index {number} out of range [{-count}, {count})')
    return number + count if number < 0 else number
