"""`open_source`: detects the format of a source, and opens it."""

from __future__ import annotations

import errno
import fnmatch
import importlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from bags.dataset.metadata import MAX_METADATA_BYTES, METADATA, Metadata, load_metadata
from bags.errors import CorruptError, SourceError, SpecError
from bags.interop.exported import EXPORT, read_exported
from bags.interop.extensions import KEY
from bags.interop.files import FileSource
from bags.interop.folders import FolderSource, list_files
from bags.interop.records import open_file
from bags.interop.source import Source, find_filesystem, list_paths
from bags.interop.webdataset import TarSource, is_tar
from bags.validation import import_optional, one_of

__all__ = ['FORMATS', 'SourcePath', 'open_source']

SourcePath = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Format(NamedTuple):
    """A format, and the library that reads it."""

    module: str
    """The module in `bags.interop.sources`. Its `open_source(paths, storage_options)` opens files, or a
    folder with the marker."""
    files: tuple[str, ...]
    """Patterns of file names, in lower case."""
    packages: tuple[str, ...] = ()
    extra: str = ''
    """The extra that installs the packages."""
    marker: str | None = None
    """Path of the file that identifies a folder of this format.

    Without a marker, a folder has this format if all its files match.
    """


FORMATS: dict[str, Format] = {
    'mds': Format('mds', ('*.mds', '*.mds.*'), marker='index.json'),
    'litdata': Format('litdata', ('*.bin',), marker='index.json'),
    'tfrecord': Format('tfrecord', ('*.tfrecord*', '*.tfrec'), ('google_crc32c',), 'tfrecord'),
    'array_record': Format(
        'array_record', ('*.array_record*', '*.arrayrecord*'), ('array_record',), 'array-record'
    ),
    'bagz': Format('bagz', ('*.bagz', '*.bag')),
    'lerobot': Format('lerobot', ('*.parquet',), ('av', 'pyarrow'), 'lerobot', 'meta/info.json'),
    'hdf5': Format('hdf5', ('*.hdf5', '*.h5', '*.hdf'), ('h5py',), 'hdf5'),
    'zarr': Format('zarr', ('*.zarr', '*.zarr.zip'), ('zarr',), 'zarr'),
    'npz': Format('npz', ('*.npz',)),
    'parquet': Format('arrow', ('*.parquet', '*.parq', '*.pq', 'dataset_infos.json'), ('pyarrow',), 'hf'),
    'arrow': Format(
        'arrow',
        ('*.arrow', '*.feather', '*.ipc', 'state.json', 'dataset_info.json', 'dataset_dict.json'),
        ('pyarrow',),
        'hf',
    ),
    'mcap': Format('mcap', ('*.mcap', '*.db3', '*.bag', 'metadata.yaml'), ('rosbags',), 'mcap'),
}
"""Formats by name, in the order in which they are tried."""
_BESIDE = ('readme*', 'license*', '*.md', '_success', 'features.json', 'dataset_info.json', '*.labels.txt')
"""Files that may lie beside those of a format, and are left out."""
_RANGE = re.compile(r'\{(\d+)\.\.(\d+)\}')
MAX_FILES = 1_000_000
"""Maximum number of files in a range."""


def open_source(
    source: SourcePath,
    *,
    format: str | None = None,
    layout: str | None = None,
    spec: Mapping[str, str | None] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    on_error: Literal['raise', 'skip'] = 'raise',
) -> Source:
    """Opens data in another format as the source of a dataset, without reading values.

    Args:
        source: A file, a folder, or a list, glob or range of files (`train-{000..099}.tar`); path or URL.
        format: Name of a format in docs/import.md; detected by the names of files unless given.
        layout: Layout of a folder of media: 'files', 'stems', 'classes' or 'episodes'; detected unless given.
        spec: Changes to the spec: a type by field, or None to leave a field out.
        storage_options: As in `bags.open`, for a URL; `client` and `retries` have no effect.
        on_error: 'raise' refuses damaged files, 'skip' leaves them out, but keeps the datapoints of a tar
            that is not compressed before the damage.

    Raises:
        FileNotFoundError: The source does not exist.
        MissingDependencyError: The library that reads the format is not installed.
        SourceError: An unknown format, files that cannot be grouped into datapoints, or damage.
        SpecError: A type for a field that does not exist.
    """
    if not isinstance(source, str | os.PathLike | Iterable):
        raise TypeError(f'source: expected a path or several paths, got {source!r:.80}')
    if not isinstance(spec, Mapping | None):
        raise TypeError(f'spec: expected a mapping of fields to types, got {spec!r:.80}')
    if format is not None:
        one_of('format', format, (*FORMATS, 'folder', 'webdataset'))
    parts = [source] if isinstance(source, str | os.PathLike) else source
    paths = [path for part in parts for path in _expand_range(os.fspath(part))]
    if not paths:
        raise ValueError('source: expected a path or several paths, got none')
    found = _open(paths, format, layout, storage_options)
    if on_error == 'raise' and found.damaged:
        raise SourceError(*found.damaged[0])
    return _with_changes(found, spec)


