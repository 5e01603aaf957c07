"""`BagFile`: one open bag. Locates records by its limits; reads memory-mapped files fast."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.bag.checksums import Checksums
from bags.bag.compression import Buffer, Zstd
from bags.bag.limits import ENTRY, MAX_ENTRIES_IN_MEMORY, BlockTable, describe_invalid, invalid_ranges
from bags.bag.records import FileRanges, StoredRecords
from bags.bag.verified import VerifiedBlocks, as_slice
from bags.concurrency import cached_attribute
from bags.errors import CorruptError
from bags.indexing import Int64s
from bags.storage import File
from bags.storage.mmap_file import gather, share


class BagFile(StoredRecords):
    """A bag of `count` records, as of the time when it was opened.

    Args:
        path: The bag.
        file: The file with the records.
        limits: The file with the table of ends; `file` itself if the limits follow the records.
        offset: Offset of the table in `limits`.
        count: Number of records.
        end: Maximum end of the records, in bytes.
        codec: Decompresses records; None if they are not compressed.
        memory: Whether to read the whole table now and keep it in memory, up to `MAX_ENTRIES_IN_MEMORY`.
        checksums: The checksums with which records are compared, if any: at every read, or once for each
            block if mapped records have equal lengths.
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
        self.ends: Int64s | BlockTable
        if (memory and count <= MAX_ENTRIES_IN_MEMORY) or (
            limits.is_remote and offset >= limits.cached_from
        ):  # Fetched on open.
            self.ends = np.frombuffer(bytes(limits.read(offset, offset + count * ENTRY)), '<i8')
        elif limits.buffer is not None:
            self.ends = np.frombuffer(limits.buffer, '<i8', count, offset)
        else:
            self.ends = BlockTable(limits, offset, count)
        if limits.path != path and isinstance(self.ends, np.ndarray) and count:
            # A bag that is being written can lose the bytes after its last known record. Reading them
            # through a memory map would then crash the process.
            last = int(self.ends[count - 1])
            self.end = last if 0 <= last <= end else end
        self.checksums = checksums
        self.view = share(file.buffer) if file.buffer is not None and checksums is None else None
        self.buffer = file.buffer
        self.is_remote = file.is_remote or limits.is_remote
        if file.buffer is not None and codec is None and count:
            length, last = int(self.ends[0]), int(self.ends[count - 1])
            self.length = length if last == length * count <= end else 0
        self.in_place = self.view is not None and codec is None and sys.byteorder == 'little' and count > 0
        self.check_rows: Callable[[npt.NDArray[np.uint8]], bool] | None = None
        """Returns whether rows of `length` bytes, shape (n, length), are valid; None if all rows are.

        `verified` calls it in addition to checking the limits of the rows."""

    @property
    def own_bags(self) -> tuple[BagFile, ...]:
        return (self,)

    @property
    def size(self) -> int:
        if not self.count:
            return 0
        last = self.end if self.limits.path == self.path else int(self.ends[self.count - 1])
        return last + self.count * ENTRY

    @property
    def is_compressed(self) -> bool:
        return self.codec is not None

    def bytes_before(self, index: int) -> int:
        return int(self.locate(np.array([index]))[0].starts[0]) + index * ENTRY

    # Locating records.

    def locate(self, indices: Int64s | range) -> list[FileRanges]:
        try:
            if isinstance(indices, range):
                starts, stops = self.limits_of(indices.start, indices.stop)
            else:
                if len(indices) > 1 and not self.limits.is_remote:  # Announces pages to the kernel.
                    offsets = self.offset + indices * ENTRY
                    self.limits.will_need(np.maximum(offsets - ENTRY, 0), offsets + ENTRY)
                # `take` would first copy an unaligned table, and most limits are unaligned.
                stops = self.ends[indices]
                starts = self.ends[indices - 1]  # For index 0 this reads the last end.
                starts[indices == 0] = 0
        except EOFError as exc:
            raise CorruptError(self.path, None, str(exc)) from exc
        bad = invalid_ranges(starts, stops, self.end)
        if np.count_nonzero(bad):
            position = int(bad.argmax())
            detail = describe_invalid(int(starts[position]), int(stops[position]), self.end)
            raise CorruptError(self.path, int(indices[position]), detail)
        return [FileRanges(self.file, self.codec, self.view, starts, stops)]

    def limits_of(self, start: int, stop: int) -> tuple[Int64s, Int64s]:
        """Returns starts and stops of consecutive records from the limits, without validation."""
        stops = np.asarray(self.ends[start:stop])
        starts = np.empty_like(stops)
        starts[1:] = stops[:-1]
        if start < stop:
            starts[0] = self.ends[start - 1 : start][0] if start else 0
        return starts, stops

    def invalid(self, start: int, stop: int) -> list[tuple[int, str]]:
        starts, stops = self.limits_of(start, stop)
        return [
            (start + position, describe_invalid(int(starts[position]), int(stops[position]), self.end))
            for position in np.flatnonzero(invalid_ranges(starts, stops, self.end)).tolist()
        ]

    def check_count(self, length: int, last: int) -> None:
        # The last limits are truncated, which would change the last records.
        has_length = self.codec is None and length not in (0, self.length) and self.limits.path == self.path
        if has_length and self.count and self.end != self.count * length:
            detail = f'{self.count} records of {length} bytes, but they take {self.end} bytes'
            raise CorruptError(self.path, None, detail)
        # The last limit is too large by the size of a few limits. The table then seems to begin later and to
        # have fewer records, all of them wrong, and the number before the table could be a limit.
        if last >= self.count > 0 and self.limits is self.file and self.offset >= ENTRY:
            before = int.from_bytes(self.limits.read(self.offset - ENTRY, self.offset), 'little')
            if before <= int(self.ends[0:1][0]):
                detail = f'has {self.count} records, but the last datapoint refers to record {last}'
                raise CorruptError(self.path, None, f'{detail}, and there is a limit before the first one')

    def warm(self) -> None:
        """Reads all limits."""
        if isinstance(self.ends, np.ndarray) and self.count:
            self.limits.will_need(np.array([self.offset]), np.array([self.offset + self.count * ENTRY]))
            self.ends.max()
        else:
            self.ends = np.asarray(self.ends[0 : self.count])

    # Fast reads of mapped files.

    @cached_attribute
    def ends_view(self) -> memoryview:
        """The mapped ends as unsigned integers. Indexing a memoryview is faster than indexing an array."""
        table = self.limits.buffer
        assert table is not None
        return memoryview(table)[self.offset : self.offset + self.count * ENTRY].cast('Q')

    @cached_attribute
    def get(self) -> Callable[[int], bytes]:
        bag = copy.copy(self)
        if bag.buffer is None or sys.byteorder != 'little' or (bag.view is None and bag.codec is not None):
            return bag.record
        return bag._make_slicer(bag.buffer if bag.codec is None else bag.view, bag.record)

    @cached_attribute
    def get_view(self) -> Callable[[int], Buffer]:
        bag = copy.copy(self)
        return bag._make_slicer(bag.view, bag.record_view) if bag.in_place else bag.get

    def _make_slicer(self, buffer: Any, record: Callable[[int], Any]) -> Callable[[int], Any]:
        """Returns a function that returns the record at an index of a memory-mapped bag.

        It is a closure for speed: a record of 100 bytes takes 0.2 us, and each attribute or call adds to it.

        Args:
            buffer: The file. Its slices are the records or their frames.
            record: Handles the other cases, and errors.
        """
        ends, count, end, sums = self.ends_view, self.count, self.end, self.checksums
        decode: Any = None if self.codec is None else self.codec.decode
        digest: Any = None if sums is None else sums.digest
        values: Any = None if sums is None else sums.values

        def get(index: int) -> Any:
            if 0 < index < count:
                start, stop = ends[index - 1], ends[index]
                if start <= stop <= end:
                    return buffer[start:stop]
            return record(index)

        def get_decoded(index: int) -> Any:
            if 0 < index < count:
                start, stop = ends[index - 1], ends[index]
                if start <= stop <= end:
                    try:
                        return decode(buffer[start:stop])
                    except ValueError:
                        pass
            return record(index)

        def get_checked(index: int) -> Any:
            if 0 < index < count:
                start, stop = ends[index - 1], ends[index]
                if start <= stop <= end:
                    data = buffer[start:stop]
                    if digest(data) == values[index + 1]:
                        return data
            return record(index)

        if sums is not None:
            fast = record if values is None else get_checked
        else:
            fast = get if decode is None else get_decoded
        if self.size_limit is None:
            return fast
        max_size = self.size_limit.max_size

        def get_limited(index: int) -> Any:
            if 0 < index < count and ends[index] - ends[index - 1] <= max_size:
                return fast(index)
            return record(index)

        return get_limited

    @cached_attribute
    def verified(self) -> VerifiedBlocks:
        """The verified blocks: rows of `length` bytes that match their checksums and pass `check_rows`."""
        ends, count, length, buffer = self.ends, self.count, self.length, self.buffer
        checksums, check_rows = self.checksums, self.check_rows

        def are_rows(start: int, stop: int) -> bool:
            if not (ends[start:stop] == np.arange(start + 1, stop + 1) * length).all():
                return False
            if checksums is not None and buffer is not None:
                offsets = range(start * length, stop * length, length)
                if not checksums.match(start, [buffer[offset : offset + length] for offset in offsets]):
                    return False
            return check_rows is None or check_rows(np.ndarray((count, length), np.uint8, buffer)[start:stop])

        return VerifiedBlocks(count, are_rows)

    def fixed(self, indices: Int64s, length: int) -> npt.NDArray[np.uint8] | None:
        selection = as_slice(indices)
        in_blocks = self.length == length > 0 < len(indices)
        if in_blocks and self.verified.all_verified(selection):
            table = np.ndarray((self.count, length), np.uint8, self.buffer)
            if isinstance(selection, slice):
                self.file.will_need(np.array([selection.start * length]), np.array([selection.stop * length]))
                return table[selection].copy()
            starts = indices * length
            self.file.will_need(starts, starts + length)
            rows = np.empty((len(indices), length), np.uint8)
            # Unlike `table[selection]`, `take` releases the GIL. Mode 'raise' would make a second copy.
            table.take(selection, 0, rows, 'clip')
            return rows
        if self.view is None or self.codec is not None or not (length and len(indices)):
            return super().fixed(indices, length)
        ((file, _, _, starts, stops, *_),) = self.locate(indices)
        if np.count_nonzero(stops - starts != length):
            return None
        file.will_need(starts, stops)
        return gather(file.buffer, file.size, starts, length)
