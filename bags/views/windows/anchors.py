"""The anchors of windows in each datapoint, and the items of each field in a window."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bags.concurrency import cached_attribute
from bags.dataset.base import Dataset
from bags.dataset.format.registry import fixed_dtype
from bags.dataset.reading.selection import Padding, PerRowItems, Span, Steps, Times
from bags.indexing import Int64s, offsets_of
from bags.views.windows.clocks import (
    EPSILON,
    Clock,
    RateClock,
    RecordingTimes,
    Seconds,
    count_items,
    reads_samples,
)

NO_BOUNDS = (-math.inf, math.inf)
MAX_WINDOWS = 1 << 53
ANCHORED_ROWS_AT_ONCE = 1024
"""Number of datapoints whose times are read at a time to find the starts and ends of windows."""


class WindowItems(NamedTuple):
    """The items of a field in W windows of n items; a window is empty if its datapoint has no items."""

    items: PerRowItems
    """The items to read of each datapoint: n, or 2 n for linear fill, the items before the times first."""
    is_pad: npt.NDArray[np.bool_]
    """Which items of the windows are padding, (W, n)."""
    weights: Seconds | None = None
    """For linear fill, the weights of the items after the times, 0 to 1, shape (W, n)."""


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
    clocks: dict[str, Clock | None] = dataclasses.field(default_factory=dict)
    """The clock of each field; None without times."""

    def __post_init__(self) -> None:
        self.recordings = {
            name: RecordingTimes(self.dataset, name)
            for name, span in self.spans.items()
            if reads_samples(self.dataset.schema[name], span, self.clocks.get(name))
        }
        self._clock = self.clocks.get(self.every) if isinstance(self.every, str) else None
        """The clock of the anchors; None without times, and until `layout` creates it."""

    @property
    def is_known_from_refs(self) -> bool:
        """Whether the lengths of sequences determine the windows of all datapoints."""
        return (
            isinstance(self.every, str)
            and self.bounds == NO_BOUNDS
            and all(map(self.is_by_index, self.spans))
            and not any(map(self.dataset.has_frames, (self.every, *self.spans)))
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
            counts = count_items(self.dataset, self.every)
        else:
            self._clock = self._make_grid(self.every, blocks)
            counts = self._clock.counts(rows)
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
            has_items = self.dataset.schema[name].sequence and not self.dataset.has_frames(name)
            if has_items and not self.is_by_index(name):
                self._expect_items(name, rows[windows > 0])
        return WindowLayout(counts, firsts, offsets_of(windows))

    def at(self, indices: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the datapoints of windows, and their anchors."""
        _, firsts, offsets = self.layout
        rows = offsets.searchsorted(indices, 'right') - 1
        return rows, firsts[rows] + (indices - offsets[rows]) * self.stride

    def times(self, rows: Int64s, anchors: Int64s) -> Seconds:
        """Returns the times of anchors, given the results of `at`; NaN without times."""
        if self._clock is None:
            return np.full(len(rows), np.nan)
        return self._clock.at(rows, anchors[:, None])[:, 0]

    def locate(self, name: str, rows: Int64s, anchors: Int64s, moments: Seconds | None) -> WindowItems:
        """Finds the items of a field in windows.

        Args:
            name: The field.
            rows, anchors: The results of `at`.
            moments: The result of `times`; None if the field `is_by_index`.
        """
        span = self.spans[name]
        if isinstance(span, Steps):
            if self.is_by_index(name):
                if self.padding == 'drop':
                    return _inside(anchors + span.start, span.count)
                counts = self.layout.counts[rows]
            else:
                clock = self.clocks[name]
                assert clock is not None
                assert moments is not None
                counts = clock.counts(rows)
                anchors = clock.before(rows, moments[:, None] - 2 * EPSILON)[:, 0] + 1
            if not counts.all():
                self._expect_items(name, rows)
            starts = anchors + span.start
            if ((starts >= 0) & (starts + span.count <= counts)).all():
                return _inside(starts, span.count)
            positions, last = starts[:, None] + np.arange(span.count), counts[:, None] - 1
            is_pad = (positions < 0) | (positions > last)
            positions = positions.clip(0, last)
            return WindowItems(_listed(positions), is_pad)
        return self._locate_times(name, span, rows, moments)

    def _locate_times(self, name: str, span: Times, rows: Int64s, moments: Seconds | None) -> WindowItems:
        clock = self.clocks[name]
        assert clock is not None
        assert moments is not None
        counts = clock.counts(rows)[:, None]
        if not counts.all():
            self._expect_items(name, rows)
        item_times = moments[:, None] + np.array(span.offsets)
        before = clock.before(rows, item_times)
        low, high = np.maximum(before, 0), np.minimum(before + 1, counts - 1)
        low_times, high_times = clock.at(rows, low), clock.at(rows, high)
        start, stop = clock.extent(rows)
        slack = (span.tolerance or 0.0) + EPSILON
        is_pad = (counts == 0) | (item_times < start[:, None] - slack) | (item_times > stop[:, None] + slack)
        if span.fill == 'previous':
            is_pad |= before < 0
            positions, gap = low, item_times - low_times
        else:
            is_low = item_times - low_times <= high_times - item_times + EPSILON
            positions = np.where(is_low | (before == counts - 1), low, high)
            gap = np.minimum(abs(item_times - low_times), abs(high_times - item_times))
        if span.tolerance is not None:
            missing = ~is_pad & (gap > slack)
            if missing.any() and span.gaps == 'raise':
                window, item = np.argwhere(missing)[0].tolist()
                raise ValueError(
                    f'windows: datapoint {rows[window]}: field {name!r} has no item within '
                    f'{span.tolerance} s of {item_times[window, item]:.6f} s'
                )
            is_pad |= missing
        if span.fill != 'linear':
            return WindowItems(_listed(np.where(counts > 0, positions, -1)), is_pad)
        distance = high_times - low_times
        is_between = (distance > 0) & (item_times - low_times > EPSILON)  # No interpolation otherwise.
        weights = np.divide(item_times - low_times, distance, out=np.zeros_like(item_times), where=is_between)
        positions = np.where(counts > 0, np.concatenate([low, high], 1), -1)
        return WindowItems(_listed(positions), is_pad, np.clip(weights, 0, 1))

    def is_by_index(self, name: str) -> bool:
        """Returns whether item i of a field belongs to anchor i."""
        return isinstance(self.spans[name], Steps) and (
            name == self.every or self._clock is None or self.clocks[name] is None
        )

    def _expect_counts(self, name: str, counts: Int64s) -> None:
        others = count_items(self.dataset, name)
        if (others != counts).any():
            index = int((others != counts).argmax())
            raise ValueError(
                f'windows: expected sequences of equal length, got {counts[index]} items of {self.every!r} '
                f'and {others[index]} of {name!r} in datapoint {index}'
            )

    def _expect_items(self, name: str, rows: Int64s) -> None:
        """Checks that datapoints have items, except where windows can be padded with zeros."""
        field_type = self.dataset.schema[name]
        if self.padding != 'zero' or fixed_dtype(field_type.format, field_type.args) is None:
            lacking = rows[count_items(self.dataset, name, rows) == 0]
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
        return RateClock(self.dataset, '', 1 / seconds, np.nan_to_num(low), counts.astype(np.int64))

    def _extent(self, name: str, rows: Int64s) -> tuple[Seconds, Seconds]:
        source = self.recordings.get(name) or self.clocks[name]
        assert source is not None
        return source.extent(rows)

    def _allowed(self, rows: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the first and last anchors of datapoints that bounds and padding allow."""
        low, high = np.zeros(len(rows), np.int64), counts - 1
        after, before = (np.full(len(rows), bound) for bound in self.bounds)
        for name, span in self.spans.items() if self.padding == 'drop' else ():
            clock = self.clocks.get(name)
            if isinstance(span, Times):
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
            assert self._clock is not None
            low = np.maximum(low, self._clock.before(rows, after[:, None] - 2 * EPSILON)[:, 0] + 1)
            high = np.minimum(high, self._clock.before(rows, before[:, None])[:, 0])
        return low, high


def _inside(starts: Int64s, count: int) -> WindowItems:
    """Returns windows of `count` consecutive items without padding."""
    items = PerRowItems(starts, np.full(len(starts), count))
    return WindowItems(items, np.zeros((len(starts), count), np.bool_))


def _listed(positions: Int64s) -> PerRowItems:
    """Returns the items at positions (W, n); rows of -1 are empty."""
    counts = np.where(positions[:, 0] < 0, 0, positions.shape[1])
    return PerRowItems(None, counts, positions[positions >= 0])


def no_items(row: int, name: str) -> ValueError:
    """Returns the error for a window of a field without items in its datapoint."""
    return ValueError(
        f'windows: datapoint {row}: expected items of {name!r}, got none '
        f"(padding='drop' omits such windows, 'zero' fills windows of numbers)"
    )
