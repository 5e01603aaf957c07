"""What is behind a lazy value: a file that is opened when it is first needed, for one thread at a time."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Generic, Protocol, TypeVar

from bags.errors import BagsError
from bags.media.source import Source

__all__ = ['Handle', 'as_number', 'as_seconds', 'check_reach']


class Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar('T', bound=Closable)


class Handle(Generic[T]):
    """A source, and what has been made of it. Pickling and forking keep the source alone.

    Args:
        source: What to open.
        make: Makes something of the open file, and closes the file when it is closed itself.
    """

    def __init__(self, source: Source, make: Callable[[BinaryIO], T]) -> None:
        self.source = source
        self._make = make
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._made: T | None = None

    def __getstate__(self) -> tuple[Source, Callable[[BinaryIO], T]]:
        return self.source, self._make

    def __setstate__(self, state: tuple[Source, Callable[[BinaryIO], T]]) -> None:
        self.source, self._make = state
        self._start()

    def __del__(self) -> None:
        made = getattr(self, '_made', None)
        if made is not None:
            made.close()

    @property
    def opened(self) -> T | None:
        """What was made of the file, if it has been needed."""
        return self._made

    @contextmanager
    def use(self) -> Iterator[T]:
        """Gives what was made of the file to one thread at a time.

        Raises:
            DecodeError: It cannot be made, or something goes wrong with the content while it is used
                (`ValueError` if the source belongs to no dataset).
        """
        if self._process != os.getpid():
            self._start()  # After a fork: positions of files are the parent's, and threads are gone.
        with self._lock, self.errors():
            if self._made is None:
                file = self.source.open()
                try:
                    self._made = self._make(file)
                except BaseException:
                    file.close()
                    raise
            yield self._made

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Makes what goes wrong with the content an error that says where that is."""
        try:
            yield
        except BagsError:
            raise
        except Exception as exc:
            if type(exc) in (ValueError, MemoryError) or _is_av(exc):
                raise self.source.error(exc) from exc
            raise


def _is_av(exc: Any) -> bool:
    return type(exc).__module__.partition('.')[0] == 'av'


def as_number(key: Any, expected: str) -> int:
    """Returns which frame or sample is asked for, as an int; what else could have been is in `expected`."""
    try:
        return operator.index(key)
    except TypeError:
        raise TypeError(f'expected {expected}, got {type(key).__name__}') from None


def as_seconds(value: Any) -> float:
    """Returns a time as a float."""
    try:
        return value + 0.0  # type: ignore[no-any-return]
    except TypeError:
        raise TypeError(f'expected a time in seconds, got {value!r}') from None


def check_reach(key: slice, count: int, cut: str | None, what: str) -> None:
    """Refuses a slice that reaches what is missing at the end of a file.

    Args:
        key: The slice.
        count: How much is there.
        cut: What is missing; None if nothing is.
        what: What there is `count` of.

    Raises:
        ValueError: It does.
    """
    if cut:
        begin, end = (key.start, key.stop) if (key.step or 1) > 0 else (key.stop, key.start)
        if end is None or end > count or end < 0 or (begin or 0) < 0:
            raise ValueError(f'{cut}; the first {count} {what} are there')
