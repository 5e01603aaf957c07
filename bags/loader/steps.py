"""Computes the datapoints of each rank at each step, and the state from which a run resumes. No I/O.

With a batch size of 2 and a world size of 3, a step takes 6 positions, and rank 1 takes the middle two:

    positions   0 1 | 2 3 | 4 5    6 7 | 8 9 | …       epoch of 10
    step        0                  1
    rank        0     1     2      0     1     2

After any step, the positions taken so far are the first positions of the epoch, so a run can resume with
another world size or batch size. The last step of an epoch may have too few positions: see `last_batch`.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from bags.dataset.reading.batch import Ragged
from bags.indexing import Int64s
from bags.samplers import Sampler
from bags.samplers.pieces import Pieces

LastBatch = Literal['pad', 'drop', 'partial']
PLAN_STEPS = 64
"""Number of steps whose datapoints are sampled with one call, which takes at least 50 us."""
State = dict[str, Any]
"""The position of a run, as integers and strings."""
MUST_MATCH = {
    'dataset': ('dataset', 'fingerprint of the dataset'),
    'seed': ('run', 'seed'),
    'sampler': ('run', 'sampler'),
}
"""Keys of the state that must be equal for a run to resume, with their names in error messages."""


class Cursor(NamedTuple):
    """A point between two steps of a run."""

    epoch: int = 0
    consumed: int = 0
    """Number of positions of the epoch that all ranks together have taken."""
    first: int = 0
    """The epoch with which the iteration began."""


class Step(NamedTuple):
    """The positions that one rank takes at a step."""

    epoch: int
    start: int
    """The rank's first position."""
    stop: int
    """The end of its positions; positions beyond the epoch's length wrap around to its beginning."""
    after: Cursor
    """The cursor after all ranks have taken this step."""


