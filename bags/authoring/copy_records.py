"""Reading the records of a chunk: as they are stored, or decompressed and compressed in another way."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bags.authoring.computed_fields import ComputedFields, run_of
from bags.authoring.copy_plan import ByteRanges, Chunk, CopyPlan
from bags.bag.bag_file import BagFile
from bags.bag.options import CompressionZstd
from bags.bag.zstd import Zstd
from bags.dataset.base import Dataset
from bags.dataset.batch import spread
from bags.dataset.field_writer import Compressed, Run
from bags.dataset.refs import MISSING
from bags.dataset.spec import Spec
from bags.errors import CorruptError
from bags.indexing import Int64s, offsets_of
from bags.storage.range_file import RangeFile

__all__ = ['ChunkReader', 'ChunkRecords']

MIN_FILE_COPY_BYTES = 1 << 17
"""Mean bytes of ranges from which on the system copies them from file to file."""
MAX_REQUEST_BYTES = 1 << 23  # Longer ranges are read in parts, which object stores serve concurrently.
MAX_BUFFER_BYTES = 1 << 27
"""Bytes of a field that are read into memory at once, where the system cannot copy."""
MAX_RECORD_BYTES = 1 << 30  # What the codec accepts; the writer checks its own limit.


class ChunkRecords(NamedTuple):
    """The records of a chunk, as `append_runs` takes them."""

    runs: dict[str, list[Run]]
    refs: dict[str, Any]


class ChunkReader:
    """Reads the records of chunks. Thread-safe.

    Args:
        dataset: What is copied.
        types: The fields that are taken from it, with their types in the copy.
        compressions: How the fields of the copy are compressed.
        recompressed: Which of them are compressed again even where they are compressed alike.
        verify: Also decompress what is copied as it is stored, to find damage.
        threads: Most threads that decompress a chunk.
        computed: New fields.
    """

    def __init__(
        self,
        dataset: Dataset,
        types: Spec,
        compressions: Mapping[str, Compressed],
        recompressed: Collection[str],
        verify: bool,
        threads: int,
        computed: ComputedFields | None,
    ) -> None:
        self._dataset, self._types = dataset, types
        self._compressions, self._recompressed = compressions, recompressed
        self._verify, self._threads = verify, threads
        self._computed = computed

    def load(self, chunk: Chunk) -> ChunkRecords:
        """Returns the records of a chunk.

        Raises:
            CorruptError, DecodeError: A record cannot be read.
        """
        if chunk.loaded is not None:
            loaded: ChunkRecords = chunk.loaded
            return loaded
        records = ChunkRecords({}, {})
        indices = np.arange(chunk.start, chunk.stop)
        for name, kind in self._types.items():
            found = chunk.fields[name]
            if found is None:
                records.runs[name], records.refs[name] = _read_values(self._dataset, indices, name)
                continue
            plan, ranges = found
            records.runs[name] = self._runs(name, plan, ranges)
            records.refs[name] = (plan.firsts, plan.counts) if kind.sequence else plan.firsts
        if self._computed is not None:
            for name, (runs, refs) in self._computed.compute(indices).items():
                records.runs[name], records.refs[name] = runs, refs
        return records

    def _runs(self, name: str, plan: CopyPlan, ranges: ByteRanges) -> list[Run]:
        target, again = self._compressions.get(name), name in self._recompressed
        bags = [ranges.sources[which].bag for which in np.unique(ranges.which).tolist()]
        if all(_is_stored_alike(bag, target, again) for bag in bags):
            if self._verify:
                _read_records(plan, self._threads)
            return _stored_runs(ranges)
        records = _read_records(plan, self._threads)
        if target is None or (target.trained and not target.dictionary):
            return [run_of(records)]  # The writer trains the dictionary.
        codec = Zstd(CompressionZstd(target.level, target.dictionary), MAX_RECORD_BYTES)
        if max(map(len, records), default=0) > codec.max_record_size:
            return [run_of(records)]  # The writer raises an error.
        return [run_of(codec.encode_many(records), True)]


def _is_stored_alike(bag: BagFile, target: Compressed | None, again: bool) -> bool:
    """Returns whether a bag stores records as the copy does."""
    if bag.codec is None or target is None:
        return bag.codec is None and target is None
    if again or bag.codec.options.dictionary != target.dictionary:
        return False
    return bool(target.dictionary) or not target.trained


def _read_records(plan: CopyPlan, threads: int) -> list[bytes]:
    """Returns the records of a plan, decompressed."""
    lengths = plan.stops - plan.starts
    offsets = offsets_of(lengths)
    if len(lengths) == 1:
        bag: BagFile = plan.sources[int(plan.which[0])].bag
        return bag.read_span(int(plan.starts[0]), int(plan.stops[0]), threads)
    records: list[Any] = [None] * int(offsets[-1])
    for which in np.unique(plan.which).tolist():
        mine = np.flatnonzero(plan.which == which)
        found = plan.sources[which].bag.read(spread(plan.starts[mine], lengths[mine]), threads)
        for place, record in zip(spread(offsets[mine], lengths[mine]).tolist(), found, strict=True):
            records[place] = record
    return records


def _stored_runs(ranges: ByteRanges) -> list[Run]:
    """Returns runs of the bytes as they are stored."""
    bags = [source.bag for source in ranges.sources]
    total, count = int(ranges.sizes.sum()), len(ranges.starts)
    mapped = all(bag.file.buffer is not None for bag in bags)
    if count and (
        (mapped and total >= MIN_FILE_COPY_BYTES * count) or (not mapped and total > MAX_BUFFER_BYTES)
    ):
        offsets = offsets_of(ranges.lengths).tolist()
        columns = zip(ranges.which.tolist(), ranges.starts.tolist(), ranges.stops.tolist(), strict=True)
        return [
            Run(
                RangeFile(bags[which].file, start, stop, bags[which].path),  # type: ignore[arg-type]
                ranges.sizes[offsets[run] : offsets[run + 1]],
                True,
            )
            for run, (which, start, stop) in enumerate(columns)
        ]
    return [Run(_read_bytes(ranges, bags), ranges.sizes, True)]


def _read_bytes(ranges: ByteRanges, bags: Sequence[BagFile]) -> list[bytes]:
    parts = np.maximum(-(-(ranges.stops - ranges.starts) // MAX_REQUEST_BYTES), 1)
    part = spread(np.zeros(len(parts), np.int64), parts)
    starts = np.repeat(ranges.starts, parts) + part * MAX_REQUEST_BYTES
    stops = np.minimum(starts + MAX_REQUEST_BYTES, np.repeat(ranges.stops, parts))
    which = np.repeat(ranges.which, parts)
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


def _read_values(dataset: Dataset, indices: Int64s, field: str) -> tuple[list[Run], Any]:
    """Returns the records of a field that is in no bag, and their refs, counted from the first of them."""
    kind = dataset._types[field]
    if not kind.sequence:
        found = dataset._records(indices, field, None)
        present = np.fromiter((record is not None for record in found), bool, len(found))
        refs = np.where(present, np.cumsum(present) - 1, MISSING)
        return [run_of([record for record in found if record is not None])], refs
    counts = dataset._lengths(indices, field)
    items = spread(np.zeros(len(counts), np.int64), counts)
    records: list[Any] = dataset._records(np.repeat(indices, counts), field, items)
    firsts = offsets_of(counts)[:-1]
    if kind.optional:
        empty = dataset._rows(indices, {field: range(0)})
        firsts = np.where([row[field] is None for row in empty], MISSING, firsts)
    return [run_of(records)], (firsts, counts)
