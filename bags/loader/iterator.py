"""Iterates over the batches of a loader: counts delivered batches, resumes, and ends the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self

import numpy as np

from bags.loader.batches import BatchMaker, Made, Skipped
from bags.loader.prefetch import make_ahead, make_inline
from bags.loader.schedule import Progress, Schedule
from bags.loader.state import Cursor, State
from bags.workers.pool import WorkerPool
from bags.workers.signals import delay_interrupts

MALLOC_THRESHOLD = (1 << 25) - (1 << 13)
"""Bytes of the largest allocation that raises the mmap threshold of glibc: 32 MiB with its header."""


class Source(Protocol):
    """The part of the loader that its iterators use."""

    workers: int
    processes: bool
    prefetch: int | None
    to_device: Callable[[Any], Any] | None
    epochs: int | None
    schedule: Schedule
    next_cursor: Cursor
    progress: Progress | None
    unreadable: dict[int, Skipped]
    _retries: int

    def begin(self, cursor: Cursor) -> Cursor: ...

    def batch_maker(self, schedule: Schedule) -> BatchMaker: ...

    def state_at(self, cursor: Cursor) -> State: ...

    def cursor_from(self, state: Any, check_dataset: bool = True) -> Cursor: ...


class LoaderIterator(Iterator[Any]):
    """Batches of one iteration over a loader; with several workers, those of one worker.

    Its threads or processes end at the end of the iteration, on `close`, on an error, or when it is garbage
    collected. The next call starts new ones: after Ctrl-C it resumes with the interrupted batch, and after an
    error with the batch after the failed one.

    Args:
        loader: The loader.
        begin: Where to begin.
        worker, workers: Every `workers`-th batch, from batch `worker` on.
    """

    def __init__(self, loader: Source, begin: Cursor, worker: int = 0, workers: int = 1) -> None:
        self._loader = loader
        self._next_epoch = begin.epoch + 1
        self.progress = Progress(loader.schedule._replace(begin=begin, skip=worker, stride=workers))
        self._failed_steps = 0
        """1 after an error: the next call leaves out the failed step."""
        self._batches: Iterator[Made] | None = None
        """None before the first call, and after an error or an interrupt."""
        self._pool: WorkerPool | None = None
        self._is_closed = False

    def start(self) -> None:
        """Starts to make the batches that are due; else the next call does."""
        loader, progress = self._loader, self.progress
        # Added only now: the state after an error is that before the failed batch.
        progress.delivered += self._failed_steps
        self._failed_steps = 0
        # glibc returns the memory of a freed batch to the system, and gets it back with a page fault every
        # 4 KiB, unless it has seen an allocation of this size freed. An epoch of arrays of 4 KB, in batches
        # of 1 MB, takes 0.73 us an array, and 1.19 without this.
        np.empty(MALLOC_THRESHOLD, np.uint8)
        maker = loader.batch_maker(progress.schedule)
        try:
            if not loader.workers:
                self._batches = make_inline(maker, progress.delivered)
            else:
                with delay_interrupts():
                    self._pool, self._batches = make_ahead(
                        maker, progress.delivered, loader.workers, loader.processes, loader.prefetch
                    )
            loader.progress = progress  # This iterator is the newest.
        except BaseException:
            self._stop()
            raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        before = self.progress.delivered, self._failed_steps
        try:
            if self._is_closed:
                raise StopIteration
            if self._batches is None:
                self.start()
                assert self._batches is not None
            made = next(self._batches)
            if self._loader.processes and self._loader.workers:
                self._loader._retries += made.retries  # Else they are those of this process.
            if made.skipped:
                made = self._without_skipped(made, self._batches)
            batch = made.batch
            if self._loader.to_device is not None:
                try:
                    batch = self._loader.to_device(batch)
                except StopIteration as exc:  # Otherwise it would end the loop silently.
                    raise RuntimeError('to_device raised StopIteration') from exc
            self.progress.delivered += 1
            if made.epoch >= self._next_epoch:
                self._begin_epoch(made.epoch)
            return batch  # noqa: TRY300 - here an interrupt still takes the count back
        except StopIteration:
            progress = self.progress
            progress.is_finished |= progress.delivered == progress.schedule.total
            self.close()
            raise
        except KeyboardInterrupt:
            self._stop()
            self.progress.delivered, self._failed_steps = before
            raise
        except BaseException:
            self._failed_steps = int(self._batches is not None)
            self._stop()
            raise

    def _without_skipped(self, made: Made, batches: Iterator[Made]) -> Made:
        """Returns a batch, or the next one if none of its datapoints can be read; records skipped datapoints.

        Raises:
            ValueError: No datapoint of a whole epoch can be read.
        """
        empty_steps = 0
        while True:
            for each in made.skipped:
                self._loader.unreadable[each.datapoint] = each
            if made.batch is not None:
                return made
            self.progress.delivered += 1
            empty_steps += 1
            if empty_steps >= self.progress.schedule.epoch_steps():
                raise ValueError(
                    f'no datapoint of {empty_steps} batches in a row can be read: {made.skipped[-1]}'
                )
            made = next(batches)

    def _begin_epoch(self, epoch: int) -> None:
        """Makes the next iteration over an endless loader begin after an epoch that this one has begun.

        Not after `set_epoch`, `load_state_dict` or the start of another iteration.
        """
        loader, before = self._loader, self._next_epoch
        self._next_epoch = epoch + 1
        if loader.epochs is None and loader.next_cursor == (before, 0, before):
            loader.next_cursor = Cursor(epoch + 1, 0, epoch + 1)

    def _stop(self) -> None:
        """Ends the workers."""
        self._batches = None
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def close(self) -> None:
        """Ends the workers and the iteration."""
        self._is_closed = True
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def state_dict(self) -> State:
        """Returns the state after the last delivered batch, as `Loader.state_dict`.

        The state of one of several workers also has the number of batches of the loader to skip.
        """
        progress, workers = self.progress, self.progress.schedule.stride
        state = self._loader.state_at(progress.cursor)
        return state if workers == 1 else {**state, 'skip': progress.skip, 'workers': workers}

    def load_state_dict(self, state: State, *, check_dataset: bool = True) -> None:
        """Resumes from the state of another iterator or loader; the next iteration begins after this one.

        Args:
            state, check_dataset: As in `Loader.load_state_dict`.

        Raises:
            ValueError: As `Loader.load_state_dict`; or the state is for another number of workers.
        """
        cursor, own = self._loader.cursor_from(state, check_dataset), self.progress.schedule
        skip, workers = int(state.get('skip', 0)), int(state.get('workers', 1))
        if workers != own.stride:
            raise ValueError(f'state: expected that of {own.stride} workers, got that of {workers}')
        self._stop()
        self._next_epoch = cursor.epoch + 1
        self._loader.begin(cursor)
        self.progress.schedule = own._replace(begin=cursor, skip=skip)
        self.progress.delivered, self.progress.is_finished = 0, False
        self._failed_steps, self._is_closed = 0, False

    # The names Grain uses.
    get_state = state_dict
    set_state = load_state_dict
