"""Which datapoints each rank takes at each step. No I/O.

With a batch size of 2 and a world size of 3, a step takes 6 positions, and rank 1 takes the middle two:

    positions   0 1 | 2 3 | 4 5    6 7 | 8 9 | …       epoch of 10
    step        0                  1
    rank        0     1     2      0     1     2

After any step the positions taken so far are the first ones of the epoch, so a run can resume with another
world size or batch size. The last step of an epoch may have too few positions: see `last_batch`.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from typing import Literal, NamedTuple

import numpy as np

from bags.dataset.batch import Ragged
from bags.indexing import Int64s, offsets_of
from bags.loader.state import Cursor
from bags.samplers import Sampler

__all__ = [
    'PLAN_STEPS',
    'LastBatch',
    'Plan',
    'Progress',
    'Schedule',
    'Step',
    'plan_steps',
]

LastBatch = Literal['pad', 'drop', 'partial']
PLAN_STEPS = 64
"""Steps whose datapoints are sampled with one call: it takes 50 us however few they are."""


class Step(NamedTuple):
    """The positions that one rank takes at a step."""

    epoch: int
    start: int
    """The rank's first position."""
    stop: int
    """The end of its positions; beyond the epoch's length they wrap around to its beginning."""
    after: Cursor
    """Where the run is when all ranks have taken this step."""


@dataclasses.dataclass(eq=False)
class Schedule:
    """The steps of one rank, numbered from a cursor on: `schedule[0]` is the first."""

    length: int
    """Positions in an epoch, at least 1."""
    batch_size: int
    """Positions of one rank in a step."""
    rank: int
    world_size: int
    last_batch: LastBatch
    """'pad': every rank takes a full batch, wrapping around to the beginning of the epoch; 'drop': the
    positions that do not fill a step are left out; 'partial': the ranks share them, and some may take one
    position, or one step, less."""
    epochs: int | None
    """Number of epochs from `begin.first` on; None for no end."""
    begin: Cursor
    skip: int = 0
    """Steps to leave out at first,"""
    stride: int = 1
    """then take every `stride`-th step: a schedule of one of several workers."""

    def __post_init__(self) -> None:
        self._step_size = self.batch_size * self.world_size
        self.first_epoch_steps = self._count(self.begin.consumed)
        """Steps of this rank in the rest of the epoch of `begin`,"""
        self.epoch_steps = self._count(0)
        """and in each epoch after it."""
        self.total: int | None = None
        """Number of steps; None if there is no end."""
        if self.epochs is not None:
            later = self.begin.first + self.epochs - self.begin.epoch - 1
            steps = self.first_epoch_steps + later * self.epoch_steps if later >= 0 else 0
            self.total = max(0, -((self.skip - steps) // self.stride))

    def __getitem__(self, number: int) -> Step:
        number = self.skip + number * self.stride
        if number < self.first_epoch_steps:
            epoch, consumed, within, steps = *self.begin[:2], number, self.first_epoch_steps
        else:
            later, within = divmod(number - self.first_epoch_steps, self.epoch_steps)
            epoch, consumed, steps = self.begin.epoch + 1 + later, 0, self.epoch_steps
        start = consumed + within * self._step_size
        place = (epoch, start + self._step_size) if within + 1 < steps else (epoch + 1, 0)
        after = Cursor(*place, self.begin.first)
        if start + self._step_size <= self.length or self.last_batch == 'pad':
            first = start + self.rank * self.batch_size
            return Step(epoch, first, first + self.batch_size, after)
        first, stop = self._share(self.length - start)
        return Step(epoch, start + first, start + stop, after)

    def _count(self, consumed: int) -> int:
        """Returns how many steps this rank takes in the rest of an epoch."""
        whole, rest = divmod(max(0, self.length - consumed), self._step_size)
        if not rest or self.last_batch == 'drop':
            return whole
        first, stop = self._share(rest)
        return whole + (self.last_batch == 'pad' or first < stop)

    def _share(self, rest: int) -> tuple[int, int]:
        """Returns this rank's part of the last positions of an epoch."""
        return rest * self.rank // self.world_size, rest * (self.rank + 1) // self.world_size


class Plan(NamedTuple):
    """The datapoints of consecutive steps."""

    steps: list[Step]
    indices: Int64s
    offsets: list[int]
    """Where the indices of each step begin, and the end of the last."""
    bins: list[Int64s] | None
    """For each step, the position within the step of each index, if a position can have several."""


def plan_steps(sampler: Sampler, schedule: Schedule, start: int, count: int = PLAN_STEPS) -> Plan:
    """Returns the datapoints of at most `count` steps."""
    stop = start + count if schedule.total is None else min(start + count, schedule.total)
    steps = [schedule[number] for number in range(start, stop)]
    sampled, counted = [], []
    for epoch, group in itertools.groupby(steps, operator.attrgetter('epoch')):
        positions = np.concatenate([np.arange(step.start, step.stop) for step in group])
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
        sampled.append(taken.values if isinstance(taken, Ragged) else taken)
        counted += [taken.lengths] if isinstance(taken, Ragged) else []
    indices = np.concatenate(sampled)
    offsets = offsets_of(np.array([step.stop - step.start for step in steps], np.int64))
    if not counted:
        return Plan(steps, indices, offsets.tolist(), None)
    counts = np.concatenate(counted)
    bins = [
        np.repeat(np.arange(stop - start), counts[start:stop])
        for start, stop in itertools.pairwise(offsets.tolist())
    ]
    return Plan(steps, indices, offsets_of(counts)[offsets].tolist(), bins)


@dataclasses.dataclass(eq=False)
class Progress:
    """How many steps of a schedule an iterator has delivered."""

    schedule: Schedule
    delivered: int = 0

    @property
    def cursor(self) -> Cursor:
        """Where the run is."""
        return self.schedule[self.delivered - 1].after if self.delivered else self.schedule.begin

    @property
    def skip(self) -> int:
        """Steps from the cursor on that other workers take first."""
        return self.schedule.stride - 1 if self.delivered else self.schedule.skip
