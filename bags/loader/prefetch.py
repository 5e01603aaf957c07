"""Makes batches in order: each when it is asked for, or ahead in a pool of workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from bags.loader.batches import BatchMaker, Made
from bags.loader.schedule import PLAN_STEPS
from bags.loader.shared_memory import SharedMemoryTransport
from bags.workers.outcome import Outcome, do
from bags.workers.pool import WorkerPool

__all__ = ['Prefetched']

TASK_SECONDS = 0.0005  # Handing over a task takes 0.05 ms.
MALLOC_THRESHOLD = (1 << 25) - (1 << 13)
"""Bytes of the largest allocation that glibc learns from: 32 MiB with its header."""


class Prefetched(Iterator[Made]):
    """Batches in order.

    A task makes one batch, or as many as take `TASK_SECONDS`, read with one call: an epoch of datapoints of
    three small fields, in batches of 32, takes 0.4 us a datapoint, and 2.0 if they are read one by one.

    Args:
        maker: Makes them.
        start: Number of the first step.
        workers: Number of threads or processes; 0 makes batches in the calling thread.
        processes: Whether they are processes.
        prefetch: Batches that may be finished or begun before they are asked for. None: two tasks a worker.
    """

    def __init__(
        self, maker: BatchMaker, start: int, workers: int, processes: bool, prefetch: int | None
    ) -> None:
        # glibc returns the memory of a freed batch to the system, and gets it back with a page fault every
        # 4 KiB, unless it has seen an allocation of this size freed. An epoch of arrays of 4 KB, in batches
        # of 1 MB, takes 0.73 us an array, and 1.19 without this.
        np.empty(MALLOC_THRESHOLD, np.uint8)
        self._tasks = Tasks(maker.schedule.total, 1 if workers and prefetch else PLAN_STEPS, start)
        self._batches: deque[Made] = deque()
        self._failed: Outcome | None = None
        self._pool: WorkerPool | None = None
        self._outcomes: Iterator[Outcome]
        if not workers:
            self._outcomes = (Outcome(task, True, *do(maker.make, task)) for task in self._tasks)
            return
        self._pool = WorkerPool(
            maker.make,
            workers,
            processes=processes,
            name='bags-loader',
            attempts=1,
            transport=SharedMemoryTransport if processes else None,
        )
        self._outcomes = self._pool.run(self._tasks, ahead=prefetch)

    def __next__(self) -> Made:
        while not self._batches:
            if self._failed is not None:
                failed, self._failed = self._failed, None
                failed.get()
            outcome = next(self._outcomes)
            self._batches.extend(outcome.result or ())
            self._failed = outcome if outcome.error is not None else None
            self._tasks.adapt(len(self._batches), outcome.seconds)
        return self._batches.popleft()

    def close(self) -> None:
        self._outcomes = iter(())
        self._batches.clear()
        self._failed = None
        if self._pool is not None:
            self._pool.close()


class Tasks(Iterator[range]):
    """Divides steps into ranges, whose length follows the time that the last one took."""

    def __init__(self, total: int | None, max_length: int, start: int = 0) -> None:
        self._total, self._max_length = total, max_length
        self._length, self._stop = 1, start

    def __next__(self) -> range:
        start = self._stop
        stop = start + min(self._length, PLAN_STEPS - start % PLAN_STEPS)
        self._stop = stop if self._total is None else min(stop, self._total)
        if start == self._stop:
            raise StopIteration
        return range(start, self._stop)

    def adapt(self, count: int, seconds: float) -> None:
        """Sets the length of the next ranges, after so many batches took so long."""
        self._length = max(1, min(self._max_length, int(TASK_SECONDS * count / max(seconds, 1e-6))))
