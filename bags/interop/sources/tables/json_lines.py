"""JSONL files. Arrow's reader infers the types from all rows."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from bags.arrow.types import import_pyarrow, is_list
from bags.dataset.format.registry import INTEGER_FORMATS, bind_encoder
from bags.dataset.format.spec import FieldType
from bags.interop.sources.tables.arrow_values import values_of
from bags.interop.sources.tables.json_values import (
    check_levels,
    fail_at,
    items,
    members,
    skip_spaces,
    text_of,
    value_at,
)
from bags.interop.sources.tables.text_tables import MAX_BATCH, Inference, TextColumn, TextTable
from bags.interop.sources.tables.text_values import (
    MAX_EXACT,
    array_of,
    convert_each,
    integer_of,
    is_exact,
    to_array,
)

if TYPE_CHECKING:
    import pyarrow as pa

_ERROR = re.compile(r'^(?:JSON parse error: )?(.*) in row (\d+)$', re.DOTALL)
_MIXED = re.compile(r'^(?:JSON parse error: )?Column\(/')
_LONG_INTEGER = re.compile(r'\d{16}')
_BY_VALUE = ('utf8', 'bytes', 'json', 'float', 'bool', 'msgpack', 'tree', *INTEGER_FORMATS)
"""Formats whose values are converted from the text of a value."""
_BY_ARROW = ('utf8', 'float', 'bool', *INTEGER_FORMATS)
"""Formats that Arrow's parser reads as they are, if it inferred them.

It changes nested values: it adds keys that other rows have, and converts texts with times.
"""


class JsonLines(TextTable):
    """A file of JSON objects, each a row."""

    format = 'jsonl'

    def infer(self) -> Inference:
        check_levels(self.data)
        try:
            table = self._parse(self.data)
        except ValueError as exc:
            if _MIXED.match(str(exc)) is None:
                raise ValueError(self._with_line(exc)) from None
            found = self._infer_each()
        else:
            found = Inference({}, table.num_rows, set())
            for name, column in zip(table.column_names, table.columns, strict=True):
                _add_column(found, name, column)
        self._check_numbers(found)
        return found

    def _parse(self, data: bytes, schema: pa.Schema | None = None) -> pa.Table:
        """Parses rows in one block, so that a type is inferred from all of them; only columns of the schema.

        Raises:
            ValueError: A row cannot be parsed; the message ends with its number.
        """
        pa = import_pyarrow()
        from pyarrow import json as arrow_json

        return arrow_json.read_json(
            pa.BufferReader(data),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior='infer' if schema is None else 'ignore'
            ),
        )

    def _with_line(self, exc: ValueError, rows: list[int] | None = None) -> str:
        """Returns the message of an error, with the line instead of the row."""
        if (found := _ERROR.match(str(exc))) is None:
            return str(exc)
        row = int(found[2])
        return f'line {self._line(rows[row] if rows else row)}: {found[1]}'

    def _infer_each(self) -> Inference:
        """Infers the type of each column alone, as the values of some have no type in common."""
        texts: dict[str, list[str]] = {}
        rows: dict[str, list[int]] = {}
        count = 0
        for count, row in enumerate(self._rows(), 1):
            for name, text in row.items():
                texts.setdefault(name, []).append(text)
                rows.setdefault(name, []).append(count - 1)
        found = Inference({}, count, set())
        for name, values in texts.items():
            data = ''.join(f'{{"x":{text}}}\n' for text in values).encode()
            try:
                column = self._parse(data).column(0)
            except ValueError as exc:
                difference = self._with_line(exc, rows[name]).replace('Column(/x', f'Column(/{name}')
                if 'changed from' not in difference:
                    raise ValueError(difference) from None
                found.types[name] = import_pyarrow().string()
                found.mixed[name] = self.path, difference
                if 'null' in values or len(values) < count:
                    found.nulls.add(name)
                continue
            _add_column(found, name, column)
            if len(values) < count:
                found.nulls.add(name)
        return found

    def _check_numbers(self, found: Inference) -> None:
        """Finds columns with integers that Arrow's types do not hold: they become text or JSON."""
        pa = import_pyarrow()
        names = [
            name
            for name, type in found.types.items()
            if name not in found.mixed and _has_numbers(type) and not pa.types.is_integer(type)
        ]
        if not names or re.search(rb'(?<![.\d])\d{16}', self.data) is None:
            return
        integers: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
        has_floats = dict.fromkeys(names, False)
        for row, values in enumerate(self._rows()):
            for name in integers.keys() & values.keys():
                text = values[name]
                is_float = any(letter in text for letter in '.eE') and text[0] not in '[{'
                has_floats[name] |= is_float
                if not is_float and (text[0] == '-' or _LONG_INTEGER.search(text)):
                    integers[name] += [(row, value) for value in _integers(json.loads(text))]
        for name, numbers in integers.items():
            if not numbers:
                continue
            type = found.types[name]
            is_number = pa.types.is_floating(type)
            lowest = min(value for _, value in numbers)
            found.negative |= {name} if lowest < 0 else set()
            found.inexact |= {name} if any(abs(value) > MAX_EXACT for _, value in numbers) else set()
            if is_number and not has_floats[name]:  # Integers that do not all fit int64.
                limit = 1 << 64 if lowest >= 0 else 1 << 63
                lossy = [pair for pair in numbers if not -(1 << 63) <= pair[1] < limit]
                found.types[name], why = pa.uint64(), 'which is not an integer of 64 bits'
            elif _has_floats(type):
                lossy = [pair for pair in numbers if not is_exact(str(pair[1]))]
                why = 'whose digits a float does not hold'
            else:  # MessagePack.
                lossy = [pair for pair in numbers if not -(1 << 63) <= pair[1] < 1 << 64]
                why = 'which is not an integer of 64 bits'
            if lossy:
                row, value = lossy[0]
                found.formats[name] = 'utf8' if is_number else 'json'
                found.types[name] = pa.string() if is_number else type
                self.note_text(name, self._line(row), str(value), why, 'text' if is_number else 'json')

    def read(self, columns: list[TextColumn]) -> Iterator[tuple[Any, ...]]:
        check_levels(self.data)
        pa = import_pyarrow()
        by_arrow = {column.name: column.arrow_type for column in columns if _reads_as_arrow(column)}
        rows = self._rows() if len(by_arrow) < len(columns) else itertools.repeat({})
        if by_arrow:
            try:
                table = self._parse(self.data, pa.schema(by_arrow))
            except ValueError as exc:
                raise ValueError(self._with_line(exc)) from None
            batches: Iterator[Any] = iter(table.to_batches(max_chunksize=MAX_BATCH))
        else:
            batches = itertools.repeat(None)
        convert = [_converter(column.field_type) for column in columns]
        for batch in batches:
            part = list(itertools.islice(rows, MAX_BATCH if batch is None else batch.num_rows))
            if not part:
                return
            values = [
                values_of(batch.column(column.name), column.field_type)
                if column.name in by_arrow
                else convert_each([row.get(column.name) for row in part], function)
                for column, function in zip(columns, convert, strict=True)
            ]
            yield from zip(*values, strict=True)

    def _rows(self) -> Iterator[dict[str, str]]:
        """Yields the text of each value of each row, by name."""
        text = self.data.decode('utf-8-sig')
        end = skip_spaces(text, 0)
        while end < len(text):
            if text[end] != '{':
                fail_at(text, end, 'an object')
            values, end = members(text, end)
            yield values
            end = skip_spaces(text, end)

    def lines(self) -> list[int]:
        text, lines, line, counted = self.data.decode('utf-8-sig'), list[int](), 1, 0
        end = skip_spaces(text, 0)
        try:
            while end < len(text):
                line, counted = line + text.count('\n', counted, end), end
                lines.append(line)
                end = skip_spaces(text, value_at(text, end)[1])
        except (ValueError, RecursionError):
            pass
        return lines

    def _line(self, row: int) -> int:
        """Returns the first line of a row, counted from 1."""
        text = self.data.decode('utf-8-sig')
        end = skip_spaces(text, 0)
        try:
            for _ in range(row):
                end = skip_spaces(text, value_at(text, end)[1])
        except (ValueError, RecursionError):
            pass
        return text.count('\n', 0, end) + 1


