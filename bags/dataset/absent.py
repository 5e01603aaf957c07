"""Optional fields that some parts of a dataset do not have: their datapoints have no value there."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from bags.concurrency import FifoCache
from bags.dataset.address import RecordRanges, Source
from bags.dataset.batch import Column
from bags.dataset.field import Field
from bags.dataset.refs import MISSING
from bags.dataset.selection import Selection
from bags.dataset.spec import FieldType, parse_type
from bags.indexing import Int64s

__all__ = ['Absent', 'Present', 'Widened', 'as_optional', 'divide_fields', 'optional_field']

MAX_FIELDS = 1024


def divide_fields(selection: Selection, names: Any) -> tuple[Selection, Selection]:
    """Divides a selection: the fields among some names, and the others."""
    there = {name: items for name, items in selection.items() if name in names}
    return there, {name: items for name, items in selection.items() if name not in names}


def as_optional(kind: FieldType) -> FieldType:
    """Returns the type of a field of which values may be missing."""
    return kind if kind.optional else parse_type(f'{kind.text}?')


def optional_field(field: Field) -> Field:
    """Returns a field of which values may be missing."""
    field = copy.copy(field)
    field.kind = as_optional(field.kind)
    return field


class Absent:
    """Takes the place of a `DatasetReader` for fields that datapoints do not have.

    `find` returns the reader of a folder that has a field: its type decides what an empty column is.
    """

    _folder = None

    def __init__(self, find: Callable[[str], Any]) -> None:
        self._fields: dict[str, Field] = FifoCache(lambda name: find(name)._fields[name], MAX_FIELDS)

    def _read(self, indices: Int64s, selection: Selection, read: Callable[..., Column]) -> dict[str, Column]:
        missing, columns = np.full(len(indices), MISSING, np.int64), {}
        for name, items in selection.items():
            field = self._fields[name]
            refs = (missing, np.zeros_like(missing)) if field.kind.sequence else missing
            columns[name] = read(field, refs, items)
        return columns

    def _item_counts(self, rows: Int64s, field: str, items: Any) -> Int64s:
        return np.zeros(len(rows), np.int64)

    def _ranges_of(self, rows: Int64s, field: str, items: Any) -> RecordRanges:
        source = Source(self._fields[field].bag, False)
        zeros = np.zeros(len(rows), np.int64)
        return RecordRanges([source], zeros, np.full(len(rows), MISSING, np.int64), zeros)

    def _open_file(self, row: int, field: str, items: Any) -> None:
        return None


class Present:
    """The reader of a folder, with all fields optional: other datapoints have no values."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def _read(self, indices: Int64s, selection: Selection, read: Callable[..., Column]) -> dict[str, Column]:
        columns: dict[str, Column] = self._reader._read(
            indices, selection, lambda field, *asked: read(optional_field(field), *asked)
        )
        return columns


class Widened:
    """The reader of a shard that does not have some optional fields of other shards."""

    def __init__(self, reader: Any, absent: Absent) -> None:
        self._reader, self._absent = reader, absent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def __len__(self) -> int:
        return len(self._reader)

    def _row(self, index: int, selection: Selection) -> dict[str, Any]:
        found = self._reader._row(index, divide_fields(selection, self._reader._types)[0])
        return {name: found.get(name) for name in selection}

    def _read(self, indices: Int64s, selection: Selection, read: Callable[..., Column]) -> dict[str, Column]:
        there, rest = divide_fields(selection, self._reader._types)
        columns = self._reader._read(indices, there, read) | self._absent._read(indices, rest, read)
        return {name: columns[name] for name in selection}

    def _of(self, field: str) -> Any:
        return self._reader if field in self._reader._types else self._absent

    def _item_counts(self, rows: Int64s, field: str, items: Any) -> Any:
        return self._of(field)._item_counts(rows, field, items)

    def _ranges_of(self, rows: Int64s, field: str, items: Any) -> Any:
        return self._of(field)._ranges_of(rows, field, items)

    def _open_file(self, row: int, field: str, items: Any) -> Any:
        return self._of(field)._open_file(row, field, items)
