"""Where the windows of `bags.windows` are: the anchors in each datapoint, and their times."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from bags.dataset.base import Dataset
from bags.dataset.clocks import EPSILON, Clock, RateClock, Recordings, Seconds, TableClock, count_items
from bags.dataset.registry import fixed_dtype
from bags.dataset.selection import VIDEO_WORDS
from bags.dataset.spans import Padding, Span, Steps, Times
from bags.indexing import Int64s, offsets_of

__all__ = ['Anchors', 'is_recording', 'no_items']

MAX_WINDOWS = 1 << 53

ROWS_AT_ONCE = 1024
"""Datapoints whose times are read together to find where windows begin and end."""


class Anchors:
    """The anchors of windows in the datapoints of a dataset, found when they are first asked for.

    Args:
        dataset, spans, every, stride, bounds, padding, clocks: As for `TimeWindows`.
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
        self.dataset, self.spans, self.clocks = dataset, spans, clocks
        self.recordings = {name: Recordings(dataset, name) for name in spans if is_recording(dataset, name)}
        for clock in clocks.values():
            if isinstance(clock, TableClock):
                clock.check_counts()
        self._every, self._stride, self._bounds, self._padding = every, stride, bounds, padding
        self.clock: Clock | None = clocks[every] if isinstance(every, str) else None
        """When anchors are; None where nothing says so, or it is not known yet."""
        self._known: tuple[Int64s, Int64s] | None = None

    def layout(self) -> tuple[Int64s, Int64s]:
        """Returns the first anchor of each datapoint, and the windows before each, and of all."""
        if self._known is None:
            dataset = self.dataset
            if isinstance(self._every, float):
                self.clock = self._make_grid()
            if isinstance(self._every, str) and self.clock is None:
                counts = count_items(dataset, self._every)
            elif isinstance(self.clock, RateClock):
                counts = self.clock.counts(np.arange(len(dataset)))
            else:
                assert isinstance(self._every, str)
                counts = count_items(dataset, self._every)
            firsts, lasts = np.zeros(len(dataset), np.int64), counts - 1
            by_index = [name for name in self.spans if self.is_by_index(name)]
            for name in by_index:
                self._check_lengths(name, counts)
            if self._bounds is not None or (self._padding == 'drop' and self.spans):
                for start in range(0, len(dataset), ROWS_AT_ONCE):
                    rows = np.arange(start, min(start + ROWS_AT_ONCE, len(dataset)))
                    low, high = self._allowed(rows, counts[rows])
                    firsts[rows] = np.maximum(firsts[rows], low)
                    lasts[rows] = np.minimum(lasts[rows], high)
            firsts = -(-firsts // self._stride) * self._stride
            windows = np.maximum((lasts - firsts) // self._stride + 1, 0)
            for name in self.spans:
                self._check_items(name, windows > 0)
            self._known = firsts, offsets_of(windows)
        return self._known

    def is_by_index(self, name: str) -> bool:
        """Tells whether item i of a field belongs to anchor i."""
        span = self.spans[name]
        return isinstance(span, Steps) and (
            name == self._every or self.clocks[name] is None or self.clock is None
        )

    def _check_lengths(self, name: str, counts: Int64s) -> None:
        if name == self._every or not self.dataset._types[name].sequence:
            return
        if not isinstance(self._every, str):
            raise ValueError(f'windows: field {name!r}: steps need times, or every= a field of as many items')
        others = count_items(self.dataset, name)
        if (others != counts).any():
            index = int((others != counts).argmax())
            raise ValueError(
                f'windows: expected sequences of one length, got {counts[index]} items of {self._every!r} '
                f'and {others[index]} of {name!r} in datapoint {index}'
            )

    def _check_items(self, name: str, has_windows: npt.NDArray[np.bool_]) -> None:
        """Checks, by the refs, that there is an item to take wherever a window needs one."""
        kind = self.dataset._types[name]
        if not kind.sequence or kind.word in VIDEO_WORDS or self.can_be_empty(name):
            return
        bad = has_windows & (self.dataset._lengths(np.arange(len(self.dataset)), name) == 0)
        if bad.any():
            raise no_items(int(bad.argmax()), name)

    def can_be_empty(self, name: str) -> bool:
        """Tells whether windows of a field without items are zeros."""
        kind = self.dataset._types[name]
        return self._padding == 'zero' and fixed_dtype(kind.word, kind.args) is not None

    def _make_grid(self) -> Clock:
        """Returns the clock of anchors at a constant distance, over the times of all fields."""
        dataset, every = self.dataset, self._every
        assert isinstance(every, float)
        low, high = np.full(len(dataset), np.inf), np.full(len(dataset), -np.inf)
        for start in range(0, len(dataset), ROWS_AT_ONCE):
            rows = np.arange(start, min(start + ROWS_AT_ONCE, len(dataset)))
            for name in self.spans:
                first, last = self._extent(name, rows)
                low[rows], high[rows] = np.minimum(low[rows], first), np.maximum(high[rows], last)
        if self._bounds is not None:
            low = np.where(np.isfinite(low), self._bounds[0] if math.isfinite(self._bounds[0]) else low, low)
        counts = np.where(high >= low, np.floor((high - low + EPSILON) / every) + 1, 0)
        if counts.sum() > MAX_WINDOWS:
            raise ValueError(f'windows: every={every!r} s makes {counts.sum():.3g} windows')
        return RateClock(dataset, '', 1 / every, np.where(counts > 0, low, 0.0), counts.astype(np.int64))

    def _extent(self, name: str, rows: Int64s) -> tuple[Seconds, Seconds]:
        """Returns the times of the first and the last item in datapoints; infinite where there is none."""
        if name in self.recordings:
            audios = self.recordings[name].of(rows)
            starts = [audios[row].start if audios[row] else np.inf for row in rows.tolist()]
            stops = [
                audios[row].start + audios[row].duration if audios[row] else -np.inf for row in rows.tolist()
            ]
            return np.array(starts), np.array(stops)
        clock = self.clocks[name]
        assert clock is not None
        counts = clock.counts(rows)
        first, last = np.full(len(rows), np.inf), np.full(len(rows), -np.inf)
        some = np.flatnonzero(counts)
        first[some] = clock.at(rows[some], np.zeros((len(some), 1), np.int64))[:, 0]
        last[some] = clock.at(rows[some], counts[some, None] - 1)[:, 0]
        return first, last

    def _allowed(self, rows: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the first and last anchors of datapoints within the bounds, and of whole windows."""
        low, high = np.zeros(len(rows), np.int64), counts - 1
        after, before = np.full(len(rows), -np.inf), np.full(len(rows), np.inf)
        if self._bounds is not None:
            after, before = np.maximum(after, self._bounds[0]), np.minimum(before, self._bounds[1])
        for name, span in self.spans.items() if self._padding == 'drop' else ():
            if self.is_by_index(name):
                assert isinstance(span, Steps)
                low = np.maximum(low, -span.start)
                high = np.minimum(high, counts - span.stop)
                continue
            if isinstance(span, Times):
                first, last = self._extent(name, rows)
                slack = span.tolerance or 0.0
                early = 0.0 if span.fill == 'previous' else slack
                after = np.maximum(after, first - min(span.offsets) - early)
                before = np.minimum(before, last - max(span.offsets) + slack)
                continue
            clock = self.clocks[name]
            assert clock is not None
            items = clock.counts(rows)
            if span.start < 0:  # The last item that step 0 must come after.
                there = np.flatnonzero(items > -span.start - 1)
                least = np.full(len(rows), np.inf)
                at = np.full((len(there), 1), -span.start - 1)
                least[there] = clock.at(rows[there], at)[:, 0] + 2 * EPSILON
                after = np.maximum(after, least)
            if span.stop > 0:  # The last item that step 0 can be.
                there = np.flatnonzero(items >= span.stop)
                most = np.full(len(rows), -np.inf)
                most[there] = clock.at(rows[there], items[there, None] - span.stop)[:, 0]
                before = np.minimum(before, most)
        if (after > -np.inf).any() or (before < np.inf).any():
            clock = self.clock
            if clock is None:
                raise ValueError(f'windows: nothing says when the items of {self._every!r} happen')
            low = np.maximum(low, clock.before(rows, after[:, None] - 2 * EPSILON)[:, 0] + 1)
            high = np.minimum(high, clock.before(rows, before[:, None])[:, 0])
            high[(after == np.inf) | (before == -np.inf)] = -1
        return low, high

    def places_of(self, indices: Int64s) -> tuple[Int64s, Int64s, Seconds]:
        """Returns the datapoints, anchors and times of windows, each of shape (W,)."""
        firsts, offsets = self.layout()
        rows = offsets.searchsorted(indices, 'right') - 1
        anchors = firsts[rows] + (indices - offsets[rows]) * self._stride
        if self.clock is None:
            return rows, anchors, np.full(len(rows), np.nan)
        return rows, anchors, self.clock.at(rows, anchors[:, None])[:, 0]


def is_recording(dataset: Dataset, name: str) -> bool:
    """Tells whether windows of a field are stretches of samples."""
    kind = dataset._types[name]
    return kind.word == 'audio' and not kind.sequence


def no_items(row: int, name: str) -> ValueError:
    """Returns the error for a window of a field that has no item in its datapoint."""
    return ValueError(
        f'windows: datapoint {row}: expected items of {name!r}, got none '
        f"(padding='drop' leaves such windows out, 'zero' fills those of numbers)"
    )
