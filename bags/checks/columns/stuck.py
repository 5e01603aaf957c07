"""Stuck numbers: a measured quantity keeps exactly one value for a while."""

from __future__ import annotations

from typing import Any

import numpy as np

from bags.checks.column import Column, Field, Numbers
from bags.checks.definition import Check, Scores
from bags.checks.usual import Array, action_of, interval_of, state_of, usual_numbers
from bags.indexing import Int64s

MIN_ITEMS = 8
"""Number of items of a datapoint from which it can be stuck."""


MIN_MOVING_SHARE = 0.5
"""Share of the items in which a partner moves, above which the robot was not at rest."""


def _is_measured(field: Field) -> bool:
    if not field.has_floats or not field.has_items or field.has_times_as_values or len(field.shape) > 1:
        return False
    return bool(field.once(usual_numbers).are_measured.any())


def _longest_runs(column: Column) -> Scores:
    """Returns the number of repeats in the longest run of equal items.

    All measured dimensions together, where the run is neither first nor last; and each dimension that has
    other numbers from item to item elsewhere, because it has noise, by itself.
    """
    numbers, usual = column.numbers, column.field.once(usual_numbers)
    runs, spans = np.zeros(len(column)), np.full((len(column), 2), -1)
    runs[numbers.counts < 2] = np.nan
    if numbers.counts.max(initial=0) < MIN_ITEMS:
        return Scores(runs, spans[:, 0], None, spans)
    # Commands at their limits are equal for a while, and no sensor stopped.
    limits = usual.low, usual.high
    _add_runs(runs, spans, numbers, usual.are_measured, limits, _partner(column))
    for number in np.flatnonzero(usual.have_noise & usual.are_measured).tolist():
        _add_runs(runs, spans, numbers, [number], None)
    return Scores(runs, spans[:, 0], None, spans)


def _add_runs(
    runs: Array,
    spans: Int64s,
    numbers: Numbers,
    chosen: Any,
    limits: tuple[Array, Array] | None,
    partner: Array | None = None,
) -> None:
    """Adds the longest runs of equal numbers in some dimensions: their length, and their first and last item.

    Args:
        runs, spans: The longest runs so far.
        numbers, chosen: The numbers, and the dimensions.
        limits: The lowest and highest usual numbers, (d,): runs at these limits, or first and last ones, do
            not count. None: all runs count.
        partner: The actions of states, or the states of actions, (items, d): where they do not move either,
            the robot was at rest.
    """
    owners, values = numbers.owners, numbers.items[:, chosen]
    starts = np.ones(len(owners), bool)
    starts[1:] = (values[1:] != values[:-1]).any(1) | (owners[1:] != owners[:-1])
    firsts = np.flatnonzero(starts)
    lengths = np.diff(np.append(firsts, len(owners)))
    of_run = owners[firsts]
    repeats = lengths - 1
    if limits is not None:
        is_inside = (firsts > numbers.offsets[:-1][of_run]) & (firsts + lengths < numbers.offsets[1:][of_run])
        low, high = (limit[chosen] for limit in limits)
        is_free = ((values[firsts] > low) & (values[firsts] < high)).any(1)
        repeats = np.where(is_inside & is_free, repeats, 0)
    if partner is not None:
        moves = np.zeros(len(owners), np.int64)
        moves[1:] = (partner[1:] != partner[:-1]).any(1)
        total = np.append(0, np.cumsum(moves))
        is_moved = total[firsts + lengths] - total[firsts] > MIN_MOVING_SHARE * lengths
        repeats = np.where(is_moved, repeats, 0)
    longer = repeats > np.nan_to_num(runs)[of_run]
    np.maximum.at(runs, of_run[longer], repeats[longer])
    are_longest = np.flatnonzero(longer & (repeats == runs[of_run]))[::-1]
    first = numbers.item_of(firsts[are_longest], of_run[are_longest])
    spans[of_run[are_longest]] = np.stack([first, first + lengths[are_longest] - 1], 1)


def _partner(column: Column) -> Array | None:
    """Returns the actions of states, or the states of actions, for each item; None if there are none."""
    other = action_of(column.field) or state_of(column.field)
    if other is None:
        return None
    numbers = column.other(other.name).numbers
    is_same = np.array_equal(numbers.offsets, column.numbers.offsets)
    return numbers.items[:, other.once(usual_numbers).are_measured] if is_same else None


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
