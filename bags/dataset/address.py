"""Where the datapoints of a dataset are: rows of folders, and how what is read of them is put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bags.bag.sharding import Concatenated
from bags.dataset.batch import Column, join_columns, take
from bags.dataset.record_ranges import RecordRanges, join_ranges
from bags.dataset.selection import Selection, divide
from bags.indexing import Int64s

__all__ = ['Address', 'group_by_part', 'merge_columns', 'merge_ranges']


class Address(NamedTuple):
    """Some of the datapoints that were asked for, as rows of one folder."""

    reader: Any
    """The `DatasetReader` of the folder."""
    rows: Int64s
    """Its datapoints, shape (n,)."""
    selection: Selection
    """What is asked of them."""
    places: Int64s | None
    """Where they are among all that was asked for, shape (n,); None if they are all of it, in order."""

    def at(self, places: Int64s) -> Address:
        """Returns the address where what was asked for is at these places of something larger."""
        return self._replace(places=places if self.places is None else places[self.places])


def group_by_part(
    layout: Concatenated, indices: Int64s, selection: Selection
) -> list[tuple[int, Int64s, Selection, Int64s]]:
    """Divides indices by the part that they lie in: part, indices in it, selection, and places."""
    parts, within = layout.many(indices)
    order = np.argsort(parts, kind='stable')
    cuts = np.flatnonzero(np.diff(parts[order])) + 1
    places = np.split(order, cuts) if len(order) else []
    shares = divide(selection, places)
    return [
        (int(parts[place[0]]), within[place], share, place)
        for place, share in zip(places, shares, strict=True)
    ]


def merge_columns(
    addresses: Sequence[Address], found: Sequence[dict[str, Column]], names: Sequence[str]
) -> dict[str, Column]:
    """Returns the columns of all addresses, in the order that was asked for."""
    if len(found) == 1 and addresses[0].places is None:
        return found[0]
    merged: dict[str, Column] = {}
    for name in names:
        parts = [
            (columns[name], address.places)
            for address, columns in zip(addresses, found, strict=True)
            if name in columns
        ]
        column = join_columns([column for column, _ in parts])
        places = [places for _, places in parts if places is not None]
        merged[name] = take(column, _inverse(np.concatenate(places))) if places else column
    return merged


def merge_ranges(addresses: Sequence[Address], found: Sequence[RecordRanges]) -> RecordRanges:
    """Returns the record ranges of all addresses, in the order that was asked for."""
    if len(found) == 1 and addresses[0].places is None:
        return found[0]
    places = [address.places for address in addresses if address.places is not None]
    return join_ranges(found, _inverse(np.concatenate(places)))


def _inverse(places: Int64s) -> Int64s:
    order = np.empty(len(places), np.int64)
    order[places] = np.arange(len(places))
    return order
