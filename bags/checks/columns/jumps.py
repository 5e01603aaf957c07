"""Jumps: a measured quantity changes from one item to the next by much more than it usually does."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check, Scores
from bags.checks.usual import usual_numbers

MIN_RANGE_SHARE = 0.1
"""Share of the range of the inner 99% above which a step can be a jump."""


def _applies(field: Field) -> bool:
    if field.dtype is None or not field.has_items or field.has_times_as_values:
        return False
    is_sensor = field.has_floats or (field.dtype.kind in 'iu' and bool(field.shape))
    return is_sensor and len(field.shape) <= 1 and bool(np.isfinite(field.once(usual_numbers).step).any())


def _scores(column: Column) -> Scores:
    numbers, usual = column.numbers, column.field.once(usual_numbers)
    steps, later = numbers.steps()
    with np.errstate(invalid='ignore'):
        sizes = np.abs(steps)
        are_large = (sizes > MIN_RANGE_SHARE * usual.range) & usual.are_measured & np.isfinite(sizes)
        factors = np.where(are_large, sizes / usual.step, 0).max(1, initial=0)
    owners = numbers.owners[later]
    worst = np.where(numbers.counts > 1, 0.0, np.nan)
    np.maximum.at(worst, owners, factors)
    items = np.full(len(column), -1)
    are_worst = (factors > 0) & (factors == worst[owners])
    items[owners[are_worst][::-1]] = numbers.item_of(later[are_worst], owners[are_worst])[::-1]
    return Scores(worst, items)


CHECKS = (
    Check(
        name='jump_steps',
        severity='warning',
        bound=10,
        reason='An encoder wrapped, or items were lost: no joint moves that fast.',
        bound_source='smooth motion and noise stay within 3 times the quantile 0.9 of their steps',
        applies=_applies,
        scores=_scores,
        rare=True,
        detail='a step of {value:.3g} times a large usual one',
    ),
)
