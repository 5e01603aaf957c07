"""Tables beside media files: `metadata.csv` and `metadata.jsonl`, whose column `file_name` names the files.

The other columns are fields of the datapoints of these files, as in ImageFolder of Hugging Face's datasets. A
file with such a name but without that column is an ordinary file. The layout `tables` also joins tables of
other names, by the first column whose values are names of files.
"""

from __future__ import annotations

import csv
import io
import json
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any

from bags.errors import SourceError
from bags.interop.file_extensions import KEY, WRITTEN_EXTENSIONS, field_of, split_name, type_of
from bags.interop.files import JsonText
from bags.interop.ignored_files import MEDIA, METADATA_TABLES
from bags.interop.source import list_some
from bags.interop.sources.tables.json_values import members
from bags.interop.sources.tables.text_tables import MAX_BYTES
from bags.interop.sources.tables.text_values import MAX_EXACT, is_exact

FILE_NAME = 'file_name'
MAX_TABLES = 16
"""Maximum number of tables of other names in a folder; more are taken for datapoints."""
MAX_TABLE_BYTES = 1 << 26
"""Tables of other names have fewer bytes."""
TABLES = ('csv', 'tsv', 'jsonl')
"""Extensions of tables."""
_COLUMN_OF_STEMS = re.compile(
    r'(.*[^a-z])?(file|filename|image|img|photo|picture|audio|wav|video|clip|path|name|id|key|uuid|utt'
    r'|utterance|sample|recording)([^a-z].*)?|.*(id|name|path)',
    re.IGNORECASE,
)
"""Columns that may name files without their extensions."""
MIN_NAMED = 0.1
"""Share of the files beside each other that numbers without an extension must name. A table of classes,
with the numbers 0 to 9, does not belong to the first 10 of 1,000 photos."""
NO_NAMES = 'no column has names of files'
_WORDS, _DIGIT = re.compile('[A-Za-z0-9]+'), re.compile('[0-9]')

INTEGER = re.compile(r'0|-?[1-9][0-9]{0,17}')
_FLOAT = re.compile(r'[+-]?((0|[1-9][0-9]{0,14})(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?')
"""Numbers that a float holds without loss. `007` and identifiers of 20 digits remain text."""
_SIGNED = re.compile(r'[+-]?[0-9]+')
_Row = tuple[int, Any, dict[str, str]]
"""The line, values and texts of a row."""
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
        self.facts: dict[str, dict[str, Any]] = {}
        """Metadata of the dataset about fields of the tables."""

    def unite(self, other: FileMetadata) -> None:
        """Adds other tables, with other columns.

        Raises:
            SourceError: Both have a column.
        """
        for field in sorted(self.types.keys() & other.types):
            raise SourceError(other.tables[0], f'column {field!r} is also one of {list_some(self.tables, 1)}')
        for file, row in other.rows.items():
            self.rows[file] = {**self.rows.get(file, {}), **row}
        self.tables += other.tables
        self.types |= other.types
        self.inexact |= other.inexact
        self.notes += other.notes


