"""Arrays of any shape whose dtype or inner shape differs from nearly all others."""

from __future__ import annotations

import collections

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check
from bags.checks.usual import Array
from bags.formats.arrays import array_type


def _kinds(column: Column) -> list[set[tuple[str, tuple[int, ...]]]]:
    """Returns the dtype and the shape without the first dimension, of the arrays of each datapoint."""
    values = column.values
    sequences = values if column.field.type.sequence else ([value] for value in values)
    return [
        {
            (np.asarray(value).dtype.name, np.asarray(value).shape[1:])
            for value in (() if items is None else items)
            if value is not None
        }
        for items in sequences
    ]


def _usual(field: Field) -> tuple[str, tuple[int, ...]] | None:
    counts = collections.Counter(kind for kinds in _kinds(field.sample) for kind in kinds)
    return counts.most_common(1)[0][0] if counts else None


def _scores(column: Column) -> Array:
    usual = column.field.once(_usual)
    return np.array([len(kinds - {usual}) for kinds in _kinds(column)], np.float64)


def _applies(field: Field) -> bool:
    if field.type.format != 'array' or field.dtype is not None or field.is_image:
        return False
    array = array_type(*field.type.args)
    return array is None or -1 in array[1]


CHECKS = (
    Check(
        name='other_shapes',
        severity='warning',
        bound=0,
        reason='Arrays of one field that differ in dtype or inner shape cannot be in one batch.',
        bound_source='in few datapoints a mistake; in many, intended',
        applies=_applies,
        scores=_scores,
        rare=True,
        detail='arrays of another dtype or inner shape than nearly all others',
    ),
)
