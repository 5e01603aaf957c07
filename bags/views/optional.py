"""Fields whose columns change in a view, because they become optional or get another type."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from bags.dataset.format.spec import FieldType, as_optional
from bags.dataset.reading.batch import Column, Ragged
from bags.dataset.reading.columns import ReadField
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.row_reader import FolderFields, RecordRanges, RowReader
from bags.dataset.reading.selection import Asked, Selection
from bags.indexing import Int64s

Change = Callable[[Column, Asked], Column]
"""A function from a column and the selected items to the column in the view."""


class ChangedReader:
    """A reader that changes the columns of some fields after reading them.

    A field is read with its own type, which returns one array if all values have the same size. Reading it
    as an optional field would decode each value separately.
    """

    def __init__(self, reader: RowReader, changes: Mapping[str, Change]) -> None:
        self._reader = reader
        self._changes = changes

    def read_selection(self, rows: Int64s, selection: Selection, read: ReadField) -> dict[str, Column]:
        columns = self._reader.read_selection(rows, selection, read)
        for name, items in selection.items():
            if name in self._changes:
                columns[name] = self._changes[name](columns[name], items)
        return columns

    def item_counts(self, rows: Int64s, field: str, items: Asked) -> Int64s:
        return self._reader.item_counts(rows, field, items)

    def record_ranges(self, rows: Int64s, field: str, items: Asked) -> RecordRanges | None:
        return self._reader.record_ranges(rows, field, items)

    def folders(self, fields: Iterable[str]) -> FolderFields:
        return self._reader.folders(fields)


def optional_column(field_type: FieldType, column: Column, items: Asked) -> Column:
    """Converts a column without missing values to a column of an optional field."""
    if isinstance(column, Ragged):
        if column.present is None:
            return dataclasses.replace(column, present=np.ones(len(column), np.bool_))
    elif items is True and not field_type.sequence:
        return list_column(field_type, column)
    return column


def list_column(field_type: FieldType, column: Column, _: Any = True) -> list[Any]:
    """Returns a column as a list of its values: Python numbers, or arrays."""
    if not isinstance(column, np.ndarray) or column.ndim > 1:
        return list(column)
    if field_type.format != 'array':
        numbers: list[Any] = column.tolist()
        return numbers
    return [column[row, ...] for row in range(len(column))]  # `...` keeps arrays of shape ().


def optional_field(field: FieldReader) -> FieldReader:
    """Returns the field with an optional type."""
    field = copy.copy(field)
    field.type = as_optional(field.type)
    return field
