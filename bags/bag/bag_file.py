"""One bag file, open for reading: its limits, its records, and every check between the two."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.bag.getters import getters
from bags.bag.limits import ENTRY, Table, first_bad, locate
from bags.bag.limits_table import open_table
from bags.bag.options import ReaderOptions
from bags.bag.uniform import Uniform, as_slice
from bags.bag.zstd import Buffer, Zstd
from bags.errors import CorruptError
from bags.indexing import Int64s, check_index
from bags.storage import File
from bags.storage.mmap_file import gather
from bags.storage.shared import share

__all__ = ['BagFile']

WINDOW = 1 << 13  # Records of one size up to this are made in one numpy call.
WIDEST = 1 << 10  # Records up to this are worth gathering with what follows them.
FEW = 16  # Fewer records are sliced as quickly.
CHUNK = 1 << 12  # Frames decompressed at a time: more would leave the processor's cache before they are used.


class BagFile:
    """A bag of `count` records, as it was when it was opened. Safe to use from any thread."""

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
        self.options: ReaderOptions | None = None
        """How it was opened, if it can be opened so again."""
        self.ends: Table = open_table(limits, offset, count, memory)
        self.view = share(file.buffer) if file.buffer is not None else None
        self.uniform = self._find_length()
        """The length of all records, if it can be that they have one, and which are known to have it."""

    @functools.cached_property
    def _getters(self) -> tuple[Callable[[int], bytes], Callable[[int], Buffer]]:
        # From a twin, so that the functions and the bag do not refer to each other: a cycle would keep
        # the file open until the garbage collector comes.
        twin = object.__new__(BagFile)
        twin.__dict__.update(self.__dict__)
        return getters(twin)

    @property
    def get(self) -> Callable[[int], bytes]:
        """The way to one record as bytes: a function of any index that Python takes."""
        return self._getters[0]

    @property
    def get_view(self) -> Callable[[int], Buffer]:
        """The way to one record as a buffer, over the file where that is mapped and not compressed."""
        return self._getters[1]

    def _find_length(self) -> Uniform | None:
        if not self.is_sliced or not self.count:
            return None
        length, last = int(self.ends[0:1][0]), int(self.ends[self.count - 1 : self.count][0])
        if 0 < length <= self.end and last == length * self.count <= self.end:
            return Uniform(self.ends, length)
        return None

    @property
    def is_sliced(self) -> bool:
        """Whether records and limits are slices of maps."""
        return self.codec is None and self.file.buffer is not None and self.limits.buffer is not None

    @property
    def is_remote(self) -> bool:
        """Whether reads of several bags are worth doing at the same time."""
        return self.file.is_remote or self.limits.is_remote

    @property
    def size(self) -> int:
        """Bytes of the records and their limits."""
        if self.limits.path == self.path or not self.count:
            last = self.end if self.count else 0
        else:
            last = int(self.ends[self.count - 1])
        return last + self.count * ENTRY

    def record(self, index: int) -> bytes:
        """Returns a record, for any index that Python would take, with every check."""
        index = check_index(index, self.count)
        start, stop = self.where(index)
        try:
            data = bytes(self.file.read(start, stop))
        except EOFError as exc:
            raise CorruptError(self.path, index, str(exc)) from exc
        return data if self.codec is None else self.decode(index, data)

    def record_view(self, index: int) -> Buffer:
        if self.view is None or self.codec is not None:
            return self.record(index)
        start, stop = self.where(check_index(index, self.count))
        return self.view[start:stop]

    def decode(self, index: int, frame: Buffer) -> bytes:
        assert self.codec is not None
        try:
            return self.codec.decode(frame)
        except ValueError as exc:
            raise CorruptError(self.path, index, str(exc)) from exc

    def where(self, index: int) -> tuple[int, int]:
        """Returns start and end of a record on disk, for an index in `range(count)`."""
        starts, stops = self.ranges(np.array([index]))
        return int(starts[0]), int(stops[0])

    def ranges(self, indices: Int64s) -> tuple[Int64s, Int64s]:
        """Returns starts and ends of records on disk, for indices in `range(count)`.

        Raises:
            CorruptError: Limits that fall, or lie beyond the records.
        """
        if len(indices) > 1:
            places = self.offset + indices * ENTRY
            self.limits.expect(np.maximum(places - ENTRY, 0), places + ENTRY)
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

    def _fetch(self, indices: Int64s | range, starts: Int64s, stops: Int64s, parallelism: int) -> list[bytes]:
        if self.codec is not None and len(indices) > CHUNK:
            parts = [slice(first, first + CHUNK) for first in range(0, len(indices), CHUNK)]
            found = [self._fetch(indices[part], starts[part], stops[part], parallelism) for part in parts]
            return list(itertools.chain.from_iterable(found))
        buffer, view = self.file.buffer, self.view
        if self.codec is not None and buffer is not None and view is not None:
            self.file.expect(starts, stops)
            together = self.codec.decode_together(buffer, starts, stops, parallelism)
            if together is not None:
                return together
            frames = [view[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
            return self._decode_many(indices, frames, parallelism)
        try:
            data = self.file.read_many(starts, stops)
        except EOFError as exc:
            raise CorruptError(self.path, None, str(exc)) from exc
        return data if self.codec is None else self._decode_many(indices, data, parallelism)

    def _decode_many(self, indices: Int64s | range, frames: list[Any], parallelism: int) -> list[bytes]:
        assert self.codec is not None
        try:
            return self.codec.decode_many(frames, parallelism)
        except ValueError:
            return [self.decode(int(index), frame) for index, frame in zip(indices, frames, strict=True)]

    def views(self, indices: Int64s, parallelism: int = 1) -> list[Any]:
        """As `read`, but buffers over the file itself where it is mapped and not compressed."""
        view = self.view
        if view is None or self.codec is not None:
            return self.read(indices, parallelism)
        starts, stops = self.ranges(indices)
        if len(starts) > 1:
            self.file.expect(starts, stops)
        return [view[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]

    def fixed(self, indices: Int64s, length: int, parallelism: int = 1) -> np.ndarray | None:
        """Returns records of one length as a new uint8 array (n, length); None if one is of another."""
        if self.is_sliced and length and len(indices):
            buffer = self.file.buffer
            assert buffer is not None
            if self.uniform is not None and self.uniform.length == length:
                chosen = as_slice(indices)
                if self.uniform.holds(chosen) and int(np.maximum.reduce(indices)) < self.count:
                    self.file.expect(indices * length, (indices + 1) * length)
                    table = np.ndarray((self.count, length), np.uint8, buffer)
                    rows = np.empty((len(indices), length), np.uint8)
                    if isinstance(chosen, slice):
                        rows[:] = table[chosen]
                    else:
                        # Mostly without the GIL, which raw items as in `gather` would hold.
                        table.take(chosen, 0, rows, 'clip')  # All are in range; 'raise' would need a copy.
                    return rows
            starts, stops = self.ranges(indices)
            if np.count_nonzero(stops - starts != length):
                return None
            self.file.expect(starts, stops)
            items = gather(buffer, self.file.size, starts, length)
            return items.view(np.uint8).reshape(len(items), length)
        records = self.read(indices, parallelism)
        if any(len(record) != length for record in records):
            return None
        values = np.empty((len(records), length), np.uint8)
        values.reshape(-1).data[:] = b''.join(records)
        return values

    def padded(self, indices: Int64s) -> tuple[npt.NDArray[np.uint8], Int64s] | None:
        """Returns records as rows of one width, each with what follows it in the file, and their sizes.

        Gathering them so takes a fifth of what slicing does. None where it would not be quick: for few
        records, long ones, or some that are much longer than the others.
        """
        if not self.is_sliced or len(indices) < FEW:
            return None
        starts, stops = self.ranges(indices)
        sizes = stops - starts
        width = int(np.maximum.reduce(sizes))
        if not 0 < width <= WIDEST or width * len(sizes) > 4 * int(np.add.reduce(sizes)):
            return None
        size = self.file.size
        if size - self.end < width and int(np.maximum.reduce(starts)) > size - width:
            return None
        self.file.expect(starts, stops)
        assert self.file.buffer is not None
        items = gather(self.file.buffer, size, starts, width)
        return items.view(np.uint8).reshape(len(items), width), sizes

    def warm(self) -> None:
        """Reads all limits."""
        if isinstance(self.ends, np.ndarray) and self.count:
            self.limits.expect(np.array([self.offset]), np.array([self.offset + self.count * ENTRY]))
            self.ends.max()
        else:
            self.ends = np.asarray(self.ends[0 : self.count])
