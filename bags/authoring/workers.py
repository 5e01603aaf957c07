"""Workers that tasks are handed to, in processes or in threads, and what becomes of one that dies."""

from __future__ import annotations

import collections
import pickle
import queue
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

__all__ = ['Crew', 'Outcome', 'Processes', 'Task', 'Threads', 'can_be_sent']

AHEAD = 2  # Tasks that a worker has, so that it need not wait for the next one.
TRIES = 3

Work = Callable[['Task'], tuple[Any, Exception | None]]
"""Does a task: returns what it came to before an error, and that error."""


class Task(NamedTuple):
    """Some inputs, one after the other."""

    first: int
    """The number of the first."""
    inputs: Any
    """They themselves, or what a worker finds them by; has a length."""
    tries: int = 0
    """Workers that died of it."""

    @property
    def name(self) -> str:
        last = self.first + len(self.inputs) - 1
        return f'input {self.first}' if last == self.first else f'inputs {self.first} to {last}'


class Outcome(NamedTuple):
    """What became of a task."""

    task: Task
    result: Any
    """Also where there is an error: what was done before it."""
    error: BaseException | None
    seconds: float


class Crew(Protocol):
    """Workers."""

    def has_room(self) -> bool:
        """Whether to give them another task."""
        ...

    def submit(self, task: Task) -> None: ...

    def wait(self) -> list[Outcome]:
        """Returns tasks that are done, at least one, once there are any."""
        ...

    def close(self) -> None:
        """Ends the workers, whatever they are at."""
        ...


def _do(work: Work, task: Task) -> Outcome:
    begin = time.perf_counter()
    result, error = work(task)
    return Outcome(task, result, error, time.perf_counter() - begin)


class Threads:
    """Workers that are threads of this process."""

    def __init__(self, work: Work, count: int) -> None:
        self._todo: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._count, self._busy = count, 0
        todo, done = self._todo, self._done

        def run() -> None:
            while (task := todo.get()) is not None:
                done.put(_do(work, task))

        self._threads = [threading.Thread(target=run, name='bags-write', daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def has_room(self) -> bool:
        return self._busy < AHEAD * self._count

    def submit(self, task: Task) -> None:
        self._busy += 1
        self._todo.put(task)

    def wait(self) -> list[Outcome]:
        found = [self._done.get()]
        while not self._done.empty():
            found.append(self._done.get())
        self._busy -= len(found)
        return found

    def close(self) -> None:
        while not self._todo.empty():
            try:
                self._todo.get_nowait()
            except queue.Empty:
                break
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            thread.join()


def can_be_sent(work: Any) -> Exception | None:
    """Returns what keeps work from being sent to another process."""
    try:
        pickle.dumps(work)
    except Exception as exc:
        return exc
    return None


class _Worker:
    """A process, and the tasks that it has."""

    def __init__(self, context: Any, work: bytes) -> None:
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, work), daemon=True, name='bags-write')
        self.process.start()
        other.close()
        self.tasks: collections.deque[Task] = collections.deque()
        self.is_ready = False


class Processes:
    """Workers that are processes, started afresh; another takes the place and the tasks of one that dies."""

    def __init__(self, work: Work, count: int) -> None:
        import multiprocessing

        self._context = multiprocessing.get_context('spawn')
        self._work = pickle.dumps(work)
        self._workers: list[_Worker] = []
        self._again: collections.deque[Task] = collections.deque()
        try:
            for _ in range(count):
                self._workers.append(_Worker(self._context, self._work))
        except BaseException:
            self.close()
            raise

    def has_room(self) -> bool:
        return not self._again and any(len(worker.tasks) < AHEAD for worker in self._workers)

    def submit(self, task: Task) -> None:
        worker = min(self._workers, key=lambda worker: len(worker.tasks))
        worker.tasks.append(task)
        try:
            worker.connection.send(task)
        except (BrokenPipeError, ConnectionResetError):
            pass  # It has died; `wait` will find out.

    def wait(self) -> list[Outcome]:
        from multiprocessing.connection import wait

        found: list[Outcome] = []
        while not found:
            ready = wait([worker.connection for worker in self._workers])
            for place, worker in enumerate(self._workers):
                if worker.connection not in ready:
                    continue
                try:
                    message = worker.connection.recv()
                except (EOFError, ConnectionResetError):
                    found += self._replace(place)
                    continue
                if message is None:
                    worker.is_ready = True
                    continue
                result, error, seconds = message
                found.append(Outcome(worker.tasks.popleft(), result, error, seconds))
            while self._again and any(len(worker.tasks) < AHEAD for worker in self._workers):
                self.submit(self._again.popleft())
        return found

    def _replace(self, place: int) -> list[Outcome]:
        """Puts a new worker in the place of one that has died, and hands its tasks out again."""
        worker = self._workers[place]
        worker.connection.close()
        worker.process.join()
        code = worker.process.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f'exit code {code}'
        if not worker.is_ready:
            raise RuntimeError(
                f'a worker could not be started ({how}). Workers import the main module anew: in a script, '
                f"call this below `if __name__ == '__main__':`, or use processes=False"
            )
        self._workers[place] = _Worker(self._context, self._work)
        if not worker.tasks:
            return []
        first = worker.tasks.popleft()  # What it was at.
        first = first._replace(tries=first.tries + 1)
        self._again.extend(worker.tasks)
        if first.tries < TRIES:
            self._again.appendleft(first)
            return []
        error = RuntimeError(f'{first.name}: {TRIES} workers died of it, the last by {how}')
        return [Outcome(first, None, error, 0.0)]

    def close(self) -> None:
        for worker in self._workers:
            worker.connection.close()
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join()
            worker.process.close()


def _serve(connection: Any, work: bytes) -> None:
    """What a worker process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers.
    do = pickle.loads(work)  # noqa: S301 - from the parent
    todo: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def receive() -> None:
        try:
            while True:
                todo.put(connection.recv_bytes())
        except (EOFError, OSError):
            todo.put(None)  # The parent is gone.

    # Apart, since the parent sends the next task while this sends a result: neither may wait for the other.
    threading.Thread(target=receive, name='bags-receive', daemon=True).start()
    try:
        connection.send(None)
        while (received := todo.get()) is not None:
            outcome = _do(do, pickle.loads(received))  # noqa: S301 - from the parent
            try:
                message = pickle.dumps((outcome.result, outcome.error, outcome.seconds))
                if outcome.error is not None:
                    pickle.loads(message)  # noqa: S301 - made above. Some errors can be sent, but not received.
            except Exception:
                error = RuntimeError(f'{type(outcome.error).__name__}: {outcome.error}')
                message = pickle.dumps((outcome.result, error, outcome.seconds))
            connection.send_bytes(message)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # The parent is gone.
