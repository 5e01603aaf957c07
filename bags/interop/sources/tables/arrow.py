"""Parquet, Arrow, CSV and JSONL files, and Hugging Face datasets: folders of Parquet or Arrow files."""

from __future__ import annotations

import contextlib
import itertools
import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from bags.arrow.types import METADATA_KEY, arrow_field, import_pyarrow, is_list
from bags.dataset.format.metadata import Metadata, metadata_of_fields
from bags.dataset.format.registry import encoders
from bags.dataset.format.spec import FieldType, parse_type
from bags.errors import SourceError
from bags.formats.signatures import SIGNATURE_BYTES, identify
from bags.interop.formats import SPLITS
from bags.interop.records import path_beside, read_json
from bags.interop.source import (
    RECORD_ENCODERS,
    DamagedEntries,
    Source,
    as_source_errors,
    collect_errors,
    name_fields,
)
from bags.interop.sources.tables.arrow_files import Table, is_text, open_table, open_text
from bags.interop.sources.tables.arrow_values import values_of
from bags.interop.sources.tables.text_tables import Inference, TextColumn, TextTable, short
from bags.interop.stores import list_paths
from bags.interop.targets.parquet import read_features, type_of_feature

if TYPE_CHECKING:
    import pyarrow as pa

_PARTITION = re.compile(r'/([^/=]+)=[^/]*(?=/)')
"""A folder of a partitioned dataset: `label=cat`."""
IMAGE_TYPES = {'JPEG': 'jpeg', 'PNG': 'png', 'WebP': 'webp', 'AVIF': 'avif'}
"""Formats of images, and their types."""
IMAGES_TO_SEE = 1000
"""Number of values of a column of bytes that are inspected."""
_SHARD = re.compile(r'(.+)-\d{5}-of-\d{5}(-[0-9a-f]+)?\.\w+')


class TableRow(NamedTuple):
    """A row of a file."""

    path: str
    number: int
    """Number of the row in the file, from 0."""
    values: dict[str, Any]
    """Values by field; an error replaces a value that cannot be converted."""


def open_source(paths: list[str], storage_options: Mapping[str, Any] | None = None) -> ArrowSource:
    """Returns the rows of Parquet and Arrow files of one split."""
    files = list_paths(paths, storage_options)
    states = [path for path in files if path.rpartition('/')[2] == 'state.json']
    tables = [path for path in files if not path.endswith('.json')]
    for state in states:
        folder = posixpath.dirname(state)
        named = _files_of(state, storage_options)
        missing = [path for path in named if path not in tables]
        if missing:
            raise SourceError(state, f'expected files beside it, got {missing[0]!r}, which does not exist')
        tables = [path for path in tables if posixpath.dirname(path) != folder or path in named]
    if not tables:
        raise SourceError(', '.join(paths), 'expected *.parquet, *.arrow or *.feather files, got none')
    splits = sorted({_split_of(path) for path in tables})
    if len(splits) > 1:
        example = next(path for path in tables if _split_of(path) == splits[0])
        raise SourceError(
            ', '.join(paths) if len(paths) == 1 else posixpath.commonpath(tables),
            f'expected one split, got {", ".join(splits)}: give the folder or files of one, as {example!r}',
        )
    return ArrowSource(tables, storage_options)


def _split_of(path: str) -> str:
    folder, _, name = path.rpartition('/')
    if shard := _SHARD.fullmatch(name):
        return f'{folder.rpartition("/")[2]}/{shard[1]}'
    words = re.split(r'[_.\-]', name)
    return next((word for word in (*words, folder.rpartition('/')[2]) if word in SPLITS), '')


def _files_of(state: str, options: Mapping[str, Any] | None) -> list[str]:
    """Returns the paths of the files in the state.json of a saved dataset."""
    files = read_json(state, lambda content: [each['filename'] for each in content['_data_files']], options)
    try:
        return [path_beside(posixpath.dirname(state), name) for name in files]
    except ValueError as exc:
        raise SourceError(state, f'expected files beside it, got {files!r:.200}') from exc


