"""Records whose header cannot be read."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column
from bags.checks.definition import Check
from bags.checks.media import Array, headers


def _scores(column: Column) -> Array:
    return np.array([sum('unreadable' in facts for facts in of_row) for of_row in column.once(headers)])


CHECKS = (
    Check(
        name='unreadable_headers',
        severity='error',
        level='headers',
        bound=0,
        reason='The file is cut off or damaged: bags verify --decode lists all damage.',
        bound_source='each record of the type has a header',
        applies=lambda field: field.is_media,
        scores=_scores,
        detail='files with a header that cannot be read',
    ),
)
