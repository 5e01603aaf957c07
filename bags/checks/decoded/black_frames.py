"""Black and white pictures: a covered lens, a lost signal, an overexposed sensor."""

from __future__ import annotations

import numpy as np

from bags.checks.column import Column
from bags.checks.definition import Check, Scores
from bags.checks.media import Array, Pictures, is_pictures, pictures

MOST = 0.99
"""Share of the pixels of a picture that is black or white."""


def _share(found: Pictures, are_so: Array, has_items: bool) -> Scores:
    count = len(found.offsets) - 1
    counts, owners = np.diff(found.offsets), found.owners()
    shares = np.bincount(owners[are_so], minlength=count) / np.maximum(counts, 1)
    items = np.full(count, -1)
    if has_items:
        positions = np.flatnonzero(are_so)[::-1]
        items[owners[positions]] = positions - found.offsets[:-1][owners[positions]]
    return Scores(np.where(counts > 0, shares, np.nan), items)


def _black(column: Column) -> Scores:
    found = column.once(pictures)
    return _share(found, found.black >= MOST, column.field.has_items or column.field.is_video)


def _white(column: Column) -> Scores:
    found = column.once(pictures)
    return _share(found, found.white >= MOST, column.field.has_items or column.field.is_video)


CHECKS = (
    Check(
        name='black_share',
        severity='warning',
        level='decoded',
        bound=0.05,
        reason='A lens was covered, or the signal of a camera was lost.',
        bound_source='a fade takes 0.5 s of 10 s; black is luma 16 in limited range',
        applies=is_pictures,
        scores=_black,
        rare=True,
        detail='of the pictures are black',
    ),
    Check(
        name='white_share',
        severity='warning',
        level='decoded',
        bound=0.05,
        reason='The sensor was overexposed, or the page is empty.',
        bound_source='as for black_share',
        applies=is_pictures,
        scores=_white,
        rare=True,
        detail='of the pictures are white',
    ),
)
