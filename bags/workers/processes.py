"""Worker processes: start, tasks, results, and replacement of processes that die."""

from __future__ import annotations

import ast
import contextlib
import os
import pickle
import queue
import re
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from bags.workers.outcome import Outcome, ProcessorTime, WorkerDiedError, do
from bags.workers.signals import block_interrupts, delay_interrupts, reset_signals

TASKS_PER_WORKER = 2
"""Maximum number of tasks of a worker: the current and the next task, so that it never waits for a task."""
LIVENESS_SECONDS = 0.25  # Interval at which workers that send nothing are checked for being alive.
PARENT_CHECK_SECONDS = 1.0
KILLED_PROCESS_SECONDS = 10.0  # Maximum time to wait for a killed process to end.


class Transport(Protocol):
    """Transfers the results of one process to its parent. It is pickled while that process starts.

    The parent decodes each result before it sends the process another task, so `TASKS_PER_WORKER` buffers,
    used alternately, suffice. A result of None is not encoded.
    """

    def encode(self, result: Any) -> Any:
        """Returns the object to send in place of a result. Called in the worker process."""
        ...

    def decode(self, message: Any) -> Any:
        """Returns the result of a message. Called in the parent."""
        ...

    def close(self) -> None:
        """Releases the resources of the parent."""
        ...


class Processes:
    """Worker processes, started with `spawn`. Tasks are queued here until a process can take them."""

    def __init__(
        self, work: Callable[[Any], Any], name: str, attempts: int, transport: Callable[[], Transport] | None
    ) -> None:
        check_main()
        check_sendable(work=work)
        self._payload = pickle.dumps(work)
        self._name, self._attempts, self._transport = name, attempts, transport
        self._started = 0
        self._queue: deque[Outcome] = deque()
        self._workers: list[_Process] = []

    def start(self, count: int) -> None:
        with delay_interrupts():
            if sys.platform != 'win32':
                # Otherwise the tracker is started with the first process, and unblocks signals.
                from multiprocessing import resource_tracker

                resource_tracker.ensure_running()
            with block_interrupts():
                for _ in range(count):
                    transport = None if self._transport is None else self._transport()
                    self._workers.append(_Process(f'{self._name}-{self._started}', transport))
                    self._started += 1
        for worker in self._workers[-count:]:
            worker.send(self._payload)

    def submit(self, outcome: Outcome) -> None:
        self._queue.append(outcome)
        self._hand_out()

    def _hand_out(self) -> None:
        while self._queue and self._workers:
            worker = min(self._workers, key=lambda worker: len(worker.outcomes))
            if len(worker.outcomes) >= TASKS_PER_WORKER:
                return
            outcome = self._queue.popleft()
            try:
                data = pickle.dumps(outcome.task)
            except Exception as exc:
                raise TypeError(
                    f'{outcome.task!s:.80}: expected a picklable object, to be sent to other processes: '
                    f'{exc} (threads accept any object: processes=False)'
                ) from exc
            worker.outcomes.append(outcome)
            worker.send(data)

    def receive(self, wait: bool) -> list[Outcome]:
        from multiprocessing.connection import wait as wait_for

        outcomes: list[Outcome] = []
        while True:
            ends: dict[Any, _Process] = {worker.connection: worker for worker in self._workers}
            ends |= {worker.process.sentinel: worker for worker in self._workers}
            ready = wait_for(list(ends), LIVENESS_SECONDS if wait else 0)
            # If nothing arrived, all workers are checked: a child of a dead worker may hold its pipe open.
            workers = dict.fromkeys(ends[end] for end in ready) if ready or not wait else self._workers
            for worker in list(workers):
                is_alive = worker.process.is_alive()
                is_open = worker.receive(outcomes)
                if not (is_alive and is_open):
                    outcomes += self._replace(worker)
            self._hand_out()
            if outcomes or not wait:
                return outcomes

    def _replace(self, worker: _Process) -> list[Outcome]:
        """Replaces a dead worker, and queues its tasks again. Returns the tasks that failed."""
        self._workers.remove(worker)
        how = worker.end()
        if not worker.is_ready:
            raise RuntimeError(
                f'{how} before its first task: a script that starts processes needs '
                f"`if __name__ == '__main__':`, as each process imports the script; or use processes=False"
            )
        self.start(1)
        if not worker.outcomes:
            return []
        self._queue.extendleft(reversed(worker.outcomes))
        current = self._queue[0]  # Workers run their tasks in order.
        current.deaths += 1
        if current.deaths < self._attempts:
            return []
        self._queue.popleft()
        last = f'{current.deaths} workers died of it, the last: ' if current.deaths > 1 else ''
        current.error = WorkerDiedError(f'{current.task!s:.80}', f'{last}{how}')
        return [current]

    def close(self) -> None:
        self._queue.clear()
        with delay_interrupts():
            workers, self._workers = self._workers, []
            for worker in workers:
                worker.process.kill()
            for worker in workers:
                worker.end()


