"""Missing values of optional fields."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bags.checks.column import Field
from bags.checks.definition import Check, FieldScores


def _present(field: Field) -> npt.NDArray[np.bool_]:
    return field.dataset.are_present(np.arange(len(field.dataset)), field.name)


def _share(field: Field) -> FieldScores:
    return FieldScores(np.array([1 - field.once(_present).mean()]))


def _all(field: Field) -> FieldScores:
    return FieldScores(np.array([not field.once(_present).any()]))


CHECKS = (
    Check(
        name='missing_share',
        severity='info',
        bound=0,
        reason='Datapoints without a value are left out of a batch, or need a mask.',
        bound_source='a fact, not a mistake: the field is optional',
        applies=lambda field: field.type.optional,
        of_field=_share,
        detail='{value:.1%} of the values are missing',
    ),
    Check(
        name='absent_fields',
        severity='warning',
        bound=0,
        reason='No datapoint has a value: the field was not recorded.',
        bound_source='a field is in the spec because someone wants its values',
        applies=lambda field: field.type.optional,
        of_field=_all,
        detail='all values are missing',
    ),
    Check(
        name='missing_values',
        severity='warning',
        bound=0,
        reason='Nearly all datapoints have a value, and this one was lost.',
        bound_source='a few missing values are lost ones, many are intended',
        applies=lambda field: field.type.optional,
        scores=lambda column: ~column.present,
        rare=True,
        detail='is missing',
        where='{field} is not none',
    ),
)
