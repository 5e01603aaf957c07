"""Blur and exposure far from the others of the dataset."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column
from bags.checks.definition import Check, Float64s
from bags.checks.media import Array, Pictures, is_pictures, pictures

MIN_DATAPOINTS = 10
MIN_BLUR_DEVIATION = 0.2
"""Smallest deviation of the logarithm of the sharpness."""
MIN_EXPOSURE_DEVIATION = 6
"""Smallest deviation of the mean brightness, of 255."""


def _means(found: Pictures, values: Array) -> Array:
    counts = np.diff(found.offsets)
    are_known = np.isfinite(values)
    owners = found.owners()[are_known]
    sums = np.bincount(owners, values[are_known], len(counts))
    known = np.bincount(owners, minlength=len(counts))
    return np.where(known > 0, sums / np.maximum(known, 1), np.nan)


def _sharpness(column: Column) -> Array:
    found = column.once(pictures)
    return _means(found, found.sharpness)


def _exposure(column: Column) -> Array:
    found = column.once(pictures)
    return _means(found, found.mean)


def _spread(values: Array, minimum: float) -> tuple[float, float]:
    middle = float(np.nanmedian(values))
    return middle, max(1.4826 * float(np.nanmedian(np.abs(values - middle))), minimum)


def _blur(sharpness: Float64s) -> Float64s:
    logs = np.log(np.maximum(sharpness, 1e-3))
    if np.isfinite(logs).sum() < MIN_DATAPOINTS:
        return np.full(len(logs), np.nan)
    middle, spread = _spread(logs, MIN_BLUR_DEVIATION)
    return (middle - logs) / spread


def _beside_usual(means: Float64s) -> Float64s:
    if np.isfinite(means).sum() < MIN_DATAPOINTS:
        return np.full(len(means), np.nan)
    middle, spread = _spread(means, MIN_EXPOSURE_DEVIATION)
    return np.abs(means - middle) / spread


CHECKS = (
    Check(
        name='blur_deviations',
        severity='warning',
        level='decoded',
        bound=3,
        reason='The lens was out of focus or dirty, or the picture was enlarged.',
        bound_source='robust deviations of the logarithm: of photographs, 1 of 1,000 is 3 below the median',
        applies=is_pictures,
        scores=_sharpness,
        compare=_blur,
        rare=True,
        detail='deviations below the usual strength of fine edges: {raw:.3g}',
    ),
    Check(
        name='exposure_deviations',
        severity='warning',
        level='decoded',
        bound=5,
        reason='The light was off, or the exposure was set for another scene.',
        bound_source='robust deviations of the mean brightness of 255',
        applies=is_pictures,
        scores=_exposure,
        compare=_beside_usual,
        rare=True,
        detail='deviations from the usual brightness: {raw:.0f} of 255',
    ),
)
