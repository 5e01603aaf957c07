"""Views: datasets over others, which read nothing until they are read.

Concat   the datapoints of several datasets, one after the other
Select   some datapoints of a dataset, in any order
Join     the fields of several datasets of one length
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO, SupportsIndex

import numpy as np

from bags.bag.sharding import Concatenated
from bags.concurrency import map_concurrently
from bags.dataset.base import Datapoint, Rows, check_dataset
from bags.dataset.batch import Column
from bags.dataset.concat import Parts
from bags.dataset.record_ranges import RecordRanges
from bags.dataset.selection import Selection
from bags.errors import SpecError
from bags.indexing import Int64s, as_indices, check_index

__all__ = ['Concat', 'Join', 'Select', 'concat', 'join', 'select']


class Concat(Parts):
    """The view that `concat` returns."""

    def __init__(self, datasets: Sequence[Rows]) -> None:
        for number, dataset in enumerate(datasets):
            if dataset.spec != datasets[0].spec:
                raise SpecError(
                    None, f'that of the first dataset, {datasets[0].spec}', dataset.spec, f'dataset {number}'
                )
        self.parts = list(datasets)
        self.types = datasets[0].types
        self.is_remote = any(dataset.is_remote for dataset in datasets)
        self.layout = Concatenated([len(dataset) for dataset in datasets])

    def __repr__(self) -> str:
        return f'bags.concat({self.parts!r})'

    def close(self) -> None:
        for dataset in self.parts:
            dataset.close()


class Select(Rows):
    """The view that `select` returns, and slices of datasets are."""

    def __init__(self, dataset: Rows, indices: range | Int64s) -> None:
        self.dataset = dataset
        self.indices = indices
        """Of datapoints of the dataset."""
        self.types = dataset.types
        self.is_remote = dataset.is_remote

    def _outer(self, indices: Int64s) -> Int64s:
        if isinstance(self.indices, range):
            return self.indices.start + self.indices.step * indices
        return self.indices[indices]

    def __len__(self) -> int:
        return len(self.indices)

    def row(self, index: Any, selection: Selection | None) -> Datapoint:
        return self.dataset.row(int(self.indices[check_index(index, len(self.indices))]), selection)

    def rows(self, indices: Int64s, selection: Selection) -> list[Datapoint]:
        return self.dataset.rows(self._outer(indices), selection)

    def columns(self, indices: Int64s, selection: Selection) -> dict[str, Column]:
        return self.dataset.columns(self._outer(indices), selection)

    def lengths_at(self, indices: Int64s | None, field: str) -> Int64s:
        chosen = np.arange(len(self.indices)) if indices is None else indices
        return self.dataset.lengths_at(self._outer(chosen), field)

    def records_at(self, indices: Int64s, field: str, items: Int64s | None) -> list[bytes | None]:
        return self.dataset.records_at(self._outer(indices), field, items)

    def spans(self, indices: Int64s, field: str) -> RecordRanges | None:
        return self.dataset.spans(self._outer(indices), field)

    def file(self, index: SupportsIndex, field: str, item: SupportsIndex | None = None) -> BinaryIO:
        return self.dataset.file(int(self.indices[check_index(index, len(self.indices))]), field, item)

    def close(self) -> None:
        self.dataset.close()

    def __repr__(self) -> str:
        if isinstance(self.indices, range):
            part = f'[{self.indices.start}:{self.indices.stop}:{self.indices.step}]'
            return f'{self.dataset!r}{part}'
        # All of the indices tell one selection from another, so they are in it, as a number.
        import zlib

        mark = zlib.crc32(self.indices.tobytes())
        return f'bags.select({self.dataset!r}, {len(self.indices)} indices #{mark:08x})'


class Join(Rows):
    """The view that `join` returns."""

    def __init__(self, datasets: Sequence[Rows], replace: bool) -> None:
        self.datasets = list(datasets)
        self.is_remote = any(dataset.is_remote for dataset in datasets)
        self.replace = replace
        self.owners: dict[str, Rows] = {}
        """Which dataset each field is read from."""
        for number, dataset in enumerate(datasets):
            if len(dataset) != len(datasets[0]):
                raise ValueError(
                    f'join: expected datasets of one length, got {len(datasets[0])} datapoints in the first '
                    f'and {len(dataset)} in dataset {number}'
                )
            for name in dataset.types:
                if name in self.owners and not replace:
                    raise ValueError(
                        f'join: field {name!r} of dataset {number} is in an earlier one too '
                        f'(replace=True takes the later)'
                    )
                self.owners[name] = dataset
        self.types = {name: self.owners[name].types[name] for name in sorted(self.owners)}

    def __len__(self) -> int:
        return len(self.datasets[0])

    def _shares(self, selection: Selection) -> list[tuple[Rows, Selection]]:
        """Divides a selection by the datasets that its fields are read from."""
        shares: dict[int, tuple[Rows, Selection]] = {}
        for name, items in selection.items():
            owner = self.owners[name]
            shares.setdefault(id(owner), (owner, {}))[1][name] = items
        return list(shares.values())

    def _each(self, selection: Selection, work: Callable[[Rows, Selection], Any]) -> list[Any]:
        return map_concurrently(lambda share: work(*share), self._shares(selection), self.is_remote)

    def row(self, index: Any, selection: Selection | None) -> Datapoint:
        index = check_index(index, len(self))
        asked = dict.fromkeys(self.types, True) if selection is None else selection
        found: Datapoint = {}
        for part in self._each(asked, lambda dataset, share: dataset.row(index, share)):
            found |= part
        return {name: found[name] for name in asked}

    def rows(self, indices: Int64s, selection: Selection) -> list[Datapoint]:
        each = self._each(selection, lambda dataset, share: dataset.rows(indices, share))
        if not each:
            return [{} for _ in range(len(indices))]
        merged = [
            {name: value for part in parts for name, value in part.items()}
            for parts in zip(*each, strict=True)
        ]
        return [{name: row[name] for name in selection} for row in merged]

    def columns(self, indices: Int64s, selection: Selection) -> dict[str, Column]:
        found: dict[str, Column] = {}
        for part in self._each(selection, lambda dataset, share: dataset.columns(indices, share)):
            found |= part
        return {name: found[name] for name in selection}

    def lengths_at(self, indices: Int64s | None, field: str) -> Int64s:
        return self.owners[field].lengths_at(indices, field)

    def records_at(self, indices: Int64s, field: str, items: Int64s | None) -> list[bytes | None]:
        return self.owners[field].records_at(indices, field, items)

    def spans(self, indices: Int64s, field: str) -> RecordRanges | None:
        return self.owners[field].spans(indices, field)

    def file(self, index: SupportsIndex, field: str, item: SupportsIndex | None = None) -> BinaryIO:
        if field not in self.owners:
            raise KeyError(f'no field {field!r}; those there are: {", ".join(map(repr, self.types))}')
        return self.owners[field].file(index, field, item)

    def close(self) -> None:
        for dataset in self.datasets:
            dataset.close()

    def __repr__(self) -> str:
        return f'bags.join({self.datasets!r}, replace={self.replace})'


def _datasets(datasets: Iterable[Any], what: str) -> list[Rows]:
    if isinstance(datasets, Rows):
        raise TypeError(f'{what}: expected several datasets, got a {type(datasets).__name__} alone')
    if isinstance(datasets, str | os.PathLike) or not isinstance(datasets, Iterable):
        raise TypeError(f'{what}: expected several datasets, got {datasets!r}')
    found = list(datasets)
    for number, dataset in enumerate(found):
        check_dataset(f'{what}, dataset {number}', dataset)
    if not found:
        raise ValueError(f'{what}: expected at least one dataset, got none')
    return found


def select(dataset: Any, indices: slice | Iterable[SupportsIndex]) -> Select:
    """Returns a view of some datapoints of a dataset: fewer of them, in another order, or repeated.

    Args:
        dataset: A reader or a view.
        indices: Integers (negative ones count from the end), a range or a slice.

    Raises:
        IndexError: One is out of range.
    """
    (rows,) = _datasets([dataset], 'select')
    if isinstance(indices, slice):
        indices = range(len(rows))[indices]
    if isinstance(indices, range):
        if not indices or (0 <= indices[0] < len(rows) and 0 <= indices[-1] < len(rows)):
            if isinstance(rows, Select) and isinstance(rows.indices, range):
                return Select(rows.dataset, rows.indices[_as_slice(indices)] if indices else range(0))
            return Select(rows, indices or range(0))
        indices = list(indices)
    chosen = as_indices(indices, len(rows))
    # The view's own: an array given may change later.
    return Select(rows, np.array(chosen, np.int64))


def _as_slice(part: range) -> slice:
    """Returns the slice that takes the places of a range, all of them at least 0."""
    stop = part[-1] + (1 if part.step > 0 else -1)
    return slice(part.start, stop if stop >= 0 else None, part.step)


def concat(datasets: Iterable[Any]) -> Concat:
    """Returns a view of the datapoints of several datasets, one after the other.

    Raises:
        SpecError: Their specs differ.
    """
    return Concat(_datasets(datasets, 'concat'))


def join(datasets: Iterable[Any], replace: bool = False) -> Join:
    """Returns a view of the fields of several datasets of one length.

    Args:
        replace: Take a field that several have from the last of them.

    Raises:
        ValueError: Lengths differ, or several have a field and `replace` is not set.
    """
    return Join(_datasets(datasets, 'join'), replace)
