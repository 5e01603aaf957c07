"""Detection of the format of a source, by the names of its files.

A container is a file, or a folder, of a format that holds datapoints: a tar, a Parquet file, a Zarr group. It
is never a value itself. Other files beside containers, such as README.md, are left out.

Formats are tried in this order:

1. Folders with the marker of a built-in format, then of a format of an installed package.
2. Files of a built-in format.
3. Files of a format of an installed package.
4. A folder of files, grouped by a layout.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import NamedTuple, NoReturn

from bags.errors import SourceError
from bags.interop.exported import ExportedFields
from bags.interop.file_extensions import split_name, type_of
from bags.interop.formats import FORMATS, SPLITS, Format, find_format, installed_formats
from bags.interop.ignored_files import MEDIA, NO_DATA, is_beside, is_hidden, matches, pattern_of
from bags.interop.source import list_some
from bags.interop.sources.files.layouts import MAX_BESIDE, without_strays
from bags.interop.sources.files.webdataset import is_tar
from bags.interop.sources.files.zip_files import is_zip

_ORDER = (*FORMATS, 'webdataset')
_ZARR = ('zarr.json', '.zgroup', '.zarray', '.zmetadata')
_TABLES_OF_TEXT = ('csv', 'jsonl')
_TEXTS = (*_TABLES_OF_TEXT, 'textgrid', 'ctm', 'subtitles')
"""Formats whose files are also values or tables about other files: containers if nothing else is there."""
_BY_NAME = tuple(
    format
    for format in FORMATS.values()
    # The name *.mds stands for one format only: without its marker, files of that name are an error.
    if format.name not in _TEXTS and (format.is_by_name or format.name == 'mds')
)
_PATTERNS = tuple(pattern for format in _BY_NAME for pattern in format.files)
_TEXT_PATTERNS = tuple(pattern for format in _TEXTS for pattern in FORMATS[format].files)
_NO_CONTAINERS = (*NO_DATA, 'limits.*')
_ARCHIVES = ('*.zip', '*.7z', '*.rar', '*.tar.zst', '*.tar.lz4')
_OTHER_CONTAINERS = ('*.lance', '*.lmdb', 'data.mdb', '*.sqlite', '*.sqlite3', '*.duckdb', '*.beton', '*.rec',
                     '*.orc', '*.avro')  # fmt: skip
"""Files and folders of formats that are not read."""
_NOT_READ = (*_ARCHIVES, *_OTHER_CONTAINERS)
_TABLES = ('_delta_log/*.json', '*/_delta_log/*.json', 'metadata/*.metadata.json',
           '*/metadata/*.metadata.json', '.hoodie/*', '*/.hoodie/*')  # fmt: skip
"""Logs of Delta, Iceberg and Hudi, which list the Parquet files that belong to a table."""


class DetectedFormat(NamedTuple):
    """The format of a folder, and which of its files belong to it."""

    format: str
    """Name of a format, of this library or of an installed package; 'webdataset' or 'folder'."""
    paths: list[str]
    """What to open: paths in the folder, '' for the folder itself."""
    left_out: list[str]
    """Files and folders that are not imported."""


def detect(
    root: str, names: Iterable[str], format: str | None = None, *, keep: bool = False
) -> DetectedFormat:
    """Detects the format of a folder.

    Args:
        root: The folder, for its name and for errors.
        names: Paths in the folder of all files, also hidden ones.
        format: The format, if it is known; then this only chooses the files.
        keep: Whether documents such as README.md and checksums are datapoints of a folder of files.

    Raises:
        SourceError: The folder is a dataset of bags, has files of several formats, or several packages have
            importers for it.
    """
    names = sorted(names)
    installed = _installed(format)
    folders = _folders(root, names, installed)
    rest = [name for name in names if _first_of(name, folders) is None]
    visible = [name for name in rest if not is_hidden(name)]
    _check_no_dataset(root, visible)
    if format == 'folder':
        return _files([name for name in names if not is_hidden(name)], names, keep=keep)
    formats = {folder: {own} for folder, own in folders.items()}
    formats |= {name: own for name in visible if (own := _formats_of(name))}
    texts = {name: own for name in visible if (own := _text_formats_of(name))}
    kinds = set[str]().union(*texts.values())
    is_texts = len(kinds) == 1 or kinds <= {*_TABLES_OF_TEXT}
    if format in _TEXTS or (
        not formats and is_texts and all(name in texts or is_beside(name) for name in visible)
    ):
        formats |= texts
    if format is not None:
        about = _about(format, installed)
        if about.package or about.is_by_content:
            formats |= {name: {format} for name in visible if matches(name, about.files)}
        taken = [name for name in formats if format in formats[name]]
        if not taken and (about.marker or format == 'zarr'):
            return DetectedFormat(format, [''], [])
        return _containers(root, about, taken or visible, names, folders)
    internal = [name for name in formats if _is_internal(name)]
    if len(internal) < len(formats):  # E.g. the log of a Delta table, beside its files.
        for name in internal:
            del formats[name]
    if not formats:
        if {'state.json', 'dataset_info.json'} <= {name.rpartition('/')[2] for name in visible}:
            # A saved dataset without its files.
            return _containers(root, FORMATS['arrow'], [], names, folders)
        if claim := _claim(root, visible, installed):
            taken = [name for name in visible if matches(name, claim.files)]
            return _containers(root, claim, taken, names, folders)
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
    about = _about(format, installed)
    if not (about.is_by_name or folders):
        raise SourceError(_join(root, taken[0]), f'expected {about.marker} of {format} beside it, got none')
    _check_others(root, format, taken, [name for name in visible if name not in formats])
    return _containers(root, about, taken, names, folders)


def format_of(path: str) -> str | None:
    """Returns the built-in format of a file by its name, or None if no format has such names."""
    return min(_formats_of(path) or _text_formats_of(path), key=_ORDER.index, default=None)


def detect_file(path: str) -> str | None:
    """Returns the format of a file, built-in or of an installed package; None if no format has such names.

    Raises:
        SourceError: Several packages have importers for the file.
    """
    if format := format_of(path):
        return format
    root, _, name = path.rpartition('/')
    claim = _claim(root, [name], installed_formats())
    return claim.name if claim else None


def zips_to_open(root: str, names: Iterable[str]) -> list[str]:
    """Returns the zips of a folder that stand for the folders of their files.

    There are none beside containers, or if two names differ only in their extension: it may be a value then.
    """
    names = list(names)
    zips = [name for name in names if is_zip(name) and not is_hidden(name) and not _formats_of(name)]
    if not zips:
        return []
    visible = [name for name in names if not is_hidden(name)]
    stems = {split_name(name)[0] for name in visible if not is_zip(name)}
    if any(split_name(name)[0] in stems for name in zips) or any(map(_formats_of, visible)):
        return []
    installed = _installed(None)
    if _folders(root, visible, installed) or _claim(root, visible, installed):
        return []
    return zips


def detect_exported(names: Iterable[str], exported: ExportedFields) -> DetectedFormat:
    """Chooses the tars or the files of an export."""
    visible = [name for name in sorted(names) if not is_hidden(name)]
    tars = [name for name in visible if is_tar(name)]
    if tars and all(is_tar(name) or (is_beside(name) and not exported.has(name)) for name in visible):
        return DetectedFormat('webdataset', tars, [name for name in names if name not in tars])
    taken = [name for name in sorted(names) if exported.has(name) or not (is_hidden(name) or is_beside(name))]
    return DetectedFormat('folder', taken, sorted(set(names) - set(taken)))


def _installed(format: str | None) -> list[Format]:
    """Returns the formats of installed packages that may be detected: all, or only the given one."""
    if format is None:
        return installed_formats()
    about = None if format in _ORDER or format == 'folder' else find_format(format)
    return [] if about is None else [about]


def _about(name: str, installed: Iterable[Format]) -> Format:
    """Returns the format of a name; one without files for tars, whose importer is not in the table."""
    by_name = {format.name: format for format in installed} | FORMATS
    return by_name.get(name) or Format(name, '', ())


def _claim(root: str, names: Iterable[str], installed: Iterable[Format]) -> Format | None:
    """Returns the format of an installed package that all files belong to, but for those that describe it.

    Raises:
        SourceError: Several packages have importers for the files.
    """
    by_name = [format for format in installed if format.is_by_name]
    if not by_name:
        return None
    own = [name for name in names if not is_beside(name)]
    claims = [
        format
        for format in by_name
        if any(matches(name, format.files) for name in own)
        and all(matches(name, (*format.files, *format.reads, *format.beside)) for name in own)
    ]
    if len(claims) > 1:
        _raise_several(_join(root, own[0]), claims)
    return claims[0] if claims else None


def _raise_several(path: str, claims: list[Format]) -> NoReturn:
    each = ' and '.join(f'{format.name!r} of {format.package}' for format in claims)
    if len({format.name for format in claims}) < len(claims):
        how = 'uninstall one of the packages'
    else:
        how = ' or '.join(f'format={format.name!r}' for format in claims) + ' chooses one'
    raise SourceError(path, f'expected one package with an importer for it, got {each}; {how}')


def _folders(root: str, names: list[str], installed: Iterable[Format]) -> dict[str, str]:
    """Returns the folders that are a container, and their formats; none of them is in another.

    Raises:
        SourceError: Several packages have importers for a folder.
    """
    if root.lower().endswith('.zarr') and names:
        return {'': 'zarr'}
    folders: dict[str, str] = {}
    for name in names:
        *above, base = name.split('/')
        if base not in _ZARR and '.zarr/' not in name.lower():
            continue
        if any(part.startswith('.') for part in above):
            continue
        parents = ['/'.join(above[:depth]) for depth in range(len(above) + 1)]
        if base in _ZARR:
            folders[parents[-1]] = 'zarr'
        folders |= {folder: 'zarr' for folder in parents if folder.lower().endswith('.zarr')}
    for folder, formats in _marked_folders(names, FORMATS.values()).items():
        folders.setdefault(folder, formats[0].name)
    for folder, formats in _marked_folders(names, installed).items():
        if folder not in folders and len(formats) > 1:
            _raise_several(_join(root, folder), formats)
        folders.setdefault(folder, formats[0].name)
    top: dict[str, str] = {}
    for folder in sorted(folders, key=len):
        if _first_of(folder, top) is None:
            top[folder] = folders[folder]
    return dict(sorted(top.items()))


def _marked_folders(names: list[str], formats: Iterable[Format]) -> dict[str, list[Format]]:
    """Returns the formats whose marker is in a folder, with a file of the format in the folder or below."""
    marked = [format for format in formats if format.marker]
    markers = tuple(format.marker or '' for format in marked)
    found = [name for name in names if name.endswith(markers) and not is_hidden(name)] if markers else []
    folders: dict[str, list[Format]] = {}
    for format in marked if found else ():
        with_files = set[str]()
        for name in names:
            if matches(name, format.files) and not matches(name, NO_DATA):
                *above, _ = name.split('/')
                if not any(part.startswith('.') for part in above):
                    # The files of rosbag2 are in the folder itself.
                    first = len(above) if format.name == 'mcap' else 0
                    with_files.update('/'.join(above[:depth]) for depth in range(first, len(above) + 1))
        for name in found:
            folder = f'/{name}'.removesuffix(f'/{format.marker}').removeprefix('/')
            if folder != name and folder in with_files and format not in folders.get(folder, ()):
                folders.setdefault(folder, []).append(format)
    return folders


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
    """Returns the built-in formats that a file may have by its name."""
    if not (is_tar(name) or matches(name, _PATTERNS)) or matches(name, _NO_CONTAINERS):
        return set()
    formats = {format.name for format in _BY_NAME if matches(name, format.files)}
    return formats | {'webdataset'} if is_tar(name) else formats


def _text_formats_of(name: str) -> set[str]:
    if not matches(name, _TEXT_PATTERNS):
        return set()
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
        is_in_other = _is_in_other(name.rpartition('/')[0])
        if is_in_other or matches(name, _NOT_READ):
            is_other = is_in_other or matches(name, _OTHER_CONTAINERS)
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
        return min(common, key=_position)
    tars = {split_name(name)[0] for name, found in formats.items() if 'webdataset' in found}
    if tars and all(split_name(name)[0] in tars for name in formats):
        return 'webdataset'  # img2dataset writes a Parquet file about the samples beside each tar.
    names_of: dict[str, list[str]] = {}
    for name in formats:
        names_of.setdefault(min(formats[name], key=_position), []).append(name)
    each = ' and '.join(
        f'{len(names):,} of {format} ({list_some(names, 1)})' for format, names in names_of.items()
    )
    wanted = ' or '.join(f'format={format!r}' for format in names_of)
    raise SourceError(root, f'expected files of one format, got {each}; {wanted} takes those of one')


def _position(format: str) -> int:
    """Returns the position of a format in the order of formats; formats of installed packages are last."""
    return _ORDER.index(format) if format in _ORDER else len(_ORDER)


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


def _files(own: list[str], names: list[str], *, keep: bool) -> DetectedFormat:
    """Chooses the files that are datapoints."""
    if not keep:
        beside = {name for name in own if is_beside(name)}
        stems = {split_name(name)[0] for name in own if name not in beside} if beside else set()
        # A checksum or a text that shares its name with another file is a field of the same datapoint.
        if stems:
            own = [name for name in own if name not in beside or split_name(name)[0] in stems]
        elif beside:
            own = [name for name in own if not matches(name, NO_DATA)]
        own = without_strays(own)
    kept = set(own)
    return DetectedFormat('folder', own, [name for name in names if name not in kept])


def _containers(
    root: str, format: Format, taken: list[str], names: list[str], folders: Mapping[str, str]
) -> DetectedFormat:
    """Adds the files beside the containers that the importer reads too, and finds the files left out."""
    several = [name for name in taken if name in folders]
    if len(several) > 1 and format.marker:
        splits = {part for name in several for part in name.lower().split('/') if part in SPLITS}
        if not format.is_joined or (format.needs_marker and len(splits) > 1):
            detail = (
                f'expected one dataset of {format.name}, got {list_some(several)}: give the folder of one'
            )
            raise SourceError(root, detail)
    top = set(taken)
    reads = [
        name
        for name in names
        if matches(name, format.reads)
        and not (is_hidden(name) or name in top or _first_of(name, folders) is not None)
    ]
    own = tuple(filter(None, (format.marker, *format.files, *format.reads, *format.beside)))
    own += tuple(f'*/{pattern}' for pattern in own)
    left_out: dict[str, None] = {}
    used = {*taken, *reads}
    for name in names:
        folder = _first_of(name, folders)
        if folder is None:
            is_own = matches(name, format.beside)
        elif folder in top:
            path = name.removeprefix(f'{folder}/').lower()
            is_own = format.name == 'zarr' or pattern_of(own).match(path) is not None
        else:
            name, is_own = folder, False
        if not is_own and name not in used:
            left_out[name] = None
    return DetectedFormat(format.name, taken + reads, list(left_out))


def _join(root: str, name: str) -> str:
    return f'{root}/{name}' if name and root else root or name
