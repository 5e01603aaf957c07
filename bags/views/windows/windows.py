"""Windows around anchors: the items of each field at offsets in steps or in time.

    every='camera'                 anchors          |     |     |     |    the frames
    camera=times(-0.1, 0.0)        frames        x     x                   0.1 s before, and the frame itself
    state=times(-0.1, 0, rate=20)  states        x  x  x
    action=steps(0, 3)             actions             x x x               the next three items

Windows do not extend into other datapoints: items outside the datapoint are padding, which `FIELD_is_pad`
marks, or the window is omitted. The number of windows of each datapoint follows from the lengths of its
sequences or from its times, so a view of ten million windows stores one number per datapoint.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from bags.concurrency import map_concurrently
from bags.dataset.base import Dataset, WindowsView
from bags.dataset.format.refs import Refs
from bags.dataset.format.registry import fixed_dtype
from bags.dataset.format.spec import Schema, reordered
from bags.dataset.reading.batch import Column, Ragged, concat_ranges
from bags.dataset.reading.columns import ReadField, read_column, read_records
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.fingerprint import digest_of
from bags.dataset.reading.row_groups import Datapoint, RowGroup
from bags.dataset.reading.row_reader import FolderFields, RecordRanges
from bags.dataset.reading.selection import (
    Asked,
    Padding,
    PerRowItems,
    Selection,
    Span,
    Steps,
    Times,
    select_many,
)
from bags.formats.arrays import encode_array
from bags.indexing import Int64s, as_indices, check_index
from bags.validation import AdvisedNames, item_count, one_of
from bags.views.windows.anchors import NO_BOUNDS, Anchors, WindowItems, no_items
from bags.views.windows.clocks import Seconds, clocks_of, reads_samples
from bags.views.windows.spans import (
    check_bounds,
    check_spans,
    check_whole_fields,
    is_left_out,
    positive,
    types_of,
)


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
        clocks = clocks_of(dataset, spans, every, times or {}, limits != NO_BOUNDS)
        self._whole = check_whole_fields(dataset, spans, whole)
        schema: Schema = {
            name: field_type
            for name, field_type in dataset.schema.items()
            if name in spans or name in self._whole or not is_left_out(field_type)
        }
        for name, span in spans.items():
            pad = f'{name}_is_pad'
            if pad in dataset.schema:
                raise ValueError(f'windows: the dataset has a field {pad!r}, which would be replaced')
            has_samples = reads_samples(schema[name], span, clocks.get(name))
            schema[name], schema[pad] = types_of(
                name, schema[name], span, padding, dataset.has_frames(name), has_samples
            )
        left_out = [name for name in dataset.schema if name not in schema]
        schema = reordered(schema, [dataset.schema])
        super().__init__([dataset], AdvisedNames(schema, {name: _advice(name) for name in left_out}))
        self.anchors = Anchors(dataset, dict(spans), every, stride, padding, limits, clocks)
        self._spans = self.anchors.spans
        self._pads = {f'{name}_is_pad': name for name in spans}
        self._frame_fields = {name for name in spans if dataset.has_frames(name)}
        self._has_plain_items = (
            not self._frame_fields
            and all(
                isinstance(span, Steps) and self.anchors.is_by_index(name) for name, span in spans.items()
            )
            and isinstance(every, str)
        )
        if self.anchors.is_known_from_refs:
            _ = self.anchors.layout  # Raises for sequences of different lengths; does not read records.

    def __len__(self) -> int:
        return int(self.anchors.layout.offsets[-1])

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
        clocks = [(name, clock and clock.options) for name, clock in self.anchors.clocks.items()]
        return options, clocks

    def origins(self, indices: Iterable[SupportsIndex] | None = None) -> tuple[Int64s, Int64s]:
        return self.anchors.at(np.arange(len(self)) if indices is None else as_indices(indices, len(self)))

    def anchor_times(self, indices: Iterable[SupportsIndex] | None = None) -> Seconds:
        return self.anchors.times(*self.origins(indices))

    def close(self) -> None:
        for recordings in self.anchors.recordings.values():
            recordings.close()
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
            values[name] = _stack(values[name])
        for name in self._pads.keys() & fields.keys():
            values[name] = np.zeros(self._spans[self._pads[name]].count, np.bool_)
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
        recordings = [name for name in named if name in self.anchors.recordings]
        others = [name for name in named if name not in recordings]
        # Clocks read fields of times.
        is_slow = self.is_remote and not all(self.anchors.is_by_index(name) for name in others)
        window_items = map_concurrently(
            lambda name: self.anchors.locate(name, rows, anchors, moments), others, is_slow
        )
        located = dict(zip(others, window_items, strict=True))
        inner_selection = {
            name: self._items_of(name, located[name].items, items) if name in located else items
            for name, items in selection.items()
            if name not in self._pads and name not in recordings
        }

        def read_below(field: FieldReader, refs: Refs, items: Asked) -> Column:
            return (read_column if isinstance(items, PerRowItems) else read)(field, refs, items)

        columns = self.datasets[0].read_selection(rows, inner_selection, read_below)
        for name, where in located.items():
            columns[f'{name}_is_pad'] = where.is_pad
            if name in inner_selection:
                columns[name] = self._finish(name, columns[name], where, selection[name])
        for name in recordings:
            assert moments is not None
            columns[name], columns[f'{name}_is_pad'] = self._read_audio(name, rows, moments)
        return {name: columns[name] for name in selection}

    def _times_for(self, names: Iterable[str], rows: Int64s, anchors: Int64s) -> Seconds | None:
        """Returns the times of anchors, or None if no field is read by time."""
        return None if all(map(self.anchors.is_by_index, names)) else self.anchors.times(rows, anchors)

    def _records_of(self, name: str, items: Asked, rows: Int64s, anchors: Int64s, indices: Int64s) -> Column:
        """Returns the records of a field, for a copy of the windows."""
        if name not in self._spans and name not in self._pads:
            return self.datasets[0].read_selection(rows, {name: items}, read_records)[name]
        if name in self._spans and self.schema[name].sequence:
            where = self.anchors.locate(name, rows, anchors, self._times_for([name], rows, anchors))
            chosen, counts = self._chosen(name, items, len(rows))
            if self.anchors.padding == 'zero' and where.is_pad.ravel()[chosen].any():
                raise TypeError(
                    f"field {name!r}: records of zeros do not exist: copy windows with padding='edge'"
                )
            selected = PerRowItems(None, counts, where.items.numbers[chosen])
            return self.datasets[0].read_selection(rows, {name: selected}, read_records)[name]
        values = self.read_selection(indices, {name: True}, read_column)[name]
        encode = encode_array if not self.schema[name].args else np.ndarray.tobytes
        return [bytes(encode(np.ascontiguousarray(value))) for value in values]

    def _chosen(self, name: str, items: Asked, windows: int) -> tuple[Int64s, Int64s]:
        """Returns positions of selected items among the items of all windows, and their count per window."""
        counts = np.full(windows, self._spans[name].count)
        if items is True:
            return np.arange(counts.sum()), counts
        return select_many(items, np.cumsum(counts) - counts, counts)

    def _items_of(self, name: str, found: PerRowItems, items: Asked) -> PerRowItems:
        """Returns the items to read for windows of the items `found`, or for selected items of each."""
        if items is not True:
            chosen, counts = self._chosen(name, items, len(found.counts))
            return PerRowItems(None, counts, found.numbers[chosen])
        return dataclasses.replace(found, are_frames=True) if name in self._frame_fields else found

    def _finish(self, name: str, column: Column, where: WindowItems, items: Asked) -> Column:
        """Converts items to windows: an array (W, n, *shape), or a list of windows."""
        if items is not True:
            chosen, counts = self._chosen(name, items, len(where.is_pad))
            pads = np.split(where.is_pad.ravel()[chosen], np.cumsum(counts))[:-1]
            return [self._fill(_stack(part), is_pad) for part, is_pad in zip(column, pads, strict=True)]
        field_type = self.datasets[0].schema[name]
        values: Any = column
        if isinstance(column, Ragged):
            has_items = where.items.counts > 0
            shape = self._spans[name].count * (1 if where.weights is None else 2), *column.values.shape[1:]
            values = column.values.reshape(int(has_items.sum()), *shape)
            if not has_items.all():
                items, values = values, np.zeros((len(has_items), *shape), values.dtype)
                values[has_items] = items
        elif isinstance(column, list) and fixed_dtype(field_type.format, field_type.args) is None:
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
        """Replaces padding in one or several windows with zeros, for `padding='zero'`."""
        if self.anchors.padding == 'zero' and is_pad.any():
            if isinstance(values, list):  # Images of different sizes.
                return [item * 0 if pad else item for item, pad in zip(values, is_pad.tolist(), strict=True)]
            values[is_pad] = 0
        return values

    def _read_audio(self, name: str, rows: Int64s, moments: Seconds) -> tuple[Column, Column]:
        """Reads samples of recordings for windows, float32 (W, samples, channels)."""
        span = self._spans[name]
        assert isinstance(span, Times)
        audios = self.anchors.recordings[name].of(rows)
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
            positions = firsts[:, None] + np.arange(count)
            clipped = positions.clip(0, len(audio) - 1)
            audio.will_need([(part[0], part[-1] + 1) for part in clipped.tolist()])
            for window, part, is_pad in zip(windows.tolist(), clipped, positions != clipped, strict=True):
                found = audio[part[0] : part[-1] + 1][part - part[0]]
                samples[window], pads[window] = self._fill(found, is_pad), is_pad
            audio.will_need([])

        map_concurrently(read, np.unique(rows).tolist(), self.reads_wait)
        shapes = {window.shape for window in samples}
        return (np.stack(samples), np.stack(pads)) if len(shapes) == 1 else (samples, pads)

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

    def folders(self, fields: Iterable[str]) -> FolderFields:
        underlying = self.datasets[0]
        return underlying.folders([name for name in fields if name in underlying.schema])

    def record_ranges(self, indices: Int64s, field: str, items: Asked = True) -> RecordRanges | None:
        """Returns the locations of the records of a field; None if they are computed or not consecutive."""
        if field not in self._spans and field not in self._pads:
            return super().record_ranges(indices, field, items)
        span = self._spans.get(field)
        if not isinstance(span, Steps) or not self.schema[field].sequence:
            return None
        rows, anchors = self.anchors.at(indices)
        where = self.anchors.locate(field, rows, anchors, self._times_for([field], rows, anchors))
        chosen, counts = self._chosen(field, items, len(rows))
        if not counts.all():
            return None
        positions, firsts = where.items.numbers[chosen], np.cumsum(counts) - counts
        starts = positions[firsts]
        is_zero = self.anchors.padding == 'zero' and where.is_pad.ravel()[chosen].any()
        if is_zero or (positions != concat_ranges(starts, counts)).any():
            return None
        return self.datasets[0].record_ranges(rows, field, PerRowItems(starts, counts))

    def item_counts(self, indices: Int64s, field: str, items: Asked = True) -> Int64s:
        if field in self._spans:
            return self._chosen(field, items, len(indices))[1]
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


def _stack(values: Any) -> Any:
    """Stacks a list of arrays if their shapes are equal."""
    are_arrays = (
        isinstance(values, list) and values and all(isinstance(array, np.ndarray) for array in values)
    )
    if are_arrays and len({(array.shape, array.dtype) for array in values}) == 1:
        return np.stack(values)
    return values
