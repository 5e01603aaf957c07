"""Windows around anchors: of each field, the items at offsets in time or in steps.

    every='camera'                 anchors          |     |     |     |    the times of the frames
    camera=times(-0.1, 0.0)        frames        x     x                   0.1 s before, and the frame itself
    state=times(-0.1, 0, rate=20)  states        x  x  x
    action=steps(0, 3)             actions             x x x               the next three items

Nothing is read of other datapoints: where a window leaves its datapoint it is padded, and `FIELD_is_pad` says
where, or it is left out.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt

from bags.concurrency import map_concurrently
from bags.dataset.address import Address
from bags.dataset.anchors import Anchors, no_items
from bags.dataset.base import Dataset, View
from bags.dataset.batch import Column, Ragged
from bags.dataset.clocks import EPSILON, Clock, Seconds
from bags.dataset.columns import read_column, read_records
from bags.dataset.metadata import Metadata
from bags.dataset.record_ranges import RecordRanges
from bags.dataset.registry import fixed_dtype
from bags.dataset.selection import VIDEO_WORDS, PerRowItems, Selection
from bags.dataset.spans import Padding, Span, Steps, Times, count_of, types_of
from bags.dataset.spec import Spec
from bags.formats.arrays import encode_array
from bags.indexing import Int64s, as_indices, check_index

__all__ = ['TimeWindows', 'WindowsView']


class _Located(NamedTuple):
    """The items of windows."""

    places: Int64s
    """In the sequence of each window, shape (W, n)."""
    is_pad: npt.NDArray[np.bool_]
    """Shape (W, n)."""
    after: Int64s | None = None
    """The items after `places`, for linear fill."""
    weights: Seconds | None = None
    """How much of the item after is taken, 0 to 1."""


class WindowsView(View):
    """A view of which each datapoint is a window of a datapoint below: what `bags.windows` returns."""

    @abc.abstractmethod
    def _origins(self, indices: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the datapoints of windows and their first items, or the items that are their anchors."""

    def origin(self, index: SupportsIndex) -> tuple[int, int]:
        """Returns the datapoint of a window, and the item that it begins with, or that is its anchor."""
        rows, items = self.origins([check_index(index, len(self))])
        return int(rows[0]), int(items[0])

    def origins(self, indices: Iterable[SupportsIndex] | None = None) -> tuple[Int64s, Int64s]:
        """Returns the same of many windows, or of all: datapoints and items, each int64 (n,)."""
        return self._origins(np.arange(len(self)) if indices is None else as_indices(indices, len(self)))


