"""Manifests of Lhotse: a datapoint is a cut, or a recording with its supervisions.

Supervisions become sequences of texts, and sequences of times on the clock of the cut.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bags.errors import SourceError
from bags.interop.records import open_file, read_at_most
from bags.interop.source import DamagedEntries, Source, as_source_errors, collect_errors
from bags.interop.sources.manifests.lhotse_lines import (
    TEXTS,
    VALUES,
    Cut,
    Supervision,
    cut_of,
    keys_of,
    kind_of,
    parse_cut,
    parse_line,
    parse_recording,
    parse_supervision,
)
from bags.interop.sources.manifests.listed_files import ListedFiles
from bags.interop.sources.manifests.manifest_options import NO_FILES, ManifestOptions
from bags.interop.sources.manifests.sound_parts import TOLERANCE, SoundLength, lhotse_samples
from bags.interop.sources.manifests.sounds import Sounds
from bags.interop.sources.tables.text_tables import MAX_BYTES
from bags.interop.stores import list_paths

FIELD = 'audio'
"""The field of the recordings."""
OPUS_RATE = 48_000
"""The rate of all Opus, from which Lhotse resamples to the rate of the manifest."""


class CutLine(NamedTuple):
    """A line with a cut or a recording."""

    path: str
    line: int
    """Number of the line, from 1."""
    number: int
    """Number of the datapoint in the file, from 0."""
    cut: Cut


def open_source(
    paths: list[str],
    storage_options: Mapping[str, Any] | None = None,
    manifest: ManifestOptions = NO_FILES,
) -> LhotseSource:
    """Returns the cuts of manifests, or the recordings, with the supervisions of other manifests.

    Args:
        paths: The manifests.
        storage_options: As in `bags.open`, for URLs.
        manifest: The root and the permitted paths.
    """
    return LhotseSource(list_paths(paths, storage_options), storage_options, manifest)


class LhotseSource(Source[CutLine]):
    """Cuts, or recordings with their supervisions.

    Args:
        paths, storage_options, manifest: As in `open_source`.

    Raises:
        SourceError: No cut or recording can be read, or there are both.
    """

    def __init__(
        self, paths: list[str], storage_options: Mapping[str, Any] | None, manifest: ManifestOptions
    ) -> None:
        super().__init__('lhotse', {}, 0)
        self._storage_options = storage_options
        self._sounds: dict[str, tuple[ListedFiles, Sounds]] = {}
        self._supervisions: dict[str, list[tuple[str, Supervision]]] = {}
        """The supervisions of each recording, and where each is."""
        kinds: dict[str, str] = {}
        for path in paths:
            with collect_errors(self.damaged):
                kinds[path] = self._kind_of_file(path)
        used = sorted({*kinds.values()} - {'supervisions'})
        if len(used) != 1:
            if self.damaged:
                raise SourceError(*self.damaged[0])
            found = ' and '.join(used) or 'supervisions'
            raise SourceError(paths[0], f'expected manifests of cuts, or of recordings, got {found}')
        self._kind = used[0]
        for path, kind in kinds.items():
            if kind == 'supervisions':
                if self._kind == 'cuts':
                    raise SourceError(path, 'expected manifests of cuts, which have their supervisions')
                self._read_supervisions(path)
            else:
                files = ListedFiles(path, manifest, storage_options)
                self._sounds[path] = files, Sounds(files)
        self._first: dict[str, str] = {}
        """The first line of each id of a cut or recording."""
        self._counts = dict.fromkeys(self._sounds, 0)
        """Number of datapoints in each file."""
        self._infer()

    def _infer(self) -> None:
        """Finds the keys of all lines, and sets count and spec. Lines are checked when they are loaded."""
        keys, channels, has_custom, recordings = set[str](), 1, False, set[str]()
        error: SourceError | None = None
        for path in self._counts:
            for number, text in self._read_lines(path):
                where = f'{path}, line {number}'
                self._counts[path] += 1
                try:
                    value = parse_line(text)
                    if kind_of(value) != self._kind:
                        raise ValueError(f'expected {self._kind}, got {kind_of(value)}')
                except ValueError as exc:
                    error = error or SourceError(where, str(exc))
                    continue
                found = keys_of(value)
                self._first.setdefault(found.id, where)
                recordings.add(found.id)
                channels = max(channels, found.channels)
                has_custom |= found.has_custom
                keys |= found.keys
        self.count = sum(self._counts.values())
        for name, supervisions in self._supervisions.items():
            if name not in recordings:
                where, _ = supervisions[0]
                detail = f'recording_id: expected the id of a recording, got {name!r:.80}'
                self.damaged.append((where, detail))
            keys |= {key for _, each in supervisions for key in each.values}
        if not self._first:
            raise error or SourceError(next(iter(self._counts)), f'expected {self._kind}, got none')
        self._describe(keys, channels, has_custom)

    def _describe(self, keys: set[str], channels: int, has_custom: bool) -> None:
        self.spec = {'id': 'utf8', FIELD: 'audio'}
        if self._kind == 'cuts':
            self.spec |= {'recording_id': 'utf8', 'offset': 'float(8)', 'duration': 'float(8)'}
        if channels > 1:
            self.spec['channels'] = 'int(4)[]'
        times = {'start': 'float(8)[]', 'stop': 'float(8)[]'}
        self.spec |= {'text': 'utf8[]', **times, 'supervision_id': 'utf8[]'}
        self.spec |= {key: 'utf8[]' for key in TEXTS if key in keys and key != 'text'}
        names = {'channel': 'supervision_channel', 'custom': 'supervision_custom', 'alignment': 'alignment'}
        self._values = {
            key: names[key] for key in VALUES if key in keys and (key != 'channel' or channels > 1)
        }
        self.spec |= dict.fromkeys(self._values.values(), 'json[]')
        if has_custom:
            self.spec['custom'] = 'json?'
        self.metadata = {'fields': {'text': {'times': 'start'}}}

    def _kind_of_file(self, path: str) -> str:
        """Returns what a file has, by the first line that can be parsed."""
        error: SourceError | None = None
        for number, line in self._read_lines(path):
            try:
                return kind_of(parse_line(line))
            except ValueError as exc:
                error = error or SourceError(f'{path}, line {number}', str(exc))
        raise error or SourceError(path, 'expected a JSON object in each line, got none')

    def _read_lines(self, path: str) -> Iterator[tuple[int, bytes]]:
        """Yields the number and the text of each line that is not blank."""
        with as_source_errors(path, 'JSONL'), open_file(path, self._storage_options) as file:
            if path.lower().endswith('.gz'):
                with gzip.open(file) as text:
                    data = read_at_most(text, MAX_BYTES)
            else:
                data = read_at_most(file, MAX_BYTES)
        for number, line in enumerate(io.BytesIO(data), 1):
            if line.strip():
                yield number, line

    def _read_supervisions(self, path: str) -> None:
        for number, line in self._read_lines(path):
            where = f'{path}, line {number}'
            try:
                value = parse_line(line)
                if kind_of(value) != 'supervisions':
                    raise ValueError(f'expected a supervision, got one of {kind_of(value)}')
                found = parse_supervision(value)
            except ValueError as exc:
                self.damaged.append((where, str(exc)))
            else:
                self._supervisions.setdefault(found.recording_id, []).append((where, found))

    def _parsed(self, path: str) -> Iterator[CutLine | DamagedEntries]:
        """Yields the cuts of a file."""
        for number, (line, text) in enumerate(self._read_lines(path)):
            where = f'{path}, line {line}'
            try:
                value = parse_line(text)
                if kind_of(value) != self._kind:
                    raise ValueError(f'expected one of {self._kind}, as in the lines before, got another')
                cut = parse_cut(value) if self._kind == 'cuts' else self._cut_of_recording(value)
                first = self._first.setdefault(cut.id, where)
                if first != where:
                    raise ValueError(f'id: expected each id once, got {cut.id!r:.80}, as in {first}')
                yield CutLine(path, line, number, cut)
            except ValueError as exc:
                yield DamagedEntries(SourceError(f'{where}, row {number}', str(exc)))

    def _cut_of_recording(self, value: Mapping[str, Any]) -> Cut:
        recording = parse_recording(value)
        supervisions = self._supervisions.get(recording.id, [])
        for where, each in supervisions:
            if each.stop > recording.duration + TOLERANCE:
                raise ValueError(
                    f'duration: expected supervisions in the {recording.duration:g} s of the recording, got '
                    f'{each.start:g} to {each.stop:g} s in {where}'
                )
        return cut_of(recording, [each for _, each in supervisions])

    def entries(self, start: int = 0) -> Iterator[CutLine | DamagedEntries]:
        for path, count in self._counts.items():
            if start < count:
                number = 0
                try:
                    for number, entry in enumerate(self._parsed(path), 1):
                        if start < number <= count:
                            yield entry
                    if number < count:
                        raise SourceError(path, f'expected {count} lines, as it had, got {number}')
                except SourceError as exc:
                    yield DamagedEntries(exc, count - max(number, start))
            start = max(0, start - count)

    def load(self, entry: CutLine) -> Mapping[str, Any]:
        cut = entry.cut
        values: dict[str, Any] = {
            'id': cut.id,
            'recording_id': cut.recording.id,
            'offset': cut.start,
            'duration': cut.duration,
            'channels': cut.channels,
            'start': [each.start for each in cut.supervisions],
            'stop': [each.stop for each in cut.supervisions],
            'supervision_id': [each.id for each in cut.supervisions],
            'custom': cut.custom,
        }
        for key in TEXTS:
            values[key] = [each.values.get(key, '') for each in cut.supervisions]
        for key, field in self._values.items():
            values[field] = [each.values.get(key) for each in cut.supervisions]
        if FIELD in self.spec:
            where = self._where(entry)
            try:
                values[FIELD] = self._sound(entry)
            except SourceError as exc:
                raise SourceError(where, f'field {FIELD!r}: {exc.name}: {exc.detail}') from exc
            except (ValueError, EOFError) as exc:
                raise SourceError(where, f'field {FIELD!r}: {exc}') from exc
        return {field: values[field] for field in self.spec}

    def _sound(self, entry: CutLine) -> Any:
        """Returns the value for the sound of a cut.

        Raises:
            SourceError, ValueError: The file cannot be read, or contradicts the manifest.
        """
        files, sounds = self._sounds[entry.path]
        recording, cut = entry.cut.recording, entry.cut
        if recording.type == 'url' and '://' not in recording.path:
            raise ValueError(f'source: expected a URL, got {recording.path!r:.200}')

        def choose(length: SoundLength) -> tuple[int, int]:
            rate, is_opus = recording.rate, recording.path.lower().endswith(('.opus', '.ogg'))
            if length.rate != rate and not (is_opus and length.rate == OPUS_RATE):
                raise ValueError(f'sampling_rate: expected {length.rate}, as in the file, got {rate}')
            samples = recording.samples * length.rate // rate
            if abs(samples - length.samples) > TOLERANCE * length.rate:
                expected = f'{length.samples * rate // length.rate:,}'
                raise ValueError(
                    f'num_samples: expected {expected}, as in the file, got {recording.samples:,}'
                )
            if cut.duration is None:
                return length.clip(0, samples)
            first = lhotse_samples(cut.start, length.rate)
            return length.clip(first, lhotse_samples(cut.duration, length.rate))

        path = files.locate(recording.path)
        if FIELD in self.linked:
            return sounds.link_part(path, choose, self.opener)
        return sounds.read_part(path, choose)

    def linkable(self) -> dict[str, float | str]:
        return self.measured({FIELD} & self.spec.keys())

    def _where(self, entry: CutLine) -> str:
        return f'{entry.path}, line {entry.line}, row {entry.number}'

    def name(self, entry: CutLine) -> str:
        return self._where(entry)
