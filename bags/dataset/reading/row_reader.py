"""`RowReader`: reads rows of a dataset folder or of a computed view, and locates their records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from bags.bag.records import StoredRecords
from bags.dataset.format.folder import Folder
from bags.dataset.format.refs import MISSING, Refs, is_missing
from bags.dataset.reading.batch import Column, concat_ranges
from bags.dataset.reading.columns import ReadField, expect_refs
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.selection import Asked, PerRowItems, Selection
from bags.indexing import Int64s

FolderFields = list[tuple[Folder, list[str]]]
"""Folders, each with the names of some of its fields."""


class FieldRecords(NamedTuple):
    """The records of a field, and whether its integers are unsigned."""

    bag: StoredRecords
    unsigned: bool
    """Whether Bags 0.x wrote the bag. Its integers are then unsigned, even in fields of type `int`."""


class RecordRanges(NamedTuple):
    """Locations of the records of a field, for n datapoints."""

    sources: Sequence[FieldRecords]
    which: Int64s
    """The source of each datapoint, shape (n,)."""
    firsts: Int64s
    """The first record of each datapoint, shape (n,); `MISSING` if the value is missing."""
    counts: Int64s
    """The number of records of each datapoint, shape (n,): 1 for a plain field, 0 if the value is missing."""

    def sizes(self) -> Int64s:
        """Returns the stored bytes of each datapoint, shape (n,), without reading records."""
        totals = np.zeros(len(self.which), np.int64)
        for number, source in enumerate(self.sources):
            rows = np.flatnonzero((self.which == number) & (self.counts > 0))
            if not len(rows):
                continue
            counts = self.counts[rows]
            records = concat_ranges(self.firsts[rows], counts)
            totals[rows] = np.add.reduceat(source.bag.sizes(records), np.cumsum(counts) - counts)
        return totals


class RowReader(Protocol):
    """Reads rows: datapoints of one dataset folder, or of a view that computes values.

    A dataset plans a read as `RowGroup`s, each the rows of one reader. Threads may share a reader. Rows and
    fields are checked before a reader is called.
    """

    def read_selection(self, rows: Int64s, selection: Selection, read: ReadField, /) -> dict[str, Column]:
        """Returns a column of each selected field, with a value per row.

        Args:
            rows: The rows, shape (n,), in any order, with repeats.
            selection: The fields, and the items or frames of each.
            read: Makes the column of a field from its refs: `read_column`, `read_values` or `read_records`.

        Raises:
            CorruptError, DecodeError: Damaged data.
            IndexError: A selected item is out of range.
        """
        ...

    def item_counts(self, rows: Int64s, field: str, items: Asked, /) -> Int64s:
        """Returns the number of selected items of each sequence, shape (n,), without reading records."""
        ...

    def record_ranges(self, rows: Int64s, field: str, items: Asked, /) -> RecordRanges | None:
        """Returns the locations of records of a field; None for computed values or records with gaps."""
        ...

    def folders(self, fields: Iterable[str], /) -> FolderFields:
        """Returns the folders with the records of some fields, each with the names of these fields in it."""
        ...


class SizedRowReader(RowReader, Protocol):
    """A `RowReader` whose rows are numbered from 0 to its length: any dataset."""

    def __len__(self) -> int: ...


def ranges_of_refs(field: FieldReader, refs: Refs, items: Asked, unsigned: bool) -> RecordRanges | None:
    """Returns the locations of the records of rows, from their refs; None for parts of records.

    Raises:
        BadRef: A ref is outside the bag; names the first one.
    """
    firsts, counts = refs if isinstance(refs, tuple) else (refs, None)
    expect_refs(field, firsts, counts)
    if counts is None and items is not True:
        return None
    if isinstance(items, PerRowItems):
        if items.are_frames:
            return None
        assert items.starts is not None
        assert counts is not None
        items.expect_within(counts)
        firsts, counts = firsts + items.starts, items.counts
    elif counts is None:
        counts = (~is_missing(firsts)).astype(np.int64)
    return RecordRanges([FieldRecords(field.bag, unsigned)], np.zeros(len(firsts), np.int64), firsts, counts)


class MissingFields:
    """Reads rows of a folder that lacks some optional fields: all values are missing.

    `field_of` returns the field from another folder. Its type determines the empty column.
    """

    def __init__(self, field_of: Callable[[str], FieldReader]) -> None:
        self._field_of = field_of

    def read_selection(self, rows: Int64s, selection: Selection, read: ReadField) -> dict[str, Column]:
        missing, columns = np.full(len(rows), MISSING, np.int64), {}
        for name, items in selection.items():
            field = self._field_of(name)
            refs = (missing, np.zeros_like(missing)) if field.type.sequence else missing
            columns[name] = read(field, refs, items)
        return columns

    def item_counts(self, rows: Int64s, field: str, items: Asked) -> Int64s:
        return np.zeros(len(rows), np.int64)

    def record_ranges(self, rows: Int64s, field: str, items: Asked) -> RecordRanges | None:
        source = FieldRecords(self._field_of(field).bag, False)
        zeros = np.zeros(len(rows), np.int64)
        return RecordRanges([source], zeros, np.full(len(rows), MISSING, np.int64), zeros)

    def folders(self, fields: Iterable[str]) -> FolderFields:
        return []
