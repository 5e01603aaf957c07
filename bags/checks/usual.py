"""What is usual in a field, from a sample: the range of its numbers, its steps, the interval of its clock."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.checks.column import Field

MIN_DISTINCT = 20
"""Number of different values above which a dimension is a measured quantity, and not a state, as of a gripper
that is open or closed."""
ACTIONS = ('action', 'actions')
STATES = ('state', 'qpos', 'joints', 'joint_positions', 'joint_state', 'proprio')
MIN_DISTINCT_SHARE = 0.5
"""Different values, as a share of the items, from which a quantity is not counted in steps."""
MAX_STILL_SHARE = 0.05
"""Share of the steps without a change, up to which a dimension has noise: a few datapoints may be stuck."""
MIN_ITEMS = 32
"""Number of sampled items below which nothing is called usual."""
SAME_INTERVAL = 0.5
"""Maximum difference of two usual intervals of a regular clock, relative to the median."""

Array = npt.NDArray[Any]


class UsualNumbers(NamedTuple):
    """The usual numbers of a field, each (d,)."""

    low: Array
    high: Array
    """The quantiles 0.005 and 0.995; NaN if too few items were sampled."""
    median: Array
    step: Array
    """A large usual step from item to item: the quantile 0.9 of the steps other than 0. NaN without steps."""
    are_measured: npt.NDArray[np.bool_]
    """Whether a dimension has more than `MIN_DISTINCT` different values."""
    have_noise: npt.NDArray[np.bool_]
    """Whether a dimension has another number in nearly every item, because of noise."""

    @property
    def range(self) -> Array:
        """The difference of high and low; NaN where it is 0."""
        spread = self.high - self.low
        return np.where(spread > 0, spread, np.nan)


def usual_numbers(field: Field) -> UsualNumbers:
    """Returns the usual numbers of a field with numbers."""
    numbers = field.sample.numbers
    items = numbers.items.astype(np.float64)
    width = items.shape[1]
    nothing = np.full(width, np.nan)
    if len(items) < MIN_ITEMS:
        return UsualNumbers(nothing, nothing, nothing, nothing, np.zeros(width, bool), np.zeros(width, bool))
    steps, _ = numbers.steps()
    low, high, median, step = (nothing.copy() for _ in range(4))
    are_measured, have_noise = np.zeros(width, bool), np.zeros(width, bool)
    for number in range(width):
        finite = items[np.isfinite(items[:, number]), number]
        if len(finite) < MIN_ITEMS:
            continue
        low[number], median[number], high[number] = np.quantile(finite, [0.005, 0.5, 0.995])
        drawn = finite[:: max(1, len(finite) >> 14)]
        distinct = len(np.unique(drawn))
        are_measured[number] = distinct > MIN_DISTINCT
        # A quantity with few values, as of an encoder, keeps one of them while it moves slowly.
        is_fine = distinct >= MIN_DISTINCT_SHARE * len(drawn)
        is_moving = len(steps) >= MIN_ITEMS and (steps[:, number] == 0).mean() <= MAX_STILL_SHARE
        have_noise[number] = is_fine and is_moving
        moved = np.abs(steps[:, number])
        moved = moved[np.isfinite(moved) & (moved > 0)]
        if len(moved) >= MIN_ITEMS:
            step[number] = np.quantile(moved, 0.9)
    return UsualNumbers(low, high, median, step, are_measured, have_noise)


class UsualClock(NamedTuple):
    """The intervals of a clock."""

    interval: float
    """The median seconds from item to item; NaN if there are too few."""
    is_regular: bool
    """Whether most intervals are about as long as the median one, as of a camera and unlike events."""


def usual_clock(field: Field) -> UsualClock:
    """Returns the usual interval of a field with a `clock`."""
    steps = field.sample.clock.steps()[0][:, 0]
    steps = steps[np.isfinite(steps) & (steps > 0)]
    if len(steps) < 8:
        return UsualClock(float('nan'), False)
    low, median, high = np.quantile(steps, [0.25, 0.5, 0.75])
    return UsualClock(float(median), bool(high - low <= SAME_INTERVAL * median))


def interval_of(field: Field) -> float:
    """Returns the seconds from item to item: of the rate, or of a regular clock; NaN if they are unknown."""
    if field.rate is not None:
        return 1 / field.rate
    if field.times is None:
        return float('nan')
    first = next(other for other in field.fields.values() if other.times == field.times)
    clock = first.once(usual_clock)
    return clock.interval if clock.is_regular else float('nan')


def _is_vector(field: Field) -> bool:
    return field.has_floats and field.has_items and len(field.shape) == 1


def state_of(field: Field) -> Field | None:
    """Returns the field of the states that a field of actions commands; None for other fields."""
    if field.name.rpartition('.')[2] not in ACTIONS or not _is_vector(field):
        return None
    others = field.fields.values()
    return next((o for o in others if o.name.rpartition('.')[2] in STATES and _is_vector(o)), None)


def action_of(field: Field) -> Field | None:
    """Returns the field of actions of the same shape that commands a field of states, if there is one."""
    for other in field.fields.values():
        if other.shape == field.shape and state_of(other) is field:
            return other
    return None