def _add_column(found: Inference, name: str, column: pa.ChunkedArray) -> None:
    found.types[name] = column.type
    if column.null_count:
        found.nulls.add(name)
    if import_pyarrow().types.is_integer(column.type):
        found.add_range(name, column)


def _has_numbers(type: pa.DataType) -> bool:
    """Returns whether a column may contain numbers, at any level."""
    types = import_pyarrow().types
    if types.is_struct(type):
        return any(_has_numbers(part.type) for part in type)
    if is_list(type):
        return _has_numbers(type.value_type)
    return bool(types.is_integer(type) or types.is_floating(type))


def _has_floats(type: pa.DataType) -> bool:
    """Returns whether lists that Arrow reads have floats."""
    return _has_floats(type.value_type) if is_list(type) else bool(import_pyarrow().types.is_floating(type))


def _integers(value: Any) -> Iterator[int]:
    """Yields the integers of a value at all levels."""
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            pending += node.values()
        elif isinstance(node, list):
            pending += node
        elif isinstance(node, int) and not isinstance(node, bool):
            yield node


def _reads_as_arrow(column: TextColumn) -> bool:
    """Returns whether Arrow's values of a column are converted; otherwise the text of each value."""
    format = column.field_type.format
    if column.as_arrow and (format in _BY_ARROW or format == 'array'):
        return True
    return format not in _BY_VALUE and array_of(column.field_type) is None


def _converter(field_type: FieldType) -> Callable[[str], Any]:
    """Returns the function that converts the JSON text of a value to a value of a field."""
    format, array = field_type.format, array_of(field_type)

    def convert(text: str) -> Any:
        if format == 'json':
            return text.encode()
        if format in ('utf8', 'bytes'):
            characters = text_of(text)
            return characters if format == 'utf8' else characters.encode()
        value = json.loads(text)
        if format in ('msgpack', 'tree'):
            return bind_encoder(format)(value)
        if format in INTEGER_FORMATS and isinstance(value, str):
            return integer_of(value)
        if array is not None:
            return to_array(value, array[0])
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        return float(value) if format == 'float' and is_integer else value

    holds_null = format in ('json', 'msgpack', 'tree')

    def convert_value(text: str) -> Any:
        if text == 'null' and (field_type.optional or not holds_null):
            return None
        return convert(text)

    def convert_list(text: str) -> Any:
        if text == 'null':
            return None
        if not text.startswith('['):
            raise TypeError(f'expected a list, got {text:.80}')
        texts = items(text)
        if 'null' in texts and not holds_null:
            raise ValueError('expected items, got a null among them; json can hold it')
        return list(map(convert, texts))

    return convert_list if field_type.sequence else convert_value
