"""Planning reads of many byte ranges. Numbers only, no I/O."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bags.indexing import Int64s

__all__ = ['Runs', 'merge']


class Runs(NamedTuple):
    """Ranges merged into fewer, longer ones."""

    starts: Int64s
    stops: Int64s
    """The runs, in order and apart."""
    owner: Int64s
    """For each original range, the run that holds it."""


def merge(starts: Int64s, stops: Int64s, gap: int, most: int = 1 << 23) -> Runs:
    """Merges ranges that overlap or lie at most `gap` bytes apart, into runs of about `most` bytes.

    Args:
        starts, stops: At least one range, in any order; overlaps and repeats are fine.
        gap: Bytes that are cheaper to read than to ask for separately.
        most: Where ranges only touch, a run ends about here; one range is never divided.
    """
    order = np.argsort(starts, kind='stable')
    starts, reach = starts[order], np.maximum.accumulate(stops[order])
    apart = starts[1:] > reach[:-1] + gap
    enough = (starts[1:] >= reach[:-1]) & (starts[1:] // most != starts[:-1] // most)
    cuts = np.flatnonzero(apart | enough) + 1
    owner = np.zeros(len(starts), np.int64)
    owner[cuts] = 1
    runs = np.empty(len(starts), np.int64)
    runs[order] = np.cumsum(owner)
    firsts = np.concatenate(([0], cuts))
    return Runs(starts[firsts], reach[np.concatenate((cuts - 1, [len(starts) - 1]))], runs)
