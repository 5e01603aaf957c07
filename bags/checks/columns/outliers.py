"""Outliers: a number far outside the range of nearly all others."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check, Scores
from bags.checks.usual import usual_numbers


def _applies(field: Field) -> bool:
    if field.dtype is None or field.has_times_as_values:
        return False
    is_sensor = field.has_floats or (field.dtype.kind in 'iu' and bool(field.shape))
    return is_sensor and bool(np.isfinite(field.once(usual_numbers).range).any())


def _scores(column: Column) -> Scores:
    numbers, usual = column.numbers, column.field.once(usual_numbers)
    with np.errstate(invalid='ignore', over='ignore'):
        distance = np.maximum(numbers.items - usual.high, usual.low - numbers.items) / usual.range
    distance = np.where(usual.are_measured & np.isfinite(distance), distance, 0).max(1, initial=0).clip(0)
    worst = numbers.reduce(np.maximum, distance.astype(np.float64), np.nan)
    items = np.full(len(column), -1)
    if column.field.has_items:
        owners = numbers.owners
        are_worst = np.flatnonzero((distance > 0) & (distance == worst[owners]))
        items[owners[are_worst][::-1]] = numbers.item_of(are_worst, owners[are_worst])[::-1]
    return Scores(worst, items)


CHECKS = (
    Check(
        name='outlier_ranges',
        severity='warning',
        bound=5,
        reason='A single number far outside compresses all others to nothing when they are normalised.',
        bound_source='numbers of a log-normal field with a deviation of 1.5 reach 3 ranges of the inner 99%',
        applies=_applies,
        scores=_scores,
        rare=True,
        detail='a number is {value:.3g} times the range of the inner 99% outside of it',
    ),
)
