"""A folder of files, or of zips, as a source of datapoints. File names alone determine the datapoints.

Layouts:

    files      each file is a datapoint
    stems      files that differ only in their extension are a datapoint: `x.jpg`, `x.txt`, `x.json`
    classes    like stems, with a folder for each class; the folder name becomes the field `label`
    episodes   each folder is a datapoint; its numbered files are sequences

`metadata.csv` and `metadata.jsonl` add fields to the datapoints of the files they name, except in episodes.
"""

from __future__ import annotations

import functools
import itertools
import mmap
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

from bags.concurrency import cached_attribute, map_concurrently
from bags.errors import SourceError
from bags.formats.signatures import SIGNATURE_BYTES
from bags.interop.exported import ExportedFields
from bags.interop.file_extensions import field_of, split_key, split_name, type_of, written_extensions
from bags.interop.files import (
    FileEntry,
    FileSource,
    check_columns,
    checked_link,
    checked_value,
    group_exported,
    is_transport_stream,
)
from bags.interop.source import check_expanded, list_some
from bags.interop.sources.files.file_metadata import FileMetadata, join, read_metadata
from bags.interop.sources.tables.text_tables import MAX_BYTES
from bags.interop.stores import find_store, list_files, open_in, read_in, size_in, walk
from bags.links.sources import LinkOpener, OpenedLink
from bags.validation import one_of

STREAMED_BYTES = 1 << 24
"""Local videos and audio of this size or more are copied without loading them into memory."""
BLOCK_BYTES = 512
"""Bytes of the blocks in which the system counts the space that a file takes."""
LAYOUTS = ('files', 'stems', 'classes', 'episodes')

FileGroup = tuple[str, dict[str, str | list[str]]]
"""The key of a datapoint, and the file of each field, or the files of a sequence in order."""

_NUMBERED = re.compile(r'(.*?)([0-9]+)', re.DOTALL)
_EPISODE = re.compile(
    r'(?:.*[^a-z])?(?:ep|eps|episode|seq|sequence|clip|scene|video|vid|rec|recording|take|run|trial|traj'
    r'|trajectory|demo|session)?[^a-z]*[0-9]+',
    re.IGNORECASE,
)


def _check_sparse(path: str, size: int) -> None:
    try:
        check_expanded(size, 'a sparse or compressed file')
    except ValueError as exc:
        raise SourceError(path, str(exc)) from exc


class SourceFiles(Protocol):
    """Files by their paths in a folder or an archive."""

    root: str
    """The folder or archive, for errors and as the origin of datapoints."""

    @property
    def compressed(self) -> Collection[str]:
        """Files that cannot be linked, because they are compressed."""

    def sizes(self) -> Mapping[str, int]:
        """Returns the size of each file in bytes."""

    def head(self, name: str, size: int | None = None) -> bytes:
        """Returns the first bytes of a file; all if `size` is None."""

    def read(self, name: str, type_format: str) -> Any:
        """Returns the value that `checked_value` makes of a file, or the path of a local video or recording.

        Raises:
            SourceError: The file is damaged, or not of its type.
        """

    def link(self, name: str, type_format: str, opener: LinkOpener) -> Any:
        """Returns a link to the content of a file, or the result of `read` if the file is compressed.

        Raises:
            SourceError: As in `read`, but only the bytes that `checked_link` reads are checked.
        """


