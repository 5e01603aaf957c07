"""`LoaderPlan`, which a loader shares with its iterators: how to make batches, and which are next."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, MutableSequence
from typing import Any

from bags.concurrency import cached_attribute
from bags.dataset.base import WindowsView
from bags.dataset.reading.fingerprint import fingerprint
from bags.loader.batches import BatchMaker, SkippedDatapoint, request_counts
from bags.loader.rows import RowBatches
from bags.loader.steps import Cursor, Progress, Schedule, State, cursor_from
from bags.loader.timing import Timer
from bags.loader.weights_file import digests_of, initial_of, sampler_of, with_weights
from bags.samplers import Sampler
from bags.validation import item_count


class LoaderPlan:
    """How the batches of a loader are made, and where its next iteration begins.

    The loader and its iterators share it: iterators advance `next_cursor`, and record their progress and the
    datapoints that cannot be read. So do the adapters of PyTorch and Grain.

    Args:
        maker: Makes the batches. Its schedule is the schedule of the loader's rank.
        left_out: Datapoints to leave out, by index.
        workers, processes, prefetch, to_device, timing: As in `Loader`.
    """

    def __init__(
        self,
        maker: BatchMaker,
        left_out: dict[int, SkippedDatapoint],
        workers: int,
        processes: bool,
        prefetch: int | None,
        to_device: Callable[[Any], Any] | None,
        timing: bool,
    ) -> None:
        self.maker = maker
        self.left_out = left_out
        self.workers, self.processes, self.prefetch, self.to_device = workers, processes, prefetch, to_device
        self.timing = timing
        self.timer: Timer | None = None
        """The time of the newest iterator; None before the first one, or if it is not measured."""
        self.unreadable: dict[int, SkippedDatapoint] = dict(left_out)
        """Datapoints to leave out, or that proved unreadable, by index."""
        self.shared_numbers: MutableSequence[int] = [*Cursor(), 0]
        """The numbers of `next_cursor`, and a checksum of the changes of weights, 0 without changes: a list,
        or a tensor in memory that processes share."""
        self.progress: Progress | None = None
        """Progress of the newest iterator; None before the first one, and after the next cursor is set."""
        self.process_retries = -request_counts(maker.dataset).retries
        """Number of requests retried by worker processes, minus the requests retried earlier."""

    def __repr__(self) -> str:
        maker, schedule = self.maker, self.schedule
        return (
            f'bags.Loader({maker.dataset.expression}, {schedule.batch_size}, sampler={maker.sampler!r}, '
            f'seed={maker.seed}, rank={schedule.rank}, world_size={schedule.world_size}, '
            f'last_batch={schedule.last_batch!r})'
        )

    @property
    def schedule(self) -> Schedule:
        """The steps of an iteration on this rank, from the beginning of the run."""
        return self.maker.schedule

    def on_rank(self, maker: BatchMaker) -> LoaderPlan:
        """Returns a plan for another rank, with its own progress; it begins with the same epoch."""
        other = copy.copy(self)
        other.maker, other.unreadable = maker, dict(self.left_out)
        other.shared_numbers = [*map(int, self.shared_numbers)]
        other.progress, other.timer = None, None
        other.process_retries = -request_counts(maker.dataset).retries
        return other

    def without_workers(self) -> LoaderPlan:
        """Returns this plan with `workers=0`; both have the same next epoch."""
        other = copy.copy(self)
        other.workers = 0
        return other

    def batch_maker(self, schedule: Schedule) -> BatchMaker:
        """Returns the maker of the batches of a schedule."""
        maker = copy.copy(self.maker)
        maker.schedule, maker.unreadable = schedule, dict(self.unreadable)
        maker.counts_requests, maker.is_timed = self.processes and self.workers > 0, self.timing
        return maker

    # The begin of iterations.

    @property
    def next_cursor(self) -> Cursor:
        """Where the next iteration begins."""
        return Cursor(*map(int, self.shared_numbers[:-1]))

    @next_cursor.setter
    def next_cursor(self, cursor: Cursor) -> None:
        for position, number in enumerate(cursor):
            self.shared_numbers[position] = number

    def begin(self, cursor: Cursor | None = None) -> Cursor:
        """Returns the cursor at which an iteration begins; the one after it begins with the next epoch."""
        begin, epochs = self.next_cursor if cursor is None else cursor, self.maker.schedule.epochs
        epoch = begin.epoch + 1 if epochs is None else begin.first + epochs
        self.next_cursor = Cursor(epoch, 0, epoch)
        return begin

    # State.

    @property
    def cursor(self) -> Cursor:
        """The position of the newest iterator; without one, of the next iteration."""
        return self.next_cursor if self.progress is None else self.progress.cursor

    def state_at(self, cursor: Cursor) -> State:
        """Returns the state at a cursor."""
        maker, schedule = self.maker, self.schedule
        digests = digests_of(maker.sampler)
        return {
            'seed': maker.seed,
            'epoch': cursor.epoch,
            'consumed': cursor.consumed,
            'first_epoch': cursor.first,
            'batch_size': schedule.batch_size,
            'world_size': schedule.world_size,
            'last_batch': schedule.last_batch,
            'length': schedule.length,
            'sampler': repr(initial_of(maker.sampler)),
            'dataset': self.fingerprint,
            **({'weights': digests} if digests else {}),
        }

    def load_state(self, state: State, check_dataset: bool = True, weights: Any = None) -> Cursor:
        """Returns the cursor of a state, after checking that it belongs to this run; sets its weights."""
        dataset, sampler = self.fingerprint if check_dataset else None, self.maker.sampler
        own = {'seed': self.maker.seed, 'sampler': repr(initial_of(sampler)), 'dataset': dataset}
        advice = whole_fields_advice(self.maker.dataset) if check_dataset else ''
        cursor = cursor_from(state, own, self.schedule.length, self.schedule.epochs, advice)
        self.schedule._replace(begin=cursor).check()
        changed = sampler_of(sampler, state.get('weights'), weights)
        if digests_of(changed) != digests_of(sampler):
            self._use(changed)
        return cursor

    def set_weights(self, weights: Any, position: int | None) -> int:
        """Changes the weights of the sampler; see `Loader.set_weights`."""
        cursor = self.cursor
        first = cursor.epoch * self.schedule.length + cursor.consumed
        position = first if position is None else item_count('position', position, 0)
        if position < first:
            raise ValueError(
                f'position: expected at least {first}, the first one that was not delivered, got {position}'
            )
        self._use(with_weights(self.maker.sampler, position, weights))
        return position

    def _use(self, sampler: Sampler) -> None:
        """Sets the order of the next batches."""
        self.maker = self.maker.with_sampler(sampler)
        self.shared_numbers[-1] = zlib.crc32(digests_of(sampler).encode())

    @property
    def has_current_weights(self) -> bool:
        """Whether the main process has not changed weights since it started this process."""
        return int(self.shared_numbers[-1]) == zlib.crc32(digests_of(self.maker.sampler).encode())

    @cached_attribute
    def fingerprint(self) -> str:
        """The fingerprint of the dataset, or of the dataset that it is a full copy of."""
        dataset = self.maker.dataset
        return fingerprint(dataset.rows if isinstance(dataset, RowBatches) else dataset, of_origin=True)


def whole_fields_advice(dataset: Any) -> str:
    """Returns how to give windows the fields that they had in earlier versions; empty if they have them."""
    if isinstance(dataset, WindowsView):
        whole = tuple(name for name in dataset.datasets[0].schema if name not in dataset.schema)
        return f'; for a state of an earlier version, pass whole={whole} to windows' if whole else ''
    advice = map(whole_fields_advice, getattr(dataset, 'datasets', ()))
    return next(filter(None, advice), '')
