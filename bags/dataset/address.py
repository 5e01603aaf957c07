"""Resolves datapoints to rows of dataset folders, reads the rows, and merges the results."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bags.bag.sharding import Concatenated
from bags.concurrency import map_concurrently
from bags.dataset.batch import Column, join_columns, spread, take
from bags.dataset.columns import read_records, read_values
from bags.dataset.field import Field
from bags.dataset.folder import Folder
from bags.dataset.key_values import Matches
from bags.dataset.late_binding import late
from bags.dataset.refs import MISSING
from bags.dataset.selection import PerRowItems, Selection, divide
from bags.dataset.spec import Spec
from bags.indexing import Int64s, check_index, offsets_of

Datapoint = dict[str, Any]
"""A value for each field."""


class Address(NamedTuple):
    """Rows of one folder to read, and their positions in the result."""

    reader: Any
    """The `DatasetReader` of the folder."""
    rows: Int64s
    """The rows to read, shape (n,)."""
    selection: Selection
    """The fields and items to read."""
    positions: Int64s | None
    """Positions of the rows in the result, shape (n,); None if the rows are the whole result, in order."""

    def at(self, positions: Int64s) -> Address:
        """Returns the address for a larger result, which has this result at these positions."""
        return self._replace(positions=positions if self.positions is None else positions[self.positions])


class Source(NamedTuple):
    """The bag of a field, and whether its integers are unsigned."""

    bag: Any
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


def group_by_part(
    layout: Concatenated, indices: Int64s, selection: Selection
) -> list[tuple[int, Int64s, Selection, Int64s]]:
    """Groups indices by part. Each group has the part, the indices in it, their selection, and places."""
    parts, within = layout.many(indices)
    order = np.argsort(parts, kind='stable')
    cuts = np.flatnonzero(np.diff(parts[order])) + 1
    positions = np.split(order, cuts) if len(order) else []
    shares = divide(selection, positions)
    return [
        (int(parts[position[0]]), within[position], share, position)
        for position, share in zip(positions, shares, strict=True)
    ]


def divide_fields(selection: Selection, names: Any) -> tuple[Selection, Selection]:
    """Splits a selection into the fields in `names` and all other fields."""
    there = {name: items for name, items in selection.items() if name in names}
    return there, {name: items for name, items in selection.items() if name not in names}


class MissingFields:
    """Replaces the `DatasetReader` of a folder without some optional fields: all values are missing.

    `field_of` returns the field from another folder. The type of this field determines the empty column.
    """

    _folder = None

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

    def _item_counts(self, rows: Int64s, field: str, items: Any) -> Int64s:
        return np.zeros(len(rows), np.int64)

    def _ranges_of(self, rows: Int64s, field: str, items: Any) -> RecordRanges:
        source = Source(self._field_of(field).bag, False)
        zeros = np.zeros(len(rows), np.int64)
        return RecordRanges([source], zeros, np.full(len(rows), MISSING, np.int64), zeros)


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
    for name in names:
        parts = [
            (columns[name], address.positions)
            for address, columns in zip(addresses, found, strict=True)
            if name in columns
        ]
        column = join_columns([column for column, _ in parts])
        positions = [positions for _, positions in parts if positions is not None]
        merged[name] = take(column, _inverse(np.concatenate(positions))) if positions else column
    return merged


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


class Addressable(abc.ABC):
    """A sequence of datapoints, each a row of a folder. Readers and views define `_resolve`.

    A read resolves datapoints to addresses, reads each folder, and puts the results in order.
    """

    types: Spec
    """The type of each field, parsed."""
    is_remote: bool = False
    """Whether reads wait for a network."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def resolve(self, indices: Int64s, selection: Selection) -> list[Address]:
        """Returns the addresses of datapoints, without reading records."""

    @abc.abstractmethod
    def open_field(self, name: str) -> Field:
        """Returns a field from a folder that has it."""

    def read_selection(
        self, indices: Int64s, selection: Selection, read: Callable[..., Column]
    ) -> dict[str, Column]:
        """Calls `read`, a function of `bags.dataset.columns`, for each field."""
        addresses = self.resolve(indices, selection)
        found = map_concurrently(
            lambda address: address.reader.read_selection(address.rows, address.selection, read),
            addresses,
            self.is_remote,
        )
        return merge_columns(addresses, found, list(selection))

    def _rows(self, indices: Int64s, selection: Selection) -> list[Datapoint]:
        columns = self.read_selection(indices, selection, read_values)
        if not columns:
            return [{} for _ in range(len(indices))]
        return [dict(zip(selection, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def read_row(self, index: int, selection: Selection | None) -> Datapoint:
        """Returns one datapoint. Subclasses may override this with a faster implementation."""
        index = check_index(index, len(self))
        asked = dict.fromkeys(self.types, True) if selection is None else selection
        return self._rows(np.array([index], np.int64), asked)[0]

    def _records(self, indices: Int64s, field: str, items: Int64s | None) -> list[bytes | None]:
        """Returns the undecoded records of a plain field, or of one item of each sequence."""
        asked = True if items is None else PerRowItems(items, np.ones(len(items), np.int64))
        found: Any = self.read_selection(indices, {field: asked}, read_records)[field]
        return list(found) if items is None else [record for records in found for record in records]

    def _item_records(self, indices: Int64s, field: str) -> list[list[Any]]:
        """Returns the undecoded records of each sequence; none for a missing one."""
        counts = self.item_counts(indices, field)
        items = spread(np.zeros(len(counts), np.int64), counts)
        records = iter(self._records(np.repeat(indices, counts), field, items))
        return [list(itertools.islice(records, count)) for count in counts.tolist()]

    def item_counts(self, indices: Int64s, field: str) -> Int64s:
        """Returns the number of items of each sequence, without reading records."""
        addresses = self.resolve(indices, {field: True})
        found = map_concurrently(
            lambda address: {
                field: address.reader._item_counts(address.rows, field, address.selection[field])
            },
            addresses,
            self.is_remote,
        )
        lengths = merge_columns(addresses, found, [field])[field]
        assert isinstance(lengths, np.ndarray)
        return lengths

    def record_ranges(self, indices: Int64s, field: str) -> RecordRanges | None:
        """Returns the locations of the records of a field; None if its values are decoded frames."""
        if not len(indices):
            return None
        addresses = self.resolve(indices, {field: True})
        found = [
            address.reader._ranges_of(address.rows, field, address.selection[field]) for address in addresses
        ]
        return None if None in found else merge_ranges(addresses, found)

    def _item_offsets(self, field: str) -> Int64s:
        """Returns the number of items before each datapoint, followed by the total; cached."""
        known: dict[str, Int64s] = vars(self).setdefault('_known_offsets', {})
        if field not in known:
            known[field] = offsets_of(self.item_counts(np.arange(len(self)), field))
        return known[field]

    # Keys.

    def match_keys(self, field: str, keys: list[bytes | None]) -> Matches:
        """Looks up the datapoints of each key in the key index."""
        known: dict[str, Any] = vars(self).setdefault('_key_indexes', {})
        if field not in known:
            known[field] = late('open_key_index')(self, field, self.index_folder())
        found: Matches = known[field].match(self, field, keys)
        return found

    def index_folder(self) -> Folder:
        """Returns the folder that contains the key indexes and statistics of the whole dataset."""
        raise TypeError(
            f'find: {self!r:.200} has no keys of its own: use find of the dataset that it is made of'
        )

    def __getstate__(self) -> dict[str, Any]:
        dropped = ('_known_offsets', '_key_indexes', '_known_places')
        return {name: value for name, value in vars(self).items() if name not in dropped}
