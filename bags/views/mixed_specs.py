"""Fields of a `concat` whose types differ between datasets, and the field with the source of a datapoint."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from bags.bag.memory_records import MemoryRecords
from bags.dataset.base import Dataset, WindowsView
from bags.dataset.format.folder_layout import Decoders
from bags.dataset.format.registry import are_pictures
from bags.dataset.format.spec import FieldType, Schema, parse_type
from bags.dataset.reading.batch import Column, Ragged
from bags.dataset.reading.columns import ReadField, read_column, read_records
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.row_groups import divide_fields
from bags.dataset.reading.row_reader import (
    FolderFields,
    MissingFields,
    RecordRanges,
    RowReader,
    ranges_of_refs,
)
from bags.dataset.reading.selection import Asked, Selection
from bags.formats.arrays import encode_array
from bags.indexing import Int64s
from bags.views.optional import list_column

SOURCE_TYPE = parse_type('utf8')


def items_of(value: Any) -> Any:
    """Returns the items of a sequence of arrays as a list, as a type with a varying length does."""
    return list(value) if isinstance(value, np.ndarray) else value


def varying_column(field_type: FieldType, column: Column, _: Any) -> Column:
    """Converts a column of arrays of one shape to a column of a type with a varying length."""
    if isinstance(column, Ragged) and not field_type.sequence:  # Rows of the arrays.
        return column
    values = list_column(field_type, column)
    return [*map(items_of, values)] if field_type.sequence else values


def varying_field(field: FieldReader, field_type: FieldType) -> FieldReader:
    """Returns a field of arrays with a type of varying length."""
    field = copy.copy(field)
    field.type = field_type
    if field.decoder.dtype is not None:  # Otherwise values are records.
        field.decoder, field.table = Decoders(None).get(field.name, field_type, False, None), None
    return field


class MissingValues(MissingFields):
    """Replaces the reader of a dataset without some fields. Columns of lists do not need to open the field.

    `names` are the fields whose columns are lists. Fields of windows are computed, without records.
    """

    def __init__(self, field_of: Callable[[str], FieldReader], names: Collection[str]) -> None:
        super().__init__(field_of)
        self._names = names

    def read_selection(self, rows: Int64s, selection: Selection, read: ReadField) -> dict[str, Column]:
        # A column of rows of arrays is no list.
        names = [name for name in self._names if selection.get(name, True) is True]
        lists, rest = divide_fields(selection, names)
        columns: dict[str, Column] = {name: [None] * len(rows) for name in lists}
        return columns | super().read_selection(rows, rest, read)

    def record_ranges(self, rows: Int64s, field: str, items: Asked) -> RecordRanges | None:
        try:
            return super().record_ranges(rows, field, items)
        except StopIteration:  # No folder has the field: it is a field of windows.
            return None


class SourceField:
    """A field with the name of the source of each datapoint, read instead of a `DatasetReader`.

    A row is the number of a dataset.

    Args:
        name: The name of the field.
        sources: The name of each dataset.
    """

    def __init__(self, name: str, sources: Sequence[str]) -> None:
        self.name, self.sources = name, list(sources)
        bag = MemoryRecords(f'field {name!r} of concat', [source.encode() for source in sources])
        decoder = Decoders(None).get(name, SOURCE_TYPE, False, None)
        self.field = FieldReader(name, SOURCE_TYPE, 0, bag, decoder)

    def __reduce__(self) -> tuple[Any, ...]:
        return SourceField, (self.name, self.sources)

    def read_selection(self, rows: Int64s, selection: Selection, read: ReadField) -> dict[str, Column]:
        if read is read_records:
            return {name: read(self.field, rows, items) for name, items in selection.items()}
        return {name: [self.sources[row] for row in rows.tolist()] for name in selection}

    def record_ranges(self, rows: Int64s, field: str, items: Asked) -> RecordRanges | None:
        return ranges_of_refs(self.field, rows, items, False)

    def item_counts(self, rows: Int64s, field: str, items: Asked) -> Int64s:
        raise TypeError(f'field {field!r} of type {SOURCE_TYPE.text}: expected a sequence')

    def folders(self, fields: Iterable[str]) -> FolderFields:
        return []

    def split(self, selection: Selection) -> tuple[Selection, Selection]:
        """Splits a selection into this field and the rest."""
        return divide_fields(selection, (self.name,))


class ArrayReader:
    """Reads windows that are arrays of several types, such as frames of videos and of images, as `array`."""

    def __init__(self, reader: RowReader, names: Collection[str]) -> None:
        self._reader, self._names = reader, names

    def read_selection(self, rows: Int64s, selection: Selection, read: ReadField) -> dict[str, Column]:
        arrays = {name: items for name, items in selection.items() if name in self._names}
        if read is not read_records or not arrays:
            return self._reader.read_selection(rows, selection, read)
        rest = {name: items for name, items in selection.items() if name not in arrays}
        columns = self._reader.read_selection(rows, rest, read) if rest else {}
        for name, column in self._reader.read_selection(rows, arrays, read_column).items():
            columns[name] = [bytes(encode_array(np.asarray(value))) for value in column]
        return {name: columns[name] for name in selection}

    def item_counts(self, rows: Int64s, field: str, items: Asked) -> Int64s:
        return self._reader.item_counts(rows, field, items)

    def record_ranges(self, rows: Int64s, field: str, items: Asked) -> RecordRanges | None:
        return None if field in self._names else self._reader.record_ranges(rows, field, items)

    def folders(self, fields: Iterable[str]) -> FolderFields:
        return self._reader.folders(fields)


def array_windows(datasets: Sequence[Dataset]) -> set[str]:
    """Returns the fields of windows of arrays whose types differ, such as frames of videos and images."""
    names = set()
    for name in {name for dataset in datasets for name in dataset.schema}:
        owners = [dataset for dataset in datasets if name in dataset.schema]
        types = [dataset.schema[name] for dataset in owners]
        are_mixed = len({(field_type.format, field_type.args) for field_type in types}) > 1
        are_sized = all(field_type.format == 'array' and field_type.args for field_type in types)
        if not are_mixed or are_sized or not all(map(_is_array, types)):
            continue
        origins = [origin.dataset for dataset in owners for origin in dataset.field_origins(name)]
        if all(isinstance(dataset, WindowsView) for dataset in origins):
            names.add(name)
    return names


def _is_array(field_type: FieldType) -> bool:
    return field_type.format == 'array' or are_pictures(field_type.format, field_type.args)


def as_arrays(schema: Schema, names: Collection[str]) -> Schema:
    """Returns the schema in which fields have the type `array`."""
    return {
        name: parse_type(f'array{"?" * field_type.optional}') if name in names else field_type
        for name, field_type in schema.items()
    }


def with_common_shapes(schemas: Sequence[Schema]) -> list[Schema]:
    """Returns schemas in which arrays that differ in one dimension have a type with a varying length.

    Records of `array(float32,7)` and `array(float32,14)` are also records of `array(float32,?)`.
    """
    united: dict[str, tuple[str, ...]] = {}
    for name in {name for schema in schemas for name in schema}:
        types = [schema[name] for schema in schemas if name in schema]
        args = _common_args(types)
        if args is not None:
            united[name] = args
    return [
        {name: _with_args(type, united[name]) if name in united else type for name, type in schema.items()}
        for schema in schemas
    ]


def _common_args(types: Sequence[FieldType]) -> tuple[str, ...] | None:
    """Returns the arguments of a type for all arrays; None if their types are equal, or have no such type."""
    forms = {
        (field_type.format, field_type.args[:1], len(field_type.args), field_type.sequence)
        for field_type in types
    }
    if len(forms) > 1 or types[0].format != 'array' or len({field_type.args for field_type in types}) == 1:
        return None
    columns = zip(*(field_type.args for field_type in types), strict=True)
    merged = tuple(lengths[0] if len({*lengths}) == 1 else '?' for lengths in columns)
    return merged if merged.count('?') == 1 and '0' not in merged else None


def _with_args(field_type: FieldType, args: tuple[str, ...]) -> FieldType:
    return parse_type(
        f'{field_type.format}({",".join(args)}){"[]" * field_type.sequence}{"?" * field_type.optional}'
    )


def rows_of_source(field: SourceField, starts: Sequence[int], keys: Sequence[bytes | None]) -> list[Int64s]:
    """Returns the datapoints of the datasets with each name; `starts` are their first ones, and the end."""
    rows = []
    for key in keys:
        names = [number for number, name in enumerate(field.sources) if name.encode() == key]
        ranges = [np.arange(starts[number], starts[number + 1]) for number in names]
        rows.append(np.concatenate([np.empty(0, np.int64), *ranges]))
    return rows
