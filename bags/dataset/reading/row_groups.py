"""Row groups: the rows of each folder that a read needs, and the merging of their columns."""

from __future__ import annotations

import itertools
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import numpy as np

from bags.bag.sharding import Concatenated
from bags.dataset.reading.batch import Column, join_columns
from bags.dataset.reading.row_reader import FieldRecords, RecordRanges, RowReader
from bags.dataset.reading.selection import Selection, divide
from bags.indexing import Int64s

Datapoint = dict[str, Any]
"""A value for each field."""


class RowGroup(NamedTuple):
    """Rows to read with one reader, and their positions in the result."""

    reader: RowReader
    rows: Int64s
    """The rows to read, shape (n,)."""
    selection: Selection
    """The fields and items to read."""
    positions: Int64s | None
    """Positions of the rows in the result, shape (n,); None if the rows are the whole result, in order."""

    def within(self, positions: Int64s | None) -> RowGroup:
        """Returns the group for a larger result that contains this result at `positions`; None: in order."""
        if positions is None:
            return self
        inner = self.positions
        return RowGroup(
            self.reader, self.rows, self.selection, positions if inner is None else positions[inner]
        )


def group_by_part(
    layout: Concatenated, indices: Int64s, selection: Selection
) -> list[tuple[int, Int64s, Selection, Int64s | None]]:
    """Groups indices by part. Returns each part, the indices in it, their selection, and their positions.

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


def divide_fields(selection: Selection, names: Container[str]) -> tuple[Selection, Selection]:
    """Splits a selection into the fields in `names` and all other fields."""
    present = {name: items for name, items in selection.items() if name in names}
    return present, {name: items for name, items in selection.items() if name not in names}


def merge_columns(
    groups: Sequence[RowGroup], columns_of_groups: Sequence[dict[str, Column]], names: Sequence[str]
) -> dict[str, Column]:
    """Merges the columns of all groups, in the order of the requested datapoints."""
    if len(columns_of_groups) == 1 and groups[0].positions is None:
        return columns_of_groups[0]
    merged: dict[str, Column] = {}
    positions: dict[tuple[int, ...], Int64s | None] = {}  # By the groups that have a field.
    for name in names:
        which = tuple(number for number, columns in enumerate(columns_of_groups) if name in columns)
        if which not in positions:
            positions[which] = _positions(groups, which)
        columns = [columns_of_groups[number].pop(name) for number in which]
        merged[name] = join_columns(columns, positions[which])
    return merged


def _positions(groups: Sequence[RowGroup], which: Sequence[int]) -> Int64s | None:
    """Returns the position of each row of some groups among the requested datapoints; None if in order."""
    parts = [positions for number in which if (positions := groups[number].positions) is not None]
    if not parts:
        return None
    positions = np.concatenate(parts)
    return positions if np.count_nonzero(positions[1:] < positions[:-1]) else None


def merge_ranges(groups: Sequence[RowGroup], parts: Sequence[RecordRanges]) -> RecordRanges:
    """Merges the record ranges of all groups, in the order of the requested datapoints."""
    if len(parts) == 1 and groups[0].positions is None:
        return parts[0]
    order = _inverse(np.concatenate([group.positions for group in groups if group.positions is not None]))
    sources: list[FieldRecords] = []
    which = []
    for part in parts:
        which.append(part.which + len(sources))
        sources += part.sources
    return RecordRanges(
        sources,
        np.concatenate(which)[order],
        np.concatenate([part.firsts for part in parts])[order],
        np.concatenate([part.counts for part in parts])[order],
    )


def _inverse(positions: Int64s) -> Int64s:
    order = np.empty(len(positions), np.int64)
    order[positions] = np.arange(len(positions))
    return order
