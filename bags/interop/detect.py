"""Detection of the format of a source, by the names of its files.

A container is a file, or a folder, of a format that holds datapoints: a tar, a Parquet file, a Zarr group. It
is never a value itself. Other files beside containers, such as README.md, are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bags.errors import SourceError
from bags.interop.exported import Exported
from bags.interop.extensions import split_name, type_of
from bags.interop.formats import FORMATS, SPLITS, Format
from bags.interop.ignored_files import (
    MEDIA,
    METADATA_TABLES,
    NO_DATA,
    is_beside,
    is_hidden,
    matches,
    pattern_of,
)
from bags.interop.source import list_some
from bags.interop.sources.files.folders import find_layout
from bags.interop.sources.files.webdataset import is_tar
from bags.interop.sources.files.zip_files import is_zip

_ORDER = (*FORMATS, 'webdataset')
_NEED_MARKER = ('mds', 'litdata', 'lerobot')
_ZARR = ('zarr.json', '.zgroup', '.zarray', '.zmetadata')
_TABLES_OF_TEXT = ('csv', 'jsonl')
_TEXTS = (*_TABLES_OF_TEXT, 'textgrid', 'ctm', 'subtitles')
"""Formats whose files are also values or tables about other files: containers if nothing else is there."""
_ALL = tuple(pattern for format, each in FORMATS.items() if format not in _TEXTS for pattern in each.files)
_MARKERS = tuple(each.marker for each in FORMATS.values() if each.marker)
_MARKED = tuple(pattern for each in FORMATS.values() if each.marker for pattern in each.files)
_NO_CONTAINERS = (*NO_DATA, 'limits.*')
_ARCHIVES = ('*.zip', '*.7z', '*.rar', '*.tar.zst', '*.tar.lz4')
_OTHER_CONTAINERS = ('*.lance', '*.lmdb', 'data.mdb', '*.sqlite', '*.sqlite3', '*.duckdb', '*.beton', '*.rec',
                     '*.orc', '*.avro')  # fmt: skip
"""Files and folders of formats that are not read."""
_TABLES = ('_delta_log/*.json', '*/_delta_log/*.json', 'metadata/*.metadata.json',
           '*/metadata/*.metadata.json', '.hoodie/*', '*/.hoodie/*')  # fmt: skip
"""Logs of Delta, Iceberg and Hudi, which list the Parquet files that belong to a table."""
MAX_BESIDE = 16
"""Number of files beside containers that are not taken for datapoints themselves."""


class Detected(NamedTuple):
    """The format of a folder, and which of its files belong to it."""

    format: str
    """Name of a format, 'webdataset' or 'folder'."""
    paths: list[str]
    """What to open: paths in the folder, '' for the folder itself."""
    left_out: list[str]
    """Files and folders that are not imported."""


def detect(root: str, names: Iterable[str], format: str | None = None, *, keep: bool = False) -> Detected:
    """Detects the format of a folder.

    Args:
        root: The folder, for its name and for errors.
        names: Paths in the folder of all files, also hidden ones.
        format: The format, if it is known; then this only chooses the files.
        keep: Whether documents such as README.md and checksums are datapoints of a folder of files.

    Raises:
        SourceError: The folder is a dataset of bags, or has files of several formats.
    """
    names = sorted(names)
    folders = _folders(root, names)
    rest = [name for name in names if _first_of(name, folders) is None]
    visible = [name for name in rest if not is_hidden(name)]
    _check_no_dataset(root, visible)
    if format == 'folder':
        return _files([name for name in names if not is_hidden(name)], names, keep=keep)
    formats = {folder: {found} for folder, found in folders.items()}
    formats |= {name: found for name in visible if (found := _formats_of(name))}
    texts = {name: found for name in visible if (found := _text_formats_of(name))}
    kinds = set[str]().union(*texts.values())
    is_texts = len(kinds) == 1 or kinds <= {*_TABLES_OF_TEXT}
    if format in _TEXTS or (
        not formats and is_texts and all(name in texts or is_beside(name) for name in visible)
    ):
        formats |= texts
    if format is not None:
        taken = [name for name in formats if format in formats[name]]
        if not taken and format in FORMATS and (FORMATS[format].marker or format == 'zarr'):
            return Detected(format, [''], [])
        return _containers(root, format, taken or visible, names, folders)
    internal = [name for name in formats if _is_internal(name)]
    if len(internal) < len(formats):  # E.g. the log of a Delta table, beside its files.
        for name in internal:
            del formats[name]
    if not formats:
        if {'state.json', 'dataset_info.json'} <= {name.rpartition('/')[2] for name in visible}:
            return _containers(root, 'arrow', [], names, folders)  # A saved dataset without its files.
        _check_no_container(root, visible)
        return _files(visible, names, keep=keep)
    format = _common_format(root, formats)
    logs = [name for name in names if format == 'parquet' and pattern_of(_TABLES).match(name.lower())]
    if logs:
        detail = (
            f'is a table with the log {logs[0]!r}, which may have deleted or replaced some of the Parquet '
            "files: export the table, or format='parquet' takes all files"
        )
        raise SourceError(root, detail)
    taken = [name for name in formats if format in formats[name]]
    if format in _NEED_MARKER and not folders:
        detail = f'expected {FORMATS[format].marker} of {format} beside it, got none'
        raise SourceError(_join(root, taken[0]), detail)
    _check_others(root, format, taken, [name for name in visible if name not in formats])
    return _containers(root, format, taken, names, folders)


def format_of(path: str) -> str | None:
    """Returns the format of a file by its name, or None if no format has such names."""
    return min(_formats_of(path) or _text_formats_of(path), key=_ORDER.index, default=None)


def zips_to_open(root: str, names: Iterable[str]) -> list[str]:
    """Returns the zips of a folder that stand for the folders of their files.

    There are none beside containers, or if two names differ only in their extension: it may be a value then.
    """
    visible = [name for name in names if not is_hidden(name)]
    zips = [name for name in visible if is_zip(name) and not _formats_of(name)]
    stems = {split_name(name)[0] for name in visible if not is_zip(name)} if zips else set()
    is_value = any(split_name(name)[0] in stems for name in zips)
    if not zips or is_value or _folders(root, visible) or any(map(_formats_of, visible)):
        return []
    return zips


def detect_exported(names: Iterable[str], exported: Exported) -> Detected:
    """Chooses the tars or the files of an export."""
    visible = [name for name in sorted(names) if not is_hidden(name)]
    tars = [name for name in visible if is_tar(name)]
    if tars and all(is_tar(name) or (is_beside(name) and not exported.has(name)) for name in visible):
        return Detected('webdataset', tars, [name for name in names if name not in tars])
    taken = [name for name in sorted(names) if exported.has(name) or not (is_hidden(name) or is_beside(name))]
    return Detected('folder', taken, sorted(set(names) - set(taken)))


def _folders(root: str, names: list[str]) -> dict[str, str]:
    """Returns the folders that are a container, and their formats; none of them is in another."""
    if root.lower().endswith('.zarr') and names:
        return {'': 'zarr'}
    found: dict[str, str] = {}
    below: dict[str, set[str]] = {format: set() for format, each in FORMATS.items() if each.marker}
    for name in names:
        *above, base = name.split('/')
        if not (base in _ZARR or '.zarr/' in name.lower() or matches(base, _MARKED)):
            continue
        if any(part.startswith('.') for part in above):
            continue
        parents = ['/'.join(above[:depth]) for depth in range(len(above) + 1)]
        if base in _ZARR:
            found[parents[-1]] = 'zarr'
        found |= {folder: 'zarr' for folder in parents if folder.lower().endswith('.zarr')}
        for format, folders in below.items():
            if matches(name, FORMATS[format].files) and not matches(name, NO_DATA):
                # The files of rosbag2 are in the folder itself.
                folders.update(parents[-1:] if format == 'mcap' else parents)
    for name in filter(lambda name: name.endswith(_MARKERS), names):
        for format, folders in below.items():
            folder = f'/{name}'.removesuffix(f'/{FORMATS[format].marker}').removeprefix('/')
            if folder != name and folder in folders and not is_hidden(name):
                found.setdefault(folder, format)
    top: dict[str, str] = {}
    for folder in sorted(found, key=len):
        if _first_of(folder, top) is None:
            top[folder] = found[folder]
    return dict(sorted(top.items()))


def _first_of(name: str, folders: Mapping[str, str]) -> str | None:
    """Returns the container that a file or folder is in."""
    if not folders:
        return None
    parts = name.split('/')
    above = ('/'.join(parts[:depth]) for depth in range(len(parts)))
    return next((folder for folder in above if folder in folders), None)


def _is_internal(name: str) -> bool:
    """Returns whether Hadoop's rule excludes a file: names with a leading underscore, unless `_a=1`."""
    return any(part.startswith('_') and '=' not in part for part in name.split('/'))