def read_metadata(
    root: str, names: Iterable[str], read: Callable[[str, int], bytes], others: Collection[str] = ()
) -> FileMetadata:
    """Reads the metadata tables of a folder.

    Args:
        root: The folder, for errors.
        names: The paths of its files.
        read: Returns the content of a file of less than some bytes; raises SourceError for a larger one.
        others: Tables of other names. They are joined if a column has names of files.

    Raises:
        SourceError: A table is damaged or too large, or names a file that does not exist or that another row
            names.
    """
    metadata, values = FileMetadata(), dict[str, list[Any]]()
    paths = set(names)
    files = FileNames(root, paths - set(others)) if others else None
    rows: list[_Row] | None
    for table in sorted(
        name
        for name in paths
        if name in others or (name.endswith(METADATA_TABLES) and posixpath.basename(name) in METADATA_TABLES)
    ):
        path = f'{root.rstrip("/")}/{table}'
        rows, column, named = None, FILE_NAME, dict[int, str]()
        if posixpath.basename(table) in METADATA_TABLES:
            rows = _parse(path, read(table, MAX_BYTES))
        if rows is None and files is not None and table in others:
            try:
                rows = _parse(path, read(table, MAX_TABLE_BYTES), any_columns=True)
                column, named, missing = files.find_column(rows or [], table)
                if twice := sorted(metadata.rows.keys() & named.values()):
                    raise SourceError(path, f'another table has rows of {list_some(twice, 1)} too')
            except SourceError as exc:
                metadata.notes.append(f'{path}: is not joined to the files beside it: {exc.detail}')
                continue
            if missing:
                metadata.notes.append(f'{path}: rows are left out, as there is no file {list_some(missing)}')
            rows = [row for row in rows or [] if row[0] in named]
        if rows is None:
            continue
        metadata.tables.append(table)
        if not rows:
            metadata.notes.append(f'{path}: has no rows')
        for line, row, texts in rows:
            where = f'{path}, line {line}'
            if named:
                name = named[line]
                if posixpath.basename(name) == posixpath.basename(str(row[column])):
                    del row[column]
            else:
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
            for field, each in present.items():
                values.setdefault(field, []).append(each)
    is_csv = all(not table.endswith('.jsonl') for table in metadata.tables)
    for field, column_values in values.items():
        metadata.types[field] = _type_of(column_values, is_csv)
        if any(isinstance(value, int) and abs(value) > MAX_EXACT for value in map(_integer, column_values)):
            metadata.inexact.add(field)
        is_lossy = (
            all(map(_NUMBER.fullmatch, column_values)) if is_csv else str not in map(type, column_values)
        )
        if metadata.types[field] == 'utf8' and is_lossy:
            some = next(
                (each for each in column_values if _type_of([each], is_csv) == 'utf8'), column_values[0]
            )
            detail = f'a number would lose digits or signs of {some!r:.80}'
            metadata.notes.append(f'{root.rstrip("/")}: column {field!r} is text: {detail}')
    for texts in metadata.rows.values():
        for field, text in texts.items():  # Of CSV and JSONL tables, whose values have several types.
            if metadata.types[field] == 'json' and not isinstance(text, JsonText):
                texts[field] = JsonText(json.dumps(text, ensure_ascii=False))
    return metadata


def check_table_size(path: str, size: int, limit: int) -> None:
    """Raises SourceError for a table of `limit` bytes or more, which is not read."""
    if size >= limit:
        raise SourceError(path, f'expected less than {limit:,} bytes, got {size:,}')


def tables_in(names: Collection[str]) -> list[str]:
    """Returns the files of a folder of media that may be tables about other files."""
    found = [name for name in names if name.lower().endswith(TABLES)]
    stems = Counter(split_name(name)[0] for name in names if found)
    found = [name for name in found if split_name(name)[1] in TABLES and stems[split_name(name)[0]] == 1]
    if not 0 < len(found) <= MAX_TABLES or not any(type_of(split_name(name)[1]) in MEDIA for name in names):
        return []
    return sorted(found)


