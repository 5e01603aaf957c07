"""Ties: fields with an item for each item of another field, where one has more."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check, Scores

MIN_TIED_SHARE = 0.7
"""Minimum share of the datapoints with equal lengths, from which two fields seem to belong together."""
MIN_LENGTHS = 3
MIN_LENGTH = 8
"""Two fields of equal length belong together only if there are several lengths, or long ones."""


def _are_clips(field: Field) -> bool:
    """Returns whether items are files of video or sound: their elements are known from headers."""
    return field.is_media and not field.is_image


def _is_timed(field: Field) -> bool:
    return field.times is not None and field.has_items and not _are_clips(field)


def _times(column: Column) -> Scores:
    assert column.field.times is not None
    return Scores(np.abs(column.lengths - column.other(column.field.times).lengths))


def _tied_to(field: Field) -> str | None:
    """Returns the first field before this one whose lengths are equal in most datapoints."""
    lengths = field.sample.lengths
    if len(lengths) < MIN_LENGTHS:
        return None
    if len(np.unique(lengths)) < MIN_LENGTHS and lengths.max() < MIN_LENGTH:
        return None
    for other in field.fields.values():
        if other is field:
            return None
        if not other.has_items or field.name == other.times or field.times in (other.name, other.times or ''):
            continue  # Their lengths are compared with the times.
        if not _are_clips(other):
            are_equal = lengths == field.sample.other(other.name).lengths
            if are_equal.mean() >= MIN_TIED_SHARE:
                return other.name
    return None


def _has_tie(field: Field) -> bool:
    return field.has_items and not _are_clips(field) and field.once(_tied_to) is not None


def _others(column: Column) -> Scores:
    name = column.field.once(_tied_to)
    assert name is not None
    return Scores(np.abs(column.lengths - column.other(name).lengths))


CHECKS = (
    Check(
        name='untimed_items',
        severity='error',
        bound=0,
        reason='Each item has a time: with fewer or more times, items are at the times of others.',
        bound_source='the metadata says that the field has the times of the items',
        applies=_is_timed,
        scores=_times,
        detail='items more or fewer than times',
    ),
    Check(
        name='unequal_items',
        severity='error',
        bound=0,
        reason='Two fields have an item for each step, except here: from there on, steps are mixed up.',
        bound_source=f'the lengths are equal in {MIN_TIED_SHARE:.0%} of the datapoints or more',
        applies=_has_tie,
        scores=_others,
        detail='items more or fewer than another field, which has as many elsewhere',
    ),
)
