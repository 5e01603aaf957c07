"""`measure`: the elements and the seconds of recordings and videos of many datapoints, by their headers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.bag.records import FileRanges, StoredRecords
from bags.concurrency import map_concurrently
from bags.dataset.base import Dataset
from bags.dataset.format.registry import AUDIO_FORMATS, VIDEO_FORMATS
from bags.dataset.format.spec import FieldType
from bags.dataset.reading.batch import concat_ranges
from bags.dataset.reading.columns import read_values
from bags.dataset.reading.field_reader import Record
from bags.indexing import Int64s
from bags.links.linked_files import LazyFile
from bags.media.audio import Audio
from bags.media.encoders import audio_options, reading_options
from bags.media.headers import HEAD_BYTES, UNKNOWN, Header, parse_header, parse_heads
from bags.media.resampled import resampled_length
from bags.media.video import Video
from bags.storage import File
from bags.storage.mmap_file import gather
from bags.storage.ranges import merge

REMOTE_HEAD_BYTES = 4096
"""Bytes read of a record of a remote file, of a type with any format: most headers need no second request."""
MAX_GAP_BYTES = 1 << 13
"""Maximum bytes between two headers in a remote file that are read with one request."""
MAX_REQUEST_BYTES = 1 << 22
"""Bytes at which a request of many headers ends."""
MAX_REQUESTS = 64
"""Maximum number of concurrent requests. A header takes little more than the latency."""
MAX_RECORDS = 1 << 16
"""Maximum number of records that are measured at a time."""
MAX_PARSERS = 1 << 12
"""Maximum number of headers that are parsed at a time, one by one."""
MAX_HELD_BYTES = 1 << 26
"""Bytes of headers, or of records that are compressed, above which fewer are measured at a time."""
MAX_OPENED = 8
"""Maximum number of remote files without a known header that are opened concurrently."""

Seconds = npt.NDArray[np.float64]


class Measured(NamedTuple):
    """The lengths of a field of `n` datapoints."""

    elements: Int64s
    """Frames or samples, shape (n,); of a sequence, of all items together. 0 if there are none."""
    seconds: Seconds
    """Seconds, shape (n,), added up in the same way. NaN if there are none."""
    fallbacks: int
    """Number of records that had to be opened, since their headers do not tell the length."""


def measure(dataset: Dataset, rows: Int64s, field: str, seconds: bool = True) -> Measured:
    """Returns the elements and the seconds of a field of recordings or videos, read from their headers.

    Headers are believed; the lengths of whole files are those of `bags.Audio` and `bags.Video`. Reads the
    first bytes of each record, and of some formats another range: many together, and of a remote file
    concurrently. A file whose header does not tell the length is opened.

    Args:
        dataset: A reader or a view.
        rows: Indices of datapoints, in range, shape (n,).
        field: A field whose records are files of sound or video, or a sequence of them.
        seconds: Whether seconds are needed. Without them, parts of linked files do not open the files.

    Raises:
        TypeError: The field has another type.
        DecodeError: A file that was opened cannot be read.
    """
    field_type = dataset.schema[field]
    if field_type.format not in (*AUDIO_FORMATS, *VIDEO_FORMATS):
        raise TypeError(f'field {field!r} of type {field_type.text}: expected recordings or videos')
    ranges = dataset.record_ranges(rows, field) if len(rows) else None
    if ranges is None:
        return _of_values(dataset, rows, field)
    counts = np.where(ranges.counts > 0, ranges.counts, 0)
    offsets, total = np.cumsum(counts) - counts, int(counts.sum())
    lengths = Lengths(np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total))

    def read(rows_of_source: Int64s) -> int:
        """Measures the rows of a source, and returns how many records were opened."""
        bag = ranges.sources[int(ranges.which[rows_of_source[0]])].bag
        reader = _LengthReader(bag, field, field_type, seconds)
        of_source = counts[rows_of_source]
        records = concat_ranges(ranges.firsts[rows_of_source], of_source)
        lengths.put(concat_ranges(offsets[rows_of_source], of_source), reader.read(records))
        return reader.fallbacks

    filled = np.flatnonzero(counts)
    order = filled[np.argsort(ranges.which[filled], kind='stable')]
    cuts = np.flatnonzero(np.diff(ranges.which[order])) + 1
    parts = np.split(order, cuts) if len(order) else []
    fallbacks = sum(map_concurrently(read, parts, dataset.reads_wait))
    options = audio_options(*field_type.args) if field_type.format == 'audio' else {}
    return Measured(*_added_up(lengths, counts, options.get('rate')), fallbacks)


class Lengths(NamedTuple):
    """The lengths of `n` records."""

    elements: Int64s
    """Frames or samples, shape (n,); `UNKNOWN` if the header does not tell them."""
    rates: Int64s
    """Samples per second, shape (n,); 0 for videos."""
    seconds: Seconds
    """(n,)."""

    def take(self, positions: Int64s) -> Lengths:
        """Returns the lengths at some positions."""
        return Lengths(self.elements[positions], self.rates[positions], self.seconds[positions])

    def put(self, positions: Int64s | slice, lengths: Lengths) -> None:
        """Stores lengths at their positions."""
        self.elements[positions], self.rates[positions] = lengths.elements, lengths.rates
        self.seconds[positions] = lengths.seconds

    def fill(self, positions: Int64s, headers: Sequence[Header | None]) -> None:
        """Stores the headers that are known at their positions."""
        for position, header in zip(positions.tolist(), headers, strict=True):
            if header is not None:
                self.elements[position], self.seconds[position] = header.elements, header.seconds
                self.rates[position] = header.rate


def _added_up(lengths: Lengths, counts: Int64s, new_rate: int | None) -> tuple[Int64s, Seconds]:
    """Adds up the lengths of the records of each datapoint, as if they were joined.

    Args:
        lengths: The lengths of all records.
        counts: The number of records of each datapoint.
        new_rate: The rate to which recordings are resampled when they are read.
    """
    elements, rates, seconds = lengths
    if (counts != 1).any():
        owner = np.repeat(np.arange(len(counts)), counts)
        ends = np.cumsum(counts)
        sums = np.cumsum(np.append(0, elements))
        elements = sums[ends] - sums[ends - counts]
        # One by one, as videos are joined; NaN without records.
        seconds = np.bincount(owner, seconds, len(counts)).astype(np.float64)
        seconds[counts == 0] = np.nan
        firsts = np.zeros(len(counts), np.int64)
        firsts[counts > 0] = rates[(ends - counts)[counts > 0]]
        differs = np.bincount(owner, rates != firsts[owner], len(counts)) > 0
        rates = np.where(differs, 0, firsts)  # Records of several rates cannot be joined.
        seconds = np.where(rates > 0, elements / np.maximum(rates, 1), seconds)
    if new_rate is not None:
        for row in np.flatnonzero(rates > 0).tolist():
            elements[row] = resampled_length(int(elements[row]), int(rates[row]), new_rate)
            seconds[row] = elements[row] / new_rate
    return elements, seconds


def _of_values(dataset: Dataset, rows: Int64s, field: str) -> Measured:
    """Measures values that a view computes, one by one."""
    elements, seconds = np.zeros(len(rows), np.int64), np.full(len(rows), np.nan)
    if not len(rows):
        return Measured(elements, seconds, 0)
    fallbacks = 0
    for row, value in enumerate(dataset.read_selection(rows, {field: True}, read_values)[field]):
        for item in value if isinstance(value, list) else [value]:
            if item is not None:
                count, duration = _of_value(item)
                elements[row] += count
                seconds[row] = duration if np.isnan(seconds[row]) else seconds[row] + duration
                fallbacks += 1
    return Measured(elements, seconds, fallbacks)


def _of_value(value: Any) -> tuple[int, float]:
    """Returns the elements and the seconds of a value. Frames without their file have no times."""
    if isinstance(value, tuple):  # Samples and their rate.
        return len(value[0]), len(value[0]) / value[1]
    return len(value), getattr(value, 'duration', float('nan'))


class _LengthReader:
    """Measures the records of a bag."""

    def __init__(self, bag: StoredRecords, field: str, field_type: FieldType, seconds: bool) -> None:
        # Headers are believed: comparing checksums would read whole records.
        self._bag = copy.copy(bag)
        self._bag.checksums = None
        self._records, self._field, self._type = bag, field, field_type
        self._media_type = 'audio' if field_type.format in AUDIO_FORMATS else 'video'
        self._track: int | None = None
        if field_type.format == 'audio':
            self._track = audio_options(*field_type.args).get('track')
        elif field_type.format == 'video':
            self._track = reading_options(*field_type.args).get('track')
        self._head_bytes = HEAD_BYTES if field_type.format == 'flac' else REMOTE_HEAD_BYTES
        self._needs_seconds = seconds
        self.fallbacks = 0
        """Number of records that were opened."""

    def read(self, records: Int64s) -> Lengths:
        """Returns the lengths of records, by their indices."""
        if (np.diff(records) <= 0).any():
            unique, inverse = np.unique(records, return_inverse=True)
            if len(unique) < len(records):
                return self.read(unique).take(inverse)
        parts = [
            self._read_some(records[start : start + MAX_RECORDS])
            for start in range(0, len(records), MAX_RECORDS)
        ]
        return Lengths(*map(np.concatenate, zip(*parts, strict=True))) if parts else _unknown(0)

    def _read_some(self, records: Int64s) -> Lengths:
        """As `read`, for at least one and at most `MAX_RECORDS` records."""
        is_range = int(records[-1]) - int(records[0]) == len(records) - 1
        located = self._bag.locate(range(int(records[0]), int(records[-1]) + 1) if is_range else records)
        lengths = _unknown(len(records))
        stored = [ranges for ranges in located if ranges.are_stored]
        if stored:
            where, of_files = _joined(stored)
            lengths.put(where, self._of_ranges(of_files))
        for ranges in located:
            positions = np.arange(len(records)) if ranges.positions is None else ranges.positions
            if ranges.are_segments:
                lengths.fill(positions, self._of_segments(records[positions].tolist()))
            elif not ranges.are_stored:
                headers = map_concurrently(
                    self._of_compressed, records[positions].tolist(), self._bag.is_remote, MAX_OPENED
                )
                lengths.fill(positions, headers)
        unknown = np.flatnonzero(lengths.elements == UNKNOWN)
        self.fallbacks += len(unknown)
        opened = map_concurrently(self._open, records[unknown].tolist(), self._bag.is_remote, MAX_OPENED)
        lengths.fill(unknown, opened)
        return lengths

    def _of_ranges(self, ranges: _Ranges) -> Lengths:
        """Returns the lengths of ranges of files."""
        heads = self._heads(ranges)
        elements, rates = parse_heads(heads if isinstance(heads, np.ndarray) else _as_rows(heads))
        lengths = Lengths(elements, rates, np.where(elements == UNKNOWN, np.nan, elements / rates))
        unknown = np.flatnonzero(elements == UNKNOWN)
        # Other formats take more bytes, and are parsed one by one.
        for start in range(0, len(unknown), MAX_PARSERS):
            chosen = unknown[start : start + MAX_PARSERS]
            known = [bytes(heads[position]) for position in chosen.tolist()]
            headers: list[Header | None] = [None] * len(chosen)

            def use(position: int, header: Header | None, headers: list[Header | None] = headers) -> None:
                headers[position] = _without_times(header)

            self._parse(ranges.take(chosen), known, use)
            lengths.fill(chosen, headers)
        return lengths

    def _heads(self, ranges: _Ranges) -> npt.NDArray[np.uint8] | list[bytes]:
        """Returns the first bytes of each range: an array (n, `HEAD_BYTES`) if they are in memory."""
        if len(ranges.files) == 1 and ranges.files[0].buffer is not None:
            file = ranges.files[0]
            if int((ranges.stops - ranges.starts).min()) >= HEAD_BYTES:
                file.will_need(ranges.starts, ranges.starts + HEAD_BYTES)
                return gather(file.buffer, file.size, ranges.starts, HEAD_BYTES)
        count = self._head_bytes if any(file.is_remote for file in ranges.files) else HEAD_BYTES
        return _read(ranges, ranges.starts, np.minimum(ranges.starts + count, ranges.stops))

    def _parse(
        self, ranges: _Ranges, heads: list[bytes], use: Callable[[int, Header | None], object]
    ) -> None:
        """Parses headers of any format, which ask for other ranges of their files together.

        Args:
            ranges: The files.
            heads: The first bytes of each.
            use: Function that is called with the position of each file, and its header. The tables of long
                videos are large: they are freed with the header.
        """
        sizes = (ranges.stops - ranges.starts).tolist()
        parsers = [
            parse_header(head, size, self._media_type, self._track)
            for head, size in zip(heads, sizes, strict=True)
        ]
        wanted: dict[int, tuple[int, int]] = {}

        def resume(position: int, data: bytes | None) -> None:
            try:
                wanted[position] = parsers[position].send(data)  # type: ignore[arg-type]
            except StopIteration as exc:
                use(position, exc.value)

        for position in range(len(parsers)):
            resume(position, None)
        while wanted:
            asked, wanted = wanted, {}
            for group in _in_groups(asked):
                chosen = ranges.take(np.array(group))
                limits = np.array([asked[position] for position in group], np.int64)
                starts = np.minimum(chosen.starts + limits[:, 0], chosen.stops)
                stops = np.minimum(chosen.starts + limits[:, 1], chosen.stops)
                for position, data in zip(group, _read(chosen, starts, stops), strict=True):
                    resume(position, data)

    def _of_compressed(self, index: int) -> Header | None:
        """Parses the header of a compressed record, which is read as a whole."""
        data = self._bag.get(index)
        parser = parse_header(data[:REMOTE_HEAD_BYTES], len(data), self._media_type, self._track)
        try:
            start, stop = next(parser)
            while True:
                start, stop = parser.send(data[start:stop])
        except StopIteration as exc:
            return _without_times(exc.value)

    def _of_segments(self, records: list[int]) -> list[Header | None]:
        """Returns the headers of parts of files. The header of each file is parsed once."""
        segments = [self._bag.segment(index) for index in records]
        if not self._needs_seconds and all(segment.stop for segment in segments):
            return [Header(segment.stop - segment.first, 0, np.nan) for segment in segments]
        files = {segment.where: segment for segment in segments}
        ranges = _Ranges(
            [segment.file for segment in files.values()],
            np.arange(len(files)),
            np.array([segment.start for segment in files.values()], np.int64),
            np.array([segment.end for segment in files.values()], np.int64),
        )
        heads = _read(ranges, ranges.starts, np.minimum(ranges.starts + REMOTE_HEAD_BYTES, ranges.stops))
        of_file: dict[Any, list[int]] = {where: [] for where in files}
        for position, segment in enumerate(segments):
            of_file[segment.where].append(position)
        positions_by_file = list(of_file.values())
        parts: list[Header | None] = [None] * len(segments)

        def cut(number: int, header: Header | None) -> None:
            if header is not None:
                for position in positions_by_file[number]:
                    part = header.part(segments[position].first, segments[position].stop)
                    parts[position] = _without_times(part)

        self._parse(ranges, heads, cut)
        return parts

    def _open(self, index: int) -> Header:
        """Opens a record to find its length."""
        record = Record(self._records, index, self._field, self._type.text)
        if self._media_type == 'audio':
            audio = Audio(record, track=self._track)
            return Header(len(audio), audio.rate, audio.duration)
        video = Video(record, track=self._track)
        return Header(len(video), 0, video.duration)


def _without_times(header: Header | None) -> Header | None:
    """Returns the header of a video without the times of its frames and their rate, which may vary."""
    return header if header is None or header.timeline is None else header._replace(rate=0, timeline=None)


class _Ranges(NamedTuple):
    """Byte ranges of files."""

    files: Sequence[File]
    which: Int64s
    """The file of each range, shape (n,)."""
    starts: Int64s
    stops: Int64s
    """(n,)."""

    def take(self, positions: Int64s) -> _Ranges:
        """Returns the ranges at some positions."""
        return _Ranges(self.files, self.which[positions], self.starts[positions], self.stops[positions])


def _joined(located: list[FileRanges]) -> tuple[Int64s | slice, _Ranges]:
    """Returns the positions of all records of some files among the requested ones, and their ranges."""
    files = [ranges.file for ranges in located]
    if len(located) == 1:
        (ranges,) = located
        where = slice(None) if ranges.positions is None else ranges.positions
        return where, _Ranges(files, np.zeros(len(ranges.starts), np.int64), ranges.starts, ranges.stops)
    counts = [len(ranges.starts) for ranges in located]
    return np.concatenate([ranges.positions for ranges in located if ranges.positions is not None]), _Ranges(
        files,
        np.repeat(np.arange(len(files)), counts),
        np.concatenate([ranges.starts for ranges in located]),
        np.concatenate([ranges.stops for ranges in located]),
    )


def _as_rows(heads: list[bytes]) -> npt.NDArray[np.uint8]:
    """Returns the first bytes of each file, shape (n, `HEAD_BYTES`); of shorter files, zeros after them."""
    data = b''.join([head[:HEAD_BYTES].ljust(HEAD_BYTES, b'\0') for head in heads])
    return np.frombuffer(data, np.uint8).reshape(-1, HEAD_BYTES)


def _unknown(count: int) -> Lengths:
    return Lengths(np.full(count, UNKNOWN, np.int64), np.zeros(count, np.int64), np.full(count, np.nan))


def _in_groups(wanted: dict[int, tuple[int, int]]) -> Iterator[list[int]]:
    """Yields positions whose ranges take at most `MAX_HELD_BYTES` together, or a single larger one."""
    group: list[int] = []
    held = 0
    for position, (start, stop) in wanted.items():
        if group and held + stop - start > MAX_HELD_BYTES:
            yield group
            group, held = [], 0
        group.append(position)
        held += stop - start
    if group:
        yield group


def _read(ranges: _Ranges, starts: Int64s, stops: Int64s) -> list[bytes]:
    """Reads a part of each range: of local files with one call a file, of remote files concurrently."""
    data: list[bytes] = [b''] * len(starts)
    order = np.argsort(ranges.which, kind='stable')
    cuts = np.flatnonzero(np.diff(ranges.which[order])) + 1
    requests: list[tuple[File, Int64s, int, int]] = []
    for positions in np.split(order, cuts) if len(order) else []:
        file = ranges.files[int(ranges.which[positions[0]])]
        if not file.is_remote:
            for position, part in zip(
                positions.tolist(), file.read_many(starts[positions], stops[positions]), strict=True
            ):
                data[position] = part
            continue
        runs = merge(starts[positions], stops[positions], MAX_GAP_BYTES, MAX_REQUEST_BYTES)
        by_run = np.argsort(runs.owner, kind='stable')
        for run, members in enumerate(np.split(positions[by_run], np.cumsum(np.bincount(runs.owner))[:-1])):
            requests.append((file, members, int(runs.starts[run]), int(runs.stops[run])))

    def request(one: tuple[File, Int64s, int, int]) -> None:
        file, members, start, stop = one
        # A file that was linked is compared with its sample when it is decoded.
        read = file.peek if isinstance(file, LazyFile) else file.read
        whole = bytes(read(start, stop)) if stop > start else b''
        for position in members.tolist():
            data[position] = whole[int(starts[position]) - start : int(stops[position]) - start]

    map_concurrently(request, requests, max_threads=MAX_REQUESTS)
    return data
