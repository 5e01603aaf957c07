"""CSV and JSONL files, whose types Arrow's readers infer from all rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bags.arrow.types import import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

MAX_BATCH = 1024
"""Maximum number of rows that are converted at a time."""
MAX_BYTES = 1 << 31
"""Maximum size of a file: it is parsed as a whole."""
_NUMBER = r'^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$'
_ROW = re.compile(r'^(?:JSON parse error: )?(.*) in row (\d+)$', re.DOTALL)


class TextTable:
    """A file of rows as text, in memory.

    Args:
        path: The file; its extension says which characters separate columns.
        data: Its bytes.

    Raises:
        ValueError: It is not UTF-8, or a row cannot be parsed; names the line.
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
                if found := _ROW.match(str(exc)):
                    raise ValueError(f'line {int(found[2]) + 1}: {found[1]}') from None
                raise
        from pyarrow import csv

        table = csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=csv.ParseOptions(
                delimiter='\t' if name.endswith('.tsv') else ',', newlines_in_values=True
            ),
        )
        self.notes += [f'{path}: {note}' for note in _mixed(table)]
        return table

    def scan(self, damaged: list[tuple[str, str]]) -> tuple[dict[int, int], set[str]]:
        columns = zip(self._table.column_names, self._table.columns, strict=True)
        return {0: self._table.num_rows}, {name for name, column in columns if column.null_count}

    def read(self, number: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        yield from self._table.select(columns).to_batches(max_chunksize=MAX_BATCH)


def _mixed(table: pa.Table) -> Iterator[str]:
    """Yields a note for each column of text most of whose values are numbers."""
    import pyarrow.compute as pc

    for name, column in zip(table.column_names, table.columns, strict=True):
        if import_pyarrow().types.is_string(column.type):
            texts = pc.invert(pc.match_substring_regex(column, _NUMBER)).to_pylist()
            if 0 < sum(texts) < len(texts) / 2:
                row = texts.index(True)
                value = column[row].as_py()
                yield f'column {name!r} is text: row {row + 2} has {value!r:.80}, most others have numbers'
