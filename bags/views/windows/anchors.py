"""The anchors of windows in each datapoint, and the items of each field in a window."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.concurrency import cached_attribute
from bags.dataset.base import Dataset
from bags.dataset.format.registry import fixed_dtype
from bags.dataset.reading.batch import concat_ranges
from bags.dataset.reading.selection import Between, Padding, PerRowItems, Span, Steps, Times
from bags.indexing import Int64s, offsets_of
from bags.streams.clocks import EPSILON, Clock, RateClock, Seconds
from bags.streams.field import StreamField
from bags.views.windows.spans import count_of

NO_BOUNDS = (-math.inf, math.inf)
MAX_WINDOWS = 1 << 53
ANCHORED_ROWS_AT_ONCE = 1024
"""Number of datapoints whose times are read at a time to find the starts and ends of windows."""


class WindowItems(NamedTuple):
    """The elements of a field in W windows. A window is empty if its datapoint has no elements."""

    items: PerRowItems
    """The elements to read: n, or 2 n for linear fill, of which those before the times come first."""
    counts: Int64s
    """The number of elements n of each window, (W,), including padding in datapoints without elements."""
    is_pad: npt.NDArray[np.bool_] | None
    """Which elements of all windows are padding, (sum(n),); None: windows have none."""
    weights: Seconds | None = None
    """For linear fill, the weights of the elements after the times, 0 to 1, shape (W, n)."""

    def range(self) -> tuple[Int64s, Int64s]:
        """Returns the first element of each window and the end, without padding, (W,) each.

        Both are equal in windows without elements, or with padding alone.
        """
        starts, stops = np.zeros((2, len(self.counts)), np.int64)
        filled = np.flatnonzero(self.items.counts)
        if not len(filled):
            return starts, stops
        numbers = self.items.numbers
        is_read = np.ones(len(numbers), np.bool_)
        if self.is_pad is not None:
            is_read = ~self.is_pad[np.repeat(self.items.counts > 0, self.counts)]
        if self.weights is not None:
            low = is_read.reshape(len(filled), -1)
            is_read = np.concatenate([low, low & (self.weights[filled] > 0)], 1).ravel()
        firsts = (np.cumsum(self.items.counts) - self.items.counts)[filled]
        any_number = np.maximum.reduceat(numbers, firsts)
        starts[filled] = np.minimum.reduceat(
            np.where(is_read, numbers, np.repeat(any_number, self.items.counts[filled])), firsts
        )
        stops[filled] = np.maximum.reduceat(np.where(is_read, numbers + 1, 0), firsts)
        return starts, np.maximum(starts, stops)


class WindowLayout(NamedTuple):
    """The windows of all datapoints."""

    counts: Int64s
    """The number of anchors of each datapoint, with or without a window."""
    firsts: Int64s
    """The first anchor with a window in each datapoint."""
    offsets: Int64s
    """The number of windows before each datapoint, followed by the total."""


@dataclasses.dataclass
class Anchors:
    """The anchors of windows in the datapoints of a dataset, computed on first use."""

    dataset: Dataset
    spans: dict[str, Span]
    """The span of each field."""
    every: str | float
    """The field whose items are the anchors, or the seconds between anchors."""
    stride: int
    """Items of `every` from one anchor to the next."""
    padding: Padding = 'edge'
    """How to fill items outside the datapoint; 'drop' omits windows with such items."""
    bounds: tuple[float, float] = NO_BOUNDS
    """The first and last time of anchors in a datapoint, in seconds."""
    streams: dict[str, StreamField] = dataclasses.field(default_factory=dict)
    """The stream of each field of a span, and of `every`."""

    def __post_init__(self) -> None:
        self.clock = self.streams[self.every].clock if isinstance(self.every, str) else None
        """The clock of the anchors; None without times, and until `layout` creates it."""

    @property
    def is_known_from_refs(self) -> bool:
        """Whether the lengths of sequences determine the windows of all datapoints."""
        return (
            isinstance(self.every, str)
            and self.bounds == NO_BOUNDS
            and all(map(self.is_by_index, self.spans))
            and all(stream.type == 'items' for stream in self.streams.values())
        )

    @cached_attribute
    def layout(self) -> WindowLayout:
        """The windows of all datapoints.

        Raises:
            ValueError: Fields without times have different lengths in a datapoint, or a window has no items.
        """
        rows = np.arange(len(self.dataset))
        blocks = np.array_split(rows, max(1, -(-len(rows) // ANCHORED_ROWS_AT_ONCE)))
        if isinstance(self.every, str):
            counts = self.streams[self.every].counts(rows)
        else:
            self.clock = self._make_grid(self.every, blocks)
            counts = self.clock.counts(rows)
        for name in self.spans:
            if self.is_by_index(name) and name != self.every:
                self._expect_counts(name, counts)
        if self.is_known_from_refs or (self.padding != 'drop' and self.bounds == NO_BOUNDS):
            blocks = [rows]  # Times are not read.
        allowed = [self._allowed(block, counts[block]) for block in blocks]
        firsts, lasts = (np.concatenate(parts) for parts in zip(*allowed, strict=True))
        firsts = -(-firsts // self.stride) * self.stride
        windows = np.maximum((lasts - firsts) // self.stride + 1, 0)
        for name in self.spans:
            if self.streams[name].type == 'items' and not self.is_by_index(name):
                self._expect_items(name, rows[windows > 0])
        return WindowLayout(counts, firsts, offsets_of(windows))

    def at(self, indices: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the datapoints of windows, and their anchors."""
        _, firsts, offsets = self.layout
        rows = offsets.searchsorted(indices, 'right') - 1
        return rows, firsts[rows] + (indices - offsets[rows]) * self.stride

    def times(self, rows: Int64s, anchors: Int64s) -> Seconds:
        """Returns the times of anchors, given the results of `at`; NaN without times."""
        if self.clock is None:
            return np.full(len(rows), np.nan)
        return self.clock.at(rows, anchors[:, None])[:, 0]

    def locate(self, name: str, rows: Int64s, anchors: Int64s, moments: Seconds | None) -> WindowItems:
        """Finds the items of a field in windows.

        Args:
            name: The field.
            rows, anchors: The results of `at`.
            moments: The result of `times`; None if the field `is_by_index`.
        """
        span = self.spans[name]
        if isinstance(span, Steps):
            return self._locate_steps(name, span, rows, anchors, moments)
        clock, counts = self._timed(name, rows)
        assert moments is not None
        if isinstance(span, Between):
            return self._locate_between(name, span, clock, counts, rows, moments)
        return self._locate_times(name, span, clock, counts, rows, moments)

    def _timed(self, name: str, rows: Int64s) -> tuple[Clock, Int64s]:
        """Returns the clock of a field, and the number of its elements in datapoints."""
        clock = self.streams[name].expect_clock()
        counts = clock.counts(rows)
        if not counts.all():
            self._expect_items(name, rows)
        return clock, counts

    def _locate_steps(
        self, name: str, span: Steps, rows: Int64s, anchors: Int64s, moments: Seconds | None
    ) -> WindowItems:
        if self.is_by_index(name):
            if self.padding == 'drop':
                return _inside(anchors + span.start, span.count)
            counts = self.layout.counts[rows]
            if not counts.all():
                self._expect_items(name, rows)
        else:
            assert moments is not None
            clock, counts = self._timed(name, rows)
            anchors = clock.before(rows, moments[:, None] - 2 * EPSILON)[:, 0] + 1
        return _padded(anchors + span.start, span.count, counts)

    def _locate_between(
        self, name: str, span: Between, clock: Clock, counts: Int64s, rows: Int64s, moments: Seconds
    ) -> WindowItems:
        shift = EPSILON if span.closed == 'right' else -EPSILON
        if span.count is None and clock.has_rate:
            firsts = clock.from_start(rows, moments[:, None] + span.start + (shift + EPSILON))[:, 0]
            lengths = np.rint((span.stop - span.start) * np.nan_to_num(clock.rates(rows))).astype(np.int64)
            return _padded(firsts, lengths, counts)
        bounds = moments[:, None] + np.array([span.start, span.stop]) + (shift - EPSILON)
        low, high = (clock.before(rows, bounds) + 1).T
        high = np.maximum(low, high)
        if span.count is None:
            return WindowItems(PerRowItems(low, high - low), high - low, None)
        starts = high - span.count if span.keep == 'last' else low
        positions = starts[:, None] + np.arange(span.count)
        is_pad = (positions < low[:, None]) | (positions >= high[:, None])
        last = np.where(low < high, high - 1, np.maximum(low - 1, 0))
        positions = positions.clip(np.minimum(low, last)[:, None], last[:, None])
        return WindowItems(
            _listed(np.where(counts[:, None] > 0, positions, -1)),
            np.full(len(rows), span.count),
            (is_pad | (counts[:, None] == 0)).ravel(),
        )

    def _locate_times(
        self, name: str, span: Times, clock: Clock, counts_of_rows: Int64s, rows: Int64s, moments: Seconds
    ) -> WindowItems:
        counts = counts_of_rows[:, None]
        sizes = np.full(len(rows), span.count)
        item_times = moments[:, None] + np.array(span.offsets)
        before = clock.before(rows, item_times)
        around = np.concatenate([np.maximum(before, 0), np.minimum(before + 1, counts - 1)], 1)
        (low, high), (low_times, high_times) = _halves(around), _halves(clock.at(rows, around))
        start, stop = clock.extent(rows)
        slack = (span.tolerance or 0.0) + EPSILON
        is_pad = (counts == 0) | (item_times < start[:, None] - slack) | (item_times > stop[:, None] + slack)
        after, until = item_times - low_times, high_times - item_times
        if span.fill == 'previous':
            is_pad |= before < 0
            positions = low
        else:
            positions = np.where((after <= until + EPSILON) | (before == counts - 1), low, high)
        if span.tolerance is not None:
            gap = after if span.fill == 'previous' else np.minimum(abs(after), abs(until))
            missing = ~is_pad & (gap > slack)
            if missing.any() and span.gaps == 'raise':
                window, item = np.argwhere(missing)[0].tolist()
                raise ValueError(
                    f'windows: datapoint {rows[window]}: field {name!r} has no item within '
                    f'{span.tolerance} s of {item_times[window, item]:.6f} s'
                )
            is_pad |= missing
        if span.fill != 'linear':
            return WindowItems(_listed(np.where(counts > 0, positions, -1)), sizes, is_pad.ravel())
        distance = high_times - low_times
        is_between = (distance > 0) & (after > EPSILON)  # No interpolation otherwise.
        weights = np.divide(after, distance, out=np.zeros_like(item_times), where=is_between)
        items = _listed(np.where(counts > 0, around, -1))
        return WindowItems(items, sizes, is_pad.ravel(), np.clip(weights, 0, 1))

    def is_by_index(self, name: str) -> bool:
        """Returns whether item i of a field belongs to anchor i."""
        return isinstance(self.spans[name], Steps) and (
            name == self.every or self.clock is None or self.streams[name].clock is None
        )

    def size(self, name: str) -> int | None:
        """Returns the number of elements of a field in each window; None if it differs."""
        return count_of(self.spans[name], self.streams[name].clock)

    def _expect_counts(self, name: str, counts: Int64s) -> None:
        others = self.streams[name].counts(np.arange(len(self.dataset)))
        if (others != counts).any():
            index = int((others != counts).argmax())
            raise ValueError(
                f'windows: expected sequences of equal length, got {counts[index]} items of {self.every!r} '
                f'and {others[index]} of {name!r} in datapoint {index}'
            )

    def _expect_items(self, name: str, rows: Int64s) -> None:
        """Checks that datapoints have items, except where windows can be padded with zeros."""
        field_type, span = self.dataset.schema[name], self.spans[name]
        if isinstance(span, Between) and span.count is None and not self.streams[name].has_rate:
            return
        if self.padding != 'zero' or fixed_dtype(field_type.format, field_type.args) is None:
            lacking = rows[self.streams[name].counts(rows) == 0]
            if len(lacking):
                raise no_items(int(lacking[0]), name)

    def _make_grid(self, seconds: float, blocks: list[Int64s]) -> Clock:
        """Returns the clock of anchors at a constant interval, over the time range of all fields."""
        low, high = np.full((2, len(self.dataset)), np.nan)
        for rows in blocks:
            for name in self.spans:
                first, last = self._extent(name, rows)
                low[rows], high[rows] = np.fmin(low[rows], first), np.fmax(high[rows], last)
        if self.bounds[0] > -math.inf:
            low = np.where(np.isfinite(low), self.bounds[0], low)
        counts = np.where(high >= low, np.floor((high - low + EPSILON) / seconds) + 1, 0)
        if counts.sum() > MAX_WINDOWS:
            raise ValueError(f'windows: every={seconds!r} s makes {counts.sum():.3g} windows')
        return RateClock(
            self.dataset, '', counts.astype(np.int64).__getitem__, 1 / seconds, np.nan_to_num(low)
        )

    def _extent(self, name: str, rows: Int64s) -> tuple[Seconds, Seconds]:
        """Returns the time range that windows may cover: of samples to the end of the last one."""
        stream = self.streams[name]
        clock = stream.expect_clock()
        is_interval = stream.type == 'samples' or isinstance(self.spans[name], Between)
        return clock.range(rows) if is_interval else clock.extent(rows)

    def _allowed_by(self, span: Between, clock: Clock, rows: Int64s) -> tuple[Seconds, Seconds]:
        """Returns the first and last times of anchors whose interval is within the stream, shape (W,)."""
        first, last = clock.range(rows)
        if span.count is not None or not clock.has_rate:
            return first - span.start, last - span.stop
        rates, counts = clock.rates(rows), clock.counts(rows)
        lengths = np.rint((span.stop - span.start) * rates)
        # An element at or after the start, or after it, and the last of `lengths` elements, are within.
        shift = EPSILON if span.closed == 'left' else -EPSILON
        early = first - span.start - 1 / rates + (shift + EPSILON)
        return early, first - span.start + (counts - lengths) / rates + (shift - EPSILON)

    def _allowed(self, rows: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the first and last anchors of datapoints that bounds and padding allow."""
        low, high = np.zeros(len(rows), np.int64), counts - 1
        after, before = (np.full(len(rows), bound) for bound in self.bounds)
        for name, span in self.spans.items() if self.padding == 'drop' else ():
            clock = self.streams[name].clock
            if isinstance(span, Between):
                first, last = self._allowed_by(span, self.streams[name].expect_clock(), rows)
                after, before = np.maximum(after, first), np.minimum(before, last)
            elif isinstance(span, Times):
                first, last = self._extent(name, rows)
                slack = span.tolerance or 0.0
                early = 0.0 if span.fill == 'previous' else slack
                after = np.maximum(after, first - min(span.offsets) - early)
                before = np.minimum(before, last - max(span.offsets) + slack)
            elif clock is None or self.is_by_index(name):
                low, high = np.maximum(low, -span.start), np.minimum(high, counts - span.stop)
            else:
                # Step 0 must come after the first of these items, and cannot come after the second.
                ends = np.stack([np.full(len(rows), -span.start - 1), clock.counts(rows) - span.stop], 1)
                first, last = clock.at(rows, ends).T
                if span.start < 0:
                    after = np.maximum(after, first + 2 * EPSILON)
                if span.stop > 0:
                    before = np.minimum(before, last)
        lacks_items = np.isnan(after) | np.isnan(before)
        after[lacks_items], before[lacks_items] = np.inf, -np.inf
        if (after > -np.inf).any() or (before < np.inf).any():
            assert self.clock is not None
            low = np.maximum(low, self.clock.before(rows, after[:, None] - 2 * EPSILON)[:, 0] + 1)
            high = np.minimum(high, self.clock.before(rows, before[:, None])[:, 0])
        return low, high


def _halves(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Returns the first and the second half of the columns."""
    middle = values.shape[1] // 2
    return values[:, :middle], values[:, middle:]


def _inside(starts: Int64s, count: int) -> WindowItems:
    """Returns windows of `count` consecutive elements without padding."""
    counts = np.full(len(starts), count)
    return WindowItems(PerRowItems(starts, counts), counts, np.zeros(len(starts) * count, np.bool_))


def _padded(starts: Int64s, lengths: Int64s | int, counts: Int64s) -> WindowItems:
    """Returns windows of consecutive elements; elements outside the datapoint are padding.

    Args:
        starts: The first element of each window, which may be outside.
        lengths: The number of elements of each window, or of all.
        counts: The number of elements of the datapoint of each window.
    """
    is_inside = ((starts >= 0) & (starts + lengths <= counts)).all()
    if isinstance(lengths, int):
        if is_inside:
            return _inside(starts, lengths)
        # Windows of one length are twice as fast as a table.
        table, ends = starts[:, None] + np.arange(lengths), counts[:, None] - 1
        is_pad = (table < 0) | (table > ends)
        items = _listed(np.minimum(np.maximum(table, 0), ends))
        return WindowItems(items, np.full(len(starts), lengths), is_pad.ravel())
    if is_inside:
        return WindowItems(PerRowItems(starts, lengths), lengths, np.zeros(int(lengths.sum()), np.bool_))
    positions, last = concat_ranges(starts, lengths), np.repeat(counts - 1, lengths)
    is_pad = (positions < 0) | (positions > last)
    positions = np.minimum(np.maximum(positions, 0), last)
    sizes = np.where(counts > 0, lengths, 0)
    return WindowItems(PerRowItems(None, sizes, positions[positions >= 0]), lengths, is_pad)


def _listed(positions: Int64s) -> PerRowItems:
    """Returns the elements at positions (W, n); rows of -1 are empty."""
    counts = np.where(positions[:, 0] < 0, 0, positions.shape[1])
    return PerRowItems(None, counts, positions[positions >= 0])


def no_items(row: int, name: str) -> ValueError:
    """Returns the error for a window of a field without items in its datapoint."""
    return ValueError(
        f'windows: datapoint {row}: expected items of {name!r}, got none '
        f"(padding='drop' omits such windows, 'zero' fills windows of numbers)"
    )
