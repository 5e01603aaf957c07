"""`StreamField`: the elements of a field in each datapoint of a dataset, and when they happen."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from bags.concurrency import Shareable, cached_attribute
from bags.dataset.base import Dataset, FieldOrigin, WindowsView
from bags.dataset.format.metadata import UNITS, check_facts
from bags.dataset.format.registry import AUDIO_FORMATS, VIDEO_FORMATS, array_rows, has_varying_rows
from bags.dataset.reading.columns import read_values
from bags.dataset.reading.selection import FrameSelection
from bags.indexing import Int64s
from bags.links.segments import ParsedFiles
from bags.media.encoders import audio_options
from bags.streams.clocks import (
    Clock,
    FieldClock,
    FrameClock,
    MixedClock,
    RateClock,
    SampleClock,
    Seconds,
    WindowClock,
    WindowRateClock,
)
from bags.streams.measure import measure

UNITS_TEXT = "'s', 'ms', 'us' or 'ns'"
ROWS_AT_ONCE = 1024
"""Number of datapoints whose times or lengths are read together."""
SIZES_AT_ONCE = 1 << 20
"""Number of datapoints whose records are located together."""
SAME_RATE = 0.01
"""Maximum relative difference of a rate in the metadata and the records per second of a datapoint."""

ElementType = Literal['items', 'frames', 'samples', 'rows']
"""What the elements of a field are: the items of a sequence; the frames of videos, or of values of one's own
type; the samples of recordings; or the rows of an array. The records of a sequence form one stream of frames
or samples."""


class StreamFacts(NamedTuple):
    """What the metadata of a dataset says about the stream of a field."""

    rate: float | None
    start: float | None
    times: str | None
    scale: float
    """Seconds of the unit of `times`."""
    elements: str | None
    windows: WindowsView | None
    """The view of windows whose elements these are."""
    field: str
    """The name of the field in `windows`."""

    @property
    def are_empty(self) -> bool:
        """Whether the metadata does not determine the times of elements."""
        return self.rate is None and self.start is None and self.times is None and self.windows is None


class KnownElements:
    """What a dataset object keeps of the stream of a field, as long as it lives."""

    def __init__(self, type: ElementType, length: int) -> None:
        self.type = type
        self._length = length

    unmeasured = 0
    """Number of records that were opened because their headers have no length."""

    @cached_attribute
    def videos(self) -> ParsedFiles:
        """Decoders of videos without their files, which excerpts of several batches use."""
        return ParsedFiles()

    @cached_attribute
    def measured(self) -> tuple[Int64s, Seconds]:
        """The frames or samples, and the seconds, of each datapoint; -1 if they are not known yet."""
        return np.full(self._length, -1, np.int64), np.full(self._length, np.nan)


class StreamField(Shareable):
    """The elements of a field in each datapoint of a dataset, and their times.

    Args:
        dataset, name: The field.
        times: The field with the times of the elements, or their rate, instead of those in the metadata.

    Raises:
        TypeError: Values of the field have no elements.
        ValueError: The metadata is invalid or contradicts the data.
    """

    def __init__(self, dataset: Dataset, name: str, times: str | float | None = None) -> None:
        self.dataset, self.name = dataset, name
        self._field_type = dataset.schema[name]
        self._times = times
        origins = dataset.field_origins(name)
        self._are_windows = any(isinstance(origin.dataset, WindowsView) for origin in origins)
        self._facts = [self._facts_of(origin) for origin in origins]
        known = dataset.known_elements.get(name) if times is None else None
        if known is None:
            known = KnownElements(self._element_type(), len(dataset))
            if times is None:
                dataset.known_elements[name] = known
        self._known = known

    @property
    def are_stored_rows(self) -> bool:
        """Whether the elements are rows of stored arrays, which are read without the rest of the arrays."""
        return self.type == 'rows' and not self._are_windows

    @property
    def type(self) -> ElementType:
        """What the elements are."""
        return self._known.type

    holds_counts = False
    """Whether the numbers of items of all datapoints are read at once and kept: windows use them often."""

    # What the elements are.

    def _facts_of(self, origin: FieldOrigin) -> StreamFacts:
        if isinstance(origin.dataset, WindowsView) and self._times is None:
            return StreamFacts(None, None, None, 1.0, None, origin.dataset, origin.field or self.name)
        facts: Mapping[str, Any] = origin.facts
        check_facts(self.name, facts)
        times = facts.get('times')
        if times is not None and not isinstance(times, str):
            raise ValueError(
                f'metadata: field {self.name!r}: times: expected a sequence field, got {times!r:.80}'
            )
        if times is not None:
            check_facts(times, origin.times)
        unit = origin.times.get('unit', 's')
        rate, start = facts.get('rate'), facts.get('start')
        if isinstance(self._times, str):
            times, rate, start = self._times, None, None
            units = [other.facts.get('unit', 's') for other in self.dataset.field_origins(self._times)]
            unit = units[0]
            if any(other != unit for other in units):
                raise ValueError(f'field {times!r}: expected one unit of times, got {units}')
        elif self._times is not None:
            times, rate = None, self._times
        if not _is_sequence(self.dataset, times):  # A view may lack the field that the metadata names.
            times = None
        if times is not None and not (isinstance(unit, str) and unit in UNITS):
            raise ValueError(f'field {times!r}: unit of times: expected {UNITS_TEXT}, got {unit!r:.80}')
        return StreamFacts(
            None if rate is None else float(rate),
            None if start is None else float(start),
            times,
            UNITS[unit] if times is not None else 1.0,
            facts.get('elements'),
            None,
            '',
        )

    def _element_type(self) -> ElementType:
        field_type, dataset = self._field_type, self.dataset
        if self._are_windows:
            return 'items' if field_type.sequence else 'rows'
        is_sound = field_type.format in AUDIO_FORMATS
        if not is_sound and not dataset.has_frames(self.name):
            if field_type.sequence:
                return 'items'
            if has_varying_rows(field_type):
                return 'rows'
            raise TypeError(
                f'field {self.name!r} of type {field_type.text}: expected a sequence, a video, a '
                'recording, or an array whose first dimension is ?'
            )
        if not field_type.sequence:
            if is_sound:
                self._has_record_rate()  # Raises if the recordings have another rate.
            return 'samples' if is_sound else 'frames'
        said = {facts.elements for facts in self._facts} - {None}
        if len({facts.elements for facts in self._facts}) > 1:
            raise ValueError(
                f'field {self.name!r}: expected the same elements in the metadata of all datasets, got '
                f'{[facts.elements for facts in self._facts]}'
            )
        if said or self._has_record_times() or (is_sound and self._has_record_rate()):
            return 'items'
        return 'samples' if is_sound else 'frames'

    def _has_record_times(self) -> bool:
        """Returns whether the field of times has a time for each record, instead of each frame.

        The first datapoint with a different number of records and frames decides.
        """
        names = {facts.times for facts in self._facts} - {None}
        if not names:
            return False
        for start in range(0, len(self.dataset), ROWS_AT_ONCE):
            rows = np.arange(start, min(start + ROWS_AT_ONCE, len(self.dataset)))
            which, _ = self.dataset.origin_rows(self.name, rows)
            records = self.dataset.item_counts(rows, self.name)
            counts_of = {name: self.dataset.item_counts(rows, name) for name in names if name is not None}
            for position in np.flatnonzero(records).tolist():
                times = self._facts[int(which[position])].times
                if times is None:
                    continue
                counts = counts_of[times]
                if records[position] != counts[position]:
                    return False
                if self._field_type.format in AUDIO_FORMATS:
                    return True
                (frames,) = self.dataset.frame_counts(rows[position : position + 1], self.name).tolist()
                if frames != records[position]:
                    return bool(counts[position] != frames)
        return False

    def _has_record_rate(self) -> bool:
        """Returns whether the rate in the metadata counts records: a dataset of before.

        Raises:
            ValueError: The rate is neither the sample rate nor records per second.
        """
        known = [facts.rate for facts in self._facts if facts.rate is not None and facts.times is None]
        if not known:
            return False
        for start in range(0, len(self.dataset), ROWS_AT_ONCE):
            rows = np.arange(start, min(start + ROWS_AT_ONCE, len(self.dataset)))
            which, _ = self.dataset.origin_rows(self.name, rows)
            records = self._record_counts(rows)
            for position in np.flatnonzero(records).tolist():
                rate = self._facts[int(which[position])].rate
                if rate is None:
                    continue
                measured = measure(self.dataset, rows[position : position + 1], self.name)
                seconds = float(measured.seconds[0])
                sample_rate = int(measured.elements[0]) / seconds if seconds > 0 else math.nan
                if math.isclose(rate, sample_rate, rel_tol=1e-6) or rate == self._resampled_rate:
                    return False
                per_second = int(records[position]) / seconds if seconds > 0 else math.nan
                if self._field_type.sequence and math.isclose(rate, per_second, rel_tol=SAME_RATE):
                    return True
                if self._field_type.format == 'opus':  # 48 kHz, whatever the rate of the encoded samples.
                    return False
                raise ValueError(
                    f'field {self.name!r}: rate {rate:g} of the metadata: expected the {sample_rate:g} '
                    f'samples per second of the recordings, or the {per_second:g} records per second of '
                    f'datapoint {rows[position]}'
                )
        return False

    def _record_counts(self, rows: Int64s) -> Int64s:
        if self._field_type.sequence:
            return self.dataset.item_counts(rows, self.name)
        return self.dataset.are_present(rows, self.name).astype(np.int64)

    @property
    def _resampled_rate(self) -> int | None:
        """The rate to which the type of the field resamples recordings."""
        if self._field_type.format != 'audio':
            return None
        rate: int | None = audio_options(*self._field_type.args).get('rate')
        return rate

    def facts_at(self, row: int) -> StreamFacts:
        """Returns what the metadata says about the stream of a datapoint."""
        which, _ = self.dataset.origin_rows(self.name, np.array([row], np.int64))
        return self._facts[int(which[0])]

    # How many, and when.

    def counts(self, rows: Int64s) -> Int64s:
        """Returns the number of elements of datapoints, shape (W,); 0 if missing."""
        if self.type == 'items':
            return self._item_counts[rows] if self.holds_counts else self.dataset.item_counts(rows, self.name)
        return self._row_counts(rows) if self.type == 'rows' else self._frame_counts(rows)

    @cached_attribute
    def _item_counts(self) -> Int64s:
        """The number of items of all datapoints."""
        return self.dataset.item_counts(np.arange(len(self.dataset)), self.name)

    def _row_counts(self, rows: Int64s) -> Int64s:
        """Returns the number of rows of arrays: from the sizes of their records, if these are known."""
        if self._are_windows:
            return self.dataset.item_counts(rows, self.name)
        fixed = array_rows(self._field_type.format, self._field_type.args)
        assert fixed is not None
        size = fixed[0].itemsize * math.prod(fixed[1])
        counts = np.zeros(len(rows), np.int64)
        for start in range(0, len(rows), SIZES_AT_ONCE):
            some = rows[start : start + SIZES_AT_ONCE]
            ranges = self.dataset.record_ranges(some, self.name)
            if ranges is not None and not any(source.bag.is_compressed for source in ranges.sources):
                counts[start : start + len(some)] = ranges.sizes() // size
                continue
            (arrays,) = self.dataset.read_selection(some, {self.name: True}, read_values).values()
            counts[start : start + len(some)] = [0 if array is None else len(array) for array in arrays]
        return counts

    def _measure(self, rows: Int64s, needs_seconds: bool) -> tuple[Int64s, Seconds]:
        """Returns the frames or samples, and the seconds, of datapoints, by their headers."""
        counts, seconds = self._known.measured
        is_known = (counts[rows] == 0) | ((counts[rows] > 0) & ~(needs_seconds & np.isnan(seconds[rows])))
        new = np.unique(rows[~is_known])
        if len(new):
            found = measure(self.dataset, new, self.name, needs_seconds)
            counts[new], seconds[new] = found.elements, found.seconds
            self._known.unmeasured += found.fallbacks
        return counts[rows], seconds[rows]

    def _frame_counts(self, rows: Int64s) -> Int64s:
        if self._field_type.format in (*VIDEO_FORMATS, *AUDIO_FORMATS):
            return self._measure(rows, needs_seconds=self._resampled_rate is not None)[0]
        counts, _ = self._known.measured
        new = np.unique(rows[counts[rows] < 0])
        if len(new):
            counts[new] = self.dataset.frame_counts(new, self.name)
        return counts[rows]

    @cached_attribute
    def clock(self) -> Clock | None:
        """The times of the elements; None if they are unknown."""
        clocks: dict[StreamFacts, Clock | None] = {}
        for facts in self._facts:
            if facts not in clocks:
                clocks[facts] = self._clock_of(facts)
        if len(clocks) == 1:
            return clocks[self._facts[0]]
        known = [clock for facts in self._facts if (clock := clocks[facts]) is not None]
        if len(known) < len(self._facts):
            return None
        return MixedClock(self.dataset, self.name, self.counts, known)

    @property
    def unmeasured(self) -> int:
        """Number of records that were opened because their headers have no length."""
        return self._known.unmeasured

    @property
    def has_rate(self) -> bool:
        """Whether the elements of each datapoint have a constant rate."""
        return self.clock is not None and self.clock.has_rate

    def _clock_of(self, facts: StreamFacts) -> Clock | None:
        place = self.dataset, self.name, self.counts
        if facts.windows is not None:
            has_rate = facts.windows.element_rates(facts.field, np.empty(0, np.int64)) is not None
            if has_rate:
                return WindowRateClock(*place, facts.windows, facts.field)
            return WindowClock(self.dataset, self.name, facts.windows, facts.field)
        if self.type == 'samples':
            if facts.times is not None:
                warnings.warn(
                    f'field {self.name!r}: the times {facts.times!r} are not used: samples follow each other '
                    "at the rate of the recording, from its 'start' in the metadata",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return SampleClock(self.dataset, self.name, facts.start)
        if facts.times is not None:
            lasts = functools.partial(self._lasts, facts.rate)
            return FieldClock(*place, facts.times, facts.scale, lasts, self.type)
        if facts.rate is not None:
            return RateClock(*place, facts.rate, facts.start or 0.0)
        if self.type == 'frames' and self._have_times():
            return FrameClock(self.dataset, self.name, facts.start)
        return None

    def _lasts(self, rate: float | None, rows: Int64s) -> Seconds:
        """Returns the seconds that the last elements of datapoints last, shape (W,); NaN if unknown."""
        if rate is not None:
            return np.full(len(rows), 1 / rate)
        if self.type != 'frames' or self._field_type.format not in VIDEO_FORMATS:
            return np.full(len(rows), np.nan)
        return FrameClock(self.dataset, self.name, None).lasts(rows)

    def _have_times(self) -> bool:
        """Returns whether the frames of records have times of their own."""
        if self._field_type.format in VIDEO_FORMATS:
            return True
        for start in range(0, len(self.dataset), ROWS_AT_ONCE):
            rows = np.arange(start, min(start + ROWS_AT_ONCE, len(self.dataset)))
            present = rows[self.dataset.are_present(rows, self.name)]
            if len(present):
                selection: Any = {self.name: FrameSelection('times')}
                (times,) = self.dataset.read_selection(present[:1], selection, read_values)[self.name]
                return times is not None
        return True  # Nothing is known without a value, and nothing contradicts it.

    def expect_clock(self) -> Clock:
        """Returns the clock.

        Raises:
            ValueError: The times of the elements are unknown.
        """
        if self.clock is None:
            raise ValueError(
                f'field {self.name!r}: the times of its {self.type} are unknown: expected a rate, or a field '
                f'of times that the dataset has, in its metadata (`bags.set_metadata`)'
            )
        return self.clock

    def durations(self, rows: Int64s) -> Seconds:
        """Returns the seconds from the first element to the end of the last, shape (W,).

        NaN where the value is missing, and 0 where it has no elements.
        """
        clock = self.expect_clock()
        seconds = np.zeros(len(rows))
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            seconds[part] = self._durations(clock, rows[part])
        seconds[~self.dataset.are_present(rows, self.name)] = np.nan
        return seconds

    def _durations(self, clock: Clock, rows: Int64s) -> Seconds:
        if isinstance(clock, SampleClock | FrameClock) and self._field_type.format in (
            *VIDEO_FORMATS, *AUDIO_FORMATS,
        ):  # fmt: skip
            return np.nan_to_num(self._measure(rows, needs_seconds=True)[1])
        first, end = clock.range(rows)
        return np.nan_to_num(end - first)


def _is_sequence(dataset: Dataset, name: str | None) -> bool:
    return name in dataset.schema and dataset.schema[name].sequence
