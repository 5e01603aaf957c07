"""How many batches a worker makes at a time, so that handing them over costs next to nothing. No I/O.

A batch of images takes as long as it takes, and goes by itself. Of small arrays, many batches are read
with one call and cut apart: waking a thread takes longer than reading one of them.
"""

from __future__ import annotations

import numpy as np

__all__ = ['Pace', 'keep_memory']

SECONDS = 0.004  # Of work in a run; to wake the thread that waits for it takes 0.02 to 0.1 ms.
BYTES = 1 << 20  # Of batches in a run: as much as stays in a core's cache until it is used.
COPYING = 1 << 30  # Bytes a second that are copied rather than decoded: one thread is as quick as several.
GROWTH = 4
MOST = 1024


class Pace:
    """The length of the next run, and how many threads are of use, from how long the last ones took.

    Args:
        most: Batches in a run, at most.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = max(1, min(most, MOST))
        self.count = 1
        self.is_copying = False
        """Whether batches are made so fast that threads would only wait for each other."""

    def took(self, count: int, seconds: float, size: int) -> None:
        """Learns from a run: its batches, seconds and bytes."""
        self.is_copying = size > COPYING * seconds
        fitting = min(SECONDS / max(seconds / count, 1e-7), BYTES / max(size / count, 1.0))
        self.count = max(1, min(int(fitting), GROWTH * count, self.most))


def keep_memory() -> None:
    """Has the C library keep the memory of batches that are freed for those that come.

    By itself it gives arrays of 128 KiB and more back to the system, and asks for them anew, page by
    page, which takes three times as long as to fill them. Where it has seen a larger one freed, it keeps what
    is smaller (glibc's dynamic threshold). This one is never written to, so it takes no memory and no time.
    """
    np.empty(31 << 20, np.uint8)
