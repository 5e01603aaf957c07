"""One open bag: its limits, its records, and the checks of both."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.bag.checksums import Checksums, digests_of
from bags.bag.limits import ENTRY, BlockTable, describe_invalid, invalid_ranges
from bags.bag.options import ReaderOptions
from bags.bag.slicer import make_slicer
from bags.bag.verified import VerifiedBlocks, as_slice
from bags.bag.zstd import Buffer, Zstd
from bags.concurrency import cached_attribute
from bags.errors import CorruptError
from bags.indexing import Int64s, check_index
from bags.storage import File
from bags.storage.mmap_file import gather, share

MAX_ITEM = 1 << 13  # Consecutive records of one size, up to this, are created by one NumPy call.
CHECKED_BYTES = 1 << 22  # Bytes read at a time to compare a record with its checksum.


class BagFile:
    """A bag of `count` records, as it was when it was opened. Thread-safe.

    Args:
        path: The bag.
        file: Its records.
        limits: The file of the table of ends; `file` itself if the limits are after the records.
        offset: Where the table begins in `limits`.
        count: Number of records.
        end: Number of bytes that the records can take.
        codec: Decompresses records; None if they are not compressed.
        memory: Whether to read the whole table now and keep it in memory.
        checksums: The checksums to compare records with, if any: at every read, or once for each block of
            records of one length that are read from the map.
    """

    def __init__(
        self,
        path: str,
        file: File,
        limits: File,
        offset: int,
        count: int,
        end: int,
        codec: Zstd | None,
        memory: bool,
        checksums: Checksums | None = None,
    ) -> None:
        self.path = path
        self.file = file
        self.limits = limits
        self.offset = offset
        self.count = count
        self.end = end
        self.codec = codec
        self.options: ReaderOptions | None = None
        """How to open it again in another process."""
        self.ends: Int64s | BlockTable
        if memory or (limits.is_remote and offset >= limits.cached_from):  # Read together with the size.
            self.ends = np.frombuffer(bytes(limits.read(offset, offset + count * ENTRY)), '<i8')
        elif limits.buffer is not None:
            self.ends = np.frombuffer(limits.buffer, '<i8', count, offset)
        else:
            self.ends = BlockTable(limits, offset, count)
        if limits.path != path and isinstance(self.ends, np.ndarray) and count:
            # A bag that is being written can lose the bytes after its last known record. Reading them
            # through a map would then end the process.
            last = int(self.ends[count - 1])
            self.end = last if 0 <= last <= end else end
        self.checksums = checksums
        self.view = share(file.buffer) if file.buffer is not None and checksums is None else None
        """The file, if records can be used in place: it is mapped, and no checksums are compared."""
        self.is_mapped = self.view is not None and sys.byteorder == 'little'
        """Whether records can be used in place, and `ends_view` works."""
        self.is_remote = file.is_remote or limits.is_remote
        self.length = 0
        """The length of all records if the first and the last limit suggest one length; else 0."""
        if file.buffer is not None and codec is None and count:
            length, last = int(self.ends[0]), int(self.ends[count - 1])
            self.length = length if last == length * count <= end else 0

    @property
    def size(self) -> int:
        """Bytes of the records and their limits."""
        if not self.count:
            return 0
        last = self.end if self.limits.path == self.path else int(self.ends[self.count - 1])
        return last + self.count * ENTRY

    # One record.

    # The functions refer to a copy of the bag: a reference cycle would keep the file open until the garbage
    # collector runs.

    @cached_attribute
    def get(self) -> Callable[[int], bytes]:
        """The fastest function from an index to a record as bytes."""
        bag = copy.copy(self)
        if bag.codec is not None and bag.is_mapped:
            return make_slicer(bag, bag.view, bag.record, bag.codec.decode)
        if bag.codec is None and bag.file.buffer is not None and sys.byteorder == 'little':
            return make_slicer(bag, bag.file.buffer, bag.record)
        return bag.record

    @cached_attribute
    def get_view(self) -> Callable[[int], Buffer]:
        """The fastest function from an index to a record as a buffer: a view of the file if it is mapped."""
        bag = copy.copy(self)
        if not bag.is_mapped or bag.codec is not None:
            return bag.get if bag.view is None else bag.record_view
        return make_slicer(bag, bag.view, bag.record_view)

    def ends_view(self) -> memoryview:
        """Returns the mapped table of ends as a memoryview of unsigned integers.

        Indexing it returns an int, and is faster than indexing an array.
        """
        table = self.limits.buffer
        assert table is not None
        return memoryview(table)[self.offset : self.offset + self.count * ENTRY].cast('Q')

    def record(self, index: int) -> bytes:
        """Returns a record, for any integer that Python accepts as an index.

        Raises:
            IndexError: Out of range.
            CorruptError: Impossible limits or a damaged frame.
        """
        index = check_index(index, self.count)
        start, stop = self.where(index)
        try:
            data = bytes(self.file.read(start, stop))
        except EOFError as exc:
            raise CorruptError(self.path, index, str(exc)) from exc
        if self.checksums is not None:
            self.checksums.check(range(index, index + 1), [data])
        return data if self.codec is None else self.decode(index, data)

    def record_view(self, index: int) -> Buffer:
        """As `record`; a view of the file if it is mapped and not compressed."""
        if self.view is None or self.codec is not None:
            return self.record(index)
        start, stop = self.where(check_index(index, self.count))
        return self.view[start:stop]

    def check_record(self, index: int) -> None:
        """Compares a record with its checksum, if there is one, without loading all of it."""
        if self.checksums is None:
            return
        start, stop = self.where(index)
        places = range(start, stop, CHECKED_BYTES)
        pieces = (self.file.read(place, min(place + CHECKED_BYTES, stop)) for place in places)
        self.checksums.compare(range(index, index + 1), digests_of(pieces, None))

    def decode(self, index: int, frame: Buffer) -> bytes:
        """Returns the record of a frame.

        Raises:
            CorruptError: The frame is damaged, or its record exceeds `max_record_size`.
        """
        assert self.codec is not None
        try:
            return self.codec.decode(frame)
        except ValueError as exc:
            raise CorruptError(self.path, index, str(exc)) from exc

    def where(self, index: int) -> tuple[int, int]:
        """Returns start and stop of a record in the file, for an index in `range(count)`."""
        starts, stops = self.ranges(np.array([index]))
        return int(starts[0]), int(stops[0])

    # Many records.

    def ranges(self, indices: Int64s) -> tuple[Int64s, Int64s]:
        """Returns starts and stops of records in the file, for indices in `range(count)`.

        Raises:
            CorruptError: Limits that decrease, or lie beyond the records.
        """
        if len(indices) > 1:
            places = self.offset + indices * ENTRY
            self.limits.expect(np.maximum(places - ENTRY, 0), places + ENTRY)
        try:
            # Indexing instead of `take`, which copies an unaligned table first. Limits are mostly unaligned.
            stops = self.ends[indices]
            starts = self.ends[indices - 1]  # For index 0 this reads the last end.
        except EOFError as exc:
            raise CorruptError(self.path, None, str(exc)) from exc
        starts[indices == 0] = 0
        self._check(indices, starts, stops)
        return starts, stops

    def span(self, start: int, stop: int) -> tuple[Int64s, Int64s]:
        """As `ranges`, for the indices from `start` to `stop`, without a gather."""
        starts, stops = self.unchecked_span(start, stop)
        self._check(range(start, stop), starts, stops)
        return starts, stops

    def unchecked_span(self, start: int, stop: int) -> tuple[Int64s, Int64s]:
        """Returns starts and stops of consecutive records as the limits state them."""
        stops = np.asarray(self.ends[start:stop])
        starts = np.empty_like(stops)
        starts[1:] = stops[:-1]
        if start < stop:
            starts[0] = self.ends[start - 1 : start][0] if start else 0
        return starts, stops

    def _check(self, indices: Int64s | range, starts: Int64s, stops: Int64s) -> None:
        bad = invalid_ranges(starts, stops, self.end)
        if np.count_nonzero(bad):
            place = int(bad.argmax())
            detail = describe_invalid(int(starts[place]), int(stops[place]), self.end)
            raise CorruptError(self.path, int(indices[place]), detail)

    def read(self, indices: Int64s, parallelism: int = 1, stored: bool = False) -> list[bytes]:
        """Returns records by indices in `range(count)`, in the order of these; frames, if `stored`."""
        starts, stops = self.ranges(indices)
        return self._fetch(indices, starts, stops, parallelism, stored)

    def read_span(self, start: int, stop: int, parallelism: int = 1) -> list[bytes]:
        """Returns consecutive records."""
        starts, stops = self.span(start, stop)
        if not len(stops):
            return []
        if self.view is not None:
            first, sizes = int(starts[0]), stops - starts
            size = int(sizes[0])
            self.file.expect(starts[:1], stops[-1:])
            if self.codec is not None:
                # Slicing each frame takes 3.2 us of CPU time a record of 100 B instead of 2.1.
                found = self.codec.decode_batch([self.view[first : int(stops[-1])]], sizes, parallelism)
                if found is not None:
                    return found
            elif 0 < size <= MAX_ITEM and bool((sizes == size).all()):
                records: list[bytes] = np.ndarray(sizes.shape, f'V{size}', self.file.buffer, first).tolist()
                return records
        return self._fetch(range(start, stop), starts, stops, parallelism)

    def views(self, indices: Int64s, parallelism: int = 1) -> list[Any]:
        """As `read`, but views of the file if it is mapped and not compressed."""
        if self.view is None or self.codec is not None:
            return self.read(indices, parallelism)
        return self._slices(*self.ranges(indices))

    def _slices(self, starts: Int64s, stops: Int64s) -> list[Any]:
        """Returns views of a mapped file."""
        view: Any = self.view
        if len(starts) > 1:
            self.file.expect(starts, stops)
        return [view[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]

    def _fetch(
        self,
        indices: Int64s | range,
        starts: Int64s,
        stops: Int64s,
        parallelism: int,
        stored: bool = False,
    ) -> list[bytes]:
        decodes = self.codec is not None and not stored
        if decodes and self.view is not None:
            frames = self._slices(starts, stops)
        else:
            try:
                frames = self.file.read_many(starts, stops)
            except EOFError as exc:
                raise CorruptError(self.path, None, str(exc)) from exc
            if self.checksums is not None:
                self.checksums.check(indices, frames)
        if self.codec is None or not decodes:
            return frames
        try:
            return self.codec.decode_many(frames, parallelism)
        except ValueError:
            return [self.decode(int(index), frame) for index, frame in zip(indices, frames, strict=True)]

    # Many records as an array.

    @cached_attribute
    def verified(self) -> VerifiedBlocks:
        """The blocks of limits that are multiples of `length`."""
        ends, length, checksums, buffer = self.ends, self.length, self.checksums, self.file.buffer

        def has_length(start: int, stop: int) -> bool:
            expected = np.arange(start + 1, stop + 1) * length
            holds = bool((ends[start:stop] == expected).all())
            if holds and checksums is not None and buffer is not None:
                offsets = range(start * length, stop * length, length)
                return checksums.holds(start, [buffer[place : place + length] for place in offsets])
            return holds

        return VerifiedBlocks(self.count, has_length)

    def fixed(self, indices: Int64s, length: int) -> npt.NDArray[np.uint8] | None:
        """Returns records of one length as a new array (n, length); None if a record has another length."""
        chosen = as_slice(indices)
        in_blocks = self.length == length > 0 < len(indices)
        if in_blocks and self.verified.holds(chosen):
            table = np.ndarray((self.count, length), np.uint8, self.file.buffer)
            if isinstance(chosen, slice):
                self.file.expect(np.array([chosen.start * length]), np.array([chosen.stop * length]))
                return table[chosen].copy()
            starts = indices * length
            self.file.expect(starts, starts + length)
            rows = np.empty((len(indices), length), np.uint8)
            # Unlike `table[chosen]`, `take` releases the GIL. Mode 'raise' would make a second copy.
            table.take(chosen, 0, rows, 'clip')
            return rows
        if self.view is None or self.codec is not None or not (length and len(indices)):
            records = self.read(indices)
            if any(len(record) != length for record in records):
                return None
            return np.frombuffer(bytearray().join(records), np.uint8).reshape(len(records), length)
        starts, stops = self.ranges(indices)
        if np.count_nonzero(stops - starts != length):
            return None
        self.file.expect(starts, stops)
        return gather(self.file.buffer, self.end, starts, length)

    def warm(self) -> None:
        """Reads all limits."""
        if isinstance(self.ends, np.ndarray) and self.count:
            self.limits.expect(np.array([self.offset]), np.array([self.offset + self.count * ENTRY]))
            self.ends.max()
        else:
            self.ends = np.asarray(self.ends[0 : self.count])
