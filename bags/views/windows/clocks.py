"""Clocks: the times of the items of a field, from a field of times, a rate, or timestamps of videos.

A clock handles many datapoints at once. Times are float64 seconds on the clock of the datapoint, which is
shared by all its fields.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.concurrency import map_concurrently
from bags.dataset.base import Dataset, View
from bags.dataset.format.metadata import UNITS, check_facts, rename_facts
from bags.dataset.format.registry import AUDIO_FORMATS, VIDEO_FORMATS
from bags.dataset.format.spec import FieldType
from bags.dataset.reading.columns import read_values
from bags.dataset.reading.selection import FrameSelection, Span, Times
from bags.indexing import Int64s
from bags.media.audio_sequence import AudioSequence
from bags.views.concat import Concat
from bags.views.edited import Edited

Seconds = npt.NDArray[np.float64]

EPSILON = 1e-6
"""Maximum difference of equal times in seconds: above float64 rounding errors, below any interval."""
UNITS_TEXT = "'s', 'ms', 'us' or 'ns'"
MAX_CACHED_TIMES = 1 << 24
MAX_OPEN_RECORDINGS = 64


class Clock(ABC):
    """The times of the items of a field, which increase from item to item."""

    def __init__(self, dataset: Dataset, field: str) -> None:
        self.dataset = dataset
        self.field = field

    @property
    @abstractmethod
    def options(self) -> object:
        """The numbers and strings that determine the times, besides the dataset."""

    @abstractmethod
    def counts(self, rows: Int64s) -> Int64s:
        """Returns the number of items of datapoints, shape (W,)."""

    @abstractmethod
    def at(self, rows: Int64s, items: Int64s) -> Seconds:
        """Returns the times of items, shape (W, n), of the datapoints `rows`; NaN for missing items."""

    @abstractmethod
    def before(self, rows: Int64s, times: Seconds) -> Int64s:
        """Returns the last item at or before each time, shape (W, n); -1 without one."""

    def extent(self, rows: Int64s) -> tuple[Seconds, Seconds]:
        """Returns the times of the first and the last item, shape (W,); NaN without items."""
        ends = np.stack([np.zeros(len(rows), np.int64), self.counts(rows) - 1], 1)
        first, last = self.at(rows, ends).T
        return first, last


class RateClock(Clock):
    """Items at a constant rate, in items per second.

    `start` is the time of the first item, for all datapoints or for each. `counts` is the number of items of
    each datapoint. Default: the lengths of the field.
    """

    def __init__(
        self, dataset: Dataset, field: str, rate: float, start: float | Seconds, counts: Int64s | None = None
    ) -> None:
        super().__init__(dataset, field)
        self._rate, self._counts = rate, counts
        self._starts = np.broadcast_to(start, len(dataset))

    @property
    def options(self) -> object:
        return self._rate, hashlib.blake2b(self._starts.astype('<f8').tobytes(), digest_size=16).hexdigest()

    def counts(self, rows: Int64s) -> Int64s:
        if self._counts is None:
            self._counts = count_items(self.dataset, self.field)
        return self._counts[rows]

    def at(self, rows: Int64s, items: Int64s) -> Seconds:
        is_there = (items >= 0) & (items < self.counts(rows)[:, None])
        return np.where(is_there, self._starts[rows, None] + items / self._rate, np.nan)

    def before(self, rows: Int64s, times: Seconds) -> Int64s:
        positions = (times - self._starts[rows, None] + EPSILON) * self._rate
        last = self.counts(rows)[:, None] - 1
        items: Int64s = np.floor(np.clip(positions, -1, last + 0.5)).astype(np.int64)
        return items


class TableClock(Clock):
    """Items whose times are read from the field `times`, in units of `scale` seconds, or from videos."""

    def __init__(self, dataset: Dataset, field: str, times: str | None = None, scale: float = 1.0) -> None:
        super().__init__(dataset, field)
        self._times, self._scale = times, scale
        self._known: dict[int, Seconds] = {}
        self._held = 0
        if times is not None and not dataset.has_frames(field):
            rows = np.arange(len(dataset))
            self._expect(rows, dataset.item_counts(rows, field), dataset.item_counts(rows, times))

    @property
    def options(self) -> object:
        return self._times, self._scale

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), '_known': {}, '_held': 0}

    def _expect(self, rows: Int64s, counts: Int64s, others: Int64s) -> None:
        if (counts != others).any():
            position = int((counts != others).argmax())
            raise ValueError(
                f'windows: datapoint {rows[position]}: expected a time in {self._times!r} for each of the '
                f'{counts[position]} items of {self.field!r}, got {others[position]}'
            )

    def _tables(self, rows: Int64s) -> dict[int, Seconds]:
        """Returns the times of all items of datapoints, followed by a NaN."""
        tables = {row: self._known.get(row) for row in np.unique(rows).tolist()}
        missing = [row for row, table in tables.items() if table is None]
        if missing:
            read_tables = dict(zip(missing, self._read(np.array(missing, np.int64)), strict=True))
            size = sum(map(len, read_tables.values()))
            if self._held + size > MAX_CACHED_TIMES:
                self._known, self._held = {}, 0
            self._known.update(read_tables)
            self._held += size
            tables.update(read_tables)
        return tables  # type: ignore[return-value]

    def _read(self, rows: Int64s) -> list[Seconds]:
        selection: Any = (
            {self.field: FrameSelection('timestamps')} if self._times is None else {self._times: True}
        )
        (columns,) = self.dataset.read_selection(rows, selection, read_values).values()
        tables = [
            np.append(np.asarray(() if column is None else column, np.float64) * self._scale, np.nan)
            for column in columns
        ]
        for row, table in zip(rows.tolist(), tables, strict=True):
            wrong = ~np.isfinite(table[:-1])
            wrong[1:] |= ~(table[1:-1] > table[:-2])
            if self._times is not None and wrong.any():
                item = int(wrong.argmax())
                raise ValueError(
                    f'windows: datapoint {row}: expected increasing times in {self._times!r}, got '
                    f'{table[item]} s as item {item}' + (f' after {table[item - 1]} s' if item else '')
                )
        if self._times is not None and self.dataset.has_frames(self.field):
            counts = np.array([len(table) - 1 for table in tables], np.int64)
            self._expect(rows, count_items(self.dataset, self.field, rows), counts)
        return tables

    def counts(self, rows: Int64s) -> Int64s:
        tables = self._tables(rows)
        return np.array([len(tables[row]) - 1 for row in rows.tolist()], np.int64)

    def _look_up(self, rows: Int64s, values: npt.NDArray[Any], find: Callable[..., Any]) -> Any:
        tables = self._tables(rows)
        results = [find(tables[row], part) for row, part in zip(rows.tolist(), values, strict=True)]
        return np.array(results).reshape(values.shape)

    def at(self, rows: Int64s, items: Int64s) -> Seconds:
        times: Seconds = self._look_up(rows, items, lambda table, part: table[part.clip(-1, len(table) - 1)])
        return times

    def before(self, rows: Int64s, times: Seconds) -> Int64s:
        items = self._look_up(
            rows, times + EPSILON, lambda table, part: table.searchsorted(part, 'right') - 1
        )
        return items.astype(np.int64, copy=False)  # type: ignore[no-any-return]


def clock_of(dataset: Dataset, field: str, source: str | float | None) -> Clock | None:
    """Returns the clock of a field; None without times.

    `source` is the field with its times, or its rate, instead of the facts in the metadata.

    Raises:
        TypeError, ValueError: The times do not exist or differ in number from the items, or the metadata is
            invalid.
    """
    facts = _facts_of(dataset, field, 'rate', 'start', 'times') if source is None else {}
    # A view may lack the field of times that the metadata names.
    if isinstance(source, str) or facts.get('times') in dataset.schema:
        times = source or facts['times']
        if times not in dataset.schema or not dataset.schema[times].sequence:
            raise ValueError(f'windows: times of {field!r}: expected a sequence field, got {times!r}')
        unit = _facts_of(dataset, times, 'unit').get('unit', 's')
        if not isinstance(unit, str) or unit not in UNITS:
            raise ValueError(
                f'windows: field {times!r}: unit of times: expected {UNITS_TEXT}, got {unit!r:.80}'
            )
        return TableClock(dataset, field, times, UNITS[unit])
    if source is not None or 'rate' in facts:
        rate = facts['rate'] if source is None else source
        return RateClock(dataset, field, float(rate), float(facts.get('start', 0)))
    return TableClock(dataset, field) if dataset.schema[field].format in VIDEO_FORMATS else None


def clocks_of(
    dataset: Dataset,
    spans: Mapping[str, Span],
    every: str | float,
    sources: Mapping[str, str | float],
    is_bounded: bool,
) -> dict[str, Clock | None]:
    """Returns the clocks of the fields of windows, by the arguments of `Dataset.windows`.

    Raises:
        TypeError, ValueError: As `clock_of`; also if the times of a field that needs them are missing.
    """
    names = {*spans, *sources, *([every] if isinstance(every, str) else [])}
    clocks = {name: clock_of(dataset, name, sources.get(name)) for name in sorted(names)}
    all_timed = not isinstance(every, str)
    timed = {name for name, span in spans.items() if all_timed or isinstance(span, Times)}
    if isinstance(every, str) and (timed or is_bounded):
        timed.add(every)
    for name in sorted(timed):
        if clocks[name] is None and not reads_samples(dataset.schema[name], spans.get(name), None):
            raise ValueError(
                f'windows: field {name!r}: the times of its items are unknown: expected a rate, or a field '
                f'of times that the dataset has, in its metadata or in times={{{name!r}: …}}'
            )
    return clocks


def reads_samples(field_type: FieldType, span: Span | None, clock: Clock | None) -> bool:
    """Returns whether windows contain the samples of a recording, or of a sequence of recordings as one.

    Recordings with their own times are items at these times.
    """
    if not field_type.sequence:
        return field_type.format == 'audio'
    is_timed = isinstance(span, Times) and not isinstance(clock, TableClock)
    return is_timed and field_type.format in AUDIO_FORMATS


def _facts_of(dataset: Dataset, field: str, *keys: str) -> Mapping[str, Any]:
    """Checks some entries of a field in the metadata, and returns them."""
    if not isinstance(dataset, View):
        facts = dataset.metadata.get('fields', {}).get(field, {})
        check_facts(field, facts, dataset.schema)
        return {key: facts[key] for key in keys if key in facts}
    if isinstance(dataset, Edited):
        facts = _facts_of(dataset.datasets[0], dataset.names[field], *keys)
        return dict(rename_facts(facts, dataset.new_names))
    parts = [dataset.dataset_of(field)]
    if isinstance(dataset, Concat):
        parts = [part for part in dataset.datasets if field in part.schema]
    facts_of_parts = [_facts_of(part, field, *keys) for part in parts]
    for other in facts_of_parts:
        if other != facts_of_parts[0]:
            raise ValueError(
                f'windows: field {field!r}: expected one {", ".join(keys)} in the metadata of all datasets, '
                f'got {facts_of_parts[0]} and {other}; a bags.concat of windows may have several'
            )
    return facts_of_parts[0]


def count_items(dataset: Dataset, field: str, rows: Int64s | None = None) -> Int64s:
    """Returns the number of items of sequences, or of frames of values. Default: of all datapoints."""
    rows = np.arange(len(dataset)) if rows is None else rows
    return (dataset.frame_counts if dataset.has_frames(field) else dataset.item_counts)(rows, field)


class RecordingTimes:
    """Start and end times of the recordings of an audio field. The most recently opened recordings stay open.

    The recordings of a sequence count as one recording.
    """

    def __init__(self, dataset: Dataset, field: str) -> None:
        self.dataset = dataset
        self.field = field
        self._open: dict[int, Any] = {}

    def of(self, rows: Int64s) -> dict[int, Any]:
        """Returns the recordings by datapoint, after reading their headers; None if missing."""
        open_recordings = self._open
        recordings = {row: open_recordings.get(row) for row in np.unique(rows).tolist()}
        missing = [row for row, audio in recordings.items() if audio is None]
        if missing:
            new = self._open_all(np.array(missing, np.int64))
            recordings.update(zip(missing, new, strict=True))
            map_concurrently(lambda audio: audio and len(audio), list(new), self.dataset.reads_wait)
            recent = [*open_recordings.items(), *((row, recordings[row]) for row in missing)]
            self._open = dict(recent[-MAX_OPEN_RECORDINGS:])
        return recordings

    def _open_all(self, rows: Int64s) -> list[Any]:
        if not self.dataset.schema[self.field].sequence:
            return list(self.dataset.read_selection(rows, {self.field: True}, read_values)[self.field])
        counts = self.dataset.item_counts(rows, self.field)
        return [
            AudioSequence(self.dataset, row, self.field) if count else None
            for row, count in zip(rows.tolist(), counts.tolist(), strict=True)
        ]

    def extent(self, rows: Int64s) -> tuple[Seconds, Seconds]:
        """Returns the start and end times of recordings, shape (W,); NaN if missing."""
        recordings = self.of(rows)
        audios = [recordings[row] for row in rows.tolist()]
        starts = np.array([audio.start if audio else np.nan for audio in audios])
        return starts, starts + np.array([audio.duration if audio else np.nan for audio in audios])

    def close(self) -> None:
        """Drops the recordings. Their files close once they are no longer used."""
        self._open = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), '_open': {}}