class _Process:
    """One process, the pipe to it, and its tasks."""

    def __init__(self, name: str, transport: Transport | None) -> None:
        from multiprocessing import get_context

        context = get_context('spawn')
        self.outcomes: deque[Outcome] = deque()
        self.is_ready = False
        self._transport = transport
        self.connection, child_connection = context.Pipe()
        # Large arguments are sent later, through this pipe. `start` would wait until the process has read
        # them, and would wait forever if the process dies before.
        self.process = context.Process(
            target=_serve, args=(child_connection, transport), name=name, daemon=True
        )
        try:
            self.process.start()
        except BaseException:
            self.connection.close()
            raise
        finally:
            child_connection.close()

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # The process has died, which `receive` detects.
            self.connection.send_bytes(data)

    def receive(self, outcomes: list[Outcome]) -> bool:
        """Appends the received outcomes to `outcomes`. Returns whether the pipe is still open.

        Raises:
            Exception: The process could not load `work`.
        """
        while True:
            try:
                if not self.connection.poll():
                    return True
                data = self.connection.recv_bytes()
            except (EOFError, OSError):
                return False
            if self.is_ready:
                outcomes.append(self._outcome(data))
            else:
                error = pickle.loads(data)  # noqa: S301 - from our worker process
                if error is not None:
                    raise error
                self.is_ready = True

    def _outcome(self, data: bytes) -> Outcome:
        """Parses the message with the outcome of the oldest task."""
        outcome = self.outcomes.popleft()
        try:
            start = time.perf_counter()
            outcome.result, outcome.error, *seconds = pickle.loads(data)  # noqa: S301 - as above
            outcome.seconds, outcome.sent_seconds, outcome.cpu_seconds = seconds
            if self._transport is not None and outcome.result is not None:
                outcome.result = self._transport.decode(outcome.result)
            outcome.received_seconds = time.perf_counter() - start
        except Exception as exc:
            exc.add_note('while a result was received from a worker process')
            outcome.result, outcome.error = None, exc
        return outcome

    def end(self) -> str:
        """Waits until the process ends, and releases its resources. Returns how it ended, for messages."""
        deadline = time.monotonic() + KILLED_PROCESS_SECONDS
        # Polls, because `join` waits for a pipe that a child of the process may hold open.
        while self.process.exitcode is None and time.monotonic() < deadline:
            self.process.join(0.05)
        code = self.process.exitcode
        how = f'worker process {self.process.name} (pid {self.process.pid}) ended with exit code {code}'
        if code is not None:
            self.process.close()
            with contextlib.suppress(ValueError):
                how += f' ({signal.Signals(-code).name})'
        self.connection.close()
        if self._transport is not None:
            self._transport.close()
        return how


def _serve(connection: Any, transport: Transport | None) -> None:
    """Runs in a worker process: loads `work`, then runs tasks until the parent ends."""
    reset_signals()
    messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    # Receives in a thread: the parent may send the next task while this process sends a result, and neither
    # may block the other.
    threading.Thread(target=_receive, args=(connection, messages.put), daemon=True).start()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # The parent has ended.
        try:
            work = pickle.loads(messages.get())  # noqa: S301 - from our parent
        except BaseException as exc:
            exc.add_note('in a worker process, which must import the functions and classes that it receives')
            connection.send_bytes(pickle.dumps(_sendable(exc)))
            return
        reset_signals()  # Imported modules may have set signal handlers.
        connection.send_bytes(pickle.dumps(None))
        processor_time = ProcessorTime()
        while True:
            connection.send_bytes(_do(work, messages.get(), transport, processor_time))


