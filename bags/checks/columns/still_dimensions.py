"""Dimensions that do not move in a datapoint, although they move in nearly all others."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check
from bags.checks.usual import Array, action_of

MIN_MOVING_SHARE = 0.8
"""Share of the datapoints in which a dimension moves, from which it is a mistake if it does not."""
MIN_ITEMS = 8


def _are_still(column: Column) -> Array:
    """Returns which dimensions are constant in each datapoint of several items, (n, d)."""
    numbers = column.numbers
    are_still = np.zeros((len(column), numbers.items.shape[1]), bool)
    filled = np.flatnonzero(numbers.counts >= MIN_ITEMS)
    if len(filled):
        starts = numbers.offsets[:-1][filled]
        bounds = np.stack([starts, numbers.offsets[1:][filled]], 1).reshape(-1)
        items = np.concatenate([numbers.items, numbers.items[-1:]])  # A bound may be the end.
        low, high = np.minimum.reduceat(items, bounds)[::2], np.maximum.reduceat(items, bounds)[::2]
        are_still[filled] = low == high
    return are_still


def _usually_move(field: Field) -> Array:
    are_long = field.sample.lengths >= MIN_ITEMS
    if not are_long.any():
        return np.zeros(field.sample.numbers.items.shape[1], bool)
    are_moving: Array = ~_are_still(field.sample)[are_long]
    return are_moving.mean(0) >= MIN_MOVING_SHARE  # type: ignore[no-any-return]


def _scores(column: Column) -> Array:
    are_wrong = _are_still(column) & column.field.once(_usually_move)
    action = action_of(column.field)
    if action is not None:  # What is not commanded does not move, and is reported of the action.
        are_wrong &= ~_are_still(column.other(action.name))
    return are_wrong.sum(1)  # type: ignore[no-any-return]


def _applies(field: Field) -> bool:
    is_vector = field.has_floats and field.has_items and len(field.shape) <= 1
    return is_vector and not field.has_times_as_values and bool(field.once(_usually_move).any())


CHECKS = (
    Check(
        name='still_dimensions',
        severity='warning',
        bound=0,
        reason='A joint was off, or a gripper never moved: the episode does not show the task.',
        bound_source=f'the dimension moves in {MIN_MOVING_SHARE:.0%} of the datapoints or more',
        applies=_applies,
        scores=_scores,
        rare=True,
        detail='dimensions that are constant, and move elsewhere',
    ),
)
