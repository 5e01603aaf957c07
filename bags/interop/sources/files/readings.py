"""Readings of a folder: the layouts that fit its files, with their datapoints, and the one that is imported.

Names of files decide, and the content of the few files that describe others: JSON of COCO, label files of
YOLO, and tables. An import takes

1. the layout that the user names, or that the first run had,
2. COCO, YOLO or a table with names of files, if one of them fits,
3. the layout that the names of folders and files suggest (`find_layout`).

If several of 2 fit, or if `fields` would complete the datapoints of 3 or of a table, or photos with boxes by
masks, the import raises an error that lists the readings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from bags.concurrency import cached_attribute
from bags.errors import SourceError
from bags.interop.file_extensions import split_name
from bags.interop.ignored_files import is_beside
from bags.interop.source import list_some
from bags.interop.sources.files.coco import find_coco, is_photo, read_coco
from bags.interop.sources.files.fields import FileGroup, find_fields, group_fields
from bags.interop.sources.files.file_metadata import (
    NO_NAMES,
    FileMetadata,
    check_table_size,
    read_metadata,
    tables_in,
)
from bags.interop.sources.files.layouts import (
    LABEL_FIELD,
    LAYOUTS,
    describe,
    find_layout,
    group,
    group_photos,
    label_files,
)
from bags.interop.sources.files.yolo import Classes, are_labels, may_be_of_yolo, read_classes


class Contents(Protocol):
    """The contents of files, by their paths in a folder or an archive."""

    root: str

    def head(self, name: str, size: int | None = None) -> bytes:
        """Returns the first bytes of a file; all if `size` is None."""

    def size(self, name: str) -> int:
        """Returns the size of a file in bytes."""


class Reading(NamedTuple):
    """What a layout takes the files of a folder for."""

    layout: str
    groups: list[FileGroup]
    """The datapoints."""
    metadata: FileMetadata
    """The columns of tables and of annotations."""
    classes: Classes | None = None
    """The classes of YOLO."""
    depth: int | None = None
    """The number of folders above those that are fields; None if none are."""
    has_labels: bool = False
    """Whether the first folder of a key is the class of the datapoint."""

    @property
    def facts(self) -> tuple[str, int]:
        """The layout and the number of datapoints."""
        return self.layout, len(self.groups)

    def paths(self) -> set[str]:
        """Returns the files that are read."""
        paths = set(self.classes.files if self.classes else ())
        for _, files in self.groups:
            for file in files.values():
                paths.update(file if isinstance(file, list) else (file,))
        if not paths.isdisjoint(self.metadata.rows):  # Else the tables only have rows of other files.
            paths.update(self.metadata.tables)
        return paths


def ambiguity_of(path: str, readings: Iterable[tuple[str, int]]) -> SourceError:
    """Returns the error for files that several layouts fit, given their numbers of datapoints."""
    each = '; '.join(f'layout={layout!r}: {describe(layout, count)}' for layout, count in readings)
    detail = f'its files may be read in several ways, pass the layout that is meant: {each}'
    return SourceError(path, detail)


class Readings:
    """The readings of a folder.

    Args:
        files: The contents of the files.
        names: The files that are datapoints, without strays and documents.
        others: Further files of the folder, which may describe these.
    """

    def __init__(self, files: Contents, names: Collection[str], others: Iterable[str] = ()) -> None:
        self._files, self._names = files, sorted(names)
        rest = list(others)
        self._visible = sorted([*self._names, *rest]) if rest else self._names
        described = [name for name in rest if not is_beside(name)]
        self._all = sorted([*self._names, *described]) if described else self._names

    def read(self, layout: str, *, is_given: bool = True, is_continued: bool = False) -> Reading:
        """Returns the reading of a layout.

        Args:
            layout: The layout.
            is_given: Whether the user gives it: `files` and `stems` then have documents and strays too.
            is_continued: Whether a dataset of this layout is continued: files outside of the folders of
                `classes` and `episodes` are then left out.

        Raises:
            SourceError: The files do not have the layout.
        """
        root = self._files.root
        if layout == 'coco':
            if (reading := self._coco) is None:
                raise SourceError(root, 'expected photos, and JSON of COCO with their boxes')
            return reading
        if layout == 'yolo':
            if not label_files(self._all):
                where = "'images/1.jpg' and 'labels/1.txt', or both in one folder"
                raise SourceError(root, f'expected photos and label files: {where}')
            return self._yolo()
        if layout == 'tables':
            metadata = self._other_tables
            if not metadata.tables:
                raise SourceError(
                    root, '; '.join(metadata.notes) or 'expected a table with names of the files'
                )
            return Reading(layout, group(_without(self._all, metadata.tables), layout), metadata)
        is_whole = is_given and layout in ('files', 'stems')
        names = self._visible if is_whole else self._all if layout == 'fields' else self._names
        metadata = FileMetadata() if layout == 'episodes' else self._metadata(names)
        names = _without(names, metadata.tables)
        if is_continued and layout in ('classes', 'episodes'):
            names = [name for name in names if '/' in name] or names
        if layout == 'fields':
            groups, depth = group_fields(names)
            keys = [f'{key}.{LABEL_FIELD}' for key, _ in groups]
            has_labels = depth is None and find_layout(keys) == 'classes'
            return Reading(layout, groups, metadata, depth=depth, has_labels=has_labels)
        return Reading(layout, group(names, layout), metadata, has_labels=layout == 'classes')

    def choose(self) -> tuple[Reading, list[Reading]]:
        """Returns the reading that an import takes, and those that the user has to choose from, if any.

        The latter complete datapoints that the former leaves incomplete.
        """
        try:
            fitting = [self._coco]
        except SourceError as exc:
            detail = f"{exc.detail}; layout='stems' imports the JSON as a file"
            raise SourceError(exc.name, detail) from exc
        if are_labels(self._labels_apart(), self._files.head):
            fitting.append(self._yolo())
        if self._other_tables.tables:
            fitting.append(self.read('tables'))
        if found := [reading for reading in fitting if reading is not None]:
            if len(found) == 1 and (found[0].layout == 'tables' or _has_field_without_boxes(found[0])):
                found += self._fewer_than(found[0])
            return found[0], found if len(found) > 1 else []
        metadata = self._metadata(self._names)
        names = _without(self._names, metadata.tables)
        layout = find_layout(names)
        if layout == 'episodes' and metadata.rows:
            layout = 'stems'  # The rows describe single files.
        root = self._files.root.rstrip('/')
        own = tuple(f'{root}/{name}: ' for name in tables_in(self._names))
        notes = self._other_tables.notes
        notes = [note for note in notes if note.startswith(own) or not note.endswith(NO_NAMES)]
        if self._coco_files:
            notes.append(f'{root}: {list_some(self._coco_files)}: no annotations of photos that are there')
        metadata.notes += [note for note in notes if note not in metadata.notes]
        reading = Reading(layout, group(names, layout), metadata, has_labels=layout == 'classes')
        fields = self._fewer_than(reading)
        if layout == 'episodes' and fields and fields[0].depth != 0:
            return reading, []
        return reading, [*fields, self.read(layout)] if fields else []

    def _fewer_than(self, reading: Reading) -> list[Reading]:
        """Returns the layout `fields` if it completes datapoints of another reading; else an empty list."""
        fields = self._try('fields')
        return [fields] if fields and len(fields.groups) < len(reading.groups) else []

    def all(self) -> list[Reading]:
        """Returns every reading that fits, first the one that an import takes."""
        try:
            readings = [self.choose()[0]]
        except SourceError:  # Annotations are damaged.
            readings = []
        layouts = [layout for layout in LAYOUTS if layout not in {each.layout for each in readings}]
        return [*readings, *(each for layout in layouts if (each := self._try(layout)))]

    def _try(self, layout: str) -> Reading | None:
        if layout == 'yolo' and not are_labels([*label_files(self._all).values()], self._files.head):
            return None
        try:
            reading = self.read(layout)
        except SourceError:
            return None
        if (
            layout in ('classes', 'episodes')
            and len({key.partition('/')[0] for key, _ in reading.groups}) < 2
        ):
            return None
        has_items = any(isinstance(file, list) for _, files in reading.groups for file in files.values())
        return None if layout == 'episodes' and not has_items else reading

    @cached_attribute
    def _coco_files(self) -> list[str]:
        return find_coco(self._all, self._files.head)

    @cached_attribute
    def _coco(self) -> Reading | None:
        if not self._coco_files:
            return None
        metadata = read_coco(self._files.root, self._coco_files, self._all, self._files.head)
        if metadata is None:
            return None
        metadata.unite(self._metadata(self._all))
        return Reading('coco', group_photos(_without(self._all, metadata.tables)), metadata)

    def _yolo(self) -> Reading:
        metadata, classes = self._metadata(self._all), read_classes(self._all, self._files.head)
        names = _without(self._all, [*metadata.tables, *classes.files])
        return Reading('yolo', group_photos(names, label_files(names)), metadata, classes)

    def _labels_apart(self) -> list[str]:
        """Returns the label files in other folders than their photos; all if there are names of classes."""
        if not any(map(may_be_of_yolo, self._all)):
            return []
        labels = label_files(self._all)
        apart = [label for photo, label in labels.items() if split_name(photo)[0] != split_name(label)[0]]
        has_names = not apart and labels and read_classes(self._all, self._files.head).names
        return [*labels.values()] if has_names else apart

    def _metadata(self, names: Iterable[str]) -> FileMetadata:
        return read_metadata(self._files.root, names, self._read_table)

    def _read_table(self, name: str, limit: int) -> bytes:
        check_table_size(f'{self._files.root.rstrip("/")}/{name}', self._files.size(name), limit)
        return self._files.head(name)

    @cached_attribute
    def _other_tables(self) -> FileMetadata:
        """The columns of all tables, if some have other names than `metadata.csv`; else notes about these."""
        if not (others := tables_in(self._all)):
            return FileMetadata()
        metadata = read_metadata(self._files.root, self._all, self._read_table, others)
        if not set(metadata.tables) - set(self._metadata(self._all).tables):
            metadata.tables = []
        return metadata


def _has_field_without_boxes(reading: Reading) -> bool:
    """Returns whether files of a field, none of which has boxes, complete other photos: `masks/x.png`."""
    if reading.layout not in ('coco', 'yolo'):
        return False
    have_boxes: dict[str, bool] = {}
    for _, files in reading.groups:
        for file in files.values():
            if isinstance(file, str) and is_photo(file):
                annotations = reading.metadata.rows.get(file, {}).get('annotations')
                have_boxes[file] = LABEL_FIELD in files or annotations not in (None, '[]')
    if all(have_boxes.values()) or (found := find_fields(have_boxes)) is None:
        return False
    boxes_of: Counter[tuple[str, str]] = Counter()
    for photo, parts in found.parts.items():
        boxes_of[parts.folder, parts.affix] += have_boxes[photo]
    return not all(boxes_of.values())


def _without(names: list[str], others: Iterable[str]) -> list[str]:
    left_out = set(others)
    return [name for name in names if name not in left_out]
