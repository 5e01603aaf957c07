"""Windows: consecutive items of long sequences as datapoints.

    sequence of 7 items      0 1 2 3 4 5 6
    length 3, stride 2       0 1 2
                                 2 3 4
                                     4 5 6
                                         6       only with drop_last=False

The number of windows of each datapoint follows from the lengths of its sequences, so a view of ten million
windows stores one number for each datapoint. Reading a window reads only its items. A window of a video, or
of a sequence of clips, holds frames, in a value of type `array`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bags.dataset.address import Address
from bags.dataset.base import Dataset, check_dataset
from bags.dataset.registry import VIDEO_WORDS
from bags.dataset.selection import PerRowItems, Selection, select_fields, select_many
from bags.dataset.spec import parse_type
from bags.indexing import Int64s
from bags.sequences.anchors import NO_BOUNDS, Anchors
from bags.sequences.clocks import Clock, clock_of
from bags.sequences.spans import Padding, Span, Steps, Times, check_bounds, positive
from bags.sequences.time_windows import TimeWindows, WindowsView
from bags.validation import item_count, one_of


class Windows(WindowsView):
    """Windows of consecutive items, without padding, as `bags.windows` returns them."""

    def __init__(
        self, dataset: Dataset, fields: tuple[str, ...], length: int, stride: int, drop_last: bool
    ) -> None:
        spans: dict[str, Span] = dict.fromkeys(fields, Steps(0, length))
        padding: Padding = 'drop' if drop_last else 'edge'
        anchors = Anchors(dataset, spans, fields[0], stride, padding)
        self._video_fields = {name for name in fields if dataset.types[name].word in VIDEO_WORDS}
        frames = dict.fromkeys(self._video_fields, parse_type('array'))
        super().__init__(anchors, {**dataset.types, **frames})
        self._fields, self._length, self._drop_last = fields, length, drop_last
        if not self._video_fields:
            anchors.layout()  # Raises for sequences of different lengths; reads no records.

    def resolve(self, indices: Int64s, selection: Selection) -> list[Address]:
        rows, starts, _ = self._anchors.places_of(indices)
        counts = np.minimum(self._anchors.layout().counts[rows] - starts, self._length)
        below = dict(selection)
        for name, items in selection.items():
            if name in self._video_fields:
                below[name] = PerRowItems(starts, counts, are_frames=True)
            elif name in self._fields and items is True:
                below[name] = PerRowItems(starts, counts)
            elif name in self._fields and isinstance(items, PerRowItems) and items.starts is not None:
                items.expect_within(counts)
                below[name] = PerRowItems(starts + items.starts, items.counts)
            elif name in self._fields:
                listed, listed_counts = select_many(items, starts, counts)
                below[name] = PerRowItems(None, listed_counts, listed)
        return self.datasets[0].resolve(rows, below)

    def __repr__(self) -> str:
        return (
            f'bags.windows({self.datasets[0]!r}, {self._fields!r}, {self._length}, '
            f'stride={self._anchors.stride}, drop_last={self._drop_last})'
        )


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

    `windows(dataset, ('state', 'action'), 16)` has windows of 16 consecutive items. The named fields hold
    only the items of the window. Item k of one field belongs to item k of the others. Windows of a field of
    videos (`video`, `mp4[]`, …) are frames, numbered through all clips: arrays (length, height, width, 3).
    The number of frames of every video is read when the view is first used, from the header of each file (or
    all of it, if the container has no index), and kept with the view, also when it is pickled.

    `windows(dataset, every='camera', camera=bags.times(-0.2, 0), action=bags.steps(0, 16))` has a window for
    each frame of the camera, with the items of each field at these offsets from it. All windows of a field
    have the same number of items n: numbers are an array (n, *shape), frames (n, height, width, 3), samples
    of audio float32 (n, channels), others a list. `FIELD_is_pad`, bool (n,), marks the padding.

    In both cases all other fields are those of the datapoint of the window.

    Args:
        dataset: A reader or a view.
        fields: The sequence field, or several, whose items are divided into windows; or, with `every`, a
            mapping from fields to spans, as an alternative to keyword arguments.
        length: Number of items in a window.
        stride: Items from one window to the next; with `every`, anchors from one window to the next.
        drop_last: Leave out windows that the end of the sequence cuts short; else there is a window at every
            stride up to the last item.
        every: The field whose items are the anchors of windows, or the seconds from one anchor to the next.
        bounds: The first and last time of anchors in each datapoint in seconds; None for no bound.
        padding: The value of items outside the datapoint: its first or last item ('edge') or zeros ('zero').
            'drop' leaves out windows with such items.
        times: For a field, the field with the times of its items in seconds, or its rate in items per second,
            instead of those in `dataset.metadata`. Videos and audio have timestamps.
        **spans: `bags.times(…)` or `bags.steps(…)` by field.

    Raises:
        KeyError, TypeError: No such field, or it is not a sequence, a video or audio.
        ValueError: Sequences of a datapoint differ in length, options are invalid, or a field needs times and
            has none. When a window is read: times do not increase, or no item is within the tolerance.
    """
    check_dataset('windows', dataset)
    for name, span in spans.items():
        if name not in dataset.types and not isinstance(span, Times | Steps):
            raise TypeError(f'windows: no option or field {name!r}')
    stride = item_count('stride', stride, 1)
    if every is not None:
        given = {**(fields if isinstance(fields, Mapping) else {}), **spans}
        if (fields and not isinstance(fields, Mapping)) or length is not None or not drop_last:
            raise TypeError('windows: expected fields with their spans beside every=, not fields and length')
        one_of('windows: padding', padding, ('edge', 'zero', 'drop'))
        if not isinstance(every, str):
            every = positive('windows: every', every, 'seconds')
        limits = check_bounds(bounds)
        clocks = _clocks_of(dataset, given, every, times or {}, limits != NO_BOUNDS)
        return TimeWindows(Anchors(dataset, given, every, stride, padding, limits, clocks))
    if spans or isinstance(fields, Mapping) or bounds is not None or times or padding != 'edge':
        raise TypeError('windows: bounds, padding, times and spans need every=: a field, or seconds')
    names = tuple(select_fields(fields, dataset.types))
    if not names:
        raise ValueError('windows: expected at least one field, got none')
    _expect_items(dataset, names, 'sequences or videos')
    return Windows(dataset, names, item_count('length', length, 1), stride, bool(drop_last))


