"""How many batches a worker makes at a time, so that handing them over costs next to nothing. No I/O.

A batch of images takes as long as it takes, and goes by itself. Of small arrays, many batches are read
with one call and cut apart: waking a thread takes longer than reading one of them.
"""

from __future__ import annotations

__all__ = ['Pace']

SECONDS = 0.004  # Of work in a run; to wake the thread that waits for it takes 0.02 to 0.1 ms.
BYTES = 1 << 21  # Of batches in a run: few enough to be in a core's cache still when they are used.
LEAST_HELD, MOST_HELD = 0.6, 1.2  # Processors that threads have together if they wait for the GIL.
CERTAIN = 4  # Runs in succession that tell so.
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
        self.is_alone = False
        """Whether one thread is as quick as several, which would only be in each other's way."""
        self._contended = 0

    def took(self, count: int, seconds: float, size: int, busy: float = 0.0, threads: int = 1) -> None:
        """Learns from a run.

        Args:
            count: Its batches.
            seconds: How long it took.
            size: Bytes of the batches.
            busy: Seconds of the processor that the thread had.
            threads: How many threads were making batches.
        """
        # Threads that wait for storage have much less than one processor together, those that decode have
        # more. About one means that they take turns holding the GIL, which costs more than it gains.
        if threads > 1 and LEAST_HELD < threads * busy / max(seconds, 1e-9) < MOST_HELD and self.count > 1:
            self._contended += 1
            seconds = busy
        elif threads > 1 or self.count == 1:
            self._contended = 0
        self.is_alone = self._contended >= CERTAIN
        fitting = min(SECONDS / max(seconds / count, 1e-7), BYTES / max(size / count, 1.0))
        self.count = max(1, min(int(fitting), GROWTH * count, self.most))