class Schedule(NamedTuple):
    """The steps of one rank, numbered from a cursor on."""

    length: int
    """Number of positions in an epoch, at least 1."""
    batch_size: int
    """Number of positions of one rank in a step."""
    rank: int
    world_size: int
    last_batch: LastBatch
    """'pad': every rank takes a full batch, wrapping around to the beginning of the epoch; 'drop': the
    positions that do not fill a step are left out; 'partial': the ranks share them, so that some ranks may
    take one position, or one step, less."""
    epochs: int | None
    """Number of epochs from `begin.first` on; None for no end."""
    begin: Cursor = Cursor()
    skip: int = 0
    """Number of steps to leave out at the beginning."""
    stride: int = 1
    """After the skipped steps, take every `stride`-th step, for one of several workers."""

    @property
    def total(self) -> int | None:
        """Number of steps; None if endless."""
        if self.epochs is None:
            return None
        later = self.begin.first + self.epochs - self.begin.epoch - 1
        steps = self.epoch_steps(self.begin.consumed) + later * self.epoch_steps() if later >= 0 else 0
        return max(0, -((self.skip - steps) // self.stride))

    def epoch_steps(self, consumed: int = 0) -> int:
        """Returns the number of steps of this rank in an epoch, after `consumed` positions."""
        whole, rest = divmod(max(0, self.length - consumed), self.batch_size * self.world_size)
        if not rest or self.last_batch == 'drop':
            return whole
        first, stop = self._share(rest)
        return whole + (self.last_batch == 'pad' or first < stop)

    def check(self) -> None:
        """Checks that there are batches, and that all ranks have the same number of batches in each epoch.

        The last epoch is an exception: ranks without a batch in its last step end one batch earlier.

        Raises:
            ValueError: The rank is not below the world size; or there are too few positions for all ranks,
                for a whole batch with `last_batch='drop'`, or for the last step of an epoch with 'partial'.
        """
        if self.rank >= self.world_size:
            raise ValueError(f'rank: expected less than world_size ({self.world_size}), got {self.rank}')
        if not self.length:
            raise ValueError('sampler: expected positions to load, got none')
        if self.length < self.world_size and self.last_batch != 'pad':
            raise ValueError(
                f'world_size: expected at most the {self.length} datapoints there are, got {self.world_size}'
            )
        share = self.length // self.world_size
        if self.batch_size > share and self.last_batch == 'drop':
            ranks = f' for each of {self.world_size} ranks' if self.world_size > 1 else ''
            raise ValueError(
                f'batch_size: expected at most the {share} datapoints there are{ranks}, got {self.batch_size}'
                " (last_batch='partial' gives smaller batches)"
            )
        first, later = self.begin.epoch, self.begin.epoch + 1
        last = None if self.epochs is None else self.begin.first + self.epochs - 1
        for epoch, consumed in ((first, self.begin.consumed), (later, 0)):
            rest = max(0, self.length - consumed) % (self.batch_size * self.world_size)
            if self.last_batch == 'partial' and 0 < rest < self.world_size and (last is None or epoch < last):
                raise ValueError(
                    f"last_batch='partial': expected epochs=1, or a datapoint for each of {self.world_size} "
                    f'ranks in the last step of an epoch, got {rest}: ranks without one would be a step '
                    "ahead from then on ('pad' and 'drop' give all ranks the same steps)"
                )

    def steps(self, numbers: range) -> list[Step]:
        """Returns the steps with these numbers."""
        size, planned = self.batch_size * self.world_size, []
        first_epoch_steps, epoch_steps = self.epoch_steps(self.begin.consumed), self.epoch_steps()
        next_step = size if self.last_batch == 'drop' else 1  # Minimum positions for another step.
        for number in numbers:
            within = self.skip + number * self.stride
            epoch, consumed = self.begin.epoch, self.begin.consumed
            if within >= first_epoch_steps:
                later, within = divmod(within - first_epoch_steps, epoch_steps)
                epoch, consumed = epoch + 1 + later, 0
            start = consumed + within * size
            first, stop = self.rank * self.batch_size, (self.rank + 1) * self.batch_size
            if start + size > self.length and self.last_batch != 'pad':
                first, stop = self._share(self.length - start)
            # The same for all ranks, including ranks without any of the last positions.
            reached = (epoch, start + size) if start + size + next_step <= self.length else (epoch + 1, 0)
            planned.append(Step(epoch, start + first, start + stop, Cursor(*reached, self.begin.first)))
        return planned

    def _share(self, rest: int) -> tuple[int, int]:
        """Returns this rank's part of the last positions of an epoch."""
        return rest * self.rank // self.world_size, rest * (self.rank + 1) // self.world_size


class PlannedStep(NamedTuple):
    """A step with its datapoints."""

    step: Step
    indices: Int64s
    bins: Int64s | None
    """The position of each index within the step, if positions can have several indices; else None."""
    pieces: Pieces | None = None
    """The indices again, with the elements to read of each, if the sampler cuts datapoints; else None."""


def plan_steps(
    sampler: Sampler, schedule: Schedule, start: int, count: int = PLAN_STEPS
) -> list[PlannedStep]:
    """Returns at most `count` steps with their datapoints."""
    total, planned = schedule.total, []
    numbers = range(start, start + count if total is None else min(start + count, total))
    for epoch, group in itertools.groupby(schedule.steps(numbers), operator.attrgetter('epoch')):
        steps = list(group)
        _, starts, stops, _ = zip(*steps, strict=True)
        positions = np.concatenate([*map(np.arange, starts, stops)])
        try:
            taken = sampler.take(epoch, positions % schedule.length)
            if len(taken) != len(positions):
                raise ValueError(
                    f'{sampler!r:.200}: expected a datapoint for each of {len(positions)} positions, '
                    f'got {len(taken)}'
                )
        except Exception as exc:
            exc.add_note('in sampler')
            raise
        taken = taken if isinstance(taken, Ragged) else np.array(taken)
        stop = 0
        for step in steps:
            start, stop = stop, stop + step.stop - step.start
            if isinstance(taken, Ragged):
                rows = taken.offsets[start : stop + 1]
                bins = np.repeat(np.arange(stop - start), rows[1:] - rows[:-1])
                pieces = taken.between(start, stop) if isinstance(taken, Pieces) else None
                planned.append(PlannedStep(step, taken.values[int(rows[0]) : int(rows[-1])], bins, pieces))
            else:
                planned.append(PlannedStep(step, taken[start:stop], None))
    return planned


@dataclasses.dataclass(eq=False)
class Progress:
    """The number of steps of a schedule that an iterator has delivered."""

    schedule: Schedule
    delivered: int = 0
    is_finished: bool = False
    """Whether the iteration has ended after its last step."""

    @property
    def cursor(self) -> Cursor:
        """The position of the run."""
        begin, epochs = self.schedule.begin, self.schedule.epochs
        if self.is_finished and epochs is not None:
            # The same for all ranks, including ranks without any of the last positions.
            return Cursor(begin.first + epochs, 0, begin.first)
        if not self.delivered:
            return begin
        return self.schedule.steps(range(self.delivered - 1, self.delivered))[0].after

    @property
    def skip(self) -> int:
        """Number of steps after the cursor that other workers take before this worker."""
        return self.schedule.stride - 1 if self.delivered else self.schedule.skip


def cursor_from(state: Any, own: State, length: int, epochs: int | None, advice: str = '') -> Cursor:
    """Returns the cursor of a state, after checking that it belongs to this run.

    Args:
        state: The state to check.
        own: The seed, the sampler and the dataset of this run; None as the dataset matches any dataset.
        length: Number of positions in an epoch of this run.
        epochs: Number of epochs in an iteration of this run; None for no end.
        advice: Added to the error for a state of another dataset.

    Raises:
        ValueError: The state belongs to another run, or is not a state.
    """
    required = ('seed', 'epoch', 'consumed', 'sampler', 'dataset')
    if not isinstance(state, Mapping) or not set(required) <= state.keys():
        raise ValueError(f'state: expected a dict of {", ".join(required)}, got {state!r:.200}')
    for key, (whose, what) in MUST_MATCH.items():
        if own[key] is not None and state[key] != own[key]:
            hint = f' (load_state_dict with check_dataset=False resumes anyway{advice})' * (key == 'dataset')
            raise ValueError(
                f'state of another {whose}: expected the {what} {own[key]!r} of this loader, '
                f'got {state[key]!r:.200}{hint}'
            )
    try:
        epoch, consumed = operator.index(state['epoch']), operator.index(state['consumed'])
        first = operator.index(state.get('first_epoch', 0))
    except TypeError:
        raise ValueError(
            f'state: expected integers for epoch, consumed and first_epoch, got {state["epoch"]!r}, '
            f'{state["consumed"]!r} and {state.get("first_epoch", 0)!r}'
        ) from None
    if not 0 <= first <= epoch or not 0 <= consumed <= length:
        raise ValueError(
            f'state: expected an epoch of at least first_epoch and 0, and at most {length} datapoints '
            f'consumed, got {epoch}, {first} and {consumed}'
        )
    # The state of a run with fewer epochs in an iteration begins another iteration.
    is_later = epochs is not None and (epoch, consumed) > (first + epochs, 0)
    return Cursor(epoch, consumed, epoch if is_later else first)
