"""Saturation: a measured quantity is exactly at its lowest or highest value too often."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Field
from bags.checks.definition import Check, FieldScores
from bags.checks.usual import usual_numbers

MAX_OTHER_SHARE = 0.02
"""Maximum share of values at the other end: a gripper, or a command within limits, is often at both."""
EDGE = 0.01
"""Part of the range, beside the extreme value, in which a quantity that is not clipped has values, too."""


def _shares(field: Field) -> FieldScores:
    numbers, usual = field.sample.numbers, field.once(usual_numbers)
    extent, items = field.extent, numbers.items.astype(np.float64)
    moving = np.ones(len(items), bool)
    if len(items) > 1:  # At rest, a quantity keeps a value that may be an extreme one.
        moving[1:] = (items[1:] != items[:-1]).any(1)
    shares = np.full(items.shape[1], np.nan)
    for number in np.flatnonzero(usual.are_measured).tolist():
        values = items[moving & np.isfinite(items[:, number]), number]
        low, high = extent.low[number], extent.high[number]
        if len(values) < 100 or not low < high:
            continue
        ends = [float((values == low).mean()), float((values == high).mean())]
        margin = EDGE * (high - low)
        near = [
            float(((values > low) & (values < low + margin)).mean()),
            float(((values < high) & (values > high - margin)).mean()),
        ]
        worst = int(ends[1] > ends[0])
        # Sparse quantities, as of a touch sensor, are at rest at 0 and leave it slowly or at once.
        is_rest = (low, high)[worst] == 0
        is_clipped = ends[1 - worst] <= MAX_OTHER_SHARE and ends[worst] > 4 * near[worst] and not is_rest
        shares[number] = ends[worst] if is_clipped else 0
    return FieldScores(shares)


def _applies(field: Field) -> bool:
    if field.dtype is None or field.dtype.kind not in 'iuf' or not field.has_items:
        return False
    return len(field.shape) <= 1 and bool(field.shape or field.has_floats) and not field.has_times_as_values


CHECKS = (
    Check(
        name='saturated_share',
        severity='warning',
        bound=0.1,
        reason='A sensor or a command is at its limit: the true value is beyond it, and unknown.',
        bound_source='a quantity with 20 values or more is at one exact extreme in less than 1 of 20 items',
        applies=_applies,
        of_field=_shares,
        detail='{value:.0%} of the items are exactly at the lowest or highest value',
    ),
)
