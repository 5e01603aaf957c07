"""CSV and JSONL files. Arrow's readers infer the types from all rows."""

from __future__ import annotations

import csv as csv_rows
import io
import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bags.arrow.types import import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

MAX_BATCH = 1024
"""Maximum number of rows that are converted at a time."""
MAX_BYTES = 1 << 31
"""Maximum size of a file, because it is parsed as a whole."""
_NUMBER = r'^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$'
_JSON_ROW = re.compile(r'^(?:JSON parse error: )?(.*) in row (\d+)$', re.DOTALL)
_CSV_ROW = re.compile(r'^CSV parse error: Row #(\d+): Expected (\d+) columns, got (.*)$', re.DOTALL)


class TextTable:
    """A file of rows as text, in memory.

    Args:
        path: The file; its extension determines the separator of columns.
        data: The content of the file.

    Raises:
        ValueError: The file is not UTF-8, or a row cannot be parsed; names the line.
    """

    def __init__(self, path: str, data: bytes) -> None:
        name = path.lower().removesuffix('.gz')
        self.format = 'jsonl' if name.endswith(('.jsonl', '.ndjson')) else 'csv'
        self.notes: list[str] = []
        if len(data) >= MAX_BYTES:
            raise ValueError(f'expected less than {MAX_BYTES:,} bytes, got {len(data):,}: split it')
        try:
            data.decode('utf-8')
        except UnicodeDecodeError as exc:
            line = data.count(b'\n', 0, exc.start) + 1
            raise ValueError(f'line {line}: expected UTF-8, got the byte {data[exc.start]:#04x}') from None
        self._table = self._parse(path, name, data)
        self.schema = self._table.schema

    def _parse(self, path: str, name: str, data: bytes) -> pa.Table:
        """Parses the file in one block, so that a type is inferred from all rows."""
        pa = import_pyarrow()
        if self.format == 'jsonl':
            from pyarrow import json

            options = json.ReadOptions(use_threads=False, block_size=len(data) + 1)
            try:
                return json.read_json(pa.BufferReader(data), read_options=options)
            except pa.ArrowInvalid as exc:
                if found := _JSON_ROW.match(str(exc)):
                    raise ValueError(f'line {_json_line(data, int(found[2]))}: {found[1]}') from None
                raise
        from pyarrow import csv

        delimiter = '\t' if name.endswith('.tsv') else ','
        try:
            table = csv.read_csv(
                pa.BufferReader(data),
                read_options=csv.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            )
        except pa.ArrowInvalid as exc:
            if found := _CSV_ROW.match(str(exc)):
                line = _csv_line(data, delimiter, int(found[1]) - 1)
                raise ValueError(f'line {line}: expected {found[2]} values, got {found[3]:.200}') from None
            raise
        _expect_closed_quotes(table, data)
        for column, row, value in _mixed(table):
            line = _csv_line(data, delimiter, row + 1)
            about = f'column {column!r} is text: line {line} has {value!r:.80}, most others have numbers'
            self.notes.append(f'{path}: {about}')
        if table.num_columns == 1 and ';' in table.column_names[0]:
            self.notes.append(
                f'{path}: one column {table.column_names[0]!r}: expected columns separated by commas'
            )
        return table

    def scan(self, damaged: list[tuple[str, str]]) -> tuple[dict[int, int], set[str]]:
        columns = zip(self._table.column_names, self._table.columns, strict=True)
        return {0: self._table.num_rows}, {name for name, column in columns if column.null_count}

    def read(self, number: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        yield from self._table.select(columns).to_batches(max_chunksize=MAX_BATCH)


def _mixed(table: pa.Table) -> Iterator[tuple[str, int, str]]:
    """Yields text columns with mostly numbers: the name, the first row with another text, and the text."""
    import pyarrow.compute as pc

    for name, column in zip(table.column_names, table.columns, strict=True):
        if import_pyarrow().types.is_string(column.type):
            texts = pc.invert(pc.match_substring_regex(column, _NUMBER)).to_pylist()
            if 0 < sum(texts) < len(texts) / 2:
                row = texts.index(True)
                yield name, row, column[row].as_py()


def _expect_closed_quotes(table: pa.Table, data: bytes) -> None:
    """Raises ValueError for an unclosed quote: the last value then holds all lines after it."""
    last = table.columns[-1][-1].as_py() if table.num_rows else None
    if isinstance(last, str) and '\n' in last:
        value = last.replace('"', '""').encode()
        if data.endswith(b'"' + value):
            line = data.count(b'\n', 0, len(data) - len(value)) + 1
            raise ValueError(f'line {line}: expected a closing quote, got {last[:40]!r}')


def _json_line(data: bytes, row: int) -> int:
    """Returns the line of a row, counted from 1; empty lines are not rows."""
    filled = (number for number, line in enumerate(io.BytesIO(data), 1) if line.strip())
    return next(itertools.islice(filled, row, None), row + 1)


def _csv_line(data: bytes, delimiter: str, row: int) -> int:
    """Returns the first line of a row, counted from 1. The header is row 0; quoted values may span lines."""
    lines = io.TextIOWrapper(io.BytesIO(data), 'utf-8', newline='')
    rows, first = csv_rows.reader(lines, delimiter=delimiter), 1
    try:
        for values in rows:
            if values:
                if not row:
                    return first
                row -= 1
            first = rows.line_num + 1
    except csv_rows.Error:  # E.g. a value of over 128 KB.
        pass
    return first + row
