"""Transcripts with times: a datapoint is a file, or in CTM a channel of a recording.

A tier becomes a sequence of texts, and sequences of times: starts and stops of intervals, or times of points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bags.errors import SourceError
from bags.interop.file_extensions import KEY, split_name
from bags.interop.records import open_file, read_at_most
from bags.interop.source import DamagedEntries, Source, as_source_errors, collect_errors, name_fields
from bags.interop.sources.tables.text_tables import MAX_BYTES
from bags.interop.sources.transcripts.transcript_files import Tier, parse_ctm, parse_subtitles, parse_textgrid

NAMES = {'textgrid': 'TextGrid', 'ctm': 'CTM', 'srt': 'SRT', 'vtt': 'WebVTT'}
"""Names of the formats by extension."""


class Transcript(NamedTuple):
    """The texts and times of a datapoint."""

    path: str
    values: dict[str, Any]
    """Values by field."""


class TranscriptSource(Source[Transcript]):
    """The texts and times of files of one format."""

    loads_in_threads = False  # Files are parsed as a whole, in `entries`.

    def __init__(
        self, paths: list[str], storage_options: Mapping[str, Any] | None = None, root: str = ''
    ) -> None:
        """Parses all files.

        Args:
            paths: The files.
            storage_options: As in `bags.open`, for URLs.
            root: The folder that keys are relative to. By default, keys are file names.
        """
        self._extension = split_name(paths[0])[1]
        for path in paths:
            if split_name(path)[1] not in NAMES:
                raise SourceError(path, f'expected a file named *.{", *.".join(NAMES)}')
        super().__init__(
            {'srt': 'subtitles', 'vtt': 'subtitles'}.get(self._extension, self._extension), {}, 0
        )
        self._options, self._root = storage_options, root.rstrip('/') + '/'
        self._counts: dict[str, int] = {}
        """Number of datapoints in each file."""
        has_stops: dict[str, bool] = {}
        """Whether a tier has intervals, by name."""
        present: dict[str, int] = {}
        overlaps: list[str] = []
        has_confidence = False
        for path in paths:
            with collect_errors(self.damaged), as_source_errors(path, self._name_of_format(path)):
                datapoints = self._parse(path)
                for _, tiers in datapoints:
                    for name, tier in tiers.items():
                        if has_stops.setdefault(name, tier.has_stops) != tier.has_stops:
                            types = ('points', 'intervals') if has_stops[name] else ('intervals', 'points')
                            text = f'expected {types[1]} as in the files before it, got {types[0]}'
                            raise SourceError(path, f'tier {name!r}: {text}')
                for _, tiers in datapoints:
                    for name, tier in tiers.items():
                        present[name] = present.get(name, 0) + 1
                        has_confidence |= not all(map(math.isnan, tier.confidence))
                        overlaps += [f'{path}, line {line}' for line in tier.overlaps]
                self._counts[path] = len(datapoints)
        self.count = sum(self._counts.values())
        if not present:
            detail = f'expected texts with times, got {NAMES[self._extension]} without any'
            raise SourceError(*self.damaged[0] if self.damaged else (paths[0], detail))
        if overlaps:
            some = f'{len(overlaps):,} texts begin before the end of the previous text, the first in '
            self.notes.append(some + overlaps[0])
        self._fields = name_fields(present, self.notes)
        self._describe(has_stops, {name for name in present if present[name] < self.count}, has_confidence)

    def _describe(self, has_stops: Mapping[str, bool], optional: set[str], has_confidence: bool) -> None:
        """Sets the spec, and the metadata: the field with the times of each tier."""
        self.spec = {KEY: 'utf8'}
        if self.format == 'ctm':
            self.spec['channel'] = 'utf8'
        facts = {}
        for name, field in self._fields.items():
            types = {field: 'utf8[]', **dict.fromkeys(self._times(name, has_stops[name]), 'float(8)[]')}
            if taken := types.keys() & (self.spec.keys() | (set(self._fields.values()) - {field})):
                detail = (
                    f'expected other names of tiers, got {taken.pop()!r} for a tier, and for times or keys'
                )
                raise SourceError(next(iter(self._counts)), detail)
            self.spec |= {each: text + '?' * (name in optional) for each, text in types.items()}
            facts[field] = {'times': next(iter(self._times(name, has_stops[name])))}
        if has_confidence:
            self.spec['confidence'] = 'float(8)[]'
        self.metadata = {'fields': facts}

    def _times(self, name: str, has_stops: bool) -> list[str]:
        """Returns the names of the fields with the times of a tier."""
        before = f'{self._fields[name]}_' if self.format == 'textgrid' else ''
        return [f'{before}start', f'{before}stop'] if has_stops else [f'{before}time']

    def _name_of_format(self, path: str) -> str:
        return NAMES[split_name(path)[1]]

    def _parse(self, path: str) -> list[tuple[dict[str, str], dict[str, Tier]]]:
        """Parses a file; returns the key, for CTM the channel, and the tiers of each datapoint."""
        with open_file(path, self._options) as file:
            data = read_at_most(file, MAX_BYTES)
        if self.format == 'ctm':
            words = parse_ctm(data).items()
            return [({KEY: key, 'channel': channel}, {'text': tier}) for (key, channel), tier in words]
        within = path.removeprefix(self._root) if path.startswith(self._root) else path.rpartition('/')[2]
        stem, extension = split_name(within)
        if self.format == 'textgrid':
            return [({KEY: stem}, parse_textgrid(data))]
        return [({KEY: stem}, {'text': parse_subtitles(data, is_webvtt=extension == 'vtt')})]

    def entries(self, start: int = 0) -> Iterator[Transcript | DamagedEntries]:
        for path, count in self._counts.items():
            if start < count:
                try:
                    with as_source_errors(path, self._name_of_format(path)):
                        datapoints = self._parse(path)
                        if len(datapoints) != count:
                            raise ValueError(f'expected {count} recordings, as it had, got {len(datapoints)}')
                except SourceError as exc:
                    yield DamagedEntries(exc, count - start)
                else:
                    for about, tiers in datapoints[start:]:
                        yield Transcript(path, {**about, **self._values(tiers)})
            start = max(0, start - count)

    def _values(self, tiers: Mapping[str, Tier]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, tier in tiers.items():
            values[self._fields[name]] = tier.texts
            values |= zip(self._times(name, tier.has_stops), (tier.starts, tier.stops), strict=False)
            if 'confidence' in self.spec:
                values['confidence'] = tier.confidence
        return values

    def load(self, entry: Transcript) -> Mapping[str, Any]:
        return {field: value for field, value in entry.values.items() if field in self.spec}

    def name(self, entry: Transcript) -> str:
        return f'{entry.path}: {entry.values[KEY]}'


open_source = TranscriptSource