def _expect_items(dataset: Dataset, names: Iterable[str], expected: str) -> None:
    for name in names:
        kind = dataset.types[name]
        if not kind.sequence and kind.word not in (*VIDEO_WORDS, *expected.split()):
            raise TypeError(f'windows: expected {expected}, got {name!r} of type {kind.text}')


def _clocks_of(
    dataset: Dataset,
    spans: Mapping[str, Any],
    every: str | float,
    sources: Mapping[str, Any],
    is_bounded: bool,
) -> dict[str, Clock | None]:
    """Checks the fields of windows by time; returns their clocks."""
    if not spans:
        raise ValueError('windows: expected at least one field with bags.times(…) or bags.steps(…), got none')
    for name, span in spans.items():
        if not isinstance(span, Times | Steps):
            raise TypeError(
                f'windows: field {name!r}: expected bags.times(…) or bags.steps(…), got {span!r:.80}'
            )
    names = list(
        select_fields([*spans, *sources, *([every] if isinstance(every, str) else [])], dataset.types)
    )
    _expect_items(dataset, names, 'sequences, videos or audio')
    if isinstance(every, str) and dataset.types[every].word == 'audio':
        raise TypeError(f'windows: every: expected a field of items, or seconds, got {every!r} of type audio')
    for name, source in sources.items():
        if not isinstance(source, str):
            positive(f'windows: times of {name!r}', source, 'items per second')
    clocks = {name: clock_of(dataset, name, sources.get(name)) for name in names}
    all_timed = not isinstance(every, str)
    timed = {name for name, span in spans.items() if all_timed or isinstance(span, Times)}
    if isinstance(every, str) and (timed or is_bounded):
        timed.add(every)
    for name in sorted(timed):
        if clocks[name] is None and dataset.types[name].word != 'audio':
            raise ValueError(
                f'windows: field {name!r}: nothing says when its items happen: expected a rate, or a field '
                f'of times that the dataset has, in its metadata or in times={{{name!r}: …}}'
            )
    return clocks
