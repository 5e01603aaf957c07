"""`Grid`: all streams of each datapoint at the same times, at a constant rate: the frames of a robot episode.

    front, 30 Hz         0     1     2     3     4     5
    side, 15 Hz              0           1           2
    joints, 200 Hz     ..............................................
    grid, 30 Hz                    0     1     2     3     4         from the first to the last common time
    front at the grid              2     3     4     5     5         5 is repeated; 0 and 1 are left out
    side at the grid               0     1     1     2     2         the last one at or before each time

The grid begins at the first element of one field, `every`, at which all streams have begun, and ends before
the end of the stream that ends first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from bags.concurrency import cached_attribute
from bags.dataset.base import Dataset
from bags.dataset.format.registry import fixed_dtype
from bags.dataset.reading.columns import read_column, read_records
from bags.dataset.reading.selection import Span, Times, select_fields
from bags.formats.arrays import array_type
from bags.indexing import Int64s, offsets_of
from bags.streams.clocks import EPSILON, Clock, RateClock, Seconds
from bags.streams.field import StreamField
from bags.validation import one_of
from bags.views.windows.anchors import ANCHORED_ROWS_AT_ONCE, MAX_WINDOWS, Anchors, WindowLayout
from bags.views.windows.spans import positive
from bags.views.windows.windows import Windows

GridFill = Literal['previous', 'nearest', 'linear']
Gaps = Literal['raise', 'end']
TIMES_AT_ONCE = 1 << 20
"""Number of times at which gaps are looked for together."""


@dataclasses.dataclass(frozen=True)
class GridOptions:
    """How streams are sampled; arguments of `bags.export` and `bags.lerobot.dataset`.

    Raises:
        TypeError, ValueError: An option is invalid.
    """

    every: str
    """The field at whose first element the grid begins, and whose rate is the default."""
    fps: float | None = None
    """Times per second. Default: the rate of `every`."""
    fill: GridFill = 'previous'
    """The value at a time between elements: the 'previous' one; the 'nearest' one; or, for floats, 'linear'
    interpolation, with the previous one for all others."""
    gap: float | None = None
    """Maximum seconds since the last element of a stream. Default: no limit."""
    gaps: Gaps = 'raise'
    """Whether a longer time without an element is an error, or the end of the grid."""

    def __post_init__(self) -> None:
        if self.fps is not None:
            positive('fps', self.fps, 'frames per second')
        if self.gap is not None:
            positive('gap', self.gap, 'seconds')
        one_of('fill', self.fill, ('previous', 'nearest', 'linear'))
        one_of('gaps', self.gaps, ('raise', 'end'))


def grid_options(
    every: str | None, fps: float | None, fill: GridFill, gap: float | None, gaps: Gaps
) -> GridOptions | None:
    """Returns the options of a grid; None without `every`.

    Raises:
        TypeError, ValueError: An option is invalid, or needs `every`.
    """
    if every is not None:
        return GridOptions(every, fps, fill, gap, gaps)
    for name, value in {'fps': fps, 'gap': gap}.items():
        if value is not None:
            raise ValueError(f'{name}: expected every, the field to sample streams by, with {name}={value!r}')
    if (fill, gaps) != ('previous', 'raise'):
        raise ValueError(f'fill and gaps: expected every with them, got fill={fill!r}, gaps={gaps!r}')
    return None


@dataclasses.dataclass
class GridAnchors(Anchors):
    """The times of a grid in the datapoints of a dataset, as anchors."""

    options: GridOptions | None = None
    start_at: StreamField | None = None
    """The stream at whose elements the grid begins."""
    rate: float = 1.0
    """Times per second."""
    ends: dict[int, tuple[str, float]] = dataclasses.field(default_factory=dict)
    """By datapoint whose grid ends at a gap: the field, and the time."""

    @cached_attribute
    def layout(self) -> WindowLayout:
        """The grid of all datapoints.

        Raises:
            ValueError: The streams of a datapoint have no time in common, or one has a gap.
        """
        length = len(self.dataset)
        starts, counts = np.zeros(length), np.zeros(length, np.int64)
        for first in range(0, length, ANCHORED_ROWS_AT_ONCE):
            rows = np.arange(first, min(first + ANCHORED_ROWS_AT_ONCE, length))
            starts[rows], counts[rows] = self._common(rows)
        if counts.sum() > MAX_WINDOWS:
            raise ValueError(f'fps={self.rate:g}: makes {counts.sum():.3g} frames')
        assert self.options is not None
        if self.options.gap is not None:
            for row in range(length):
                counts[row] = self._until_gap(row, starts[row], int(counts[row]), self.options)
        self.clock = RateClock(self.dataset, '', counts.__getitem__, self.rate, starts)
        return WindowLayout(counts, np.zeros(length, np.int64), offsets_of(counts))

    def _common(self, rows: Int64s) -> tuple[Seconds, Int64s]:
        """Returns the first time of the grid of datapoints, and the number of its times."""
        assert self.start_at is not None
        anchors = self.start_at.expect_clock()
        clocks = {self.start_at.name: anchors}
        clocks |= {name: self.streams[name].expect_clock() for name in self.spans}
        ranges = {name: clock.range(rows) for name, clock in clocks.items()}
        low = np.max([start for start, _ in ranges.values()], 0)  # NaN where a stream has no elements.
        high = np.min([end for _, end in ranges.values()], 0)
        begins = anchors.before(rows, np.nan_to_num(low)[:, None] - 2 * EPSILON) + 1
        starts = anchors.at(rows, begins)[:, 0]
        counts = np.ceil(np.nan_to_num((high - starts - EPSILON) * self.rate)).astype(np.int64)
        if (counts < 1).any():
            position = int((counts < 1).argmax())
            found = [f'{name!r} {_interval(*of_all, position)}' for name, of_all in ranges.items()]
            raise ValueError(
                f'datapoint {rows[position]}: expected a time at which all streams have elements, from an '
                f'element of {self.start_at.name!r} on; got {", ".join(found)}'
            )
        return starts, counts

    def _until_gap(self, row: int, start: float, count: int, options: GridOptions) -> int:
        """Returns the number of times before the first gap of a stream."""
        assert options.gap is not None
        for first in range(0, count, TIMES_AT_ONCE):
            times = start + np.arange(first, min(first + TIMES_AT_ONCE, count))[None] / self.rate
            found: list[tuple[int, str]] = []
            for name in self.spans:
                ages = self._ages(self.streams[name].expect_clock(), row, times)
                if len(late := np.flatnonzero(ages > options.gap + EPSILON)):
                    found.append((int(late[0]), name))
            if not found:
                continue
            step, name = min(found)
            time = float(times[0, step])
            if options.gaps == 'raise' or first + step == 0:
                raise ValueError(
                    f'datapoint {row}: field {name!r}: expected an element in the {options.gap:g} s before '
                    f"{time:.6g} s, got none (gap={options.gap:g}; gaps='end' ends the episode before)"
                )
            self.ends[row] = name, time
            return first + step
        return count

    def _ages(self, clock: Clock, row: int, times: Seconds) -> Seconds:
        """Returns the seconds since the last element at each time."""
        rows = np.array([row], np.int64)
        ages: Seconds = (times - clock.at(rows, clock.before(rows, times)))[0]
        return ages


class Grid(Windows):
    """A view whose datapoints are the times of a grid, with one element of each field.

    Args:
        dataset: The dataset, whose datapoints are episodes.
        fields: The fields to sample.
        options: The grid.

    Raises:
        KeyError, TypeError, ValueError: A field is unknown, is not a stream, or has no times.
    """

    def __init__(self, dataset: Dataset, fields: Sequence[str], options: GridOptions) -> None:
        select_fields(options.every, dataset.schema)
        start_at = StreamField(dataset, options.every)
        if start_at.type == 'samples':
            raise TypeError(f'every: expected a field of frames or items, got sound in {options.every!r}')
        rate = float(options.fps or rate_of(start_at))
        super().__init__(dataset, _spans_of(dataset, fields, options.fill), 1 / rate, 1, 'edge', None, None)
        self.options = options
        self.rate = int(rate) if rate == int(rate) else rate
        """Times per second."""
        self.anchors = GridAnchors(
            dataset, self.anchors.spans, 1 / rate, 1, 'edge', streams=self.anchors.streams,
            options=options, start_at=start_at, rate=rate,
        )  # fmt: skip

    @property
    def offsets(self) -> Int64s:
        """The number of times before each datapoint, followed by the total."""
        return self.anchors.layout.offsets

    @property
    def ends(self) -> Mapping[int, tuple[str, float]]:
        """By datapoint whose grid ends at a gap: the field with the gap, and the time of its end."""
        assert isinstance(self.anchors, GridAnchors)
        _ = self.anchors.layout
        return self.anchors.ends

    def is_video(self, field: str) -> bool:
        """Returns whether the elements of a field are frames of videos, or of values of one's own type."""
        return self.anchors.streams[field].type == 'frames'

    def element_count(self, field: str, row: int) -> int:
        """Returns the number of elements of a field in a datapoint."""
        return int(self.anchors.streams[field].counts(np.array([row]))[0])

    def sampled_elements(self, field: str, row: int) -> Int64s:
        """Returns the element of a field at each time of a datapoint; of fields without linear fill."""
        steps = np.arange(self.anchors.layout.counts[row])
        rows = np.full(len(steps), row)
        return self.anchors.locate(field, rows, steps, self.anchors.times(rows, steps)).items.numbers

    def sampled_records(self, field: str, row: int) -> list[Any]:
        """Returns the record of a field of items at each time of a datapoint."""
        rows = np.arange(*self.offsets[row : row + 2])
        columns: dict[str, Any] = self.read_selection(rows, {field: True}, read_records)
        return [window[0] for window in columns[field]]

    def sampled_values(self, fields: Sequence[str], indices: Int64s) -> dict[str, Any]:
        """Returns the value of fields at times, given by their numbers in the view, (n,).

        An array (n, *shape) if the values have one shape, else a list.
        """
        columns: dict[str, Any] = self.read_selection(indices, dict.fromkeys(fields, True), read_column)
        return {
            name: column[:, 0] if isinstance(column, np.ndarray) else [window[0] for window in column]
            for name, column in columns.items()
        }

    def fingerprint_options(self) -> object:
        return super().fingerprint_options(), dataclasses.astuple(self.options)

    @property
    def expression(self) -> str:
        return f'{self.datasets[0].expression}.windows({self.anchors.spans!r}, {self.options})'


