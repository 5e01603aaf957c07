"""`bags.convert`: imports files, tars, or the data of another library as a dataset."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Unpack

import numpy as np

from bags.bag.limits import ENTRY
from bags.dataset.format.metadata import METADATA, Metadata, dump_metadata, metadata_to_store, rename_metadata
from bags.dataset.format.options import WriteOptions, WriterSettings
from bags.dataset.format.registry import encoders
from bags.dataset.format.spec import parse_spec
from bags.dataset.writing.field_writer import RecordRun
from bags.dataset.writing.sharded_writer import ShardedDatasetWriter
from bags.errors import BagsError, EncodeError, SourceError
from bags.indexing import offsets_of
from bags.interop.file_extensions import KEY
from bags.interop.files import FileSource
from bags.interop.fingerprint import fingerprint_of_files
from bags.interop.imported import remaining_entries
from bags.interop.linking import (
    StoredFields,
    check_first,
    check_replaced,
    fields_to_link,
    linked_folders,
    merge_types,
    new_entries,
    options_to_replace,
    stored_fields,
)
from bags.interop.load import Block, load_blocks
from bags.interop.open_source import SourcePath, open_to_resume
from bags.interop.source import DamagedEntries, RecordBlock, Source, list_some
from bags.interop.sources.manifests.manifest_options import ManifestOptions, manifest_options
from bags.interop.sources.tokens.token_file import TokenOptions, token_options
from bags.links.link_builder import LinkRun
from bags.links.permission import Permission, PermittedPaths
from bags.links.rows import ROW_BYTES
from bags.links.sources import LinkOpener
from bags.progress.progress import progress as show_progress
from bags.progress.progress_log import ProgressLog, resumed
from bags.progress.source_options import advise_source_options
from bags.progress.write_result import Skipped, WriteResult
from bags.validation import merge, no_field, one_of, worker_count

REQUESTS = 32
"""Number of threads that open remote linked files, which waits for a network."""
FORMATS_OF_LARGE_FILES = ('video', 'audio')
"""Types whose values may be paths of large files. These are copied one at a time."""
FORMATS_IN_TEXTS = ('utf8', 'float', 'int', 'uint', 'bool', 'json')
"""Formats of the items of tables and manifests, whose sequences are in memory when a datapoint is loaded."""


def convert(
    source: SourcePath | Source,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    layout: str | None = None,
    spec: Mapping[str, str | None] | None = None,
    rename: Mapping[str, str] | None = None,
    link: bool | Iterable[str] = False,
    update: bool = False,
    on_error: Literal['raise', 'skip'] = 'raise',
    encode: bool = False,
    check_source: bool = True,
    workers: int | None = None,
    progress: bool | None = None,
    source_options: Mapping[str, Any] | None = None,
    by: Literal['document', 'sequence'] = 'document',
    dtype: str | None = None,
    end: int | None = None,
    offsets: str | os.PathLike[str] | None = None,
    length: int | None = None,
    file: Mapping[str, str] | None = None,
    root: str | os.PathLike[str] | None = None,
    trust_links: PermittedPaths = (),
    **options: Unpack[WriteOptions],
) -> WriteResult:
    """Imports other data as a sharded dataset: folders of media, WebDataset tars, formats of docs/import.md.

    Media are stored byte for byte. `open_source` shows the fields and types beforehand. In a folder, `x.jpg`
    and `x.txt` are a datapoint with fields `jpg` and `txt`; the field `__key__` holds `x`. A field is
    optional if some datapoints have no file for it. A JSON object in `metadata.json`, at the top of a folder,
    becomes the metadata of the dataset: `export` writes it.

    Args:
        source: A file, a folder, a list or glob of files, or the result of `open_source`.
        path: The dataset.
        format, layout, spec, by, dtype, end, offsets, length: As in `open_source`.
        file, root, trust_links: As in `open_source`, for manifests.
        on_error: 'raise' stops at the first damaged value, 'skip' leaves out its datapoint. In a damaged tar
            that is not compressed, 'skip' keeps the datapoints before the damage.
        rename: The new name of each field to rename.
        link: Fields, by their names in the source, whose records are not copied: the dataset has links to
            them, and needs the files of the source. True links fields whose records have more than 256 bytes
            on average in the first 100 datapoints. Only the first bytes of linked media are checked. Values
            that are compressed in the source are copied.
        update: With `link`, append the datapoints that were added to the source since the dataset was
            written, from new files, tars and chunks. Creates the dataset if it does not exist. Raises if
            files of existing datapoints are missing or have changed; `check_source=False` keeps these
            datapoints.
        encode: Encode media again that cannot be copied: the episodes in a video file of LeRobot that do not
            begin at a key frame. `notes` of the result lists them.
        check_source: With `resume`, raise if the source has changed since the earlier run. The names, sizes
            and contents of its files are compared, but only the ends of large files, and nothing if the
            earlier run ended at damage, which may have been repaired. False continues with the remaining
            datapoints. In a folder, or in tars with the field `__key__`, files may have been added, repaired
            or removed: only the files of datapoints in the dataset are compared, by size, and by content in
            the last datapoint and in the first 64 MiB of each field. `notes` of the result lists the fields
            that were not compared by content.
        workers: Threads that read files. Default: the number of processors.
        progress: Whether to show a bar; None: if standard error is a terminal.
        source_options: The `storage_options` of a source that is a URL.
        **options: As in `ShardedDatasetWriter`. The default of `metadata` is the metadata of the source.
            `resume=True` continues an interrupted conversion.

    Raises:
        FileNotFoundError: The source does not exist.
        FileExistsError: The folder is not empty.
        SourceError: A file is damaged, or does not have the format of its name. `resume` continues there.
        SpecError: A type is invalid.
        ValueError: No field can be linked.

    Examples:
        >>> done = bags.convert('photos', 'dataset')
        >>> done.datapoints, done.spec
        (6, {'__key__': 'utf8', 'jpg': 'jpeg', 'label': 'utf8'})
    """
    one_of('on_error', on_error, ('raise', 'skip'))
    settings = merge(WriterSettings, None, options, function=convert)
    settings.refuse_links('link=(FIELD, …) links fields of the source')
    if update:
        if not link:
            raise ValueError('update: expected link=True, or the fields that are linked')
        settings.resume, options = True, {**options, 'resume': True}
    workers = worker_count(workers)
    stored = stored_fields(path, settings) if settings.resume else None
    if not isinstance(source, Source):
        tokens = token_options(by, dtype, end, offsets, length)
        manifest = manifest_options(file, root, trust_links)
        source = _open(
            source, stored, rename or {}, path, format, layout, spec, on_error, settings, source_options,
            tokens, manifest,
        )  # fmt: skip
    if source.ambiguity is not None:
        raise source.ambiguity
    source.encode = encode
    names = _new_names(source, rename or {})
    skipped, notes = [Skipped(*damage) for damage in source.damaged], list[str]()
    if settings.metadata is None:
        options = {**options, 'metadata': _metadata(source, names)}
    types = {names[name]: text for name, text in source.spec.items()}
    if update and stored is not None:
        types = merge_types(source, types, stored.spec)
    paths, storage_options = source.opened_from or ([], source_options)
    source.opener = LinkOpener(storage_options)
    if linked := fields_to_link(source, link):
        to_link = {names[name] for name in linked}
        if link is True and stored is not None:
            to_link -= stored.copied
        options = {**options, 'linked_fields': to_link}
    replacement: dict[str, Any] = {}
    if update and stored is not None and check_source and source.rewrites_files:
        replacement = options_to_replace(source, path, settings)
    if replacement:
        update = settings.resume = False
        options.update(replacement)  # type: ignore[typeddict-item]
    with ShardedDatasetWriter(path, types, _encoders(source), **options) as writer:
        source.linked = {name for name in source.spec if names[name] in writer.linked_fields}
        if linked and not source.linked:
            raise ValueError(
                f'link: {writer.path} has no linked fields: they are fixed when a dataset is created'
            )
        if source.linked and any('://' in source_path for source_path in paths):
            workers = max(workers, REQUESTS)
        start, entries, log = _resume(
            source, writer, names, settings, skipped, notes, update, check_source, workers
        )
        blocks = source.blocks(start, writer.checksum)
        if blocks is not None:
            _append_record_blocks(source, writer, names, start, blocks, progress)
        else:
            _append_entries(source, writer, names, start, entries, log, skipped, on_error, workers, progress)
        if replacement:
            check_replaced(source, writer, path, settings.storage, names)
            notes.append('all links were created again, because a linked file has changed')
        if writer.replacement is not None:
            for folder in source.opener.folders:
                writer.replacement.expect_outside(folder)
    parents = linked_folders(source.opener.folders)
    if parents:
        fields = list_some(sorted(names[name] for name in source.linked))
        where = f'the linked files stay where they are: readers permit them by trust_links={parents!r:.400}'
        notes.append(f'linked fields: {fields}; {where}')
    permission = Permission(writer.store, writer.path, ())
    trusted = [folder for folder in parents if permission.check_folder(folder) is None]
    all_notes = [*source.notes, *notes]
    return WriteResult(
        len(writer), writer.shards, writer.size, writer.spec, skipped, all_notes, parents, trusted
    )


def open_to_import(
    source: SourcePath,
    path: str | os.PathLike[str],
    *,
    format: str | None,
    layout: str | None,
    spec: Mapping[str, str | None] | None,
    rename: Mapping[str, str],
    on_error: Literal['raise', 'skip'],
    resume: bool,
    by: Literal['document', 'sequence'] = 'document',
    dtype: str | None = None,
    end: int | None = None,
    offsets: str | os.PathLike[str] | None = None,
    length: int | None = None,
    file: Mapping[str, str] | None = None,
    root: str | os.PathLike[str] | None = None,
    trust_links: PermittedPaths = (),
) -> Source[Any]:
    """Opens a source as `convert` does: to resume, with the layout and the types of the existing dataset.

    Does not raise if the files may be read in several ways, but sets `ambiguity` of the source.

    Args:
        source, format, layout, spec, on_error: As in `convert`.
        by, dtype, end, offsets, length, file, root, trust_links: As in `convert`.
        path: The dataset.
        rename: The new name of each field to rename.
        resume: Whether the dataset is continued.
    """
    settings = merge(WriterSettings, None, {'resume': resume}, function=convert)
    stored = stored_fields(path, settings) if resume else None
    tokens = token_options(by, dtype, end, offsets, length)
    manifest = manifest_options(file, root, trust_links)
    return _open(
        source, stored, rename, path, format, layout, spec, on_error, settings, None, tokens, manifest
    )


def _open(
    source: SourcePath,
    stored: StoredFields | None,
    rename: Mapping[str, str],
    path: str | os.PathLike[str],
    format: str | None,
    layout: str | None,
    spec: Mapping[str, str | None] | None,
    on_error: Literal['raise', 'skip'],
    settings: WriterSettings,
    source_options: Mapping[str, Any] | None,
    tokens: TokenOptions,
    manifest: ManifestOptions,
) -> Source[Any]:
    """Opens the source, as `open_to_resume`; errors of a client say which option has its credentials."""
    sources = source if isinstance(source, list | tuple) else [source]
    old_names = {new: old for old, new in rename.items()}
    types = {old_names.get(name, name): text for name, text in (stored.spec if stored else {}).items()}
    with advise_source_options('convert', sources, path, settings.storage_options, source_options) as advice:
        try:
            return open_to_resume(
                source, types, stored.layout if stored else None, format=format, layout=layout, spec=spec,
                storage_options=source_options, on_error=on_error, tokens=tokens, manifest=manifest,
            )  # fmt: skip
        except (BagsError, FileNotFoundError, ValueError, TypeError):
            raise
        except Exception as exc:  # E.g. botocore's NoCredentialsError.
            if not advice:
                raise
            raise SourceError(str(sources[0]), f'cannot be read: {exc} ({advice})') from exc


def _resume(
    source: Source[Any],
    writer: ShardedDatasetWriter,
    names: Mapping[str, str],
    settings: WriterSettings,
    skipped: list[Skipped],
    notes: list[str],
    update: bool,
    check_source: bool,
    workers: int,
) -> tuple[int, Iterator[Any], ProgressLog | None]:
    """Finds where an import starts or continues, and adds to `skipped` and `notes`.

    The datapoints of files are found by the field `KEY`, and a log has their layout. Others are found by
    their position in the source, for which a log has the datapoints that were skipped.

    Returns:
        The number of datapoints written or skipped so far, the remaining entries, and the log, or None.
    """
    if isinstance(source, FileSource) and source.key_field == KEY:
        facts = {'kind': source.format, 'layout': source.layout}
        layout_log = ProgressLog(writer, facts, settings.resume, is_required=False)
        start = len(writer)
        if not start and source.is_layout_given:
            layout_log.state['is_layout_given'] = True
            layout_log.save()
        entries: Iterator[Any] = source.entries()
        if start and update:
            entries = new_entries(
                source, writer, settings.storage, names, notes, check_source=check_source, workers=workers
            )
        elif start:
            entries = remaining_entries(
                source, writer, settings.storage, names, skipped, notes, check_source=check_source,
                workers=workers,
            )  # fmt: skip
        return start, entries, None
    source_facts: dict[str, Any] = {'kind': source.format, 'length': source.count}
    if source.facts:
        source_facts['options'] = dict(source.facts)
    if source.opened_from is not None:
        source_facts['identity'], ends_only = fingerprint_of_files(*source.opened_from)
        if ends_only and settings.resume and check_source and len(writer):
            detail = 'compared with the earlier source by size and ends only'
            notes.append(f'resumed: {list_some(ends_only)}: {detail}')
    compare = check_source and not update
    log = ProgressLog(writer, source_facts, settings.resume, compare, grows=update)
    logged: list[list[Any]] = log.state.get('skipped', [])
    start, log.state['skipped'] = resumed(len(writer), logged, lambda entry: int(entry[3]))
    if len(log.state['skipped']) < len(logged):
        log.save()
    skipped += [Skipped(name, detail) for _, name, detail, _ in log.state['skipped']]
    if update and check_source and len(writer):
        last = start
        for position, _, _, length in reversed(log.state['skipped']):
            last = position if position + length == last else last
        check_first(source, writer, settings.storage, names, last - 1)
    return start, source.entries(start), log


def _append_entries(
    source: Source[Any],
    writer: ShardedDatasetWriter,
    names: Mapping[str, str],
    start: int,
    entries: Iterator[Any],
    log: ProgressLog | None,
    skipped: list[Skipped],
    on_error: Literal['raise', 'skip'],
    workers: int,
    progress: bool | None,
) -> None:
    """Appends the datapoints of entries; those that are damaged are skipped, or raise."""
    blocks = load_blocks(source, names, entries, workers if source.loads_in_threads else 1)
    in_blocks = bool(source.linked) and all(
        name in writer.linked_fields
        or (
            field_type.format in FORMATS_IN_TEXTS
            if field_type.sequence
            else field_type.format not in FORMATS_OF_LARGE_FILES
        )
        for name, field_type in writer.schema.items()
    )
    with (
        _log_damage(log),
        show_progress('importing', source.count - start, 'datapoints', show=progress) as advance,
    ):
        size = writer.size
        for block in blocks:
            length = _append_block(writer, block) if in_blocks else 0
            for name, datapoint in block[length:]:
                count = datapoint.length if isinstance(datapoint, DamagedEntries) else 1
                try:
                    _append(writer, name, datapoint)
                except SourceError as exc:
                    if on_error == 'raise':
                        raise
                    skipped.append(Skipped(exc.name, exc.detail))
                    if log is not None:  # Saved before a later datapoint is written: see `resumed`.
                        log.state['skipped'].append([start + length, exc.name, exc.detail, count])
                        log.save()
                length += count
            start += length
            before, size = size, writer.size
            advance(length, size - before)


def _append_record_blocks(
    source: Source[Any],
    writer: ShardedDatasetWriter,
    names: Mapping[str, str],
    start: int,
    blocks: Iterator[RecordBlock],
    progress: bool | None,
) -> None:
    """Appends the datapoints of blocks, each block to as many shards as it needs."""
    with show_progress('importing', source.count - start, 'datapoints', show=progress) as advance:
        before = writer.size
        for block in blocks:
            first = 0
            while first < block.length:
                last = first + _fitting(writer, block, first)
                runs: dict[str, list[Any]] = {
                    names[name]: [_part_of(run, first, last)] for name, run in block.runs.items()
                }
                writer.append_runs(runs, dict.fromkeys(runs, np.arange(last - first)))
                first = last
            before, size = writer.size, before
            advance(block.length, before - size)


def _fitting(writer: ShardedDatasetWriter, block: RecordBlock, first: int) -> int:
    """Returns how many datapoints of a block, from `first` on, the current shard can take: one or more."""
    size, length, records = writer.totals
    if writer.is_full(size, length, records):
        size, length, records = 0, 0, 0
    refs_bytes = ENTRY + 1 + 5 * len(block.runs)
    sizes = np.full(block.length - first, refs_bytes + ENTRY * len(block.runs))
    for run in block.runs.values():
        sizes += ROW_BYTES if isinstance(run, LinkRun) else run.sizes[first:]
    totals = np.cumsum(sizes)
    low, high = 1, len(sizes)
    while low < high:
        # A shard takes another datapoint until it is full.
        middle = (low + high) // 2
        is_full = writer.is_full(size + int(totals[middle - 1]), length + middle, records + middle)
        low, high = (low, middle) if is_full else (middle + 1, high)
    return low


def _part_of(run: LinkRun | RecordRun, first: int, last: int) -> LinkRun | RecordRun:
    """Returns the records of a run from `first` to `last`."""
    if isinstance(run, LinkRun):
        digests = None if run.digests is None else run.digests[first:last]
        return run._replace(
            which=run.which[first:last],
            starts=run.starts[first:last],
            stops=run.stops[first:last],
            digests=digests,
        )
    if first == 0 and last == len(run.sizes):
        return run
    assert isinstance(run.data, Sequence)
    offsets = offsets_of(run.sizes)
    data = b''.join(run.data)[int(offsets[first]) : int(offsets[last])]
    return run._replace(data=[data], sizes=run.sizes[first:last])


def _new_names(source: Source, rename: Mapping[str, str]) -> dict[str, str]:
    """Returns the name in the dataset of each field of a source.

    Raises:
        KeyError: No such field.
        ValueError: Two fields would have one name.
    """
    for name in rename:
        if name not in source.spec:
            raise KeyError(f'rename: {no_field(name, source.spec)}')
    names = {name: rename.get(name, name) for name in source.spec}
    if len({*names.values()}) < len(names):
        raise ValueError(f'rename: expected another name for each field, got {rename}')
    return names


def _encoders(source: Source) -> Mapping[str, Callable[..., Any]] | None:
    """Returns the encoders for the types of a source: its own, built-in ones, and encoders of packages."""
    if not source.encoders:
        return None
    formats = {field_type.format for field_type in parse_spec(source.spec).values()} - {
        *encoders,
        *source.encoders,
    }
    added = {format: function for format in formats if (function := encoders.get(format))}
    return {**encoders, **added, **source.encoders}


@contextlib.contextmanager
def _log_damage(log: ProgressLog | None) -> Iterator[None]:
    """Records in a log if the run ends at damage of the source, which may be repaired before a resume."""
    try:
        yield
    except SourceError:
        if log is not None:
            log.may_be_repaired = True
            log.save()
        raise


def _metadata(source: Source, names: Mapping[str, str]) -> Metadata | None:
    """Returns the metadata for the dataset, with the facts of fields under their new names.

    A field `photo` becomes `photo.jpg` by export and import, and a sequence of times becomes an array.
    """
    schema, facts = parse_spec(source.spec), source.metadata.get('fields', {})
    fields = {}
    for name in schema:
        field_facts = facts.get(name, facts.get(name.rpartition('.')[0]))
        if field_facts is not None:
            fields[name] = field_facts
    metadata = {key: value for key, value in source.metadata.items() if key != 'fields'}
    metadata = metadata_to_store(metadata | ({'fields': fields} if fields else {}), schema)
    metadata = rename_metadata(metadata, names)
    try:
        dump_metadata(metadata, {names[name]: field_type for name, field_type in schema.items()})
    except (TypeError, ValueError) as exc:
        raise SourceError(METADATA, str(exc)) from exc
    return metadata or None


def _append_block(writer: ShardedDatasetWriter, block: Block) -> int:
    """Appends the intact datapoints of a block together, and returns how many were appended.

    Fewer are appended if a datapoint cannot be encoded. `_append` then raises the error of that datapoint.
    """
    before = len(writer)
    datapoints = [datapoint for _, datapoint in block if not isinstance(datapoint, DamagedEntries)]
    if not datapoints:
        return 0
    with contextlib.suppress(EncodeError):
        writer.append_block([*map(writer.encode_whole, datapoints)])
    return len(writer) - before


def _append(writer: ShardedDatasetWriter, name: str, datapoint: Mapping[str, Any] | DamagedEntries) -> None:
    if isinstance(datapoint, DamagedEntries):
        raise datapoint.error
    try:
        writer.append(datapoint)
    except EncodeError as exc:
        raise SourceError(name, str(exc)) from exc
