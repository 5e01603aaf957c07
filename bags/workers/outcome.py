"""Tasks of workers with their results and errors."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

MEASURED_SECONDS = 0.01
"""Duration of tasks between two measurements of the time on a processor."""


class WorkerDiedError(RuntimeError):
    """A worker process ended during a task."""

    def __init__(self, task: str, how: str) -> None:
        super().__init__(task, how)
        self.task = task
        self.how = how
        """The process, and how it ended."""

    def __str__(self) -> str:
        return f'{self.task}: {self.how}'


@dataclasses.dataclass(slots=True, eq=False)
class Outcome:
    """A submitted task, and, once it is done, its result or error."""

    task: Any
    is_done: bool = False
    result: Any = None
    """The result of the task. If it failed, the result of its `PartialResult`, or None."""
    error: BaseException | None = None
    seconds: float = 0.0
    """Duration of the task, without time in queues."""
    sent_seconds: float = 0.0
    """Duration of sending the result, in the worker process; 0 for threads."""
    received_seconds: float = 0.0
    """Duration of receiving the result, in the thread that takes outcomes; 0 for threads."""
    cpu_seconds: float = 0.0
    """Time of the worker's thread on a processor, as of `ProcessorTime`."""
    size: int = 0
    """Bytes of the result, if the pool has a `size_of` function."""
    deaths: int = 0
    """Number of workers that died during the task."""

    def get(self) -> Any:
        """Returns the result, or raises the error.

        The error is then removed from the outcome: a reference cycle of its traceback, a frame and the
        outcome would keep files open until the garbage collector runs.
        """
        if self.error is not None:
            error, self.error = self.error, None
            try:
                if isinstance(error, StopIteration):  # It would silently end the caller's loop.
                    notes = getattr(error, '__notes__', [])
                    raise RuntimeError(': '.join(['StopIteration was raised', *notes])) from error
                raise error
            finally:
                del error
        return self.result


class PartialResult(NamedTuple):
    """Returned by a task function that fails halfway: the result so far, and the error."""

    result: Any
    error: BaseException


class ProcessorTime:
    """Measures the time of a thread on a processor, seldom, as a system call may take 3 us.

    Create it in the thread.
    """

    def __init__(self) -> None:
        self._before, self._worked = time.thread_time(), 0.0

    def after(self, seconds: float) -> float:
        """Returns the time of all tasks since the previous measurement; 0 if there is none now.

        Args:
            seconds: Duration of the task that has just ended.
        """
        self._worked += seconds
        if self._worked < MEASURED_SECONDS:
            return 0.0
        before, self._before, self._worked = self._before, time.thread_time(), 0.0
        return self._before - before


def do(work: Callable[[Any], Any], task: Any) -> tuple[Any, BaseException | None, float]:
    """Runs a task. Returns its result, its error, and its duration in seconds."""
    start = time.perf_counter()
    try:
        result = work(task)
    except BaseException as exc:
        return None, exc, time.perf_counter() - start
    try:
        if isinstance(result, PartialResult):
            return result.result, result.error, time.perf_counter() - start
        return result, None, time.perf_counter() - start
    finally:
        # Otherwise this frame and the traceback of a `PartialResult`'s error would form a reference cycle.
        del result
