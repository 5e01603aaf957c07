"""Windows around anchors: the items of each field at offsets in steps or in time.

    every='camera'                 anchors          |     |     |     |    the frames
    camera=times(-0.1, 0.0)        frames        x     x                   0.1 s before, and the frame itself
    state=times(-0.1, 0, rate=20)  states        x  x  x
    action=steps(0, 3)             actions             x x x               the next three items
    sound=between(-0.1, 0)         samples       xxxxxx                    all samples of 0.1 s

Windows do not extend into other datapoints: items outside the datapoint are padding, which `FIELD_is_pad`
marks, or the window is omitted. The number of windows of each datapoint follows from the lengths of its
sequences or from its times, so a view of ten million windows stores one number per datapoint.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from bags.concurrency import map_concurrently
from bags.dataset.base import Dataset, FieldOrigin, WindowsView
from bags.dataset.format.refs import Refs
from bags.dataset.format.registry import fixed_dtype
from bags.dataset.format.spec import Schema, reordered
from bags.dataset.reading.batch import Column, Ragged, concat_ranges
from bags.dataset.reading.columns import ReadField, read_column, read_records, read_values
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.fingerprint import digest_of
from bags.dataset.reading.origins import Origins
from bags.dataset.reading.row_groups import Datapoint, RowGroup
from bags.dataset.reading.row_reader import FolderFields, RecordRanges
from bags.dataset.reading.selection import (
    Asked,
    Between,
    Padding,
    PerRowItems,
    Selection,
    Span,
    Steps,
    Times,
    select_many,
)
from bags.dataset.reading.timed_columns import TimedColumns, as_columns
from bags.formats.arrays import encode_array
from bags.indexing import Int64s, as_indices, check_index
from bags.media.audio import Audio
from bags.streams.clocks import MixedClock, RateClock, SampleClock, Seconds
from bags.streams.field import StreamField
from bags.streams.item_stream import as_one_array
from bags.validation import AdvisedNames, item_count, one_of
from bags.views.windows.anchors import NO_BOUNDS, Anchors, WindowItems
from bags.views.windows.spans import (
    check_bounds,
    check_spans,
    check_stream,
    check_whole_fields,
    is_left_out,
    positive,
    types_of,
)

LOCATED_AT_ONCE = 4096
"""Number of windows whose elements are listed at a time to find the first and the last."""


def _advice(field: str) -> str:
    """Returns the advice on a field that windows leave out."""
    return f'windows leave it out; windows(…, whole=({field!r},)) has the whole value'


class Windows(WindowsView):
    """The result of `Dataset.windows`; see there for the arguments."""

    def __init__(
        self,
        dataset: Dataset,
        spans: Mapping[str, Span],
        every: str | float,
        stride: int,
        padding: Padding,
        bounds: tuple[float | None, float | None] | None,
        times: Mapping[str, str | float] | None,
        whole: Iterable[str] = (),
    ) -> None:
        stride, limits = item_count('stride', stride, 1), check_bounds(bounds)
        one_of('windows: padding', padding, ('edge', 'zero', 'drop'))
        if not isinstance(every, str):
            every = positive('windows: every', every, 'seconds')
        check_spans(dataset, spans, every, times or {})
        streams = _streams_of(dataset, spans, every, times or {}, limits != NO_BOUNDS)
        self._whole = check_whole_fields(dataset, spans, whole)
        schema: Schema = {
            name: field_type
            for name, field_type in dataset.schema.items()
            if name in spans or name in self._whole or not is_left_out(field_type)
        }
        self._pads = {}
        self._padded = set[str]()
        """Fields of windows of windows, whose elements may be padding already."""
        for name, span in spans.items():
            pad = f'{name}_is_pad'
            if pad in dataset.schema:
                if not isinstance(dataset.field_origins(pad)[0].dataset, WindowsView):
                    raise ValueError(f'windows: the dataset has a field {pad!r}, which would be replaced')
                schema.pop(pad, None)
                self._padded.add(name)
            schema[name], mask = types_of(streams[name], span, padding)
            if mask is not None:
                schema[pad] = mask
                self._pads[pad] = name
        left_out = [name for name in dataset.schema if name not in schema]
        schema = reordered(schema, [dataset.schema])
        super().__init__([dataset], AdvisedNames(schema, {name: _advice(name) for name in left_out}))
        self.anchors = Anchors(dataset, dict(spans), every, stride, padding, limits, streams)
        self._spans = self.anchors.spans
        self._sizes = {name: self.anchors.size(name) for name in spans}
        """The number of elements of each field in a window; None if it differs."""
        self._has_plain_items = all(
            isinstance(span, Steps)
            and self.anchors.is_by_index(name)
            and (streams[name].type == 'items' or streams[name].are_stored_rows)
            for name, span in spans.items()
        ) and isinstance(every, str)
        if self.anchors.is_known_from_refs:
            _ = self.anchors.layout  # Raises for sequences of different lengths; does not read records.

    def __len__(self) -> int:
        return int(self.anchors.layout.offsets[-1])

    @property
    def partial(self) -> Int64s:
        rows = self.datasets[0].partial
        if not len(rows):
            return rows
        starts = self.anchors.layout.offsets[rows]
        return concat_ranges(starts, self.anchors.layout.offsets[rows + 1] - starts)

    def fingerprint_of(self, fields: Sequence[str], of_origin: bool) -> str:
        # The fields of times and of anchors also count.
        underlying = self.datasets[0]
        names = list(fields), self.fingerprint_options()
        return digest_of(
            type(self).__name__, names, underlying.fingerprint_of(tuple(underlying.schema), of_origin)
        )

    def fingerprint_options(self) -> object:
        """Returns the arguments of the view, and the clocks of its fields."""
        # Without `whole`: the fields of the view count by themselves, and earlier versions had all fields.
        options = f'.windows({self._arguments})'
        streams = self.anchors.streams.items()
        clocks = [(name, stream.clock and stream.clock.options) for name, stream in streams]
        return options, clocks

    def element_times(self, field: str, rows: Int64s) -> list[tuple[Seconds, float]]:
        span, clock = self._spans[field], self.anchors.streams[field].expect_clock()
        datapoints, anchors = self.anchors.at(rows)
        moments = self.anchors.times(datapoints, anchors)
        if isinstance(span, Times):
            times = moments[:, None] + np.array(span.offsets)
            return [(times_of_row, np.nan) for times_of_row in times]
        where = self.anchors.locate(field, datapoints, anchors, moments)
        # In datapoints without elements, all are padding.
        numbers = np.zeros(int(where.counts.sum()), np.int64)
        numbers[np.repeat(where.items.counts > 0, where.counts)] = where.items.numbers
        found = clock.at(np.repeat(datapoints, where.counts), numbers[:, None])[:, 0]
        if where.is_pad is not None:
            found = _extrapolated(found, where, clock.lasts(datapoints))
        lasts = np.full(len(rows), np.nan) if not clock.has_rate else 1 / clock.rates(datapoints)
        return list(zip(_split(found, where.counts), lasts.tolist(), strict=True))

    def element_rates(self, field: str, rows: Int64s) -> Seconds | None:
        span, clock = self._spans[field], self.anchors.streams[field].clock
        is_listed = isinstance(span, Times) or (isinstance(span, Between) and span.count is not None)
        if is_listed or clock is None or not clock.has_rate:
            return None
        return clock.rates(self.anchors.at(rows)[0])

    def anchor_times(self, indices: Iterable[SupportsIndex] | None = None) -> Seconds:
        chosen = np.arange(len(self)) if indices is None else as_indices(indices, len(self))
        return self.anchors.times(*self.anchors.at(chosen))

    def close(self) -> None:
        for stream in self.anchors.streams.values():
            if stream.clock is not None:
                stream.clock.close()
        super().close()

    def read_row(self, index: int, selection: Selection | None) -> Datapoint:
        # Shortcut: a third of the time of a batch of one for a window of 8 numbers, a sixth for texts.
        index = check_index(index, len(self))
        fields: Selection = dict.fromkeys(self.schema, True) if selection is None else selection
        row, inner_selection = self._within(index, fields) if self._has_plain_items else (0, None)
        if inner_selection is None:
            return super().read_row(index, fields)
        values = self.datasets[0].read_row(row, inner_selection)
        for name in self._spans.keys() & inner_selection.keys():
            values[name] = as_one_array(values[name])
        for name in self._pads.keys() & fields.keys():
            values[name] = np.zeros(self._sizes[self._pads[name]] or 0, np.bool_)
        return {name: values[name] for name in fields}

    def _within(self, index: int, selection: Selection) -> tuple[int, Selection | None]:
        """Returns the datapoint of a window and the selection to read; None if items are padding."""
        (row,), (anchor,) = (part.tolist() for part in self.anchors.at(np.array([index])))
        count, inner_selection = int(self.anchors.layout.counts[row]), {}
        for name, items in selection.items():
            span = self._spans.get(self._pads.get(name, name))
            if isinstance(span, Steps):
                start, stop = anchor + span.start, anchor + span.stop
                if items is not True or start < 0 or stop > count:
                    return row, None
                items = range(start, stop)
            if name not in self._pads:
                inner_selection[name] = items
        return row, inner_selection

    def read_selection(self, indices: Int64s, selection: Selection, read: ReadField) -> dict[str, Column]:
        rows, anchors = self.anchors.at(indices)
        if read is read_records and len(selection) == 1:
            ((name, items),) = selection.items()
            return {name: self._records_of(name, items, rows, anchors, indices)}
        named = sorted({self._pads.get(name, name) for name in selection} & self._spans.keys())
        moments = self._times_for(named, rows, anchors)
        # Clocks read fields of times.
        is_slow = self.is_remote and not all(map(self.anchors.is_by_index, named))
        window_items = map_concurrently(
            lambda name: self.anchors.locate(name, rows, anchors, moments), named, is_slow
        )
        located = {
            name: self._with_padding(name, rows, where) if name in self._padded else where
            for name, where in zip(named, window_items, strict=True)
        }
        inner_selection, columns = dict[str, Any](), dict[str, Column]()
        for name, items in selection.items():
            if name in located and self._is_read_whole(name):
                elements = functools.partial(self._elements_of, name, items, rows, located[name])
                if isinstance(read, TimedColumns):
                    columns[name] = read.decode(name, elements, self.reads_wait)
                else:
                    columns[name] = elements()
            elif name in located:
                inner_selection[name] = self._items_of(name, located[name], items)
            elif name not in self._pads:
                inner_selection[name] = items

        def read_below(field: FieldReader, refs: Refs, items: Asked) -> Column:
            return (as_columns(read) if isinstance(items, PerRowItems) else read)(field, refs, items)

        columns |= self.datasets[0].read_selection(rows, inner_selection, read_below)
        for name, where in located.items():
            if name in inner_selection:
                columns[name] = self._finish(name, columns[name], where, selection[name])
            if where.is_pad is not None:
                columns[f'{name}_is_pad'] = _by_window(where.is_pad, where.counts, self._sizes[name])
        return {name: columns[name] for name in selection}

    def _with_padding(self, name: str, rows: Int64s, where: WindowItems) -> WindowItems:
        """Marks elements that are padding in the underlying windows."""
        if where.is_pad is None:
            return where
        pad, (unique, which) = f'{name}_is_pad', np.unique(rows, return_inverse=True)
        below = self.datasets[0].batch(unique, pad)[pad]
        numbers = np.split(where.items.numbers, np.cumsum(where.items.counts)[:-1]) if len(rows) else []
        parts = [
            below[position][part[:count]] if len(part) else np.ones(count, bool)
            for position, part, count in zip(
                which.ravel().tolist(), numbers, where.counts.tolist(), strict=True
            )
        ]
        return where._replace(is_pad=where.is_pad | np.concatenate([np.empty(0, bool), *parts]))

    def _times_for(self, names: Iterable[str], rows: Int64s, anchors: Int64s) -> Seconds | None:
        """Returns the times of anchors, or None if no field is read by time."""
        return None if all(map(self.anchors.is_by_index, names)) else self.anchors.times(rows, anchors)

    def _records_of(self, name: str, items: Asked, rows: Int64s, anchors: Int64s, indices: Int64s) -> Column:
        """Returns the records of a field, for a copy of the windows."""
        if name not in self._spans and name not in self._pads:
            return self.datasets[0].read_selection(rows, {name: items}, read_records)[name]
        if name in self._spans and self.schema[name].sequence:
            where = self.anchors.locate(name, rows, anchors, self._times_for([name], rows, anchors))
            chosen, counts = self._chosen(items, where.counts)
            if self.anchors.padding == 'zero' and where.is_pad is not None and where.is_pad[chosen].any():
                raise TypeError(
                    f"field {name!r}: records of zeros do not exist: copy windows with padding='edge'"
                )
            selected = PerRowItems(None, counts, where.items.numbers[chosen])
            return self.datasets[0].read_selection(rows, {name: selected}, read_records)[name]
        values = self.read_selection(indices, {name: True}, read_column)[name]
        encode = encode_array if not self.schema[name].args else np.ndarray.tobytes
        return [bytes(encode(np.ascontiguousarray(value))) for value in values]

    def _chosen(self, items: Asked, counts: Int64s) -> tuple[Int64s, Int64s]:
        """Returns positions of selected elements among all windows, and the count of each window."""
        if items is True:
            return np.arange(counts.sum()), counts
        return select_many(items, np.cumsum(counts) - counts, counts)

    def _items_of(self, name: str, where: WindowItems, items: Asked) -> PerRowItems:
        """Returns the items to read for windows, or for selected items of each."""
        found = where.items
        if items is not True:
            chosen, counts = self._chosen(items, where.counts)
            found = PerRowItems(None, counts, found.numbers[chosen])
        are_frames = self.anchors.streams[name].type == 'frames'
        return dataclasses.replace(found, are_frames=True) if are_frames else found

    def _finish(self, name: str, column: Column, where: WindowItems, items: Asked) -> Column:
        """Converts items to windows: an array (W, n, *shape), a Ragged, or a list of windows."""
        if items is not True:
            chosen, counts = self._chosen(items, where.counts)
            pads = np.zeros(len(chosen), bool) if where.is_pad is None else where.is_pad[chosen]
            return [
                self._fill(as_one_array(part), is_pad)
                for part, is_pad in zip(column, _split(pads, counts), strict=True)
            ]
        field_type, size = self.datasets[0].schema[name], _common(where.counts, self._sizes[name])
        values: Any = column
        if isinstance(column, Ragged):
            if size is None or where.is_pad is None:
                return self._fill_ragged(column, where)
            has_items = where.items.counts > 0
            shape = size * (1 if where.weights is None else 2), *column.values.shape[1:]
            values = column.values.reshape(int(has_items.sum()), *shape)
            if not has_items.all():
                items, values = values, np.zeros((len(has_items), *shape), values.dtype)
                values[has_items] = items
        elif isinstance(column, list) and fixed_dtype(field_type.format, field_type.args) is None:
            values = [as_one_array(window) for window in column]
            if where.is_pad is not None:
                values = as_one_array(values)
        if where.weights is not None:
            values = _interpolated(values, where.weights)
        filled: Column = self._fill_windows(values, where)
        return filled

    def _fill_windows(self, values: Any, where: WindowItems) -> Any:
        """Replaces padding in windows with zeros, for `padding='zero'`."""
        if where.is_pad is None:
            return values
        if isinstance(values, np.ndarray):
            return self._fill(values, where.is_pad.reshape(values.shape[:2]))
        windows = zip(values, _split(where.is_pad, where.counts), strict=True)
        return [self._fill(*window) for window in windows]

    def _fill_ragged(self, column: Ragged, where: WindowItems) -> Column:
        """As `_fill_windows`, for windows whose numbers of items differ."""
        if where.is_pad is None:
            return column
        zero = np.zeros((1, *column.values.shape[1:]), column.values.dtype)
        windows = [
            values if values is not None and len(values) == count else np.repeat(zero, count, 0)
            for values, count in zip(column, where.counts.tolist(), strict=True)
        ]
        return list(self._fill_windows(windows, where))

    def _fill(self, values: Any, is_pad: npt.NDArray[np.bool_]) -> Any:
        """Replaces padding in one or several windows with zeros, for `padding='zero'`."""
        if self.anchors.padding == 'zero' and is_pad.any():
            if isinstance(values, list):  # Images of different sizes.
                return [item * 0 if pad else item for item, pad in zip(values, is_pad.tolist(), strict=True)]
            values[is_pad] = 0
        return values

    def _elements_of(self, name: str, items: Asked, rows: Int64s, where: WindowItems) -> Column:
        """Reads samples of recordings, float32 (W, n, channels), or rows of arrays, for windows."""
        chosen, counts = self._chosen(items, where.counts)
        if items is not True:
            pads = None if where.is_pad is None else where.is_pad[chosen]
            numbers = PerRowItems(None, counts, where.items.numbers[chosen])
            where = WindowItems(numbers, counts, pads)
        starts = np.cumsum(where.items.counts) - where.items.counts
        numbers_of = where.items.numbers
        windows: list[Any] = [None] * len(rows)
        is_sound = self.anchors.streams[name].type == 'samples'
        unique = np.unique(rows)
        values = self._recordings(name, unique) if is_sound else self._arrays(name, unique)

        def read(row: int) -> None:
            if values[row] is None:
                return
            of_row = np.flatnonzero(rows == row)
            bounds = zip(starts[of_row].tolist(), where.items.counts[of_row].tolist(), strict=True)
            parts = [numbers_of[start : start + count] for start, count in bounds]
            found = _read_samples(values[row], parts) if is_sound else [values[row][part] for part in parts]
            for window, part in zip(of_row.tolist(), found, strict=True):
                windows[window] = part

        map_concurrently(read, unique.tolist(), self.reads_wait)
        known = next((window for window in windows if window is not None), np.empty(0))
        for window, count in enumerate(where.counts.tolist()):
            if windows[window] is None or (count and not where.items.counts[window]):
                windows[window] = np.zeros((count, *known.shape[1:]), known.dtype)
        if where.weights is not None:
            windows = [
                _interpolated(values[None], weights[None])[0]
                for values, weights in zip(windows, where.weights, strict=True)
            ]
        if where.is_pad is None:
            return windows
        filled: Column = self._fill_windows(as_one_array(windows), where)
        return filled

    def _is_read_whole(self, name: str) -> bool:
        """Returns whether windows of a field are cut from recordings, or from arrays of other windows."""
        stream = self.anchors.streams[name]
        return stream.type == 'samples' or (stream.type == 'rows' and not stream.are_stored_rows)

    def _recordings(self, name: str, rows: Int64s) -> dict[int, Any]:
        clock = self.anchors.streams[name].clock
        assert isinstance(clock, SampleClock | MixedClock)
        return clock.recordings(rows)

    def _arrays(self, name: str, rows: Int64s) -> dict[int, Any]:
        (arrays,) = self.datasets[0].read_selection(rows, {name: True}, read_values).values()
        return dict(zip(rows.tolist(), arrays, strict=True))

    # For views of this view: fields of windows are read here, all others from the underlying dataset.

    def plan_rows(self, indices: Int64s, selection: Selection) -> list[RowGroup]:
        computed = {
            name: items for name, items in selection.items() if name in self._spans or name in self._pads
        }
        inner_selection = {name: items for name, items in selection.items() if name not in computed}
        groups = (
            self.datasets[0].plan_rows(self.anchors.at(indices)[0], inner_selection)
            if inner_selection
            else []
        )
        return [*groups, RowGroup(self, indices, computed, None)] if computed else groups

    def field_origins(self, field: str | None) -> list[FieldOrigin]:
        if field is None or field in self._spans or field in self._pads:
            return [FieldOrigin(self, field)]
        return super().field_origins(field)

    def origin_rows(self, field: str | None, indices: Int64s) -> tuple[Int64s, Int64s]:
        if field is None or field in self._spans or field in self._pads:
            return np.zeros(len(indices), np.int64), indices
        return super().origin_rows(field, self.anchors.at(indices)[0])

    def trace_rows(self, field: str | None, rows: Int64s) -> Origins:
        (dataset,), every = self.datasets, self.anchors.every
        datapoints, anchors = self.anchors.at(rows)
        name = self._pads.get(field, field) if field is not None else every
        origins = dataset.trace(name if isinstance(name, str) else None, datapoints)
        if isinstance(name, str):
            starts, stops = self._element_range(name, datapoints, anchors)
            bounds = np.stack([starts, np.maximum(stops - 1, starts)], 1)
            first, last = dataset.trace_elements(name, datapoints, bounds).T
            stop = np.where(stops > starts, last + 1, first)
            origins = origins._replace(start=first, stop=stop)
        if isinstance(every, str):
            anchors = dataset.trace_elements(every, datapoints, anchors[:, None])[:, 0]
        return origins._replace(anchor=anchors)

    def trace_window_elements(self, field: str, windows: Int64s, elements: Int64s) -> Int64s:
        datapoints, anchors = self.anchors.at(windows)
        name = self._pads.get(field, field)
        where = self.anchors.locate(name, datapoints, anchors, self._times_for([name], datapoints, anchors))
        counts = where.items.counts[:, None]
        firsts = np.cumsum(counts)[:, None] - counts
        numbers = np.append(where.items.numbers, -1)  # -1 for a datapoint without elements.
        numbers = numbers[np.where(counts > 0, firsts + elements.clip(0, counts - 1), -1)]
        return self.datasets[0].trace_elements(name, datapoints, numbers)

    def _element_range(self, name: str, rows: Int64s, anchors: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the first element of a field in windows and the end, without padding: (W,) each.

        For the field of the anchors, if it has no span, the anchor alone.
        """
        span = self._spans.get(name, Steps(0, 1))
        if isinstance(span, Steps) and (name not in self._spans or self.anchors.is_by_index(name)):
            counts = self.anchors.layout.counts[rows]
            return (anchors + span.start).clip(0, counts), (anchors + span.stop).clip(0, counts)
        starts, stops = np.zeros((2, len(rows)), np.int64)
        for begin in range(0, len(rows), LOCATED_AT_ONCE):
            part = slice(begin, begin + LOCATED_AT_ONCE)
            moments = self.anchors.times(rows[part], anchors[part])
            where = self.anchors.locate(name, rows[part], anchors[part], moments)
            starts[part], stops[part] = where.range()
        return starts, stops

    def folders(self, fields: Iterable[str]) -> FolderFields:
        underlying = self.datasets[0]
        return underlying.folders([name for name in fields if name in underlying.schema])

    def record_ranges(self, indices: Int64s, field: str, items: Asked = True) -> RecordRanges | None:
        """Returns the locations of the records of a field; None if they are computed or not consecutive."""
        if field not in self._spans and field not in self._pads:
            return super().record_ranges(indices, field, items)
        span = self._spans.get(field)
        if not isinstance(span, Steps | Between) or not self.schema[field].sequence:
            return None
        rows, anchors = self.anchors.at(indices)
        where = self.anchors.locate(field, rows, anchors, self._times_for([field], rows, anchors))
        chosen, counts = self._chosen(items, where.counts)
        if not counts.all() or not where.items.counts.all():
            return None
        positions, firsts = where.items.numbers[chosen], np.cumsum(counts) - counts
        starts = positions[firsts]
        has_padding = where.is_pad is not None and where.is_pad[chosen].any()
        is_zero = self.anchors.padding == 'zero' and has_padding
        if is_zero or (positions != concat_ranges(starts, counts)).any():
            return None
        return self.datasets[0].record_ranges(rows, field, PerRowItems(starts, counts))

    def item_counts(self, indices: Int64s, field: str, items: Asked = True) -> Int64s:
        if field in self._spans:
            size = self._sizes[field]
            if size is not None:
                return self._chosen(items, np.full(len(indices), size))[1]
            rows, anchors = self.anchors.at(indices)
            where = self.anchors.locate(field, rows, anchors, self._times_for([field], rows, anchors))
            return self._chosen(items, where.counts)[1]
        return super().item_counts(indices, field, items)

    @property
    def _arguments(self) -> str:
        anchors = self.anchors
        bounds = f', bounds={anchors.bounds}' if anchors.bounds != NO_BOUNDS else ''
        return (
            f'{self._spans!r}, every={anchors.every!r}, stride={anchors.stride}, '
            f'padding={anchors.padding!r}{bounds}'
        )

    @property
    def expression(self) -> str:
        whole = f', whole={self._whole}' if self._whole else ''
        return f'{self.datasets[0].expression}.windows({self._arguments}{whole})'

    @property
    def length_text(self) -> str:
        # Otherwise, the length depends on the times of all datapoints.
        is_known = self.anchors.is_known_from_refs and not self.is_remote
        return super().length_text if is_known else 'datapoints'


