"""WebDataset tars as a source of datapoints.

The files of a datapoint follow each other and share their name up to the first dot. The rest of the name is
the field: `000017.jpg`, `000017.seg.png`. With the layout `stems`, they may be anywhere in a tar, as
`tar cf x.tar *.jpg *.txt` writes them. Folders of classes, `cat/1.jpg`, add the field `label`, as in a folder
of files (layout `classes`). `metadata.csv` and `metadata.jsonl` add fields to the files that they
name.
"""

from __future__ import annotations

import errno
import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bags.concurrency import map_concurrently
from bags.errors import SourceError
from bags.formats.signatures import SIGNATURE_BYTES
from bags.interop.exported import ExportedFields
from bags.interop.file_extensions import LABELS, field_of, split_key, written_extensions_in_tar
from bags.interop.files import (
    FieldSet,
    FileEntry,
    FileSource,
    check_columns,
    checked_value,
    group_exported,
    is_transport_stream,
)
from bags.interop.ignored_files import METADATA_TABLES, is_beside, is_hidden
from bags.interop.source import check_expanded, collect_errors, list_some
from bags.interop.sources.files.file_metadata import (
    INTEGER,
    FileMetadata,
    check_table_size,
    join,
    read_metadata,
    unite,
)
from bags.interop.sources.files.folders_of_fields import may_tell_fields
from bags.interop.sources.files.layouts import MAX_BESIDE, find_layout, without_strays
from bags.interop.sources.files.readings import ambiguity_of
from bags.interop.sources.files.tar_files import Content, Tar, TarFiles, content_size, link_in_tar
from bags.interop.stores import list_paths

Member = tuple[str, str, str, Content]
"""A file of a tar: the key of its datapoint, the rest of its name, its name, and its content."""
MAX_TARS = 32
"""Maximum number of tars on an object store whose headers are read concurrently."""
MAX_DESCRIPTION_BYTES = 1 << 16
"""Files of a compressed tar up to this size are read to find the layouts that fit it."""
MAX_LABEL_BYTES = 64
"""Label files up to this size are read together with the file names, without another request."""


def is_tar(name: str) -> bool:
    """Returns whether a file name has the extension of a tar, compressed or not."""
    return name.lower().endswith(('.tar', '.tar.gz', '.tgz', '.tar.bz2', '.tar.xz', '.tar.zst'))


