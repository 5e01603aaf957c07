"""Resumes an import of files: skips the files that are in the dataset, and checks that they are unchanged."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Generic

import numpy as np

from bags.concurrency import map_concurrently
from bags.dataset.base import Dataset
from bags.dataset.format.registry import encoders
from bags.dataset.format.spec import FieldType, parse_spec
from bags.dataset.open import open as open_dataset
from bags.dataset.reading.batch import concat_ranges
from bags.dataset.writing.encoder import Encoder
from bags.dataset.writing.sharded_writer import ShardedDatasetWriter
from bags.errors import SourceError
from bags.indexing import Int64s, offsets_of
from bags.interop.exported import NUMBERS
from bags.interop.file_extensions import KEY
from bags.interop.files import F, FileEntry, FileSource
from bags.interop.link_comparison import LinkComparison
from bags.progress.progress_log import SOURCE_CHANGED
from bags.progress.write_result import Skipped

MAX_BYTES = 1 << 26
"""Maximum bytes of the files of a field that are read again."""
MAX_DATAPOINTS = 1 << 16
"""Maximum number of datapoints whose files are read again."""
LINK_BYTES = 1 << 10
"""Bytes by which a linked file counts, as only its first and last bytes are read again."""
BATCH = 256
"""Number of datapoints that are compared at a time."""


def remaining_entries(
    source: FileSource[F],
    writer: ShardedDatasetWriter,
    storage: Mapping[str, Any],
    names: Mapping[str, str],
    skipped: list[Skipped],
    notes: list[str],
    *,
    check_source: bool,
    workers: int,
) -> Iterator[FileEntry[F]]:
    """Returns the entries after the last imported one.

    Args:
        source: The files.
        writer: The writer that resumes the dataset.
        storage: The options that select the store of the dataset.
        names: The name in the dataset of each field of the source.
        skipped: Earlier entries that are not in the dataset are added to it.
        notes: Gets a sentence about each field whose files were not all read again.
        check_source: Whether to compare the entries that are in the dataset with its records.
        workers: Threads that read files.

    Raises:
        SourceError: A datapoint of the dataset is not in the source.
        ValueError: The files of a datapoint have changed.
    """
    writer.flush()
    entries = source.entries()
    pending: list[tuple[int, FileEntry[F]]] = []
    with open_dataset(writer.path, raw=True, **storage) as written:
        dataset = as_named_in_source(written, names)
        comparison = FileComparison(source, dataset, workers)
        for index, row in enumerate(dataset[:, KEY]):
            key = str(row[KEY], 'utf-8')
            for entry in entries:
                if entry.key == key:
                    break
                detail = 'not in the dataset: left out before, or added since'
                skipped.append(Skipped(source.name(entry), detail))
            else:
                raise SourceError(writer.path, f'expected a source that has its datapoint {key!r}, to resume')
            if check_source:
                pending.append((index, entry))
                if len(pending) == BATCH:
                    comparison.check(pending)
                    pending = []
        comparison.check(pending)
        notes += comparison.notes() if check_source else []
    return entries


def as_named_in_source(dataset: Dataset, names: Mapping[str, str]) -> Dataset:
    """Returns a dataset whose fields have the names that they have in the source."""
    return dataset.rename({new: name for name, new in names.items() if new in dataset.schema})


class FileComparison(Generic[F]):
    """Compares files with the records of a dataset: sizes, and contents up to `MAX_BYTES` of each field."""

    def __init__(
        self, source: FileSource[F], dataset: Dataset, workers: int, detail: str = SOURCE_CHANGED
    ) -> None:
        self._source, self._dataset, self._workers = source, dataset, workers
        self._detail = detail
        """The message of the error for a difference."""
        schema = parse_spec(source.spec)
        # Without fields that are remuxed: some containers differ each time they are written.
        self._schema = {
            name: field_type
            for name, field_type in schema.items()
            if name != KEY and name in dataset.schema and not _is_remuxed(field_type)
        }
        self._added = schema.keys() - dataset.schema.keys()
        self._encoder = Encoder(schema, {**encoders, **source.encoders})
        self._as_files = [
            name for name, field_type in self._schema.items() if field_type.format not in (*NUMBERS, 'array')
        ]
        """The fields whose records have the same sizes as their files."""
        self._links = LinkComparison(dataset)
        self._read = dict.fromkeys(self._schema, 0)
        self._not_read = dict.fromkeys(schema, 0)
        """Number of datapoints whose files of a field were not compared by content."""

    def notes(self) -> list[str]:
        """Returns a sentence about each field with files that were not compared by content."""
        compared = dict.fromkeys(self._as_files, 'compared with the source by size only')
        return [
            f'resumed: field {name!r} of {count:,} earlier datapoints was '
            + compared.get(name, 'not compared with the source')
            for name, count in self._not_read.items()
            if count
        ]

    def check(self, entries: list[tuple[int, FileEntry[F]]]) -> None:
        """Compares entries with the datapoints at their indices, which continue from the last call.

        Raises:
            ValueError: An entry differs from its datapoint.
        """
        for index, entry in entries:
            for field in self._added & (entry.files.keys() | entry.columns.keys()):
                raise self._error(index, entry, field)
        by_content = [self._fields_to_read(index, entry) for index, entry in entries]
        self._check_sizes(entries, by_content)

        def find_change(number: int) -> str | None:
            index, entry = entries[number]
            return self._changed_content(index, entry, by_content[number])

        changed = map_concurrently(find_change, range(len(entries)), max_threads=self._workers)
        for (index, entry), changed_field in zip(entries, changed, strict=True):
            if changed_field is not None:
                raise self._error(index, entry, changed_field)

    def _error(self, index: int, entry: FileEntry[F], field: str) -> ValueError:
        where = f'{entry.origin}: {self._source.name(entry)}, field {field!r}'
        return ValueError(f'{where}, datapoint {index:,} of the dataset: {self._detail}')

    def _fields_to_read(self, index: int, entry: FileEntry[F]) -> list[str]:
        """Returns the fields to compare by content, which include small fields of the last datapoint."""
        sizes = self._source.sizes(entry)
        fields = []
        for name in self._schema:
            size = sizes.get(name, len(entry.columns.get(name, '')))
            if name in self._source.linked:
                size = min(size, LINK_BYTES)
            is_last = index == len(self._dataset) - 1
            if size <= MAX_BYTES and (
                is_last or (self._read[name] + size <= MAX_BYTES and index < MAX_DATAPOINTS)
            ):
                self._read[name] += size
                fields.append(name)
        for name in self._not_read.keys() - set(fields) - {KEY}:
            self._not_read[name] += 1
        return fields

    def _check_sizes(self, entries: list[tuple[int, FileEntry[F]]], by_content: list[list[str]]) -> None:
        """Compares the sizes of files whose contents are not compared."""
        for name in self._as_files:
            pairs = [
                (index, entry)
                for (index, entry), fields in zip(entries, by_content, strict=True)
                if name not in fields and name not in entry.columns
            ]
            if pairs:
                stored = self._stored_sizes(np.array([index for index, _ in pairs]), name)
                for (index, entry), size in zip(pairs, stored, strict=True):
                    if size is not None and size != self._source.sizes(entry).get(name, 0):
                        raise self._error(index, entry, name)

    def _stored_sizes(self, indices: Int64s, field: str) -> list[int | None]:
        """Returns the bytes of the records of a field; None if that needs reads over a network."""
        ranges = self._dataset.record_ranges(indices, field)
        assert ranges is not None
        sizes: list[int | None] = [0] * len(indices)
        for which, source in enumerate(ranges.sources):
            rows = np.flatnonzero((ranges.which == which) & (ranges.counts > 0))
            if not source.bag.is_compressed:
                counts = ranges.counts[rows]
                stored = source.bag.sizes(concat_ranges(ranges.firsts[rows], counts))
                source_sizes: list[int | None] = np.diff(offsets_of(stored)[offsets_of(counts)]).tolist()
            elif self._dataset.is_remote:
                source_sizes = [None] * len(rows)
            else:
                records = [self._dataset[int(index), field][field] for index in indices[rows]]
                is_sequence = self._schema[field].sequence
                source_sizes = [sum(map(len, record)) if is_sequence else len(record) for record in records]
            for position, size in zip(rows.tolist(), source_sizes, strict=True):
                sizes[position] = size
        return sizes

    def _changed_content(self, index: int, entry: FileEntry[F], fields: list[str]) -> str | None:
        """Returns the first field that differs."""
        try:
            values = self._source.load(entry, fields)
        except SourceError:
            return ', '.join(fields)  # The files were readable before.
        linked = [name for name in fields if name in self._source.linked]
        copied = [name for name in fields if name not in linked]
        stored = self._dataset[index, copied] if copied else {}
        changed = (name for name in copied if self._encode(name, values.get(name)) != stored[name])
        moved = (name for name in linked if not self._links.agree(index, name, values.get(name)))
        return next(itertools.chain(changed, moved), None)

    def _encode(self, field: str, value: Any) -> Any:
        """Returns the record of a value, a list of records for a sequence, or None for a missing value."""
        if value is None and self._schema[field].optional:
            return None
        encoded = self._encoder.encode_field(field, value)
        return list(map(_bytes_of, encoded)) if self._schema[field].sequence else _bytes_of(encoded)


def _is_remuxed(field_type: FieldType) -> bool:
    return field_type.format in ('video', 'audio') and bool(field_type.args)


def _bytes_of(record: Any) -> bytes:
    if not hasattr(record, 'read'):
        return bytes(record)
    with record:
        return bytes(record.read())
