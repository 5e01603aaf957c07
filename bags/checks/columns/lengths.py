"""Lengths far from the others, and shorter than a window of the training."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check, Float64s
from bags.checks.usual import Array

MIN_DATAPOINTS = 10
LONG_WEIGHT = 0.7
"""Weight of a length above the median: the lengths of documents and recordings have a long tail."""
MIN_DEVIATION = 0.1
"""Smallest deviation of the logarithm of lengths: lengths that differ by 10% are alike."""


def _lengths(column: Column) -> Array:
    lengths = column.lengths.astype(np.float64)
    return np.where(lengths > 0, lengths, np.nan)


def deviations(lengths: Float64s) -> Float64s:
    """Returns how far the logarithm of each length is from the median, in robust standard deviations."""
    logs = np.log(np.where(lengths > 0, lengths, np.nan))
    if np.isfinite(logs).sum() < MIN_DATAPOINTS:
        return np.full(len(lengths), np.nan)
    distance = logs - np.nanmedian(logs)
    spread = max(1.4826 * float(np.nanmedian(np.abs(distance))), MIN_DEVIATION)
    return np.where(distance > 0, LONG_WEIGHT * distance, -distance) / spread  # type: ignore[no-any-return]


def _is_stream(field: Field) -> bool:
    return field.has_items and not field.has_times_as_values


CHECKS = (
    Check(
        name='length_deviations',
        severity='warning',
        bound=5,
        reason='An episode of a few items is a mistake of the operator, and a very long one was not stopped.',
        bound_source='robust deviations of the logarithm; a longer one counts 0.7 times, as tails are long',
        applies=_is_stream,
        scores=_lengths,
        compare=deviations,
        rare=True,
        detail='deviations from the usual length: {raw:.0f} items',
    ),
    Check(
        name='window_missing_items',
        severity='warning',
        bound=0,
        reason='Windows of the training do not fit: the datapoint is left out, or padded.',
        bound_source='the option `window`',
        applies=lambda field: _is_stream(field) and field.window is not None and not field.is_media,
        scores=lambda column: (column.field.window or 0) - column.lengths,
        detail='items too few for a window',
    ),
    Check(
        name='empty_sequences',
        severity='warning',
        bound=0,
        reason='A sequence without items has nothing to train on.',
        bound_source='in few datapoints a mistake; in many, as for boxes, intended',
        applies=_is_stream,
        scores=lambda column: (column.lengths == 0) & column.present,
        rare=True,
        detail='has no items',
        where='len({field}) > 0',
    ),
)