def _formats_of(name: str) -> set[str]:
    """Returns the formats that a file may have by its name."""
    if not (is_tar(name) or matches(name, _ALL)) or matches(name, _NO_CONTAINERS):
        return set()
    found = {
        format
        for format, each in FORMATS.items()
        if format not in ('litdata', 'lerobot') and matches(name, each.files)
    }
    return found | {'webdataset'} if is_tar(name) else found


def _text_formats_of(name: str) -> set[str]:
    return {format for format in _TEXTS if matches(name, FORMATS[format].files)}


def _check_no_dataset(root: str, names: list[str]) -> None:
    bases = [name.rpartition('/') for name in names]
    specs = {folder for folder, _, base in bases if base == 'spec.json'}
    for folder, _, base in bases:
        if base == 'refs.bag' or (folder in specs and base.endswith(('.bag', '.bagz'))):
            raise SourceError(_join(root, folder), 'is a dataset already; bags.copy copies one')


def is_archive(name: str) -> bool:
    """Returns whether a file has the name of an archive that is not read."""
    return matches(name, _ARCHIVES)


def _check_no_container(root: str, names: list[str]) -> None:
    for name in names:
        is_other = _is_in_other(name.rpartition('/')[0]) or matches(name, _OTHER_CONTAINERS)
        if is_other or is_archive(name):
            what = 'of a format that is not read' if is_other else 'an archive, which is not read: unpack it'
            raise SourceError(_join(root, name), f"is {what}; layout='files' stores it as bytes")


