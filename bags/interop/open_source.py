"""`open_source`: detects the format of a source, and opens it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NoReturn

from bags.dataset.format.metadata import MAX_METADATA_BYTES, METADATA, Metadata, load_metadata
from bags.dataset.format.plug_ins import find_all
from bags.dataset.format.spec import parse_spec
from bags.errors import CorruptError, SourceError, SpecError
from bags.interop.detect import DetectedFormat, detect, detect_exported, detect_file, is_archive, zips_to_open
from bags.interop.exported import EXPORT, read_exported
from bags.interop.file_extensions import KEY
from bags.interop.files import FileSource
from bags.interop.formats import FORMATS, GROUP, find_format, installed_formats
from bags.interop.ignored_files import is_beside, is_hidden
from bags.interop.records import size_of
from bags.interop.source import Source, list_some, naming
from bags.interop.source_paths import at_commit, expand_braces, list_source
from bags.interop.sources.files.folders import FolderFiles, FolderSource, SourceFiles, read_exported_files
from bags.interop.sources.files.layouts import LAYOUTS, describe
from bags.interop.sources.files.open_files import FirstLayout, FirstRun, open_folder, open_tars
from bags.interop.sources.files.readings import Readings
from bags.interop.sources.files.webdataset import is_tar
from bags.interop.sources.files.zip_files import FolderWithZips, ZipFiles, is_zip
from bags.interop.sources.manifests.listed_tables import list_files_of
from bags.interop.sources.manifests.manifest_options import (
    FORMATS_OF_MANIFESTS,
    FORMATS_OF_TABLES,
    NO_FILES,
    ManifestOptions,
    manifest_options,
)
from bags.interop.sources.tokens.detect_tokens import detect_tokens
from bags.interop.sources.tokens.token_file import NO_OPTIONS, TokenOptions, token_options
from bags.interop.sources.tokens.token_source import TokenSource
from bags.interop.stores import (
    MAGIC,
    find_store,
    hold_stores,
    is_one_file,
    is_present,
    list_paths,
    read_in,
    size_in,
)
from bags.interop.targets.target import UNFINISHED
from bags.links.permission import PermittedPaths
from bags.storage.base import A_LFS_POINTER, MAX_LFS_POINTER_BYTES, is_lfs_pointer
from bags.storage.urls import plain_path
from bags.validation import one_of

SourcePath = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

KNOWN = (*FORMATS, 'folder', 'webdataset')
"""Names of the formats of this library."""


def open_source(
    source: SourcePath,
    *,
    format: str | None = None,
    layout: str | None = None,
    spec: Mapping[str, str | None] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    on_error: Literal['raise', 'skip'] = 'raise',
    by: Literal['document', 'sequence'] = 'document',
    dtype: str | None = None,
    end: int | None = None,
    offsets: str | os.PathLike[str] | None = None,
    length: int | None = None,
    file: Mapping[str, str] | None = None,
    root: str | os.PathLike[str] | None = None,
    trust_links: PermittedPaths = (),
) -> Source:
    """Opens data in another format as the source of a dataset, without reading values.

    Args:
        source: A file, a folder, or a list or glob of files, or with braces as in WebDataset
            (`train-{000..099}.tar`); path or URL.
        format: Name of a format in docs/import.md; by default detected from the names of files.
        layout: Layout of a folder of media: 'files', 'stems', 'classes', 'episodes', 'fields', 'coco', 'yolo'
            or 'tables'; of tars: 'webdataset' or 'stems'; or a layout that the format of an installed package
            has; by default detected.
        spec: Changes to the spec: a type by field, or None to leave a field out.
        storage_options: As in `bags.open`, for a URL.
        on_error: 'raise' refuses damaged files, 'skip' leaves them out, but keeps the datapoints of a tar
            that is not compressed before the damage.
        by: What a datapoint of tokens of Megatron is: a 'document', or a 'sequence' of a document.
        dtype: The dtype of tokens without a header, such as 'uint16', with `format='tokens'`.
        end: The token that ends each document, and belongs to it, in tokens without an index.
        offsets: A file with the first token of each document, in place of `end`: int64, or `.npy`. The last
            number may be the number of tokens.
        length: The number of tokens of each document but the last, in place of `end`.
        file: Columns of a table (CSV, JSONL, Parquet, Arrow) with paths of files, and the name of the field
            for the files of each: `{'audio_filepath': 'audio'}`.
        root: The folder that the paths in a table with `file`, and in a manifest of NeMo or Lhotse, are
            relative to, and below which their files have to be. Default: the folder of each manifest.
        trust_links: Paths of files and folders outside of the root that a manifest may name too, or True for
            all. `BAGS_TRUST_LINKS` in the environment adds paths.

    Raises:
        FileNotFoundError: The source does not exist.
        MissingDependencyError: The library that reads the format is not installed.
        SourceError: An unknown format, files that cannot be grouped into datapoints, or in several ways, or
            damage.
        SpecError: A type for a field that does not exist.
    """
    found = open_to_resume(
        source, {}, None, format=format, layout=layout, spec=spec, storage_options=storage_options,
        on_error=on_error, tokens=token_options(by, dtype, end, offsets, length),
        manifest=manifest_options(file, root, trust_links),
    )  # fmt: skip
    if found.ambiguity is not None:
        raise found.ambiguity
    return found


def open_to_resume(
    source: SourcePath,
    stored: Mapping[str, str],
    first_layout: FirstLayout | None,
    *,
    format: str | None,
    layout: str | None,
    spec: Mapping[str, str | None] | None,
    storage_options: Mapping[str, Any] | None,
    on_error: Literal['raise', 'skip'],
    tokens: TokenOptions = NO_OPTIONS,
    manifest: ManifestOptions = NO_FILES,
) -> Source:
    """Opens a source as `open_source` does, to continue a dataset.

    Does not raise if the files may be read in several ways, but sets `ambiguity` of the source.

    Args:
        source: As in `open_source`.
        stored: The types of the fields of the dataset, by the name in the source. Fields that are parsed from
            text have these types, and without `first_layout`, a layout with these fields is taken.
        first_layout: The layout of the first run, if it is known.
        format, layout, spec, storage_options, on_error: As in `open_source`.
        tokens, manifest: The other arguments of `open_source`.
    """
    source = plain_path(source)
    if hasattr(source, 'columns') or hasattr(source, 'column_names') or isinstance(source, Mapping):
        detail = 'bags.from_numpy writes tables of pandas, polars and Arrow, and arrays by name'
        raise TypeError(f'source: expected a path or several paths, got {type(source).__name__}: {detail}')
    if not isinstance(source, str | os.PathLike | Iterable):
        raise TypeError(f'source: expected a path or several paths, got {source!r:.80}')
    if not isinstance(spec, Mapping | None):
        raise TypeError(f'spec: expected a mapping of fields to types, got {spec!r:.80}')
    if format is None and layout is None and first_layout and first_layout.is_given:
        layout = first_layout.name
    is_given = layout is not None
    format = choose_format(format, layout)
    parts = [source] if isinstance(source, str | os.PathLike) else source
    paths = [path for part in parts for path in expand_braces(os.fspath(plain_path(part)), storage_options)]
    if not paths:
        raise ValueError('source: expected a path or several paths, got none')
    left_out = [field for field, type in (spec or {}).items() if type is None]
    stores = hold_stores(paths, storage_options)
    paths = [at_commit(path, storage_options) for path in paths]
    where = paths[0] if len(paths) == 1 else f'{paths[0]} and {len(paths) - 1} others'
    try:
        with naming(where):
            run = FirstRun(first_layout.name if first_layout else None, stored, left_out)
            found = _open(paths, format, layout, storage_options, run, tokens, manifest)
            parse_spec(found.spec)
    except SpecError as exc:  # Of types that the source describes.
        raise SourceError(where, str(exc)) from exc
    except SourceError as exc:
        _check_no_lfs_pointer(exc.name, storage_options)
        raise
    found.path = where
    found.is_layout_given = is_given
    read = [*list_paths(paths, storage_options), *found.beside]
    if manifest.files or found.format in FORMATS_OF_MANIFESTS:
        storage_options = manifest.options_by_bucket(read, storage_options)
    found.opened_from, found.stores = (read, storage_options), stores
    if tokens.given and not isinstance(found, TokenSource):
        name = next(iter(tokens.given))
        raise ValueError(f"{name}: expected none for the format {found.format!r}; format='tokens' takes it")
    manifest.check_format(found.format)
    if on_error == 'raise' and found.damaged:
        _check_no_lfs_pointer(found.damaged[0][0], storage_options)
        raise SourceError(*found.damaged[0])
    resumed = {field: type for field, type in stored.items() if field in found.from_text}
    found = _with_changes(found, {**resumed, **(spec or {})})
    for field, error in found.undecided.items():
        if not found.spec:
            raise error
        if field in found.spec and field not in resumed and field not in (spec or {}):
            if on_error == 'raise':
                raise error
            found.notes.append(f'field {field!r}: values of several types become {found.spec[field]}')
    return found


def _check_no_lfs_pointer(path: str, storage_options: Mapping[str, Any] | None) -> None:
    """Raises SourceError if the file that an error names is the text that Git LFS stores instead of it."""
    is_pointer = False
    with contextlib.suppress(Exception):  # It is for an error, which this one would hide.
        store, file = find_store(path.partition(', record ')[0], storage_options)
        size = size_in(store, file, storage_options) or 0
        is_pointer = size < MAX_LFS_POINTER_BYTES and is_lfs_pointer(read_in(store, file, storage_options))
    if is_pointer:
        raise SourceError(path, f'expected the file, got {A_LFS_POINTER}')


def choose_format(format: str | None, layout: str | None) -> str | None:
    """Returns the format that `format` and `layout` select; None if they are None.

    A layout selects the given format if it has the layout, else 'folder' or a format of an installed package.

    Raises:
        ValueError: There is no such format or layout, or several formats have the layout.
    """
    if format is not None and format not in KNOWN and find_format(str(format)) is None:
        one_of('format', format, (*KNOWN, *dict.fromkeys(added.name for added in find_all(GROUP))))
    if layout is None:
        return format
    about = None if format is None or format in KNOWN else find_format(format)
    if about and layout in about.layouts:
        return about.name
    if layout == 'webdataset':
        return layout
    if layout in LAYOUTS:
        return 'folder'
    installed = [about] if about else installed_formats() if format is None else []
    names = [each.name for each in installed if layout in each.layouts]
    if len(names) > 1:
        formats = ' or '.join(f'format={name!r}' for name in names)
        raise ValueError(f'layout: expected the layout of one format, got {layout!r}; {formats} chooses one')
    if not names:
        one_of(
            'layout', layout, ('webdataset', *LAYOUTS, *(name for each in installed for name in each.layouts))
        )
    return names[0]


def _open(
    paths: list[str],
    format: str | None,
    layout: str | None,
    storage_options: Mapping[str, Any] | None,
    run: FirstRun,
    tokens: TokenOptions,
    manifest: ManifestOptions,
) -> Source:
    if any(letter in path for path in paths for letter in MAGIC) and not any('@' in path for path in paths):
        # Paths with an @ are expanded by `bags.bag.Reader`.
        if not (found := list_paths(paths, storage_options)):
            raise FileNotFoundError(errno.ENOENT, 'no files to import', ', '.join(paths))
        paths = found
    is_one = len(paths) == 1
    archive = _open_zip(paths, format, storage_options)
    if archive is not None:
        root, names, others = archive.root, [*archive.names], archive.others
    else:
        root, names, others = list_source(paths, storage_options)
    if UNFINISHED in names or (not is_one and size_of(f'{root}/{UNFINISHED}', storage_options) is not None):
        detail = (
            "is an unfinished export: bags.export(…, resume=True) continues it, mode='overwrite' replaces it"
        )
        raise SourceError(root, detail)
    metadata: Metadata = {}
    content = _read_metadata(archive or FolderFiles(root, storage_options)) if METADATA in names else None
    if content and (len(names) > 1 or EXPORT in content):
        metadata = content
        names.remove(METADATA)
    is_of_tars = all(map(_is_of_tars, names)) if names else is_one and is_tar(paths[0])
    if is_of_tars and format == 'folder' and layout is not None and not (names and layout == 'files'):
        format = 'webdataset'
    keep = format == 'folder' and layout in ('files', 'stems', None)
    unpacks = format is None or (format == 'folder' and layout not in ('files', None))
    exported = read_exported(metadata, f'{root}/{METADATA}') if layout is None else None
    if format is None and layout is None and archive is None and exported is None:
        format = detect_tokens(root, names, is_one and bool(names), storage_options)
    zips: FolderWithZips | None = None
    if archive is None and exported is None and unpacks:
        found = zips_to_open(root, names)
        if found and (is_one or all(map(is_zip, names))):
            zips = FolderWithZips(FolderFiles(root, storage_options), names, found, storage_options)
            names, others = zips.names, others + zips.others
    if exported is not None:
        chosen = detect_exported(names, exported)
    elif names:
        chosen = detect(root, names, format, keep=keep)
    else:
        chosen = DetectedFormat(format or detect_file(paths[0]) or 'folder', [], [])
    if (archive or zips) and chosen.format != 'folder':
        what = f'{chosen.format} ({list_some(chosen.paths, 1)})'
        how = "format='folder'" if archive else "layout='stems'"
        detail = f'has files of {what}, which are not read from a zip: unpack it; {how} '
        raise SourceError(root, f'{detail}imports each file as it is')
    if names and archive is None:
        paths = [f'{root}/{path}' if root and path else root or path for path in chosen.paths]
    source: Source
    if chosen.format == 'webdataset':
        source = open_tars(paths, layout, storage_options, exported, run)
    elif chosen.format != 'folder' and (about := find_format(chosen.format)):
        source = about.open_source(
            paths, storage_options, root=root, left_out=run.left_out, tokens=tokens, manifest=manifest,
            layout=layout,
        )  # fmt: skip
        if manifest.files and chosen.format in FORMATS_OF_TABLES:
            source = list_files_of(source, manifest, storage_options)
    else:
        if zips and zips.damaged and not chosen.paths:
            raise SourceError(*zips.damaged[0])
        if not chosen.paths and (archive or zips):
            raise SourceError(
                root,
                'expected files, got zips without any' if zips else 'expected files, got a zip without any',
            )
        if not chosen.paths and exported is None:
            _raise_no_files(root, storage_options)
        if not is_one and zips is None:
            raise SourceError(root or paths[0], 'expected one folder of files, or files of one format')
        if chosen.paths == ['index.json']:
            raise SourceError(root, 'expected shards of MDS or LitData beside index.json, got none')
        files = archive or zips or FolderFiles(root, storage_options)
        if exported is not None:
            source = FolderSource(files, read_exported_files(root, exported, chosen.paths), exported=exported)
        else:
            own = set(chosen.paths)
            rest = [name for name in names if name not in own and not is_hidden(name)]
            readings = Readings(files, chosen.paths, rest)
            source, used = open_folder(files, readings, layout, run)
            chosen = chosen._replace(left_out=[name for name in names if name not in used])
        source.damaged += zips.damaged if zips else []
    fields = {**source.metadata.get('fields', {}), **metadata.get('fields', {})}
    source.metadata = {**source.metadata, **metadata, **({'fields': fields} if fields else {})}
    beside = [*chosen.left_out, *others]
    left_out = f'left out: {list_some(beside)}'
    if isinstance(source, FileSource) and exported is None:
        count = f'; {len(beside):,} {left_out}' if beside else ''
        source.notes.insert(0, f'read as {source.layout}: {describe(source.layout, source.count)}{count}')
    elif beside:
        source.notes.append(left_out)
    return source


def _is_of_tars(name: str) -> bool:
    return is_tar(name) or is_hidden(name) or is_beside(name)


def _open_zip(
    paths: list[str], format: str | None, storage_options: Mapping[str, Any] | None
) -> ZipFiles | None:
    """Opens a zip of files; None for other paths, and for a file `.zip` of a format such as `.zarr.zip`."""
    base = paths[0].rpartition('/')[2]
    if len(paths) > 1 or not is_zip(base) or format not in (None, 'folder'):
        return None
    if format is None and detect_file(paths[0]):
        return None
    return ZipFiles(paths[0], storage_options) if is_one_file(paths[0], storage_options) else None


def _raise_no_files(root: str, storage_options: Mapping[str, Any] | None) -> NoReturn:
    formats = [*FORMATS.values(), *installed_formats()]
    known = ', '.join(dict.fromkeys(pattern for each in formats for pattern in each.files))
    if is_one_file(root, storage_options):
        if is_archive(root):
            raise SourceError(root, 'is an archive, which is not read: unpack it')
        raise SourceError(root, f'expected a folder, *.tar, or one of {known}; format names another')
    if not is_present(root, storage_options):
        raise FileNotFoundError(errno.ENOENT, 'no such file or folder', root)
    detail = f'no files to import; expected a folder of files, *.tar, or one of {known}'
    raise FileNotFoundError(errno.ENOENT, detail, root)


def _read_metadata(files: SourceFiles) -> Metadata | None:
    """Returns the content of metadata.json; None if it is not a JSON object, and so an ordinary file."""
    content = files.head(METADATA, MAX_METADATA_BYTES + 1)
    try:
        within = len(content) <= MAX_METADATA_BYTES
        return load_metadata(content, f'{files.root}/{METADATA}') if within else None
    except CorruptError:
        return None


def _with_changes(source: Source, changes: Mapping[str, str | None] | None) -> Source:
    for field, type in (changes or {}).items():
        if type is None and field not in source.spec and field in source.left_out:
            continue
        if field not in source.spec and field not in source.from_text:
            raise SpecError(field, f'one of the fields {", ".join(source.spec)}', field)
        if field == KEY and isinstance(source, FileSource) and type != 'utf8':
            raise SpecError(field, 'utf8, from which an interrupted import is resumed', str(type))
        if type is None:
            source.spec.pop(field, None)
        else:
            source.spec[field] = type
    return source
