"""WebDataset tars as a source of datapoints.

The files of a datapoint follow each other and share their name up to the first dot. The rest of the name is
the field: `000017.jpg`, `000017.seg.png`. `metadata.csv` and `metadata.jsonl` add fields to the files that
they name.
"""

from __future__ import annotations

import errno
import itertools
import lzma
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bags.errors import SourceError
from bags.interop.exported import Exported
from bags.interop.extensions import LABELS, field_of, split_key, written_extensions_in_tar
from bags.interop.files import Entry, FileSource, Kind, check_columns, checked_value, group_exported
from bags.interop.metadata import INTEGER, NAMES, Metadata, join, read_metadata
from bags.interop.records import open_file
from bags.interop.source import Collecting, find_filesystem, list_paths

__all__ = ['TarSource', 'is_tar']

MAX_LABEL_BYTES = 64
"""Label files up to this size are read together with the file names, without another request."""


def is_tar(name: str) -> bool:
    """Returns whether a file, by its name, is a tar, which may be compressed."""
    return name.lower().endswith(('.tar', '.tar.gz', '.tgz', '.tar.bz2', '.tar.xz'))


class TarSource(FileSource):
    """The datapoints of WebDataset tars, one after the other; of a damaged tar, those before the damage."""

    def __init__(
        self,
        tars: list[str],
        storage_options: Mapping[str, Any] | None = None,
        exported: Exported | None = None,
    ) -> None:
        super().__init__('webdataset', 'webdataset', exported)
        self.storage_options = dict(storage_options or {})
        self.tars = list_paths(tars, self.storage_options)
        if not self.tars:
            raise FileNotFoundError(errno.ENOENT, 'no tars to import', ', '.join(tars))
        self._types: dict[str, dict[str, str]] = {}  # Types of table columns, by tar.
        kinds: Counter[Kind] = Counter()
        texts: set[str] = set()
        columns: dict[str, str] = {}
        for tar in self.tars:
            kinds += self._scan(tar, texts)
            for field, kind in self._types.get(tar, {}).items():
                known = columns.setdefault(field, kind)
                if {known, kind} == {'int(8)', 'float(8)'}:
                    columns[field] = 'float(8)'
                elif known != kind:
                    expected = f'expected {known}, as in other tars'
                    raise SourceError(tar, f'column {field!r}: {expected}, got {kind}')
        if exported is not None:
            self.count = kinds.total()
        else:
            self.infer(kinds, dict.fromkeys(set(LABELS) - texts, 'int(8)') | columns)

    def _scan(self, tar: str, texts: set[str]) -> Counter[Kind]:
        """Returns the number of datapoints of each kind.

        Adds labels that are not all integers to `texts`. Reads a tar with a table of metadata twice.
        """
        kinds: Counter[Kind] = Counter()
        with Collecting(self.damaged):
            for entry in self._entries_of(tar):
                base = entry.key.rpartition('/')[2]
                if (
                    self.exported is None
                    and tar not in self._types
                    and any(f'{base}.{each}' in NAMES for each in entry.files)
                ):
                    self._types[tar] = {}
                    return self._scan(tar, texts)
                kinds[entry.kind] += 1
                for field in entry.files.keys() & set(LABELS):
                    data = entry.files[field]
                    if not isinstance(data, bytes) or not INTEGER.fullmatch(str(data, 'latin-1').strip()):
                        texts.add(field)
            check_columns(tar, kinds)
        return kinds

    def _metadata_of(self, tar: str) -> Metadata:
        """Returns the tables among the files of a tar: `metadata.csv` and `metadata.jsonl`."""
        names, tables = [], {}
        for name, content in self._members(tar):
            name = name.removeprefix('./')
            names.append(name)
            if name.rpartition('/')[2] in NAMES:
                tables[name] = content if isinstance(content, bytes) else self._read(tar, *content)
        return read_metadata(tar, names, tables.__getitem__)

    def entries(self, start: int = 0) -> Iterator[Entry]:
        return itertools.islice(self._entries(), start, None)

    def _entries(self) -> Iterator[Entry]:
        damaged = dict(self.damaged)
        for tar in self.tars:
            try:
                yield from self._entries_of(tar)
            except SourceError as exc:
                if exc.name not in damaged:
                    raise

    def _entries_of(self, tar: str) -> Iterator[Entry]:
        try:
            metadata = Metadata()
            if tar in self._types:
                metadata = self._metadata_of(tar)
                self._types[tar] = metadata.types
            members = (
                (*split_key(name.removeprefix('./')), name.removeprefix('./'), content)
                for name, content in self._members(tar)
                if name.removeprefix('./') not in metadata.tables
            )
            for key, group in itertools.groupby(members, lambda member: member[0]):
                if self.exported is not None:
                    found = group_exported(self.exported, ((name, content) for _, name, _, content in group))
                    yield Entry(tar, key, found, {}, {})
                    continue
                files: dict[str, Any] = {}
                extensions: dict[str, str] = {}
                names = []
                for _, extension, name, content in group:
                    field = self.rename(field_of(extension.lower()))
                    if field in files:
                        content = SourceError(f'{tar}: {name}', 'is in one datapoint twice')
                    files[field], extensions[field] = content, extension
                    names.append(name)
                yield Entry(tar, key, files, join(names, metadata), written_extensions_in_tar(extensions))
        except (tarfile.TarError, ValueError, EOFError, OSError, zlib.error, lzma.LZMAError) as exc:
            if isinstance(exc, FileNotFoundError | PermissionError):
                raise
            raise SourceError(tar, str(exc)) from exc

    def _members(self, tar: str) -> Iterator[tuple[str, Any]]:
        """Yields the name of each file in a tar, with its start and size, or its content if compressed."""
        with open_file(tar, self.storage_options) as file, tarfile.open(fileobj=file) as members:
            is_compressed = members.fileobj is not file  # Whatever the name of the tar.
            while (member := members.next()) is not None:
                members.members = []  # type: ignore[attr-defined]  # Else it keeps all members.
                if not member.isfile() or _is_left_out(member.name):
                    continue
                is_label = member.size <= MAX_LABEL_BYTES and member.name.rpartition('.')[2] in LABELS
                if is_compressed or member.issparse() or is_label:
                    found = members.extractfile(member)
                    assert found is not None
                    yield member.name, found.read()
                else:
                    yield member.name, (member.offset_data, member.size)
            if not is_compressed:
                # tarfile takes a damaged or incomplete header for the end.
                file.seek(members.offset)
                if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                    where = f'at byte {members.offset}'
                    raise tarfile.ReadError(f'expected a file or the end of the archive {where}, got neither')

    def read(self, entry: Entry, field: str, word: str) -> Any:
        found = entry.files[field]
        if isinstance(found, SourceError):
            raise found
        name = f'{entry.origin}: {entry.key}.{field}'
        if isinstance(found, list):
            return (self._value(name, word, entry.origin, each) for each in found)
        return self._value(name, word, entry.origin, found)

    def _value(self, name: str, word: str, tar: str, found: Any) -> Any:
        return checked_value(name, word, found if isinstance(found, bytes) else self._read(tar, *found))

    def _read(self, tar: str, start: int, size: int) -> bytes:
        if not size:
            return b''  # An empty range is not valid, and object stores would return the whole file.
        data: bytes
        try:
            if ':' in tar:
                fs, path = find_filesystem(tar, self.storage_options)
                data = fs.cat_file(path, start=start, end=start + size)
            else:  # The same in a third of the time.
                with open(tar, 'rb') as file:
                    file.seek(start)
                    data = file.read(size)
        except OSError as exc:
            raise SourceError(tar, f'cannot be read: {exc}') from exc
        if len(data) != size:
            raise SourceError(tar, f'expected {size} bytes at {start}, got {len(data)}')
        return data


def _is_left_out(name: str) -> bool:
    """Returns whether a file belongs to no datapoint: WebDataset's own metadata, or a hidden file."""
    base = name.rpartition('/')[2]
    return base.startswith('.') or (name == base and name.startswith('__') and name.endswith('__'))
