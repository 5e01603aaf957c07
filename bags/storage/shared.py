"""A buffer that many threads take slices of."""

from __future__ import annotations

import mmap
import sys

import numpy as np

__all__ = ['Shared', 'share']


class Shared:
    """As a memoryview to slice, but safe in free-threaded Python.

    There (3.13), slices of one memoryview count each other without a lock: in two threads at once the
    count goes wrong and the memoryview is taken for released. Slices of an array have no such count.
    """

    def __init__(self, buffer: mmap.mmap | bytes) -> None:
        self.array = np.frombuffer(buffer, np.uint8)

    def __getitem__(self, part: slice) -> memoryview:
        return self.array[part].data


def share(buffer: mmap.mmap | bytes) -> memoryview | Shared:
    """Returns something whose slices are views of a buffer, in any number of threads."""
    with_gil = getattr(sys, '_is_gil_enabled', lambda: True)()
    return memoryview(buffer) if with_gil else Shared(buffer)
