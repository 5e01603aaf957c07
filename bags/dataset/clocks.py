"""When the items of a field happen: by a field of times, by a rate, or by the timestamps of videos.

A clock answers for many datapoints at once. Times are float64 seconds on the clock of their datapoint, which
all its fields share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.dataset.base import Dataset
from bags.dataset.columns import read_column, read_values
from bags.dataset.selection import VIDEO_WORDS, FrameSelection
from bags.indexing import Int64s

__all__ = ['EPSILON', 'Clock', 'RateClock', 'Seconds', 'clock_of', 'count_items', 'read_recordings']

Seconds = npt.NDArray[np.float64]

EPSILON = 1e-6
"""Seconds by which equal times may differ: more than float64 rounds, less than any sampling interval."""
UNITS = {'s': 1.0, 'ms': 1e-3, 'us': 1e-6, 'ns': 1e-9}
MAX_CACHED_TIMES = 1 << 24
VIDEOS_AT_ONCE = 1024
"""Datapoints whose videos are opened together."""


class Clock(ABC):
    """When the items of a field happen. Times rise from item to item.

    Args:
        dataset: The dataset.
        field: Its field.
    """

    def __init__(self, dataset: Dataset, field: str) -> None:
        self.dataset = dataset
        self.field = field

    @abstractmethod
    def counts(self, rows: Int64s) -> Int64s:
        """Returns the number of items of datapoints, shape (W,)."""

    @abstractmethod
    def at(self, rows: Int64s, items: Int64s) -> Seconds:
        """Returns the times of items, shape (W, n), of the datapoints `rows`, shape (W,)."""

    @abstractmethod
    def before(self, rows: Int64s, times: Seconds) -> Int64s:
        """Returns the last item at or before each time, shape (W, n); -1 where there is none."""


class RateClock(Clock):
    """Items at a constant rate.

    Args:
        dataset, field: As for `Clock`.
        rate: Items per second.
        start: The time of the first item; of each datapoint, shape (datapoints,), if they differ.
        counts: The number of items of each datapoint, shape (datapoints,), if they are not those of `field`.
    """

    def __init__(
        self, dataset: Dataset, field: str, rate: float, start: float | Seconds, counts: Int64s | None = None
    ) -> None:
        super().__init__(dataset, field)
        self._rate = rate
        self._start = start
        self._counts = counts

    def counts(self, rows: Int64s) -> Int64s:
        if self._counts is None:
            self._counts = count_items(self.dataset, self.field)
        return self._counts[rows]

    def _starts(self, rows: Int64s) -> Any:
        return self._start[rows, None] if isinstance(self._start, np.ndarray) else self._start

    def at(self, rows: Int64s, items: Int64s) -> Seconds:
        found: Seconds = self._starts(rows) + items / self._rate
        return found

    def before(self, rows: Int64s, times: Seconds) -> Int64s:
        places = (times - self._starts(rows) + EPSILON) * self._rate
        last = self.counts(rows)[:, None] - 1
        found: Int64s = np.floor(np.clip(places, -1, last + 0.5)).astype(np.int64)
        return found


class TableClock(Clock):
    """Items whose times are read: from a field of times, or out of videos.

    Args:
        dataset, field: As for `Clock`.
        times: The field of times; None for the timestamps of the videos of `field`.
        scale: Seconds of one unit of the times.
    """

    def __init__(self, dataset: Dataset, field: str, times: str | None, scale: float) -> None:
        super().__init__(dataset, field)
        self._times = times
        self._scale = scale
        self._known: dict[int, Seconds] = {}
        self._held = 0

    def _tables(self, rows: Int64s) -> dict[int, Seconds]:
        """Returns the times of all items of datapoints."""
        wanted = np.unique(rows).tolist()
        known = self._known
        missing = [row for row in wanted if row not in known]
        if missing:
            found = dict(zip(missing, self._read(np.array(missing, np.int64)), strict=True))
            self._held += sum(map(len, found.values()))
            if self._held > MAX_CACHED_TIMES:
                known, self._held = {row: known[row] for row in wanted if row in known}, 0
            self._known = known = {**known, **found}
        return known

    def _read(self, rows: Int64s) -> list[Seconds]:
        if self._times is None:
            asked: Any = {self.field: FrameSelection('timestamps')}
            return [
                np.empty(0) if times is None else times
                for times in self.dataset._read(rows, asked, read_values)[self.field]
            ]
        columns: Any = self.dataset._read(rows, {self._times: True}, read_column)[self._times]
        counts = None
        if self.dataset._types[self.field].sequence:
            counts = self.dataset._lengths(rows, self.field)
        tables = []
        for place, (row, column) in enumerate(zip(rows.tolist(), columns, strict=True)):
            times = np.asarray([] if column is None else column, np.float64) * self._scale
            if counts is not None and len(times) != counts[place]:
                raise ValueError(
                    f'windows: datapoint {row}: expected a time in {self._times!r} for each of the '
                    f'{counts[place]} items of {self.field!r}, got {len(times)}'
                )
            wrong = ~np.isfinite(times)
            wrong[1:] |= ~(times[1:] > times[:-1])
            if wrong.any():
                item = int(wrong.argmax())
                raise ValueError(
                    f'windows: datapoint {row}: expected times in {self._times!r} that rise, got '
                    f'{times[item]} s as item {item}' + (f' after {times[item - 1]} s' if item else '')
                )
            tables.append(times)
        return tables

    def counts(self, rows: Int64s) -> Int64s:
        if (
            self.dataset._types[self.field].sequence
            and self.dataset._types[self.field].word not in VIDEO_WORDS
        ):
            return self.dataset._lengths(rows, self.field)
        tables = self._tables(rows)
        return np.array([len(tables[row]) for row in rows.tolist()], np.int64)

    def at(self, rows: Int64s, items: Int64s) -> Seconds:
        tables = self._tables(rows)
        found = [tables[row][part] for row, part in zip(rows.tolist(), items, strict=True)]
        return np.stack(found) if found else np.empty(items.shape)

    def before(self, rows: Int64s, times: Seconds) -> Int64s:
        tables = self._tables(rows)
        order = np.argsort(rows, kind='stable')
        found = np.empty(times.shape, np.int64)
        cuts = np.flatnonzero(np.diff(rows[order])) + 1
        for places in np.split(order, cuts) if len(order) else []:
            table = tables[int(rows[places[0]])]
            found[places] = table.searchsorted(times[places] + EPSILON, 'right') - 1
        return found


def clock_of(dataset: Dataset, field: str, source: str | float | None) -> Clock | None:
    """Returns the clock of a field; None if nothing says when its items happen.

    Args:
        dataset: The dataset.
        field: A sequence field, or a field of videos.
        source: The field of its times, or its rate, instead of what the metadata says.
    """
    facts: Mapping[str, Any] = dataset.metadata.get('fields', {})
    own = facts.get(field, {})
    if isinstance(source, str) or (source is None and 'times' in own):
        times = source or own['times']
        if times not in dataset._types or not dataset._types[times].sequence:
            raise ValueError(f'windows: times of {field!r}: expected a sequence field, got {times!r}')
        unit = facts.get(times, {}).get('unit', 's')
        return TableClock(dataset, field, times, UNITS.get(unit, 1.0))
    if source is not None or 'rate' in own:
        rate = own['rate'] if source is None else source
        return RateClock(dataset, field, float(rate), float(own.get('start', 0)))
    return TableClock(dataset, field, None, 1.0) if dataset._types[field].word in VIDEO_WORDS else None


def count_items(dataset: Dataset, field: str) -> Int64s:
    """Returns the items of each datapoint's sequence, or the frames of its videos, shape (datapoints,)."""
    if dataset._types[field].word not in VIDEO_WORDS:
        return dataset._lengths(np.arange(len(dataset)), field)
    counts = []
    for start in range(0, len(dataset), VIDEOS_AT_ONCE):
        indices = np.arange(start, min(start + VIDEOS_AT_ONCE, len(dataset)))
        found: Any = dataset._read(indices, {field: FrameSelection(None)}, read_values)[field]
        counts += [count or 0 for count in found]
    return np.array(counts, np.int64)


def read_recordings(dataset: Dataset, field: str, rows: Int64s) -> dict[int, Any]:
    """Returns the recordings of datapoints, by datapoint; None where there is none."""
    wanted = np.unique(rows)
    found = dataset._read(wanted, {field: True}, read_values)[field]
    return dict(zip(wanted.tolist(), found, strict=True))
