"""Iterates over the batches of a loader: counts what is delivered, resumes, and ends the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self

from bags.loader.batches import Made, Skipped
from bags.loader.prefetch import Prefetched
from bags.loader.schedule import Progress, Schedule
from bags.loader.state import Cursor, State
from bags.workers.signals import delay_interrupts

__all__ = ['LoaderIterator', 'Source']


class Source(Protocol):
    """The loader, as its iterators see it."""

    to_device: Callable[[Any], Any] | None
    epochs: int | None
    _next_cursor: Cursor
    _unreadable: dict[int, Skipped]

    def _move_past(self, cursor: Cursor) -> None: ...

    def _schedule(self, begin: Cursor, skip: int, stride: int) -> Schedule: ...

    def _start(self, progress: Progress) -> Prefetched: ...

    def _state_at(self, cursor: Cursor) -> State: ...

    def _cursor_from(self, state: Any) -> Cursor: ...


class LoaderIterator(Iterator[Any]):
    """Batches of one iteration over a loader; or, of several workers, those of one.

    Its threads or processes end with it: at the end, on `close`, on an error, or when it is garbage. After
    Ctrl-C the next call resumes with the batch that was interrupted, and after an error with the one behind
    the batch that failed, with new threads or processes.

    Args:
        loader: The loader.
        begin: Where to begin.
        worker, workers: Every `workers`-th batch, from batch `worker` on.
    """

    def __init__(self, loader: Source, begin: Cursor, worker: int = 0, workers: int = 1) -> None:
        self._loader, self._stride = loader, workers
        self._next_epoch = begin.epoch + 1
        self._progress = Progress(loader._schedule(begin, worker, workers))
        self._failed_steps = 0
        """1 after an error: the next call leaves the step out that failed."""
        self._batches: Prefetched | None = None
        """None before the first call, and after an error or an interrupt."""
        self._is_closed = False

    def _start(self) -> None:
        """Starts to make the batches that are due; else the next call does."""
        # Only now: the state after an error is that before the batch that failed.
        self._progress.delivered += self._failed_steps
        self._failed_steps = 0
        try:
            with delay_interrupts():
                self._batches = self._loader._start(self._progress)
        except BaseException:
            self._stop()
            raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        before = self._progress.delivered, self._failed_steps
        try:
            if self._is_closed:
                raise StopIteration
            if self._batches is None:
                self._start()
            epoch, batch, _ = self._next_made()
            to_device = self._loader.to_device
            if to_device is not None:
                try:
                    batch = to_device(batch)
                except StopIteration as exc:  # Raised as it is, it would end the loop without a word.
                    raise RuntimeError('to_device raised StopIteration') from exc
            self._progress.delivered += 1
            if epoch >= self._next_epoch:
                self._begin_epoch(epoch)
            return batch  # noqa: TRY300 - here an interrupt still takes the count back
        except StopIteration:
            self.close()
            raise
        except KeyboardInterrupt:
            self._stop()
            self._progress.delivered, self._failed_steps = before
            raise
        except BaseException:
            self._failed_steps = int(self._batches is not None)
            self._stop()
            raise

    def _next_made(self) -> Made:
        """Returns the next batch, after those steps of which no datapoint can be read.

        Raises:
            ValueError: No datapoint of a whole epoch can be read.
        """
        assert self._batches is not None
        empty_steps = 0
        while True:
            made = next(self._batches)
            for each in made.skipped:
                self._loader._unreadable[each.datapoint] = each
            if made.batch is not None:
                return made
            self._progress.delivered += 1
            empty_steps += 1
            if empty_steps >= self._progress.schedule.epoch_steps:
                raise ValueError(
                    f'no datapoint of {empty_steps} batches in a row can be read: {made.skipped[-1]}'
                )

    def _begin_epoch(self, epoch: int) -> None:
        """Makes the next iteration over an endless loader begin after an epoch that this one has begun.

        Unless it has been told to begin elsewhere, or another iteration has begun.
        """
        loader, before = self._loader, self._next_epoch
        self._next_epoch = epoch + 1
        if loader.epochs is None and loader._next_cursor == (before, 0, before):
            loader._next_cursor = Cursor(epoch + 1, 0, epoch + 1)

    def _stop(self) -> None:
        """Ends the workers."""
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def close(self) -> None:
        """Ends the workers; there are no more batches."""
        self._is_closed = True
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def state_dict(self) -> State:
        """Returns the state after the last delivered batch, as `Loader.state_dict`.

        That of one of several workers also says how many batches of the loader to skip.
        """
        progress = self._progress
        state = self._loader._state_at(progress.cursor)
        return state if self._stride == 1 else {**state, 'skip': progress.skip, 'workers': self._stride}

    def load_state_dict(self, state: State) -> None:
        """Resumes from the state of another iterator or loader; the next iteration begins after this one.

        Raises:
            ValueError: As `Loader.load_state_dict`; or the state of one of another number of workers.
        """
        cursor = self._loader._cursor_from(state)
        skip, workers = int(state.get('skip', 0)), int(state.get('workers', 1))
        if workers != self._stride:
            raise ValueError(f'state: expected that of {self._stride} workers, got that of {workers}')
        self._stop()
        self._next_epoch = cursor.epoch + 1
        self._loader._move_past(cursor)
        self._progress.schedule = self._loader._schedule(cursor, skip, workers)
        self._progress.delivered, self._failed_steps, self._is_closed = 0, 0, False

    # The names Grain uses.

    def get_state(self) -> State:
        """Returns `state_dict()`."""
        return self.state_dict()

    def set_state(self, state: State) -> None:
        """Calls `load_state_dict(state)`."""
        self.load_state_dict(state)
