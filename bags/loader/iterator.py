"""Batches of a loader, one after the other, and where a run of them has come to."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from bags.loader.schedule import Place, Steps, Turns
from bags.loader.signals import held_back

if TYPE_CHECKING:
    from bags.loader.loader import Loader

__all__ = ['LoaderIterator', 'Standing']


class Standing:
    """How far an iterator has come; all that a loader keeps of it."""

    def __init__(self, steps: Steps | Turns) -> None:
        self._steps = steps
        self.number = -1
        """The last step that was delivered."""

    @property
    def place(self) -> Place:
        return self._steps.begin if self.number < 0 else self._steps[self.number].after


class LoaderIterator(Iterator[Any]):
    """Batches, one after the other, from a place on.

    Its threads or processes end with it: at the end, with `close`, on an error, or when nobody has it. After
    Ctrl-C it goes on with the batch that would have been next, if it is asked for it.
    """

    _is_interrupted = False

    def __init__(self, loader: Loader, begin: Place, epochs: int | None) -> None:
        self._loader = loader
        self._epochs = epochs
        self._start(begin)

    def _start(self, begin: Place, turns: tuple[int, int] = (0, 1)) -> None:
        closer = None
        try:
            with held_back():
                self._workers, self._standing = self._loader.start(begin, self._epochs, turns)
                # Also at the end of the interpreter, before what the workers need is gone.
                self._closer = closer = weakref.finalize(self, self._workers.close)
        except BaseException:
            if closer is not None:
                closer()
            raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            made = self._workers.get()
            if made is None:
                if self._is_interrupted:
                    self._go_on()
                    return next(self)
                self.close()
                raise StopIteration
            batch = made.deliver(self._loader.deliver)
            self._standing.number = made.number
        except KeyboardInterrupt:
            self.close()
            self._is_interrupted = True  # Whatever had been made: it is made again.
            raise
        except BaseException:
            self.close()
            raise
        return batch

    def _go_on(self) -> None:
        """Starts anew where this has come to."""
        self._is_interrupted = False
        self._start(self._standing.place)

    def close(self) -> None:
        """Ends the workers; there are no more batches."""
        self._is_interrupted = False
        self._closer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def state_dict(self) -> dict[str, Any]:
        """Returns where this has come to, as `Loader.state_dict`."""
        return self._loader.state_at(self._standing.place)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from where another iterator had come to.

        Raises:
            ValueError: As `Loader.load_state_dict`.
        """
        place = self._loader.place_of(state)
        self.close()
        self._start(place)

    # Names by which Grain has them.

    def get_state(self) -> dict[str, Any]:
        """Returns `state_dict()`."""
        return self.state_dict()

    def set_state(self, state: dict[str, Any]) -> None:
        """Does `load_state_dict(state)`."""
        self.load_state_dict(state)
