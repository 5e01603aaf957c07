"""`bags.convert`: makes a dataset of a folder of files or of WebDataset tars."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from bags.concurrency import map_in_threads
from bags.dataset.field_writer import Compression
from bags.dataset.metadata import MAX_METADATA_BYTES, METADATA, Metadata, dump_metadata, load_metadata
from bags.dataset.open import open as open_dataset
from bags.dataset.registry import encoders
from bags.dataset.sharded_writer import GB, ShardedDatasetWriter
from bags.dataset.spec import parse_spec
from bags.errors import CorruptError, EncodeError, SourceError, SpecError
from bags.interop.extensions import KEY
from bags.interop.folders import FolderSource, list_files
from bags.interop.source import Entry, Source
from bags.interop.webdataset import TarSource, is_tar
from bags.progress import progress as show_progress
from bags.validation import at_least_or_none, one_of

__all__ = ['Converted', 'convert', 'open_source']

WORKERS = 4
MAX_BATCH = 64
"""Datapoints that are loaded at a time."""
BATCH_BYTES = 1 << 26
"""Bytes that are loaded at a time, about."""

SourcePath = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclasses.dataclass(frozen=True)
class Converted:
    """What `convert` made."""

    spec: dict[str, str]
    datapoints: int
    """Datapoints of the dataset, with those of an earlier run."""
    size: int
    """Bytes of it."""
    skipped: list[tuple[str, str]]
    """SourceError files, and why; their datapoints were left out."""


def convert(
    source: SourcePath | Source,
    directory: str | os.PathLike[str],
    *,
    layout: str | None = None,
    spec: Mapping[str, str | None] | None = None,
    on_error: Literal['raise', 'skip'] = 'raise',
    workers: int | None = None,
    compression: Compression = None,
    shard_size: int | None = 10 * GB,
    shard_length: int | None = None,
    resume: bool = False,
    mode: Literal['create', 'overwrite'] = 'create',
    progress: bool | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    source_options: Mapping[str, Any] | None = None,
) -> Converted:
    """Makes a sharded dataset of a folder of media or of WebDataset tars. Files are stored byte for byte.

    File names give the fields and the spec (`open_source` shows it beforehand): `x.jpg` and `x.txt` are a
    datapoint with fields `jpg` and `txt`; the field `__key__` holds `x`. A field is optional if some of the
    datapoints have no file for it. An object of JSON in `metadata.json`, at the top of a folder, becomes the
    metadata of the dataset: `export` writes it.

    Args:
        source: A folder, a tar, several tars, or what `open_source` returned.
        directory: The dataset.
        layout, spec: As in `open_source`.
        on_error: 'raise' stops at the first damaged file, 'skip' leaves out its datapoint. Of a damaged tar
            it takes what is before the damage.
        workers: Threads that read files; 4 unless given.
        compression, shard_size, shard_length, mode, filesystem, storage_options: As in
            `ShardedDatasetWriter`.
        resume: Continue an interrupted conversion.
        progress: Show a bar: True, False, or None for on terminals.
        source_options: As `storage_options`, for a source that is a URL.

    Raises:
        FileNotFoundError: No source.
        FileExistsError: The directory is not empty.
        SourceError: A file that is not what its name says. `resume` continues after what came before.
        SpecError: An invalid type.
    """
    one_of('on_error', on_error, ('raise', 'skip'))
    workers = at_least_or_none('workers', workers, 1) or WORKERS
    if not isinstance(source, Source):
        source = open_source(
            source, layout=layout, spec=spec, storage_options=source_options, on_error=on_error
        )
    # These files are stored byte for byte: encoding their values would change spaces or the order of keys.
    unchanged = dict.fromkeys(('json', 'msgpack', 'tree'), lambda value, *_args: bytes(value))
    skipped = list(source.damaged)
    storage: dict[str, Any] = {'filesystem': filesystem, 'storage_options': storage_options}
    with ShardedDatasetWriter(
        directory,
        source.spec,
        {**encoders, **unchanged},
        shard_size,
        shard_length,
        compression=compression,
        resume=resume,
        mode=mode,
        metadata=_metadata(source),
        **storage,
    ) as writer:
        entries = source.entries()
        if len(writer):
            writer.flush()
            entries = _remaining(entries, len(writer), directory, storage)
        with show_progress('importing', source.count - len(writer), 'datapoints', show=progress) as advance:
            for datapoint in _load(source, entries, workers):
                before = writer.size
                try:
                    _append(writer, datapoint)
                except SourceError as exc:
                    if on_error == 'raise':
                        raise
                    skipped.append((exc.name, exc.detail))
                advance(1, writer.size - before)
    return Converted(writer.spec, len(writer), writer.size, skipped)


def open_source(
    source: SourcePath,
    *,
    layout: str | None = None,
    spec: Mapping[str, str | None] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    on_error: Literal['raise', 'skip'] = 'raise',
) -> Source:
    """Returns what a folder, a tar or several tars would be as a dataset.

    Args:
        source: A folder of files, a folder of tars, a tar, or a list or glob of tars; path or URL.
        layout: Of a folder: 'files', 'stems', 'classes' or 'episodes'; by default what fits its names.
        spec: Changes to the spec: a type by field, or None to leave a field out.
        storage_options: As in `bags.open`, for a URL.
        on_error: 'raise' refuses a damaged tar, 'skip' takes what is before the damage.

    Raises:
        FileNotFoundError: Nothing is there.
        SourceError: Files that cannot be grouped into datapoints, or a damaged tar.
        SpecError: A type for a field that does not exist.
    """
    if not isinstance(source, str | os.PathLike | Iterable):
        raise TypeError(f'source: expected a folder, a tar or several tars, got {source!r:.80}')
    if not isinstance(spec, Mapping | None):
        raise TypeError(f'spec: expected a mapping of fields to types, got {spec!r:.80}')
    tars = [os.fspath(part) for part in ([source] if isinstance(source, str | os.PathLike) else source)]
    if not tars:
        raise ValueError('source: expected a folder, a tar or several tars, got none')
    metadata: Metadata | None = None
    if isinstance(source, str | os.PathLike) and not is_tar(root := tars[0]):
        names = list_files(root, storage_options)
        if any(name.rpartition('/')[2] == 'refs.bag' for name in names):
            raise SourceError(root, 'is a dataset already; bags.copy copies one')
        if METADATA in names and len(names) > 1:
            metadata = _read_metadata(root, storage_options)
            names = [name for name in names if metadata is None or name != METADATA]
        if names and (layout is not None or not all(map(is_tar, names))):
            return _with_changes(FolderSource(root, names, layout, storage_options), spec, metadata)
        if names:
            tars = [f'{root.rstrip("/")}/{name}' for name in names]
        elif not any(letter in root for letter in '*?['):
            detail = 'no files to import; expected a folder of files, or tars'
            raise FileNotFoundError(errno.ENOENT, detail, root)
    return _with_changes(TarSource(tars, storage_options, on_error), spec, metadata)


def _read_metadata(root: str, storage_options: Mapping[str, Any] | None) -> Metadata | None:
    """Returns the metadata of a folder; None if the file is no object of JSON, and so a file like others."""
    import fsspec

    fs, path = fsspec.core.url_to_fs(f'{root.rstrip("/")}/{METADATA}', **(storage_options or {}))
    if fs.size(path) > MAX_METADATA_BYTES:
        return None
    try:
        return load_metadata(fs.cat_file(path), path)
    except CorruptError:
        return None


def _metadata(source: Source) -> Metadata | None:
    """Returns the metadata for the dataset, with facts of fields under their names there.

    What was the field `photo` before an export is `photo.jpg` now. A sequence of times is none any more.
    """
    types, facts = parse_spec(source.spec), source.metadata.get('fields', {})
    fields = {}
    for name in types:
        found = facts.get(name, facts.get(name.rpartition('.')[0]))
        if isinstance(found, dict) and not (found.get('times') in types and types[found['times']].sequence):
            found = {key: fact for key, fact in found.items() if key != 'times'}
        if found is not None:
            fields[name] = found
    metadata = {key: value for key, value in source.metadata.items() if key != 'fields'}
    metadata |= {'fields': fields} if fields else {}
    try:
        dump_metadata(metadata, types)
    except (TypeError, ValueError) as exc:
        raise SourceError(METADATA, str(exc)) from exc
    return metadata or None


def _with_changes(
    source: Source, changes: Mapping[str, str | None] | None, metadata: Metadata | None
) -> Source:
    source.metadata = metadata or {}
    for field, kind in (changes or {}).items():
        if field not in source.spec:
            raise SpecError(field, f'one of the fields {", ".join(source.spec)}', field)
        if field == KEY and kind != 'utf8':
            raise SpecError(field, 'utf8, from which an interrupted import is resumed', str(kind))
        if kind is None:
            del source.spec[field]
        else:
            source.spec[field] = kind
    return source


def _remaining(
    entries: Iterator[Entry], count: int, directory: Any, storage: dict[str, Any]
) -> Iterator[Entry]:
    """Returns the entries after the last one that was converted; some before it may have been skipped."""
    with open_dataset(directory, **storage) as dataset:
        last = dataset[count - 1, KEY][KEY]
    for number, entry in enumerate(entries, 1):
        if number >= count and entry.key == last:
            return entries
    raise SourceError(os.fspath(directory), f'expected a source with its last datapoint, {last!r}, to resume')


def _load(source: Source, entries: Iterator[Entry], workers: int) -> Iterator[dict[str, Any] | SourceError]:
    """Yields the datapoint of each entry in order, or what is wrong with it; loads a batch in threads."""

    def load(entry: Entry) -> dict[str, Any] | SourceError:
        try:
            return source.load(entry)
        except SourceError as exc:
            return exc

    length = 1  # More when it is known how large datapoints are.
    while batch := list(itertools.islice(entries, length)):
        loaded = map_in_threads(load, batch, workers)
        yield from loaded
        values = [value for each in loaded if isinstance(each, dict) for value in each.values()]
        mean = sum(len(value) for value in values if isinstance(value, bytes | str)) // len(loaded)
        length = max(1, min(2 * length, 4 * workers, MAX_BATCH, BATCH_BYTES // max(1, mean)))


def _append(writer: ShardedDatasetWriter, datapoint: dict[str, Any] | SourceError) -> None:
    if isinstance(datapoint, SourceError):
        raise datapoint
    try:
        writer.append(datapoint)
    except EncodeError as exc:
        name = str(datapoint[KEY]).encode('utf-8', 'backslashreplace').decode()
        raise SourceError(name, str(exc)) from exc
