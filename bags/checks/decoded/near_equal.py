"""Images that look alike: the same picture, scaled or encoded again."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column, Field
from bags.checks.columns.equal_records import equal_of
from bags.checks.definition import Check, Scores
from bags.checks.media import pictures

MAX_BITS = 6
"""Maximum number of different bits of two hashes of 64 bits."""
BANDS = 8
"""Parts of a hash: of two hashes with at most 7 different bits, one part is equal."""
MAX_COMPARED = 1 << 15
"""Number of images that are compared with all earlier ones, which is faster than a look at the parts."""
MAX_PER_BAND = 2048
"""Maximum number of images with an equal part of the hash that an image is compared with."""


class _Seen:
    """The images seen so far, by each part of their hash."""

    def __init__(self, field: Field) -> None:
        self.hashes = field.kept.setdefault('picture_hashes', np.zeros(len(field.dataset), np.uint64))
        """The hash of each datapoint, (n,); 0 if it is unknown."""
        self._bands: list[dict[int, list[int]]] = [{} for _ in range(BANDS)]
        self._has_bands = len(self.hashes) > MAX_COMPARED
        for row in np.flatnonzero(self.hashes).tolist() if self._has_bands else ():
            self._add(row)

    def _add(self, row: int) -> None:
        for band, part in zip(self._bands, self.hashes[row].tobytes(), strict=True):
            band.setdefault(part, []).append(row)

    def nearest(self, row: int, hash: np.uint64) -> int:
        """Returns the first datapoint before one with a similar hash; -1 if there is none. Adds the hash."""
        if row < MAX_COMPARED:
            earlier = self.hashes[:row]
            are_similar = (np.bitwise_count(earlier ^ hash) <= MAX_BITS) & (earlier != 0)
            first = int(are_similar.argmax()) if row and are_similar.any() else -1
        else:
            first = self._nearest_in_bands(row, hash)
        if not self.hashes[row]:
            self.hashes[row] = hash
            if self._has_bands:
                self._add(row)
        return first

    def _nearest_in_bands(self, row: int, hash: np.uint64) -> int:
        near = {
            earlier
            for band, part in zip(self._bands, hash.tobytes(), strict=True)
            for earlier in band.get(part, ())[:MAX_PER_BAND]
            if earlier < row
        }
        candidates = np.array(sorted(near), np.int64)
        are_similar = np.bitwise_count(self.hashes[candidates] ^ hash) <= MAX_BITS
        return int(candidates[are_similar.argmax()]) if are_similar.any() else -1


def _scores(column: Column) -> Scores:
    found, seen = column.once(pictures), column.field.once(_Seen)
    nearest = np.full(len(column), -1)
    for position in np.flatnonzero(np.diff(found.offsets)).tolist():
        hash = found.hashes[found.offsets[position]]
        if hash:
            nearest[position] = seen.nearest(int(column.rows[position]), hash)
    equal = column.field.once(equal_of)
    is_equal = (equal.first[column.rows] >= 0) | (equal.first_elsewhere[column.rows] >= 0)
    nearest[is_equal] = -1  # Reported as equal already.
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
