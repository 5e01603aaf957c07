"""Images that look alike: the same picture, scaled or encoded again."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.columns.equal_records import equal_of
from bags.checks.definition import Check, Scores
from bags.checks.media import pictures
from bags.indexing import Int64s

MAX_BITS = 6
"""Maximum number of different bits of two hashes of 64 bits."""
BANDS = 8
"""Parts of a hash: of two hashes with at most 7 different bits, one part is equal."""
MAX_PER_BAND = 2048
"""Maximum number of images with an equal part of the hash that are compared with one another."""


def _nearest(field: Field) -> Int64s:
    """Returns the first datapoint before each that looks alike, (n,); -1 if there is none."""
    count = len(field.dataset)
    hashes = np.zeros(count, np.uint64)
    for start in range(0, count, 64):
        rows = np.arange(start, min(start + 64, count))
        column = field.readable(rows)
        found = column.once(pictures)
        filled = np.diff(found.offsets) > 0
        hashes[column.rows[filled]] = found.hashes[found.offsets[:-1][filled]]
    nearest = np.full(count, count)
    for band in range(BANDS):
        keys = (hashes >> np.uint64(8 * band)) & np.uint64(0xFF)
        order = np.argsort(keys, kind='stable')
        order = order[hashes[order] != 0]
        cuts = np.flatnonzero(np.diff(keys[order])) + 1
        for members in np.split(order, cuts):
            if not 1 < len(members) <= MAX_PER_BAND:
                continue
            bits = np.bitwise_count(hashes[members][:, None] ^ hashes[members][None, :])
            later, earlier = np.nonzero(np.tril(bits <= MAX_BITS, -1))
            np.minimum.at(nearest, members[later], members[earlier])
    nearest[nearest == count] = -1
    return nearest


def _scores(column: Column) -> Scores:
    nearest = column.field.once(_nearest)[column.rows]
    equal = column.field.once(equal_of)
    is_equal = (equal.first[column.rows] >= 0) | (equal.first_elsewhere[column.rows] >= 0)
    nearest = np.where(is_equal, -1, nearest)  # Reported as equal already.
    return Scores(nearest >= 0, None, nearest)


CHECKS = (
    Check(
        name='similar_images',
        severity='warning',
        level='decoded',
        bound=0,
        reason='The same picture, scaled or encoded again, counts twice, and a split may share it.',
        bound_source=f'at most {MAX_BITS} of 64 bits of a hash of differences are different',
        applies=lambda field: field.is_media and field.is_image and not field.type.sequence,
        scores=_scores,
        rare=True,
        detail='looks like an earlier image',
    ),
)