class TarSource(FileSource[Content]):
    """The datapoints of WebDataset tars, in order. A damaged tar yields the datapoints before the damage.

    A damaged tar that is compressed yields none: its checksum does not tell where the damage begins.
    """

    def __init__(
        self,
        tars: list[str],
        storage_options: Mapping[str, Any] | None = None,
        exported: ExportedFields | None = None,
        *,
        layout: str | None = None,
    ) -> None:
        """Reads the headers of the tars.

        Args:
            tars: Paths, URLs and globs.
            storage_options: As in `bags.open`.
            exported: The fields of an export.
            layout: 'stems' joins the files of a key anywhere in a tar, 'webdataset' only those that follow
                each other; 'classes' joins them where 'stems' would complete datapoints. Default: 'classes'
                for folders of classes, else 'webdataset', with an `ambiguity` if 'stems' would complete
                datapoints.

        Raises:
            SourceError: With the layout 'classes', a file is outside of any folder.
        """
        super().__init__('webdataset', layout or 'webdataset', exported)
        self.storage_options = dict(storage_options or {})
        self.tars = list_paths(tars, self.storage_options)
        if not self.tars:
            raise FileNotFoundError(errno.ENOENT, 'no tars to import', ', '.join(tars))
        self._open = {
            path: Tar(path, self.storage_options, _is_label, self._is_left_out) for path in self.tars
        }
        self._types: dict[str, dict[str, str]] = {}  # Types of table columns, by tar.
        self._notes: dict[str, list[str]] = {}  # Notes about these columns, by tar.
        self._inexact: set[str] = set()
        """Columns with integers that a float does not hold."""
        self._beside: dict[str, set[str]] = {}
        """Names of documents and checksums beside the data, by tar."""
        remote = [tar for tar in self._open.values() if tar.is_remote]
        map_concurrently(Tar.read_headers, remote, max_threads=MAX_TARS)
        field_sets: Counter[FieldSet] = Counter()
        texts: set[str] = set()
        columns: dict[str, str] = {}
        self._by_content: dict[str, str] = {}
        """The type of each field with the extension `.ts`, from the content of its first file."""
        documents = Counter[FieldSet]()
        self._may_be_folder = False
        """Whether there is one tar, whose folders or tables may give it another reading."""
        self.other_readings: list[tuple[str, int]] = []
        """The layouts of a folder that fit it, with their numbers of datapoints."""
        self._in_classes: list[str] | None = None
        """The names of all files, if these may be folders of classes."""
        if exported is None and layout in (None, 'classes'):
            self._in_classes = []
        self._outside: list[tuple[str, list[str], FieldSet]] = []
        """The tar, names and fields of datapoints outside of any folder, if the others may be of classes."""
        self._has_labels = self._may_have_labels = False
        self._joined_anywhere: set[str] = set()
        """Tars of the layout 'classes' with files of a key in several places."""
        self._joined: list[tuple[str, int]] = []
        """Tars with files of a key in several places, and how many datapoints fewer there are if joined."""
        for tar in self.tars:
            field_sets += self._scan(tar, texts, documents)
            for field, field_type in self._types.get(tar, {}).items():
                known = columns.setdefault(field, field_type)
                columns[field] = unite(known, field_type, is_exact=field not in self._inexact)
                if columns[field] not in (known, 'float(8)'):
                    about = f'expected {known}, as in the tars before, got {field_type}'
                    self.notes.append(f'{tar}: column {field!r} is {columns[field]}: {about}')
            self.notes += self._notes.get(tar, [])
        self.from_text = set(columns)
        if field_sets:
            self.notes += [
                f'{path}: left out: {list_some(sorted(names))}' for path, names in self._beside.items()
            ]
        else:
            field_sets, self._beside = documents, {}
        self.notes += [
            f'{path}: {count} {members} are left out'
            for path, tar in self._open.items()
            for members, count in tar.left_out.items()
        ]
        if exported is not None:
            self.count = field_sets.total()
            return
        field_sets = self._with_labels(field_sets, given=layout == 'classes')
        types = dict.fromkeys(set(LABELS) - texts, 'int(8)') | self._by_content | columns
        self.infer(field_sets, types | ({'label': 'utf8'} if self._has_labels else {}))
        if self._joined and layout is None:
            self.ambiguity = ambiguity_of(self._joined[0][0], self.readings()[::-1])

    def _with_labels(self, field_sets: Counter[FieldSet], *, given: bool) -> Counter[FieldSet]:
        """Adds the field `label` if the files are in folders of classes, without strays beside these."""
        names = self._in_classes or []
        inside = without_strays(names)
        if not given and (not names or find_layout(inside) != 'classes'):
            return field_sets
        self._may_have_labels = True
        if not given and self._joined:
            return field_sets
        self.layout, left_out = 'classes', set(names).difference(inside)
        for tar, outside, field_set in self._outside:
            if not left_out.issuperset(outside):
                raise SourceError(
                    f'{tar}: {outside[0]}', 'expected a folder for each class, got a file outside of any'
                )
            field_sets[field_set] -= 1
            self._beside.setdefault(tar, set()).update(outside)
            self.notes.append(f'{tar}: left out: {list_some(sorted(outside))}')
        field_sets = +field_sets
        if any('label' in files or 'label' in columns for files, columns, _ in field_sets):
            return field_sets
        self._has_labels = True
        return Counter(
            {
                (files, columns | {'label'}, has_extensions): count
                for (files, columns, has_extensions), count in field_sets.items()
            }
        )

    def as_folder(self) -> TarFiles | None:
        """Returns the files of the only tar, if they may have a layout of a folder; None if they may not."""
        if not self._may_be_folder or self.damaged:
            return None
        try:
            return TarFiles(self._open[self.tars[0]], MAX_DESCRIPTION_BYTES)
        except SourceError:  # Names that are used twice.
            return None

    def readings(self) -> list[tuple[str, int]]:
        fewer = self.count - sum(count for _, count in self._joined)
        other = [('webdataset', self.count)] if self._has_labels else []
        if self._joined and self.layout == 'webdataset':
            other = [('stems', fewer), *([('classes', fewer)] if self._may_have_labels else [])]
        return [*super().readings(), *other, *self.other_readings]

    def _scan(self, tar: str, texts: set[str], documents: Counter[FieldSet]) -> Counter[FieldSet]:
        """Returns the number of datapoints with each set of fields.

        Adds label fields with other values than integers to `texts`, and counts documents in `documents`.
        Reads a tar with a metadata table twice.
        """
        field_sets: Counter[FieldSet] = Counter()
        described: list[tuple[list[str], FieldSet]] = []
        fields_of: dict[str, set[str]] = {}
        repeated, is_twice = 0, False
        in_classes: list[str] = []
        outside: list[tuple[str, list[str], FieldSet]] = []
        root: list[str] | None = None
        found = len(self.damaged)
        with collect_errors(self.damaged):
            for entry, names in self._named_entries_of(tar):
                base = entry.key.rpartition('/')[2]
                if (
                    self.exported is None
                    and tar not in self._types
                    and any(f'{base}.{each}' in METADATA_TABLES for each in entry.files)
                ):
                    self._types[tar] = {}
                    return self._scan(tar, texts, documents)
                root = _common(root, entry.key.split('/')[:-1])
                if (before := fields_of.get(entry.key)) is None:
                    fields_of[entry.key] = set(entry.files)
                else:
                    repeated += 1
                    is_twice |= not before.isdisjoint(entry.files)
                    before.update(entry.files)
                for field in entry.files.keys() & set(LABELS):
                    data = entry.files[field]
                    if not isinstance(data, bytes) or not INTEGER.fullmatch(str(data, 'latin-1').strip()):
                        texts.add(field)
                for field, content in entry.files.items():
                    is_new = field.rpartition('.')[2] == 'ts' and field not in self._by_content
                    if is_new and not isinstance(content, list):  # Only exports have lists.
                        head = functools.partial(self._open[tar].head, content, SIGNATURE_BYTES)
                        self._by_content[field] = 'video' if is_transport_stream('ts', head) else 'bytes'
                if names and all(is_beside(name.rpartition('/')[2]) for name in names):
                    described.append((names, entry.field_set))
                else:
                    field_sets[entry.field_set] += 1
                    in_classes += names
                    if '/' not in entry.key:
                        outside.append((tar, names, entry.field_set))
                    if self._in_classes is None or len(outside) > MAX_BESIDE or entry.key.count('/') > 1:
                        in_classes, outside = [], outside[:1]
                        self._in_classes = None
            check_columns(tar, field_sets)
        if repeated and not is_twice and self.exported is None:
            if self.layout == 'classes' and tar not in self._joined_anywhere:
                self._joined_anywhere.add(tar)
                return self._scan(tar, texts, documents)
            self._joined.append((tar, repeated))
        self._outside += outside
        if self._in_classes is not None:
            self._in_classes += in_classes
        differ = len({files for files, *_ in field_sets}) > 1
        if len(self.tars) == 1:
            self._may_be_folder = differ or may_tell_fields(fields_of)
        top = ''.join(f'{part}/' for part in root or ())
        for names, field_set in described:
            is_document = all(is_beside(name.removeprefix(top)) for name in names)
            (documents if is_document else field_sets)[field_set] += 1
            if is_document:
                self._beside.setdefault(tar, set()).update(names)
        is_left_out = self._open[tar].is_compressed and len(self.damaged) > found
        return Counter() if is_left_out else field_sets

    def _metadata_of(self, tar: str) -> FileMetadata:
        """Reads the metadata tables of a tar: `metadata.csv` and `metadata.jsonl`."""
        names, tables = [], dict[str, Content]()
        for name, content in self._open[tar].files():
            name = name.removeprefix('./')
            names.append(name)
            if name.rpartition('/')[2] in METADATA_TABLES:
                tables[name] = content

        def read(name: str, limit: int) -> bytes:
            check_table_size(f'{tar}/{name}', content_size(tables[name]), limit)
            return self._open[tar].read(tables[name])

        return read_metadata(tar, names, read)

    def entries(self, start: int = 0) -> Iterator[FileEntry[Content]]:
        return itertools.islice(self._entries(), start, None)

    def _entries(self) -> Iterator[FileEntry[Content]]:
        damaged = dict(self.damaged)
        for tar in self.tars:
            if tar in damaged and self._open[tar].is_compressed:
                continue
            try:
                yield from self._entries_of(tar)
            except SourceError as exc:
                if exc.name not in damaged:
                    raise

    def _entries_of(self, tar: str) -> Iterator[FileEntry[Content]]:
        beside = self._beside.get(tar, ())
        for entry, names in self._named_entries_of(tar):
            if not names or names[0] not in beside:
                if self._has_labels:
                    entry.columns['label'] = entry.key.partition('/')[0]
                yield entry

    def _named_entries_of(self, tar: str) -> Iterator[tuple[FileEntry[Content], list[str]]]:
        """Yields each entry and the names of its files; for an export, the names are empty."""
        try:
            metadata = FileMetadata()
            if tar in self._types:
                metadata = self._metadata_of(tar)
                self._types[tar] = metadata.types
                self._notes[tar] = metadata.notes
                self._inexact |= metadata.inexact
            members = (
                (*split_key(name.removeprefix('./')), name.removeprefix('./'), content)
                for name, content in self._open[tar].files()
                if name.removeprefix('./') not in metadata.tables
                and not self._is_beside_export(tar, name.removeprefix('./'))
            )
            for key, group in self._grouped(tar, members):
                if self.exported is not None:
                    found = group_exported(self.exported, ((name, content) for _, name, _, content in group))
                    yield FileEntry(tar, key, found, {}, {}), []
                    continue
                files: dict[str, Content | list[Content]] = {}
                extensions: dict[str, str] = {}
                names = []
                for _, extension, name, content in group:
                    field = self.rename(field_of(extension.lower()))
                    if field in files:
                        content = SourceError(f'{tar}: {name}', 'is in one datapoint twice')
                    files[field], extensions[field] = content, extension
                    names.append(name)
                columns = join(names, metadata)
                yield FileEntry(tar, key, files, columns, written_extensions_in_tar(extensions)), names
        except (ValueError, OSError) as exc:
            is_local_refusal = isinstance(exc, PermissionError) and not self._open[tar].is_remote
            if isinstance(exc, FileNotFoundError | PermissionError) and not is_local_refusal:
                raise  # On an object store, wrong credentials affect all tars.
            raise SourceError(tar, f'cannot be read: {exc}' if is_local_refusal else str(exc)) from exc

    def _grouped(self, tar: str, members: Iterator[Member]) -> Iterator[tuple[str, Iterable[Member]]]:
        """Yields each key with its files: all that are in the tar, or those that follow each other."""
        if self.layout != 'stems' and tar not in self._joined_anywhere:
            yield from itertools.groupby(_bounded(members), lambda member: member[0])
            return
        groups: dict[str, list[Member]] = {}
        size = 0
        for member in members:
            groups.setdefault(member[0], []).append(member)
            size += content_size(member[3], only_expanded=True)
            check_expanded(size, 'all files of a tar that is compressed, to join those of a key: unpack it')
        yield from groups.items()

    def _is_beside_export(self, tar: str, name: str) -> bool:
        """Returns whether a file was added to an export later, and notes it."""
        if self.exported is None or not is_beside(name) or self.exported.has(name):
            return False
        self._beside.setdefault(tar, set()).add(name)
        return True

    def _is_left_out(self, name: str) -> bool:
        is_own = self.exported is not None and self.exported.has(name.removeprefix('./'))
        return not is_own and _is_left_out(name)

    def read(self, entry: FileEntry[Content], field: str, type_format: str) -> Any:
        found, tar = entry.files[field], self._open[entry.origin]
        name = f'{entry.origin}: {entry.key}.{field}'
        if field in self.linked:
            many = found if isinstance(found, list) else [found]
            links = [link_in_tar(name, type_format, tar, each, self.opener) for each in many]
            return links if many is found else links[0]
        if isinstance(found, list):
            return (checked_value(name, type_format, tar.read(each)) for each in found)
        return checked_value(name, type_format, tar.read(found))

    def linkable(self) -> dict[str, float | str]:
        compressed = [path for path, tar in self._open.items() if tar.is_compressed]
        if len(compressed) == len(self.tars):
            return dict.fromkeys(self.spec, 'compressed tars have no files that could be linked')
        if compressed:
            self.notes.append(f'the files of compressed tars are copied: {list_some(compressed)}')
        return super().linkable()

    def sizes(self, entry: FileEntry[Content]) -> dict[str, int]:
        return {
            field: sum(map(content_size, found if isinstance(found, list) else [found]))
            for field, found in entry.files.items()
        }

    def size(self, entry: FileEntry[Content]) -> int:
        return sum(size for field, size in self.sizes(entry).items() if field not in self.linked)


