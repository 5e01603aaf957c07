"""Local files read through a memory map: the page cache is the buffer, and a record is a slice of it."""

from __future__ import annotations

import mmap
import os
import sys

import numpy as np

from bags.storage.base import Buffer, Hints, Offsets
from bags.storage.options import AccessPattern
from bags.storage.pread_file import PARALLEL_SIZE, PreadFile

__all__ = ['MappedFile', 'SharedArray', 'gather', 'share']

MAX_GATHERED = 1 << 13  # Records of one size up to this are gathered by numpy, larger ones sliced.


class SharedArray:
    """A buffer whose slices are memoryviews, as those of a memoryview, but safe in free-threaded Python.

    There (3.13), slices of one memoryview count each other without a lock: with two threads the count goes
    wrong, and the memoryview is taken for released. Slices of an array have no such count.
    """

    def __init__(self, buffer: mmap.mmap | bytes) -> None:
        self.array = np.frombuffer(buffer, np.uint8)

    def __getitem__(self, part: slice) -> memoryview:
        return self.array[part].data


def share(buffer: mmap.mmap | bytes) -> memoryview | SharedArray:
    """Returns an object whose slices are views of a buffer, for any number of threads."""
    with_gil = getattr(sys, '_is_gil_enabled', lambda: True)()
    return memoryview(buffer) if with_gil else SharedArray(buffer)


class MappedFile(PreadFile):
    """A local file in a memory map, shared between threads, forks and processes."""

    def __init__(self, path: str, hints: Hints) -> None:
        super().__init__(path, hints)
        self.buffer = self._map()

    def _map(self) -> mmap.mmap | bytes:
        # Without a duplicate of the descriptor, where Python can.
        options = {'trackfd': False} if sys.version_info >= (3, 13) else {}
        while True:
            if not self.size:
                return b''
            try:
                buffer = mmap.mmap(self.fd, self.size, access=mmap.ACCESS_READ, **options)
                break
            except ValueError:
                # A writer has just closed the file, and cut off the rest of a failed write.
                size, self.size = self.size, os.fstat(self.fd).st_size
                if self.size >= size:
                    raise
        name = f'MADV_{self.hints.access_pattern.name}'
        if self.hints.access_pattern is not AccessPattern.SYSTEM and hasattr(mmap, name):
            buffer.madvise(getattr(mmap, name))
        return buffer

    def read(self, start: int, stop: int) -> Buffer:
        assert self.buffer is not None
        return self.buffer[start:stop]

    def read_many(self, starts: Offsets, stops: Offsets) -> list[bytes]:
        buffer = self.buffer
        assert buffer is not None
        if not len(starts):
            return []
        sizes = stops - starts
        is_large = len(starts) > 1 and int(np.add.reduce(sizes)) >= PARALLEL_SIZE * len(starts)
        if is_large and self.is_cold(starts, stops, 16):
            return self.read_large(starts.tolist(), stops.tolist())
        if len(starts) > 1:
            self.expect(starts, stops)
        largest = int(np.maximum.reduce(sizes))
        if largest <= MAX_GATHERED and int(np.minimum.reduce(sizes)) == largest:
            return gather(buffer, self.size, starts, largest).tolist() if largest else [b''] * len(starts)
        return [buffer[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]


def gather(buffer: mmap.mmap | bytes, size: int, starts: Offsets, length: int) -> np.ndarray:
    """Copies ranges of one length (at least 1) into an array of raw items, in two numpy calls.

    The file is seen as overlapping items, one at each byte, and indexed by the starts. `tolist` makes `bytes`
    of the items (20 ns each for 100 B, where a slice takes 60).
    """
    window = np.ndarray((size - length + 1,), f'V{length}', buffer, 0, (1,))
    items: np.ndarray = window[starts]
    return items
