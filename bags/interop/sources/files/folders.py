"""A folder of files, or of zips, as a source of datapoints, in one of the layouts of `layouts`."""

from __future__ import annotations

import functools
import itertools
import mmap
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

from bags.concurrency import cached_attribute, map_concurrently
from bags.errors import SourceError
from bags.formats.signatures import SIGNATURE_BYTES
from bags.interop.exported import ExportedFields
from bags.interop.file_extensions import (
    IMAGE_TYPES,
    split_key,
    split_name,
    type_of,
    type_of_all,
    written_extensions,
)
from bags.interop.files import (
    WITHOUT_NAMES,
    FileEntry,
    FileSource,
    check_columns,
    checked_link,
    checked_value,
    group_exported,
    is_transport_stream,
)
from bags.interop.source import check_expanded, list_some
from bags.interop.sources.files.fields import FileGroup
from bags.interop.sources.files.file_metadata import FileMetadata, join
from bags.interop.sources.files.layouts import LABEL_FIELD
from bags.interop.sources.files.readings import Reading, Readings
from bags.interop.sources.files.yolo import Classes, parse_labels
from bags.interop.stores import find_store, list_files, open_in, read_in, size_in, walk
from bags.links.sources import LinkOpener, OpenedLink

STREAMED_BYTES = 1 << 24
"""Local videos and audio of this size or more are copied without loading them into memory."""
BLOCK_BYTES = 512
"""Bytes of the blocks in which the system counts the space that a file takes."""


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

    def size(self, name: str) -> int:
        """Returns the size of a file in bytes."""

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

    def size(self, name: str) -> int:
        return size_in(self._store, f'{self._path}/{name}', self._storage_options) or 0

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
                with open(inner, 'rb', buffering=0) as file:
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
        reading: Reading,
        readings: Readings | None = None,
        exported: ExportedFields | None = None,
    ) -> None:
        """Reads no values.

        Args:
            files: The files.
            reading: The datapoints.
            readings: All readings of the files, of which `reading` is one.
            exported: The fields of an export, which the datapoints are of.
        """
        super().__init__('folder', reading.layout, exported)
        self._files, self.root, self._readings = files, files.root, readings
        self._groups, self._metadata = reading.groups, reading.metadata
        self._has_labels = False
        if exported is not None:
            self.count = len(self._groups)
            return
        metadata = reading.metadata
        types, fields = dict(metadata.types), set(metadata.types)
        extensions: dict[str, set[str]] = {}
        for _, found in self._groups:
            if self.layout == 'fields':
                for field, file in found.items():
                    extensions.setdefault(field, set()).add(split_name(str(file))[1])
            for field in found.keys() - fields:
                file = found[field]
                is_sequence = isinstance(file, list)
                name = file[0] if isinstance(file, list) else file
                extension = split_name(name)[1]
                if is_transport_stream(extension, functools.partial(files.head, name, SIGNATURE_BYTES)):
                    types[field] = 'video' + '[]' * is_sequence
                elif self.layout == 'episodes':  # In most layouts, the field name is the extension.
                    types[field] = type_of(extension) + '[]' * is_sequence
            fields |= found.keys()
        types = {field: type_of_all(each) for field, each in extensions.items()} | types
        self._has_labels = reading.has_labels and 'label' not in fields
        if self._has_labels:
            types['label'] = 'utf8'
        field_sets = Counter(entry.field_set for entry in self.entries())
        if metadata.tables:
            check_columns(f'{self.root.rstrip("/")}/{metadata.tables[0]}', field_sets)
        self.infer(field_sets, types)
        self.notes += metadata.notes
        self.from_text = {field for field in metadata.types if field not in metadata.facts}
        self._describe(metadata.facts)

    def _describe(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """Adds metadata about fields: boxes are over the first field of photos."""
        photos = [field for field, text in self.spec.items() if text.rstrip('?') in IMAGE_TYPES]
        if facts:
            self.metadata['fields'] = {
                field: {**({'over': photos[0]} if 'format' in about and photos else {}), **about}
                for field, about in facts.items()
            }

    def readings(self) -> list[tuple[str, int]]:
        found = self._readings.all() if self._readings else []
        return [reading.facts for reading in found] or super().readings()

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
            extensions = {} if self.layout in WITHOUT_NAMES else written_extensions(key, names)
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


class YoloSource(FolderSource):
    """Photos with the boxes and labels of their label files."""

    def __init__(self, files: SourceFiles, reading: Reading, readings: Readings | None = None) -> None:
        super().__init__(files, reading, readings)
        self._classes = reading.classes or Classes([], [])
        for field, text in (('boxes', 'array(float32,4)[]'), ('labels', 'int(4)[]')):
            if field in self.spec:
                raise SourceError(self.root, f'expected no other field {field!r} beside label files')
            self.spec[field] = text
        names = {'classes': self._classes.names} if self._classes.names else {}
        about = {'format': 'cxcywh', 'normalized': True, 'labels': 'labels'}
        self._describe({'boxes': about, 'labels': names})

    def load(self, entry: FileEntry[str], fields: Iterable[str] | None = None) -> dict[str, Any]:
        fields = list(self.spec if fields is None else fields)
        datapoint = super().load(entry, fields)
        if 'boxes' in fields or 'labels' in fields:
            boxes, labels = list[list[float]](), list[int]()
            if file := entry.files.get(LABEL_FIELD):
                text = datapoint.get(LABEL_FIELD)
                data = text.encode() if isinstance(text, str) else self._files.read(str(file), 'bytes')
                boxes, labels = parse_labels(f'{self.root.rstrip("/")}/{file}', data, self._classes)
            found = {'boxes': boxes, 'labels': labels}
            datapoint |= {field: found[field] for field in found if field in fields}
        return datapoint


def read_exported_files(root: str, exported: ExportedFields, names: Iterable[str]) -> Reading:
    """Returns the datapoints of an export.

    Raises:
        SourceError: A file does not belong to a field, or is missing.
    """
    by_key: dict[str, list[tuple[str, str]]] = {}
    for name in names:
        key, extension = split_key(name)
        by_key.setdefault(key, []).append((extension, name))
    try:
        groups: list[FileGroup] = [
            (key, group_exported(exported, files)) for key, files in sorted(by_key.items())
        ]
    except ValueError as exc:
        raise SourceError(root, str(exc)) from exc
    return Reading('exported', groups, FileMetadata())