def _expand_range(path: str) -> list[str]:
    """Expands a range of numbers in the notation of WebDataset: `train-{000..099}.tar`."""
    if (found := _RANGE.search(path)) is None:
        return [path]
    first, last = found.groups()
    if int(last) - int(first) >= MAX_FILES:
        raise ValueError(f'source: expected at most {MAX_FILES} files, got {path!r:.200}')
    numbers = range(int(first), int(last) + 1)
    parts = [f'{path[: found.start()]}{number:0{len(first)}}{path[found.end() :]}' for number in numbers]
    return [each for part in parts for each in _expand_range(part)]


def _open(
    paths: list[str], format: str | None, layout: str | None, storage_options: Mapping[str, Any] | None
) -> Source:
    if any(letter in path for path in paths for letter in '*?[') and not any('@' in path for path in paths):
        # Paths with an @ are expanded by `bags.bag.Reader`.
        if not (found := list_paths(paths, storage_options)):
            raise FileNotFoundError(errno.ENOENT, 'no files to import', ', '.join(paths))
        paths = found
    root = paths[0].rstrip('/') if len(paths) == 1 else None
    names = [] if root is None or is_tar(root) else list_files(root, storage_options)
    metadata: Metadata = {}
    content = _read_metadata(f'{root}/{METADATA}', storage_options) if METADATA in names else None
    if content and (len(names) > 1 or EXPORT in content):
        metadata = content
        names.remove(METADATA)
    if layout is not None:
        format = 'folder'
    exported = read_exported(metadata, f'{root}/{METADATA}') if layout is None else None
    format = format or _format_of(names, paths)
    if format in FORMATS:
        if root is not None and names and FORMATS[format].marker is None and not _fits(format, root):
            paths = [f'{root}/{name}' for name in names if _fits(format, name)] or [root]
        for package in FORMATS[format].packages:
            import_optional(package, FORMATS[format].extra)
        module = importlib.import_module(f'bags.interop.sources.{FORMATS[format].module}')
        source: Source = module.open_source(paths, storage_options)
    elif format == 'webdataset' or root is None:
        tars = [f'{root}/{name}' for name in names if is_tar(name)]
        source = TarSource(tars or paths, storage_options, exported)
    elif not names and exported is None:
        known = ', '.join(dict.fromkeys(pattern for each in FORMATS.values() for pattern in each.files))
        fs, inside = find_filesystem(root, storage_options)
        if fs.isfile(inside):
            raise SourceError(root, f'expected a folder, *.tar, or one of {known}; format= names another')
        detail = f'no files to import; expected a folder of files, *.tar, or one of {known}'
        raise FileNotFoundError(errno.ENOENT, detail, root)
    elif names == ['index.json']:
        raise SourceError(root, 'expected shards of MDS or LitData beside index.json, got none')
    elif any(name.rpartition('/')[2] == 'refs.bag' for name in names):
        raise SourceError(root, 'is a dataset already; bags.copy copies one')
    else:
        source = FolderSource(root, names, layout, storage_options, exported)
    source.metadata = {**source.metadata, **metadata}
    return source


def _fits(format: str, name: str) -> bool:
    base = name.rpartition('/')[2].lower()
    return any(fnmatch.fnmatchcase(base, pattern) for pattern in FORMATS[format].files)


def _format_of(names: list[str], paths: list[str]) -> str:
    """Returns the format of a source by its paths, or by the files in its folder."""
    own = [name for name in names if not any(fnmatch.fnmatchcase(name.lower(), each) for each in _BESIDE)]
    for format, (*_, marker) in FORMATS.items():
        if marker is None:
            found = all(_fits(format, path) for path in paths) or (
                own and all(_fits(format, name) for name in own)
            )
        else:
            found = marker in names and any(_fits(format, name) for name in names)
        if found:
            return format
    return 'webdataset' if all(map(is_tar, names or paths)) else 'folder'


def _read_metadata(path: str, storage_options: Mapping[str, Any] | None) -> Metadata | None:
    """Returns the content of metadata.json; None if it is not a JSON object, and so an ordinary file."""
    with open_file(path, storage_options) as file:
        content = file.read(MAX_METADATA_BYTES + 1)
    try:
        return load_metadata(content, path) if len(content) <= MAX_METADATA_BYTES else None
    except CorruptError:
        return None


def _with_changes(source: Source, changes: Mapping[str, str | None] | None) -> Source:
    for field, kind in (changes or {}).items():
        if field not in source.spec:
            raise SpecError(field, f'one of the fields {", ".join(source.spec)}', field)
        if field == KEY and isinstance(source, FileSource) and kind != 'utf8':
            raise SpecError(field, 'utf8, from which an interrupted import is resumed', str(kind))
        if kind is None:
            del source.spec[field]
        else:
            source.spec[field] = kind
    return source
