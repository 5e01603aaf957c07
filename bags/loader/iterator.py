"""Iterates over the batches of a loader: makes them on demand or ahead, counts, resumes, and ends workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any, Self

import numpy as np

from bags.loader.batches import BatchMaker, StepResult, request_counts
from bags.loader.plan import LoaderPlan
from bags.loader.shared_memory import SharedMemoryTransport
from bags.loader.steps import PLAN_STEPS, Cursor, Progress, State
from bags.loader.timing import Timer
from bags.workers.outcome import Outcome, WorkerDiedError, do
from bags.workers.pool import WorkerPool
from bags.workers.processes import TASKS_PER_WORKER
from bags.workers.signals import delay_interrupts

TASK_SECONDS = 0.001
"""With 0.002, batches of raw images take a quarter longer, as a task exceeds the processor's cache."""
MALLOC_THRESHOLD = (1 << 25) - (1 << 13)
"""Size of the largest allocation that raises the mmap threshold of glibc: 32 MiB with its header."""


class LoaderIterator(Iterator[Any]):
    """Batches of one iteration over a loader; with several workers, the batches of one worker.

    Its threads or processes end at the end of the iteration, on `close`, on an error, or when it is garbage
    collected. The next call starts new ones: after Ctrl-C it resumes with the interrupted batch, and after an
    error with the batch after the failed one.

    Args:
        plan: The plan of the loader.
        begin: Where to begin.
        worker, workers: Every `workers`-th batch, from batch `worker` on.

    Examples:
        >>> batches = iter(bags.Loader(dataset, 4, fields='id', seed=0))
        >>> next(batches)['id'].tolist(), batches.state_dict()['consumed']
        ([2, 4, 6, 7], 4)
    """

    def __init__(self, plan: LoaderPlan, begin: Cursor, worker: int = 0, workers: int = 1) -> None:
        self._plan = plan
        self._next_epoch = begin.epoch + 1
        self._progress = Progress(plan.maker.schedule._replace(begin=begin, skip=worker, stride=workers))
        self._failed_steps = 0
        """1 after an error: the next call leaves out the failed step."""
        self._batches: Iterator[StepResult] | None = None
        """None before the first call, and after an error, an interrupt or a change of weights."""
        self._sampler = plan.maker.sampler
        """The order of the batches that are made ahead."""
        self._pool: WorkerPool | None = None
        self._is_closed = False
        self._timer: Timer | None = None
        """The time of this iteration, if it is measured."""

    def __repr__(self) -> str:
        progress = self._progress
        steps = progress.schedule.total
        return f'<batch {progress.delivered} of {steps or "endless"} of {self._plan!r}>'

    def start(self) -> Self:
        """Starts making batches now instead of at the next call. Returns this iterator."""
        plan, progress = self._plan, self._progress
        # Added only now: after an error, the state is still the state before the failed batch.
        progress.delivered += self._failed_steps
        self._failed_steps = 0
        # glibc returns the memory of a freed batch to the system, and gets it back with a page fault every
        # 4 KiB, until an allocation of this size was freed. An epoch of arrays of 4 KB, in batches
        # of 1 MB, takes 0.73 us an array, and 1.19 without this.
        np.empty(MALLOC_THRESHOLD, np.uint8)
        maker = plan.batch_maker(progress.schedule)
        self._sampler = maker.sampler
        is_ahead = plan.workers and plan.prefetch
        tasks = Tasks(maker.schedule.total, 1 if is_ahead else PLAN_STEPS, progress.delivered)
        try:
            if plan.workers:
                with delay_interrupts():
                    self._pool = _pool(maker, plan.workers, plan.processes)
                    outcomes = self._pool.run(tasks, ahead=plan.prefetch)
            else:
                outcomes = map(Outcome, tasks)  # `_made` runs the tasks.
            self._batches = _made(outcomes, tasks, maker, self._timer, self._pool)
            plan.progress = progress  # This iterator is the newest.
        except BaseException:
            self._stop()
            raise
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        before = self._progress.delivered, self._failed_steps
        try:
            if self._is_closed:
                raise StopIteration
            if self._sampler is not self._plan.maker.sampler:
                self._stop()  # Batches of other weights, which were made ahead.
            if self._batches is None:
                self.start()
                assert self._batches is not None
            made = next(self._batches)
            self._plan.process_retries += made.requests.retries
            if made.skipped:
                made = self._without_skipped(made, self._batches)
            batch = made.batch
            if self._plan.to_device is not None:
                batch = self._on_device(self._plan.to_device, batch)
            self._progress.delivered += 1
            if made.epoch >= self._next_epoch:
                self._begin_epoch(made.epoch)
            return batch  # noqa: TRY300 - here an interrupt still takes the count back
        except StopIteration:
            progress = self._progress
            progress.is_finished |= progress.delivered == progress.schedule.total
            self.close()
            raise
        except KeyboardInterrupt:
            self._stop()
            self._progress.delivered, self._failed_steps = before
            raise
        except BaseException:
            self._failed_steps = int(self._batches is not None)
            self._stop()
            raise

    def _on_device(self, to_device: Callable[[Any], Any], batch: Any) -> Any:
        try:
            return to_device(batch)
        except StopIteration as exc:  # Otherwise it would end the loop silently.
            raise RuntimeError('to_device raised StopIteration') from exc

    def _without_skipped(self, made: StepResult, batches: Iterator[StepResult]) -> StepResult:
        """Returns a batch, or the next one if none of its datapoints can be read; records skipped datapoints.

        Raises:
            ValueError: No datapoint of a whole epoch can be read.
        """
        empty_steps = 0
        while True:
            for skipped in made.skipped:
                self._plan.unreadable[skipped.datapoint] = skipped
            if made.batch is not None:
                return made
            self._progress.delivered += 1
            empty_steps += 1
            if empty_steps >= self._progress.schedule.epoch_steps():
                raise ValueError(
                    f'no datapoint of {empty_steps} batches in a row can be read: {made.skipped[-1]}'
                )
            made = next(batches)

    def _begin_epoch(self, epoch: int) -> None:
        """Makes the next iteration over an endless loader begin after an epoch that this iteration has begun.

        Has no effect after `set_epoch`, `load_state_dict` or the start of another iteration.
        """
        plan, before = self._plan, self._next_epoch
        self._next_epoch = epoch + 1
        if plan.schedule.epochs is None and plan.next_cursor == (before, 0, before):
            plan.next_cursor = Cursor(epoch + 1, 0, epoch + 1)

    def _stop(self) -> None:
        """Ends the workers."""
        self._batches = None
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def close(self) -> None:
        """Ends the workers and the iteration."""
        self._is_closed = True
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def state_dict(self) -> State:
        """Returns the state after the last delivered batch, as `Loader.state_dict`.

        With several workers, the state also has the number of batches of the loader to skip.
        """
        progress, workers = self._progress, self._progress.schedule.stride
        state = self._plan.state_at(progress.cursor)
        return state if workers == 1 else {**state, 'skip': progress.skip, 'workers': workers}

    def load_state_dict(
        self,
        state: State,
        *,
        check_dataset: bool = True,
        weights: str | os.PathLike[str] | Mapping[int, Any] | None = None,
    ) -> None:
        """Resumes from the state of another iterator or loader. The next iteration begins after this one.

        Args:
            state, check_dataset, weights: As in `Loader.load_state_dict`.

        Raises:
            ValueError: As `Loader.load_state_dict`; or the state is for another number of workers.
        """
        cursor, own = self._plan.load_state(state, check_dataset, weights), self._progress.schedule
        skip, workers = int(state.get('skip', 0)), int(state.get('workers', 1))
        if workers != own.stride:
            raise ValueError(f'state: expected the state of {own.stride} workers, got the state of {workers}')
        self._stop()
        self._next_epoch = cursor.epoch + 1
        self._plan.begin(cursor)
        self._progress.schedule = own._replace(begin=cursor, skip=skip)
        self._progress.delivered, self._progress.is_finished = 0, False
        self._failed_steps, self._is_closed = 0, False

    # The names that Grain uses.
    get_state = state_dict
    set_state = load_state_dict


