"""Dimensions with one value in the whole dataset."""

from __future__ import annotations

from bags.checks.column import Field
from bags.checks.definition import Check, FieldScores


def _of_field(field: Field) -> FieldScores:
    extent = field.extent
    if extent.count < 2:
        return FieldScores([])  # type: ignore[arg-type]
    return FieldScores(extent.low == extent.high)


CHECKS = (
    Check(
        name='constant_dimensions',
        severity='info',
        bound=0,
        reason='The standard deviation is 0: normalising divides by it, and gives NaN.',
        bound_source='a fact, not a mistake: an unused joint, or a success that is always true',
        applies=lambda field: field.dtype is not None,
        of_field=_of_field,
        detail='one value in all datapoints; normalise without it',
    ),
)
