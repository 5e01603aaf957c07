"""Rates: a clock runs faster or slower than the metadata says, or than in the other datapoints."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check
from bags.checks.usual import Array, usual_clock

MIN_TIMES = 8


def _intervals(column: Column) -> Array:
    """Returns the mean interval of each datapoint without gaps and repeats; NaN with too few times."""
    clock = column.clock
    intervals = np.full(len(column), np.nan)
    for position in np.flatnonzero(clock.counts >= MIN_TIMES).tolist():
        steps = np.diff(clock.items[clock.offsets[position] : clock.offsets[position + 1], 0])
        middle = np.median(steps)
        usual = steps[(steps > 0.3 * middle) & (steps < 1.7 * middle)]
        if len(usual) and middle > 0:
            intervals[position] = usual.mean()
    return intervals


def _stated_rate(field: Field) -> float | None:
    for facts in (field.facts, field.fields[field.clock].facts if field.clock else {}):
        rate = facts.get('rate')
        if isinstance(rate, int | float) and not isinstance(rate, bool) and rate > 0:
            return float(rate)
    return None


def _usual_interval(field: Field) -> float:
    intervals = _intervals(field.sample)
    return float(np.nanmedian(intervals)) if np.isfinite(intervals).any() else float('nan')


def _beside_others(column: Column) -> Array:
    return np.abs(_intervals(column) / column.field.once(_usual_interval) - 1)


def _beside_metadata(column: Column) -> Array:
    return np.abs(_intervals(column) * (_stated_rate(column.field) or np.nan) - 1)


CHECKS = (
    Check(
        name='rate_share',
        severity='warning',
        bound=0.02,
        reason='The clock of a datapoint drifts, or it was recorded at another rate than the others.',
        bound_source='2% of 30 s is 0.6 s; crystals differ by less than 0.01%',
        applies=lambda field: field.clock is not None and field.once(usual_clock).is_regular,
        scores=_beside_others,
        rare=True,
        detail='{value:.1%} from the usual rate',
    ),
    Check(
        name='stated_rate_share',
        severity='warning',
        bound=0.02,
        reason='The metadata has another rate than the times: whoever uses the rate has another clock.',
        bound_source='2% of 30 s is 0.6 s; 29.97 beside 30 is 0.1%',
        applies=lambda field: field.clock is not None and _stated_rate(field) is not None,
        scores=_beside_metadata,
        detail='{value:.1%} from the rate in the metadata',
    ),
)