class TimedIterator(LoaderIterator):
    """An iterator that measures where the time goes. Arguments as of `LoaderIterator`."""

    def __init__(self, plan: LoaderPlan, begin: Cursor, worker: int = 0, workers: int = 1) -> None:
        super().__init__(plan, begin, worker, workers)
        counts = request_counts(plan.maker.dataset)
        ahead = (plan.prefetch or TASKS_PER_WORKER * plan.workers) if plan.workers else 0
        self._timer: Timer = Timer(plan.workers, plan.processes, ahead, counts)

    def start(self) -> Self:
        self._plan.timer = self._timer  # This iterator is the newest.
        self._timer.wait()
        try:
            return super().start()
        finally:
            self._timer.stop_waiting()

    def __next__(self) -> Any:
        timer = self._timer
        timer.wait()
        steps = 0
        try:
            batch = super().__next__()
            steps = 1
        finally:
            timer.stop_waiting(steps)
        return batch

    def _on_device(self, to_device: Callable[[Any], Any], batch: Any) -> Any:
        start = perf_counter()
        batch = super()._on_device(to_device, batch)
        self._timer.add_hand_over(perf_counter() - start)
        return batch

    def close(self) -> None:
        self._timer.end()
        super().close()


ITERATORS = {False: LoaderIterator, True: TimedIterator}
"""The iterators of a plan, by its option `timing`."""


