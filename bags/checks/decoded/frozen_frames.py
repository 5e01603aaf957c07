"""Frozen and repeated frames: a camera that delivers one picture for a while, or each picture twice."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.definition import Check, Scores
from bags.checks.media import SAME_CHANGE, Array, is_pictures, pictures

RENEWED_CHANGE = 2
"""Mean difference of a key frame of a still picture and the frame before, of 255, at most."""
USUAL_INTERVAL = 1 / 30
"""Seconds from frame to frame of a sequence of images without a rate or times."""


def _frozen(column: Column) -> Scores:
    found = column.once(pictures)
    count = len(column)
    runs, spans = np.zeros(count), np.full((count, 2), -1)
    for position in range(count):
        start, stop = found.offsets[position], found.offsets[position + 1]
        if stop - start < 2:
            runs[position] = np.nan
            continue
        are_same = _are_equal(found.change[start:stop])
        edges = np.flatnonzero(np.diff(np.concatenate([[False], are_same, [False]]).astype(np.int8)))
        if len(edges):
            lengths = edges[1::2] - edges[::2]
            longest = int(np.argmax(lengths))
            interval = found.intervals[position]
            runs[position] = lengths[longest] * (interval if interval > 0 else USUAL_INTERVAL)
            spans[position] = edges[2 * longest] - 1, edges[2 * longest + 1] - 1
    return Scores(runs, spans[:, 0], None, spans)


def _are_equal(change: Array) -> Array:
    """Returns which frames are equal to the one before; False for the first, whose change is NaN."""
    are_same = change <= SAME_CHANGE
    # A codec stores a picture anew from time to time, which then differs a little.
    inside = are_same[:-2] & are_same[2:] & (change[1:-1] <= RENEWED_CHANGE)
    are_same[1:-1] |= inside
    return are_same


def _repeated(column: Column) -> Scores:
    """Returns the share of frames that repeat the one before and are followed by another one."""
    found = column.once(pictures)
    are_same = found.change <= SAME_CHANGE
    owners = found.owners()
    is_single = are_same.copy()
    is_single[1:] &= ~(are_same[:-1] & (owners[1:] == owners[:-1]))
    is_single[:-1] &= ~(are_same[1:] & (owners[1:] == owners[:-1]))
    counts = np.diff(found.offsets)
    shares = np.bincount(owners[is_single], minlength=len(column)) / np.maximum(counts, 1)
    return Scores(np.where(counts > 3, shares, np.nan))


def _applies(field: Field) -> bool:
    return is_pictures(field) and (field.is_video or field.has_items)


CHECKS = (
    Check(
        name='frozen_seconds',
        severity='warning',
        level='decoded',
        bound=1,
        reason='The camera or its driver stopped, and the recorder stored the last frame again.',
        bound_source='a sensor has noise: even of a still scene, no two frames are equal for a second',
        applies=_applies,
        scores=_frozen,
        rare=True,
        detail='seconds of equal frames',
    ),
    Check(
        name='repeated_share',
        severity='warning',
        level='decoded',
        bound=0.1,
        reason='Frames are stored twice: the camera was slower than the rate of the recorder.',
        bound_source='30 frames a second of a camera at 25 repeat one of 6',
        applies=_applies,
        scores=_repeated,
        detail='of the frames are equal to the one before',
    ),
)
