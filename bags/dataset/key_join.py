"""Joining datasets by a field of keys: each becomes a view of the datapoints that belong together."""

from __future__ import annotations

import copy
import dataclasses
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bags.dataset.absent import Absent
from bags.dataset.address import Address
from bags.dataset.base import Datapoint, Dataset, Select
from bags.dataset.batch import Column, Ragged, as_list, spread
from bags.dataset.key_index import KEY_TYPES, Matches, check_key_field, index_in_memory, read_keys
from bags.dataset.selection import FrameSelection, PerRowItems, Selection, divide
from bags.dataset.spec import parse_type
from bags.indexing import Int64s, check_index

__all__ = ['Matched', 'join_by_key']


class Matched(Select):
    """Datapoints of a dataset that belong to those of another one, if there are any: -1 stands for none.

    All its fields are optional.
    """

    def __init__(self, dataset: Dataset, rows: Int64s, fields: Sequence[str]) -> None:
        super().__init__(dataset, rows, fields)
        self._types = {
            name: kind if kind.optional else parse_type(f'{kind.text}?') for name, kind in self._types.items()
        }

    def _resolve(self, indices: Int64s, selection: Selection) -> list[Address]:
        rows = self._below(indices)
        there, missing = np.flatnonzero(rows >= 0), np.flatnonzero(rows < 0)
        shares = divide(selection, [there, missing])
        addresses = []
        if len(there):
            found = self._datasets[0]._resolve(rows[there], shares[0])
            addresses = [each._replace(reader=Present(each.reader)).at(there) for each in found]
        if len(missing) or not len(rows):
            absent = Address(Absent(self._find), rows[missing], shares[1], None)
            addresses.append(absent.at(missing) if len(rows) else absent)
        return addresses

    def _find(self, name: str) -> Any:
        """Returns what has a field of a folder below as an optional one."""
        below = self._datasets[0]._resolve(np.empty(0, np.int64), {name: True})[0].reader
        field = copy.copy(below._fields[name])
        field.kind = self._types[name]
        return types.SimpleNamespace(_fields={name: field})

    def _row(self, index: int, selection: Selection | None) -> Datapoint:
        asked = dict.fromkeys(self._types, True) if selection is None else selection
        row = int(self._indices[check_index(index, len(self._indices))])
        return self._datasets[0]._row(row, asked) if row >= 0 else dict.fromkeys(asked)


class Present:
    """The reader of a folder whose fields are optional, as other datapoints have no value of them."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def _read(self, indices: Int64s, selection: Selection, read: Callable[..., Column]) -> dict[str, Column]:
        columns = self._reader._read(indices, selection, read)
        return {name: _as_optional(column, selection[name]) for name, column in columns.items()}


def _as_optional(column: Column, items: Any) -> Column:
    """Returns a column without missing values in the form that it has where some are missing."""
    if isinstance(items, FrameSelection) or (isinstance(items, PerRowItems) and items.are_frames):
        return column
    if isinstance(column, Ragged):
        present = np.ones(len(column), bool) if column.present is None else column.present
        return dataclasses.replace(column, present=present)
    return as_list(column)


def join_by_key(datasets: Sequence[Dataset], on: str, keep: bool, many: bool) -> list[Dataset]:
    """Returns views of several datasets, of one length, whose datapoints have the same key.

    Args:
        datasets: The datasets.
        on: The field of keys, which the view of the first has.
        keep: Keep datapoints of the first that have no match.
        many: Whether several datapoints of another dataset may have a key.

    Raises:
        ValueError: Several have one, and `many` is not set.
    """
    first, *others = datasets
    if len({KEY_TYPES[check_key_field(dataset, on).word] for dataset in datasets}) > 1:
        kinds = [dataset.spec[on] for dataset in datasets]
        raise TypeError(f'join: field {on!r}: expected keys of one type in all datasets, got {kinds}')
    finders = [_finder(dataset, on) for dataset in others]
    counts: list[list[Int64s]] = [[] for _ in others]
    rows: list[list[Int64s]] = [[np.empty(0, np.int64)] for _ in others]
    for _, keys in read_keys(first, on):
        asked = [key for key in keys if key is not None]
        there = np.array([key is not None for key in keys])
        for number, find in enumerate(finders):
            found = find(asked)
            if not many and len(found.counts) and found.counts.max() > 1:
                place = int(found.counts.argmax())
                start = int(found.counts[:place].sum())
                pair = ' and '.join(map(str, found.rows[start : start + 2].tolist()))
                raise ValueError(
                    f'join: key {asked[place].decode(errors="backslashreplace")!r:.80} of field {on!r} is in '
                    f'datapoints {pair} of dataset {number + 1} (many=True takes a datapoint for each)'
                )
            each = np.zeros(len(keys), np.int64)
            each[there] = found.counts
            counts[number].append(each)
            rows[number].append(found.rows)
    lefts = np.arange(len(first))
    columns: list[Int64s] = []
    for number in range(len(others)):
        count = np.concatenate(counts[number]) if counts[number] else np.empty(0, np.int64)
        # A row -1 at the end stands for no match.
        known = np.concatenate([*rows[number], np.array([-1])])
        starts = np.where(count, np.cumsum(count) - count, len(known) - 1)[lefts]
        count = (np.maximum(count, 1) if keep else count)[lefts]
        columns = [np.repeat(column, count) for column in columns]
        columns.append(known[spread(starts, count)])
        lefts = np.repeat(lefts, count)
    kind = Matched if keep else Select
    fields = [[name for name in dataset._types if name != on] for dataset in others]
    return [Select(first, lefts), *map(kind, others, columns, fields)]


def _finder(dataset: Dataset, field: str) -> Callable[[list[bytes]], Matches]:
    """Returns what finds keys in a dataset: by its index, or by one in memory if it has none."""
    try:
        dataset._match(field, [])
    except (FileNotFoundError, TypeError):
        index = index_in_memory(dataset, field)
        return lambda keys: index.match(dataset, field, keys)
    return lambda keys: dataset._match(field, keys)
