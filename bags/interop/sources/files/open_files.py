"""Opens folders, zips and tars of files in a layout.

It is the layout that the user names, else that of the run that began the dataset, else the one that fits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from bags.errors import SourceError
from bags.interop.exported import ExportedFields
from bags.interop.files import FileSource
from bags.interop.source import Source
from bags.interop.sources.files.folders import FolderSource, SourceFiles, YoloSource
from bags.interop.sources.files.layouts import LAYOUTS
from bags.interop.sources.files.readings import Reading, Readings, ambiguity_of
from bags.interop.sources.files.webdataset import TarSource, open_tar

OF_TARS = ('webdataset', 'stems', 'classes')
"""The layouts that any number of tars may have."""


class FirstLayout(NamedTuple):
    """The layout of the run that began a dataset."""

    name: str
    is_given: bool
    """Whether the user gave it; otherwise it was detected."""


class FirstRun(NamedTuple):
    """What is known of the run that began the dataset."""

    layout: str | None
    """The layout; None if it is not known."""
    stored: Mapping[str, str]
    """The types of the fields by name in the source; empty if there is no dataset."""
    left_out: list[str]
    """The fields that the user leaves out."""

    def fit(self, source: Source) -> int:
        """Returns how well the fields of a source fit the dataset.

        2 if they have the same names, 1 if the source has those that the dataset requires, and requires no
        others, else 0.
        """
        fields = {name: text for name, text in source.spec.items() if name not in self.left_out}
        wanted = {name for name, text in self.stored.items() if not text.endswith('?')}
        required = {name for name, text in fields.items() if not text.endswith('?')}
        same = all(
            self.stored[name].count('[]') == fields[name].count('[]') for name in fields.keys() & self.stored
        )
        if not (same and wanted <= fields.keys() and required <= self.stored.keys()):
            return 0
        return 2 if fields.keys() == self.stored.keys() else 1


def open_folder(
    files: SourceFiles, readings: Readings, layout: str | None, run: FirstRun
) -> tuple[FolderSource, set[str]]:
    """Opens files in the given layout, else in that of the first run, else in the one that fits.

    Returns:
        The source, and the files that it reads.
    """
    is_given = layout is not None
    layout = layout or (run.layout if run.layout in LAYOUTS else None)
    if layout is not None:
        reading = readings.read(layout, is_given=is_given, is_continued=bool(run.stored))
        return _make_source(files, readings, reading), reading.paths()
    reading, several = readings.choose()
    source = _make_source(files, readings, reading)
    if not run.stored:
        source.ambiguity = ambiguity_of(files.root, (each.facts for each in several)) if several else None
    elif (best := run.fit(source)) < 2:
        # The fields of the layout `files` may be those of another one, so that it comes last.
        for other in sorted(readings.all()[1:], key=lambda each: each.layout == 'files'):
            candidate = _make_source(files, readings, other)
            if run.fit(candidate) > best:
                reading, source, best = other, candidate, run.fit(candidate)
    return source, reading.paths()


def _make_source(files: SourceFiles, readings: Readings, reading: Reading) -> FolderSource:
    return (YoloSource if reading.layout == 'yolo' else FolderSource)(files, reading, readings)


def open_tars(
    paths: list[str],
    layout: str | None,
    storage_options: Mapping[str, Any] | None,
    exported: ExportedFields | None,
    run: FirstRun,
) -> FileSource[Any]:
    """Opens tars in the given layout, else in that of the first run, else as WebDataset does.

    Folders of classes then add labels.
    """
    layout = layout or run.layout
    if layout in LAYOUTS and layout not in OF_TARS:
        if len(paths) > 1:
            raise SourceError(
                paths[0], f'expected one tar for layout={layout!r}, got {len(paths)}: unpack them'
            )
        files = open_tar(paths[0], storage_options)
        return open_folder(files, Readings(files, files.names), layout, run)[0]
    source = TarSource(paths, storage_options, exported, layout=layout if layout in OF_TARS else None)
    if layout is not None:
        source.ambiguity = None
    elif run.stored:
        source.ambiguity = None
        best = run.fit(source)
        for other in OF_TARS if best < 2 and exported is None else ():
            with contextlib.suppress(SourceError):  # Files outside of folders of classes.
                candidate = TarSource(paths, storage_options, layout=other)
                if run.fit(candidate) > best:
                    source, best = candidate, run.fit(candidate)
    elif exported is None and (folder := source.as_folder()):
        reading, several = Readings(folder, folder.names).choose()
        own = ('files', 'stems', 'classes', 'episodes')
        own_readings = source.readings()
        source.other_readings = [each.facts for each in several or [reading] if each.layout not in own]
        if source.other_readings:
            source.ambiguity = ambiguity_of(folder.root, [*source.other_readings, *own_readings])
    return source
