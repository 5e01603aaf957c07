"""When the items of a field happen: by a field of times, by a rate, or by the timestamps of videos.

A clock answers for many datapoints at once. Times are float64 seconds on the clock of their datapoint, which
all its fields share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.concurrency import map_concurrently
from bags.dataset.base import Dataset, View
from bags.dataset.columns import read_column, read_values
from bags.dataset.metadata import check_facts
from bags.dataset.selection import VIDEO_WORDS, FrameSelection
from bags.dataset.views import Concat, Join
from bags.indexing import Int64s

__all__ = ['EPSILON', 'Clock', 'RateClock', 'Recordings', 'Seconds', 'TableClock', 'clock_of', 'count_items']

Seconds = npt.NDArray[np.float64]

EPSILON = 1e-6
"""Seconds by which equal times may differ: more than float64 rounds, less than any sampling interval."""
UNITS = {'s': 1.0, 'ms': 1e-3, 'us': 1e-6, 'ns': 1e-9}
UNITS_TEXT = "'s', 'ms', 'us' or 'ns'"
MAX_CACHED_TIMES = 1 << 24
MAX_OPEN_RECORDINGS = 64
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
        known = self._known
        wanted = np.unique(rows).tolist()
        tables = {row: known[row] for row in wanted if row in known}
        missing = [row for row in wanted if row not in tables]
        if missing:
            found = dict(zip(missing, self._read(np.array(missing, np.int64)), strict=True))
            size = sum(map(len, found.values()))
            if self._held + size > MAX_CACHED_TIMES:
                self._known, self._held = {}, 0
            self._known.update(found)
            self._held += size
            tables.update(found)
        return tables

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), '_known': {}, '_held': 0}

    def _read(self, rows: Int64s) -> list[Seconds]:
        if self._times is None:
            asked: Any = {self.field: FrameSelection('timestamps')}
            return [
                np.empty(0) if times is None else times
                for times in self.dataset._read(rows, asked, read_values)[self.field]
            ]
        columns: Any = self.dataset._read(rows, {self._times: True}, read_column)[self._times]
        tables = []
        for row, column in zip(rows.tolist(), columns, strict=True):
            times = np.asarray([] if column is None else column, np.float64) * self._scale
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

    def check_counts(self) -> None:
        """Checks that each item has a time, by the refs.

        Raises:
            ValueError: Some datapoint has another number of times than of items.
        """
        if self._times is None or self.dataset._types[self.field].word in VIDEO_WORDS:
            return
        rows = np.arange(len(self.dataset))
        counts, others = (self.dataset._lengths(rows, name) for name in (self.field, self._times))
        if (counts != others).any():
            row = int((counts != others).argmax())
            raise ValueError(
                f'windows: datapoint {row}: expected a time in {self._times!r} for each of the '
                f'{counts[row]} items of {self.field!r}, got {others[row]}'
            )

    def counts(self, rows: Int64s) -> Int64s:
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
    own = _facts_of(dataset, field, 'rate', 'start', 'times') if source is None else {}
    if isinstance(source, str) or 'times' in own:
        times = source or own['times']
        if times not in dataset._types or not dataset._types[times].sequence:
            raise ValueError(f'windows: times of {field!r}: expected a sequence field, got {times!r}')
        unit = _facts_of(dataset, times, 'unit').get('unit', 's')
        if not isinstance(unit, str) or unit not in UNITS:
            raise ValueError(
                f'windows: field {times!r}: unit of times: expected {UNITS_TEXT}, got {unit!r:.80}'
            )
        return TableClock(dataset, field, times, UNITS[unit])
    if source is not None or 'rate' in own:
        rate = own['rate'] if source is None else source
        return RateClock(dataset, field, float(rate), float(own.get('start', 0)))
    return TableClock(dataset, field, None, 1.0) if dataset._types[field].word in VIDEO_WORDS else None


def _facts_of(dataset: Dataset, field: str, *keys: str) -> Mapping[str, Any]:
    """Returns some facts that metadata has of a field.

    Raises:
        TypeError, ValueError: They are invalid, or the datasets of a concat differ in them.
    """
    found = list(_facts_of_parts(dataset, field))
    for facts in found:
        check_facts(field, facts, dataset._types)
    said = [{key: facts[key] for key in keys if key in facts} for facts in found]
    for other in said:
        if other != said[0]:
            raise ValueError(
                f'windows: field {field!r}: expected one {", ".join(keys)} in the metadata of all datasets, '
                f'got {said[0]} and {other}; a bags.concat of windows may have several'
            )
    return said[0]


def _facts_of_parts(dataset: Dataset, field: str) -> Iterator[Any]:
    if isinstance(dataset, Join):
        yield from _facts_of_parts(dataset._owners[field], field)
    elif isinstance(dataset, View):
        parts = dataset._datasets if isinstance(dataset, Concat) else dataset._datasets[:1]
        for part in parts:
            if field in part._types:
                yield from _facts_of_parts(part, field)
    else:
        yield dataset.metadata.get('fields', {}).get(field, {})


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


class Recordings:
    """The recordings of a field. Those read last stay open.

    Args:
        dataset: The dataset.
        field: A field of type `audio`.
    """

    def __init__(self, dataset: Dataset, field: str) -> None:
        self.dataset = dataset
        self.field = field
        self._open: dict[int, Any] = {}

    def of(self, rows: Int64s) -> dict[int, Any]:
        """Returns the recordings of datapoints, by datapoint, with their headers read; None for none."""
        known = self._open
        found = {row: known.get(row) for row in np.unique(rows).tolist()}
        missing = [row for row, audio in found.items() if audio is None]
        if missing:
            new = self.dataset._read(np.array(missing, np.int64), {self.field: True}, read_values)[self.field]
            found.update(zip(missing, new, strict=True))
            map_concurrently(lambda audio: audio and len(audio), list(new), self.dataset.is_remote)
            recent = [*known.items(), *((row, found[row]) for row in missing)]
            self._open = dict(recent[-MAX_OPEN_RECORDINGS:])
        return found

    def close(self) -> None:
        """Lets the files be closed once no one else uses them."""
        self._open = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), '_open': {}}
