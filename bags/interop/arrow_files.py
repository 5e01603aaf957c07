"""Parquet files, and Arrow files and streams, read a part at a time."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bags.dataset.arrow_types import import_pyarrow
from bags.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ['Table', 'open_table']

BATCH_BYTES = 1 << 22
"""Bytes of the rows that are read from a Parquet file at a time, about."""
MAX_BATCH = 1024
"""Rows that are converted at a time."""


def open_table(path: str, storage_options: Mapping[str, Any]) -> Table:
    """Opens a file, of which its first bytes tell the format.

    Raises:
        OSError, ValueError: It cannot be read.
        SourceError: It is of a version that pyarrow does not read any more.
    """
    import fsspec

    pa = import_pyarrow()
    fs, inside = fsspec.core.url_to_fs(path, **storage_options)
    is_local = 'file' in fs.protocol
    file = pa.memory_map(inside) if is_local else pa.PythonFile(fs.open(inside, 'rb'), 'r')
    head = file.read(6)
    file.seek(0)
    if head[:4] == b'PAR1':
        return _Parquet(file, is_mapped=is_local)
    if head[:4] == b'FEA1':
        raise SourceError(
            path, 'is of version 1 of Feather; expected one that write_feather wrote since 2020'
        )
    return _Arrow(file, is_stream=head != b'ARROW1')


class Table(abc.ABC):
    """An open file."""

    format: str
    schema: pa.Schema

    @abc.abstractmethod
    def count(self) -> tuple[int, set[str]]:
        """Returns the number of rows, and the columns that may have nulls."""

    @abc.abstractmethod
    def batches(self, columns: list[str], start: int) -> Iterator[pa.RecordBatch]:
        """Yields some columns from a row on."""


class _Parquet(Table):
    format = 'parquet'

    def __init__(self, file: pa.NativeFile, *, is_mapped: bool) -> None:
        import pyarrow.parquet as pq

        # Threads that read files of Python may abort the process when it ends.
        self._is_mapped = is_mapped
        # A page is read at a time, not a row group, which may be larger than memory.
        self._file = pq.ParquetFile(file, pre_buffer=False, buffer_size=0 if is_mapped else 1 << 16)
        self.schema = self._file.schema_arrow

    def count(self) -> tuple[int, set[str]]:
        metadata = self._file.metadata
        with_nulls = set()
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            least: dict[str, int] = {}
            for chunk in map(group.column, range(group.num_columns)):
                is_known = chunk.statistics is not None and chunk.statistics.has_null_count
                nulls = chunk.statistics.null_count if is_known else 1
                name = chunk.path_in_schema
                least[name] = nulls
            for field in self.schema:
                # A null is one in each part; so is an empty list.
                parts = [
                    nulls
                    for name, nulls in least.items()
                    if name == field.name or name.startswith(f'{field.name}.')
                ]
                if field.nullable and min(parts, default=1):
                    with_nulls.add(field.name)
        return metadata.num_rows, with_nulls

    def batches(self, columns: list[str], start: int) -> Iterator[pa.RecordBatch]:
        for number in range(self._file.num_row_groups):
            group = self._file.metadata.row_group(number)
            if start >= group.num_rows:
                start -= group.num_rows
                continue
            mean = max(1, group.total_byte_size // max(1, group.num_rows))
            size = max(1, min(MAX_BATCH, BATCH_BYTES // mean))
            for batch in self._file.iter_batches(size, [number], columns, use_threads=self._is_mapped):
                if start < batch.num_rows:
                    yield batch.slice(start)
                start = max(0, start - batch.num_rows)


class _Arrow(Table):
    format = 'arrow'

    def __init__(self, file: pa.NativeFile, *, is_stream: bool) -> None:
        from pyarrow import ipc

        self._reader = ipc.open_stream(file) if is_stream else ipc.open_file(file)
        self._is_stream = is_stream
        self.schema = self._reader.schema

    def _read(self) -> Iterator[pa.RecordBatch]:
        if self._is_stream:
            yield from self._reader
        else:
            yield from map(self._reader.get_batch, range(self._reader.num_record_batches))

    def count(self) -> tuple[int, set[str]]:
        rows, with_nulls = 0, set()
        for batch in self._read():  # Of a mapped file, this reads the sizes alone.
            rows += batch.num_rows
            with_nulls |= {
                name
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
                if column.null_count
            }
        return rows, with_nulls

    def batches(self, columns: list[str], start: int) -> Iterator[pa.RecordBatch]:
        for batch in self._read():
            size = max(1, min(MAX_BATCH, BATCH_BYTES // max(1, batch.nbytes // max(1, batch.num_rows))))
            for first in range(start, batch.num_rows, size):
                yield batch.select(columns).slice(first, size)
            start = max(0, start - batch.num_rows)
