"""Batches of a loader for workers of other libraries, which take turns: each makes one of so many."""

from __future__ import annotations

import copy
from typing import Any

from bags.loader.iterator import LoaderIterator
from bags.loader.loader import Loader
from bags.loader.schedule import Place

__all__ = ['Turn']


class Turn(LoaderIterator):
    """The batches of one worker: `worker`, `worker + workers`, and so on, of those of a loader.

    Workers that are asked in turn give what the loader by itself does. Nothing is started before the first
    batch is asked for.

    Args:
        loader: Whose batches. If there are several workers, its own are not used: each makes batches itself.
        worker: Which worker this is,
        workers: and of how many.
        epoch: Only this one; unless given, all from where the loader begins.
    """

    def __init__(self, loader: Loader, worker: int = 0, workers: int = 1, epoch: int | None = None) -> None:
        if workers > 1:
            loader = copy.copy(loader)
            loader.workers = 0
        self._loader = loader
        self._each = workers
        self._place = loader.begin if epoch is None else Place(epoch)
        self._epochs = loader.epochs if epoch is None else epoch + 1
        self._skip = worker
        self._is_started = False

    def __next__(self) -> Any:
        if not self._is_started:
            self._go_on()
        batch = super().__next__()
        self._place, self._skip = self._standing.place, self._each - 1
        return batch

    def _go_on(self) -> None:
        self._is_interrupted = False
        self._start(self._place, (self._skip, self._each))
        self._is_started = True

    def state_dict(self) -> dict[str, Any]:
        """Returns where the worker is: the state of the loader, and how many batches are others' turn."""
        return {**self._loader.state_at(self._place), 'skip': self._skip, 'workers': self._each}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where a worker had come to; if there is but one, it may be the state of a loader.

        Raises:
            ValueError: The state of another dataset or run, or of other workers.
        """
        place = self._loader.place_of(state)
        skip, workers = int(state.get('skip', 0)), int(state.get('workers', 1))
        if workers != self._each:
            raise ValueError(f'state: expected that of {self._each} workers, got that of {workers}')
        self.close()
        self._is_started = False
        self._place, self._skip = place, skip

    def close(self) -> None:
        """Ends what makes the batches; there are no more."""
        if self._is_started:
            super().close()