@functools.lru_cache
def _is_in_other(folder: str) -> bool:
    """Returns whether a folder, or one that it is in, is a container of a format that is not read."""
    return any(matches(part, _OTHER_CONTAINERS) for part in folder.split('/'))


def _common_format(root: str, formats: Mapping[str, set[str]]) -> str:
    """Returns the format of all containers."""
    common = set.intersection(*formats.values())
    if common:
        return min(common, key=_ORDER.index)
    tars = {split_name(name)[0] for name, found in formats.items() if 'webdataset' in found}
    if tars and all(split_name(name)[0] in tars for name in formats):
        return 'webdataset'  # img2dataset writes a Parquet file about the samples beside each tar.
    found: dict[str, list[str]] = {}
    for name in formats:
        found.setdefault(min(formats[name], key=_ORDER.index), []).append(name)
    each = ' and '.join(f'{len(some):,} of {format} ({list_some(some, 1)})' for format, some in found.items())
    wanted = ' or '.join(f'format={format!r}' for format in found)
    raise SourceError(root, f'expected files of one format, got {each}; {wanted} takes those of one')


def _check_others(root: str, format: str, taken: list[str], others: list[str]) -> None:
    """Refuses a folder whose other files may be datapoints too."""
    others = [name for name in others if not is_beside(name)]
    stems = {split_name(name)[0] for name in taken}
    media = [name for name in others if type_of(split_name(name)[1]) in MEDIA]
    paired = [name for name in media if split_name(name)[0] in stems]
    texts = len(others) - len(media)
    if paired or len(media) > len(taken) or texts > max(MAX_BESIDE, len(taken)):
        some = paired or (media if len(media) > len(taken) else others)
        raise SourceError(
            root,
            f'expected files of one format, got {len(taken):,} of {format} ({list_some(taken, 1)}) and '
            f'{len(some):,} others ({list_some(some, 1)}); format={format!r} takes only the first, '
            "format='folder' each file as it is",
        )


def _files(own: list[str], names: list[str], *, keep: bool) -> Detected:
    """Chooses the files that are datapoints."""
    if not keep:
        beside = {name for name in own if is_beside(name)}
        stems = {split_name(name)[0] for name in own if name not in beside} if beside else set()
        # A checksum or a text that shares its name with another file is a field of the same datapoint.
        if stems:
            own = [name for name in own if name not in beside or split_name(name)[0] in stems]
        elif beside:
            own = [name for name in own if not matches(name, NO_DATA)]
        own = _without_strays(own)
    kept = set(own)
    return Detected('folder', own, [name for name in names if name not in kept])


def _without_strays(names: list[str]) -> list[str]:
    """Leaves out a few files beside folders of classes or episodes with media.

    They are texts, if there are none in the folders, and fewer other files than there are folders.
    """
    inside = [name for name in names if '/' in name]
    beside = [name for name in names if '/' not in name and name not in METADATA_TABLES]
    if not beside:
        return names
    extensions = {split_name(name)[1] for name in inside}
    strays = [
        extension
        for extension in (split_name(name)[1] for name in beside)
        if type_of(extension) in MEDIA or extension in extensions
    ]
    if (
        len(beside) <= MAX_BESIDE
        and len(strays) < len({name.partition('/')[0] for name in inside})
        and any(type_of(extension) in MEDIA for extension in extensions)
        and find_layout(inside) in ('classes', 'episodes')
    ):
        return sorted(set(names) - set(beside))
    return names


def _containers(
    root: str, format: str, taken: list[str], names: list[str], folders: Mapping[str, str]
) -> Detected:
    """Adds what the module of a format reads beside the containers, and finds what is left out."""
    about = FORMATS.get(format) or Format(format, ())
    if about.marker and len(taken) > 1:
        splits = {part for name in taken for part in name.lower().split('/') if part in SPLITS}
        if not about.is_joined or (format in _NEED_MARKER and len(splits) > 1):
            detail = f'expected one dataset of {format}, got {list_some(taken)}: give the folder of one'
            raise SourceError(root, detail)
    reads = [name for name in names if matches(name, about.reads) and not is_hidden(name)]
    own = tuple(filter(None, (about.marker, *about.files, *about.beside)))
    own += tuple(f'*/{pattern}' for pattern in own)
    left_out: dict[str, None] = {}
    used, top = {*taken, *reads}, set(taken)
    for name in names:
        folder = _first_of(name, folders)
        if folder is None:
            is_own = matches(name, about.beside)
        elif folder in top:
            path = name.removeprefix(f'{folder}/').lower()
            is_own = format == 'zarr' or pattern_of(own).match(path) is not None
        else:
            name, is_own = folder, False
        if not is_own and name not in used:
            left_out[name] = None
    return Detected(format, taken + reads, list(left_out))


def _join(root: str, name: str) -> str:
    return f'{root}/{name}' if name and root else root or name
