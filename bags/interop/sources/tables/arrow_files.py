"""Parquet files, and Arrow files and streams, read a part at a time: a row group or a record batch."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bags.arrow.types import dtype_of, import_pyarrow
from bags.concurrency import cached_attribute
from bags.indexing import chunk_length
from bags.interop.formats import FORMATS
from bags.interop.ignored_files import matches
from bags.interop.records import open_file, read_at_most
from bags.interop.source import as_source_errors, check_claim, collect_errors
from bags.interop.sources.tables.csv_tables import CsvTable
from bags.interop.sources.tables.json_lines import JsonLines
from bags.interop.sources.tables.parquet_footer import ParquetRowGroup, read_row_groups
from bags.interop.sources.tables.text_tables import MAX_BYTES, TextTable
from bags.interop.stores import find_store

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 1 << 22
"""Approximate bytes of the rows that are read from a Parquet file at a time."""
PARQUET_BUFFER = 1 << 16
MAX_BATCH = 1024
"""Maximum number of rows that are converted at a time."""
TEXTS = FORMATS['csv'].files + FORMATS['jsonl'].files
_STREAM_OFFSET = 8
"""Bytes of an Arrow file before its stream of batches."""
LITDATA_END = b'LDARW01\0'
"""The end of a LitData chunk with an Arrow file: the file, its length in 4 bytes, then these bytes."""


def open_table(path: str, storage_options: Mapping[str, Any], *, to_scan: bool = False) -> Table:
    """Opens a Parquet or Arrow file; its first and last bytes determine the format.

    Args:
        path: The file.
        storage_options: As in `bags.open`, for a URL.
        to_scan: Map a local file, so that `scan` reads no values. By default, a file is not mapped, so that
            the memory of the process does not grow with the file.

    Raises:
        SourceError: The file cannot be read.
    """
    pa = import_pyarrow()
    with as_source_errors(path, 'Parquet or Arrow'):
        store, inside = find_store(path, storage_options)
        if store.is_remote:
            file = pa.PythonFile(open_file(path, storage_options), 'r')
        else:
            file = pa.memory_map(inside) if to_scan else pa.OSFile(inside)
        head = file.read(6)
        if head[:4] == b'PAR1':
            return _check_names(_ParquetTable(file))
        if head[:4] == b'FEA1':
            raise ValueError(
                'got version 1 of Feather; expected version 2, which write_feather writes since 2020'
            )
        if (size := file.size()) > 12:
            end = file.read_at(12, size - 12)
            length = int.from_bytes(end[:4], 'little')
            if end[4:] == LITDATA_END and length < size - 12:
                file = pa.BufferReader(file.read_at(length, size - 12 - length))
                head = file.read(6)
        file.seek(0)
        return _check_names(_ArrowTable(path, file, is_stream=head != b'ARROW1'))


def is_text(path: str) -> bool:
    """Returns whether a file is CSV or JSONL, by its name."""
    return matches(path.rpartition('/')[2], TEXTS)


def open_text(path: str, storage_options: Mapping[str, Any], *, is_json: bool = False) -> TextTable:
    """Reads a CSV or JSONL file.

    Args:
        path: The file.
        storage_options: As in `bags.open`, for a URL.
        is_json: Whether the file is JSONL whatever its name is.

    Raises:
        SourceError: The file cannot be read.
    """
    name = path.lower().removesuffix('.gz')
    table = JsonLines if is_json or name.endswith(('.jsonl', '.ndjson')) else CsvTable
    with as_source_errors(path, 'CSV or JSONL'), open_file(path, storage_options) as file:
        if not path.lower().endswith('.gz'):
            return table(path, read_at_most(file, MAX_BYTES))
        with gzip.open(file) as text:
            return table(path, read_at_most(text, MAX_BYTES))


class _ParquetTable:
    format = 'parquet'
    schema: pa.Schema

    def __init__(self, file: pa.NativeFile) -> None:
        import pyarrow.parquet as pq

        self._native = file
        # Reads a page at a time, because a row group may be larger than memory.
        self._file = pq.ParquetFile(
            file, pre_buffer=False, buffer_size=PARQUET_BUFFER, page_checksum_verification=True
        )
        self.schema = self._file.schema_arrow

    @cached_attribute
    def _groups(self) -> list[ParquetRowGroup]:
        return read_row_groups(self._native)

    def scan(self, damaged: list[tuple[str, str]]) -> tuple[dict[int, int], set[str]]:
        """Returns the number of rows of each part, and the columns that may have nulls.

        Parts whose rows cannot be counted are left out, and added to `damaged`.

        Raises:
            ValueError: The file is damaged, or announces too many rows for its bytes.
        """
        names, with_nulls = set(self.schema.names), set()
        for group in self._groups:
            if group.nulls.keys() != names:
                found = ', '.join(group.nulls)
                raise ValueError(f'expected columns {", ".join(names)} in each row group, got {found}')
            # A null, or an empty list, counts as a null in each nested column.
            with_nulls |= {field.name for field in self.schema if field.nullable and group.nulls[field.name]}
        parts = {number: group.length for number, group in enumerate(self._groups)}
        _check_rows(sum(parts.values()), self.schema, self._native)
        return parts, with_nulls

    def read(self, number: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yields some columns of a part; parts are read in order."""
        group = self._groups[number]
        size = chunk_length(group.length, group.size, BATCH_BYTES, MAX_BATCH)
        # Threads of pyarrow that read Python files may abort a process that ends.
        yield from self._file.iter_batches(size, [number], columns, use_threads=False)