def _do(
    work: Callable[[Any], Any], data: bytes, transport: Transport | None, processor_time: ProcessorTime
) -> bytes:
    """Runs a task. Returns the message: result, error, and seconds of the task, `encode` and a processor."""
    result, error, seconds = do(lambda data: work(pickle.loads(data)), data)  # noqa: S301 - from our parent
    start = time.perf_counter()
    try:
        if transport is not None and result is not None:
            result = transport.encode(result)
        sent = time.perf_counter() - start
        measured = seconds, sent, processor_time.after(seconds + sent)
        return pickle.dumps((result, None if error is None else _sendable(error), *measured))
    except Exception as exc:
        exc.add_note('in a worker process, while it sent a result')
        return pickle.dumps((None, _sendable(exc), seconds, 0.0, 0.0))


def _receive(connection: Any, put: Callable[[bytes], None]) -> None:
    """Queues messages of the parent. Ends this process, even during a task, when the parent ends."""
    from multiprocessing import parent_process

    parent = parent_process()
    assert parent is not None
    try:
        while True:
            while not connection.poll(PARENT_CHECK_SECONDS):
                # Another child of a killed parent may hold the pipe open, but an orphan gets a new parent.
                if not parent.is_alive() or (sys.platform != 'win32' and os.getppid() != parent.pid):
                    os._exit(1)
            put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(1)


def _sendable(exc: BaseException) -> BaseException:
    """Returns an error that can be pickled and unpickled, with its traceback as a note."""
    trace = ''.join(traceback.format_exception(exc))
    try:
        pickle.loads(pickle.dumps(exc))  # noqa: S301 - made here
    except Exception:
        notes = getattr(exc, '__notes__', [])
        exc = RuntimeError(f'{type(exc).__name__}: {exc}')
        for note in notes:
            exc.add_note(note)
    exc.add_note(f'in a worker process:\n{trace}')
    return exc


def check_sendable(**values: Any) -> None:
    """Checks that values can be sent to worker processes.

    Raises:
        TypeError: A value cannot be sent. The message names it, and says what to do.
    """
    main = sys.modules['__main__']
    # A spawned process imports the main module again, if it is a file.
    main_is_file = getattr(main, '__spec__', None) or os.path.exists(getattr(main, '__file__', None) or '')
    for name, value in values.items():
        try:
            if b'__main__' in pickle.dumps(value) and not main_is_file:
                raise ValueError(
                    'it is defined in a notebook or an interactive session, which a process cannot import'
                )
        except Exception as exc:
            raise TypeError(
                f'{name}: expected a picklable object, to be sent to other processes, got {value!r:.200}: '
                f'{exc} (define functions at the top of a module; threads accept any: processes=False)'
            ) from exc


def check_main() -> None:
    """Checks that processes started now do not run the current script again.

    A spawned process imports the main module, which runs all code outside of `if __name__ == '__main__':`,
    such as the call that starts processes and the code before it.

    Raises:
        RuntimeError: The script would run again. The message names the line of the script.
    """
    from multiprocessing.spawn import get_preparation_data

    main, data = sys.modules['__main__'], get_preparation_data('')
    name = str(data.get('init_main_from_name', '__main__'))
    if 'init_main_from_path' not in data and name.endswith('__main__'):
        return  # The main module is not imported: an interactive session, or `python -m package`.
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and (frame.f_code.co_name != '<module>' or frame.f_globals is not vars(main)):
        frame = frame.f_back
    if frame is None:
        return  # The script has finished, or another program runs it.
    path, line = frame.f_code.co_filename, frame.f_lineno
    try:
        with open(path, 'rb') as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return
    branches = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    conditions = [
        ast.unparse(node.test) for node in branches if node.lineno <= line <= (node.end_lineno or 0)
    ]
    if any(re.search(r'\b(__name__|current_process)\b', condition) for condition in conditions):
        return  # Includes `if current_process().name == 'MainProcess':`.
    raise RuntimeError(
        f"{path}, line {line}: expected `if __name__ == '__main__':` around this, as each worker process "
        f'imports the script, and would run it again (threads do not: processes=False)'
    )
