"""Threads that live for one call; caches and handles that can be shared by threads."""

from __future__ import annotations

import itertools
import operator
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Self, TypeVar

Item = TypeVar('Item')
Result = TypeVar('Result')
Key = TypeVar('Key')
Value = TypeVar('Value')

CPU_COUNT = os.cpu_count() or 1  # Read once: a call takes 12 us.
MAX_WAITING_THREADS = 32  # Maximum number of threads for items that mostly wait for a network.
MAX_THREADS = 64  # Number of such threads of all calls above which a call starts at most `MIN_THREADS`.
MIN_THREADS = 3
MAX_OPEN_BAGS = 8192
"""Maximum number of bags that a reader keeps open. Their descriptors are limited for the whole process, in
`storage.descriptors`, and so are their memory maps."""


def map_concurrently(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    concurrent: bool = True,
    max_threads: int = MAX_WAITING_THREADS,
) -> list[Result]:
    """Returns the results of `work` for all items, in order; in threads if `concurrent`, else one at a time.

    The calling thread is one of at most `max_threads` threads, and processes the first item. Each thread then
    takes the next pending item. If no threads can be started (the system limit is reached, or the interpreter
    is shutting down), the calling thread processes all items.

    Raises:
        BaseException: The error of the first item that failed, after all threads have ended. Pending items
            are not started.
    """
    if not concurrent or min(max_threads, len(items)) < 2 or sys.is_finalizing():
        return [work(item) for item in items]
    results: list[Any] = [None] * len(items)
    errors: dict[int, BaseException] = {}  # By index of the item.
    # Each thread takes items until it takes a None.
    pending: deque[int | None] = deque([*range(1, len(items)), *[None] * max_threads])

    def run(index: int | None) -> None:
        try:
            while index is not None:
                results[index] = work(items[index])
                index = None if errors else pending.popleft()
        except BaseException as exc:
            errors[index or 0] = exc

    threads: list[threading.Thread] = []
    # 16 workers with 32 threads each take a third more CPU time for a batch than with 4 threads each.
    names = [*map(operator.attrgetter('name'), threading.enumerate())]
    if names.count('bags') >= max(MAX_THREADS, max_threads):
        max_threads = min(max_threads, MIN_THREADS + 1)
    try:
        # If items are quick, the first threads take the last items before all threads are started.
        while pending[0] is not None and len(threads) < max_threads - 1:
            index = pending.popleft()
            thread = threading.Thread(target=run, args=(index,), name='bags')
            try:
                thread.start()
            except RuntimeError:
                pending.appendleft(index)
                break
            threads.append(thread)
        run(0)
        for thread in threads:
            thread.join()
    except BaseException as exc:  # Ctrl-C while threads are started or joined.
        errors[-1] = exc
        raise
    if errors:
        raise errors[min(errors)]
    return results


class FifoCache(dict[Key, Value]):
    """A cache that creates missing values, and drops the oldest above a maximum (first in, first out).

    A hit costs one dict access, and no lock. A cache of thousands of values drops several at a time. A
    dropped value stays alive while a caller uses it.

    Args:
        make: Function that returns the value of a key.
        max_items: Maximum number of values; at least 1.
    """

    def __init__(self, make: Callable[[Key], Value], max_items: int) -> None:
        self.make = make
        self.max_items = max(1, max_items)

    def __missing__(self, key: Key) -> Value:
        value = self.make(key)
        while len(self) >= self.max_items:
            try:
                # A large cache drops several: to find its first key, a dict skips all deleted entries.
                for oldest in [*itertools.islice(self, 1 + self.max_items // 1024)]:
                    del self[oldest]
            except (KeyError, RuntimeError):
                pass  # Another thread dropped values. (A lock could stay locked in a forked child.)
        self[key] = value
        return value


class Shareable:
    """Base of objects that several threads may copy or pickle: creates `__dict__` with the object.

    Otherwise the first `vars`, `copy` or `pickle` creates it. If the garbage collector runs at that time, and
    another thread does the same, CPython 3.11 creates two, and one of them later uses freed memory.
    """

    def __new__(cls, *_: Any, **__: Any) -> Self:
        self = super().__new__(cls)
        vars(self)
        return self


class cached_attribute(Generic[Value]):  # noqa: N801 - used as a decorator
    """A method that is called once for each object, and whose result becomes an attribute of the object.

    Like `functools.cached_property`, but without its lock for each class (before Python 3.12): a child that
    is forked while another thread holds the lock would wait forever.
    """

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __get__(self, instance: Any, owner: type) -> Value:
        if instance is None:  # The attribute of the class is accessed, e.g. by `abc` and `help`.
            return self  # type: ignore[return-value]
        value: Value = self._make(instance)
        # Without `__set__`, the attribute takes precedence next time. `vars` is avoided: see `Shareable`.
        object.__setattr__(instance, self._make.__name__, value)
        return value


class ClosedHandle:
    """Replaces the files of a closed reader. Any use raises ValueError."""

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