class TimeWindows(WindowsView):
    """What `bags.windows` returns for offsets in time or in steps.

    Args:
        dataset: A reader or a view.
        spans: What a window takes of each field.
        every: The field whose items are the anchors, or the seconds from one to the next.
        stride: Items of `every` from one anchor to the next.
        bounds: Where anchors may be in a datapoint, in seconds.
        padding: What becomes of windows that leave their datapoint.
        clocks: When the items of each field happen; None where nothing says so.
    """

    def __init__(
        self,
        dataset: Dataset,
        spans: dict[str, Span],
        every: str | float,
        stride: int,
        bounds: tuple[float, float] | None,
        padding: Padding,
        clocks: dict[str, Clock | None],
    ) -> None:
        types: Spec = {**dataset._types}
        for name, span in spans.items():
            pad = f'{name}_is_pad'
            if pad in dataset._types:
                raise ValueError(f'windows: the dataset has a field {pad!r}, which would be replaced')
            types[name], types[pad] = types_of(name, dataset._types[name], span, padding)
        super().__init__([dataset], {name: types[name] for name in sorted(types)})
        self._spans, self._every, self._stride = spans, every, stride
        self._bounds, self._padding, self._clocks = bounds, padding, clocks
        self._pads = {f'{name}_is_pad': name for name in spans}
        self._anchors = Anchors(dataset, spans, every, stride, bounds, padding, clocks)

    @property
    def metadata(self) -> Metadata:
        return self._datasets[0].metadata

    def close(self) -> None:
        for recordings in self._anchors.recordings.values():
            recordings.close()
        super().close()

    # Where windows are.

    def __len__(self) -> int:
        return int(self._anchors.layout()[1][-1])

    def _origins(self, indices: Int64s) -> tuple[Int64s, Int64s]:
        rows, anchors, _ = self._anchors.places_of(indices)
        return rows, anchors

    def anchor_times(self, indices: Iterable[SupportsIndex] | None = None) -> Seconds:
        """Returns the times of the anchors of windows, or of all, float64 seconds (n,); NaN without times."""
        return self._anchors.places_of(
            np.arange(len(self)) if indices is None else as_indices(indices, len(self))
        )[2]

    # What windows take.

    def _locate(self, name: str, rows: Int64s, anchors: Int64s, moments: Seconds) -> _Located:
        """Finds the items that windows take of a field.

        In a datapoint without items, all are padding, and their places are -1.
        """
        clock = self._clocks[name]
        counts = self._datasets[0]._lengths(rows, name) if clock is None else clock.counts(rows)
        there = counts > 0
        if there.all():
            return self._locate_some(name, rows, anchors, moments, counts)
        if not self._anchors.can_be_empty(name):
            raise no_items(int(rows[int(there.argmin())]), name)
        some = self._locate_some(name, rows[there], anchors[there], moments[there], counts[there])

        def scatter(values: Any, empty: Any) -> Any:
            if values is None:
                return None
            found = np.full((len(rows), values.shape[1]), empty, values.dtype)
            found[there] = values
            return found

        return _Located(*map(scatter, some, (-1, True, -1, 0.0)))

    def _locate_some(
        self, name: str, rows: Int64s, anchors: Int64s, moments: Seconds, counts: Int64s
    ) -> _Located:
        span, clock = self._spans[name], self._clocks[name]
        if isinstance(span, Steps):
            base = anchors
            if not self._anchors.is_by_index(name):
                assert clock is not None
                base = clock.before(rows, moments[:, None] - 2 * EPSILON)[:, 0] + 1
            places = base[:, None] + np.arange(span.start, span.stop)
            is_pad = (places < 0) | (places >= counts[:, None])
            return _Located(np.clip(places, 0, counts[:, None] - 1), is_pad)
        assert clock is not None
        wanted = moments[:, None] + np.array(span.offsets)
        last = counts[:, None] - 1
        before = clock.before(rows, wanted)
        low, high = np.maximum(before, 0), np.minimum(before + 1, last)
        low_times, high_times = clock.at(rows, low), clock.at(rows, high)
        ends = clock.at(rows, np.concatenate([np.zeros_like(last), last], 1))
        slack = (span.tolerance or 0.0) + EPSILON
        is_pad = (wanted < ends[:, :1] - slack) | (wanted > ends[:, 1:] + slack)
        if span.fill == 'previous':
            is_pad |= before < 0
            places, gap = low, wanted - low_times
        else:
            is_low = wanted - low_times <= high_times - wanted + EPSILON
            places = np.where(is_low | (before == last), low, high)
            gap = np.minimum(abs(wanted - low_times), abs(high_times - wanted))
        if span.tolerance is not None:
            missing = ~is_pad & (gap > slack)
            if missing.any() and span.gaps == 'raise':
                window, item = np.argwhere(missing)[0].tolist()
                raise ValueError(
                    f'windows: datapoint {rows[window]}: field {name!r} has no item within '
                    f'{span.tolerance} s of {wanted[window, item]:.6f} s'
                )
            is_pad |= missing
        if span.fill != 'linear':
            return _Located(places, is_pad)
        distance = high_times - low_times
        is_between = (distance > 0) & (wanted - low_times > EPSILON)  # Else the item at this time as it is.
        weights = np.divide(wanted - low_times, distance, out=np.zeros_like(wanted), where=is_between)
        return _Located(low, is_pad, high, np.clip(weights, 0, 1))

    # Reading.

    def _read(self, indices: Int64s, selection: Selection, read: Callable[..., Column]) -> dict[str, Column]:
        rows, anchors, moments = self._anchors.places_of(indices)
        if read is read_records and len(selection) == 1:
            return self._read_records(rows, anchors, moments, indices, selection)
        named = {self._pads.get(name, name) for name in selection} & self._spans.keys()
        for name, items in selection.items():
            if name in self._spans and items is not True:
                raise TypeError(f'field {name!r}: expected whole windows, got items {items!r}')
        found: dict[str, Column] = {}
        recordings = self._anchors.recordings.keys()
        for name in sorted(named & recordings):
            found[name], found[f'{name}_is_pad'] = self._read_audio(name, rows, moments)
        names = sorted(named - recordings)
        places = map_concurrently(
            lambda name: self._locate(name, rows, anchors, moments), names, self.is_remote
        )
        located = dict(zip(names, places, strict=True))
        below: Selection = {}
        for name, items in selection.items():
            if name in located:
                below[name] = self._items_of(name, located[name])
            elif name not in self._pads and name not in found:
                below[name] = items

        def read_below(field: Any, refs: Any, items: Any) -> Column:
            return (read_column if isinstance(items, PerRowItems) else read)(field, refs, items)

        found |= self._datasets[0]._read(rows, below, read_below)
        for name, where in located.items():
            found[f'{name}_is_pad'] = where.is_pad
            if name in below:
                found[name] = self._finish(name, found[name], where)
        return {name: found[name] for name in selection}

    def _read_records(
        self, rows: Int64s, anchors: Int64s, moments: Seconds, indices: Int64s, selection: Selection
    ) -> dict[str, Column]:
        """Returns the records of a field, as a copy of the windows has them."""
        ((name, items),) = selection.items()
        if name not in self._spans and name not in self._pads:
            return self._datasets[0]._read(rows, selection, read_records)
        if isinstance(items, PerRowItems):
            where = self._locate(name, rows, anchors, moments)
            chosen = np.repeat(np.arange(len(rows)), items.counts), items.places
            below = PerRowItems(None, items.counts, where.places[chosen])
            return self._datasets[0]._read(rows, {name: below}, read_records)
        values = self._read(indices, {name: True}, read_column)[name]
        encode = encode_array if not self._types[name].args else np.ndarray.tobytes
        return {name: [bytes(encode(np.ascontiguousarray(value))) for value in values]}

    def _items_of(self, name: str, where: _Located) -> PerRowItems:
        places = where.places if where.after is None else np.concatenate([where.places, where.after], 1)
        places = np.ascontiguousarray(places)
        counts = np.where(places[:, 0] < 0, 0, places.shape[1])
        places = places[places >= 0]
        is_video = self._datasets[0]._types[name].word in VIDEO_WORDS
        return PerRowItems(None, counts, places.reshape(-1), are_frames=is_video)

    def _finish(self, name: str, column: Column, where: _Located) -> Column:
        """Makes windows of the items that were read."""
        values = self._stacked(name, column, where)
        if not isinstance(values, np.ndarray):
            return [self._fill(*window) for window in zip(values, where.is_pad, strict=True)]
        if where.after is not None and where.weights is not None:
            low, high = np.split(values.astype(np.float64), 2, axis=1)
            weights = where.weights.reshape(*where.weights.shape, *[1] * (low.ndim - 2))
            with np.errstate(invalid='ignore'):
                between = low + weights * (high - low)
            values = np.where(weights > 0, between, low).astype(values.dtype)
        filled: Column = self._fill(values, where.is_pad)
        return filled

    def _stacked(self, name: str, column: Column, where: _Located) -> npt.NDArray[Any] | list[Any]:
        """Returns the items of windows: one array (W, n, *shape), or a list of windows."""
        kind = self._datasets[0]._types[name]
        fixed = fixed_dtype(kind.word, kind.args)
        if isinstance(column, Ragged):
            there = where.places[:, 0] >= 0
            count = where.places.shape[1] * (1 if where.after is None else 2)
            shape = (len(there), count, *column.values.shape[1:])
            if there.all():
                return column.values.reshape(shape)
            values = np.zeros(shape, column.values.dtype)
            values[there] = column.values.reshape(int(there.sum()), *shape[1:])
            return values
        if fixed is None and isinstance(column, list):
            windows = [_stack(window) for window in column]
            shapes = {window.shape if isinstance(window, np.ndarray) else None for window in windows}
            return windows if len(shapes) != 1 or None in shapes else np.stack(windows)
        return column

    def _fill(self, values: Any, is_pad: npt.NDArray[np.bool_]) -> Any:
        """Returns values, a window or several, with zeros instead of padding if these are asked for."""
        if self._padding == 'zero' and is_pad.any():
            if isinstance(values, list):  # Pictures of different sizes.
                return [item * 0 if pad else item for item, pad in zip(values, is_pad.tolist(), strict=True)]
            values[is_pad] = 0
        return values

    def _read_audio(self, name: str, rows: Int64s, moments: Seconds) -> tuple[Column, Column]:
        """Reads the samples of stretches of recordings, float32 (W, samples, channels)."""
        span = self._spans[name]
        assert isinstance(span, Times)
        audios = self._anchors.recordings[name].of(rows)
        samples: list[Any] = [None] * len(rows)
        pads: list[Any] = [None] * len(rows)

        def read(row: int) -> None:
            audio = audios[row]
            if not audio:
                raise no_items(row, name)
            places = np.flatnonzero(rows == row)
            places = places[np.argsort(moments[places], kind='stable')]
            rate, last = audio.rate, len(audio) - 1
            count = round((span.offsets[1] - span.offsets[0]) * rate)
            firsts = [round((moments[place] + span.offsets[0] - audio.start) * rate) for place in places]
            stretches = [(min(max(first, 0), last), min(max(first + count, 1), last + 1)) for first in firsts]
            audio.expect(stretches)
            for place, first, (start, stop) in zip(places.tolist(), firsts, stretches, strict=True):
                wanted = np.arange(first, first + count)
                pads[place] = is_pad = (wanted < 0) | (wanted > last)
                found = audio[start:stop][:count]
                if is_pad.any():
                    found = self._fill(found[np.clip(wanted, 0, last) - start], is_pad)
                samples[place] = found
            audio.expect([])

        map_concurrently(read, np.unique(rows).tolist(), self.is_remote)
        shapes = {window.shape for window in samples}
        return (np.stack(samples), np.stack(pads)) if len(shapes) == 1 else (samples, pads)

    # For views over this one: fields of windows are read here, all others from where they are.

    def _resolve(self, indices: Int64s, selection: Selection) -> list[Address]:
        own = {name: items for name, items in selection.items() if name in self._spans or name in self._pads}
        below = {name: items for name, items in selection.items() if name not in own}
        addresses = self._datasets[0]._resolve(self._anchors.places_of(indices)[0], below) if below else []
        return [*addresses, Address(self, indices, own, None)] if own else addresses

    def _ranges_of(self, indices: Int64s, field: str, items: Any) -> RecordRanges | None:
        return None  # Windows are not records.

    def _item_counts(self, indices: Int64s, field: str, items: Any) -> Int64s:
        return np.full(len(indices), count_of(self._spans[field]))

    def _open_file(self, index: int, field: str, items: Any) -> BinaryIO | None:
        raise TypeError(f'field {field!r} is made of windows: it has values, but no records')

    def __repr__(self) -> str:
        spans = ', '.join(f'{name}={span}' for name, span in self._spans.items())
        more = f', bounds={self._bounds}' if self._bounds is not None else ''
        return (
            f'bags.windows({self._datasets[0]!r}, every={self._every!r}, stride={self._stride}, '
            f'padding={self._padding!r}{more}, {spans})'
        )


def _stack(window: Any) -> Any:
    """Returns items as one array if they are arrays of one shape."""
    are_arrays = isinstance(window, list) and window and all(isinstance(item, np.ndarray) for item in window)
    if are_arrays and len({(item.shape, item.dtype) for item in window}) == 1:
        return np.stack(window)
    return window