def _streams_of(
    dataset: Dataset,
    spans: Mapping[str, Span],
    every: str | float,
    sources: Mapping[str, str | float],
    is_bounded: bool,
) -> dict[str, StreamField]:
    """Returns the streams of the fields of windows, by the arguments of `Dataset.windows`.

    Raises:
        TypeError, ValueError: As `StreamField`; also if the times of a field that needs them are unknown.
    """
    names = {*spans, *sources, *([every] if isinstance(every, str) else [])}
    streams = {}
    for name in sorted(names):
        try:
            streams[name] = StreamField(dataset, name, _checked_source(dataset, name, sources.get(name)))
        except (TypeError, ValueError) as exc:
            raise type(exc)(f'windows: {exc}') from None
        check_stream(streams[name], spans.get(name), name == every)
        streams[name].holds_counts = isinstance(streams[name].clock, RateClock)
    all_timed = not isinstance(every, str)
    timed = {name for name, span in spans.items() if all_timed or not isinstance(span, Steps)}
    if isinstance(every, str) and (timed or is_bounded):
        timed.add(every)
    for name in sorted(timed):
        if streams[name].clock is None:
            raise ValueError(
                f'windows: field {name!r}: the times of its {streams[name].type} are unknown: expected a '
                f'rate, or a field of times that the dataset has, in its metadata or in times={{{name!r}: …}}'
            )
    return streams


