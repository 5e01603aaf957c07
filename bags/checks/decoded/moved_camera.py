"""Fixed cameras that moved: the view is another one than in the first datapoints."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import numpy as np

from bags.checks.column import READ_ERRORS, Column, Field
from bags.checks.definition import Check, Scores
from bags.checks.media import Array, first_hash, is_pictures, pictures
from bags.indexing import Int64s

REFERENCE_DATAPOINTS = 16
"""Number of datapoints, the first of the dataset, whose first pictures show the view of the camera."""
MIN_AGREEMENT = 0.9
"""Share of the first pictures that agree in a bit of the view. The others show what moves, or have noise."""
MIN_BITS = 16
"""Number of bits of 64 below which the view is unknown."""
MAX_OTHER_BITS = 0.2
"""Share of the bits of the view that may differ in a picture: an arm covers a part of it."""


class View(NamedTuple):
    """What a fixed camera shows: some bits of the perceptual hash of its pictures."""

    hash: np.uint64
    mask: np.uint64
    """The bits that are known."""


def usual_view(field: Field) -> View | None:
    """Returns the view of a camera in the first datapoints; None if too little of it stays the same."""
    hashes = []
    for row in range(min(REFERENCE_DATAPOINTS, len(field.dataset))):
        with contextlib.suppress(*READ_ERRORS):  # Reported where all pictures are read.
            hashes.append(first_hash(field, row))
    known = np.array([hash for hash in hashes if hash], np.uint64)
    if not len(known):
        return None
    shares = np.unpackbits(known.view(np.uint8).reshape(-1, 8), axis=1).mean(0)
    are_same = np.maximum(shares, 1 - shares) >= MIN_AGREEMENT
    if are_same.sum() < MIN_BITS:
        return None
    (hash,), (mask,) = (np.packbits(bits).view(np.uint64) for bits in (shares > 0.5, are_same))
    return View(hash, mask)


def _moved(column: Column) -> Scores:
    """Returns the share of the pictures with another view, and the first of them."""
    found, view = column.once(pictures), column.field.once(usual_view)
    shares, items = np.full(len(column), np.nan), np.full(len(column), -1)
    if view is None:
        return Scores(shares, items)
    others = np.bitwise_count((found.hashes ^ view.hash) & view.mask) / np.bitwise_count(view.mask)
    are_known = found.hashes != 0
    are_moved = are_known & (others > MAX_OTHER_BITS)
    owners = found.owners()
    counts = _count(owners, are_known, len(column))
    with np.errstate(invalid='ignore'):
        shares = _count(owners, are_moved, len(column)) / counts
    positions = np.flatnonzero(are_moved)[::-1]
    if column.field.has_items or column.field.is_video:
        items[owners[positions]] = positions - found.offsets[:-1][owners[positions]]
    return Scores(shares, items)


def _count(owners: Int64s, are_so: Array, length: int) -> Int64s:
    return np.bincount(owners[are_so], minlength=length)


CHECKS = (
    Check(
        name='moved_share',
        severity='info',
        level='decoded',
        bound=0.1,
        reason='A fixed camera was pushed: a policy that learned one view fails in the other.',
        bound_source='a hand before the lens takes less than a tenth of an episode',
        applies=lambda field: is_pictures(field) and field.facts.get('fixed') is True,
        scores=_moved,
        detail='of the pictures show another view than the first datapoints',
    ),
)
