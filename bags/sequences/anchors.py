"""The anchors of windows in each datapoint, and the items of each field in a window."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bags.dataset.base import Dataset
from bags.dataset.registry import VIDEO_WORDS, fixed_dtype
from bags.indexing import Int64s, offsets_of
from bags.sequences.clocks import EPSILON, Clock, RateClock, Recordings, Seconds, count_items
from bags.sequences.spans import Padding, Span, Steps, Times

NO_BOUNDS = (-math.inf, math.inf)
MAX_WINDOWS = 1 << 53
ROWS_AT_ONCE = 1024
"""Number of datapoints whose times are read together to find the starts and ends of windows."""


class Located(NamedTuple):
    """The items of a field in windows; without items in the datapoint, places are -1, for padding."""

    places: Int64s
    """Positions in the sequence, (W, n); for linear fill (W, 2 n): of items before and after the times."""
    is_pad: npt.NDArray[np.bool_]
    weights: Seconds | None = None
    """For linear fill, the weights of the items after, 0 to 1, shape (W, n)."""


class Layout(NamedTuple):
    """The windows of all datapoints."""

    counts: Int64s
    """The number of anchors of each datapoint, with or without a window."""
    firsts: Int64s
    """The first anchor of each datapoint that has a window."""
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
    """How items outside the datapoint are filled; 'drop' leaves out windows with such items."""
    bounds: tuple[float, float] = NO_BOUNDS
    """The first and last time of anchors in a datapoint, in seconds."""
    clocks: dict[str, Clock | None] = dataclasses.field(default_factory=dict)
    """The clock of each field; None without times."""

    def __post_init__(self) -> None:
        self.recordings = {
            name: Recordings(self.dataset, name)
            for name in self.spans
            if self.dataset.types[name].word == 'audio' and not self.dataset.types[name].sequence
        }
        self._clock = self.clocks.get(self.every) if isinstance(self.every, str) else None
        """The clock of the anchors; None without times, or until `layout` makes it."""
        self._known: Layout | None = None

    def layout(self) -> Layout:
        """Returns the windows of all datapoints.

        Raises:
            ValueError: Fields without times have different lengths in a datapoint, or a window has no items.
        """
        if self._known is None:
            rows = np.arange(len(self.dataset))
            blocks = np.array_split(rows, max(1, -(-len(rows) // ROWS_AT_ONCE)))
            if isinstance(self.every, str):
                counts = count_items(self.dataset, self.every)
            else:
                self._clock = self._make_grid(self.every, blocks)
                counts = self._clock.counts(rows)
            for name in self.spans:
                if self.is_by_index(name) and name != self.every:
                    self._expect_counts(name, counts)
            if self.padding != 'drop' and self.bounds == NO_BOUNDS:
                blocks = [rows]  # Nothing is read.
            allowed = [self._allowed(block, counts[block]) for block in blocks]
            firsts, lasts = (np.concatenate(parts) for parts in zip(*allowed, strict=True))
            firsts = -(-firsts // self.stride) * self.stride
            windows = np.maximum((lasts - firsts) // self.stride + 1, 0)
            for name in self.spans:
                kind = self.dataset.types[name]
                if kind.sequence and kind.word not in VIDEO_WORDS and not self.is_by_index(name):
                    self._expect_items(name, rows[windows > 0])
            self._known = Layout(counts, firsts, offsets_of(windows))
        return self._known

    def places_of(self, indices: Int64s) -> tuple[Int64s, Int64s, Seconds]:
        """Returns the datapoints of windows, and their anchors and the times of these; NaN without times."""
        _, firsts, offsets = self.layout()
        rows = offsets.searchsorted(indices, 'right') - 1
        anchors = firsts[rows] + (indices - offsets[rows]) * self.stride
        if self._clock is None:
            return rows, anchors, np.full(len(rows), np.nan)
        return rows, anchors, self._clock.at(rows, anchors[:, None])[:, 0]

    def locate(self, name: str, rows: Int64s, anchors: Int64s, moments: Seconds) -> Located:
        """Finds the items of a field in windows, given the results of `places_of`."""
        span, clock = self.spans[name], self.clocks[name]
        counts = (self.layout().counts[rows] if clock is None else clock.counts(rows))[:, None]
        if not counts.all():
            self._expect_items(name, rows)
        if isinstance(span, Steps):
            if not self.is_by_index(name):
                assert clock is not None
                anchors = clock.before(rows, moments[:, None] - 2 * EPSILON)[:, 0] + 1
            positions = anchors[:, None] + np.arange(span.start, span.stop)
            return Located(np.clip(positions, 0, counts - 1), (positions < 0) | (positions >= counts))
        assert clock is not None
        wanted = moments[:, None] + np.array(span.offsets)
        before = clock.before(rows, wanted)
        low, high = np.maximum(before, 0), np.minimum(before + 1, counts - 1)
        low_times, high_times = clock.at(rows, low), clock.at(rows, high)
        start, stop = clock.extent(rows)
        slack = (span.tolerance or 0.0) + EPSILON
        is_pad = (counts == 0) | (wanted < start[:, None] - slack) | (wanted > stop[:, None] + slack)
        if span.fill == 'previous':
            is_pad |= before < 0
            positions, gap = low, wanted - low_times
        else:
            is_low = wanted - low_times <= high_times - wanted + EPSILON
            positions = np.where(is_low | (before == counts - 1), low, high)
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
            return Located(np.where(counts > 0, positions, -1), is_pad)
        distance = high_times - low_times
        is_between = (distance > 0) & (wanted - low_times > EPSILON)  # Otherwise there is no interpolation.
        weights = np.divide(wanted - low_times, distance, out=np.zeros_like(wanted), where=is_between)
        positions = np.where(counts > 0, np.concatenate([low, high], 1), -1)
        return Located(positions, is_pad, np.clip(weights, 0, 1))

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
                f'windows: expected sequences of one length, got {counts[index]} items of {self.every!r} '
                f'and {others[index]} of {name!r} in datapoint {index}'
            )

    def _expect_items(self, name: str, rows: Int64s) -> None:
        """Checks that datapoints have items, unless they can be padded with zeros."""
        kind = self.dataset.types[name]
        if self.padding != 'zero' or fixed_dtype(kind.word, kind.args) is None:
            lacking = rows[count_items(self.dataset, name, rows) == 0]
            if len(lacking):
                raise no_items(int(lacking[0]), name)

    def _make_grid(self, seconds: float, blocks: list[Int64s]) -> Clock:
        """Returns the clock of anchors at a constant distance, over the times of all fields."""
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
                # The last item that step 0 must come after, and the last one that it can be.
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


def no_items(row: int, name: str) -> ValueError:
    """Returns the error for a window of a field that has no item in its datapoint."""
    return ValueError(
        f'windows: datapoint {row}: expected items of {name!r}, got none '
        f"(padding='drop' leaves such windows out, 'zero' fills those of numbers)"
    )
