"""Makes batches in order: on demand, or ahead in a pool of workers."""

from __future__ import annotations

from collections.abc import Iterator

from bags.loader.batches import BatchMaker, Made
from bags.loader.schedule import PLAN_STEPS
from bags.loader.shared_memory import SharedMemoryTransport
from bags.workers.outcome import Outcome, WorkerDiedError, do
from bags.workers.pool import WorkerPool

TASK_SECONDS = 0.0005  # Handing over a task takes 0.05 ms.


def make_inline(maker: BatchMaker, start: int) -> Iterator[Made]:
    """Returns the batches from a step on, made on demand by the calling thread."""
    tasks = Tasks(maker.schedule.total, PLAN_STEPS, start)
    return _made((Outcome(task, True, *do(maker.make, task)) for task in tasks), tasks, maker)


def make_ahead(
    maker: BatchMaker, start: int, workers: int, processes: bool, prefetch: int | None
) -> tuple[WorkerPool, Iterator[Made]]:
    """Starts workers; returns them, and the batches from a step on, which they make in order.

    Args:
        maker: Makes the batches.
        start: Number of the first step.
        workers: Number of threads or processes.
        processes: Whether workers are processes.
        prefetch: Maximum number of batches made ahead, begun or finished; None for two tasks for each worker.
    """
    pool = _pool(maker, workers, processes)
    tasks = Tasks(maker.schedule.total, 1 if prefetch else PLAN_STEPS, start)
    return pool, _made(pool.run(tasks, ahead=prefetch), tasks, maker)


def _pool(maker: BatchMaker, workers: int, processes: bool) -> WorkerPool:
    return WorkerPool(
        maker.make,
        workers,
        processes=processes,
        name='bags-loader',
        attempts=1,
        transport=SharedMemoryTransport if processes else None,
    )


def _made(outcomes: Iterator[Outcome], tasks: Tasks, maker: BatchMaker) -> Iterator[Made]:
    """Yields the batches of tasks."""
    for outcome in outcomes:
        if isinstance(outcome.error, WorkerDiedError):
            if len(outcome.task) == 1:
                raise maker.located(outcome.task.start, outcome.error)
            # Made one at a time, to find the batch that ends a process.
            with _pool(maker, 1, True) as alone:
                yield from _made(alone.run(range(n, n + 1) for n in outcome.task), tasks, maker)
            continue
        made = outcome.result or []
        tasks.adapt(len(made), outcome.seconds)
        made.reverse()
        while made:
            yield made.pop()  # A batch is freed as soon as its user drops it.
        outcome.get()


class Tasks(Iterator[range]):
    """Divides steps into ranges: a task makes one batch, or as many as take `TASK_SECONDS`.

    The batches of a task are read with one call: an epoch of datapoints of three small fields, in batches of
    32, takes 0.4 us a datapoint, and 2.0 if the batches are read one at a time.
    """

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
        """Sets the length of the next ranges, from the time that `count` batches took."""
        self._length = max(1, min(self._max_length, int(TASK_SECONDS * count / max(seconds, 1e-6))))