class ArrowSource(Source[TableRow]):
    """The rows of Parquet and Arrow files with the same schema, one file after the other."""

    loads_in_threads = False  # Batches are converted as a whole, in `entries`.

    def __init__(
        self,
        paths: list[str],
        storage_options: Mapping[str, Any] | None = None,
        *,
        is_json: bool = False,
    ) -> None:
        """Infers the types.

        Args:
            paths: The files.
            storage_options: As in `bags.open`, for URLs.
            is_json: Whether the files are JSONL whatever their names are.
        """
        super().__init__('arrow', {}, 0)
        self._storage_options = dict(storage_options or {})
        self._is_json = is_json
        self._lines: dict[str, list[int]] = {}
        """The first line of each row, by file, of files of text in which a row was located."""
        self._files: dict[str, dict[int, int]] = {}
        """Number of rows in each part of each file."""
        self._fields: dict[str, pa.Field] = {}
        """Arrow fields by the name in the dataset."""
        self._of_bytes: list[str] = []
        """Fields of bytes whose type the metadata do not give."""
        self._by_arrow: dict[str, str] = {}
        """The inferred types of the fields of CSV and JSONL files whose values Arrow's types hold."""
        schema: pa.Schema | None = None
        with_nulls: set[str] = set()
        texts = self._infer_texts([path for path in paths if self._is_text(path)])
        if texts is not None:
            schema = import_pyarrow().schema(list(texts.types.items()))
            with_nulls |= texts.nulls
        for path in paths:
            table = None
            if self._is_text(path):
                continue
            with collect_errors(self.damaged):
                table = open_table(path, self._storage_options, to_scan=True)
            if table is None:
                continue
            if schema is None:
                schema, self.format = table.schema, table.format
            _check_schema(path, table.schema, paths[0], schema)
            with collect_errors(self.damaged), as_source_errors(path, table.format):
                self._files[path], found = table.scan(self.damaged)
                self.count += sum(self._files[path].values())
                with_nulls |= found
        if schema is None:
            raise SourceError(*self.damaged[0])
        for name in sorted({key for path in paths for key in _PARTITION.findall(path)} - set(schema.names)):
            self.notes.append(f'column {name!r}, which is in the names of folders, is left out')
        self._infer(schema, with_nulls)
        if texts is not None:
            self._apply(texts, with_nulls)
        self._images = dict(self._find_images())
        """The image format of the first values, by field, for fields of bytes."""
        for field, format in self._images.items():
            type_format = IMAGE_TYPES[format]
            self.spec[field] = type_format + '?' * self.spec[field].endswith('?')
            self.notes.append(
                f'field {field!r}: bytes become {type_format}, as the first values are {format}'
            )
        if not self.spec:
            columns = ', '.join(map(repr, schema.names)) or 'no columns'
            error = SourceError(paths[0], f'expected a column with values, got {columns} without any')
            if not self.from_text:
                raise error
            self.undecided = dict.fromkeys(self._fields, error)
        self.encoders = RECORD_ENCODERS

    def _infer_texts(self, paths: list[str]) -> Inference | None:
        """Infers the types of CSV and JSONL files; None without files that can be read."""
        texts: Inference | None = None
        for path in paths:
            with collect_errors(self.damaged), as_source_errors(path, 'CSV or JSONL'):
                table = open_text(path, self._storage_options, is_json=self._is_json)
                found = table.infer()
                if texts is None:
                    texts, self.format = Inference({}, 0, set()), table.format
                    self.notes.append('types are inferred from all rows; spec= changes them')
                self.notes += table.notes
                self._files[path] = {0: found.count}
                self.count += found.count
                texts.add(path, found, as_text=self.format == table.format == 'csv')
        return texts

    def _apply(self, texts: Inference, with_nulls: set[str]) -> None:
        """Sets the types of columns whose values no Arrow type holds."""
        self.notes += texts.notes
        for field, column in self._fields.items():
            optional = '?' * (column.name in with_nulls)
            if column.name in texts.mixed:
                path, difference = texts.mixed[column.name]
                advice = f"spec={{{field!r}: 'json'}}, or --spec {field}=json, reads any JSON value unchanged"
                self.undecided[field] = SourceError(
                    path, f'cannot be read as CSV or JSONL: column {column.name!r}: {difference}; {advice}'
                )
                self.spec[field] = f'json{optional}'
            elif field not in self.spec:
                continue  # A column without values.
            elif column.name in texts.formats:
                self.spec[field] = f'{texts.formats[column.name]}{optional}'
            else:
                self._by_arrow[field] = self.spec[field].removesuffix('?')
        self.from_text = set(self._fields)

    def _infer(self, schema: pa.Schema, with_nulls: set[str]) -> None:
        pa = import_pyarrow()
        features, (spec, self.metadata) = read_features(schema), _read_facts(schema)
        facts: dict[str, dict[str, Any]] = {}
        for name, field in name_fields(schema.names, self.notes).items():
            self._fields[field] = column = schema.field(name)
            if pa.types.is_null(column.type):
                self.notes.append(f'column {name!r} has no values and is left out')
                continue
            if _is_type_of(spec.get(name), column):
                self.spec[field] = spec[name]
                continue
            field_type, classes = type_of_feature(features.get(name), column.type)
            self.spec[field] = field_type + '?' * (name in with_nulls)
            if field_type == 'bytes':
                self._of_bytes.append(field)
            if classes is not None:
                facts.setdefault(field, {})['classes'] = classes
            if getattr(column.type, 'permutation', None):
                self.notes.append(f'field {field!r}: axes are in the order of storage')
            if zone := _zone(column.type):
                facts.setdefault(field, {})['timezone'] = zone
                self.notes.append(f'field {field!r}: times are in UTC; the zone {zone} is in the metadata')
            if field_type.startswith('msgpack') or pa.types.is_decimal(column.type):
                self.notes.append(f'field {field!r}: {short(column.type)} becomes {field_type}')
            elif pa.types.is_dictionary(column.type):
                self.notes.append(
                    f'field {field!r}: a dictionary of {short(column.type.value_type)} becomes {field_type}'
                )
        if facts:
            known = self.metadata.get('fields', {})
            merged = {**known, **{field: {**known.get(field, {}), **each} for field, each in facts.items()}}
            self.metadata = {**self.metadata, 'fields': merged}
        self.metadata = metadata_of_fields(self.metadata, self.spec)

    def _find_images(self) -> Iterator[tuple[str, str]]:
        """Yields the fields of bytes whose first 1,000 values are images of one format, and the format."""
        for field in self._of_bytes:
            formats: set[str] = set()
            with contextlib.suppress(SourceError):  # Raised when values are read.
                for value in itertools.islice(self._first_values(field), IMAGES_TO_SEE):
                    formats.add(identify(value[:SIGNATURE_BYTES]))
                    if len(formats) > 1 or not formats <= IMAGE_TYPES.keys():
                        break
            if len(formats) == 1 and (format := formats.pop()) in IMAGE_TYPES:
                yield field, format

    def _first_values(self, field: str) -> Iterator[bytes]:
        types = {field: parse_type(self.spec[field])}
        for path, parts in self._files.items():
            with as_source_errors(path, self.format):
                table = self._open(path)
                for number in parts:
                    for (value,) in self._values(table, number, types, 0):
                        if isinstance(value, bytes):
                            yield value

    def entries(self, start: int = 0) -> Iterator[TableRow | DamagedEntries]:
        for path, parts in self._files.items():
            count = sum(parts.values())
            if start < count:
                yield from self._rows(path, parts, start)
            start = max(0, start - count)

    def _rows(self, path: str, parts: Mapping[int, int], row: int) -> Iterator[TableRow | DamagedEntries]:
        """Yields the rows of a file, starting at `row`; for a damaged part, the rows before the damage."""
        types = {field: parse_type(text) for field, text in self.spec.items()}
        table, stop = None, 0
        for number, count in parts.items():
            first, stop = stop, stop + count
            if row >= stop:
                continue
            try:
                with as_source_errors(path, self.format):
                    table = table or self._open(path)
                    for values in self._values(table, number, types, row - first):
                        if row < stop:
                            yield TableRow(path, row, dict(zip(types, values, strict=True)))
                            row += 1
                    if row < stop:
                        raise ValueError(f'expected {count} rows, got {row - first}')
            except SourceError as exc:
                yield DamagedEntries(SourceError(f'{path}, rows {row} to {stop - 1}', exc.detail), stop - row)
                row = stop

    def _is_text(self, path: str) -> bool:
        return self._is_json or is_text(path)

    def _open(self, path: str) -> Table | TextTable:
        if self._is_text(path):
            return open_text(path, self._storage_options, is_json=self._is_json)
        return open_table(path, self._storage_options)

    @property
    def paths(self) -> list[str]:
        """The files that are not damaged."""
        return [*self._files]

    def field_of(self, column: str) -> str | None:
        """Returns the field of a column, by its name in the files; None without such a column."""
        return next((field for field, found in self._fields.items() if found.name == column), None)

    @property
    def columns(self) -> list[str]:
        """The names of the columns in the files."""
        return [column.name for column in self._fields.values()]

    def locate(self, entry: TableRow) -> str:
        """Returns the file, the line, if the file is text, and the row of an entry, for errors."""
        if not self._is_text(entry.path):
            return self.name(entry)
        lines = self._lines.get(entry.path)
        if lines is None:
            with contextlib.suppress(SourceError):  # The file has changed since.
                lines = open_text(entry.path, self._storage_options, is_json=self._is_json).lines()
            lines = self._lines.setdefault(entry.path, lines or [])
        if entry.number >= len(lines):
            return self.name(entry)
        return f'{entry.path}, line {lines[entry.number]}, row {entry.number}'

    def _values(
        self, table: Table | TextTable, number: int, types: Mapping[str, FieldType], skip: int
    ) -> Iterator[tuple[Any, ...]]:
        """Yields the values of the rows of a part after the first `skip`."""
        if isinstance(table, TextTable):
            text_columns = [
                TextColumn(
                    self._fields[field].name,
                    self._fields[field].type,
                    field_type,
                    as_arrow=field_type.text.removesuffix('?') == self._by_arrow.get(field),
                )
                for field, field_type in types.items()
            ]
            yield from itertools.islice(table.read(text_columns), skip, None)
            return
        names = [self._fields[field].name for field in types]
        for batch in table.read(number, names):
            columns = map(batch.slice(skip).column, names)
            yield from zip(*map(values_of, columns, types.values()), strict=True)
            skip = max(0, skip - batch.num_rows)

    def load(self, entry: TableRow) -> Mapping[str, Any]:
        for field, value in entry.values.items():
            if isinstance(value, Exception):
                raise SourceError(self.name(entry), f'field {field!r} of type {self.spec[field]}: {value}')
            format = self._images.get(field)
            is_inferred = format is not None and self.spec[field].removesuffix('?') == IMAGE_TYPES[format]
            if is_inferred and value is not None and identify(value[:SIGNATURE_BYTES]) != format:
                detail = (
                    f'expected {format}, as the first values are, got {identify(value[:SIGNATURE_BYTES])}'
                )
                advice = f"spec={{{field!r}: 'bytes'}}, or --spec {field}=bytes, imports all values unchanged"
                raise SourceError(self.name(entry), f'field {field!r}: {detail}; {advice}')
        return entry.values

    def name(self, entry: TableRow) -> str:
        return f'{entry.path}, row {entry.number}'


