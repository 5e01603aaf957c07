"""A shift of numbers between the first and the last quarter of the dataset."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Field
from bags.checks.definition import Check, FieldScores
from bags.checks.usual import usual_numbers

MIN_DATAPOINTS = 16


def _of_field(field: Field) -> FieldScores:
    numbers, usual = field.sample.numbers, field.once(usual_numbers)
    count = len(field.sample)
    if count < MIN_DATAPOINTS:
        return FieldScores(np.full(numbers.items.shape[1], np.nan))
    quarter = count // 4
    first = numbers.items[: numbers.offsets[quarter]].astype(np.float64)
    last = numbers.items[numbers.offsets[count - quarter] :].astype(np.float64)
    if not len(first) or not len(last):
        return FieldScores(np.full(numbers.items.shape[1], np.nan))
    with np.errstate(invalid='ignore', divide='ignore'):
        spread = np.sqrt((np.nanvar(first, 0) + np.nanvar(last, 0)) / 2)
        shifts = np.abs(np.nanmean(last, 0) - np.nanmean(first, 0)) / spread
    return FieldScores(np.where(usual.are_measured & (spread > 0), shifts, np.nan))


def _applies(field: Field) -> bool:
    is_vector = field.has_floats and (field.has_items or bool(field.shape)) and len(field.shape) <= 1
    return is_vector and not field.has_times_as_values


CHECKS = (
    Check(
        name='shift_deviations',
        severity='warning',
        bound=3,
        reason='A sensor drifted, or the setup changed: a split by time has other data in val than in train.',
        bound_source='3 standard deviations, as in lerobot-doctor',
        applies=_applies,
        of_field=_of_field,
        detail='means of the first and last quarter are {value:.3g} standard deviations apart',
    ),
)
