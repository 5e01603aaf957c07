"""Where the records of datapoints lie, and the fewest ranges to copy for them. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bags.dataset.refs import MISSING
from bags.indexing import Int64s, offsets_of

if TYPE_CHECKING:
    from bags.bag.bag_file import BagFile

__all__ = ['Pieces', 'RecordRanges', 'Source', 'Tail', 'join_ranges', 'pieces_of']

FAR = 1 << 33  # Beyond all records of a bag.


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


class Tail(NamedTuple):
    """The records that were copied last, which those of the next datapoint may begin among."""

    bag: BagFile
    start: int
    stop: int


class Pieces(NamedTuple):
    """What is to be copied: pieces of bags, and where the records of each datapoint are among them."""

    sources: Sequence[Source]
    which: Int64s
    """The source of each piece."""
    starts: Int64s
    """Its first record there,"""
    stops: Int64s
    """and the one behind its last."""
    firsts: Int64s
    """By datapoint, the place of its first record, counted from the first that is copied: negative for those
    that were copied before. `MISSING` where there is no value."""
    counts: Int64s
    tail: Tail | None


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


def pieces_of(spans: RecordRanges, tail: Tail | None = None) -> Pieces:
    """Returns what to copy for datapoints, in their order.

    Records of datapoints that follow one another make one piece, and what two such datapoints share is in it
    once:

        datapoint     a        b        c          pieces       where they are
        its records   4 5 6    6 7 8    2          4-8, 2       0 1 2, 2 3 4, 5
    """
    there = np.flatnonzero(spans.counts)
    firsts = np.where((spans.firsts == MISSING) & (spans.counts == 0), MISSING, 0)
    if not len(there):
        empty = np.empty(0, np.int64)
        return Pieces(spans.sources, empty, empty, empty, firsts, spans.counts, tail)
    which, begins = spans.which[there], spans.firsts[there]
    ends = begins + spans.counts[there]
    joined = False
    if tail is not None:
        joined = spans.sources[int(which[0])].bag is tail.bag and tail.start <= int(begins[0]) <= tail.stop
    # A new piece where the bag is another one, where records go back, and where there is a gap.
    breaks = np.ones(len(there), bool)
    breaks[1:] = (which[1:] != which[:-1]) | (begins[1:] < begins[:-1])
    group = np.cumsum(breaks)
    reached = np.maximum.accumulate(ends + group * FAR) - group * FAR
    if joined and tail is not None:
        reached = np.where(group == 1, np.maximum(reached, tail.stop), reached)
    breaks[1:] |= begins[1:] > reached[:-1]
    piece = np.cumsum(breaks) - 1
    heads = np.flatnonzero(breaks)
    starts = begins[heads]
    stops = reached[np.append(heads[1:], len(there)) - 1]
    origins = starts.copy()
    if joined and tail is not None:
        # Of the first piece the beginning is there already; places count from where it goes on.
        origins[0] = starts[0] = tail.stop
    places = offsets_of(stops - starts)[:-1]
    firsts[there] = places[piece] + begins - origins[piece]
    sources = which[heads]
    last = spans.sources[int(sources[-1])].bag
    begin = int(begins[heads[-1]])
    if joined and tail is not None and len(heads) == 1:
        begin = tail.start
    new = Tail(last, begin, int(stops[-1]))
    full = stops > starts
    return Pieces(spans.sources, sources[full], starts[full], stops[full], firsts, spans.counts, new)
