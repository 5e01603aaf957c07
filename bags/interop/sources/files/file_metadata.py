"""Tables beside media files: `metadata.csv` and `metadata.jsonl`, whose column `file_name` names the files.

The other columns are fields of the datapoints of these files, as in ImageFolder of Hugging Face's datasets. A
file with such a name but without that column is an ordinary file.
"""

from __future__ import annotations

import csv
import io
import json
import posixpath
import re
from collections.abc import Callable, Iterable
from typing import Any

from bags.errors import SourceError
from bags.interop.file_extensions import KEY, WRITTEN_EXTENSIONS, field_of
from bags.interop.files import JsonText
from bags.interop.ignored_files import METADATA_TABLES
from bags.interop.sources.tables.json_values import members
from bags.interop.sources.tables.text_values import MAX_EXACT, is_exact

FILE_NAME = 'file_name'

INTEGER = re.compile(r'0|-?[1-9][0-9]{0,17}')
_FLOAT = re.compile(r'[+-]?((0|[1-9][0-9]{0,14})(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?')
"""Numbers that a float holds without loss. `007` and identifiers of 20 digits remain text."""
_SIGNED = re.compile(r'[+-]?[0-9]+')
_NUMBER = re.compile(r'[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?')


class FileMetadata:
    """The rows of all tables of a folder."""

    def __init__(self) -> None:
        self.tables: list[str] = []  # Paths of the tables in the folder.
        self.rows: dict[str, dict[str, Any]] = {}
        """For each file, by its path, the text of each field that has a value."""
        self.types: dict[str, str] = {}
        self.inexact: set[str] = set()
        """Fields with integers that a float does not hold."""
        self.notes: list[str] = []


def read_metadata(root: str, names: Iterable[str], read: Callable[[str], bytes]) -> FileMetadata:
    """Reads the metadata tables of a folder, given the paths of its files."""
    metadata, values = FileMetadata(), dict[str, list[Any]]()
    paths = set(names)
    for table in sorted(
        name
        for name in paths
        if name.endswith(METADATA_TABLES) and posixpath.basename(name) in METADATA_TABLES
    ):
        path = f'{root.rstrip("/")}/{table}'
        rows = _parse(path, read(table))
        if rows is None:
            continue
        metadata.tables.append(table)
        for line, row, texts in rows:
            where = f'{path}, line {line}'
            name = row.pop(FILE_NAME, None)
            if not isinstance(name, str) or not name:
                raise SourceError(where, f'expected the name of a file as {FILE_NAME!r}, got {name!r}')
            name = posixpath.normpath(posixpath.join(posixpath.dirname(table), name))
            if name not in paths:
                raise SourceError(where, f'there is no file {name!r}')
            if name in metadata.rows:
                raise SourceError(where, f'expected one row for each file, got another one for {name!r}')
            present = {field_of(key): value for key, value in row.items() if value not in (None, '')}
            fields = set(map(field_of, row))
            if len(fields) < len(row) or fields & {KEY, WRITTEN_EXTENSIONS}:
                raise SourceError(where, f'expected other names of columns than {", ".join(row)}')
            metadata.rows[name] = {field_of(key): texts[key] for key in row if field_of(key) in present}
            for field, value in present.items():
                values.setdefault(field, []).append(value)
    is_csv = all(table.endswith('.csv') for table in metadata.tables)
    for field, column in values.items():
        metadata.types[field] = _type_of(column, is_csv)
        if any(isinstance(value, int) and abs(value) > MAX_EXACT for value in map(_integer, column)):
            metadata.inexact.add(field)
        is_lossy = all(map(_NUMBER.fullmatch, column)) if is_csv else str not in map(type, column)
        if metadata.types[field] == 'utf8' and is_lossy:
            some = next((each for each in column if _type_of([each], is_csv) == 'utf8'), column[0])
            detail = f'a number would lose digits or signs of {some!r:.80}'
            metadata.notes.append(f'{root.rstrip("/")}: column {field!r} is text: {detail}')
    for row in metadata.rows.values():
        for field, text in row.items():  # Of CSV and JSONL tables, whose values have several types.
            if metadata.types[field] == 'json' and not isinstance(text, JsonText):
                row[field] = JsonText(json.dumps(text, ensure_ascii=False))
    return metadata


def _integer(value: Any) -> Any:
    """Returns the integer of a text with digits; another value as it is."""
    return int(value) if isinstance(value, str) and INTEGER.fullmatch(value) else value


def unite(a: str, b: str, *, is_exact: bool) -> str:
    """Returns a type that holds the values of two types; `is_exact` if floats hold all integers."""
    if a == b:
        return a
    if {a, b} == {'int(8)', 'float(8)'} and is_exact:
        return 'float(8)'
    return 'json' if 'json' in (a, b) else 'utf8'


def join(files: Iterable[str], metadata: FileMetadata) -> dict[str, str]:
    """Merges the metadata columns of the files of a datapoint."""
    joined: dict[str, str] = {}
    for file in files:
        for field, value in metadata.rows.get(file, {}).items():
            if field in joined:
                raise SourceError(file, f'column {field!r}: another file of its datapoint has a value too')
            joined[field] = value
    return joined


def _parse(path: str, data: bytes) -> list[tuple[int, Any, dict[str, str]]] | None:
    """Returns the line, values and texts of each row; None if the table has no column `file_name`."""
    try:
        text = data.decode('utf-8-sig')
        if path.endswith('.csv'):
            reader = csv.DictReader(io.StringIO(text, newline=''), strict=True)
            columns = list(reader.fieldnames or ())
            if FILE_NAME not in columns:
                return None
            if len(set(columns)) < len(columns):
                raise ValueError(f'expected columns of different names, got {", ".join(columns)}')
            rows: list[tuple[int, Any, dict[str, str]]] = [(reader.line_num, row, row) for row in reader]
        else:
            rows, start = [], 0
            for line, part in enumerate(text.split('\n'), 1):
                if part.strip():
                    row, texts = json.loads(part), dict[str, str]()
                    if isinstance(row, dict):
                        texts, _ = members(text, start + part.index('{'))
                    rows.append((line, row, {name: JsonText(value) for name, value in texts.items()}))
                start += len(part) + 1
            if not rows or not isinstance(rows[0][1], dict) or FILE_NAME not in rows[0][1]:
                return None
    except (ValueError, csv.Error, RecursionError) as exc:
        raise SourceError(path, str(exc)) from exc
    for line, row, _ in rows:
        if not isinstance(row, dict) or None in row:
            raise SourceError(f'{path}, line {line}', 'expected a value for each column')
    return rows


def _type_of(values: list[Any], is_csv: bool) -> str:
    """Returns the type of a column. A CSV column is numeric if all its texts are numbers."""
    types = set(map(type, values))
    if types == {str}:
        if not is_csv:
            return 'utf8'
        if all(map(INTEGER.fullmatch, values)):
            return 'int(8)'
        if all(map(_SIGNED.fullmatch, values)) and any('+' in value for value in values):
            return 'utf8'
        return 'float(8)' if all(map(_FLOAT.fullmatch, values)) else 'utf8'
    if types == {bool}:
        return 'bool'
    if types == {int}:
        if all(-(2**63) <= value < 2**63 for value in values):
            return 'int(8)'
        return 'uint(8)' if all(0 <= value < 2**64 for value in values) else 'utf8'
    if types <= {int, float}:
        integers = (value for value in values if isinstance(value, int))
        return (
            'float(8)' if all(abs(each) <= MAX_EXACT or is_exact(str(each)) for each in integers) else 'utf8'
        )
    return 'json'