def _checked_source(dataset: Dataset, name: str, source: str | float | None) -> str | float | None:
    if isinstance(source, str) and not (source in dataset.schema and dataset.schema[source].sequence):
        raise ValueError(f'times of {name!r}: expected a sequence field, got {source!r}')
    return source


def _read_samples(audio: Audio, parts: Sequence[Int64s]) -> list[Any]:
    """Returns the samples of a recording at several increasing lists of positions."""
    ranges = [(int(part.min()), int(part.max()) + 1) if len(part) else (0, 0) for part in parts]
    order = sorted(range(len(parts)), key=ranges.__getitem__)
    found: list[Any] = [None] * len(parts)
    audio.will_need([ranges[number] for number in order])
    for number in order:
        first, stop = ranges[number]
        found[number] = audio[first:stop][parts[number] - first]
    audio.will_need([])
    return found


def _interpolated(values: Any, weights: Seconds) -> Any:
    """Returns values between the first and the second half of the items of windows, (W, n, *shape)."""
    low, high = np.split(values.astype(np.float64), 2, axis=1)
    weights = weights.reshape(*weights.shape, *[1] * (low.ndim - 2))
    with np.errstate(invalid='ignore'):
        between = low + weights * (high - low)
    return np.where(weights > 0, between, low).astype(values.dtype)


