"""Addresses of datapoints: the rows of dataset folders that they are, and the merging of what is read."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bags.bag.records import StoredRecords
from bags.bag.sharding import Concatenated
from bags.dataset.format.refs import MISSING, is_missing
from bags.dataset.format.spec import Spec
from bags.dataset.reading.batch import Column, join_columns
from bags.dataset.reading.columns import expect_refs
from bags.dataset.reading.field_reader import Field
from bags.dataset.reading.selection import PerRowItems, Selection, divide
from bags.indexing import Int64s

Datapoint = dict[str, Any]
"""A value for each field."""


class Address(NamedTuple):
    """Rows of one folder to read, and their positions in the result."""

    reader: Any
    """The `DatasetReader` of the folder, or a view whose values are computed. It reads rows with
    `read_selection`, `item_counts` and `record_ranges`."""
    rows: Int64s
    """The rows to read, shape (n,)."""
    selection: Selection
    """The fields and items to read."""
    positions: Int64s | None
    """Positions of the rows in the result, shape (n,); None if the rows are the whole result, in order."""

    def at(self, positions: Int64s | None) -> Address:
        """Returns the address for a larger result, which has this result at these positions; None for all."""
        if positions is None:
            return self
        inner = self.positions
        return Address(
            self.reader, self.rows, self.selection, positions if inner is None else positions[inner]
        )


class Source(NamedTuple):
    """The records of a field, and whether its integers are unsigned."""

    bag: StoredRecords
    unsigned: bool
    """Whether Bags 0.x wrote the bag. Its integers are then unsigned, even those of type `int`."""


class RecordRanges(NamedTuple):
    """Locations of the records of a field, for n datapoints."""

    sources: Sequence[Source]
    which: Int64s
    """The source of each datapoint, shape (n,)."""
    firsts: Int64s
    """The first record of each datapoint, shape (n,); `MISSING` if the value is missing."""
    counts: Int64s
    """The number of records of each datapoint, shape (n,): 1 for a plain field, 0 if the value is missing."""


def ranges_of_refs(field: Field, refs: Any, items: Any, unsigned: bool) -> RecordRanges | None:
    """Returns the locations of the records of rows, from their refs; None for selected frames of videos.

    Raises:
        BadRef: The first ref outside the bag.
    """
    firsts, counts = refs if field.type.sequence else (refs, None)
    expect_refs(field, firsts, counts)
    if isinstance(items, PerRowItems):
        if items.are_frames:
            return None
        assert items.starts is not None
        assert counts is not None
        items.expect_within(counts)
        firsts, counts = firsts + items.starts, items.counts
    elif counts is None:
        counts = (~is_missing(firsts)).astype(np.int64)
    return RecordRanges([Source(field.bag, unsigned)], np.zeros(len(firsts), np.int64), firsts, counts)


def group_by_part(
    layout: Concatenated, indices: Int64s, selection: Selection
) -> list[tuple[int, Int64s, Selection, Int64s | None]]:
    """Groups indices by part: the part, the indices in it, their selection, and their positions.

    If all are in one part, the positions are None.
    """
    if not len(indices):
        return []
    parts, within = layout.many(indices)
    if not np.count_nonzero(parts != parts[0]):
        return [(int(parts[0]), within, selection, None)]
    order = np.argsort(parts, kind='stable')
    parts, within = parts[order], within[order]
    cuts = [0, *(np.flatnonzero(parts[1:] != parts[:-1]) + 1).tolist(), len(parts)]
    ranges = list(itertools.pairwise(cuts))
    shares = divide(selection, [order[start:stop] for start, stop in ranges])
    return [
        (int(parts[start]), within[start:stop], share, order[start:stop])
        for (start, stop), share in zip(ranges, shares, strict=True)
    ]


def divide_fields(selection: Selection, names: Any) -> tuple[Selection, Selection]:
    """Splits a selection into the fields in `names` and all other fields."""
    there = {name: items for name, items in selection.items() if name in names}
    return there, {name: items for name, items in selection.items() if name not in names}


class MissingFields:
    """Replaces the `DatasetReader` of a folder without some optional fields: all values are missing.

    `field_of` returns the field from another folder. The type of this field determines the empty column.
    """

    folder = None

    def __init__(self, field_of: Callable[[str], Field]) -> None:
        self._field_of = field_of

    def read_selection(
        self, rows: Int64s, selection: Selection, read: Callable[..., Column]
    ) -> dict[str, Column]:
        missing, columns = np.full(len(rows), MISSING, np.int64), {}
        for name, items in selection.items():
            field = self._field_of(name)
            refs = (missing, np.zeros_like(missing)) if field.type.sequence else missing
            columns[name] = read(field, refs, items)
        return columns

    def item_counts(self, rows: Int64s, field: str, items: Any) -> Int64s:
        return np.zeros(len(rows), np.int64)

    def record_ranges(self, rows: Int64s, field: str, items: Any) -> RecordRanges | None:
        source = Source(self._field_of(field).bag, False)
        zeros = np.zeros(len(rows), np.int64)
        return RecordRanges([source], zeros, np.full(len(rows), MISSING, np.int64), zeros)


class ShardReader:
    """Reads rows of a shard, which is opened on first read, in the thread that reads.

    Values are missing for optional fields that only other shards have. `dataset` is a `ShardedDatasetReader`.
    """

    def __init__(self, dataset: Any, number: int) -> None:
        self._dataset = dataset
        self._number = number

    @property
    def folder(self) -> Any:
        return self._dataset.folder_of(self._dataset.shard_list[self._number])

    def _of(self, field: str) -> Any:
        reader = self._dataset.readers[self._number]
        return reader if field in reader.types else MissingFields(self._dataset.open_field)

    def read_selection(
        self, rows: Int64s, selection: Selection, read: Callable[..., Column]
    ) -> dict[str, Column]:
        reader = self._dataset.readers[self._number]
        there, rest = divide_fields(selection, reader.types)
        columns: dict[str, Column] = reader.read_selection(rows, there, read)
        if rest:
            columns |= MissingFields(self._dataset.open_field).read_selection(rows, rest, read)
        return columns

    def item_counts(self, rows: Int64s, field: str, items: Any) -> Int64s:
        counts: Int64s = self._of(field).item_counts(rows, field, items)
        return counts

    def record_ranges(self, rows: Int64s, field: str, items: Any) -> RecordRanges | None:
        ranges: RecordRanges | None = self._of(field).record_ranges(rows, field, items)
        return ranges


def row_of_part(part: Any, index: int, selection: Selection | None, types: Spec) -> Datapoint:
    """Returns a datapoint of a part that lacks some of the fields in `types`."""
    asked = dict.fromkeys(types, True) if selection is None else selection
    found = part.read_row(index, divide_fields(asked, part.types)[0])
    return {name: found.get(name) for name in asked}


def merge_columns(
    addresses: Sequence[Address], found: Sequence[dict[str, Column]], names: Sequence[str]
) -> dict[str, Column]:
    """Merges the columns of all addresses, in the order of the requested datapoints."""
    if len(found) == 1 and addresses[0].positions is None:
        return found[0]
    merged: dict[str, Column] = {}
    positions: dict[tuple[int, ...], Int64s | None] = {}  # By the addresses with a field, which many have.
    for name in names:
        which = tuple(number for number, columns in enumerate(found) if name in columns)
        if which not in positions:
            positions[which] = _positions(addresses, which)
        merged[name] = join_columns([found[number].pop(name) for number in which], positions[which])
    return merged


def _positions(addresses: Sequence[Address], which: Sequence[int]) -> Int64s | None:
    """Returns where each row of some addresses is among the requested datapoints; None if in order."""
    known = [positions for number in which if (positions := addresses[number].positions) is not None]
    if not known:
        return None
    positions = np.concatenate(known)
    return positions if np.count_nonzero(positions[1:] < positions[:-1]) else None


def merge_ranges(addresses: Sequence[Address], found: Sequence[RecordRanges]) -> RecordRanges:
    """Merges the record ranges of all addresses, in the order of the requested datapoints."""
    if len(found) == 1 and addresses[0].positions is None:
        return found[0]
    order = _inverse(
        np.concatenate([address.positions for address in addresses if address.positions is not None])
    )
    sources: list[Source] = []
    which = []
    for part in found:
        which.append(part.which + len(sources))
        sources += part.sources
    return RecordRanges(
        sources,
        np.concatenate(which)[order],
        np.concatenate([part.firsts for part in found])[order],
        np.concatenate([part.counts for part in found])[order],
    )


def _inverse(positions: Int64s) -> Int64s:
    order = np.empty(len(positions), np.int64)
    order[positions] = np.arange(len(positions))
    return order
