"""Parquet files of any file system: whole tables, and rows from the first to the last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bags.errors import SourceError

__all__ = ['ROWS', 'Rows', 'read_table']

ROWS = 256
"""Rows that are read at a time."""


def read_table(fs: Any, path: str, without: tuple[str, ...] = ()) -> Any:
    """Returns a file as a table of Arrow.

    Args:
        fs: An fsspec file system.
        path: The file there.
        without: What the names of columns that are left out start with.

    Raises:
        SourceError: It is damaged.
    """
    import pyarrow.parquet as pq

    try:
        # Not pq.read_table: with files of Python, its threads may abort the process when it ends.
        with fs.open(path, 'rb') as file:
            parquet = pq.ParquetFile(file)
            return parquet.read([name for name in parquet.schema_arrow.names if not name.startswith(without)])
    except (OSError, ValueError) as exc:  # Errors of Arrow are both.
        raise SourceError(path, f'cannot be read as Parquet: {exc}') from exc


class Rows:
    """The rows of a Parquet file, from the first to the last."""

    def __init__(self, fs: Any, path: str, columns: list[str]) -> None:
        self._path = path
        self._error: SourceError | None = None
        self._left: list[Any] = []
        self._batches = self._read(fs, columns)

    def _read(self, fs: Any, columns: list[str]) -> Iterator[Any]:
        import pyarrow.parquet

        with fs.open(self._path, 'rb') as file:
            parquet = pyarrow.parquet.ParquetFile(file, pre_buffer=False)
            if missing := set(columns) - set(parquet.schema_arrow.names):
                raise ValueError(f'expected columns {", ".join(sorted(missing))}, as meta/info.json says')
            yield from parquet.iter_batches(ROWS, columns=columns)

    def take(self, count: int) -> Any:
        """Returns a table of the next rows, or the error for which there is none."""
        import pyarrow as pa

        try:
            while self._error is None and (have := sum(map(len, self._left))) < count:
                batch = next(self._batches, None)
                if batch is None:
                    raise ValueError(f'expected {count} more rows, got {have}')
                self._left.append(batch)
        except (OSError, ValueError) as exc:  # Errors of Arrow too.
            self._error = SourceError(self._path, str(exc))
        if self._error is not None:
            return self._error
        table = pa.Table.from_batches(self._left)
        self._left = table.slice(count).to_batches()
        return table.slice(0, count)