class FileNames:
    """Finds the files that values name: by path, by the end of a path, or without their extension."""

    def __init__(self, root: str, names: Collection[str]) -> None:
        self._root = root
        self._names = set(names)
        self._by_base: dict[str, list[str]] = defaultdict(list)
        self._by_stem: dict[str, list[str]] = defaultdict(list)
        for name in names:
            base = posixpath.basename(name)
            self._by_base[base].append(name)
            if type_of(split_name(name)[1]) in MEDIA:
                self._by_stem[split_name(base)[0]].append(name)

    def find_all(self, value: str, *, is_stem: bool = False) -> list[str]:
        """Returns the files whose paths end with a path, or with as many of its last parts as possible."""
        parts = posixpath.normpath(value.replace('\\', '/')).lstrip('/').split('/') if value.strip() else []
        for start in range(len(parts)):
            end = '/' + '/'.join(parts[start:])
            found = [
                name
                for name in (self._by_stem if is_stem else self._by_base).get(parts[-1], ())
                if f'/{split_name(name)[0] if is_stem else name}'.endswith(end)
            ]
            if found:
                return found
        return []

    def find(self, value: str, table: str, *, is_stem: bool = False) -> str | None:
        """Returns the file that a table or JSON names; None if there is none, or if there are several.

        Files in the same folder come before others, and then files in a folder that the table is named
        after: `train.csv` is about `train/1.jpg`, not about `test/1.jpg`.
        """
        folder = posixpath.dirname(table)
        near = posixpath.normpath(posixpath.join(folder, value))
        if not is_stem and near in self._names:
            return near
        found = self.find_all(value, is_stem=is_stem)
        if len(found) > 1 and not (beside := [name for name in found if posixpath.dirname(name) == folder]):
            for path in (posixpath.basename(table), folder):
                words = set(_WORDS.findall(path))
                shared = {name: len(words.intersection(name.split('/')[:-1])) for name in found}
                found = [name for name in found if shared[name] == max(shared.values())]
        elif len(found) > 1:
            found = beside
        return found[0] if len(found) == 1 else None

    def find_column(self, rows: list[_Row], table: str) -> tuple[str, dict[int, str], list[str]]:
        """Finds the column that names a file in most rows of a table.

        Returns:
            The column, the file of each line, and names without a file.

        Raises:
            SourceError: There is no such column.
        """
        reason = NO_NAMES
        columns = [each for each in (rows[0][1] if rows else ()) if isinstance(each, str)]
        for place, column in enumerate(columns if not table.endswith('.jsonl') else ()):
            is_stem = not place and _DIGIT.search(column) is not None
            if ('.' in column and self.find_all(column)) or (is_stem and self.find_all(column, is_stem=True)):
                detail = f'expected the names of its columns in the first line, got the file {column!r:.80}'
                raise SourceError(self._root, detail)
        for is_stem in (False, True):
            for column in columns:
                if is_stem and not _COLUMN_OF_STEMS.fullmatch(column):
                    continue
                named: dict[int, str] = {}
                missing: list[str] = []
                for line, row, _ in rows:
                    value = str(row.get(column) or ('' if row.get(column) is None else row[column]))
                    if (file := self.find(value, table, is_stem=is_stem)) is not None:
                        named[line] = file
                    elif 2 * len(missing) > len(rows):
                        break
                    else:
                        missing.append(value)
                if len(named) > len(missing):
                    named_files = set(named.values())
                    if len(named_files) < len(named):
                        reason = f'several rows have the same file in the column {column!r}'
                    elif is_stem and self._are_numbers_of_others(named_files):
                        reason = f'the numbers in the column {column!r} are the names of few files'
                    else:
                        return column, named, missing
        raise SourceError(self._root, reason)

    def _are_numbers_of_others(self, named: set[str]) -> bool:
        """Returns whether numbers are of classes, instead of files: few files beside have such names."""
        if not all(split_name(posixpath.basename(name))[0].isdecimal() for name in named):
            return False
        folders = set(map(posixpath.dirname, named))
        beside = sum(posixpath.dirname(name) in folders for names in self._by_stem.values() for name in names)
        return len(named) < MIN_NAMED * beside


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


def _parse(path: str, data: bytes, *, any_columns: bool = False) -> list[_Row] | None:
    """Returns the rows; None if the table has no column `file_name`, unless `any_columns`."""
    try:
        text = data.decode('utf-8-sig')
        if not path.endswith('.jsonl'):
            header = text.partition('\n')[0]
            delimiter = max(',;\t|', key=header.count) if any_columns else ','
            reader = csv.DictReader(io.StringIO(text, newline=''), strict=True, delimiter=delimiter)
            columns = list(reader.fieldnames or ())
            if FILE_NAME not in columns and not any_columns:
                return None
            if len(set(columns)) < len(columns):
                raise ValueError(f'expected columns of different names, got {", ".join(columns)}')
            rows: list[_Row] = [(reader.line_num, row, row) for row in reader]
        else:
            rows, start = [], 0
            for line, part in enumerate(text.split('\n'), 1):
                if part.strip():
                    row, texts = json.loads(part), dict[str, str]()
                    if isinstance(row, dict):
                        texts, _ = members(text, start + part.index('{'))
                    rows.append((line, row, {name: JsonText(value) for name, value in texts.items()}))
                start += len(part) + 1
            has_rows = bool(rows) and isinstance(rows[0][1], dict)
            if not any_columns and not (has_rows and FILE_NAME in rows[0][1]):
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