def open_tar(path: str, storage_options: Mapping[str, Any] | None) -> TarFiles:
    """Opens a tar as a folder of its files, without those that an import leaves out."""
    return TarFiles(Tar(path, dict(storage_options or {}), lambda *_: False, _is_left_out))


def _bounded(members: Iterable[Member]) -> Iterator[Member]:
    """Yields the files of a tar; raises ValueError if the expanded files of a datapoint are too large."""
    key, size = None, 0
    for member in members:
        key, size = member[0], size if member[0] == key else 0
        size += content_size(member[3], only_expanded=True)
        check_expanded(size, f'the files of {key!r:.200}, compressed or sparse')
        yield member


def _common(one: list[str] | None, other: list[str]) -> list[str]:
    """Returns the common path of two folders, as a list of its parts."""
    if one is None or one == other:
        return other
    return [part for part, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other))]  # noqa: B905


def _is_label(name: str, size: int) -> bool:
    return size <= MAX_LABEL_BYTES and name.rpartition('.')[2] in LABELS


def _is_left_out(name: str) -> bool:
    """Returns whether a file is left out: a hidden file, or WebDataset's own metadata.

    Folder names may be parts of keys, except the folder of macOS.
    """
    *folders, base = name.removeprefix('./').split('/')
    is_own = not folders and base.startswith('__') and base.endswith('__')
    return is_own or is_hidden(base) or '__MACOSX' in folders