class _ArrowTable:
    format = 'arrow'
    schema: pa.Schema

    def __init__(self, path: str, file: pa.NativeFile, *, is_stream: bool) -> None:
        from pyarrow import ipc

        self._path, self._file, self._is_stream = path, file, is_stream
        self._reader = ipc.open_stream(file) if is_stream else ipc.open_file(file)
        self.schema = self._reader.schema
        if not is_stream:  # The schema is also at the start of the file.
            file.seek(_STREAM_OFFSET)
            if not ipc.open_stream(file).schema.equals(self.schema, check_metadata=True):
                raise ValueError('expected the same columns at its start and in its footer, got others')
        self._read = 0
        """Number of batches read from a stream."""

    def _batch(self, number: int) -> pa.RecordBatch:
        if not self._is_stream:
            return self._reader.get_batch(number)
        for _ in range(self._read, number):
            self._reader.read_next_batch()
        self._read = number + 1
        return self._reader.read_next_batch()

    def scan(self, damaged: list[tuple[str, str]]) -> tuple[dict[int, int], set[str]]:
        parts, with_nulls = {}, set()
        for number in itertools.count() if self._is_stream else range(self._reader.num_record_batches):
            found = len(damaged)
            after = ' and those after it' * self._is_stream
            with (
                collect_errors(damaged),
                as_source_errors(f'{self._path}, record batch {number}{after}', 'Arrow'),
            ):
                try:
                    batch = self._batch(number)  # From a mapped file, this reads only the sizes.
                except StopIteration:
                    break
                batch.validate()
                parts[number] = batch.num_rows
                columns = zip(batch.schema.names, batch.columns, strict=True)
                with_nulls |= {name for name, column in columns if column.null_count}
            if self._is_stream and len(damaged) > found:
                break
        _check_rows(sum(parts.values()), self.schema, self._file)
        return parts, with_nulls

    def read(self, number: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        batch = self._batch(number).select(columns)
        batch.validate(full=True)  # Otherwise a wrong offset could read other memory.
        size = chunk_length(batch.num_rows, batch.nbytes, BATCH_BYTES, MAX_BATCH)
        for first in range(0, batch.num_rows, size):
            yield batch.slice(first, size)


def _check_names(table: Table) -> Table:
    """Raises ValueError for duplicate column names, or names that are not UTF-8."""
    names = table.schema.names
    if len(set(names)) < len(names):
        raise ValueError(f'expected each column once, got {", ".join(names)}')
    return table


def _check_rows(count: int, schema: pa.Schema, file: pa.NativeFile) -> None:
    """Raises ValueError for more rows than a file of this size can plausibly hold."""
    dtypes = [dtype_of(field.type) for field in schema]
    row = sum(np.dtype(dtype or 'u1').itemsize for dtype in dtypes)
    check_claim(count * row, file.size(), f'{count} rows')


Table = _ParquetTable | _ArrowTable
"""An open file."""
