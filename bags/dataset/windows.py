"""Windows: the stretches of long sequences as datapoints of their own.

    sequence of 7 items      0 1 2 3 4 5 6
    length 3, stride 2       0 1 2
                                 2 3 4
                                     4 5 6
                                         6       only with drop_last=False

The number of windows of each datapoint follows from the lengths of its sequences, so a view of ten million
windows is one number a datapoint. Reading a window reads its items and no others. A window of a video, or of
a sequence of clips, holds frames: a value of type `array`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, Literal, SupportsIndex, overload

import numpy as np

from bags.dataset.address import Address
from bags.dataset.base import Dataset, check_dataset
from bags.dataset.clocks import clock_of, count_items
from bags.dataset.selection import (
    VIDEO_WORDS,
    PerRowItems,
    Selection,
    select_fields,
    select_items,
    select_many,
)
from bags.dataset.spans import Padding, Span, Times, check_bounds, check_spans, positive
from bags.dataset.spec import parse_type
from bags.dataset.time_windows import TimeWindows, WindowsView
from bags.indexing import Int64s, check_index, offsets_of
from bags.validation import at_least, one_of

__all__ = ['Windows', 'windows']


class Windows(WindowsView):
    """What `bags.windows` returns for stretches of items."""

    def __init__(
        self, dataset: Dataset, fields: tuple[str, ...], length: int, stride: int, drop_last: bool
    ) -> None:
        self._fields = fields
        self._video_fields = {name for name in fields if dataset._types[name].word in VIDEO_WORDS}
        super().__init__(
            [dataset],
            {
                name: parse_type('array') if name in self._video_fields else kind
                for name, kind in dataset._types.items()
            },
        )
        self._length = length
        self._stride = stride
        self._drop_last = drop_last
        self._known: tuple[Int64s, Int64s] | None = None
        if not self._video_fields:
            self._layout()  # Reads no payload, and finds sequences of different lengths.

    def _layout(self) -> tuple[Int64s, Int64s]:
        """Returns the items of each datapoint's sequences, and the windows before each, and of all."""
        if self._known is None:
            lengths = count_items(self._datasets[0], self._fields[0])
            for field in self._fields[1:]:
                others = count_items(self._datasets[0], field)
                if (lengths != others).any():
                    index = int((lengths != others).argmax())
                    raise ValueError(
                        f'windows: expected sequences of one length, got {lengths[index]} items '
                        f'of {self._fields[0]!r} and {others[index]} of {field!r} in datapoint {index}'
                    )
            last = lengths - (self._length if self._drop_last else 1)
            self._known = lengths, offsets_of(np.maximum(last // self._stride + 1, 0))
        return self._known

    def _origins(self, indices: Int64s) -> tuple[Int64s, Int64s]:
        rows, starts, _ = self._stretches(indices)
        return rows, starts

    def _stretches(self, indices: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Returns datapoints, first items and numbers of items of windows."""
        lengths, offsets = self._layout()
        rows = offsets.searchsorted(indices, 'right') - 1
        starts = (indices - offsets[rows]) * self._stride
        if self._drop_last:
            return rows, starts, np.full(len(rows), self._length)
        return rows, starts, np.minimum(lengths[rows] - starts, self._length)

    def __len__(self) -> int:
        return int(self._layout()[1][-1])

    def _resolve(self, indices: Int64s, selection: Selection) -> list[Address]:
        rows, starts, counts = self._stretches(indices)
        below = dict(selection)
        for name, items in selection.items():
            if name in self._video_fields:
                below[name] = PerRowItems(starts, counts, are_frames=True)
            elif name in self._fields:
                below[name] = self._items_below(items, starts, counts)
        return self._datasets[0]._resolve(rows, below)

    def _items_below(self, items: Any, starts: Int64s, counts: Int64s) -> PerRowItems:
        """Returns items of windows as items of the sequences below."""
        if items is True:
            return PerRowItems(starts, counts)
        if self._drop_last and isinstance(items, range | slice | list):
            places = np.asarray(select_items(items, self._length), np.int64)
            counts = np.full(len(starts), len(places))
            return PerRowItems(None, counts, (starts[:, None] + places).reshape(-1))
        listed, counts = select_many(items, starts, counts)
        return PerRowItems(None, counts, listed)

    def file(self, index: SupportsIndex, field: str, item: SupportsIndex | None = None) -> BinaryIO:
        if field in self._fields and item is not None and field not in self._video_fields:
            item = check_index(item, int(self._stretches(np.array([check_index(index, len(self))]))[2][0]))
        return super().file(index, field, item)

    def __repr__(self) -> str:
        return (
            f'bags.windows({self._datasets[0]!r}, {self._fields!r}, {self._length}, stride={self._stride}, '
            f'drop_last={self._drop_last})'
        )


@overload
def windows(
    dataset: Dataset,
    fields: str | Iterable[str],
    length: int | None = None,
    stride: int = 1,
    drop_last: bool = True,
) -> Windows: ...
@overload
def windows(
    dataset: Dataset,
    fields: Mapping[str, Span] = ...,
    length: None = None,
    stride: int = 1,
    drop_last: Literal[True] = True,
    *,
    every: str | float,
    bounds: tuple[float | None, float | None] | None = None,
    padding: Padding = 'edge',
    times: Mapping[str, str | float] | None = None,
    **spans: Span,
) -> TimeWindows: ...
def windows(
    dataset: Dataset,
    fields: str | Iterable[str] | Mapping[str, Span] = (),
    length: int | None = None,
    stride: int = 1,
    drop_last: bool = True,
    *,
    every: str | float | None = None,
    bounds: tuple[float | None, float | None] | None = None,
    padding: Padding = 'edge',
    times: Mapping[str, str | float] | None = None,
    **spans: Span,
) -> WindowsView:
    """Returns a view in which each window of the sequences of a dataset is a datapoint.

    `windows(dataset, ('state', 'action'), 16)` are the stretches of 16 items. The named fields hold the items
    of the window only. Several sequences move together: item k of one belongs to item k of the others.
    Windows of a field of videos (`video`, `mp4[]`, …) are of frames, counted through all clips of it: arrays
    of shape (length, height, width, 3). The number of frames is read from every video when the view is first
    used, from the head of each file (all of it where the container has no index), and remembered with the
    view, also when it is pickled.

    `windows(dataset, every='camera', camera=bags.times(-0.2, 0), action=bags.steps(0, 16))` is a window for
    each frame of the camera, with the items that each field has at these offsets from it. All windows of a
    field have the same number of items n: numbers come as an array (n, *shape), frames as (n, height, width,
    3), samples of audio as float32 (n, channels), others as a list. `FIELD_is_pad`, bool (n,), says which
    items are padding.

    In both cases all other fields are those of the datapoint that the window comes from.

    Args:
        dataset: A reader or a view.
        fields: The sequence field, or several, whose items are cut into stretches; or, with `every`, a
            mapping from fields to spans, as an alternative to keyword arguments.
        length: Items of a stretch.
        stride: Items from one window to the next, of `every` where it is given.
        drop_last: Leave out stretches that the end of the sequence cuts short; else there is one at every
            stride up to the last item.
        every: The field whose items are the anchors of windows, or the seconds from one anchor to the next.
        bounds: The first and last time of anchors in each datapoint in seconds, None for no bound.
        padding: What stands for items outside the datapoint: its first or last item ('edge') or zeros
            ('zero'). 'drop': there are no such windows.
        times: Of fields, the field that has the times of their items in seconds, or items per second, instead
            of what `dataset.metadata` says. Videos and audio have times of their own.
        **spans: `bags.times(…)` or `bags.steps(…)` by field.

    Raises:
        KeyError, TypeError: No such field, or it is not a sequence, a video or audio.
        ValueError: Sequences of a datapoint that differ in length; invalid options; or a field without times
            that needs them. When a window is read: times that do not rise, or no item within the tolerance.
    """
    check_dataset('windows', dataset)
    if every is not None:
        given = {**(fields if isinstance(fields, Mapping) else {}), **spans}
        if (fields and not isinstance(fields, Mapping)) or length is not None or not drop_last:
            raise TypeError('windows: expected fields with their spans beside every=, not fields and length')
        return _time_windows(dataset, check_spans(given), every, stride, bounds, padding, times or {})
    if spans or isinstance(fields, Mapping) or bounds is not None or times or padding != 'edge':
        raise TypeError('windows: bounds, padding, times and spans need every=: a field, or seconds')
    names = tuple(select_fields(fields, dataset._types))
    if not names:
        raise ValueError('windows: expected at least one field, got none')
    for name in names:
        kind = dataset._types[name]
        if not kind.sequence and kind.word not in VIDEO_WORDS:
            raise TypeError(f'windows: expected sequences or videos, got {name!r} of type {kind.text}')
    length, stride = at_least('length', length, 1), at_least('stride', stride, 1)
    return Windows(dataset, names, length, stride, bool(drop_last))


def _time_windows(
    dataset: Dataset,
    spans: dict[str, Span],
    every: str | float,
    stride: int,
    bounds: Any,
    padding: Padding,
    sources: Mapping[str, str | float],
) -> TimeWindows:
    one_of('windows: padding', padding, ('edge', 'zero', 'drop'))
    if not spans:
        raise ValueError('windows: expected at least one field with bags.times(…) or bags.steps(…), got none')
    named = [*spans, *sources, *([every] if isinstance(every, str) else [])]
    for name in select_fields(named, dataset._types):
        kind = dataset._types[name]
        if not kind.sequence and kind.word not in VIDEO_WORDS and kind.word != 'audio':
            raise TypeError(f'windows: expected sequences, videos or audio, got {name!r} of type {kind.text}')
    if not isinstance(every, str):
        every = positive('windows: every', every, 'seconds')
    elif dataset._types[every].word == 'audio':
        raise TypeError(f'windows: every: expected a field of items, or seconds, got {every!r} of type audio')
    for name, source in sources.items():
        if not isinstance(source, str):
            positive(f'windows: times of {name!r}', source, 'items per second')
    clocks = {name: clock_of(dataset, name, sources.get(name)) for name in named}
    needs_times = not isinstance(every, str) or any(isinstance(span, Times) for span in spans.values())
    for name, clock in clocks.items():
        is_timed = name == every or not isinstance(every, str) or isinstance(spans.get(name), Times)
        if needs_times and is_timed and clock is None and dataset._types[name].word != 'audio':
            raise ValueError(
                f'windows: field {name!r}: nothing says when its items happen: expected a rate or a field of '
                f'times in the metadata of the dataset, or in times={{{name!r}: …}}'
            )
    stride = at_least('stride', stride, 1)
    return TimeWindows(dataset, spans, every, stride, check_bounds(bounds), padding, clocks)
