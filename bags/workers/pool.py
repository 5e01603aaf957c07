"""The worker pool: runs a bounded number of tasks at a time, and yields their results."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from bags.workers.outcome import Outcome, ProcessorTime, do
from bags.workers.processes import TASKS_PER_WORKER, Processes, Transport
from bags.workers.signals import delay_interrupts

THREAD_END_SECONDS = 10.0  # Maximum time that `close` waits for threads in the middle of a task.


class WorkerPool:
    """Runs tasks in threads or processes, for one thread that submits them and receives the results.

    Workers end with `close`, when the pool is garbage-collected, or when this process ends for any reason.
    After a method has raised an exception, including `KeyboardInterrupt`, the pool can only be closed.

    Args:
        work: Function that returns the result of a task. It is pickled once for processes.
        workers: Number of workers. With 0, the thread that receives an outcome runs its task.
        processes: Whether workers are processes, started with `spawn`, or threads.
        name: Prefix of the names of threads and processes.
        attempts: Number of workers that may die during one task before it fails with a `WorkerDiedError`,
            which names the task by its `str`.
        size_of: Function that returns the bytes of a result, for `max_held_bytes`.
        transport: Creates a `Transport` for each process. By default, results are pickled.

    Raises:
        TypeError: `work` cannot be sent to processes.
    """

    def __init__(
        self,
        work: Callable[[Any], Any],
        workers: int,
        *,
        processes: bool = False,
        name: str = 'bags',
        attempts: int = 3,
        size_of: Callable[[Any], int] | None = None,
        transport: Callable[[], Transport] | None = None,
    ) -> None:
        self._work, self._workers = work, workers
        self._max_running = max(1, TASKS_PER_WORKER * workers)
        self._size_of = size_of
        self._running = 0
        self.ready = 0
        """Number of finished tasks whose outcomes were not yielded yet, as of the last yielded outcome."""
        self._process = os.getpid()
        self._backend: _Threads | Processes
        if processes and workers:
            self._backend = Processes(work, name, attempts, transport)
        else:
            self._backend = _Threads(work, name)
        self._finalizer = weakref.finalize(self, _close, self._backend, self._process)
        try:
            self._backend.start(workers)
        except BaseException:
            self.close()
            raise

    def run(
        self,
        tasks: Iterable[Any],
        *,
        ahead: int | None = None,
        max_held_bytes: int | None = None,
    ) -> Iterator[Outcome]:
        """Runs tasks, taken from the iterable as workers become free, and yields their outcomes in order.

        Tasks start immediately, not when the first outcome is requested. After a task fails, no other task
        starts until the outcome of the failed task has been yielded.

        Args:
            tasks: The tasks.
            ahead: Maximum number of tasks that were started and whose outcomes were not yielded. By default,
                `TASKS_PER_WORKER` per worker.
            max_held_bytes: Maximum bytes of results that were not yielded, above which no task starts.
        """
        if not self._workers:
            return map(self._do, tasks)
        tasks = iter(tasks)
        ahead = self._max_running if ahead is None else ahead
        started: deque[Outcome] = deque()

        def begin() -> None:
            self._check()
            while (
                self._running < self._max_running
                and len(started) < ahead
                and (max_held_bytes is None or sum(outcome.size for outcome in started) < max_held_bytes)
                and all(outcome.error is None for outcome in started)
            ):
                try:
                    task = next(tasks)
                except StopIteration:
                    return
                started.append(Outcome(task))
                self._backend.submit(started[-1])
                self._running += 1

        def outcomes() -> Iterator[Outcome]:
            while started:
                if not started[0].is_done:
                    self._receive(True)
                    begin()
                    continue
                outcome = started.popleft()
                self.ready -= 1
                self._receive(False)
                begin()  # Keeps workers busy while the caller uses the outcome.
                yield outcome
                del outcome
                begin()

        begin()
        return outcomes()

    def _receive(self, wait: bool) -> None:
        self._check()
        for outcome in self._backend.receive(wait):
            self._running -= 1
            self.ready += 1
            self._finish(outcome)

    def _do(self, task: Any) -> Outcome:
        """Runs a task in this thread."""
        self._check()
        return self._finish(Outcome(task, False, *do(self._work, task)))

    def _finish(self, outcome: Outcome) -> Outcome:
        outcome.is_done = True
        if self._size_of is not None and outcome.result is not None:
            outcome.size = self._size_of(outcome.result)
        return outcome

    def _check(self) -> None:
        if self._workers and os.getpid() != self._process:
            raise RuntimeError(
                'the workers belong to the process that started them: create another pool in this process'
            )
        if not self._finalizer.alive:
            raise ValueError('the worker pool is closed')

    def close(self) -> None:
        """Ends the workers: processes immediately, threads after the current task. Drops pending results."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _close(backend: _Threads | Processes, process: int) -> None:
    if os.getpid() == process:  # A forked child has no workers.
        backend.close()


class _Threads:
    """Threads of this process."""

    def __init__(self, work: Callable[[Any], Any], name: str) -> None:
        self._work = work
        self._name = name
        self._tasks: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self, count: int) -> None:
        with delay_interrupts():
            for number in range(count):
                # Threads refer only to the queues, so that an unused pool is garbage-collected. They are
                # daemons, so that a pool that is never closed does not keep the process alive.
                thread = threading.Thread(
                    target=_serve,
                    args=(self._work, self._tasks, self._done),
                    name=f'{self._name}-{number}',
                    daemon=True,
                )
                thread.start()
                self._threads.append(thread)

    def submit(self, outcome: Outcome) -> None:
        self._tasks.put(outcome)

    def receive(self, wait: bool) -> list[Outcome]:
        outcomes = [self._done.get()] if wait else []
        while not self._done.empty():
            outcomes.append(self._done.get_nowait())
        return outcomes

    def close(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._tasks.get_nowait()
        for _ in self._threads:
            self._tasks.put(None)
        if threading.current_thread() in self._threads:
            return  # Called by the garbage collector in a worker thread, which cannot join itself.
        deadline = time.monotonic() + THREAD_END_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def _serve(
    work: Callable[[Any], Any],
    tasks: queue.SimpleQueue[Outcome | None],
    done: queue.SimpleQueue[Outcome],
) -> None:
    """Runs tasks in a thread."""
    processor_time = ProcessorTime()
    while (outcome := tasks.get()) is not None:
        outcome.result, outcome.error, outcome.seconds = do(work, outcome.task)
        outcome.cpu_seconds = processor_time.after(outcome.seconds)
        done.put(outcome)
        del outcome  # Otherwise the result would stay alive until the next task.