def _extrapolated(times: Seconds, where: WindowItems, intervals: Seconds) -> Seconds:
    """Returns the times of elements; elements that are padding continue at the interval of the last one."""
    assert where.is_pad is not None
    starts = np.cumsum(where.counts) - where.counts
    for window, (start, count) in enumerate(zip(starts.tolist(), where.counts.tolist(), strict=True)):
        is_pad, part = where.is_pad[start : start + count], times[start : start + count]
        if is_pad.any() and not is_pad.all():
            known, positions = np.flatnonzero(~is_pad), np.arange(count)
            near = np.where(positions < known[0], known[0], known[-1])
            part[is_pad] = (part[near] + (positions - near) * intervals[window])[is_pad]
    return times


def _common(counts: Int64s, size: int | None) -> int | None:
    """Returns the number that all numbers equal: `size` if it is known; None if they differ."""
    if size is not None or not len(counts):
        return size
    return int(counts[0]) if (counts == counts[0]).all() else None


def _by_window(values: npt.NDArray[Any], counts: Int64s, size: int | None) -> Any:
    """Returns the values of each window: an array (W, n) if all windows have n, else a list."""
    size = _common(counts, size)
    return _split(values, counts) if size is None else values.reshape(len(counts), size)


def _split(values: npt.NDArray[Any], counts: Int64s) -> list[npt.NDArray[Any]]:
    """Returns the values of each window."""
    return np.split(values, np.cumsum(counts)[:-1]) if len(counts) else []
