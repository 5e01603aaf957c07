"""`bags.convert`: imports files, tars, or the data of another library as a dataset."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Unpack

from bags.concurrency import map_concurrently
from bags.dataset.metadata import METADATA, Metadata, dump_metadata, metadata_to_store
from bags.dataset.open import open as open_dataset
from bags.dataset.options import WriteOptions, WriterSettings
from bags.dataset.registry import encoders
from bags.dataset.resume import ProgressLog, resumed
from bags.dataset.sharded_writer import ShardedDatasetWriter
from bags.dataset.spec import parse_spec
from bags.dataset.written import Skipped, Written
from bags.errors import BagsError, EncodeError, SourceError
from bags.interop.extensions import KEY
from bags.interop.files import Entry, FileSource
from bags.interop.fingerprint import fingerprint_of_files
from bags.interop.open_source import SourcePath, open_source
from bags.interop.source import Damaged, Source, naming
from bags.progress import progress as show_progress
from bags.storage.urls import locate
from bags.validation import merge, one_of, worker_count

MAX_BATCH = 64
"""Maximum number of datapoints that are loaded at a time."""
BATCH_BYTES = 1 << 26
"""Approximate bytes that are loaded at a time."""


def convert(
    source: SourcePath | Source,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    layout: str | None = None,
    spec: Mapping[str, str | None] | None = None,
    on_error: Literal['raise', 'skip'] = 'raise',
    encode: bool = False,
    check_source: bool = True,
    workers: int | None = None,
    progress: bool | None = None,
    source_options: Mapping[str, Any] | None = None,
    **options: Unpack[WriteOptions],
) -> Written:
    """Imports other data as a sharded dataset: folders of media, WebDataset tars, formats of docs/import.md.

    Media are stored byte for byte. `open_source` shows the fields and types beforehand. In a folder, `x.jpg`
    and `x.txt` are a datapoint with fields `jpg` and `txt`; the field `__key__` holds `x`. A field is
    optional if some datapoints have no file for it. A JSON object in `metadata.json`, at the top of a folder,
    becomes the metadata of the dataset: `export` writes it.

    Args:
        source: A file, a folder, a list or glob of files, or the result of `open_source`.
        path: The dataset.
        format, layout, spec: As in `open_source`.
        on_error: 'raise' stops at the first damaged value, 'skip' leaves out its datapoint. Of a damaged tar
            that is not compressed, 'skip' keeps the datapoints before the damage.
        encode: Encode media again that a copy would not serve: the episodes of a video file of LeRobot that
            do not begin at a key frame. `notes` of the result lists them.
        check_source: With `resume`, raise if the source has changed since the earlier run: the names, sizes
            or contents of its files, of large ones the ends. False continues with its other datapoints. Not
            after damage, which may have been repaired; and a folder or tars with the field `__key__` are
            continued after the last key instead.
        workers: Threads that read files; the number of processors unless given.
        progress: Show a bar: True, False, or None for on terminals.
        source_options: As `storage_options`, for a source that is a URL.
        **options: As in `ShardedDatasetWriter`. `metadata`: unless given, that of the source. `resume=True`
            continues an interrupted conversion.

    Raises:
        FileNotFoundError: No source.
        FileExistsError: The folder is not empty.
        SourceError: A file is damaged, or not of the format of its name. `resume` continues there.
        SpecError: An invalid type.
    """
    one_of('on_error', on_error, ('raise', 'skip'))
    settings = merge(WriterSettings, None, options, function=convert)
    workers = worker_count(workers)
    if not isinstance(source, Source):
        with _reading_source(source, path, bool(settings.storage_options), bool(source_options)):
            source = open_source(
                source, format=format, layout=layout, spec=spec, storage_options=source_options,
                on_error=on_error,
            )  # fmt: skip
    source.encode = encode
    skipped = [Skipped(*each) for each in source.damaged]
    if settings.metadata is None:
        options = {**options, 'metadata': _metadata(source)}
    with ShardedDatasetWriter(path, source.spec, {**encoders, **source.encoders}, **options) as writer:
        log: ProgressLog | None = None
        if isinstance(source, FileSource) and source.key_field == KEY:
            start = len(writer)
            entries = source.entries() if not start else _remaining(source, writer, settings.storage, skipped)
        else:
            made_from: dict[str, Any] = {'kind': source.format, 'length': source.count}
            if source.opened_from is not None:
                made_from['identity'] = fingerprint_of_files(*source.opened_from)
            log = ProgressLog(writer, made_from, settings.resume, check_source)
            noted: list[list[Any]] = log.state.get('skipped', [])
            start, left_out = resumed(len(writer), noted, lambda entry: int(entry[3]))
            log.state['skipped'] = left_out
            if len(left_out) < len(noted):
                log.save()
            skipped += [Skipped(name, detail) for _, name, detail, _ in left_out]
            entries = source.entries(start)
        loaded = _load(source, entries, workers if source.loads_in_threads else 1)
        with (
            _noting_damage(log),
            show_progress('importing', source.count - start, 'datapoints', show=progress) as advance,
        ):
            for name, datapoint in loaded:
                before = writer.size
                length = datapoint.length if isinstance(datapoint, Damaged) else 1
                try:
                    _append(writer, name, datapoint)
                except SourceError as exc:
                    if on_error == 'raise':
                        raise
                    skipped.append(Skipped(exc.name, exc.detail))
                    if log is not None:  # Saved before a later datapoint is written: see `resumed`.
                        left_out.append([start, exc.name, exc.detail, length])
                        log.save()
                start += length
                advance(length, writer.size - before)
    return Written(len(writer), writer.shards, writer.size, writer.spec, skipped, list(source.notes))


@contextlib.contextmanager
def _noting_damage(log: ProgressLog | None) -> Iterator[None]:
    """Notes in a log that the run ends at damage of the source, which may be repaired."""
    try:
        yield
    except SourceError:
        if log is not None:
            log.may_be_repaired = True
            log.save()
        raise


@contextlib.contextmanager
def _reading_source(
    source: SourcePath, path: str | os.PathLike[str], has_options: bool, has_source_options: bool
) -> Iterator[None]:
    """Says that `source_options` are meant, if the source fails and only those of the dataset are given.

    Raises:
        ValueError: The dataset is local, so that its options have no effect.
        SourceError: The source cannot be read.
    """
    parts = source if isinstance(source, list | tuple) else [source]
    is_url = any(locate(str(part))[0] != 'file' for part in parts)
    if not is_url or has_source_options or not has_options:
        yield
        return
    detail = 'storage_options are those of the dataset; pass source_options= for the source'
    if locate(str(path))[0] == 'file':
        raise ValueError(f'convert: {detail} {parts[0]}')
    try:
        yield
    except (BagsError, FileNotFoundError, ValueError, TypeError):
        raise
    except Exception as exc:  # E.g. botocore's NoCredentialsError.
        raise SourceError(str(parts[0]), f'cannot be read: {exc} ({detail})') from exc


def _metadata(source: Source) -> Metadata | None:
    """Returns the metadata for the dataset, with the facts of fields under their new names.

    A field `photo` becomes `photo.jpg` by export and import, and a sequence of times becomes an array.
    """
    types, facts = parse_spec(source.spec), source.metadata.get('fields', {})
    fields = {}
    for name in types:
        found = facts.get(name, facts.get(name.rpartition('.')[0]))
        if found is not None:
            fields[name] = found
    metadata = {key: value for key, value in source.metadata.items() if key != 'fields'}
    metadata = metadata_to_store(metadata | ({'fields': fields} if fields else {}), types)
    try:
        dump_metadata(metadata, types)
    except (TypeError, ValueError) as exc:
        raise SourceError(METADATA, str(exc)) from exc
    return metadata or None


def _remaining(
    source: FileSource,
    writer: ShardedDatasetWriter,
    storage: dict[str, Any],
    skipped: list[Skipped],
) -> Iterator[Entry]:
    """Returns the entries after the last converted one; adds earlier, unconverted ones to `skipped`."""
    writer.flush()
    entries = source.entries()
    with open_dataset(writer.path, **storage) as dataset:
        for row in dataset[:, KEY]:
            for entry in entries:
                if entry.key == row[KEY]:
                    break
                detail = 'not in the dataset: left out before, or added since'
                skipped.append(Skipped(source.name(entry), detail))
            else:
                detail = f'expected a source with its datapoint {row[KEY]!r}, to resume'
                raise SourceError(writer.path, detail)
    return entries


def _load(
    source: Source, entries: Iterator[Any], workers: int
) -> Iterator[tuple[str, Mapping[str, Any] | Damaged]]:
    """Yields the name and the datapoint of each entry in order, or its error.

    A batch of entries is loaded at a time, in threads.
    """

    def load(entry: Any) -> Mapping[str, Any] | Damaged:
        if isinstance(entry, Damaged):
            return entry
        try:
            with naming(source.name(entry)):
                return {name: value for name, value in source.load(entry).items() if name in source.spec}
        except SourceError as exc:
            return Damaged(exc)

    length = 1  # Grows once the size of datapoints is known.
    while batch := _next_batch(source, entries, length):
        loaded = map_concurrently(load, batch, max_threads=workers)
        names = ['' if isinstance(entry, Damaged) else source.name(entry) for entry in batch]
        yield from zip(names, loaded, strict=True)
        values = [value for each in loaded if isinstance(each, dict) for value in each.values()]
        mean = sum(_size_of(value) for value in values) // len(loaded)
        length = max(1, min(2 * length, 4 * workers, MAX_BATCH, BATCH_BYTES // max(1, mean)))


def _next_batch(source: Source, entries: Iterator[Any], length: int) -> list[Any]:
    """Returns up to `length` entries: fewer if they are known to be large, none at the end."""
    batch: list[Any] = []
    size = 0
    with naming(source.path or source.format):
        for entry in itertools.islice(entries, length):
            batch.append(entry)
            size += 0 if isinstance(entry, Damaged) else source.size(entry)
            if size >= BATCH_BYTES:
                break
    return batch


def _size_of(value: Any) -> int:
    """Returns the approximate bytes of a value."""
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, list | tuple):
        return sum(map(_size_of, value))
    return int(getattr(value, 'nbytes', 8))


def _append(writer: ShardedDatasetWriter, name: str, datapoint: Mapping[str, Any] | Damaged) -> None:
    if isinstance(datapoint, Damaged):
        raise datapoint.error
    try:
        writer.append(datapoint)
    except EncodeError as exc:
        raise SourceError(name, str(exc)) from exc
