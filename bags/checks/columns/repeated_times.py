"""Times that repeat: an item has the time of the one before it."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column
from bags.checks.definition import Check, Scores


def _scores(column: Column) -> Scores:
    clock = column.clock
    steps, later = clock.steps()
    are_equal = steps[:, 0] == 0
    owners = clock.owners[later][are_equal]
    items = np.full(len(column), -1)
    items[owners[::-1]] = clock.item_of(later[are_equal][::-1], owners[::-1])
    return Scores(np.bincount(owners, minlength=len(column)), items)


CHECKS = (
    Check(
        name='repeated_time_items',
        severity='warning',
        bound=0,
        reason='An item was recorded twice, or the clock has too few digits; windows refuse equal times.',
        bound_source='times of a stream increase',
        applies=lambda field: field.clock is not None,
        scores=_scores,
        detail='times that are equal to the one before',
    ),
)
