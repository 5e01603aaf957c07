"""Reading the records of many datapoints as runs to be written: as they are held, or made over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.options import CompressionZstd
from bags.bag.zstd import Zstd
from bags.dataset.base import Rows
from bags.dataset.batch import spread
from bags.dataset.compression import Compressed
from bags.dataset.field_writer import Run
from bags.dataset.record_ranges import Pieces, Source
from bags.dataset.refs import MISSING
from bags.errors import CorruptError
from bags.indexing import Int64s, offsets_of
from bags.storage.range_file import RangeFile

__all__ = ['Layout', 'lay_out', 'move', 'read_other']

LONG = 1 << 17  # Bytes of a run from which on it is left to the system to copy it.
PART = 1 << 23  # Bytes that are asked of a storage at a time.
HELD = 1 << 27  # Bytes of runs that are read as a whole, where they cannot be copied.


class Layout(NamedTuple):
    """Where the bytes of records lie."""

    sources: Sequence[Source]
    which: Int64s
    """The source of each run of bytes,"""
    starts: Int64s
    """where it begins there,"""
    stops: Int64s
    """and where it ends."""
    lengths: Int64s
    """Records in each run."""
    sizes: Int64s
    """Bytes of each record, of all runs one after the other."""


def lay_out(pieces: Pieces) -> Layout:
    """Returns the runs of bytes that pieces consist of.

    Raises:
        CorruptError: Limits that cannot be right.
    """
    lengths = pieces.stops - pieces.starts
    offsets = offsets_of(lengths)
    begins, sizes = np.empty(int(offsets[-1]), np.int64), np.empty(int(offsets[-1]), np.int64)
    sources = np.empty(len(sizes), np.int64)
    for which in np.unique(pieces.which).tolist():
        bag, mine = pieces.sources[which].bag, np.flatnonzero(pieces.which == which)
        if len(mine) == 1:
            starts, stops = bag.span(int(pieces.starts[mine[0]]), int(pieces.stops[mine[0]]))
            places: Any = slice(int(offsets[mine[0]]), int(offsets[mine[0] + 1]))
        else:
            starts, stops = bag.ranges(spread(pieces.starts[mine], lengths[mine]))
            places = spread(offsets[mine], lengths[mine])
        begins[places], sizes[places], sources[places] = starts, stops - starts, which
    breaks = np.ones(len(sizes), bool)
    breaks[1:] = (sources[1:] != sources[:-1]) | (begins[1:] != begins[:-1] + sizes[:-1])
    heads = np.flatnonzero(breaks)
    ends = begins + sizes
    lasts = np.append(heads[1:], len(sizes))[: len(heads)] - 1
    return Layout(
        pieces.sources,
        sources[heads],
        begins[heads],
        ends[lasts],
        np.diff(np.append(heads, len(sizes))),
        sizes,
    )


def is_held(bag: BagFile, target: Compressed | None, anew: bool) -> bool:
    """Tells whether a bag holds records as one that is written does."""
    if bag.codec is None or target is None:
        return bag.codec is None and target is None
    if anew or bag.codec.options.dictionary != target.dictionary:
        return False
    return bool(target.dictionary) or not target.trained


def move(
    pieces: Pieces, layout: Layout, target: Compressed | None, *, anew: bool, verify: bool, threads: int
) -> list[Run]:
    """Returns runs of the records of pieces, in their order.

    Args:
        pieces, layout: Which records, and where their bytes are.
        target: How the bag that they are written to is compressed.
        anew: Compress what is compressed anew.
        verify: Decompress also what is not made over, to see whether it is sound.
        threads: Most threads.

    Raises:
        CorruptError: A record that cannot be read.
    """
    used = [layout.sources[which].bag for which in np.unique(layout.which).tolist()]
    if all(is_held(bag, target, anew) for bag in used):
        if verify:
            _read(pieces, threads)
        return _as_held(layout)
    records = _read(pieces, threads)
    if target is not None and (target.dictionary or not target.trained):
        return _compressed(records, target)
    return [_run(records, False)]


def _run(records: Sequence[Any], held: bool) -> Run:
    return Run(records, np.fromiter(map(len, records), np.int64, len(records)), held)


def _compressed(records: list[bytes], target: Compressed) -> list[Run]:
    zstd = CompressionZstd(target.level, target.dictionary)
    codec = Zstd(zstd, 1 << 30)
    if max(map(len, records), default=0) > codec.max_record_size:
        return [_run(records, False)]  # The writer refuses it.
    return [_run(codec.encode_many(records), True)]


def _read(pieces: Pieces, threads: int) -> list[bytes]:
    """Returns records, decompressed."""
    lengths = pieces.stops - pieces.starts
    which = np.unique(pieces.which).tolist()
    if len(which) == 1:
        bag: BagFile = pieces.sources[which[0]].bag
        if len(lengths) == 1:
            return bag.read_span(int(pieces.starts[0]), int(pieces.stops[0]), threads)
        return bag.read(spread(pieces.starts, lengths), threads)
    offsets = offsets_of(lengths)
    records: list[Any] = [None] * int(offsets[-1])
    for source in which:
        mine = np.flatnonzero(pieces.which == source)
        found = pieces.sources[source].bag.read(spread(pieces.starts[mine], lengths[mine]), threads)
        for place, record in zip(spread(offsets[mine], lengths[mine]).tolist(), found, strict=True):
            records[place] = record
    return records


def _as_held(layout: Layout) -> list[Run]:
    """Returns runs of the bytes as they are."""
    bags = [source.bag for source in layout.sources]
    total, count = int(layout.sizes.sum()), len(layout.starts)
    mapped = all(bag.file.buffer is not None for bag in bags)
    if count and ((mapped and total >= LONG * count) or (not mapped and total > HELD)):
        offsets = offsets_of(layout.lengths).tolist()
        ranges = zip(layout.which.tolist(), layout.starts.tolist(), layout.stops.tolist(), strict=True)
        return [
            Run(
                RangeFile(bags[which].file, start, stop, bags[which].path),  # type: ignore[arg-type]
                layout.sizes[offsets[run] : offsets[run + 1]],
                True,
            )
            for run, (which, start, stop) in enumerate(ranges)
        ]
    if count == 1 and mapped:
        view = bags[int(layout.which[0])].view
        assert view is not None
        return [Run([view[int(layout.starts[0]) : int(layout.stops[0])]], layout.sizes, True)]
    return [Run(_read_bytes(layout, bags), layout.sizes, True)]


def _read_bytes(layout: Layout, bags: Sequence[BagFile]) -> list[bytes]:
    # Long runs in parts, which a storage far away answers at the same time.
    parts = np.maximum(-(-(layout.stops - layout.starts) // PART), 1)
    within = spread(np.zeros(len(parts), np.int64), parts)
    starts = np.repeat(layout.starts, parts) + within * PART
    stops = np.minimum(starts + PART, np.repeat(layout.stops, parts))
    which = np.repeat(layout.which, parts)
    buffers: list[Any] = [b''] * len(starts)
    for source in np.unique(which).tolist():
        mine = np.flatnonzero(which == source)
        try:
            found = bags[source].file.read_many(starts[mine], stops[mine])
        except EOFError as exc:
            raise CorruptError(bags[source].path, None, str(exc)) from exc
        for place, data in zip(mine.tolist(), found, strict=True):
            buffers[place] = data
    return buffers


def read_other(dataset: Rows, indices: Int64s, field: str) -> tuple[list[Run], Any]:
    """Returns the records of a field that is in no bag, and their refs, counted from the first of them."""
    kind = dataset.types[field]
    if not kind.sequence:
        found = dataset.records_at(indices, field, None)
        there = np.fromiter((record is not None for record in found), bool, len(found))
        refs = np.where(there, np.cumsum(there) - 1, MISSING)
        return [_run([record for record in found if record is not None], False)], refs
    counts = dataset.lengths_at(indices, field)
    items = spread(np.zeros(len(counts), np.int64), counts)
    records: list[Any] = dataset.records_at(np.repeat(indices, counts), field, items)
    firsts = offsets_of(counts)[:-1]
    if kind.optional:
        empty = dataset.rows(indices, {field: range(0)})
        firsts = np.where([row[field] is None for row in empty], MISSING, firsts)
    return [_run(records, False)], (firsts, counts)
