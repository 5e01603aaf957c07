"""Clocks: the times of the elements of a stream, from a field of times, a rate, or the records themselves.

A clock handles many datapoints at once. Times are float64 seconds on the clock of the datapoint, which is
shared by all its fields.
"""

from __future__ import annotations

import hashlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.concurrency import cached_attribute, map_concurrently
from bags.dataset.base import Dataset, WindowsView
from bags.dataset.reading.columns import read_values
from bags.dataset.reading.selection import FrameSelection
from bags.indexing import Int64s, group_equal
from bags.media.audio import Audio
from bags.media.frames import SAME_SECONDS
from bags.streams.joined_audio import join_audio

Seconds = npt.NDArray[np.float64]
Counts = Callable[[Int64s], Int64s]
"""Returns the number of elements of datapoints, shape (W,)."""

EPSILON = SAME_SECONDS
MAX_CACHED_TIMES = 1 << 24
MAX_OPEN_RECORDINGS = 64


class Clock(ABC):
    """The times of the elements of a field, which increase from element to element."""

    def __init__(self, dataset: Dataset, field: str, counts: Counts) -> None:
        self.dataset = dataset
        self.field = field
        self.counts = counts

    has_rate = False
    """Whether the elements of each datapoint have a constant rate."""

    @property
    @abstractmethod
    def options(self) -> object:
        """The numbers and strings that determine the times, besides the dataset."""

    @abstractmethod
    def at(self, rows: Int64s, elements: Int64s) -> Seconds:
        """Returns the times of elements, shape (W, n), of the datapoints `rows`; NaN for missing elements."""

    @abstractmethod
    def before(self, rows: Int64s, times: Seconds) -> Int64s:
        """Returns the last element at or before each time, shape (W, n); -1 without one."""

    @abstractmethod
    def lasts(self, rows: Int64s) -> Seconds:
        """Returns the seconds that the last element lasts, shape (W,); NaN without elements."""

    def rates(self, rows: Int64s) -> Seconds:
        """Returns the elements per second of datapoints with a constant rate, shape (W,); NaN for others."""
        return np.full(len(rows), np.nan)

    def from_start(self, rows: Int64s, times: Seconds) -> Int64s:
        """Returns the first element at or after each time, at the rate of the datapoint, shape (W, n).

        Elements are counted on beyond the ends of the datapoint: they may be negative. 0 where the datapoint
        has no constant rate.
        """
        return np.zeros(times.shape, np.int64)

    def extent(self, rows: Int64s) -> tuple[Seconds, Seconds]:
        """Returns the times of the first and the last element, shape (W,); NaN without elements."""
        ends = np.stack([np.zeros(len(rows), np.int64), self.counts(rows) - 1], 1)
        first, last = self.at(rows, ends).T
        return first, last

    def range(self, rows: Int64s) -> tuple[Seconds, Seconds]:
        """Returns the time of the first element and the end of the last, shape (W,); NaN without elements."""
        first, last = self.extent(rows)
        return first, last + self.lasts(rows)

    def close(self) -> None:  # noqa: B027 - most clocks open no files.
        """Drops open files."""


