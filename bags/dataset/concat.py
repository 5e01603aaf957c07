"""Several datasets, one after the other, read as one: what shards and concatenated ones have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, BinaryIO, SupportsIndex

import numpy as np

from bags.bag.sharding import Concatenated
from bags.concurrency import map_concurrently
from bags.dataset.base import Datapoint, Rows
from bags.dataset.batch import Column, join_columns, take
from bags.dataset.record_ranges import RecordRanges, join_spans
from bags.dataset.selection import Selection, divide
from bags.indexing import Int64s, check_index

__all__ = ['Parts']


class Parts(Rows):
    """The datapoints of several datasets with one spec, one after the other."""

    parts: Any
    """The datasets by their place; perhaps opened when first asked for."""
    layout: Concatenated

    def __len__(self) -> int:
        return self.layout.total

    def row(self, index: Any, selection: Selection | None) -> Datapoint:
        part, within = self.layout.one(check_index(index, self.layout.total))
        datapoint: Datapoint = self.parts[part].row(within, selection)
        return datapoint

    def _groups(self, indices: Int64s) -> tuple[list[tuple[int, Int64s, Int64s]], Int64s]:
        """Divides indices by part: the part, the indices in it, and their places among those asked for.

        Returns the order that undoes it, too.
        """
        parts, within = self.layout.many(indices)
        order = np.argsort(parts, kind='stable')
        cuts = np.flatnonzero(np.diff(parts[order])) + 1
        places = np.split(order, cuts) if len(order) else []
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return [(int(parts[place[0]]), within[place], place) for place in places], back

    def _each(
        self, indices: Int64s, selection: Selection, work: Callable[[Rows, Int64s, Selection], Any]
    ) -> tuple[list[Any], Int64s]:
        groups, back = self._groups(indices)
        shares = divide(selection, [places for _, _, places in groups])
        each = [(part, within, share) for (part, within, _), share in zip(groups, shares, strict=True)]
        return map_concurrently(
            lambda group: work(self.parts[group[0]], group[1], group[2]), each, self.is_remote
        ), back

    def rows(self, indices: Int64s, selection: Selection) -> list[Datapoint]:
        found, back = self._each(indices, selection, lambda part, within, share: part.rows(within, share))
        rows = [row for part in found for row in part]
        return [rows[place] for place in back.tolist()]

    def columns(self, indices: Int64s, selection: Selection) -> dict[str, Column]:
        if not len(indices):
            # Any part knows what an empty column of a type is.
            empty: dict[str, Column] = self._any_part().columns(indices, selection)
            return empty
        found, back = self._each(indices, selection, lambda part, within, share: part.columns(within, share))
        if len(found) == 1:
            only: dict[str, Column] = found[0]
            return only
        in_order = bool((back[1:] > back[:-1]).all())
        joined = {name: join_columns([columns[name] for columns in found]) for name in selection}
        return joined if in_order else {name: take(column, back) for name, column in joined.items()}

    def _any_part(self) -> Rows:
        part: Rows = self.parts[0]
        return part

    def lengths_at(self, indices: Int64s | None, field: str) -> Int64s:
        if indices is None:
            parts = range(len(self.layout.starts) - 1)
            each = map_concurrently(
                lambda part: self.parts[part].lengths_at(None, field), parts, self.is_remote
            )
            return np.concatenate(each) if each else np.empty(0, np.int64)
        found, back = self._each(indices, {}, lambda part, within, _: part.lengths_at(within, field))
        lengths: Int64s = np.concatenate(found)[back] if found else np.empty(0, np.int64)
        return lengths

    def records_at(self, indices: Int64s, field: str, items: Int64s | None) -> list[bytes | None]:
        groups, back = self._groups(indices)

        def work(group: tuple[int, Int64s, Int64s]) -> list[bytes | None]:
            part, within, places = group
            chosen = None if items is None else items[places]
            return list(self.parts[part].records_at(within, field, chosen))

        records = [record for found in map_concurrently(work, groups, self.is_remote) for record in found]
        return [records[place] for place in back.tolist()]

    def spans(self, indices: Int64s, field: str) -> RecordRanges | None:
        if not len(indices):
            return None
        groups, back = self._groups(indices)
        found: list[RecordRanges | None] = map_concurrently(
            lambda group: self.parts[group[0]].spans(group[1], field), groups, self.is_remote
        )
        known = [spans for spans in found if spans is not None]
        return join_spans(known, back) if len(known) == len(found) else None

    def file(self, index: SupportsIndex, field: str, item: SupportsIndex | None = None) -> BinaryIO:
        part, within = self.layout.one(check_index(index, self.layout.total))
        file: BinaryIO = self.parts[part].file(within, field, item)
        return file
