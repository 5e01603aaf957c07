"""Threads for the length of one call: none are kept, so none are left behind, and a fork finds none."""

from __future__ import annotations

import _thread
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from bags.bag.ranges import split

__all__ = ['at_once', 'dealt', 'in_threads']

Thing = TypeVar('Thing')
Result = TypeVar('Result')


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
    """Does work on each of several things, at least one, for milliseconds of work that only computes.

    As `in_threads`, but such a thread starts in 40 µs, one of a pool in 100. The module `threading` does not
    know it. A call that is interrupted, or fails with the first thing, may end before its threads do.
    """
    results: list[Any] = [None] * len(things)
    errors: list[BaseException | None] = [None] * len(things)

    def run(place: int, running: _thread.LockType) -> None:
        try:
            results[place] = work(things[place])
        except BaseException as exc:
            errors[place] = exc  # Nothing here takes memory, of which there may be none.
        finally:
            running.release()

    locks = [_thread.allocate_lock() for _ in things[1:]]
    for place, running in enumerate(locks, 1):
        running.acquire()
        try:
            _thread.start_new_thread(run, (place, running))
        except RuntimeError:  # As many threads as the system allows.
            run(place, running)
    results[0] = work(things[0])
    for running in locks:
        running.acquire()
    for error in errors:
        if error is not None:
            raise error
    return results


def dealt(work: Callable[[slice], list[Result]], count: int, most: int) -> list[Result]:
    """Does work that is dealt out in turns: `work` takes a slice of the things, and returns its results."""
    parts = split(count, most)
    if len(parts) < 2:
        return work(slice(None))
    results: list[Any] = [None] * count
    for part, found in zip(parts, in_threads(work, parts, len(parts)), strict=True):
        results[part] = found
    return results