class ConstantClock(Clock):
    """Elements at a constant rate, which may differ by datapoint."""

    has_rate = True

    @abstractmethod
    def starts(self, rows: Int64s) -> Seconds:
        """Returns the time of the first element of datapoints, shape (W,)."""

    @abstractmethod
    def rates(self, rows: Int64s) -> Seconds: ...

    def at(self, rows: Int64s, elements: Int64s) -> Seconds:
        is_there = (elements >= 0) & (elements < self.counts(rows)[:, None])
        times = self.starts(rows)[:, None] + elements / self.rates(rows)[:, None]
        return np.where(is_there, times, np.nan)

    def before(self, rows: Int64s, times: Seconds) -> Int64s:
        positions = (times - self.starts(rows)[:, None] + EPSILON) * self.rates(rows)[:, None]
        last = self.counts(rows)[:, None] - 1
        clipped = np.nan_to_num(np.clip(positions, -1, last + 0.5), nan=-1)
        elements: Int64s = np.floor(clipped).astype(np.int64)
        return elements

    def from_start(self, rows: Int64s, times: Seconds) -> Int64s:
        positions = (times - self.starts(rows)[:, None] - EPSILON) * self.rates(rows)[:, None]
        elements: Int64s = np.ceil(np.nan_to_num(positions)).astype(np.int64)
        return elements

    def extent(self, rows: Int64s) -> tuple[Seconds, Seconds]:
        counts = self.counts(rows)
        first = np.where(counts > 0, self.starts(rows), np.nan)
        return first, first + (counts - 1) / self.rates(rows)

    def lasts(self, rows: Int64s) -> Seconds:
        return np.where(self.counts(rows) > 0, 1 / self.rates(rows), np.nan)


class RateClock(ConstantClock):
    """Elements at one rate.

    `start` is the time of the first element, for all datapoints or for each.
    """

    def __init__(
        self, dataset: Dataset, field: str, counts: Counts, rate: float, start: float | Seconds
    ) -> None:
        super().__init__(dataset, field, counts)
        self.rate = rate
        self._starts = np.broadcast_to(start, len(dataset))

    @property
    def options(self) -> object:
        return self.rate, hashlib.blake2b(self._starts.astype('<f8').tobytes(), digest_size=16).hexdigest()

    def starts(self, rows: Int64s) -> Seconds:
        return self._starts[rows]

    def rates(self, rows: Int64s) -> Seconds:
        return np.full(len(rows), self.rate)

    # As in `ConstantClock`. With an array of equal rates, windows of 10 numbers take a tenth longer.

    def at(self, rows: Int64s, elements: Int64s) -> Seconds:
        is_there = (elements >= 0) & (elements < self.counts(rows)[:, None])
        return np.where(is_there, self._starts[rows, None] + elements / self.rate, np.nan)

    def before(self, rows: Int64s, times: Seconds) -> Int64s:
        positions = (times - self._starts[rows, None] + EPSILON) * self.rate
        last = self.counts(rows)[:, None] - 1
        elements: Int64s = np.floor(np.clip(positions, -1, last + 0.5)).astype(np.int64)
        return elements


class SampleClock(ConstantClock):
    """The samples of recordings, at the rate of each. The most recently opened recordings stay open.

    `start` is the time of the first sample. Default: the start of the recording.
    """

    def __init__(self, dataset: Dataset, field: str, start: float | None) -> None:
        super().__init__(dataset, field, self._counts)
        self._start = start
        self._open: dict[int, Audio | None] = {}

    @property
    def options(self) -> object:
        # None: as in fingerprints of earlier versions, where recordings had no clock.
        return None if self._start is None else ('start', self._start)

    def recordings(self, rows: Int64s) -> dict[int, Audio | None]:
        """Returns the recordings by datapoint, after reading their headers; None if missing."""
        recordings = {row: self._open.get(row) for row in np.unique(rows).tolist()}
        missing = [row for row, audio in recordings.items() if audio is None]
        if missing:
            counts = self._record_counts(np.array(missing, np.int64))
            new = [
                join_audio(self.dataset, row, self.field) if count else None
                for row, count in zip(missing, counts.tolist(), strict=True)
            ]
            recordings.update(zip(missing, new, strict=True))
            map_concurrently(lambda audio: audio and len(audio), new, self.dataset.reads_wait)
            recent = [*self._open.items(), *((row, recordings[row]) for row in missing)]
            self._open = dict(recent[-MAX_OPEN_RECORDINGS:])
        return recordings

    def _record_counts(self, rows: Int64s) -> Int64s:
        if self.dataset.schema[self.field].sequence:
            return self.dataset.item_counts(rows, self.field)
        return self.dataset.are_present(rows, self.field).astype(np.int64)

    def _counts(self, rows: Int64s) -> Int64s:
        return np.array([len(audio) if audio else 0 for audio in self._of(rows)], np.int64)

    def starts(self, rows: Int64s) -> Seconds:
        if self._start is not None:
            return np.full(len(rows), self._start)
        return np.array([audio.start if audio else np.nan for audio in self._of(rows)])

    def rates(self, rows: Int64s) -> Seconds:
        return np.array([float(audio.rate) if audio else np.nan for audio in self._of(rows)])

    def _of(self, rows: Int64s) -> list[Audio | None]:
        recordings = self.recordings(rows)
        return [recordings[row] for row in rows.tolist()]

    def close(self) -> None:
        """Drops the recordings. Their files close once they are no longer used."""
        self._open = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), '_open': {}}


