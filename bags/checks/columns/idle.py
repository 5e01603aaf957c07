"""Idle starts and ends: nothing moves before the task begins, or after it ends."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check
from bags.checks.usual import Array, usual_numbers

STILL = 0.01
"""Change, relative to the range of the inner 99%, below which a dimension is still."""
MIN_ITEMS = 8


def _share(column: Column, is_end: bool) -> Array:
    """Returns the share of the items that are near the first or last one, without a break."""
    numbers, usual = column.numbers, column.field.once(usual_numbers)
    shares = np.full(len(column), np.nan)
    filled = np.flatnonzero(numbers.counts >= MIN_ITEMS)
    if not len(filled):
        return shares
    ends = np.zeros(len(column), np.int64)
    ends[filled] = numbers.offsets[1:][filled] - 1 if is_end else numbers.offsets[:-1][filled]
    owners = numbers.owners
    margin = STILL * np.where(np.isfinite(usual.range), usual.range, np.inf)
    items = numbers.items.astype(np.float64)
    with np.errstate(invalid='ignore'):
        moved = (np.abs(items - items[ends[owners]]) > margin).any(1)
    positions = np.arange(len(owners))
    if is_end:
        last = numbers.reduce(np.maximum, np.where(moved, positions, -1), -1)
        still = numbers.offsets[1:] - 1 - np.maximum(last, numbers.offsets[:-1] - 1)
    else:
        first = numbers.reduce(np.minimum, np.where(moved, positions, len(positions)), 0)
        still = np.minimum(first, numbers.offsets[1:]) - numbers.offsets[:-1]
    shares[filled] = still[filled] / numbers.counts[filled]
    return shares


def _applies(field: Field) -> bool:
    if not field.has_floats or not field.has_items or field.has_times_as_values or len(field.shape) != 1:
        return False
    return bool(field.once(usual_numbers).are_measured.any())


def _check(is_end: bool) -> Check:
    name = 'end' if is_end else 'start'
    return Check(
        name=f'idle_{name}_share',
        severity='info',
        bound=0.2,
        reason='A policy that learns to wait may never begin.' if not is_end else 'It learns to stay.',
        bound_source='a fact, not a mistake: a fifth of the items teaches rest and not the task',
        applies=_applies,
        scores=lambda column: _share(column, is_end),
        detail=f'nothing moves in {{value:.0%}} of the items, at the {name}',
    )


CHECKS = (_check(False), _check(True))
