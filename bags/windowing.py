"""Windows: the stretches of long sequences as datapoints of their own.

    sequence of 7 items      0 1 2 3 4 5 6
    length 3, stride 2       0 1 2
                                 2 3 4
                                     4 5 6
                                         6       only with drop_last=False

How many windows each datapoint has follows from the lengths of its sequences, so a view of ten million
windows is one number a datapoint. The items of a window are read when the window is, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO, SupportsIndex

import numpy as np
import numpy.typing as npt

from bags.bag.indices import as_indices, check_index
from bags.batch import Column, offsets_of, spread
from bags.dataset import Datapoint, Rows
from bags.selection import Each, Items, Selection, select_fields, select_items, select_many

__all__ = ['Windows', 'windows']

Int64s = npt.NDArray[np.int64]


class Windows(Rows):
    """The view that `windows` returns."""

    def __init__(
        self, dataset: Rows, fields: tuple[str, ...], length: int, stride: int, drop_last: bool
    ) -> None:
        self.dataset = dataset
        self.fields = fields
        """The sequences that are cut into windows."""
        self.length = length
        self.stride = stride
        self.drop_last = drop_last
        self.types = dataset.types
        self._lengths = self._agreed()
        """Items of the sequences of each datapoint of the dataset."""
        self._offsets = offsets_of(self._counts())
        """Which window is the first of each datapoint, and how many there are in all."""

    def _agreed(self) -> Int64s:
        lengths = self.dataset.lengths_at(None, self.fields[0])
        for field in self.fields[1:]:
            others = self.dataset.lengths_at(None, field)
            if (lengths != others).any():
                index = int((lengths != others).argmax())
                raise ValueError(
                    f'windows: expected sequences of one length, got {lengths[index]} items '
                    f'of {self.fields[0]!r} and {others[index]} of {field!r} in datapoint {index} of '
                    f'{self.dataset!r}'
                )
        return lengths

    def _counts(self) -> Int64s:
        """Returns the number of windows in each datapoint."""
        last = self._lengths - (self.length if self.drop_last else 1)
        return np.maximum(last // self.stride + 1, 0)

    # Which datapoint a window comes from.

    def origin(self, index: SupportsIndex) -> tuple[int, int]:
        """Returns the datapoint that a window comes from, and the item of its sequences it begins with."""
        row, start, _ = self._origin(check_index(index, len(self)))
        return row, start

    def origins(self, indices: Iterable[SupportsIndex] | None = None) -> tuple[Int64s, Int64s]:
        """Returns the same of many windows, or of all: datapoints and first items, each int64 (n,)."""
        chosen = np.arange(len(self)) if indices is None else as_indices(indices, len(self))
        rows, starts, _ = self._origins(chosen)
        return rows, starts

    def _origin(self, index: int) -> tuple[int, int, int]:
        row = int(self._offsets.searchsorted(index, 'right')) - 1
        start = (index - int(self._offsets[row])) * self.stride
        return (
            row,
            start,
            self.length if self.drop_last else min(self.length, int(self._lengths[row]) - start),
        )

    def _origins(self, indices: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        rows = self._offsets.searchsorted(indices, 'right') - 1
        starts = (indices - self._offsets[rows]) * self.stride
        if self.drop_last:
            return rows, starts, np.full(len(rows), self.length)
        return rows, starts, np.minimum(self._lengths[rows] - starts, self.length)

    # What every dataset can be asked.

    def __len__(self) -> int:
        return int(self._offsets[-1])

    def row(self, index: Any, selection: Selection | None) -> Datapoint:
        row, start, count = self._origin(check_index(index, len(self)))
        asked = dict.fromkeys(self.types, True) if selection is None else selection
        inner = {
            name: _shift(items, start, count) if name in self.fields else items
            for name, items in asked.items()
        }
        return self.dataset.row(row, inner)

    def rows(self, indices: Int64s, selection: Selection) -> list[Datapoint]:
        rows, starts, counts = self._origins(indices)
        return self.dataset.rows(rows, self._inner(selection, starts, counts))

    def columns(self, indices: Int64s, selection: Selection) -> dict[str, Column]:
        rows, starts, counts = self._origins(indices)
        return self.dataset.columns(rows, self._inner(selection, starts, counts))

    def _inner(self, selection: Selection, starts: Int64s, counts: Int64s) -> Selection:
        """Returns what is asked of windows as what that is of the datapoints they come from."""
        made: dict[int, Each] = {}  # Most often the same of all fields.
        inner = dict(selection)
        for name, items in selection.items():
            if name in self.fields:
                if id(items) not in made:
                    made[id(items)] = self._each(items, starts, counts)
                inner[name] = made[id(items)]
        return inner

    def _each(self, items: Items | bool, starts: Int64s, counts: Int64s) -> Each:
        if items is True:
            return Each(spread(starts, counts), counts)
        if self.drop_last and isinstance(items, range | slice | list):
            places = np.asarray(select_items(items, self.length), np.int64)
            return Each((starts[:, None] + places).reshape(-1), np.full(len(starts), len(places)))
        return Each(*select_many(items, starts, counts))  # type: ignore[arg-type]

    def lengths_at(self, indices: Int64s | None, field: str) -> Int64s:
        if indices is None and field not in self.fields:
            return np.repeat(self.dataset.lengths_at(None, field), np.diff(self._offsets))
        if indices is None and self.drop_last:
            return np.full(len(self), self.length)
        rows, _, counts = self._origins(np.arange(len(self)) if indices is None else indices)
        return counts if field in self.fields else self.dataset.lengths_at(rows, field)

    def records_at(self, indices: Int64s, field: str, items: Int64s | None) -> list[bytes | None]:
        rows, starts, _ = self._origins(indices)
        if items is not None and field in self.fields:
            items = items + starts
        return self.dataset.records_at(rows, field, items)

    def file(self, index: SupportsIndex, field: str, item: SupportsIndex | None = None) -> BinaryIO:
        row, start, count = self._origin(check_index(index, len(self)))
        if item is not None and field in self.fields:
            item = start + check_index(item, count)
        return self.dataset.file(row, field, item)

    def close(self) -> None:
        self.dataset.close()

    def __repr__(self) -> str:
        return (
            f'bags.windows({self.dataset!r}, {self.fields!r}, {self.length}, stride={self.stride}, '
            f'drop_last={self.drop_last})'
        )


def _shift(items: Items | bool, start: int, count: int) -> range | list[int]:
    """Returns items of a window as items of the sequence it is of."""
    if items is True:
        return range(start, start + count)
    places = select_items(items, count)  # type: ignore[arg-type]
    if isinstance(places, range):
        return range(places.start + start, places.stop + start, places.step)
    return [start + place for place in places]


def windows(
    dataset: Any, fields: str | Iterable[str], length: int, stride: int = 1, drop_last: bool = True
) -> Windows:
    """Returns a view in which each window of the sequences of a dataset is a datapoint.

    The named fields hold the items of the window only; all other fields are those of the datapoint that the
    window comes from. Several sequences move together: item k of one belongs to item k of the others.

    Args:
        dataset: A reader or a view.
        fields: The sequence field, or several.
        length: Items of a window.
        stride: Items from the start of a window to that of the next.
        drop_last: Leave out windows that the end of the sequence cuts short; else there is one at every
            stride up to the last item.

    Raises:
        KeyError, TypeError: No such field, or it is no sequence.
        ValueError: Sequences of a datapoint that differ in length, or a length or stride below 1.
    """
    if not isinstance(dataset, Rows):
        raise TypeError(f'windows: expected a dataset, got {type(dataset).__name__}')
    names = tuple(select_fields(fields, dataset.types))
    if not names:
        raise ValueError('windows: expected at least one field, got none')
    for name in names:
        if not dataset.types[name].sequence:
            raise TypeError(f'windows: expected sequences, got {name!r} of type {dataset.types[name].text}')
    sizes = {'length': length, 'stride': stride}
    for what, value in sizes.items():
        if not hasattr(value, '__index__') or isinstance(value, bool):
            raise TypeError(f'windows: expected an integer as {what}, got {value!r}')
        if value < 1:
            raise ValueError(f'windows: expected a {what} of at least 1, got {value}')
    return Windows(dataset, names, int(length), int(stride), bool(drop_last))