class TableClock(Clock):
    """Elements whose times are read: base of the clocks below."""

    def __init__(self, dataset: Dataset, field: str) -> None:
        super().__init__(dataset, field, self._counts)
        self._known: dict[int, Seconds] = {}
        """The times of the elements of datapoints, followed by the end of the last."""
        self._held = 0
        """Number of times in these tables."""

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in vars(self).items() if name != '_lengths'}
        return {**kept, '_known': {}, '_held': 0}

    @abstractmethod
    def _read(self, rows: Int64s) -> list[Seconds]:
        """Returns the times of the elements of datapoints, followed by the end of the last (0 without)."""

    def _tables(self, rows: list[int]) -> list[Seconds]:
        """Returns the times of the elements of different datapoints, followed by the end of the last."""
        tables = {row: self._known.get(row) for row in rows}
        missing = [row for row, table in tables.items() if table is None]
        if missing:
            new = dict(zip(missing, self._read(np.array(missing, np.int64)), strict=True))
            size = sum(map(len, new.values()))
            if self._held + size > MAX_CACHED_TIMES:
                self._known, self._held = {}, 0
            self._known.update(new)
            self._held += size
            self._lengths[missing] = [len(table) - 1 for table in new.values()]
            tables.update(new)
        return list(tables.values())  # type: ignore[arg-type]

    def _look_up(self, rows: Int64s, values: npt.NDArray[Any], find: Callable[..., Any]) -> Any:
        """Calls `find` once for each datapoint, with its table and all its values; returns one array."""
        order, groups = group_equal(rows)
        tables = self._tables(rows[order[groups[:-1]]].tolist())
        ordered, bounds = values[order], itertools.pairwise(groups.tolist())
        parts = [
            find(table, ordered[start:stop]) for table, (start, stop) in zip(tables, bounds, strict=True)
        ]
        if not parts:
            return values[:0]
        found = np.concatenate(parts)
        result = np.empty_like(found)
        result[order] = found
        return result

    def _counts(self, rows: Int64s) -> Int64s:
        is_unknown = self._lengths[rows] < 0
        if is_unknown.any():
            self._tables(np.unique(rows[is_unknown]).tolist())
        return self._lengths[rows]

    @cached_attribute
    def _lengths(self) -> Int64s:
        """The number of elements of each datapoint; -1 if it is not known yet."""
        return np.full(len(self.dataset), -1, np.int64)

    def at(self, rows: Int64s, elements: Int64s) -> Seconds:
        is_there = (elements >= 0) & (elements < self._counts(rows)[:, None])
        times = self._look_up(rows, elements, lambda table, part: table.take(part, mode='clip'))
        return np.where(is_there, times, np.nan)

    def before(self, rows: Int64s, times: Seconds) -> Int64s:
        stops = self._look_up(
            rows, times + EPSILON, lambda table, part: table[:-1].searchsorted(part, 'right')
        )
        return stops.astype(np.int64, copy=False) - 1  # type: ignore[no-any-return]

    def lasts(self, rows: Int64s) -> Seconds:
        unique, which = np.unique(rows, return_inverse=True)
        lasts = [
            table[-1] - table[-2] if len(table) > 1 else np.nan for table in self._tables(unique.tolist())
        ]
        return np.array(lasts, np.float64)[which]


