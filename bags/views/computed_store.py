"""The stored values of computed fields: a dataset for each rank, of which this process writes one.

latents/0/000000/   datapoint.bag  z.bag  …     rank 0; `datapoint` is the index in the source
latents/0/progress.json                         the fingerprint of the source
latents/1/000000/   …                           rank 1
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.bag.memory_records import MemoryRecords
from bags.concurrency import Shareable
from bags.dataset.format.folder_layout import Decoders
from bags.dataset.format.options import Compression
from bags.dataset.format.spec import Schema, parse_spec, type_texts
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.origins import groups_of
from bags.dataset.reading.row_groups import RowGroup
from bags.dataset.reading.row_reader import MissingFields
from bags.dataset.reading.selection import Selection, divide
from bags.dataset.sharded_reader import ShardedDatasetReader
from bags.dataset.writing.field_writer import field_compressions
from bags.dataset.writing.sharded_writer import ShardedDatasetWriter
from bags.errors import CorruptError, SpecError
from bags.indexing import Int64s
from bags.progress.progress_log import ProgressLog, source_of
from bags.storage import store_for
from bags.views.new_values import NewValues, NewValuesReader

DATAPOINT = 'datapoint'
"""The field with the index of each stored row in the source."""
DATAPOINT_TYPE = 'int(8)'
RANK_SHIFT = 40
"""A location is the rank, shifted by this, plus the row in the dataset of the rank."""
MAX_RANKS = 1 << 20
MAX_HELD_BYTES = 8 << 20
"""Bytes of written records that are read from memory, until the dataset of this rank is opened again."""
MAX_HELD_SECONDS = 1.0
NOT_STORED = -1
"""The location of a datapoint without stored values, and its rank."""


class StoredSource(NamedTuple):
    """The dataset whose fields are stored."""

    fingerprint: str
    length: int
    expression: str
    """For errors."""


class RankRows(NamedTuple):
    """The rows of one rank."""

    reader: ShardedDatasetReader | None
    """Reads the first rows; None if there are none."""
    held: list[dict[str, Any]]
    """The records by field of the rows after these, which were written since. Only ever appended to."""

    @property
    def read_length(self) -> int:
        """The number of rows of the reader."""
        return 0 if self.reader is None else len(self.reader)


class ComputedStore(Shareable):
    """Reads the stored values of all ranks, and appends values to the dataset of one rank.

    Any thread may read. One thread at a time may call `begin`, `append`, `reopen` and `close`.

    Args:
        path: The folder, which may not exist.
        schema: The fields.
        source: The dataset whose fields these are.
        rank: The rank of this process.
        compression, checksum: As in `DatasetWriter`.

    Raises:
        ValueError: A URL; or the folder has values of another dataset.
        FileExistsError: The folder holds something else.
        SpecError: The stored fields have other types.
        CorruptError: A stored index is out of range.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema,
        source: StoredSource,
        rank: int,
        compression: Compression,
        checksum: bool,
    ) -> None:
        self._store, self.path = store_for(path)
        if self._store.is_remote:
            raise ValueError(
                f'computed: expected a local folder, got {self.path}: values are appended as they are '
                'computed; bags.copy(view, url) writes the dataset with all values to an object store'
            )
        self.schema, self._source, self.rank = schema, source, rank
        self._spec = {DATAPOINT: DATAPOINT_TYPE, **type_texts(schema)}
        self._compression = field_compressions(compression, parse_spec(self._spec))
        self._checksum = checksum
        self._writer: ShardedDatasetWriter | None = None
        self._is_closed = False
        self._held_bytes, self._held_since = 0, 0.0
        self._locations = np.full(source.length, NOT_STORED, np.int64)
        """The location of each datapoint of the source. Set after the row can be read."""
        self._ranks: dict[int, RankRows] = {}
        self.reopen()

    def _expect_open(self) -> None:
        if self._is_closed:
            raise ValueError(f'bags.computed of {self.path!r} is closed')

    # Reading, by any thread, without locks.

    def are_stored(self, rows: Int64s | slice = slice(None)) -> npt.NDArray[np.bool_]:
        """Returns which datapoints of the source have stored values, shape (n,)."""
        return np.asarray(self._locations[rows] != NOT_STORED)

    def plan_rows(self, rows: Int64s, selection: Selection) -> list[RowGroup]:
        """Returns the rows of readers, and of records in memory, with stored datapoints of the source."""
        self._expect_open()
        locations = self._locations[rows]
        parts: list[tuple[RankRows, bool, Int64s, Int64s]] = []
        for rank, positions in groups_of(locations >> RANK_SHIFT):
            if rank == NOT_STORED:
                row = int(rows[positions[0]])
                raise CorruptError(self.path, None, f'the values of datapoint {row} have been removed')
            stored = self._ranks[rank]
            within = locations[positions] - (rank << RANK_SHIFT)
            is_held = within >= stored.read_length
            parts += [
                (stored, held, within[chosen], positions[chosen])
                for held, chosen in ((False, ~is_held), (True, is_held))
                if chosen.any()
            ]
        if not parts:
            return [RowGroup(MissingFields(self.open_field), rows, selection, None)]
        groups: list[RowGroup] = []
        shares = divide(selection, [positions for *_, positions in parts])
        for (stored, held, within, positions), share in zip(parts, shares, strict=True):
            if held:
                entries = [stored.held[row] for row in (within - stored.read_length).tolist()]
                planned = [
                    RowGroup(self._held_reader(name, entries), np.arange(len(entries)), {name: items}, None)
                    for name, items in share.items()
                ]
            else:
                assert stored.reader is not None
                planned = stored.reader.plan_rows(within, share)
            groups += [group.within(positions if len(parts) > 1 else None) for group in planned]
        return groups

    def _held_reader(self, name: str, entries: Sequence[Mapping[str, Any]]) -> NewValuesReader:
        values = {number: entry[name] for number, entry in enumerate(entries)}
        return NewValuesReader(name, NewValues(values, unsigned=False), self.open_field(name))

    def open_field(self, name: str) -> FieldReader:
        """Returns a field without records."""
        decoder = Decoders(None).get(name, self.schema[name], False, self.path)
        return FieldReader(name, self.schema[name], 0, MemoryRecords(f'field {name!r}', []), decoder)

    @property
    def readers(self) -> list[ShardedDatasetReader]:
        """The readers of all ranks with rows."""
        return [stored.reader for stored in list(self._ranks.values()) if stored.reader is not None]

    def reopen(self) -> None:
        """Finds the rows that all ranks have written."""
        self._expect_open()
        writer = self._own_writer()
        if writer is not None:
            writer.flush()  # After an error, e.g. a full disk, rows may be in memory only.
        ranks: dict[int, RankRows] = {}
        locations = np.full(self._source.length, NOT_STORED, np.int64)
        for rank in self._existing_ranks():
            ranks[rank], rows = self._read_rank(rank, 0)
            _locate(locations, rank, 0, rows)
        # In this order: other threads look up locations, and then ranks.
        self._ranks, self._locations = {**self._ranks, **ranks}, locations

    def _existing_ranks(self) -> list[int]:
        """Returns the ranks that have a folder."""
        try:
            names = self._store.names(self.path)
        except FileNotFoundError:
            return []
        ranks = []
        for name in sorted(names):
            if name.isascii() and name.isdigit() and name == str(int(name)) and int(name) < MAX_RANKS:
                ranks.append(int(name))
            elif not name.startswith('.'):
                detail = f'holds {name!r}: expected an empty folder, or a folder that bags.computed has made'
                raise FileExistsError(errno.EEXIST, detail, self.path)
        return sorted(ranks)

    def _folder(self, rank: int) -> str:
        return self._store.join(self.path, str(rank))

    def _read_rank(self, rank: int, start: int) -> tuple[RankRows, Int64s]:
        """Opens the dataset of a rank. Returns its rows, and the datapoints of the rows from `start` on."""
        folder = self._folder(rank)
        if self._store.exists(self._store.join(folder, 'spec.json')):
            detail = 'is a dataset: expected an empty folder, or a folder that bags.computed has made'
            raise FileExistsError(errno.EEXIST, detail, folder)
        try:
            reader = ShardedDatasetReader(folder)
        except FileNotFoundError:  # Its first shard is not there yet.
            return RankRows(None, []), np.empty(0, np.int64)
        self._expect_spec(reader)
        if len(reader):
            self._expect_source(folder, len(reader))
        writer = self._own_writer()
        if rank == self.rank and writer is not None and len(reader) != len(writer):
            raise CorruptError(folder, None, f'expected {len(writer)} written rows, got {len(reader)}')
        rows = np.asarray(reader.batch(range(start, len(reader)), DATAPOINT)[DATAPOINT], np.int64)
        outside = np.flatnonzero((rows < 0) | (rows >= self._source.length))
        if len(outside):
            row = int(outside[0])
            detail = (
                f'field {DATAPOINT!r}: expected an index of {self._source.length} datapoints, got {rows[row]}'
            )
            raise CorruptError(folder, start + row, detail)
        return RankRows(reader, []), rows

    def _expect_spec(self, reader: ShardedDatasetReader) -> None:
        """Raises SpecError if a dataset has other fields, or other types."""
        if reader.spec == self._spec:
            return
        advice = 'pass the types of this folder, or another folder'
        for name, text in self._spec.items():
            if reader.spec.get(name) != text:
                raise SpecError(
                    name, f'{text}, as in add', f'{reader.spec.get(name)} ({advice})', reader.path
                )
        raise SpecError(None, f'the fields {self._spec}', f'{reader.spec} ({advice})', reader.path)

    def _expect_source(self, folder: str, count: int) -> None:
        """Raises ValueError if rows are of another dataset, or of an unknown one."""
        found = source_of(self._store, folder).get('identity')
        if found == self._source.fingerprint:
            return
        if found is None:
            raise ValueError(
                f'{folder}: expected the fingerprint of a dataset in progress.json, which is missing or '
                f'damaged: it is unknown what the {count} rows were computed from; pass another folder'
            )
        raise ValueError(
            f'{folder}: expected values of the dataset with the fingerprint {self._source.fingerprint}, '
            f'{self._source.expression:.200}, got {count} rows of {found!r:.80}: this is another dataset, or '
            'it has changed since; pass another folder'
        )

    # Writing.

    def begin(self) -> None:
        """Opens the dataset of this rank for writing, unless it is open.

        Raises:
            BlockingIOError: Another process writes the dataset of this rank.
        """
        self._expect_open()
        if self._writer is not None:
            return
        try:
            self._writer = ShardedDatasetWriter(
                self._folder(self.rank),
                self._spec,
                resume=True,
                compression=self._compression,
                checksum=self._checksum,
            )
        except BlockingIOError as exc:
            exc.add_note(f'another process computes values as rank {self.rank}: pass rank= to bags.computed')
            raise
        made_from = {
            'kind': 'computed', 'fields': self._spec, 'length': self._source.length,
            'identity': self._source.fingerprint,
        }  # fmt: skip
        try:
            ProgressLog(self._writer, made_from, resume=True)
            self._read_own()  # An earlier process may have written rows since the folder was read.
        except BaseException:
            self._writer.abandon()
            self._writer = None
            raise

    def _own_writer(self) -> ShardedDatasetWriter | None:
        """Returns the open writer; None in a forked process."""
        return None if self._writer is None or self._writer.is_inherited else self._writer

    def _read_own(self) -> None:
        """Opens the dataset of this rank again, so that no row is held in memory."""
        known = self._ranks.get(self.rank, RankRows(None, []))
        start = known.read_length + len(known.held)
        self._ranks[self.rank], rows = self._read_rank(self.rank, start)
        _locate(self._locations, self.rank, start, rows)
        self._held_bytes, self._held_since = 0, time.monotonic()

    def append(self, rows: Int64s, entries: Mapping[str, Sequence[Any]]) -> None:
        """Appends the values of datapoints that are not stored; a kill of this process does not lose them.

        After an error, the first rows may have been appended, each with all its values.

        Args:
            rows: The datapoints of the source, shape (n,).
            entries: The records of each field, as `ComputedFields.encode_batch` returns them.

        Raises:
            OSError: E.g. the disk is full.
        """
        writer = self._writer
        assert writer is not None
        stored = self._ranks[self.rank]
        start = len(writer)
        assert start == stored.read_length + len(stored.held)
        indices = [writer.encoder.encode_field(DATAPOINT, row) for row in rows.tolist()]
        columns = {DATAPOINT: indices, **entries}
        try:
            writer.append_block([list(row) for row in zip(*map(columns.get, writer.schema), strict=True)])
            writer.flush()
        finally:
            count = len(writer) - start
            stored.held.extend({name: entries[name][number] for name in entries} for number in range(count))
            self._locations[rows[:count]] = (self.rank << RANK_SHIFT) + start + np.arange(count)
        self._held_bytes += sum(_size(entry) for values in entries.values() for entry in values)
        if self._held_bytes >= MAX_HELD_BYTES or time.monotonic() >= self._held_since + MAX_HELD_SECONDS:
            self._read_own()

    def close(self) -> None:
        """Closes the dataset of this rank, and all readers."""
        if self._writer is not None:
            self._writer.close()
        self._is_closed = True
        for reader in self.readers:
            reader.close()

    # Other processes.

    def __reduce__(self) -> tuple[Any, ...]:
        return ComputedStore, (
            self.path, self.schema, self._source, self.rank, self._compression, self._checksum,
        )  # fmt: skip


def _locate(locations: Int64s, rank: int, start: int, rows: Int64s) -> None:
    """Sets the locations of datapoints, given the datapoint of each row of a rank from `start` on.

    A datapoint that another rank has stored too keeps its location.
    """
    new = np.flatnonzero(locations[rows] == NOT_STORED)
    locations[rows[new]] = (rank << RANK_SHIFT) + start + new


def _size(entry: Any) -> int:
    """Returns the bytes of a record, or of the records of a sequence."""
    return sum(map(len, entry)) if isinstance(entry, list) else len(entry or b'')
