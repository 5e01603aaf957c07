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
from bags.interop.ignored_files import METADATA_TABLES

FILE_NAME = 'file_name'

INTEGER = re.compile(r'0|-?[1-9][0-9]{0,17}')
_FLOAT = re.compile(r'[+-]?((0|[1-9][0-9]{0,14})(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?')
"""Numbers that a float holds without loss. `007` and identifiers of 20 digits remain text."""


class FileMetadata:
    """The rows of all tables of a folder."""

    def __init__(self) -> None:
        self.tables: list[str] = []  # Paths of the tables in the folder.
        self.rows: dict[str, dict[str, Any]] = {}
        """For each file, by its path, the text of each field that has a value."""
        self.types: dict[str, str] = {}


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
        for line, row in rows:
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
            metadata.rows[name] = present
            for field, value in present.items():
                values.setdefault(field, []).append(value)
    is_csv = all(table.endswith('.csv') for table in metadata.tables)
    metadata.types = {field: _type_of(column, is_csv) for field, column in values.items()}
    for row in metadata.rows.values():
        for field, value in row.items():
            is_text = metadata.types[field] != 'json' and isinstance(value, str)
            row[field] = value if is_text else json.dumps(value, ensure_ascii=False)
    return metadata


def join(files: Iterable[str], metadata: FileMetadata) -> dict[str, str]:
    """Merges the metadata columns of the files of a datapoint."""
    joined: dict[str, str] = {}
    for file in files:
        for field, value in metadata.rows.get(file, {}).items():
            if field in joined:
                raise SourceError(file, f'column {field!r}: another file of its datapoint has a value too')
            joined[field] = value
    return joined


def _parse(path: str, data: bytes) -> list[tuple[int, Any]] | None:
    """Returns the line number and values of each row; None if the table has no column `file_name`."""
    try:
        text = data.decode('utf-8-sig')
        if path.endswith('.csv'):
            reader = csv.DictReader(io.StringIO(text, newline=''), strict=True)
            columns = list(reader.fieldnames or ())
            if FILE_NAME not in columns:
                return None
            if len(set(columns)) < len(columns):
                raise ValueError(f'expected columns of different names, got {", ".join(columns)}')
            rows: list[tuple[int, Any]] = [(reader.line_num, row) for row in reader]
        else:
            lines = enumerate(text.split('\n'), 1)
            rows = [(line, json.loads(part)) for line, part in lines if part.strip()]
            if not rows or not isinstance(rows[0][1], dict) or FILE_NAME not in rows[0][1]:
                return None
    except (ValueError, csv.Error, RecursionError) as exc:
        raise SourceError(path, str(exc)) from exc
    for line, row in rows:
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
        return 'float(8)' if all(map(_FLOAT.fullmatch, values)) else 'utf8'
    if types == {bool}:
        return 'bool'
    if types == {int} and all(-(2**63) <= value < 2**63 for value in values):
        return 'int(8)'
    return 'float(8)' if types <= {int, float} else 'json'
