"""Writes a linked field of a dataset folder: its links, the entries of linked files, and other records.

Records and entries are written before the links to them, as records are written before their limits: after a
loss, each link in the folder still has its record.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from bags.bag.checksums import checksums_name, digest_function, digests_of
from bags.bag.limits import ENTRY
from bags.bag.memory_records import MemoryRecords
from bags.bag.options import CompressionNone, WriterOptions
from bags.concurrency import FifoCache
from bags.dataset import above
from bags.dataset.format.listing import dataset_of_shard
from bags.dataset.format.refs import MISSING
from bags.dataset.format.spec import FieldType
from bags.dataset.writing.field_writer import MAX_BAG_RECORDS, FieldWriter, RecordRun
from bags.dataset.writing.resume import ResumeState
from bags.formats.signatures import FORMAT_OF_TYPE, SIGNATURE_BYTES, identify, starts_with
from bags.links.files import LINKED, LinkedFile, pack_file
from bags.links.link import Link
from bags.links.link_builder import LinkRun
from bags.links.rows import ROW_BYTES, VALUES_FILE, pack_rows
from bags.links.segments import ParsedFiles, Segment
from bags.links.sources import LinkSources, OpenedLink
from bags.storage import Store
from bags.storage.range_file import read_pieces
from bags.validation import merge

SEGMENT_FORMATS = ('video', 'audio')
"""Formats of types whose records can be parts of files."""
MAX_KNOWN_FILES = 1 << 16
"""Maximum number of files whose numbers are cached. A file that is linked again later gets another entry."""


class LinkedFieldWriter(FieldWriter):
    """Writes the links of a field, and the bags of its values and file entries.

    Args:
        values, files: The writers of the records that are not links, and of the entries of files.
        sources: Opens the files of links.
        is_checked: Whether to compare the first bytes of linked media with the type of the field.
        store, name, field_type, path, options, **keywords: As in `FieldWriter`.
    """

    def __init__(
        self,
        values: FieldWriter,
        files: FieldWriter,
        sources: LinkSources,
        is_checked: bool,
        store: Store,
        name: str,
        field_type: FieldType,
        path: str,
        options: WriterOptions,
        **keywords: Any,
    ) -> None:
        super().__init__(store, name, field_type, path, options, **keywords)
        self._values = values
        self._files = files
        self.sources = sources
        self._max_buffered = options.buffer_size
        self._format = FORMAT_OF_TYPE.get(field_type.format) if is_checked else None

        def add(file: LinkedFile) -> int:  # Not a method: a cycle would keep the files open.
            files.write_record(pack_file(sources.stored(file)))
            return files.count

        self._numbers: FifoCache[LinkedFile, int] = FifoCache(add, MAX_KNOWN_FILES)
        self._parsed = ParsedFiles()

    def write_record(self, record: Any) -> int:
        """Appends a link or another record."""
        if record is None:
            return MISSING
        index = self.count
        is_file = hasattr(record, 'read')
        try:
            if index >= MAX_BAG_RECORDS:
                raise ValueError(f'expected at most {MAX_BAG_RECORDS} records in a folder')
            if isinstance(record, Link):
                row = self._row_of_link(record)
            elif is_file:
                row = self._row_of_file(record)
            else:
                self._values.write(record)
                self._values.count += 1
                end = self._values.appender.end + self._values.buffered - ENTRY * len(self._values.pending)
                digest = digest_function()(record) if self.appender.sums is not None else 0
                row = [VALUES_FILE, end - len(record), end, digest, 0, 0]
        except (ValueError, EOFError) as exc:
            raise self.error(str(exc)) from exc
        finally:
            if is_file:
                record.close()
        self.pending.append(row)
        self.count = index + 1
        self.buffered = (ROW_BYTES + ENTRY) * len(self.pending) + self._values.buffered
        if self.buffered >= self._max_buffered:
            self.flush()
        return index

    def _row_of_link(self, link: Link) -> list[int]:
        has_sums, is_part_type = self.appender.sums is not None, self.type.format in SEGMENT_FORMATS
        if isinstance(link, OpenedLink):
            if link.times is None and not has_sums and (link.frames is None or is_part_type):
                return [self._numbers[link.entry], link.offset, link.stop, 0, *(link.frames or (0, 0))]
        else:
            link = self.sources.opener.open(link)
            head = bytes(link[:SIGNATURE_BYTES]) if self._format is not None else b''
            if self._format is not None and not starts_with(head, self._format):
                detail = f'expected {self._format}, got {identify(head)}'
                raise ValueError(f'{detail} in {link.file.path} at {link.offset}')
        start, stop, digest = link.offset, link.stop, 0
        part = Segment(self.type, 0, 0, link.file, start, stop, (link.entry, start, stop), self._parsed)
        if link.times is not None or link.frames is not None:
            if not is_part_type:
                detail = f'expected a field of type {" or ".join(SEGMENT_FORMATS)} for a part of a file'
                raise ValueError(f'{detail}, got {self.type.text}')
            if link.times is not None:
                first, end = above.find_frames(part, link.times, *self.type.args)
            else:
                assert link.frames is not None
                first, end = link.frames
            part = part._replace(first=first, stop=end)
        if has_sums:
            digest = part.digest()
        return [self._numbers[link.entry], start, stop, digest, part.first, part.stop]

    def _row_of_file(self, file: BinaryIO) -> list[int]:
        self.flush()
        start, digest = file.tell(), 0
        size = file.seek(0, os.SEEK_END) - start
        file.seek(start)
        if self.appender.sums is not None:
            (digest,) = digests_of(read_pieces(file, size), None)
            file.seek(start)
        self._values.write_file(file)
        self._values.count += 1
        end = self._values.appender.end
        return [VALUES_FILE, end - size, end, digest, 0, 0]

    def write_runs(self, runs: Iterable[LinkRun | RecordRun]) -> None:
        """Appends runs of links, or of records that are stored here, and makes them readable.

        Raises:
            EncodeError: A file cannot be linked, or there are too many records.
        """
        self.flush()
        for run in runs:
            if self.count + len(run.sizes) > MAX_BAG_RECORDS:
                raise self.error(f'expected at most {MAX_BAG_RECORDS} records in a folder')
            if isinstance(run, RecordRun):
                self._write_values(run)
                continue
            try:
                numbers = [
                    VALUES_FILE if isinstance(file, MemoryRecords) else self._numbers[file]
                    for file in run.files
                ]
            except ValueError as exc:
                raise self.error(str(exc)) from exc
            run = self._write_held(run)
            self._files.flush()
            if len(run.which):
                data, sizes = pack_rows(np.array(numbers)[run.which], run.starts, run.stops, run.frames)
                digests = None
                if self.appender.sums is not None:
                    digests = run.digests.tolist()
                self.appender.append([([data], len(data))], sizes, [], digests)
            self.count = len(self)
        if self.syncs_flushes:
            self.appender.sync_flush()

    def _write_values(self, run: RecordRun) -> None:
        """Appends records that are not links."""
        digests = None
        if self.appender.sums is not None:
            data = run.data
            if isinstance(data, Sequence):
                digests = digests_of(data, run.sizes.tolist())
            else:
                start = data.tell()
                digests = digests_of(read_pieces(data, int(run.sizes.sum())), run.sizes.tolist())
                data.seek(start)
        self._values.write_runs([run])
        stops = self._values.appender.end - int(run.sizes.sum()) + np.cumsum(run.sizes)
        if len(stops):
            rows, sizes = pack_rows(np.full(len(stops), VALUES_FILE), stops - run.sizes, stops)
            self.appender.append([([rows], len(rows))], sizes, [], digests)
        self.count = len(self)

    def _write_held(self, run: LinkRun) -> LinkRun:
        """Writes the in-memory records of a run, and returns the run with their positions."""
        for number, file in enumerate(run.files):
            mine = np.flatnonzero(run.which == number)
            if isinstance(file, MemoryRecords) and len(mine):
                records = file.read_bytes(run.starts[mine], run.stops[mine])
                sizes = run.sizes[mine]
                self._values.write_runs([RecordRun(records, sizes, True)])
                starts, stops = run.starts.copy(), run.stops.copy()
                stops[mine] = self._values.appender.end - int(sizes.sum()) + np.cumsum(sizes)
                starts[mine] = stops[mine] - sizes
                run = run._replace(starts=starts, stops=stops)
        return run

    def flush(self) -> None:
        rows = self.pending
        if rows:
            self._flush_values(rows)
            self._files.flush()
            table = np.array(rows, np.uint64)
            data, sizes = pack_rows(table[:, 0], table[:, 1], table[:, 2], table[:, 4:])
            self.appender.append([([data], len(data))], sizes, rows, table[:, 3].tolist())
        self.buffered = 0
        if self.syncs_flushes:
            self.appender.sync_flush()

    def _flush_values(self, rows: list[Any]) -> None:
        """Writes the records that are not links. After a failed upload, they follow the sent part."""
        values = self._values
        before, size = values.appender.end, values.buffered - ENTRY * len(values.pending)
        values.flush()
        moved = values.appender.end - size - before
        for row in rows if moved else ():
            if row[0] == VALUES_FILE and row[1] >= before:
                row[1], row[2] = row[1] + moved, row[2] + moved

    def rollback(self, count: int) -> None:
        first = max(0, count - self.appender.count)
        dropped = sum(row[0] == VALUES_FILE for row in self.pending[first:])
        del self.pending[first:]
        self._values.rollback(self._values.count - dropped)
        self.buffered = (ROW_BYTES + ENTRY) * len(self.pending) + self._values.buffered
        self.count = len(self)

    def close(self, *, keep: bool = True) -> None:
        if not keep:
            super().close(keep=False)  # First, so that each link has its record.
        self._values.close(keep=keep)
        self._files.close(keep=keep)
        if keep:
            super().close()


def open_linked_field(
    store: Store,
    folder: str,
    name: str,
    field_type: FieldType,
    options: WriterOptions,
    storage_options: Mapping[str, Any] | None,
    is_checked: bool,
    mode: str,
    kept: ResumeState,
) -> list[FieldWriter]:
    """Opens the bags of a linked field: the values, the files, and the links.

    Args:
        store, folder: The folder.
        name, field_type, options, mode: As in `FieldWriter`.
        storage_options: Options of object stores, with which linked files are opened.
        is_checked: As in `LinkedFieldWriter`.
        kept: The records that are kept of the folder.

    Raises:
        ValueError: Checksums are requested, but the existing records have none.
    """
    links = store.join(folder, name + LINKED[0])
    options = merge(WriterOptions, options, {'compression': CompressionNone()})
    plain = merge(WriterOptions, options, {'checksum': False, 'buffer_size': 1 << 62})
    if options.checksum and store.exists(links) and not store.exists(checksums_name(links)):
        raise ValueError(f'{links}: checksum: expected a new folder, as its records have no checksums')
    dataset = dataset_of_shard(store, folder) or folder
    sources = LinkSources(folder, dataset.rpartition('/')[0], storage_options)
    with contextlib.ExitStack() as stack:

        def open_part(part: str) -> FieldWriter:
            path, limit = store.join(folder, f'{name}.{part}'), kept.limit(f'{name}/{part}')
            keywords: Any = {'mode': mode, 'truncate_to': limit}
            found = FieldWriter(store, name, field_type, path, plain, **keywords)
            stack.callback(found.close)
            return found

        values, files = open_part('values'), open_part('files')
        made = LinkedFieldWriter(
            values, files, sources, is_checked, store, name, field_type, links, options,
            mode=mode, truncate_to=kept.limit(name),
        )  # fmt: skip
        stack.pop_all()
    return [values, files, made]
