"""Memory for large arrays: aligned, and used again where arrays come and go as batches do.

Memory that is new to a process costs a page fault every 4 KB, 60 us a picture of 256 x 256 that takes 220 to
decode, and the C library gives back what is free at the end of a heap, of which every thread has its own.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ['ALIGNMENT', 'Pool', 'aligned']

ALIGNMENT = 64  # A cache line, and what JAX takes without a copy where it runs on the CPU.
LEAST = 1 << 22  # The C library is as good at smaller pieces, and quicker.
MOST = 1 << 30  # Larger ones are not kept.

_here = threading.local()


def aligned(size: int) -> np.ndarray:
    """Returns memory, uint8 (size,), at a multiple of `ALIGNMENT`: from a pool if one is lent, or new."""
    pool: Pool | None = getattr(_here, 'pool', None)
    return _aligned(np.empty(size + ALIGNMENT, np.uint8), size) if pool is None else pool.take(size)


def _aligned(room: np.ndarray, size: int) -> np.ndarray:
    first = -room.__array_interface__['data'][0] % ALIGNMENT
    return room[first : first + size]


class Pool:
    """Memory that comes back when the last array over it is gone, just when it would be freed otherwise.

    Args:
        most: Pieces that are kept while nobody has them; the oldest are freed.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._free: deque[np.ndarray] = deque(maxlen=most)

    def __reduce__(self) -> tuple[Any, ...]:
        return Pool, (self._most,)

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Has `aligned` take memory from here, in this thread."""
        before = getattr(_here, 'pool', None)
        _here.pool = self
        try:
            yield
        finally:
            _here.pool = before

    def take(self, size: int) -> np.ndarray:
        """Returns memory as `aligned` does."""
        step = 1 << max(0, size.bit_length() - 4)  # Sizes that differ by little are the same.
        room = -(-size // step) * step + ALIGNMENT
        if not LEAST <= room <= MOST:
            return _aligned(np.empty(size + ALIGNMENT, np.uint8), size)
        piece = self._fitting(room)
        if piece is None:
            piece = np.empty(room, np.uint8)
        # Not a view of it, which numpy would pass over as the base of others: they all have this one.
        whole = np.frombuffer(piece.data, np.uint8)
        weakref.finalize(whole, self._free.append, piece).atexit = False
        return _aligned(whole, size)

    def _fitting(self, room: int) -> np.ndarray | None:
        # What came back last may be in the processor's cache still. There is no lock, as memory comes back
        # wherever the garbage collector runs.
        for _ in range(len(self._free)):
            try:
                piece = self._free.pop()
            except IndexError:
                break
            if room <= len(piece) <= 2 * room:
                return piece
            self._free.appendleft(piece)
        return None
