"""NaN and inf in numbers."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check, Scores


def _scores(column: Column) -> Scores:
    numbers = column.numbers
    counts, items = np.zeros(len(column), np.int64), np.full(len(column), -1)
    finite = np.isfinite(numbers.items)
    if not finite.all():
        wrong = np.flatnonzero(~finite.all(1))
        owners = numbers.owners[wrong]
        np.add.at(counts, owners, (~finite[wrong]).sum(1))
        if column.field.has_items:
            items[owners[::-1]] = numbers.item_of(wrong, owners)[::-1]
    return Scores(counts, items)


def _are_vectors(field: Field) -> bool:
    return field.has_floats and len(field.shape) <= 1 and (field.has_items or bool(field.shape))


CHECKS = (
    Check(
        name='nan_values',
        severity='error',
        bound=0,
        reason='One NaN in a batch makes all weights NaN.',
        bound_source='no training takes NaN or inf',
        applies=_are_vectors,
        scores=_scores,
        detail='numbers that are NaN or inf',
    ),
    Check(
        name='nan_numbers',
        severity='warning',
        bound=0,
        reason='NaN in a number that other datapoints have: a mean over it is NaN.',
        bound_source='no training takes NaN or inf; where many are NaN, it stands for a missing value',
        applies=lambda field: field.has_floats and not field.shape and not field.has_items,
        scores=_scores,
        rare=True,
        detail='is NaN or inf',
        where='{field} is not nan',
    ),
    Check(
        name='nan_pixels',
        severity='info',
        bound=0,
        reason='Depth maps have NaN where there is no echo: a model has to mask them.',
        bound_source='a fact, not a mistake',
        applies=lambda field: field.has_floats and len(field.shape) > 1,
        scores=_scores,
        detail='values of a map that are NaN or inf',
    ),
)
