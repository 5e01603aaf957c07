"""Local files read through a map: the page cache is the buffer, and a record is a slice of it."""

from __future__ import annotations

import mmap
import os
import sys

import numpy as np

from bags.storage.base import Buffer, Hints, Offsets
from bags.storage.heap import HELD, hold, retain
from bags.storage.options import AccessPattern
from bags.storage.pread_file import LARGE, PreadFile

__all__ = ['MappedFile', 'gather']

WINDOW = 1 << 13  # Records of one size up to this are gathered by numpy, larger ones sliced.


class MappedFile(PreadFile):
    """A local file in a map, shared between threads, forks and processes."""

    is_remote = False

    def __init__(self, path: str, hints: Hints) -> None:
        super().__init__(path, hints)
        self.buffer = self._map()
        self.held: np.ndarray | None = None
        """Has the memory of large results kept for the next ones, while the file is open."""

    def _map(self) -> mmap.mmap | bytes:
        # Where it is possible the map goes without a descriptor of its own.
        options = {'trackfd': False} if sys.version_info >= (3, 13) else {}
        while True:
            if not self.size:
                return b''
            try:
                buffer = mmap.mmap(self.fd, self.size, access=mmap.ACCESS_READ, **options)
                break
            except ValueError:
                # A writer has just closed it, and cut off what a failed write had left behind.
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
        total = int(np.add.reduce(sizes))
        retain(total)
        is_large = len(starts) > 1 and total >= LARGE * len(starts)
        if is_large and (total > HELD or self.is_cold(starts, stops, 16)):
            return self.read_large(starts.tolist(), stops.tolist())
        if len(starts) > 1:
            self.expect(starts, stops)
        largest = int(np.maximum.reduce(sizes))
        if largest <= WINDOW and int(np.minimum.reduce(sizes)) == largest:
            return gather(buffer, self.size, starts, largest).tolist() if largest else [b''] * len(starts)
        records = [buffer[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
        held = hold(total, largest)
        self.held = self.held if held is None else held
        return records


def gather(buffer: mmap.mmap | bytes, size: int, starts: Offsets, length: int) -> np.ndarray:
    """Copies ranges of one length (at least 1) into an array of raw items, in two numpy calls.

    The file is seen as overlapping items, one a byte, and indexed by the starts. `tolist` makes `bytes`
    of the items (20 ns each for 100 B, where a slice takes 60).
    """
    window = np.ndarray((size - length + 1,), f'V{length}', buffer, 0, (1,))
    items: np.ndarray = window[starts]
    return items
