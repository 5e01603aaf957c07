"""Batches made ahead by processes, and delivered in order.

Arrays come through shared memory that each process writes to, and are copied once; all else is pickled.
There are no threads: whoever asks for a batch looks what has come, and hands out what is to be done next.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator
from typing import Any

from bags.loader.batches import Made, Recipe
from bags.loader.pace import Pace
from bags.loader.shared_memory import Arena
from bags.loader.signals import blocked, held_back
from bags.loader.transport import taken
from bags.memory import Pool

__all__ = ['Processes', 'check_picklable']

DEPTH = 2  # Runs that a process is given at a time: one that is made, and one that waits to be fetched.
LOOKING = 0.25  # Seconds without an answer after which to see whether a process has ended.
PATIENCE = 10.0


def check_picklable(recipe: Recipe) -> None:
    """Checks that a recipe can be sent to a process.

    Raises:
        TypeError: What of it cannot.
    """
    for name in ('dataset', 'sampler', 'transform', 'collate'):
        try:
            pickle.dumps(getattr(recipe, name))
        except Exception as exc:
            raise TypeError(
                f'{name}: expected what can be pickled, to be sent to processes, got '
                f'{getattr(recipe, name)!r:.200}: {exc} (a function must be at the top of a module)'
            ) from exc


class Processes:
    """Makes batches ahead, in processes that end with `close`, and with this process.

    Args:
        recipe: What makes them.
        count: Processes.
        prefetch: Batches that may be finished or begun before they are asked for.
    """

    def __init__(self, recipe: Recipe, count: int, prefetch: int | None) -> None:
        from multiprocessing import resource_tracker

        self._process = os.getpid()
        self._total = recipe.steps.total
        self._prefetch = prefetch
        self._pace = Pace(max(1, prefetch // (DEPTH * count))) if prefetch else Pace()
        self._claimed = self._taken = 0
        self._runs: dict[int, list[Made]] = {}
        self._run: Iterator[Made] = iter(())
        self._workers: list[_Worker] = []
        self._memory = recipe.memory
        # In memory that all have: the pipe through which a process gets its arguments takes 64 KB, and who
        # writes more waits for it to read them, for ever if it ends before that.
        data, sent = pickle.dumps(recipe), Arena()
        try:
            with held_back():
                # A process of the standard library's own that it starts with the first of ours, after which
                # it lets signals through.
                resource_tracker.ensure_running()
                with blocked():
                    sent.write([memoryview(data)])
                    for number in range(count):
                        self._workers.append(_Worker(number, sent, len(data)))
            self._hand_out()
        except BaseException:
            self.close()
            raise
        finally:
            sent.close()

    def get(self) -> Made | None:
        """Returns the next batch, waiting for it; None at the end.

        Raises:
            RuntimeError: A process has ended; or this is another one than that which started them.
        """
        made = next(self._run, None)
        if made is not None:
            return made
        if os.getpid() != self._process:
            raise RuntimeError('this iterator belongs to the process that made it: make another one here')
        try:
            run = self._next_run()
        except BaseException:
            self.close()  # Half of a message may have been read.
            raise
        if run is None:
            return None
        self._run = iter(run)
        return next(self._run)

    def _next_run(self) -> list[Made] | None:
        self._receive(0)
        while self._taken not in self._runs:
            if not self._workers or (self._total is not None and self._taken >= self._total):
                return None
            self._receive(LOOKING)
        run = self._runs.pop(self._taken)
        self._taken += len(run)
        self._hand_out()
        return run

    def _hand_out(self) -> None:
        """Gives each process runs to make, as far as there is room."""
        while self._workers:
            worker = min(self._workers, key=lambda worker: len(worker.slots_used))
            if len(worker.slots_used) >= DEPTH:
                return
            count = self._pace.count
            ahead = self._prefetch or DEPTH * len(self._workers) * count
            count = min(count, self._taken + ahead - self._claimed)
            if self._total is not None:
                count = min(count, self._total - self._claimed)
            if count < 1:
                return
            worker.send(self._claimed, count)
            self._claimed += count

    def _receive(self, seconds: float) -> None:
        """Takes what processes have made; waits for some, but no longer than given."""
        from multiprocessing.connection import wait

        ends: dict[Any, _Worker] = {worker.connection: worker for worker in self._workers}
        ends |= {worker.process.sentinel: worker for worker in self._workers}
        found: list[Any] = wait(list(ends), seconds)
        # What a process had open stays open for as long as a child that it forked has it: where nothing
        # comes, it is the system that knows.
        workers = dict.fromkeys(ends[end] for end in found) if found or not seconds else self._workers
        for worker in workers:
            while (received := worker.receive(self._memory)) is not None:
                self._keep(*received)
            if not worker.process.is_alive():
                raise RuntimeError(worker.epitaph())
        self._hand_out()

    def _keep(self, first: int, count: int, run: list[Made], seconds: float) -> None:
        self._runs[first] = run
        if run[-1].error is None:
            self._pace.took(count, seconds, sum(made.size for made in run))
        else:
            self._total = self._claimed  # Nothing behind it will be asked for.

    def close(self) -> None:
        if os.getpid() != self._process:
            return
        self._run = iter(())
        self._runs.clear()
        with held_back():
            workers, self._workers = self._workers, []
            for worker in workers:
                # There is nothing that a worker could leave behind, so nothing it has to be asked for.
                worker.process.kill()
            for worker in workers:
                worker.end()


class _Worker:
    """A process, the connection to it, and the memory it hands batches over in."""

    def __init__(self, number: int, sent: Arena, size: int) -> None:
        import multiprocessing

        from bags.loader.worker import work

        context = multiprocessing.get_context('spawn')
        self.slots = [Arena() for _ in range(DEPTH)]
        self.slots_used: dict[int, int] = {}
        """Slot of each run that is being made, by its first batch."""
        self.has_answered = False
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=work, args=(theirs, self.slots, sent, size), name=f'bags-loader-{number}', daemon=True
        )
        try:
            self.process.start()
        finally:
            theirs.close()

    def send(self, first: int, count: int) -> None:
        slot = next(slot for slot in range(DEPTH) if slot not in self.slots_used.values())
        self.slots_used[first] = slot
        try:
            self.connection.send((first, count, slot))
        except OSError:
            pass  # It has ended, which is met where it is waited for.

    def receive(self, memory: Pool) -> tuple[int, int, list[Made], float] | None:
        """Returns a run that has come, if one has: its first batch, how many were asked for, and seconds.

        Its arrays are in `memory`.

        Raises:
            RuntimeError: The process has ended.
        """
        try:
            if not self.connection.poll():
                return None
            first, count, parts, seconds, data = self.connection.recv()
        except (EOFError, OSError):
            raise RuntimeError(self.epitaph()) from None
        self.has_answered = True
        slot = self.slots[self.slots_used.pop(first)]
        try:
            run = taken(slot, parts, memory) if parts else pickle.loads(data)
        except Exception as exc:
            exc.add_note('while a batch was taken over from a worker process')
            run = [Made(None, first, error=exc)]
        return first, count, run, seconds

    def epitaph(self) -> str:
        self._wait()
        hint = (
            ''
            if self.has_answered
            else (
                " before its first batch: a script that starts processes needs `if __name__ == '__main__':`"
            )
        )
        return (
            f'worker process {self.process.name} (pid {self.process.pid}) has ended with exit code '
            f'{self.process.exitcode}{hint}'
        )

    def _wait(self) -> None:
        """Waits until it has ended: not only until its pipes are closed, which others may have."""
        until = time.monotonic() + PATIENCE
        while self.process.exitcode is None and time.monotonic() < until:
            self.process.join(0.05)

    def end(self) -> None:
        self._wait()
        if self.process.exitcode is not None:
            self.process.close()
        self.connection.close()
        for slot in self.slots:
            slot.close()
