"""CSV and TSV files. Arrow's reader infers the types from all rows."""

from __future__ import annotations

import csv as csv_rows
import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bags.arrow.types import import_pyarrow
from bags.dataset.format.registry import INTEGER_FORMATS
from bags.interop.sources.tables.arrow_values import values_of
from bags.interop.sources.tables.text_tables import MAX_BATCH, Inference, TextColumn, TextTable
from bags.interop.sources.tables.text_values import array_of, convert_each, is_exact, text_converter

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBER = r'^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$'
_INTEGER = r'^\s*[-+]?\d+\s*$'
_LEADING_ZERO = r'^\s*[-+]?0[0-9xX]'
MAX_DIGITS = 100
"""Number of digits by which an integer counts as one of more than 64 bits."""
_CSV_ROW = re.compile(r'^CSV parse error: Row #(\d+): Expected (\d+) columns, got (.*)$', re.DOTALL)
_OF_TEXT = ('utf8', 'bytes', 'json', 'float', 'bool', *INTEGER_FORMATS)
"""Formats whose values are converted from the text of a CSV file."""


class CsvTable(TextTable):
    """A CSV or TSV file."""

    format = 'csv'

    def __init__(self, path: str, data: bytes) -> None:
        super().__init__(path, data)
        self._delimiter = '\t' if path.lower().removesuffix('.gz').endswith('.tsv') else ','

    def _parse(self, types: dict[str, pa.DataType] | None = None) -> pa.Table:
        """Parses the file in one block, so that a type is inferred from all rows; only the given columns."""
        pa = import_pyarrow()
        from pyarrow import csv

        names = None if types is None else [*types]
        options = csv.ConvertOptions(
            column_types=types, include_columns=names, include_missing_columns=names is not None
        )
        try:
            return csv.read_csv(
                pa.BufferReader(self.data),
                read_options=csv.ReadOptions(use_threads=False, block_size=len(self.data) + 1),
                parse_options=csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
                convert_options=options,
            )
        except pa.ArrowInvalid as exc:
            if found := _CSV_ROW.match(str(exc)):
                line = self._line(int(found[1]) - 1)
                raise ValueError(f'line {line}: expected {found[2]} values, got {found[3]:.200}') from None
            raise

    def infer(self) -> Inference:
        pa = import_pyarrow()
        table = self._parse()
        names = table.column_names
        if len(set(names)) < len(names):
            raise ValueError(f'expected each column once, got {", ".join(names)}')
        _expect_closed_quotes(table, self.data)
        for column, row, value in _mixed(table):
            self.note_text(column, self._line(row + 1), value, 'most others have numbers')
        if table.num_columns == 1 and ';' in names[0]:
            self.notes.append(f'{self.path}: one column {names[0]!r}: expected columns separated by commas')
        columns = dict(zip(names, table.columns, strict=True))
        found = Inference(
            {name: column.type for name, column in columns.items()},
            table.num_rows,
            {name for name, column in columns.items() if column.null_count},
        )
        numbers = [
            name
            for name, type in found.types.items()
            if pa.types.is_integer(type) or pa.types.is_floating(type)
        ]
        if numbers:
            texts = self._parse(dict.fromkeys(numbers, pa.string()))
            for name in numbers:
                self._check_numbers(found, name, columns[name], texts.column(name))
        return found

    def _check_numbers(
        self, found: Inference, name: str, numbers: pa.ChunkedArray, texts: pa.ChunkedArray
    ) -> None:
        """Makes a column of numbers text if the numbers would lose digits."""
        pa = import_pyarrow()
        import pyarrow.compute as pc

        lossy, why = pc.match_substring_regex(texts, _LEADING_ZERO), 'which has a leading zero'
        if pa.types.is_integer(numbers.type):
            found.add_range(name, numbers)
        elif not pc.any(lossy).as_py():
            valid = numbers.is_valid()
            integers = pc.and_(valid, pc.match_substring_regex(texts, _INTEGER))
            wide = pc.and_(integers, pc.match_substring_regex(texts, r'\d{16}'))
            if pc.all(pc.equal(integers, valid)).as_py():
                type, lossy, why = _of_integers(texts, integers)
                found.types[name] = type or numbers.type
                found.inexact.add(name)
            elif pc.any(wide).as_py():
                why = 'whose digits a float does not hold'
                pairs = zip(wide.to_pylist(), texts.to_pylist(), strict=True)
                lossy = pa.array([is_wide and not is_exact(text) for is_wide, text in pairs], pa.bool_())
        if pc.any(lossy).as_py():
            row = pc.index(lossy, True).as_py()
            found.formats[name] = 'utf8'
            found.types[name] = pa.string()
            found.nulls.discard(name)
            self.note_text(name, self._line(row + 1), texts[row].as_py(), why)

    def read(self, columns: list[TextColumn]) -> Iterator[tuple[Any, ...]]:
        pa = import_pyarrow()
        convert = [
            None if _reads_as_arrow(column) else text_converter(column.field_type) for column in columns
        ]
        types = {
            column.name: column.arrow_type if function is None else pa.string()
            for column, function in zip(columns, convert, strict=True)
        }
        for batch in self._parse(types).to_batches(max_chunksize=MAX_BATCH):
            values = [
                values_of(batch.column(column.name), column.field_type)
                if function is None
                else convert_each(batch.column(column.name).to_pylist(), function)
                for column, function in zip(columns, convert, strict=True)
            ]
            yield from zip(*values, strict=True)

    def lines(self) -> list[int]:
        return [line for line, is_row in self._first_lines() if is_row][1:]

    def _line(self, row: int) -> int:
        """Returns the first line of a row, counted from 1. Quoted values span lines; the header is row 0."""
        first = 1
        for first, is_row in self._first_lines():
            if is_row:
                if not row:
                    return first
                row -= 1
        return first + row

    def _first_lines(self) -> Iterator[tuple[int, bool]]:
        """Yields the first line of each row, of each blank line, and of the end, and whether it is a row."""
        lines = io.TextIOWrapper(io.BytesIO(self.data), 'utf-8', newline='')
        rows, first = csv_rows.reader(lines, delimiter=self._delimiter), 1
        try:
            for values in rows:
                yield first, bool(values)
                first = rows.line_num + 1
        except csv_rows.Error:  # E.g. a value of over 128 KB.
            pass
        yield first, False