def _check_schema(path: str, schema: pa.Schema, first: str, expected: pa.Schema) -> None:
    for name in dict.fromkeys([*expected.names, *schema.names]):
        actual, expected_type = (
            short(each.field(name).type) if name in each.names else 'no column' for each in (schema, expected)
        )
        if actual != expected_type:
            raise SourceError(path, f'column {name!r}: expected {expected_type}, as in {first}, got {actual}')


def _read_facts(schema: pa.Schema) -> tuple[dict[str, Any], Metadata]:
    """Returns the spec and metadata that `export` stores in an Arrow schema; empty for other schemas."""
    try:
        facts = json.loads((schema.metadata or {})[METADATA_KEY])
        spec, metadata = facts['spec'], facts['metadata']
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}, {}
    is_valid = isinstance(spec, dict) and isinstance(metadata, dict)
    return (spec, metadata) if is_valid and isinstance(metadata.get('fields', {}), dict) else ({}, {})


def _is_type_of(text: Any, column: pa.Field) -> bool:
    """Returns whether a column has the Arrow type that `export` writes for a field type."""
    try:
        field_type = parse_type(text)
        return field_type.format in encoders and _form(arrow_field('', field_type, 'bytes').type) == _form(
            column.type
        )
    except (TypeError, ValueError):
        return False


def _form(type: pa.DataType) -> str:
    """Returns a text that is the same for equivalent Arrow types."""
    types = import_pyarrow().types
    type = getattr(type, 'storage_type', type)
    if is_list(type):
        return f'list of {_form(type.value_type)}'
    if types.is_struct(type) and type.names == ['bytes', 'path']:
        return 'bytes'
    if types.is_binary(type) or types.is_large_binary(type) or types.is_fixed_size_binary(type):
        return 'bytes'
    return (
        'integer'
        if types.is_integer(type)
        else str(type).replace('large_', '').replace('<element:', '<item:')
    )


def _zone(type: pa.DataType) -> str | None:
    """Returns the time zone of times, or of lists of times; None without a time zone."""
    types = import_pyarrow().types
    if is_list(type) or types.is_dictionary(type) or types.is_run_end_encoded(type):
        return _zone(type.value_type)
    zone: str | None = getattr(getattr(type, 'storage_type', type), 'tz', None)
    return zone
