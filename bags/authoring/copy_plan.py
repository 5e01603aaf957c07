"""Planning a copy: chunks of datapoints that fit a shard, and the byte ranges of their records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bags.bag.limits import ENTRY
from bags.bag.records import FileRanges, StoredRecords
from bags.dataset.base import Dataset
from bags.dataset.format.refs import MISSING, is_missing
from bags.dataset.format.spec import FieldType, Schema
from bags.dataset.reading.batch import concat_ranges
from bags.dataset.reading.row_reader import FieldRecords, RecordRanges
from bags.errors import CorruptError, DecodeError, SpecError
from bags.indexing import Int64s, chunk_length, offsets_of
from bags.links.link_builder import LinkBuilder, LinkRun, join_links
from bags.links.rows import ROW_BYTES

MAX_COPIED_CHUNK_BYTES = 1 << 25
MAX_CHUNK_DATAPOINTS = 1 << 16
MAX_CHUNK_RECORDS = 1 << 22  # Maximum number of records of a field in a chunk.
FIRST_CHUNK_DATAPOINTS = 1 << 10
BEYOND_RECORDS = 1 << 33  # More than the maximum number of records in a bag.


def copied_type(field_type: FieldType, unsigned: bool) -> FieldType:
    """Returns the type of a field in a copy: integers of Bags 0.x are unsigned, whatever their type."""
    if not unsigned or field_type.format != 'int':
        return field_type
    return field_type._replace(format='uint', text=f'u{field_type.text}')


# Plans of single fields.


class LastCopied(NamedTuple):
    """The last copied records, which the next datapoint may share."""

    bag: StoredRecords
    start: int
    stop: int


class CopyPlan(NamedTuple):
    """The records of a field to copy, in few ranges, and the positions of each datapoint in them."""

    sources: Sequence[FieldRecords]
    which: Int64s
    """The source of each range."""
    starts: Int64s
    """The first record of each range in its source."""
    stops: Int64s
    """The end of each range."""
    firsts: Int64s
    """For each datapoint, the position of its first record among all copied records: negative if an
    earlier plan copied it, `MISSING` if the value is missing."""
    counts: Int64s
    """For each datapoint, its number of records."""
    last: LastCopied | None


def plan_field(ranges: RecordRanges, last: LastCopied | None = None) -> CopyPlan:
    """Plans the copy of some datapoints, in their order.

    Consecutive records of consecutive datapoints become one range. Records that two consecutive datapoints
    share are copied once:

        datapoint     a        b        c          ranges       copies at
        its records   4 5 6    6 7 8    2          4-8, 2       0 1 2, 2 3 4, 5
    """
    present = np.flatnonzero(ranges.counts)
    firsts = np.where(is_missing(ranges.firsts, ranges.counts), MISSING, 0)
    if not len(present):
        empty = np.empty(0, np.int64)
        return CopyPlan(ranges.sources, empty, empty, empty, firsts, ranges.counts, last)
    which, begins = ranges.which[present], ranges.firsts[present]
    ends = begins + ranges.counts[present]
    bag = ranges.sources[int(which[0])].bag
    if last is not None and not (bag is last.bag and last.start <= int(begins[0]) <= last.stop):
        last = None
    # A new range begins where the bag changes, at an earlier record, and after a gap.
    breaks = np.ones(len(present), bool)
    breaks[1:] = (which[1:] != which[:-1]) | (begins[1:] < begins[:-1])
    group = np.cumsum(breaks)
    reached = np.maximum.accumulate(ends + group * BEYOND_RECORDS) - group * BEYOND_RECORDS
    if last is not None:
        reached = np.where(group == 1, np.maximum(reached, last.stop), reached)
    breaks[1:] |= begins[1:] > reached[:-1]
    range_of = np.cumsum(breaks) - 1
    heads = np.flatnonzero(breaks)
    starts = begins[heads]
    stops = reached[np.append(heads[1:], len(present)) - 1]
    if last is not None:
        starts[0] = last.stop  # The beginning of the first range was already copied.
    positions = offsets_of(stops - starts)[:-1]
    firsts[present] = positions[range_of] + begins - starts[range_of]
    sources = which[heads]
    start = last.start if last is not None and len(heads) == 1 else int(begins[heads[-1]])
    new = LastCopied(ranges.sources[int(sources[-1])].bag, start, int(stops[-1]))
    full = stops > starts
    return CopyPlan(ranges.sources, sources[full], starts[full], stops[full], firsts, ranges.counts, new)


class ByteRanges(NamedTuple):
    """The byte ranges of records; consecutive records form one range."""

    files: Sequence[FileRanges]
    """The files, with the ranges of single records in them."""
    which: Int64s
    """The file of each range."""
    starts: Int64s
    stops: Int64s
    lengths: Int64s
    """Records in each range."""
    sizes: Int64s
    """Bytes of each record in all ranges, in order."""


def byte_ranges(plan: CopyPlan) -> ByteRanges:
    """Returns the byte ranges of the records of a plan.

    Raises:
        CorruptError: Limits are invalid.
    """
    lengths = plan.stops - plan.starts
    offsets = offsets_of(lengths)
    begins, sizes = np.empty(int(offsets[-1]), np.int64), np.empty(int(offsets[-1]), np.int64)
    which, files = np.empty(len(sizes), np.int64), list[FileRanges]()
    for source in np.unique(plan.which).tolist():
        bag, mine = plan.sources[source].bag, np.flatnonzero(plan.which == source)
        if len(mine) == 1:
            chosen: Any = range(int(plan.starts[mine[0]]), int(plan.stops[mine[0]]))
            positions: Any = slice(int(offsets[mine[0]]), int(offsets[mine[0] + 1]))
        else:
            chosen = concat_ranges(plan.starts[mine], lengths[mine])
            positions = concat_ranges(offsets[mine], lengths[mine])
        for located in bag.locate(chosen):
            if located.positions is not None:
                positions = concat_ranges(offsets[mine], lengths[mine])[located.positions]
            begins[positions], sizes[positions] = located.starts, located.stops - located.starts
            which[positions] = len(files)
            files.append(located)
    ends = begins + sizes
    breaks = np.ones(len(sizes), bool)
    breaks[1:] = (which[1:] != which[:-1]) | (begins[1:] != ends[:-1])
    heads = np.flatnonzero(breaks)
    next_heads = np.append(heads, len(sizes))[1:]
    return ByteRanges(files, which[heads], begins[heads], ends[next_heads - 1], next_heads - heads, sizes)


def links_of(plan: CopyPlan, existing: LinkBuilder) -> LinkRun:
    """Returns links to the records of a plan.

    Raises:
        CorruptError: Limits or links are damaged.
    """
    lengths = plan.stops - plan.starts
    offsets = offsets_of(lengths)
    runs, positions = [], []
    for source in np.unique(plan.which).tolist():
        mine = np.flatnonzero(plan.which == source)
        runs.append(existing.link(plan.sources[source].bag, concat_ranges(plan.starts[mine], lengths[mine])))
        positions.append(concat_ranges(offsets[mine], lengths[mine]))
    return join_links(runs, positions)


# Chunks of all fields.


@dataclasses.dataclass
class CopyChunk:
    """Consecutive datapoints that are read and written at a time."""

    start: int
    stop: int
    begins_shard: bool
    fields: dict[str, tuple[CopyPlan, ByteRanges | LinkRun] | None]
    """The plan of each field, and its byte ranges or links; None if its records are not in a bag."""
    last: dict[str, LastCopied]
    """The last copied records of each field, for the next chunk."""
    size: int
    """Bytes of the chunk in the copy, as far as they are known."""
    records: int
    """Number of records of the field with the most records."""
    loaded: Any = None
    """The records of the chunk, if they were read to find unreadable datapoints."""


@dataclasses.dataclass(eq=False)
class Planner:
    """Divides a dataset into chunks to copy."""

    dataset: Dataset
    schema: Schema
    """The fields that are copied, with their types in the copy."""
    row_size: int
    """Bytes of a datapoint in addition to its records."""
    is_full: Callable[[int, int, int], bool]
    """Whether a shard with these bytes, datapoints, and records of a field is full."""
    shard: tuple[int, int, int]
    """Bytes, datapoints and records of the shard that is being written."""
    shard_length: int | None
    """Maximum number of datapoints in a shard."""
    load: Callable[[CopyChunk], Any] | None = None
    """Reads a chunk, to skip datapoints that cannot be read; None to skip none."""
    skip: Callable[[int, Exception], None] | None = None
    """Called with each skipped datapoint and its error; needed with `load`."""
    links: LinkBuilder | None = None
    """Makes the links of `linked` fields."""
    linked: Collection[str] = ()
    """The fields whose records are linked."""
    scale: float = 1.0
    """Ratio of bytes written to bytes planned so far."""

    def plan(self, position: int) -> Iterator[CopyChunk]:
        """Yields the chunks of the datapoints from a position on.

        Raises:
            CorruptError, DecodeError: A datapoint cannot be read, and is not skipped.
        """
        size, length, records = self.shard
        count, begins_shard = FIRST_CHUNK_DATAPOINTS, False
        last: dict[str, LastCopied] = {}
        while position < len(self.dataset):
            if self.is_full(size, length, records):
                size, length, records, last, begins_shard = 0, 0, 0, {}, True
            count = min(count, len(self.dataset) - position)
            if self.shard_length is not None:
                count = min(count, self.shard_length - length)
            try:
                chunk = self._chunk(position, position + count, last, begins_shard)
                fitting = self._fitting(chunk, size, length, records)
                if fitting < count:
                    count = fitting
                    continue
                if self.load is not None:
                    chunk.loaded = self.load(chunk)
            except (CorruptError, DecodeError) as exc:
                if self.load is None or self.skip is None:
                    raise
                if count > 1:
                    count //= 2
                else:
                    self.skip(position, exc)
                    position += 1
                continue
            yield chunk
            begins_shard, last = False, chunk.last
            size += int(chunk.size * self.scale)
            length += count
            records += chunk.records
            position += count
            count = chunk_length(count, chunk.size, MAX_COPIED_CHUNK_BYTES, MAX_CHUNK_DATAPOINTS)

    def _chunk(self, start: int, stop: int, last: Mapping[str, LastCopied], begins_shard: bool) -> CopyChunk:
        indices = np.arange(start, stop)
        chunk = CopyChunk(start, stop, begins_shard, {}, {}, len(indices) * self.row_size, 0)
        for name, field_type in self.schema.items():
            ranges = self.dataset.record_ranges(indices, name)
            if ranges is None:
                if name in self.linked:
                    raise ValueError(
                        f'link: field {name!r} is computed when it is read, so it cannot be linked'
                    )
                chunk.fields[name] = None
                continue
            for source in ranges.sources:
                if copied_type(self.dataset.schema[name], source.unsigned) != field_type:
                    raise SpecError(name, f'{field_type.text} in all parts', 'unsigned integers in some')
            plan = plan_field(ranges, last.get(name))
            if plan.last is not None:
                chunk.last[name] = plan.last
            if name in self.linked and self.links is not None:
                links = links_of(plan, self.links)
                chunk.fields[name], count, size = (
                    (plan, links),
                    len(links.which),
                    ROW_BYTES * len(links.which),
                )
            else:
                stored = byte_ranges(plan)
                chunk.fields[name], count, size = (plan, stored), len(stored.sizes), int(stored.sizes.sum())
            chunk.size += size + ENTRY * count
            chunk.records = max(chunk.records, count)
        return chunk

    def _fitting(self, chunk: CopyChunk, size: int, length: int, records: int) -> int:
        """Returns how many datapoints of a chunk to copy: fewer if it is large, or overfills the shard."""
        count = chunk.stop - chunk.start
        if count > 1 and chunk.size > 2 * MAX_COPIED_CHUNK_BYTES:
            return chunk_length(count, chunk.size, MAX_COPIED_CHUNK_BYTES, count)
        fills = self.is_full(size + int(chunk.size * self.scale), length, records + chunk.records)
        return count // 2 if count > 1 and (fills or chunk.records > MAX_CHUNK_RECORDS) else count
