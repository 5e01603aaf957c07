"""Frozen numbers: a measured quantity keeps exactly one value for a while, between others."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check, Scores
from bags.checks.usual import interval_of, usual_numbers


def _is_measured(field: Field) -> bool:
    if not field.has_floats or not field.has_items or field.has_times_as_values or len(field.shape) > 1:
        return False
    return bool(field.once(usual_numbers).are_measured.any())


def _longest_runs(column: Column) -> Scores:
    """Returns the number of repeats of the longest run of equal items that is neither first nor last."""
    numbers, usual = column.numbers, column.field.once(usual_numbers)
    runs, items = np.zeros(len(column)), np.full(len(column), -1)
    runs[numbers.counts < 2] = np.nan
    if len(numbers.items) < 2:
        return Scores(runs, items)
    owners = numbers.owners
    measured = numbers.items[:, usual.are_measured]
    starts = np.ones(len(owners), bool)
    starts[1:] = (measured[1:] != measured[:-1]).any(1) | (owners[1:] != owners[:-1])
    firsts = np.flatnonzero(starts)
    lengths = np.diff(np.append(firsts, len(owners)))
    of_run = owners[firsts]
    are_inside = (firsts > numbers.offsets[:-1][of_run]) & (firsts + lengths < numbers.offsets[1:][of_run])
    # Commands at their limits are equal for a while, and no sensor stopped.
    low, high = usual.low[usual.are_measured], usual.high[usual.are_measured]
    are_free = ((measured[firsts] > low) & (measured[firsts] < high)).any(1)
    repeats = np.where(are_inside & are_free, lengths - 1, 0)
    np.maximum.at(runs, of_run, repeats)
    are_longest = (repeats > 0) & (repeats == runs[of_run])
    items[of_run[are_longest]] = numbers.item_of(firsts[are_longest], of_run[are_longest])
    return Scores(runs, items)


def _seconds(column: Column) -> Scores:
    runs = _longest_runs(column)
    return runs._replace(values=runs.values * interval_of(column.field))


REASON = 'A sensor or its driver stopped, and the recorder stored the last value again.'

CHECKS = (
    Check(
        name='stuck_seconds',
        severity='warning',
        bound=0.5,
        reason=REASON,
        bound_source='15 frames at 30 Hz, as in lerobot-lint; rest at the start or end is idle',
        applies=lambda field: _is_measured(field) and bool(np.isfinite(interval_of(field))),
        scores=_seconds,
        rare=True,
        detail='seconds of exactly the same numbers',
    ),
    Check(
        name='stuck_items',
        severity='warning',
        bound=15,
        reason=REASON,
        bound_source='half a second at 30 Hz; for fields without a rate or times',
        applies=lambda field: _is_measured(field) and not np.isfinite(interval_of(field)),
        scores=_longest_runs,
        rare=True,
        detail='items with exactly the same numbers as the one before',
    ),
)
