"""Gaps: a regular clock misses many items in a row, or single items again and again."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check, Scores
from bags.checks.usual import usual_clock

MIN_GAP_INTERVALS = 3.5
"""Intervals from which a longer one is a gap: three items in a row are missing."""
GAP_SECONDS = 0.2
DROPPED_INTERVALS = 1.5
"""Intervals from which an item is missing, as in lerobot-doctor and lerobot-lint."""


def _is_regular(field: Field) -> bool:
    return field.clock is not None and field.once(usual_clock).is_regular


def _gaps(column: Column) -> Scores:
    clock, interval = column.clock, column.field.once(usual_clock).interval
    steps, later = clock.steps()
    steps = np.where(steps[:, 0] >= MIN_GAP_INTERVALS * interval, steps[:, 0] - interval, 0)
    owners = clock.owners[later]
    longest = np.where(clock.counts > 1, 0.0, np.nan)
    np.maximum.at(longest, owners, steps)
    items = np.full(len(column), -1)
    are_longest = (steps > 0) & (steps == longest[owners])
    items[owners[are_longest]] = clock.item_of(later[are_longest], owners[are_longest])
    return Scores(longest, items, None, np.stack([np.maximum(items - 1, -1), items], 1))


def _dropped(column: Column) -> Scores:
    clock, interval = column.clock, column.field.once(usual_clock).interval
    steps, later = clock.steps()
    intervals = steps[:, 0] / interval
    # What is too short for a gap of its own is counted here.
    is_short = (intervals < MIN_GAP_INTERVALS) | (steps[:, 0] - interval <= GAP_SECONDS)
    are_dropped = (intervals >= DROPPED_INTERVALS) & is_short
    missing = np.where(are_dropped, np.rint(intervals) - 1, 0).clip(0)
    owners = clock.owners[later]
    total = np.bincount(owners, missing, len(column))
    items = np.full(len(column), -1)
    items[owners[are_dropped][::-1]] = clock.item_of(later[are_dropped], owners[are_dropped])[::-1]
    counts = clock.counts
    return Scores(np.where(counts > 1, total / np.maximum(counts, 1), np.nan), items)


CHECKS = (
    Check(
        name='gap_seconds',
        severity='warning',
        bound=GAP_SECONDS,
        reason='Nothing was recorded for a while: windows across the gap have items that are not neighbours.',
        bound_source='0.2 s is 6 frames at 30 Hz, and half the length of a usual chunk of actions',
        applies=_is_regular,
        scores=_gaps,
        detail='seconds without an item',
    ),
    Check(
        name='dropped_share',
        severity='warning',
        bound=0.03,
        reason='Items are missing again and again: the recorder was too slow for the rate.',
        bound_source='1 of 30 frames: below, cameras without a trigger drop frames, too',
        applies=_is_regular,
        scores=_dropped,
        detail='share of items that are missing, a few at a time',
    ),
)
