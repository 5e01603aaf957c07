"""Identifiers that repeat."""

from __future__ import annotations

import re

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check, Scores
from bags.dataset.reading.key_values import KEY_TYPES
from bags.indexing import Int64s

IDENTIFIER = re.compile(r'(.*[_.-])?(id|key|uuid|uid|guid|name|filename|file_name|path|index)', re.IGNORECASE)
ROWS_AT_ONCE = 1 << 15
MIN_UNIQUE_SHARE = 0.8
"""Share of different values from which a field identifies datapoints, and not e.g. their episode."""


def _firsts(field: Field) -> Int64s:
    """Returns the first datapoint with the key of each, (n,); -1 if there is none before it.

    Where too many repeat, the field is no identifier, and all are -1.
    """
    count = len(field.dataset)
    values = np.arange(-count, 0)  # Of damaged keys: different from each other.
    for start in range(0, count, ROWS_AT_ONCE):
        rows = np.arange(start, min(start + ROWS_AT_ONCE, count))
        column = field.readable(rows)
        keys = column.values
        values[column.rows] = keys if isinstance(keys, np.ndarray) else [hash(key) for key in keys]
    order = np.argsort(values, kind='stable')
    if (values[order[1:]] != values[order[:-1]]).all():
        return np.full(count, -1)
    _, starts, groups = np.unique(values, return_index=True, return_inverse=True)
    firsts = starts[groups]
    firsts[starts] = -1
    if len(starts) < MIN_UNIQUE_SHARE * len(values):
        firsts[:] = -1
    return firsts


def _scores(column: Column) -> Scores:
    firsts = column.field.once(_firsts)[column.rows]
    return Scores(firsts >= 0, None, firsts)


def _applies(field: Field) -> bool:
    is_key = field.type.format in KEY_TYPES and not field.type.sequence
    return is_key and IDENTIFIER.fullmatch(field.name) is not None and 'classes' not in field.facts


CHECKS = (
    Check(
        name='repeated_keys',
        severity='warning',
        bound=0,
        reason='An identifier names two datapoints: joins and look-ups find the wrong one.',
        bound_source=f'{MIN_UNIQUE_SHARE:.0%} of the values or more are different',
        applies=_applies,
        scores=_scores,
        detail='has the identifier of an earlier datapoint',
    ),
)
