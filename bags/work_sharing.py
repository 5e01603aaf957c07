"""Threads that end at about the same time: whoever has nothing left to do helps the others.

Of batches of pictures, each thread of a loader makes one. At the end of an epoch all but one would wait for
the last batch, which takes as long as it takes one thread: of 32 batches in two threads, 3% of the epoch.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

__all__ = ['Crew', 'each']

Thing = TypeVar('Thing')
Result = TypeVar('Result')

# Seconds from one look at what there is to do to the next: the garbage collector may call `close` between a
# look and the beginning of a wait, in the thread that is to be woken.
LOOKING = 1.0

_here = threading.local()


def each(work: Callable[[Thing], Result], things: Sequence[Thing]) -> list[Result]:
    """Does work on each of several things, as `map`, with the help of who is idle of the thread's crew.

    Raises:
        BaseException: What `work` raises for one of the things, not always the first.
    """
    crew: Crew | None = getattr(_here, 'crew', None)
    return list(map(work, things)) if crew is None else crew.each(work, things)


class Crew:
    """Threads that each have work of their own, and call `join` before it and `help` after it.

    Args:
        count: How many there are.
    """

    def __init__(self, count: int) -> None:
        self._busy = count
        self._jobs: list[_Job] = []
        # Reentrant, as the garbage collector may call `close` wherever memory is asked for.
        self._changed = threading.Condition(threading.RLock())

    def join(self) -> None:
        """Makes the calling thread one of the crew, whose work others may help with."""
        _here.crew = self

    def each(self, work: Callable[[Thing], Result], things: Sequence[Thing]) -> list[Result]:
        job = _Job(work, things)
        with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()
        job.do()
        with self._changed:
            self._jobs.remove(job)
            while job.helpers:
                self._changed.wait()
        error, job.error = job.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error, job  # The traceback has this frame, and one of the job's.
        return job.results

    def help(self) -> None:
        """Helps until all threads are done with their own work, or `close` is called."""
        with self._changed:
            self._busy -= 1
            self._changed.notify_all()
        while (job := self._unfinished()) is not None:
            job.do()
            with self._changed:
                job.helpers -= 1
                self._changed.notify_all()
            del job

    def _unfinished(self) -> _Job | None:
        with self._changed:
            while self._busy > 0:
                job = next((job for job in self._jobs if job.left), None)
                if job is not None:
                    job.helpers += 1
                    return job
                self._changed.wait(LOOKING)
        return None

    def close(self) -> None:
        """Ends `help`, once what is being done is done."""
        with self._changed:
            self._busy = 0
            self._changed.notify_all()


class _Job:
    """Work on several things, which several threads may do at a time."""

    def __init__(self, work: Callable[[Any], Any], things: Sequence[Any]) -> None:
        self._work, self._things = work, things
        self.left = deque(range(len(things)))
        self.results: list[Any] = [None] * len(things)
        self.error: BaseException | None = None
        self.helpers = 0

    def do(self) -> None:
        """Does what nobody else does, until nothing is left."""
        left, results, work, things = self.left, self.results, self._work, self._things
        while left:
            try:
                place = left.popleft()
            except IndexError:  # Another thread had the last one.
                return
            try:
                results[place] = work(things[place])
            except BaseException as exc:
                left.clear()
                self.error = exc
