"""Batches made ahead by threads, and delivered in order; or made when they are asked for."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

from bags.loader.batches import Made, Recipe
from bags.loader.pace import Pace
from bags.work_sharing import Crew

__all__ = ['Inline', 'Threads']

LOOKING = 1.0  # Seconds from one look whether there is room to the next.
PATIENCE = 10.0  # Seconds that `close` waits for threads in the middle of a batch.


class Inline:
    """Makes batches in the thread that asks for them."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._pace = Pace()
        self._number = 0
        self._run: Iterator[Made] = iter(())
        self._count = self._size = 0
        self._began = 0.0
        self._closed = False

    def get(self) -> Made | None:
        """Returns the next batch; None at the end."""
        made = self._next()
        if made is None and not self._closed:
            if self._count:
                self._pace.took(self._count, time.perf_counter() - self._began, self._size)
            total, count = self._recipe.steps.total, self._pace.count
            if total is not None:
                count = min(count, total - self._number)
            if count < 1:
                return None
            self._count, self._size, self._began = count, 0, time.perf_counter()
            self._run = self._recipe.make(self._number, count)
            self._number += count
            made = self._next()
        return made

    def _next(self) -> Made | None:
        made = next(self._run, None)
        if made is not None:
            self._size += made.size
        return made

    def close(self) -> None:
        self._run = iter(())
        self._closed = True


class Threads:
    """Makes batches ahead, in threads that end with `close`.

    Args:
        recipe: What makes them.
        count: Threads.
        prefetch: Batches that may be finished or begun before they are asked for; two runs a thread unless
            given, or three for two threads if a run is one batch.
    """

    def __init__(self, recipe: Recipe, count: int, prefetch: int | None) -> None:
        self._shared = _Shared(recipe, count, prefetch)
        self._run: Iterator[Made] = iter(())
        self._process = os.getpid()
        # Daemons: an iterator that is never closed must not keep the process from ending. The threads know
        # what they share and nothing else, so that an iterator nobody has any more is freed, and closed.
        self._threads: list[threading.Thread] = []
        try:
            for number in range(count):
                thread = threading.Thread(
                    target=self._shared.work, args=(number,), name=f'bags-loader-{number}', daemon=True
                )
                thread.start()
                self._threads.append(thread)
        except BaseException:  # There can be no more threads: those there are do not stay.
            self.close()
            raise

    def get(self) -> Made | None:
        """Returns the next batch, waiting for it; None at the end.

        Raises:
            RuntimeError: In a process forked from that with the threads.
        """
        made = next(self._run, None)
        if made is None:
            if os.getpid() != self._process:
                raise RuntimeError('this iterator belongs to the process that made it: make another one here')
            run = self._shared.next_run()
            if run is None:
                return None
            self._run = iter(run)
            made = next(self._run)
        return made

    def close(self) -> None:
        if os.getpid() != self._process:
            return
        self._run = iter(())
        self._shared.stop()
        # The garbage collector may call this in any thread: in one of ours, which may hold the lock that the
        # others need to end, there is no waiting.
        if threading.current_thread() in self._threads:
            return
        until = time.monotonic() + PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))


class _Shared:
    """What the threads and the one that takes their batches have in common."""

    def __init__(self, recipe: Recipe, count: int, prefetch: int | None) -> None:
        self.recipe = recipe
        self.threads = count
        self.prefetch = prefetch
        self.pace = Pace(max(1, prefetch // (2 * count))) if prefetch else Pace()
        self.crew = Crew(count)
        self.total = recipe.steps.total
        self.claimed = 0
        """Batches that are finished or begun."""
        self.working = 0
        """Threads that make a run."""
        self.taken = 0
        """Batches of runs that were taken."""
        self.runs: dict[int, list[Made]] = {}
        """Finished, by the number of the first batch."""
        self.stopped = False
        # Reentrant, as the garbage collector may call `stop` wherever memory is asked for.
        self.lock = threading.RLock()
        self.ready = threading.Condition(self.lock)
        self.room = threading.Condition(self.lock)
        self.spare = threading.Condition(self.lock)
        """What threads but the first wait for: room, and to be of use."""

    def _ahead(self) -> int:
        """Returns how many batches may be finished or begun before they are asked for."""
        count = self.pace.count
        # Of large batches as few as keep the threads busy: with two threads and 12 MB, a third more of them
        # took 3% longer, as what is written has to be brought into the processor's cache each time.
        runs = 2 * self.threads if count > 1 else self.threads + (self.threads + 1) // 2
        return self.prefetch or runs * count

    def _claim(self, thread: int) -> tuple[int, int] | None:
        """Returns the next run that nobody makes, as soon as there is room for it; None at the end."""
        with self.lock:
            while not self.stopped:
                if self.total is not None and self.claimed >= self.total:
                    return None
                count, ahead = self.pace.count, self._ahead()
                if self.claimed < self.taken + ahead and not (thread and self.pace.is_alone):
                    count = min(count, self.taken + ahead - self.claimed)
                    if self.total is not None:
                        count = min(count, self.total - self.claimed)
                    first = self.claimed
                    self.claimed += count
                    self.working += 1
                    return first, count
                # Not for ever: the garbage collector may call `stop` here, just before the wait begins.
                (self.spare if thread else self.room).wait(LOOKING)
        return None

    def work(self, thread: int) -> None:
        self.crew.join()
        while (claim := self._claim(thread)) is not None:
            self._do(*claim)
        self.crew.help()

    def _do(self, first: int, count: int) -> None:
        began, begun = time.perf_counter(), time.thread_time()
        run: list[Made] = []
        try:
            for made in self.recipe.make(first, count):
                run.append(made)
                if self.stopped:
                    break
        except BaseException as exc:
            run.append(Made(None, first, error=exc))
        with self.lock:
            working, self.working = self.working, self.working - 1
            if self.stopped:
                return
            self.runs[first] = run
            if run[-1].error is None:
                seconds, busy = time.perf_counter() - began, time.thread_time() - begun
                self.pace.took(count, seconds, sum(made.size for made in run), busy, working)
            else:
                self.total = self.claimed  # Nothing behind it will be asked for.
            if first == self.taken:
                self.ready.notify()

    def next_run(self) -> list[Made] | None:
        with self.lock:
            while self.taken not in self.runs:
                if self.stopped or (self.total is not None and self.taken >= self.total):
                    return None
                self.ready.wait()
            run = self.runs.pop(self.taken)
            self.taken += len(run)
            self._wake()
            return run

    def _wake(self) -> None:
        self.room.notify()
        if not self.pace.is_alone:
            self.spare.notify_all()

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
            self.runs.clear()
            self.room.notify()
            self.spare.notify_all()
            self.ready.notify_all()
        self.crew.close()
