"""Windows around anchors: the items of each field at offsets in time or in steps.

    every='camera'                 anchors          |     |     |     |    the times of the frames
    camera=times(-0.1, 0.0)        frames        x     x                   0.1 s before, and the frame itself
    state=times(-0.1, 0, rate=20)  states        x  x  x
    action=steps(0, 3)             actions             x x x               the next three items

Windows do not extend to other datapoints: items outside the datapoint are padding, which `FIELD_is_pad`
marks, or the window is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from bags.concurrency import map_concurrently
from bags.dataset.address import Address, RecordRanges
from bags.dataset.base import View
from bags.dataset.batch import Column, Ragged
from bags.dataset.columns import read_column, read_records
from bags.dataset.fingerprint import digest_of
from bags.dataset.registry import VIDEO_WORDS, fixed_dtype
from bags.dataset.selection import PerRowItems, Selection
from bags.dataset.spec import Spec
from bags.formats.arrays import encode_array
from bags.indexing import Int64s, as_indices, check_index
from bags.sequences.anchors import NO_BOUNDS, Anchors, Located, no_items
from bags.sequences.clocks import Seconds
from bags.sequences.spans import Times, types_of


class WindowsView(View):
    """A view whose datapoints are windows of the datapoints of a dataset, as `bags.windows` returns it."""

    def __init__(self, anchors: Anchors, types: Spec) -> None:
        super().__init__([anchors.dataset], types)
        self._anchors = anchors

    def __len__(self) -> int:
        return int(self._anchors.layout().offsets[-1])

    def fingerprint_of(self, fields: Sequence[str], of_origin: bool) -> str:
        # Fields of times, and those that windows begin with, matter too.
        below = self.datasets[0]
        names = list(fields), self.fingerprint_options()
        return digest_of(type(self).__name__, names, below.fingerprint_of(tuple(below.types), of_origin))

    def fingerprint_options(self) -> object:
        """Returns what the view is made with, and the clocks of its fields."""
        options = repr(self).replace(repr(self.datasets[0]), '')
        clocks = [(name, clock and clock.options) for name, clock in self._anchors.clocks.items()]
        return options, clocks

    def origin(self, index: SupportsIndex) -> tuple[int, int]:
        """Returns the datapoint of a window, and its first item or anchor."""
        rows, items = self.origins([check_index(index, len(self))])
        return int(rows[0]), int(items[0])

    def origins(self, indices: Iterable[SupportsIndex] | None = None) -> tuple[Int64s, Int64s]:
        """Returns the datapoints and items of `origin` for many windows, or for all, int64 (n,) each."""
        return self._places_of(indices)[:2]

    def anchor_times(self, indices: Iterable[SupportsIndex] | None = None) -> Seconds:
        """Returns the times of the anchors of windows, or of all, float64 seconds (n,); NaN without times."""
        return self._places_of(indices)[2]

    def _places_of(self, indices: Iterable[SupportsIndex] | None) -> tuple[Int64s, Int64s, Seconds]:
        return self._anchors.places_of(
            np.arange(len(self)) if indices is None else as_indices(indices, len(self))
        )


class TimeWindows(WindowsView):
    """Windows of items at offsets in time or in steps, as `bags.windows` returns them."""

    def __init__(self, anchors: Anchors) -> None:
        types: Spec = {**anchors.dataset.types}
        for name, span in anchors.spans.items():
            pad = f'{name}_is_pad'
            if pad in anchors.dataset.types:
                raise ValueError(f'windows: the dataset has a field {pad!r}, which would be replaced')
            types[name], types[pad] = types_of(name, types[name], span, anchors.padding)
        super().__init__(anchors, {name: types[name] for name in sorted(types)})
        self._spans = anchors.spans
        self._pads = {f'{name}_is_pad': name for name in anchors.spans}

    def close(self) -> None:
        for recordings in self._anchors.recordings.values():
            recordings.close()
        super().close()

    def read_selection(
        self, indices: Int64s, selection: Selection, read: Callable[..., Column]
    ) -> dict[str, Column]:
        places = self._anchors.places_of(indices)
        if read is read_records and len(selection) == 1:
            ((name, items),) = selection.items()
            return {name: self._records_of(name, items, indices, places)}
        for name, items in selection.items():
            if name in self._spans and items is not True:
                raise TypeError(f'field {name!r}: expected whole windows, got items {items!r}')
        named = sorted({self._pads.get(name, name) for name in selection} & self._spans.keys())
        recordings = [name for name in named if name in self._anchors.recordings]
        others = [name for name in named if name not in recordings]
        found = map_concurrently(lambda name: self._anchors.locate(name, *places), others, self.is_remote)
        located = dict(zip(others, found, strict=True))
        below = {
            name: self._items_of(name, located[name]) if name in located else items
            for name, items in selection.items()
            if name not in self._pads and name not in recordings
        }

        def read_below(field: Any, refs: Any, items: Any) -> Column:
            return (read_column if isinstance(items, PerRowItems) else read)(field, refs, items)

        columns = self.datasets[0].read_selection(places[0], below, read_below)
        for name, where in located.items():
            columns[f'{name}_is_pad'] = where.is_pad
            if name in below:
                columns[name] = self._finish(name, columns[name], where)
        for name in recordings:
            columns[name], columns[f'{name}_is_pad'] = self._read_audio(name, places[0], places[2])
        return {name: columns[name] for name in selection}

    def _records_of(self, name: str, items: Any, indices: Int64s, places: Any) -> Column:
        """Returns the records of a field, for a copy of the windows."""
        if name not in self._spans and name not in self._pads:
            return self.datasets[0].read_selection(places[0], {name: items}, read_records)[name]
        if isinstance(items, PerRowItems):
            where = self._anchors.locate(name, *places)
            chosen = np.repeat(np.arange(len(indices)), items.counts), items.numbers
            if self._anchors.padding == 'zero' and where.is_pad[chosen].any():
                raise TypeError(f"field {name!r}: no record is zeros: copy windows with padding='edge'")
            below = PerRowItems(None, items.counts, where.places[chosen])
            return self.datasets[0].read_selection(places[0], {name: below}, read_records)[name]
        values = self.read_selection(indices, {name: True}, read_column)[name]
        encode = encode_array if not self.types[name].args else np.ndarray.tobytes
        return [bytes(encode(np.ascontiguousarray(value))) for value in values]

    def _items_of(self, name: str, where: Located) -> PerRowItems:
        places = where.places
        counts = np.where(places[:, 0] < 0, 0, places.shape[1])
        is_video = self.datasets[0].types[name].word in VIDEO_WORDS
        return PerRowItems(None, counts, places[places >= 0], are_frames=is_video)

    def _finish(self, name: str, column: Column, where: Located) -> Column:
        """Converts the items that were read to windows: an array (W, n, *shape), or a list of windows."""
        kind = self.datasets[0].types[name]
        values: Any = column
        if isinstance(column, Ragged):
            there = where.places[:, 0] >= 0
            shape = where.places.shape[1], *column.values.shape[1:]
            values = column.values.reshape(int(there.sum()), *shape)
            if not there.all():
                items, values = values, np.zeros((len(there), *shape), values.dtype)
                values[there] = items
        elif isinstance(column, list) and fixed_dtype(kind.word, kind.args) is None:
            values = _stack([_stack(window) for window in column])
        if where.weights is not None:
            low, high = np.split(values.astype(np.float64), 2, axis=1)
            weights = where.weights.reshape(*where.weights.shape, *[1] * (low.ndim - 2))
            with np.errstate(invalid='ignore'):
                between = low + weights * (high - low)
            values = np.where(weights > 0, between, low).astype(values.dtype)
        if isinstance(values, list):
            return [self._fill(*window) for window in zip(values, where.is_pad, strict=True)]
        filled: Column = self._fill(values, where.is_pad)
        return filled

    def _fill(self, values: Any, is_pad: npt.NDArray[np.bool_]) -> Any:
        """Replaces the padding in one or several windows by zeros, with `padding='zero'`."""
        if self._anchors.padding == 'zero' and is_pad.any():
            if isinstance(values, list):  # Images of different sizes.
                return [item * 0 if pad else item for item, pad in zip(values, is_pad.tolist(), strict=True)]
            values[is_pad] = 0
        return values

    def _read_audio(self, name: str, rows: Int64s, moments: Seconds) -> tuple[Column, Column]:
        """Reads samples of recordings for windows, float32 (W, samples, channels)."""
        span = self._spans[name]
        assert isinstance(span, Times)
        audios = self._anchors.recordings[name].of(rows)
        samples: list[Any] = [None] * len(rows)
        pads: list[Any] = [None] * len(rows)

        def read(row: int) -> None:
            audio = audios[row]
            if not audio:
                raise no_items(row, name)
            windows = np.flatnonzero(rows == row)
            windows = windows[np.argsort(moments[windows], kind='stable')]
            firsts = np.rint((moments[windows] + span.offsets[0] - audio.start) * audio.rate).astype(np.int64)
            count = max(1, round((span.offsets[1] - span.offsets[0]) * audio.rate))
            wanted = firsts[:, None] + np.arange(count)
            places = wanted.clip(0, len(audio) - 1)
            audio.expect([(part[0], part[-1] + 1) for part in places.tolist()])
            for window, part, is_pad in zip(windows.tolist(), places, wanted != places, strict=True):
                found = audio[part[0] : part[-1] + 1][part - part[0]]
                samples[window], pads[window] = self._fill(found, is_pad), is_pad
            audio.expect([])

        map_concurrently(read, np.unique(rows).tolist(), self.is_remote)
        shapes = {window.shape for window in samples}
        return (np.stack(samples), np.stack(pads)) if len(shapes) == 1 else (samples, pads)

    # For views over this one: fields of windows are read here, others from the underlying dataset.

    def resolve(self, indices: Int64s, selection: Selection) -> list[Address]:
        own = {name: items for name, items in selection.items() if name in self._spans or name in self._pads}
        below = {name: items for name, items in selection.items() if name not in own}
        addresses = self.datasets[0].resolve(self._anchors.places_of(indices)[0], below) if below else []
        return [*addresses, Address(self, indices, own, None)] if own else addresses

    def _ranges_of(self, indices: Int64s, field: str, items: Any) -> RecordRanges | None:
        return None  # Windows are not records.

    def _item_counts(self, indices: Int64s, field: str, items: Any) -> Int64s:
        return np.full(len(indices), self._spans[field].count)

    def __repr__(self) -> str:
        anchors = self._anchors
        spans = ', '.join(f'{name}={span}' for name, span in self._spans.items())
        more = f', bounds={anchors.bounds}' if anchors.bounds != NO_BOUNDS else ''
        return (
            f'bags.windows({self.datasets[0]!r}, every={anchors.every!r}, stride={anchors.stride}, '
            f'padding={anchors.padding!r}{more}, {spans})'
        )


def _stack(values: Any) -> Any:
    """Stacks a list of arrays if they have one shape."""
    are_arrays = isinstance(values, list) and values and all(isinstance(each, np.ndarray) for each in values)
    if are_arrays and len({(each.shape, each.dtype) for each in values}) == 1:
        return np.stack(values)
    return values