class FieldClock(TableClock):
    """Elements whose times are in the field `times`, in units of `scale` seconds.

    Args:
        dataset, field, counts: The elements.
        times, scale: The field of times, and the seconds of its unit.
        last: Seconds that the last element of a datapoint lasts, given the datapoints. NaN: the median
            interval.
        name: The name of the elements in errors.
    """

    def __init__(
        self,
        dataset: Dataset,
        field: str,
        counts: Counts,
        times: str,
        scale: float,
        last: Callable[[Int64s], Seconds],
        name: str,
    ) -> None:
        super().__init__(dataset, field)
        self._elements = counts
        self._times, self._scale, self._last, self._name = times, scale, last, name

    @property
    def options(self) -> object:
        return self._times, self._scale

    def expect_counts(self, rows: Int64s) -> None:
        """Raises ValueError unless datapoints have a time for each element."""
        counts, others = self._elements(rows), self.dataset.item_counts(rows, self._times)
        if (counts != others).any():
            position = int((counts != others).argmax())
            raise ValueError(
                f'datapoint {rows[position]}: expected a time in {self._times!r} for each of the '
                f'{counts[position]} {self._name} of {self.field!r}, got {others[position]}'
            )

    def _read(self, rows: Int64s) -> list[Seconds]:
        self.expect_counts(rows)
        (columns,) = self.dataset.read_selection(rows, {self._times: True}, read_values).values()
        lasts = self._last(rows)
        return [
            _with_end(self._checked(row, column), last)
            for row, column, last in zip(rows.tolist(), columns, lasts.tolist(), strict=True)
        ]

    def _checked(self, row: int, column: Any) -> Seconds:
        times: Seconds = np.asarray(() if column is None else column, np.float64) * self._scale
        wrong = ~np.isfinite(times)
        wrong[1:] |= ~(times[1:] > times[:-1])
        if wrong.any():
            item = int(wrong.argmax())
            raise ValueError(
                f'datapoint {row}: expected increasing times in {self._times!r}, got '
                f'{times[item]} s as item {item}' + (f' after {times[item - 1]} s' if item else '')
            )
        return times


class FrameClock(TableClock):
    """Frames whose times are in the records, such as the presentation timestamps of videos.

    `start` is the time of the first frame. Default: the first timestamp.
    """

    def __init__(self, dataset: Dataset, field: str, start: float | None) -> None:
        super().__init__(dataset, field)
        self._start = start

    @property
    def options(self) -> object:
        # As in fingerprints of earlier versions.
        return (None, 1.0) if self._start is None else (None, 1.0, self._start)

    def _read(self, rows: Int64s) -> list[Seconds]:
        selection = FrameSelection('times')
        (columns,) = self.dataset.read_selection(rows, {self.field: selection}, read_values).values()
        tables: list[Seconds] = [np.zeros(1) if column is None else column for column in columns]
        if self._start is None:
            return tables
        return [table - table[0] + self._start for table in tables]


class WindowRateClock(ConstantClock):
    """Elements of windows at a constant rate, with the times of their datapoint."""

    def __init__(self, dataset: Dataset, field: str, counts: Counts, windows: WindowsView, name: str) -> None:
        super().__init__(dataset, field, counts)
        self._windows, self._name = windows, name
        """The windows, and the name of the field in them."""

    @property
    def options(self) -> object:
        return None  # The fingerprint of the windows counts.

    def starts(self, rows: Int64s) -> Seconds:
        _, windows = self.dataset.origin_rows(self.field, rows)
        windows = windows.clip(0)  # Of a missing value, any window.
        times_of_windows = self._windows.element_times(self._name, windows)
        return np.array([times[0] if len(times) else np.nan for times, _ in times_of_windows])

    def rates(self, rows: Int64s) -> Seconds:
        _, windows = self.dataset.origin_rows(self.field, rows)
        windows = windows.clip(0)  # Of a missing value, any window.
        rates = self._windows.element_rates(self._name, windows)
        assert rates is not None
        return rates


