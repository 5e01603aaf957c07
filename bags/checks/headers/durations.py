"""Durations of sound and video: far from the others, unlike another stream, or beside another rate."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.columns.lengths import deviations
from bags.checks.columns.ties import MIN_TIED_SHARE
from bags.checks.definition import Check, Scores
from bags.checks.media import Array, headers
from bags.streams.field import StreamField


def _durations(column: Column) -> Array:
    return StreamField(column.field.dataset, column.field.name).durations(column.rows)


def _frames(column: Column) -> Array:
    return StreamField(column.field.dataset, column.field.name).counts(column.rows)


def _is_stream(field: Field) -> bool:
    return field.is_sound or field.is_video


def _other_media(field: Field) -> Field | None:
    """Returns the first field of sound or video before this one."""
    for other in field.fields.values():
        if other is field:
            return None
        if _is_stream(other):
            return other
    return None


def _usual_difference(field: Field) -> float:
    other = _other_media(field)
    assert other is not None
    differences = _durations(field.sample) - _durations(field.sample.other(other.name))
    return float(np.nanmedian(differences)) if np.isfinite(differences).any() else float('nan')


def _differences(column: Column) -> Array:
    other = _other_media(column.field)
    assert other is not None
    differences = _durations(column) - _durations(column.other(other.name))
    return np.abs(differences - column.field.once(_usual_difference))


def _tied_to(field: Field) -> str | None:
    """Returns the field of items whose number is the number of frames in most datapoints."""
    frames = _frames(field.sample)
    if len(frames) < 3 or frames.max(initial=0) < 8:
        return None
    for other in field.fields.values():
        if other is field or not other.has_items or (other.is_media and not other.is_image):
            continue
        if (frames == field.sample.other(other.name).lengths).mean() >= MIN_TIED_SHARE:
            return other.name
    return None


def _unequal(column: Column) -> Scores:
    name = column.field.once(_tied_to)
    assert name is not None
    return Scores(np.abs(_frames(column) - column.other(name).lengths))


def _rates(column: Column) -> Array:
    """Returns how far the frame rate in the headers is from the rate in the metadata."""
    rate = column.field.rate
    assert rate is not None
    return np.array(
        [
            max((abs(facts['fps'] / rate - 1) for facts in of_row if facts.get('fps')), default=np.nan)
            for of_row in column.once(headers)
        ],
        np.float64,
    )


CHECKS = (
    Check(
        name='unequal_frames',
        severity='error',
        level='headers',
        bound=0,
        reason='A video has a frame for each item of another field, except here: states and frames part.',
        bound_source=f'the numbers are equal in {MIN_TIED_SHARE:.0%} of the datapoints or more',
        applies=lambda field: field.is_video and field.once(_tied_to) is not None,
        scores=_unequal,
        detail='frames more or fewer than the items of another field, which has as many elsewhere',
    ),
    Check(
        name='duration_deviations',
        severity='warning',
        level='headers',
        bound=5,
        reason='A recording of an instant is a mistake of the operator, and a very long one was not stopped.',
        bound_source='robust deviations of the logarithm, as for length_deviations',
        applies=_is_stream,
        scores=_durations,
        compare=deviations,
        rare=True,
        detail='deviations from the usual duration: {raw:.3g} s',
    ),
    Check(
        name='media_difference_seconds',
        severity='warning',
        level='headers',
        bound=0.3,
        reason='Sound and video of one recording end at different times: one of them was cut.',
        bound_source='7 frames at 25 Hz; encoders add up to 0.1 s of sound',
        applies=lambda field: _is_stream(field) and _other_media(field) is not None,
        scores=_differences,
        rare=True,
        detail='seconds longer or shorter than usual, beside another recording',
    ),
    Check(
        name='frame_rate_share',
        severity='warning',
        level='headers',
        bound=0.02,
        reason='The metadata has another rate than the file, whose frames are then at other times.',
        bound_source='2% of 30 s is 0.6 s; 29.97 beside 30 is 0.1%',
        applies=lambda field: field.is_video and field.rate is not None,
        scores=_rates,
        detail='of the rate in the metadata: the difference to the rate in the header',
    ),
)