def worker_shard(plan: LoaderPlan, worker: int, workers: int, begin: Cursor | None = None) -> LoaderIterator:
    """Returns every `workers`-th batch, from batch `worker` on, for one worker of another library.

    Taking one batch from each worker in turn gives the batches of the loader. Threads and processes start
    with the first batch; with several workers, each worker makes its batches in its own thread.

    Args:
        plan: The plan of the loader.
        worker, workers: The index of the worker, and the number of workers.
        begin: Where to begin. Default: where the next iteration begins, which stays unchanged.
    """
    plan = plan if workers == 1 else plan.without_workers()
    return ITERATORS[plan.timing](plan, plan.next_cursor if begin is None else begin, worker, workers)


def _pool(maker: BatchMaker, workers: int, processes: bool) -> WorkerPool:
    return WorkerPool(
        maker.make,
        workers,
        processes=processes,
        name='bags-loader',
        attempts=1,
        transport=SharedMemoryTransport if processes else None,
    )


def _made(
    outcomes: Iterator[Outcome],
    tasks: Tasks,
    maker: BatchMaker,
    timer: Timer | None,
    pool: WorkerPool | None,
) -> Iterator[StepResult]:
    """Yields the batches of tasks, and runs the tasks that no worker has run."""
    for outcome in outcomes:
        if not outcome.is_done:
            outcome.result, outcome.error, outcome.seconds = do(maker.make, outcome.task)
        if isinstance(outcome.error, WorkerDiedError):
            if len(outcome.task) == 1:
                raise maker.located(outcome.task.start, outcome.error)
            # Make batches one at a time, to find the batch that kills a process.
            with _pool(maker, 1, True) as alone:
                yield from _made(alone.run(range(n, n + 1) for n in outcome.task), tasks, maker, timer, alone)
            continue
        made = outcome.result or []
        tasks.adapt(len(made), outcome.seconds)
        if timer is not None:
            timer.add_task(outcome, 0 if pool is None else pool.ready)
        made.reverse()
        while made:
            yield made.pop()  # A batch is freed as soon as its user drops it.
        outcome.get()


class Tasks(Iterator[range]):
    """Divides steps into ranges: a task makes one batch, or as many batches as take `TASK_SECONDS`.

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
