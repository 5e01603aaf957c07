"""The batches of one of several workers of another library, such as PyTorch's `DataLoader`."""

from __future__ import annotations

from bags.loader.iterator import LoaderIterator
from bags.loader.loader import Loader
from bags.loader.schedule import Cursor
from bags.loader.state import Progress, State

__all__ = ['WorkerShard']


class WorkerShard(LoaderIterator):
    """Every `workers`-th batch of a loader, from batch `worker` on.

    One batch of each worker in turn gives the batches of the loader. Nothing is started before the first
    batch is asked for.

    Args:
        loader: Whose batches. With several workers, each makes its batches in its own thread.
        worker: Which worker this is.
        workers: Number of workers.
        epoch: Only this one; unless given, all from where the loader begins.
    """

    def __init__(self, loader: Loader, worker: int = 0, workers: int = 1, epoch: int | None = None) -> None:
        self._loader: Loader = loader if workers == 1 else loader.without_workers()
        self._epochs = loader.epochs if epoch is None else epoch + 1
        self._count = workers
        self._workers, self._closer = iter(()), _nothing
        self._set(loader.begin if epoch is None else Cursor(epoch), worker)

    def _set(self, cursor: Cursor, skip: int) -> None:
        """Goes to a cursor, from which on so many batches are those of other workers."""
        self._begin = cursor, skip
        self._progress = Progress(self._loader.schedule(cursor, self._epochs, skip, self._count))
        self._must_start = True

    def _place(self) -> tuple[Cursor, int]:
        """Returns the cursor, and how many batches from there on are those of other workers."""
        return (self._progress.cursor, self._count - 1) if self._progress.delivered else self._begin

    def _resume(self) -> None:
        self._begin = cursor, skip = self._place()
        self._must_start = False
        self._start(cursor, skip, self._count)

    def state_dict(self) -> State:
        """Returns the state of the loader after this worker's last batch, and how many batches to skip."""
        cursor, skip = self._place()
        return {**self._loader.state_at(cursor), 'skip': skip, 'workers': self._count}

    def load_state_dict(self, state: State) -> None:
        """Resumes from the state of a worker; with one worker, it may be the state of a loader.

        Raises:
            ValueError: The state of another dataset or run, or of another number of workers.
        """
        cursor = self._loader.cursor_from(state)
        skip, workers = int(state.get('skip', 0)), int(state.get('workers', 1))
        if workers != self._count:
            raise ValueError(f'state: expected that of {self._count} workers, got that of {workers}')
        self.close()
        self._set(cursor, skip)


def _nothing() -> None:
    """Closes workers that were not started."""
