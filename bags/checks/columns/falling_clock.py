"""Times that fall: an item is earlier than the one before it."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column
from bags.checks.definition import Check, Scores


def _scores(column: Column) -> Scores:
    clock = column.clock
    steps, later = clock.steps()
    are_falling = steps[:, 0] < 0
    owners = clock.owners[later]
    counts = np.bincount(owners[are_falling], minlength=len(column))
    items = np.full(len(column), -1)
    chosen = later[are_falling][::-1]  # The first one of each datapoint is written last.
    items[owners[are_falling][::-1]] = clock.item_of(chosen, owners[are_falling][::-1])
    return Scores(counts, items)


CHECKS = (
    Check(
        name='falling_items',
        severity='error',
        bound=0,
        reason='Items are searched by time, which has to increase: windows and streams refuse such a clock.',
        bound_source='times of a stream increase',
        applies=lambda field: field.clock is not None,
        scores=_scores,
        detail='times that are earlier than the one before',
    ),
)
