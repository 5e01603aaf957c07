"""Many files at once: how many are open, and how reads of several overlap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from bags.bag.threads import in_threads

__all__ = ['Closed', 'Kept', 'descriptors', 'overlapped']

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


class Kept(dict[Key, Value]):
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


class Closed:
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


def overlapped(work: Callable[[Key], Value], things: Sequence[Key], wait: bool) -> list[Value]:
    """Does work on each thing, at the same time where it mostly waits."""
    if not wait or len(things) < 2:
        return list(map(work, things))
    return in_threads(work, things, THREADS)
