"""Which bags hold the records of datapoints, and where. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bags.indexing import Int64s

if TYPE_CHECKING:
    from bags.bag.bag_file import BagFile

__all__ = ['RecordRanges', 'Source', 'join_ranges']


class Source(NamedTuple):
    """A bag that records are in."""

    bag: BagFile
    unsigned: bool
    """Whether its integers are unsigned whatever their type says: Bags 0.x wrote it."""


class RecordRanges(NamedTuple):
    """Where the records of a field lie, of n datapoints."""

    sources: Sequence[Source]
    which: Int64s
    """The source of each datapoint, shape (n,)."""
    firsts: Int64s
    """Its first record, shape (n,); `MISSING` where there is no value."""
    counts: Int64s
    """How many records it has there, shape (n,): of a plain field 1, or 0 where the value is missing."""


def join_ranges(parts: Sequence[RecordRanges], order: Int64s) -> RecordRanges:
    """Returns the record ranges of several datasets, one after the other, in another order."""
    sources: list[Source] = []
    which = []
    for part in parts:
        which.append(part.which + len(sources))
        sources += part.sources
    return RecordRanges(
        sources,
        np.concatenate(which)[order],
        np.concatenate([part.firsts for part in parts])[order],
        np.concatenate([part.counts for part in parts])[order],
    )
