"""Reads the records of a chunk: in stored form, decompressed, recompressed, or computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bags.authoring.copy_plan import ByteRanges, CopyChunk, CopyPlan
from bags.bag.compression import Zstd
from bags.bag.options import CompressionZstd
from bags.bag.records import FileRanges, StoredRecords
from bags.concurrency import MAX_OPEN_BAGS, FifoCache
from bags.dataset.base import Dataset
from bags.dataset.format.spec import Schema
from bags.dataset.reading.batch import concat_ranges
from bags.dataset.writing.field_writer import FieldCompression, RecordRun
from bags.errors import CorruptError
from bags.indexing import Int64s, offsets_of
from bags.links.link_builder import LinkRun
from bags.storage import File
from bags.storage.range_file import RangeFile
from bags.views.computed_fields import ComputedFields, join_entries, run_of

MIN_FILE_COPY_BYTES = 1 << 17
"""Mean bytes of a range from which on the operating system copies ranges from file to file."""
MAX_REQUEST_BYTES = 1 << 23  # Longer ranges are split into parts, which object stores serve concurrently.
MAX_BUFFER_BYTES = 1 << 27
"""Maximum bytes of a field read into memory at a time, if the operating system cannot copy."""
MAX_RECORD_BYTES = 1 << 30  # Maximum of the codec; the writer checks its own limit.


class ChunkRecords(NamedTuple):
    """The records of a chunk, as arguments of `append_runs`."""

    runs: dict[str, list[Any]]
    refs: dict[str, Any]


@dataclasses.dataclass(eq=False)
class ChunkReader:
    """Reads the records of chunks. Thread-safe."""

    dataset: Dataset
    schema: Schema
    """The fields that are copied, with their types in the copy."""
    compressions: Mapping[str, FieldCompression]
    """Compression of the fields of the copy."""
    recompressed: Collection[str]
    """Fields that are recompressed even if their compression is the same."""
    verify: bool
    """Whether to decompress records even if they are copied in stored form, to find damage."""
    threads: int
    """Maximum number of threads that decompress a chunk."""
    computed: ComputedFields | None
    checksum: bool = False
    """Whether the copy has checksums. Records are then compared with the checksums of the source, if any."""

    def __post_init__(self) -> None:
        self._checked = FifoCache(_open_checked, MAX_OPEN_BAGS)

    def _bag(self, bag: StoredRecords) -> StoredRecords:
        """Returns a bag that compares records with their checksums, if the copy has checksums."""
        if not self.checksum or bag.checksums is not None or bag.reopen is None:
            return bag
        return self._checked[bag] if bag.has_checksums else bag

    def load(self, chunk: CopyChunk) -> ChunkRecords:
        """Returns the records of a chunk.

        Raises:
            CorruptError, DecodeError: A record cannot be read.
        """
        if chunk.loaded is not None:
            loaded: ChunkRecords = chunk.loaded
            return loaded
        records = ChunkRecords({}, {})
        indices = np.arange(chunk.start, chunk.stop)
        for name, field_type in self.schema.items():
            planned = chunk.fields[name]
            if planned is None:
                records.runs[name], records.refs[name] = _read_values(self.dataset, indices, name)
                continue
            plan, ranges = planned
            if isinstance(ranges, LinkRun):
                records.runs[name] = [self._with_digests(plan, ranges)]
            else:
                records.runs[name] = self._runs(name, plan, ranges)
            records.refs[name] = (plan.firsts, plan.counts) if field_type.sequence else plan.firsts
        if self.computed is not None:
            for name, (runs, refs) in self.computed.compute(indices).items():
                records.runs[name], records.refs[name] = runs, refs
        return records

    def _runs(self, name: str, plan: CopyPlan, ranges: ByteRanges) -> list[RecordRun]:
        target, recompresses = self.compressions.get(name), name in self.recompressed
        if all(_is_stored_alike(file_ranges, target, recompresses) for file_ranges in ranges.files):
            if self.verify:
                self._read_records(plan)
            if self.checksum:
                return [run_of(self._read_records(plan, stored=True), True)]
            return _stored_runs(ranges)
        records = self._read_records(plan)
        if target is None or (target.trained and not target.dictionary):
            return [run_of(records)]  # The writer trains the dictionary.
        codec = Zstd(CompressionZstd(target.level, target.dictionary), MAX_RECORD_BYTES)
        if max(map(len, records), default=0) > codec.max_record_size:
            return [run_of(records)]  # The writer raises an error.
        return [run_of(codec.encode_many(records), True)]

    def _with_digests(self, plan: CopyPlan, links: LinkRun) -> LinkRun:
        """Returns links with the checksums of their records, from the source or computed from the records."""
        if self.verify:
            self._read_records(plan)
        if not self.checksum:
            return links
        digests = np.zeros(len(links.which), np.uint64)
        lengths = plan.stops - plan.starts
        offsets = offsets_of(lengths)
        for which in np.unique(plan.which).tolist():
            mine = np.flatnonzero(plan.which == which)
            bag, indices = self._bag(plan.sources[which].bag), concat_ranges(plan.starts[mine], lengths[mine])
            if bag.checksums is not None:
                computed: Any = bag.checksums.of(indices)
            else:
                computed = bag.digests(indices)
            digests[concat_ranges(offsets[mine], lengths[mine])] = computed
        return links._replace(digests=digests)

    def _read_records(self, plan: CopyPlan, stored: bool = False) -> list[bytes]:
        """Returns the records of a plan, decompressed, or in stored form."""
        lengths = plan.stops - plan.starts
        offsets = offsets_of(lengths)
        if len(lengths) == 1:
            bag = self._bag(plan.sources[int(plan.which[0])].bag)
            return bag.read(range(int(plan.starts[0]), int(plan.stops[0])), self.threads, stored=stored)
        records: list[Any] = [None] * int(offsets[-1])
        for which in np.unique(plan.which).tolist():
            mine = np.flatnonzero(plan.which == which)
            bag, indices = self._bag(plan.sources[which].bag), concat_ranges(plan.starts[mine], lengths[mine])
            source_records = bag.read(indices, self.threads, stored=stored)
            for position, record in zip(
                concat_ranges(offsets[mine], lengths[mine]).tolist(), source_records, strict=True
            ):
                records[position] = record
        return records


def _open_checked(bag: StoredRecords) -> StoredRecords:
    """Opens a bag again, to compare its records with their checksums."""
    assert bag.reopen is not None
    return bag.reopen(checksum=True)


def _is_stored_alike(source: FileRanges, target: FieldCompression | None, again: bool) -> bool:
    """Returns whether a file stores records in the same form as the copy."""
    codec = source.codec
    if source.are_segments:
        return False
    if codec is None or target is None:
        return codec is None and target is None
    if again or codec.options.dictionary != target.dictionary:
        return False
    return bool(target.dictionary) or not target.trained


def _stored_runs(ranges: ByteRanges) -> list[RecordRun]:
    """Returns runs of the stored bytes."""
    files = [file_ranges.file for file_ranges in ranges.files]
    total, count = int(ranges.sizes.sum()), len(ranges.starts)
    mapped = all(file.buffer is not None for file in files)
    if count and (
        (mapped and total >= MIN_FILE_COPY_BYTES * count) or (not mapped and total > MAX_BUFFER_BYTES)
    ):
        offsets = offsets_of(ranges.lengths).tolist()
        columns = zip(ranges.which.tolist(), ranges.starts.tolist(), ranges.stops.tolist(), strict=True)
        return [
            RecordRun(
                RangeFile(files[which], start, stop, files[which].path),  # type: ignore[arg-type]
                ranges.sizes[offsets[run] : offsets[run + 1]],
                True,
            )
            for run, (which, start, stop) in enumerate(columns)
        ]
    return [RecordRun(_read_bytes(ranges, files), ranges.sizes, True)]


def _read_bytes(ranges: ByteRanges, files: Sequence[File]) -> list[bytes]:
    parts = np.maximum(-(-(ranges.stops - ranges.starts) // MAX_REQUEST_BYTES), 1)
    part = concat_ranges(np.zeros(len(parts), np.int64), parts)
    starts = np.repeat(ranges.starts, parts) + part * MAX_REQUEST_BYTES
    stops = np.minimum(starts + MAX_REQUEST_BYTES, np.repeat(ranges.stops, parts))
    which = np.repeat(ranges.which, parts)
    buffers: list[Any] = [b''] * len(starts)
    for source in np.unique(which).tolist():
        mine = np.flatnonzero(which == source)
        try:
            contents = files[source].read_many(starts[mine], stops[mine])
        except EOFError as exc:
            raise CorruptError(files[source].path, None, str(exc)) from exc
        for position, data in zip(mine.tolist(), contents, strict=True):
            buffers[position] = data
    return buffers


def _read_values(dataset: Dataset, indices: Int64s, field: str) -> tuple[list[RecordRun], Any]:
    """Returns the records of a field without a bag, and their refs, relative to the first record."""
    return join_entries(dataset.read_records(indices, field), dataset.schema[field].sequence)
