"""Threads for the length of one call, or little longer: none are left behind, and a fork finds none."""

from __future__ import annotations

import _thread
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

__all__ = [
    'PROCESSORS',
    'ClosedHandle',
    'FifoCache',
    'at_once',
    'dealt',
    'descriptors',
    'in_threads',
    'map_concurrently',
    'split',
]

Thing = TypeVar('Thing')
Result = TypeVar('Result')

PROCESSORS = os.cpu_count() or 1  # Asked for once, which takes 12 us.
KEPT = 0.5  # Seconds that a thread waits for more to do.
GONE = 1e-3  # Seconds in which the system takes down a thread that has nothing more to do.


def in_threads(work: Callable[[Thing], Result], things: Sequence[Thing], most: int) -> list[Result]:
    """Does work on each of several things, in at most as many threads; the first error is raised.

    The first thing is done by the thread that calls, in which memory is often at hand that new threads
    would have to ask the system for.
    """
    count = min(most, len(things))
    if count < 2:
        return list(map(work, things))
    from concurrent.futures import ThreadPoolExecutor  # 5 ms, which those who need none do not wait for.

    with ThreadPoolExecutor(count - 1, 'bags') as threads:
        others = [threads.submit(work, thing) for thing in things[1:]]
        try:
            return [work(things[0]), *(other.result() for other in others)]
        except BaseException:
            # An error, or Ctrl-C: what has not begun need not be waited for.
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def at_once(work: Callable[[Thing], Result], things: Sequence[Thing]) -> list[Result]:
    """Does work on each of several things, at least one, where it takes milliseconds.

    As `in_threads`, but by threads that were kept from the last time, which the module `threading` does not
    know. A call that is interrupted, or fails with the first thing, may end before they do.
    """
    results: list[Any] = [None] * len(things)
    errors: list[BaseException | None] = [None] * len(things)

    def run(place: int) -> None:
        try:
            results[place] = work(things[place])
        except BaseException as exc:
            errors[place] = exc  # Nothing here takes memory, of which there may be none.

    ends = [helped(run, place) for place in range(1, len(things))]
    results[0] = work(things[0])
    for end in ends:
        end.acquire()
    for error in errors:
        if error is not None:
            raise error
    return results


def helped(work: Callable[[Thing], None], thing: Thing) -> _thread.LockType:
    """Has work, which raises nothing, done by a helper; returns a lock that is held until then."""
    end = _thread.allocate_lock()
    end.acquire()
    helper = _taken()
    if helper is None:
        work(thing)
        end.release()
        return end
    try:
        helper.begin(work, thing, end)
    except BaseException:  # Ctrl-C.
        helper.leave(end)
        raise
    return end


def _taken() -> Helper | None:
    """Returns a helper that waits, or a new one; None where there can be none."""
    if sys.is_finalizing():  # No other thread runs any more.
        return None
    try:
        return _idle.pop()
    except IndexError:
        helper = Helper()
    try:
        _thread.start_new_thread(helper.run, ())
    except RuntimeError:  # As many threads as the system allows.
        return None
    return helper


class Helper:
    """A thread that waits for work, and ends when none has come for a while.

    One that waits gets to work in 12 to 25 us. A new one does in 35, but only where the one that starts it
    has run for some time; where that has slept for 2 ms before, in 1,800 (Linux 6.18, which has the new one
    wait for the processor that the other is on).
    """

    def __init__(self) -> None:
        self._job: tuple[Callable[[Any], None] | None, Any, _thread.LockType] | None = None
        self._go = _thread.allocate_lock()
        self._go.acquire()

    def begin(self, work: Callable[[Thing], None] | None, thing: Thing, end: _thread.LockType) -> None:
        """Has it do work, or, without any, end."""
        self._job = work, thing, end
        self._go.release()

    def leave(self, end: _thread.LockType) -> None:
        """Has it end, unless it was given work."""
        if self._go.locked():
            self.begin(None, None, end)

    def run(self) -> None:
        while self._go.acquire(timeout=KEPT) or not self._ends():
            if not self._do():
                return

    def _do(self) -> bool:
        assert self._job is not None
        work, thing, end = self._job
        self._job = None
        if work is not None:
            work(thing)
            _idle.append(self)  # Before the other goes on, which may need it at once.
        end.release()
        return work is not None

    def _ends(self) -> bool:
        try:
            _idle.remove(self)
        except ValueError:  # It is just being given work.
            return not self._go.acquire()
        return True


_idle: deque[Helper] = deque()


def _dismiss() -> None:
    """Ends those that wait, before a fork: Python warns of threads, which a child does not have."""
    if not _idle or sys.is_finalizing():
        return
    while _idle:
        try:
            helper = _idle.pop()
        except IndexError:
            break
        end = _thread.allocate_lock()
        end.acquire()
        helper.begin(None, None, end)
        end.acquire()
    time.sleep(GONE)


if hasattr(os, 'register_at_fork'):
    os.register_at_fork(before=_dismiss, after_in_child=_idle.clear)


def dealt(work: Callable[[slice], list[Result]], count: int, most: int) -> list[Result]:
    """Does work that is dealt out in turns: `work` takes a slice of the things, and returns its results."""
    parts = split(count, most)
    if len(parts) < 2:
        return work(slice(None))
    results: list[Any] = [None] * count
    for part, found in zip(parts, in_threads(work, parts, len(parts)), strict=True):
        results[part] = found
    return results


def split(count: int, parts: int) -> list[slice]:
    """Returns at most `parts` slices that deal out `count` things in turns, none of them empty."""
    parts = min(count, parts)
    return [slice(part, None, parts) for part in range(parts)]


Key = TypeVar('Key')
Value = TypeVar('Value')

THREADS = 32


def descriptors(each: int = 2) -> int:
    """Returns how many bags one reader holds open at most, each with so many descriptors; at least 16.

    Together they take half of the process's limit, and never more than leaves room under Linux's limit of
    65,530 maps.
    """
    try:
        import resource

        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except (ImportError, OSError):
        soft = 1024
    return max(16, min(8192, soft // (2 * each) if soft > 0 else 8192))


class FifoCache(dict[Key, Value]):
    """What was opened last, by key; opened on first use, the oldest forgotten beyond a number.

    First in, first out: a use then costs one dict access and no lock. What is forgotten lives on as
    long as a call still uses it.
    """

    def __init__(self, make: Callable[[Key], Value], most: int) -> None:
        self.make = make
        self.most = max(1, most)

    def __missing__(self, key: Key) -> Value:
        value = self.make(key)
        while len(self) >= self.most:
            try:
                del self[next(iter(self))]
            except (KeyError, RuntimeError, StopIteration):
                pass  # Another thread was quicker. A lock could stay held in a forked child.
        self[key] = value
        return value


class ClosedHandle:
    """Stands where a reader had its files before it was closed, and refuses all that is asked of it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any) -> Any:
        raise ValueError(f'{self._name} is closed')

    def __getitem__(self, key: Any) -> Any:
        return self()

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__'):
            raise AttributeError(name)
        return self()


def map_concurrently(work: Callable[[Key], Value], things: Sequence[Key], wait: bool) -> list[Value]:
    """Does work on each thing, at the same time where it mostly waits."""
    if not wait or len(things) < 2:
        return list(map(work, things))
    return in_threads(work, things, THREADS)
