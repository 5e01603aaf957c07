"""Iterates over the batches of a loader: counts what is delivered, resumes, and ends the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self

from bags.loader.batches import Skipped
from bags.loader.prefetch import Prefetched
from bags.loader.schedule import Cursor, Progress, Schedule, State
from bags.workers.signals import delay_interrupts

__all__ = ['LoaderIterator', 'Source']


class Source(Protocol):
    """What an iterator needs of its loader."""

    to_device: Callable[[Any], Any] | None
    epochs: int | None
    next_cursor: Cursor
    unreadable: dict[int, Skipped]

    def move_past(self, cursor: Cursor) -> None: ...

    def schedule(self, begin: Cursor, skip: int, stride: int) -> Schedule: ...

    def start(self, progress: Progress) -> Prefetched: ...

    def state_at(self, cursor: Cursor) -> State: ...

    def cursor_from(self, state: Any) -> Cursor: ...


class LoaderIterator(Iterator[Any]):
    """Batches of one iteration over a loader; or, of several workers, those of one.

    Its threads or processes end with it: at the end, on `close`, on an error, or when it is garbage. After
    Ctrl-C the next call resumes with the batch that was interrupted, and after an error with the one behind
    the batch that failed, with new threads or processes.

    Args:
        loader: Whose batches.
        begin: Where to begin.
        worker, workers: Every `workers`-th batch, from batch `worker` on.
    """

    def __init__(self, loader: Source, begin: Cursor, worker: int = 0, workers: int = 1) -> None:
        self._loader, self._stride = loader, workers
        self._next_epoch = begin.epoch + 1
        self._batches: Prefetched | None = None
        self._seek(begin, worker)

    def _seek(self, cursor: Cursor, skip: int) -> None:
        """Goes to a cursor, from which on so many batches are those of other workers."""
        self._progress = Progress(self._loader.schedule(cursor, skip, self._stride))
        self._must_start, self._has_failed, self._empty = True, False, 0

    def _place(self) -> tuple[Cursor, int]:
        """Returns the cursor, and how many batches from there on are those of other workers."""
        progress = self._progress
        return progress.cursor, self._stride - 1 if progress.delivered else progress.schedule.skip

    def start(self) -> None:
        """Starts to make the batches that are due; else the first `next` does."""
        if self._progress.delivered:
            self._seek(*self._place())
        self._must_start = False
        try:
            with delay_interrupts():
                self._batches = self._loader.start(self._progress)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        delivered = None
        try:
            if self._has_failed:  # Only now: the state after an error is that before the batch that failed.
                self._progress.delivered += 1
                self._seek(*self._place())
            if self._must_start:
                self.start()
            delivered = self._progress.delivered
            if self._batches is None:
                raise StopIteration
            batch = self._next_made(self._batches)
            to_device = self._loader.to_device
            if to_device is not None:
                try:
                    batch = to_device(batch)
                except StopIteration as exc:  # Raised as it is, it would end the loop without a word.
                    raise RuntimeError('to_device raised StopIteration') from exc
            self._progress.delivered += 1
            if self._loader.epochs is None:
                self._move_loader_on()
            return batch  # noqa: TRY300 - here an interrupt still takes the count back
        except KeyboardInterrupt:
            self.close()
            if delivered is not None:
                self._progress.delivered = delivered
            self._must_start = True
            raise
        except BaseException as exc:
            self.close()
            self._has_failed = delivered is not None and not isinstance(exc, StopIteration)
            raise

    def _next_made(self, batches: Prefetched) -> Any:
        """Returns the next batch, after those steps of which no datapoint can be read.

        Raises:
            ValueError: No datapoint of a whole epoch can be read.
        """
        while True:
            made = next(batches)
            for each in made.skipped:
                self._loader.unreadable[each.datapoint] = each
            if made.batch is not None:
                self._empty = 0
                return made.batch
            self._progress.delivered += 1
            self._empty += 1
            if self._empty >= self._progress.schedule.epoch_steps:
                raise ValueError(
                    f'no datapoint of {self._empty} batches in a row can be read: {made.skipped[-1]}'
                )

    def _move_loader_on(self) -> None:
        """Makes the next iteration over an endless loader begin after the epochs that this one has begun.

        Unless it has been told to begin elsewhere, or another iteration has begun.
        """
        next_epoch = self._progress.schedule[self._progress.delivered - 1].epoch + 1
        if next_epoch > self._next_epoch:
            if self._loader.next_cursor == (self._next_epoch, 0, self._next_epoch):
                self._loader.next_cursor = Cursor(next_epoch, 0, next_epoch)
            self._next_epoch = next_epoch

    def close(self) -> None:
        """Ends the workers; there are no more batches."""
        self._must_start = self._has_failed = False
        if self._batches is not None:
            self._batches.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def state_dict(self) -> State:
        """Returns the state after the last delivered batch, as `Loader.state_dict`.

        That of one of several workers also says how many batches of the loader to skip.
        """
        cursor, skip = self._place()
        state = self._loader.state_at(cursor)
        return state if self._stride == 1 else {**state, 'skip': skip, 'workers': self._stride}

    def load_state_dict(self, state: State) -> None:
        """Resumes from the state of another iterator or loader; the next iteration begins after this one.

        Raises:
            ValueError: As `Loader.load_state_dict`; or the state of one of another number of workers.
        """
        cursor = self._loader.cursor_from(state)
        skip, workers = int(state.get('skip', 0)), int(state.get('workers', 1))
        if workers != self._stride:
            raise ValueError(f'state: expected that of {self._stride} workers, got that of {workers}')
        self.close()
        self._next_epoch = cursor.epoch + 1
        self._loader.move_past(cursor)
        self._seek(cursor, skip)
        if self._batches is not None:
            self.start()

    # The names Grain uses.

    def get_state(self) -> State:
        """Returns `state_dict()`."""
        return self.state_dict()

    def set_state(self, state: State) -> None:
        """Calls `load_state_dict(state)`."""
        self.load_state_dict(state)