def rate_of(stream: StreamField) -> float:
    """Returns the elements per second of a field: its rate, or the median of the rates of datapoints.

    The average rate of elements with times of their own is rounded to a whole number.
    """
    clock, rows = stream.expect_clock(), np.arange(len(stream.dataset))
    rates = clock.rates(rows)
    if not clock.has_rate:
        counts, seconds = stream.counts(rows), stream.durations(rows)
        rates = np.divide(counts, seconds, out=np.full(len(rows), np.nan), where=seconds > 0)
        rates = np.maximum(np.rint(rates), 1)
    known = np.sort(rates[~np.isnan(rates)])
    if not len(known):
        raise ValueError(f'every: the rate of {stream.name!r} is unknown: no datapoint has elements; use fps')
    return float(known[(len(known) - 1) // 2])


def _spans_of(dataset: Dataset, fields: Sequence[str], fill: GridFill) -> dict[str, Span]:
    spans: dict[str, Span] = {}
    for name in fields:
        field_type = dataset.schema[name]
        fixed = fixed_dtype(field_type.format, field_type.args)
        if fixed is None and field_type.format == 'array':
            fixed = array_type(*field_type.args)
        are_floats = fixed is not None and fixed[0].kind == 'f'
        spans[name] = Times((0.0,), fill if fill != 'linear' or are_floats else 'previous', None, 'raise')
    return spans


def _interval(starts: Seconds, ends: Seconds, position: int) -> str:
    if np.isnan(starts[position]):
        return 'without elements'
    return f'from {starts[position]:.6g} s to {ends[position]:.6g} s'