class WindowClock(TableClock):
    """Elements of windows, with the times of their datapoint."""

    def __init__(self, dataset: Dataset, field: str, windows: WindowsView, name: str) -> None:
        super().__init__(dataset, field)
        self._windows, self._name = windows, name
        """The windows, and the name of the field in them."""

    @property
    def options(self) -> object:
        return None  # The fingerprint of the windows counts.

    def _read(self, rows: Int64s) -> list[Seconds]:
        _, windows = self.dataset.origin_rows(self.field, rows)
        windows = windows.clip(0)  # Of a missing value, any window.
        return [_with_end(*times) for times in self._windows.element_times(self._name, windows)]


class MixedClock(Clock):
    """Elements whose clock depends on the dataset that the datapoint comes from."""

    def __init__(self, dataset: Dataset, field: str, counts: Counts, clocks: Sequence[Clock]) -> None:
        super().__init__(dataset, field, counts)
        self._clocks = clocks
        """The clock of each origin of the field; an origin may share the clock of another."""
        self.has_rate = all(clock.has_rate for clock in clocks)

    @property
    def options(self) -> object:
        return [clock.options for clock in self._clocks]

    def _merge(self, rows: Int64s, find: Callable[[Clock, npt.NDArray[np.bool_]], Any], empty: Any) -> Any:
        which, _ = self.dataset.origin_rows(self.field, rows)
        for number, clock in enumerate(self._clocks):
            chosen = which == number
            if chosen.any():
                empty[chosen] = find(clock, chosen)
        return empty

    def at(self, rows: Int64s, elements: Int64s) -> Seconds:
        empty = np.empty(elements.shape)
        times: Seconds = self._merge(rows, lambda clock, own: clock.at(rows[own], elements[own]), empty)
        return times

    def before(self, rows: Int64s, times: Seconds) -> Int64s:
        empty = np.empty(times.shape, np.int64)
        elements: Int64s = self._merge(rows, lambda clock, own: clock.before(rows[own], times[own]), empty)
        return elements

    def from_start(self, rows: Int64s, times: Seconds) -> Int64s:
        empty = np.empty(times.shape, np.int64)
        elements: Int64s = self._merge(
            rows, lambda clock, own: clock.from_start(rows[own], times[own]), empty
        )
        return elements

    def lasts(self, rows: Int64s) -> Seconds:
        lasts: Seconds = self._merge(rows, lambda clock, own: clock.lasts(rows[own]), np.empty(len(rows)))
        return lasts

    def rates(self, rows: Int64s) -> Seconds:
        rates: Seconds = self._merge(rows, lambda clock, own: clock.rates(rows[own]), np.empty(len(rows)))
        return rates

    def recordings(self, rows: Int64s) -> dict[int, Audio | None]:
        """As `SampleClock.recordings`."""
        which, _ = self.dataset.origin_rows(self.field, rows)
        recordings: dict[int, Audio | None] = {}
        for number, clock in enumerate(self._clocks):
            if isinstance(clock, SampleClock):
                recordings |= clock.recordings(rows[which == number])
        return recordings

    def close(self) -> None:
        for clock in self._clocks:
            clock.close()


def _with_end(times: Seconds, last: float) -> Seconds:
    """Returns times followed by the end of the last element, which lasts `last` seconds.

    NaN: the median interval, or no time at all with a single element.
    """
    if not len(times):
        return np.zeros(1)
    if np.isnan(last):
        last = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    return np.append(times, times[-1] + last)
