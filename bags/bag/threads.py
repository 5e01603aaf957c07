"""Threads for the length of one call: none are kept, so none are left behind, and a fork finds none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from bags.bag.ranges import split

__all__ = ['dealt', 'in_threads']

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


def dealt(work: Callable[[slice], list[Result]], count: int, most: int) -> list[Result]:
    """Does work that is dealt out in turns: `work` takes a slice of the things, and returns its results."""
    parts = split(count, most)
    if len(parts) < 2:
        return work(slice(None))
    results: list[Any] = [None] * count
    for part, found in zip(parts, in_threads(work, parts, len(parts)), strict=True):
        results[part] = found
    return results
