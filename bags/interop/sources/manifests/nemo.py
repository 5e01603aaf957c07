"""Manifests of NeMo: JSON lines with the path of a recording, and `offset` and `duration` of a part of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bags.errors import SourceError
from bags.interop.source import DamagedEntries
from bags.interop.sources.manifests.listed_tables import ListedTable
from bags.interop.sources.manifests.manifest_options import NO_FILES, ManifestOptions
from bags.interop.sources.manifests.sound_parts import MAX_SECONDS, SoundLength, nemo_part
from bags.interop.sources.manifests.sounds import Sounds
from bags.interop.sources.tables.arrow import ArrowSource, TableRow
from bags.interop.stores import list_paths

FIELD = 'audio'
"""The field of the recordings."""
PATHS = ('audio_filepath', 'audio_filename', 'audio_file')
"""The keys that NeMo reads paths from, in this order."""


def open_source(
    paths: list[str],
    storage_options: Mapping[str, Any] | None = None,
    manifest: ManifestOptions = NO_FILES,
) -> NemoSource:
    """Returns the utterances of manifests, one manifest after the other.

    Args:
        paths: The manifests, JSON lines whatever their names are.
        storage_options: As in `bags.open`, for URLs.
        manifest: The root and the permitted paths.
    """
    return NemoSource(list_paths(paths, storage_options), storage_options, manifest)


class NemoSource(ListedTable):
    """The utterances of manifests of NeMo: all keys of a line, and the recording, or the part of it."""

    def __init__(
        self, paths: list[str], storage_options: Mapping[str, Any] | None, options: ManifestOptions
    ) -> None:
        table = ArrowSource(paths, storage_options, is_json=True)
        key = next((key for key in PATHS if key in table.columns), None)
        if key is None:
            raise SourceError(
                paths[0], f'expected a key {PATHS[0]!r} in each line, got {", ".join(table.columns)}'
            )
        options = options._replace(files={key: FIELD})
        super().__init__(table, options, storage_options, {FIELD: 'audio'})
        self.format = 'nemo'
        self.spec[FIELD] = 'audio'  # Each line needs a path.
        self.facts = {}
        self._sounds = {path: Sounds(files) for path, files in self.files.items()}
        self._times = {key: table.field_of(key) for key in ('offset', 'duration')}
        self._note_repeats(key)

    def _note_repeats(self, key: str) -> None:
        """Adds a note about lines with the same part of the same recording."""
        names = {name: field for name in (key, *self._times) if (field := self.table.field_of(name))}
        self.table.spec = {field: self.types[field] for field in names.values() if field in self.types}
        seen, repeats, first = set[tuple[str, ...]](), 0, ''
        for entry in self.table.entries():
            if isinstance(entry, DamagedEntries):
                continue
            identity = (entry.path, *map(repr, entry.values.values()))
            if identity in seen:
                repeats += 1
                first = first or self.table.locate(entry)
            seen.add(identity)
        self.table.spec = dict(self.types)
        if repeats:
            count = 'a line repeats' if repeats == 1 else f'{repeats:,} lines repeat'
            self.notes.append(f'{count} the part of a recording of an earlier line, the first is {first}')

    def read_columns(self) -> set[str]:
        times = {field for field in self._times.values() if field in self.types}
        return super().read_columns() | (times if FIELD in self.spec else set())

    def load_file(self, entry: TableRow, column: str, field: str) -> Any:
        offset, duration = (self._seconds(entry, key) for key in ('offset', 'duration'))
        sounds = self._sounds[entry.path]
        path = self.files[entry.path].locate(entry.values[column])
        is_linked = field in self.linked
        if not offset and not duration:
            return sounds.link(path, self.opener) if is_linked else sounds.read(path)

        def choose(length: SoundLength) -> tuple[int, int]:
            return nemo_part(offset, duration, length)

        return sounds.link_part(path, choose, self.opener) if is_linked else sounds.read_part(path, choose)

    def _seconds(self, entry: TableRow, key: str) -> float:
        """Returns a time of a row; 0 if it is missing."""
        value = entry.values.get(self._times[key] or '')
        if value is None:
            return 0.0
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= MAX_SECONDS:
            raise ValueError(f'{key}: expected a number of seconds from 0 on, got {value!r:.80}')
        return float(value)
