"""Local files read through a memory map: the page cache is the buffer, and a record is a slice of it."""

from __future__ import annotations

import contextlib
import mmap
import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bags.storage.base import Buffer, Hints, Offsets
from bags.storage.pread_file import PARALLEL_SIZE, PreadFile

MAX_GATHERED = 1 << 13  # Ranges of one length, up to this, are copied by NumPy; longer ones are sliced.


class SharedArray:
    """A buffer whose slices are memoryviews, for any number of threads in free-threaded Python.

    There (3.13), a memoryview counts its slices without a lock: with two threads the count goes wrong, and
    the memoryview is regarded as released. An array has no such count.
    """

    def __init__(self, buffer: mmap.mmap | bytes) -> None:
        self.array = np.frombuffer(buffer, np.uint8)

    def __getitem__(self, part: slice) -> memoryview:
        return self.array[part].data


_HAS_GIL = getattr(sys, '_is_gil_enabled', lambda: True)()

share: Callable[[mmap.mmap | bytes], memoryview | SharedArray] = memoryview if _HAS_GIL else SharedArray
"""Returns an object whose slices are views of a buffer, for any number of threads."""


class MappedFile(PreadFile):
    """A local file in a memory map, shared between threads, forks and processes."""

    def __init__(self, path: str, hints: Hints) -> None:
        super().__init__(path, hints)
        # Without a duplicate of the descriptor, where Python can.
        options = {'trackfd': False} if sys.version_info >= (3, 13) else {}
        self.buffer = b''
        with contextlib.suppress(ValueError):  # It is empty; a writer may have begun it since.
            # Maps the current length, as a writer may have the file open.
            self.buffer = mmap.mmap(self.fd, 0, access=mmap.ACCESS_READ, **options)
        self.size = len(self.buffer)
        name = f'MADV_{hints.access_pattern.name}'
        if isinstance(self.buffer, mmap.mmap) and hasattr(mmap, name):  # Not of `AccessPattern.SYSTEM`.
            self.buffer.madvise(getattr(mmap, name))

    def read(self, start: int, stop: int) -> Buffer:
        assert self.buffer is not None
        return self.buffer[start:stop]

    def read_many(self, starts: Offsets, stops: Offsets) -> list[bytes]:
        buffer = self.buffer
        assert buffer is not None
        if not len(starts):
            return []
        sizes = stops - starts
        if len(starts) > 1 and int(np.add.reduce(sizes)) >= PARALLEL_SIZE * len(starts):
            return self.read_large(starts.tolist(), stops.tolist())
        if len(starts) > 1:
            self.expect(starts, stops)
        largest = int(np.maximum.reduce(sizes))
        if largest <= MAX_GATHERED and int(np.minimum.reduce(sizes)) == largest:
            if not largest:
                return [b''] * len(starts)
            rows = gather(buffer, self.size, starts, largest)
            records: list[bytes] = rows.view(f'V{largest}')[:, 0].tolist()
            return records
        return [buffer[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]


def gather(
    buffer: mmap.mmap | bytes | None, size: int, starts: Offsets, length: int
) -> npt.NDArray[np.uint8]:
    """Returns the ranges of one length (at least 1) in the first `size` bytes, shape (n, length).

    A view of the buffer as overlapping items, one at each byte, is indexed by the starts: 20 ns for 100 B,
    and 60 for a slice.
    """
    window = np.ndarray((size - length + 1,), f'V{length}', buffer, 0, (1,))
    return window[starts].view(np.uint8).reshape(len(starts), length)
