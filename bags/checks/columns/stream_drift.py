"""Drift between streams: two streams of a datapoint do not last equally long, as they do elsewhere."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check, Scores
from bags.checks.usual import Array, interval_of


def _has_seconds(field: Field) -> bool:
    if field.is_media and not field.is_image:
        return False  # A record is a clip, or has its own clock: the headers say how long it lasts.
    if field.times is not None:
        return bool(np.isfinite(interval_of(field)))
    return field.rate is not None and field.has_items


def _reference(field: Field) -> Field | None:
    """Returns the first stream with seconds before this one, with a clock of its own."""
    for other in field.fields.values():
        if other is field:
            return None
        if _has_seconds(other) and (other.times is None or other.times != field.times):
            return other
    return None


def _seconds(column: Column) -> Array:
    """Returns the seconds of each datapoint; NaN without two items."""
    field = column.field
    if field.times is None:
        assert field.rate is not None
        return np.where(column.lengths > 1, column.lengths / field.rate, np.nan)
    clock = column.times
    assert clock is not None
    seconds = np.full(len(column), np.nan)
    filled = np.flatnonzero(clock.counts > 1)
    ends = clock.items[clock.offsets[1:][filled] - 1, 0]
    seconds[filled] = ends - clock.items[clock.offsets[:-1][filled], 0]
    return seconds + interval_of(field)


def _scores(column: Column) -> Scores:
    reference = _reference(column.field)
    assert reference is not None
    differences = _seconds(column) - _seconds(column.other(reference.name))
    usual = column.field.once(_usual_difference)
    return Scores(np.abs(differences - usual))


def _usual_difference(field: Field) -> float:
    reference = _reference(field)
    assert reference is not None
    differences = _seconds(field.sample) - _seconds(field.sample.other(reference.name))
    if not np.isfinite(differences).any():
        return float('nan')
    middle = float(np.nanmedian(differences))
    # Streams that last differently in most datapoints are not recorded together.
    are_near = np.abs(differences - middle) < 0.25
    return middle if np.nanmean(are_near) > 0.7 else float('nan')


CHECKS = (
    Check(
        name='stream_drift_seconds',
        severity='warning',
        bound=0.2,
        reason='One of two streams stopped early, or its clock drifts: its items are beside later ones.',
        bound_source='0.2 s is 6 frames at 30 Hz; streams of one recorder end within a frame or two',
        applies=lambda field: _has_seconds(field) and _reference(field) is not None,
        scores=_scores,
        detail='lasts {value:.3g} s more or less than usual, beside another stream',
    ),
)
