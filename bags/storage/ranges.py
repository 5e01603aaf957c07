"""Plans reads of many byte ranges by merging nearby ones. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from bags.indexing import Int64s

Bytes = TypeVar('Bytes', bytes, memoryview)


class Runs(NamedTuple):
    """Ranges merged into fewer, longer ones."""

    starts: Int64s
    stops: Int64s
    """Starts and stops of the runs, ascending and disjoint."""
    owner: Int64s
    """Index of the run that contains each original range."""

    def cut(self, data: Sequence[Bytes], starts: Int64s, stops: Int64s) -> list[Bytes]:
        """Slices the original ranges out of the bytes of the runs."""
        offsets = self.starts[self.owner]
        firsts, lasts = (starts - offsets).tolist(), (stops - offsets).tolist()
        slices = zip(self.owner.tolist(), firsts, lasts, strict=True)
        return [data[run][first:last] for run, first, last in slices]


def merge(starts: Int64s, stops: Int64s, gap: int, max_size: int = 1 << 23) -> Runs:
    """Merges ranges that overlap or lie at most `gap` bytes apart, into runs of about `max_size` bytes.

    Args:
        starts, stops: At least one range, in any order. Ranges may overlap and repeat.
        gap: Maximum distance, in bytes, that is cheaper to read than to skip.
        max_size: Bytes at which a run ends, if its ranges only touch there; a range is never divided.
    """
    order = np.argsort(starts, kind='stable')
    starts, reach = starts[order], np.maximum.accumulate(stops[order])
    is_distant = starts[1:] > reach[:-1] + gap
    is_full = (starts[1:] >= reach[:-1]) & (starts[1:] // max_size != starts[:-1] // max_size)
    cuts = np.flatnonzero(is_distant | is_full) + 1
    owner = np.zeros(len(starts), np.int64)
    owner[cuts] = 1
    runs = np.empty(len(starts), np.int64)
    runs[order] = np.cumsum(owner)
    firsts = np.concatenate(([0], cuts))
    return Runs(starts[firsts], reach[np.concatenate((cuts - 1, [len(starts) - 1]))], runs)