class FolderFiles:
    """The files of a folder, local or at a URL."""

    compressed: Collection[str] = ()

    def __init__(self, root: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.root = root
        self._storage_options = storage_options
        self._store, path = find_store(root.rstrip('/') or '/', storage_options)
        self._path = path.rstrip('/')

    def sizes(self) -> Mapping[str, int]:
        if self._store.can_list:
            return {name: stat.size for name, stat in walk(self._store, self._path)[0].items()}
        names = list_files(self._path, self._storage_options)[0]
        size_of = functools.partial(size_in, self._store, storage_options=self._storage_options)
        sizes = map_concurrently(size_of, [f'{self._path}/{name}' for name in names])
        return {name: size or 0 for name, size in zip(names, sizes, strict=True)}

    def head(self, name: str, size: int | None = None) -> bytes:
        path = f'{self._path}/{name}'
        if size is None:
            return read_in(self._store, path, self._storage_options)
        file = open_in(self._store, path, self._storage_options)
        return bytes(file.read(0, min(size, file.size)))

    def read(self, name: str, type_format: str) -> Any:
        path, inner = f'{self.root.rstrip("/")}/{name}', f'{self._path}/{name}'
        try:
            if not self._store.is_remote:
                with open(inner, 'rb') as file:
                    stat = os.fstat(file.fileno())
                    if type_format not in ('video', 'audio') or stat.st_size < STREAMED_BYTES:
                        # Windows does not have `st_blocks`.
                        if getattr(stat, 'st_blocks', stat.st_size) * BLOCK_BYTES < stat.st_size:
                            _check_sparse(path, stat.st_size)
                        return checked_value(path, type_format, file.read())
                    checked_value(path, type_format, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                return inner
            return checked_value(path, type_format, self.head(name))
        except OSError as exc:
            raise SourceError(path, f'cannot be read: {exc}') from exc

    def link(self, name: str, type_format: str, opener: LinkOpener) -> OpenedLink:
        path = f'{self.root.rstrip("/")}/{name}'
        try:
            return checked_link(path, type_format, opener.open_whole(f'{self._path}/{name}'))
        except OSError as exc:
            raise SourceError(path, f'cannot be read: {exc}') from exc


class FolderSource(FileSource[str]):
    """The files of a folder or an archive, by their paths in it, grouped into datapoints."""

    def __init__(
        self,
        files: SourceFiles,
        names: list[str],
        layout: str | None = None,
        exported: ExportedFields | None = None,
    ) -> None:
        if layout is not None:
            one_of('layout', layout, LAYOUTS)
        self._files, self.root = files, files.root
        self._metadata = FileMetadata()
        if exported is not None:
            super().__init__('folder', 'exported', exported)
            self._groups = self._group_exported(exported, names)
            self.count = len(self._groups)
            return

        def read_table(name: str) -> bytes:
            return files.head(name, MAX_BYTES)

        metadata = FileMetadata() if layout == 'episodes' else read_metadata(self.root, names, read_table)
        names = [name for name in names if name not in metadata.tables]
        super().__init__('folder', layout or find_layout(names))
        if self.layout == 'episodes' and metadata.rows:
            self.layout = 'stems'  # The rows describe single files.
        self._groups = group(names, self.layout)
        self._metadata = metadata
        types, fields = dict(metadata.types), set(metadata.types)
        for _, found in self._groups:
            for field in found.keys() - fields:
                file = found[field]
                is_sequence = isinstance(file, list)
                name = file[0] if isinstance(file, list) else file
                extension = split_name(name)[1]
                if is_transport_stream(extension, functools.partial(files.head, name, SIGNATURE_BYTES)):
                    types[field] = 'video' + '[]' * is_sequence
                elif self.layout == 'episodes':  # In other layouts, the field name is the extension.
                    types[field] = type_of(extension) + '[]' * is_sequence
            fields |= found.keys()
        self._has_labels = self.layout == 'classes' and 'label' not in fields
        if self._has_labels:
            types['label'] = 'utf8'
        field_sets = Counter(entry.field_set for entry in self.entries())
        if metadata.tables:
            check_columns(f'{self.root.rstrip("/")}/{metadata.tables[0]}', field_sets)
        self.infer(field_sets, types)
        self.notes += metadata.notes
        self.from_text = set(metadata.types)

    def _group_exported(self, exported: ExportedFields, names: list[str]) -> list[FileGroup]:
        by_key: dict[str, list[tuple[str, str]]] = {}
        for name in names:
            key, extension = split_key(name)
            by_key.setdefault(key, []).append((extension, name))
        try:
            return [(key, group_exported(exported, files)) for key, files in sorted(by_key.items())]
        except ValueError as exc:
            raise SourceError(self.root, str(exc)) from exc

    def entries(self, start: int = 0) -> Iterator[FileEntry[str]]:
        for key, group_files in itertools.islice(self._groups, start, None):
            if self.exported is not None:
                yield FileEntry(self.root, key, group_files, {}, {})
                continue
            files = {self.rename(field): file for field, file in group_files.items()}
            columns = join(map(str, files.values()), self._metadata) if self._metadata.rows else {}
            if self._has_labels:
                columns['label'] = key.partition('/')[0]
            names = {field: file for field, file in files.items() if isinstance(file, str)}
            # An export never keeps the file names of episodes.
            extensions = {} if self.layout == 'episodes' else written_extensions(key, names)
            yield FileEntry(self.root, key, files, columns, extensions)

    def read(self, entry: FileEntry[str], field: str, type_format: str) -> Any:
        file, read = entry.files[field], self._files.read
        if field in self.linked:
            link, opener = self._files.link, self.opener
            many = file if isinstance(file, list) else [file]
            links = [link(name, type_format, opener) for name in many]
            return links if many is file else links[0]
        if isinstance(file, list):
            return (read(name, type_format) for name in file)
        return read(file, type_format)

    def linkable(self) -> dict[str, float | str]:
        if self._files.compressed:
            names = [
                name
                for _, found in self._groups
                for file in found.values()
                for name in (file if isinstance(file, list) else [file])
            ]
            compressed = [name for name in names if name in self._files.compressed]
            if compressed:
                count, some = len(compressed), list_some(compressed, 1)
                self.notes.append(f'{self.root}: {count:,} compressed files are copied: {some}')
            if len(names) == len(compressed):
                return dict.fromkeys(self.spec, 'all files of zips are compressed: `zip -0` stores them')
        return super().linkable()

    def sizes(self, entry: FileEntry[str]) -> dict[str, int]:
        return {
            field: sum(self._sizes[name] for name in (file if isinstance(file, list) else [file]))
            for field, file in entry.files.items()
        }

    @cached_attribute
    def _sizes(self) -> Mapping[str, int]:
        return self._files.sizes()


def find_layout(names: list[str]) -> str:
    """Infers the layout of a folder from the paths of its files.

    Folders of numbered files are episodes if the folder names are numbers or end with a number (`ep_12`),
    and classes otherwise.
    """
    folders = {name.partition('/')[0] for name in names if '/' in name}
    if len(folders) > 1 and all('/' in name for name in names):
        if not all(map(_EPISODE.fullmatch, folders)):
            return 'classes' if all(name.count('/') == 1 for name in names) else 'stems'
        runs: Counter[tuple[str, str, str]] = Counter()
        for name in names:
            folder, _, rest = name.partition('/')
            prefix, number, extension = _split_numbered(rest)
            if number:
                runs[folder, prefix, extension] += 1
        has_run = {folder for (folder, _, _), count in runs.items() if count > 1}
        if has_run == folders:
            return 'episodes'
        if all(name.count('/') == 1 for name in names):
            return 'classes'
    return 'stems'


def group(names: Iterable[str], layout: str) -> list[FileGroup]:
    """Groups files into datapoints, sorted by key."""
    if layout == 'episodes':
        return _episodes(sorted(names))
    groups: dict[str, dict[str, str | list[str]]] = {}
    for name in sorted(names):
        stem, extension = split_name(name)
        if layout == 'classes' and '/' not in name:
            raise SourceError(name, 'expected a folder for each class, got a file outside of any')
        key = name if layout == 'files' else stem
        field = field_of(extension)
        fields = groups.setdefault(key, {})
        if field in fields:
            raise SourceError(name, f'expected one file for field {field!r}, got {fields[field]} too')
        fields[field] = name
    return sorted(groups.items())


def _split_numbered(name: str) -> tuple[str, str, str]:
    """Splits a file name into the part before its number, the number, and the extension."""
    stem, extension = split_name(name)
    match = _NUMBERED.fullmatch(stem)
    return (match[1], match[2], extension) if match else (stem, '', extension)


def _episodes(names: list[str]) -> list[FileGroup]:
    episodes: dict[str, dict[tuple[str, str, bool], list[tuple[int, str]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for name in names:
        folder, slash, rest = name.partition('/')
        if not slash:
            raise SourceError(name, 'expected a folder for each episode, got a file outside of any')
        prefix, number, extension = _split_numbered(rest)
        episodes[folder][prefix, extension, bool(number)].append((int(number or 0), name))
    groups = {group for episode in episodes.values() for group in episode}
    fields = _fields(groups)
    return [
        (
            folder,
            {
                fields[group]: [name for _, name in sorted(files)] if group[2] else files[0][1]
                for group, files in episode.items()
            },
        )
        for folder, episode in sorted(episodes.items())
    ]


def _fields(groups: set[tuple[str, str, bool]]) -> dict[tuple[str, str, bool], str]:
    """Names the fields of episodes after the subfolder, the part before the number, or the extension."""
    names = {}
    for prefix, extension, numbered in groups:
        folder, _, rest = prefix.strip('/').rpartition('/')
        plain = '_'.join(filter(None, (folder.replace('/', '_'), rest.strip(' _-.'))))
        names[prefix, extension, numbered] = field_of(plain) if plain else field_of(extension)
    many = Counter(name.lower() for name in names.values())
    for group, name in names.items():
        if many[name.lower()] > 1:
            names[group] = f'{name}.{field_of(group[1])}'
    again = Counter(name.lower() for name in names.values())
    for group, name in names.items():
        if again[name.lower()] > 1:
            raise SourceError(f'{group[0]}….{group[1]}', f'two groups of files would both be field {name!r}')
    return names
