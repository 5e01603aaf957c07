"""How many batches a worker makes at a time, so that handing them over costs next to nothing. No I/O.

A batch of images takes as long as it takes, and goes by itself. Of small arrays, many batches are read
with one call and cut apart: waking a thread takes longer than reading one of them.
"""

from __future__ import annotations

__all__ = ['Pace']

SECONDS = 0.004  # Of work in a run; to wake the thread that waits for it takes 0.02 to 0.1 ms.
BYTES = 1 << 22  # Of batches in a run: a few of them are in memory for each worker.
GROWTH = 4
MOST = 1024


class Pace:
    """The length of the next run, from how long the last ones took.

    Args:
        most: Batches in a run, at most.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = max(1, min(most, MOST))
        self.count = 1

    def took(self, count: int, seconds: float, size: int) -> None:
        """Learns from a run: its batches, seconds and bytes."""
        fitting = min(SECONDS / max(seconds / count, 1e-7), BYTES / max(size / count, 1.0))
        self.count = max(1, min(int(fitting), GROWTH * count, self.most))
