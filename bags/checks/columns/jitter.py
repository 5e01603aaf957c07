"""Jitter: the intervals of a clock that is regular elsewhere vary in some datapoints."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check
from bags.checks.usual import Array, usual_clock

MIN_TIMES = 8


def _scores(column: Column) -> Array:
    clock = column.clock
    spreads = np.full(len(column), np.nan)
    for position in np.flatnonzero(clock.counts >= MIN_TIMES).tolist():
        times = clock.items[clock.offsets[position] : clock.offsets[position + 1], 0]
        low, middle, high = np.quantile(np.diff(times), [0.25, 0.5, 0.75])
        spreads[position] = (high - low) / middle if middle > 0 else np.nan
    return spreads


def _applies(field: Field) -> bool:
    return field.clock is not None and field.once(usual_clock).is_regular


CHECKS = (
    Check(
        name='jitter_share',
        severity='warning',
        bound=0.4,
        reason='Items at irregular times, stored as if they were regular, are velocities that never were.',
        bound_source='the interquartile range of the intervals over USB is 0.1 to 0.25 of the interval',
        applies=_applies,
        scores=_scores,
        detail='intervals vary by {value:.0%} of the median one (interquartile range)',
    ),
)
