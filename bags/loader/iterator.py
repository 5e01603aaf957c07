"""Iterates over the batches of a loader: counts what is delivered, and ends the workers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self

from bags.loader.schedule import Cursor
from bags.loader.state import Progress, State
from bags.workers.signals import delay_interrupts

__all__ = ['LoaderIterator', 'Source', 'Workers']


class Workers(Iterator[Any], Protocol):
    """Make batches, and return them in order."""

    def close(self) -> None: ...


class Source(Protocol):
    """What an iterator needs of its loader."""

    @property
    def to_device(self) -> Callable[[Any], Any] | None: ...

    def start(
        self, begin: Cursor, epochs: int | None, skip: int, stride: int
    ) -> tuple[Workers, Progress]: ...

    def state_at(self, cursor: Cursor) -> State: ...

    def cursor_from(self, state: Any) -> Cursor: ...


class LoaderIterator(Iterator[Any]):
    """Batches of a loader, from a cursor on.

    Its threads or processes end with it: at the end, on `close`, on an error, or when it is garbage. After
    Ctrl-C the next call resumes with the batch that was interrupted.
    """

    _must_start = False  # After an interrupt.
    _workers: Iterator[Any]
    _closer: Callable[[], Any]

    def __init__(self, loader: Source, begin: Cursor, epochs: int | None) -> None:
        self._loader = loader
        self._epochs = epochs
        self._start(begin)

    def _start(self, begin: Cursor, skip: int = 0, stride: int = 1) -> None:
        closer = None
        try:
            with delay_interrupts():
                self._workers, self._progress = self._loader.start(begin, self._epochs, skip, stride)
                # Called at the end of the interpreter too, while what the workers need is still there.
                self._closer = closer = weakref.finalize(self, self._workers.close)
        except BaseException:
            if closer is not None:
                closer()
            raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        delivered = None
        try:
            if self._must_start:
                self._resume()
            delivered = self._progress.delivered
            batch, to_device = next(self._workers), self._loader.to_device
            if to_device is not None:
                batch = to_device(batch)
            self._progress.delivered += 1
            return batch  # noqa: TRY300 - here an interrupt still takes the count back
        except KeyboardInterrupt:
            self.close()
            if delivered is not None:
                self._progress.delivered = delivered
            self._must_start = True
            raise
        except BaseException:
            self.close()
            raise

    def _resume(self) -> None:
        """Starts new workers, at the batch that is due."""
        self._must_start = False
        self._start(self._progress.cursor)

    def close(self) -> None:
        """Ends the workers; there are no more batches."""
        self._must_start = False
        self._closer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def state_dict(self) -> State:
        """Returns the state after the last delivered batch, as `Loader.state_dict`."""
        return self._loader.state_at(self._progress.cursor)

    def load_state_dict(self, state: State) -> None:
        """Resumes from the state of another iterator or loader.

        Raises:
            ValueError: As `Loader.load_state_dict`.
        """
        cursor = self._loader.cursor_from(state)
        self.close()
        self._start(cursor)

    # The names Grain uses.

    def get_state(self) -> State:
        """Returns `state_dict()`."""
        return self.state_dict()

    def set_state(self, state: State) -> None:
        """Calls `load_state_dict(state)`."""
        self.load_state_dict(state)
