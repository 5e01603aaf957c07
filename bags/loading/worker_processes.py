"""Batches made ahead by processes, and delivered in order.

Arrays come through shared memory that each process writes to, and are copied once; all else is pickled.
There are no threads: whoever asks for a batch looks what has come, and hands out what is to be done next.
"""

from __future__ import annotations

import os
import pickle
import time
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np

from bags.bag.files.arena import ALIGNMENT, Arena
from bags.loading.pace import Pace
from bags.loading.recipe import Made, Recipe

__all__ = ['Processes', 'check_picklable']

DEPTH = 2  # Runs that a process is given at a time: one that is made, and one that waits to be fetched.
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
        self._process = os.getpid()
        self._total = recipe.steps.total
        self._prefetch = prefetch
        self._pace = Pace(max(1, prefetch // (DEPTH * count))) if prefetch else Pace()
        self._claimed = self._taken = 0
        self._runs: dict[int, list[Made]] = {}
        self._run: Iterator[Made] = iter(())
        self._workers: list[_Worker] = []
        data = pickle.dumps(recipe)
        try:
            for number in range(count):
                self._workers.append(_Worker(number, data))
        except BaseException:
            self.close()
            raise
        self._hand_out()

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
            self._receive(None)
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

    def _receive(self, seconds: float | None) -> None:
        """Takes what processes have made; waits for some, unless for no longer than given."""
        from multiprocessing.connection import wait

        ends: dict[Any, _Worker] = {worker.connection: worker for worker in self._workers}
        ends |= {worker.process.sentinel: worker for worker in self._workers}
        found: list[Any] = wait(list(ends), seconds)
        for worker in dict.fromkeys(ends[end] for end in found):
            try:
                while worker.connection.poll():
                    self._keep(*worker.receive())
            except (EOFError, OSError):
                raise RuntimeError(worker.epitaph()) from None
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
        workers, self._workers = self._workers, []
        for worker in workers:
            # There is nothing that a worker could leave behind, so nothing it has to be asked for.
            worker.process.kill()
        for worker in workers:
            worker.end()


class _Worker:
    """A process, the connection to it, and the memory it hands batches over in."""

    def __init__(self, number: int, recipe: bytes) -> None:
        import multiprocessing

        context = multiprocessing.get_context('spawn')
        self.slots = [Arena() for _ in range(DEPTH)]
        self.slots_used: dict[int, int] = {}
        """Slot of each run that is being made, by its first batch."""
        self.has_answered = False
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_work, args=(theirs, self.slots, recipe), name=f'bags-loader-{number}', daemon=True
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

    def receive(self) -> tuple[int, int, list[Made], float]:
        first, count, data, offsets, sizes, seconds = pickle.loads(self.connection.recv_bytes())
        self.has_answered = True
        buffers = _copied(self.slots[self.slots_used.pop(first)], offsets, sizes)
        return first, count, pickle.loads(data, buffers=buffers), seconds

    def epitaph(self) -> str:
        self.process.join(PATIENCE)
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

    def end(self) -> None:
        self.process.join(PATIENCE)
        if not self.process.is_alive():
            self.process.close()
        self.connection.close()
        for slot in self.slots:
            slot.close()


def _copied(slot: Arena, offsets: list[int], sizes: list[int]) -> list[memoryview]:
    """Returns buffers of our own with what is in the slot."""
    if not offsets:
        return []
    total = offsets[-1] + sizes[-1]
    room = np.empty(total + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    room[start : start + total] = np.frombuffer(slot.view(total), np.uint8)
    view = room.data[start:]
    return [view[offset : offset + size] for offset, size in zip(offsets, sizes, strict=True)]


# In the process.


def _work(connection: Any, slots: list[Arena], data: bytes) -> None:
    import signal

    # Ctrl-C goes to all processes of a terminal; ours ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    recipe: Recipe | Exception
    try:
        recipe = pickle.loads(data)
    except Exception as exc:
        exc.add_note('in a worker process: functions and classes must be where it can import them')
        recipe = exc
    try:
        while True:
            first, count, slot = connection.recv()
            connection.send_bytes(_answer(recipe, first, count, slots[slot]))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # The process that asked has ended.


def _answer(recipe: Recipe | Exception, first: int, count: int, slot: Arena) -> bytes:
    """Makes a run; returns all of it but its arrays, which are in the slot."""
    began = time.perf_counter()
    run = _make(recipe, first, count)
    buffers: list[pickle.PickleBuffer] = []
    try:
        data = pickle.dumps(run, 5, buffer_callback=buffers.append)
        parts = [buffer.raw() for buffer in buffers]
        offsets = slot.write(parts)
    except Exception as exc:
        exc.add_note('in a worker process, while it handed over a batch')
        parts, offsets = [], []
        data = pickle.dumps([Made(None, first, error=_portable(exc))])
    sizes = [part.nbytes for part in parts]
    return pickle.dumps((first, count, data, offsets, sizes, time.perf_counter() - began), 5)


def _make(recipe: Recipe | Exception, first: int, count: int) -> list[Made]:
    run: list[Made] = []
    try:
        if isinstance(recipe, Exception):
            raise recipe
        for made in recipe.make(first, count):
            if made.error is not None:
                made.error = _portable(made.error)
            run.append(made)
    except BaseException as exc:
        run.append(Made(None, first, error=_portable(exc)))
    return run


def _portable(exc: BaseException) -> BaseException:
    """Returns an error that can be sent, with a note of where it was raised."""
    trace = ''.join(traceback.format_exception(exc))
    try:
        pickle.loads(pickle.dumps(exc))
    except Exception:
        notes = getattr(exc, '__notes__', [])
        exc = RuntimeError(f'{type(exc).__name__}: {exc}')
        for note in notes:
            exc.add_note(note)
    exc.add_note(f'in a worker process:\n{trace}')
    return exc
