"""`bags.convert`: imports files, tars, or the data of another library as a dataset."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, Unpack

from bags.dataset.format.metadata import METADATA, Metadata, dump_metadata, metadata_to_store, rename_metadata
from bags.dataset.format.options import WriteOptions, WriterSettings
from bags.dataset.format.registry import encoders
from bags.dataset.format.spec import parse_spec
from bags.dataset.writing.sharded_writer import ShardedDatasetWriter
from bags.errors import BagsError, EncodeError, SourceError
from bags.interop.extensions import KEY
from bags.interop.files import FileSource
from bags.interop.fingerprint import fingerprint_of_files
from bags.interop.imported import remaining_entries
from bags.interop.linking import (
    check_first,
    check_kept,
    fields_to_link,
    is_begun,
    linked_folders,
    new_entries,
    options_to_begin_anew,
    with_optional,
)
from bags.interop.load import Block, load_blocks
from bags.interop.open_source import SourcePath, open_source
from bags.interop.source import DamagedEntries, Source, list_some
from bags.links.permission import Permission
from bags.links.sources import LinkOpener
from bags.progress.progress import progress as show_progress
from bags.progress.progress_log import ProgressLog, resumed
from bags.progress.source_options import advise_source_options
from bags.progress.write_result import Skipped, WriteResult
from bags.validation import merge, no_field, one_of, worker_count

REQUESTS = 32
"""Threads that open linked objects, whose reads wait for a network."""
FILE_WORDS = ('video', 'audio')
"""Types whose values may be paths of large files, which are copied one at a time."""


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
        format, layout, spec: As in `open_source`.
        on_error: 'raise' stops at the first damaged value, 'skip' leaves out its datapoint. Of a damaged tar
            that is not compressed, 'skip' keeps the datapoints before the damage.
        rename: The new name of each field to rename.
        link: Fields, by their names in the source, whose records are not copied: the dataset has links to
            them, and needs the files in which they are. True links those whose records have more than 256
            bytes on average, of the first 100 datapoints. Of linked media only the first bytes are checked.
            Values that are compressed in the source are copied.
        update: With `link`, add what the source has got since the dataset was made: new files, tars and
            chunks. Its datapoints stay, and new ones follow them. There need not be a dataset yet. Raises if
            files of the dataset are missing or have changed, which `check_source=False` leaves as they are.
        encode: Encode media again that a copy would not serve: the episodes of a video file of LeRobot that
            do not begin at a key frame. `notes` of the result lists them.
        check_source: With `resume`, raise if the source has changed since the earlier run: the names, sizes
            or contents of its files, of large ones the ends. False continues with its other datapoints. Not
            after damage, which may have been repaired. Of a folder or of tars with the field `__key__`, files
            may have been added, repaired or removed: the files of datapoints in the dataset are compared,
            by size, the first 64 MiB of each field and the last datapoint by content: `notes` of the result
            says which were not.
        workers: Threads that read files. Default: the number of processors.
        progress: Show a bar: True, False, or None for on terminals.
        source_options: As `storage_options`, for a source that is a URL.
        **options: As in `ShardedDatasetWriter`. `metadata` is by default the metadata of the source.
            `resume=True` continues an interrupted conversion.

    Raises:
        FileNotFoundError: No source.
        FileExistsError: The folder is not empty.
        SourceError: A file is damaged, or not of the format of its name. `resume` continues there.
        SpecError: An invalid type.
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
    if not isinstance(source, Source):
        sources = source if isinstance(source, list | tuple) else [source]
        with advise_source_options(
            'convert', sources, path, settings.storage_options, source_options
        ) as advice:
            try:
                source = open_source(
                    source, format=format, layout=layout, spec=spec, storage_options=source_options,
                    on_error=on_error,
                )  # fmt: skip
            except (BagsError, FileNotFoundError, ValueError, TypeError):
                raise
            except Exception as exc:  # E.g. botocore's NoCredentialsError.
                if not advice:
                    raise
                raise SourceError(str(sources[0]), f'cannot be read: {exc} ({advice})') from exc
    source.encode = encode
    names = _new_names(source, rename or {})
    skipped, notes = [Skipped(*each) for each in source.damaged], list[str]()
    if settings.metadata is None:
        options = {**options, 'metadata': _metadata(source, names)}
    types = {names[name]: text for name, text in source.spec.items()}
    begun = is_begun(path, settings)
    if update and begun:
        types = with_optional(source, types, path, settings)
    paths, storage_options = source.opened_from or ([], source_options)
    source.opener = LinkOpener(storage_options)
    if (linked := fields_to_link(source, link)) and not (link is True and begun):
        options = {**options, 'linked_fields': {names[name] for name in linked}}
    anew: dict[str, Any] = {}
    if update and begun and check_source and source.rewrites_files:
        anew = options_to_begin_anew(source, path, settings)
    if anew:
        update = settings.resume = False
        options.update(anew)  # type: ignore[typeddict-item]
    with ShardedDatasetWriter(path, types, _encoders(source), **options) as writer:
        source.linked = {name for name in source.spec if names[name] in writer.linked_fields}
        if linked and not source.linked:
            raise ValueError(
                f'link: {writer.path} has no linked fields: they are fixed when a dataset is made'
            )
        if source.linked and any('://' in each for each in paths):
            workers = max(workers, REQUESTS)
        log: ProgressLog | None = None
        if isinstance(source, FileSource) and source.key_field == KEY:
            start = len(writer)
            entries = source.entries()
            if start and update:
                entries = new_entries(
                    source, writer, settings.storage, names, notes, check_source=check_source,
                    workers=workers,
                )  # fmt: skip
            elif start:
                entries = remaining_entries(
                    source, writer, settings.storage, names, skipped, notes, check_source=check_source,
                    workers=workers,
                )  # fmt: skip
        else:
            made_from: dict[str, Any] = {'kind': source.format, 'length': source.count}
            if source.opened_from is not None:
                made_from['identity'], ends_only = fingerprint_of_files(*source.opened_from)
                if ends_only and settings.resume and check_source and len(writer):
                    detail = 'was compared with the earlier one by its size and its ends only'
                    notes.append(f'resumed: of the source, {list_some(ends_only)} {detail}')
            log = ProgressLog(writer, made_from, settings.resume, check_source and not update, grows=update)
            noted: list[list[Any]] = log.state.get('skipped', [])
            start, left_out = resumed(len(writer), noted, lambda entry: int(entry[3]))
            log.state['skipped'] = left_out
            if len(left_out) < len(noted):
                log.save()
            skipped += [Skipped(name, detail) for _, name, detail, _ in left_out]
            if update and check_source:
                last = start
                for position, _, _, length in reversed(left_out):
                    last = position if position + length == last else last
                check_first(source, writer, settings.storage, names, last - 1)
            entries = source.entries(start)
        loaded = load_blocks(source, names, entries, workers if source.loads_in_threads else 1)
        in_blocks = bool(source.linked) and all(
            name in writer.linked_fields or not (field_type.sequence or field_type.word in FILE_WORDS)
            for name, field_type in writer.types.items()
        )
        with (
            _noting_damage(log),
            show_progress('importing', source.count - start, 'datapoints', show=progress) as advance,
        ):
            size = writer.size
            for block in loaded:
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
                            left_out.append([start + length, exc.name, exc.detail, count])
                            log.save()
                    length += count
                start += length
                before, size = size, writer.size
                advance(length, size - before)
        if anew:
            check_kept(writer, path, settings.storage)
            notes.append('all links were made anew, as a linked file has changed')
        if writer.replacement is not None:
            for folder in source.opener.folders:
                writer.replacement.expect_outside(folder)
    parents = linked_folders(source.opener.folders)
    if parents:
        some = list_some(sorted(names[name] for name in source.linked))
        where = f'the linked files stay where they are: readers permit them by trust_links={parents!r:.400}'
        notes.append(f'fields of links: {some}; {where}')
    permission = Permission(writer.store, writer.path, ())
    trusted = [folder for folder in parents if permission.check_folder(folder) is None]
    all_notes = [*source.notes, *notes]
    return WriteResult(
        len(writer), writer.shards, writer.size, writer.spec, skipped, all_notes, parents, trusted
    )


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
    """Returns the encoders of a source's types: its own, built-in ones, and encoders of packages."""
    if not source.encoders:
        return None
    words = {field_type.word for field_type in parse_spec(source.spec).values()} - {
        *encoders,
        *source.encoders,
    }
    added = {word: function for word in words if (function := encoders.get(word))}
    return {**encoders, **added, **source.encoders}


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


def _metadata(source: Source, names: Mapping[str, str]) -> Metadata | None:
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
    metadata = rename_metadata(metadata, names)
    try:
        dump_metadata(metadata, {names[name]: field_type for name, field_type in types.items()})
    except (TypeError, ValueError) as exc:
        raise SourceError(METADATA, str(exc)) from exc
    return metadata or None


def _append_block(writer: ShardedDatasetWriter, block: Block) -> int:
    """Appends the datapoints of a block that are intact at once, and returns how many were appended.

    They are fewer if one of them cannot be encoded, as `_append` finds.
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