def _reads_as_arrow(column: TextColumn) -> bool:
    """Returns whether Arrow's type of a column of CSV is converted; otherwise its text."""
    field_type = column.field_type
    if field_type.sequence or (column.as_arrow and field_type.format != 'utf8'):
        return True
    array = array_of(field_type)
    return field_type.format not in _OF_TEXT and (array is None or array[1] != ())


def _of_integers(texts: pa.ChunkedArray, integers: pa.Array) -> tuple[pa.DataType | None, pa.Array, str]:
    """Returns the type of integers that Arrow reads as floats, else the rows that no type holds, and why."""
    pa = import_pyarrow()
    import pyarrow.compute as pc

    signed = pc.and_(integers, pc.match_substring(texts, '+'))
    if pc.any(signed).as_py():
        return None, signed, 'which has a plus sign'
    pairs = zip(texts.to_pylist(), integers.to_pylist(), strict=True)
    # Python refuses to convert texts of over 4,300 digits.
    values = [int(text[:MAX_DIGITS]) if is_integer else 0 for text, is_integer in pairs]
    lowest = min(values, default=0)
    limit = 1 << 64 if lowest >= 0 else 1 << 63
    wide = [not -(1 << 63) <= value < limit for value in values]
    if any(wide):
        return None, pa.array(wide, pa.bool_()), 'which is not an integer of 64 bits'
    return pa.uint64() if lowest >= 0 else pa.int64(), pa.array(wide, pa.bool_()), ''


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
