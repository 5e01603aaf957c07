"""Parquet files, and Arrow files and streams, read a part at a time: a row group or a record batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bags.arrow.types import import_pyarrow
from bags.interop.source import Collecting, find_filesystem, reading

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 1 << 22
"""Approximate bytes of the rows that are read from a Parquet file at a time."""
PARQUET_BUFFER = 1 << 16
MAX_BATCH = 1024
"""Maximum number of rows that are converted at a time."""
LITDATA_END = b'LDARW01\0'
"""At the end of a chunk of LitData that has an Arrow file before it, whose length follows that in 4 bytes."""


def open_table(path: str, storage_options: Mapping[str, Any], *, to_scan: bool = False) -> Table:
    """Opens a file, whose first and last bytes determine the format.

    Args:
        path: The file.
        storage_options: As in `bags.open`, for a URL.
        to_scan: Map a local file, so that `scan` reads no values. Otherwise a file is not mapped, so that the
            memory of the process stays small, whatever the size of the file.

    Raises:
        SourceError: The file cannot be read.
    """
    pa = import_pyarrow()
    with reading(path, 'Parquet or Arrow'):
        fs, inside = find_filesystem(path, storage_options)
        if 'file' in fs.protocol:
            file = pa.memory_map(inside) if to_scan else pa.OSFile(inside)
        else:
            file = pa.PythonFile(fs.open(inside, 'rb'), 'r')
        head = file.read(6)
        if head[:4] == b'PAR1':
            return _Parquet(file)
        if head[:4] == b'FEA1':
            raise ValueError(
                'it is of version 1 of Feather; expected one that write_feather wrote since 2020'
            )
        if (size := file.size()) > 12:
            end = file.read_at(12, size - 12)
            length = int.from_bytes(end[:4], 'little')
            if end[4:] == LITDATA_END and length < size - 12:
                file = pa.BufferReader(file.read_at(length, size - 12 - length))
                head = file.read(6)
        file.seek(0)
        return _Arrow(path, file, is_stream=head != b'ARROW1')


class _Parquet:
    format = 'parquet'
    schema: pa.Schema

    def __init__(self, file: pa.NativeFile) -> None:
        import pyarrow.parquet as pq

        # A page is read at a time, not a row group, which may be larger than memory.
        self._file = pq.ParquetFile(
            file, pre_buffer=False, buffer_size=PARQUET_BUFFER, page_checksum_verification=True
        )
        self.schema = self._file.schema_arrow

    def scan(self, damaged: list[tuple[str, str]]) -> tuple[dict[int, int], set[str]]:
        """Returns the number of rows by part, and the columns that may have nulls.

        Parts whose rows cannot be counted are left out, and added to `damaged`.
        """
        metadata = self._file.metadata
        parts, with_nulls = {}, set()
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            parts[number] = group.num_rows
            least: dict[str, int] = {}
            for chunk in map(group.column, range(group.num_columns)):
                is_known = chunk.statistics is not None and chunk.statistics.has_null_count
                least[chunk.path_in_schema] = chunk.statistics.null_count if is_known else 1
            for field in self.schema:
                # A null, or an empty list, counts as a null in each nested column.
                below = [least[name] for name in least if f'{name}.'.startswith(f'{field.name}.')]
                if field.nullable and min(below, default=1):
                    with_nulls.add(field.name)
        return parts, with_nulls

    def read(self, number: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yields some columns of a part; parts are read in order."""
        group = self._file.metadata.row_group(number)
        mean = max(1, group.total_byte_size // max(1, group.num_rows))
        size = max(1, min(MAX_BATCH, BATCH_BYTES // mean))
        # Threads of pyarrow that read Python files may abort a process that ends.
        yield from self._file.iter_batches(size, [number], columns, use_threads=False)


class _Arrow:
    format = 'arrow'
    schema: pa.Schema

    def __init__(self, path: str, file: pa.NativeFile, *, is_stream: bool) -> None:
        from pyarrow import ipc

        self._path, self._is_stream = path, is_stream
        self._reader = ipc.open_stream(file) if is_stream else ipc.open_file(file)
        self.schema = self._reader.schema
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
            with Collecting(damaged), reading(f'{self._path}, record batch {number}{after}', 'Arrow'):
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
        return parts, with_nulls

    def read(self, number: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        batch = self._batch(number).select(columns)
        batch.validate(full=True)  # Otherwise a wrong offset could read other memory.
        size = max(1, min(MAX_BATCH, BATCH_BYTES // max(1, batch.nbytes // max(1, batch.num_rows))))
        for first in range(0, batch.num_rows, size):
            yield batch.slice(first, size)


Table = _Parquet | _Arrow
"""An open file."""
