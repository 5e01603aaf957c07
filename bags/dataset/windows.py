"""Windows: the stretches of long sequences as datapoints of their own.

    sequence of 7 items      0 1 2 3 4 5 6
    length 3, stride 2       0 1 2
                                 2 3 4
                                     4 5 6
                                         6       only with drop_last=False

How many windows each datapoint has follows from the lengths of its sequences, so a view of ten million
windows is one number a datapoint. The items of a window are read when the window is, and no others.

Of a video, or of a sequence of clips, a window is of frames: a value of type `array`.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Iterable
from typing import Any, BinaryIO, SupportsIndex

import numpy as np
import numpy.typing as npt

from bags.concurrency import map_concurrently
from bags.dataset.base import Datapoint, Rows, check_dataset
from bags.dataset.batch import Column, spread
from bags.dataset.record_ranges import RecordRanges
from bags.dataset.selection import (
    FILMS,
    Each,
    FrameSelection,
    Items,
    Selection,
    select_fields,
    select_items,
    select_many,
)
from bags.dataset.spec import parse_type
from bags.formats.arrays import encode_array
from bags.indexing import Int64s, as_indices, check_index, offsets_of
from bags.validation import at_least

__all__ = ['Windows', 'windows']

FILES = 1024
"""Datapoints whose videos are asked for their frames at once."""


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
        self.is_remote = dataset.is_remote
        self.films = {name for name in fields if dataset.types[name].word in FILMS}
        """Those of the fields whose windows are of frames."""
        self.types = {
            name: parse_type(name, 'array') if name in self.films else kind
            for name, kind in dataset.types.items()
        }
        if not self.films:
            _ = self._offsets  # Known without reading any payload, and so is what cannot be right.

    @functools.cached_property
    def _lengths(self) -> Int64s:
        """Items of the sequences of each datapoint of the dataset."""
        lengths = self._lengths_of(self.fields[0])
        for field in self.fields[1:]:
            others = self._lengths_of(field)
            if (lengths != others).any():
                index = int((lengths != others).argmax())
                raise ValueError(
                    f'windows: expected sequences of one length, got {lengths[index]} items '
                    f'of {self.fields[0]!r} and {others[index]} of {field!r} in datapoint {index}'
                )
        return lengths

    def _lengths_of(self, field: str) -> Int64s:
        if field not in self.films:
            return self.dataset.lengths_at(None, field)
        counts = []
        for start in range(0, len(self.dataset), FILES):
            indices = np.arange(start, min(start + FILES, len(self.dataset)))
            counts += [row[field] or 0 for row in self.dataset.rows(indices, {field: FrameSelection(None)})]
        return np.array(counts, np.int64)

    @functools.cached_property
    def _offsets(self) -> Int64s:
        """Which window is the first of each datapoint, and how many there are in all."""
        last = self._lengths - (self.length if self.drop_last else 1)
        return offsets_of(np.maximum(last // self.stride + 1, 0))

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
        inner = dict(asked)
        for name, items in asked.items():
            if name in self.films:
                inner[name] = FrameSelection(slice(start, start + count))
            elif name in self.fields:
                inner[name] = _shift(items, start, count)
        return self.dataset.row(row, inner)

    def rows(self, indices: Int64s, selection: Selection) -> list[Datapoint]:
        rows, starts, counts = self._origins(indices)
        found = self.dataset.rows(rows, self._inner(selection, starts, counts))
        films = self._frames(selection, rows, starts, counts)
        if not films:
            return found
        return [
            {name: films[name][place].copy() if name in films else row[name] for name in selection}
            for place, row in enumerate(found)
        ]

    def columns(self, indices: Int64s, selection: Selection) -> dict[str, Column]:
        rows, starts, counts = self._origins(indices)
        found = self.dataset.columns(rows, self._inner(selection, starts, counts))
        for name, windows in self._frames(selection, rows, starts, counts).items():
            alike = len({window.shape for window in windows}) == 1
            found[name] = np.stack(windows) if alike else [window.copy() for window in windows]
        return {name: found[name] for name in selection}

    def _frames(
        self, selection: Selection, rows: Int64s, starts: Int64s, counts: Int64s
    ) -> dict[str, list[npt.NDArray[Any]]]:
        """Returns windows of frames: views of what is decoded together of each datapoint."""
        films = {name: [np.empty(0)] * len(rows) for name in selection if name in self.films}

        def work(row: int) -> tuple[Int64s, Datapoint]:
            places = np.flatnonzero(rows == row)
            frames = FrameSelection(spread(starts[places], counts[places]))
            return places, self.dataset.row(row, dict.fromkeys(films, frames))

        chosen = np.unique(rows).tolist() if films else []
        for places, found in map_concurrently(work, chosen, self.is_remote):
            ends = np.cumsum(counts[places]).tolist()
            for place, start, end in zip(places.tolist(), [0, *ends], ends, strict=False):
                for name, windows in films.items():
                    windows[place] = found[name][start:end]
        return films

    def _inner(self, selection: Selection, starts: Int64s, counts: Int64s) -> Selection:
        """Returns what is asked of windows as what that is of the datapoints they come from."""
        made: dict[int, Each] = {}  # Most often the same of all fields.
        inner = {name: items for name, items in selection.items() if name not in self.films}
        for name, items in selection.items():
            if name in self.fields and name not in self.films:
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
        if field in self.films:
            found = self.rows(indices, {field: True})
            return [bytes(encode_array(row[field])) for row in found]
        rows, starts, _ = self._origins(indices)
        if items is not None and field in self.fields:
            items = items + starts
        return self.dataset.records_at(rows, field, items)

    def spans(self, indices: Int64s, field: str) -> RecordRanges | None:
        if field in self.films:
            return None
        rows, starts, counts = self._origins(indices)
        found = self.dataset.spans(rows, field)
        if found is None or field not in self.fields:
            return found
        return found._replace(firsts=found.firsts + starts, counts=counts)

    def file(self, index: SupportsIndex, field: str, item: SupportsIndex | None = None) -> BinaryIO:
        row, start, count = self._origin(check_index(index, len(self)))
        if field in self.films:
            if item is not None:
                raise TypeError(f'field {field!r} of type array: expected no item, as it is no sequence')
            return io.BytesIO(encode_array(self.row(index, {field: True})[field]))
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

    Windows of a field of videos (`video`, `mp4[]`, …) are of frames, counted through all clips of it: arrays
    of shape (length, height, width, 3). How many frames there are is asked of every video when the view is
    first used, which reads the head of each file (all of it where the container has no index), and is kept
    with the view, also when it is pickled.

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
    check_dataset('windows', dataset)
    names = tuple(select_fields(fields, dataset.types))
    if not names:
        raise ValueError('windows: expected at least one field, got none')
    for name in names:
        kind = dataset.types[name]
        if not kind.sequence and kind.word not in FILMS:
            raise TypeError(f'windows: expected sequences or videos, got {name!r} of type {kind.text}')
    length, stride = at_least('length', length, 1), at_least('stride', stride, 1)
    return Windows(dataset, names, length, stride, bool(drop_last))
