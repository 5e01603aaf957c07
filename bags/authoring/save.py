"""Implements `dataset.save` and `bags.copy`: writes links to the records of the source, or copies of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal

import numpy as np

from bags.authoring.copy_plan import Planner, copied_type
from bags.authoring.copy_records import ChunkReader
from bags.bag.limits import ENTRY
from bags.bag.memory_records import MemoryRecords
from bags.concurrency import map_concurrently
from bags.dataset.base import Dataset, expect_committed
from bags.dataset.format.metadata import keep_packages, metadata_to_store
from bags.dataset.format.options import Compression, WriteOptions, WriterSettings
from bags.dataset.format.refs import RefsFormat
from bags.dataset.format.spec import Schema, parse_spec, reordered, type_texts
from bags.dataset.reading.fingerprint import fingerprint, source_fingerprints
from bags.dataset.reading.row_groups import RowGroup
from bags.dataset.reading.row_reader import FieldRecords
from bags.dataset.reading.selection import Fields, select_whole
from bags.dataset.writing.encoder import Encoder
from bags.dataset.writing.field_writer import FieldCompression, field_compressions
from bags.dataset.writing.sharded_writer import ShardedDatasetWriter
from bags.errors import CorruptError, DecodeError
from bags.links.files import RECORD_SUFFIXES, LinkedFile, resolved_path
from bags.links.link import MIN_LINKED_BYTES
from bags.links.link_builder import LinkBuilder, LinkRun
from bags.links.permission import Permission
from bags.links.records import LinkedRecords, dataset_folder
from bags.progress.progress import progress as show_progress
from bags.progress.progress_log import ProgressLog, resumed
from bags.progress.write_result import Skipped, WriteResult
from bags.validation import at_least, merge, one_of, worker_count
from bags.views.computed_fields import AddedFields, ComputedFields, added_fields
from bags.workers.pool import WorkerPool

NO_LINKS = 'dataset.save(path, link=(FIELD, …)) links fields of a dataset'
ALL_COPIED = (
    f'all records were copied: links are for fields with records of over {MIN_LINKED_BYTES} bytes on average'
)

MAX_FOLDERS = 3
"""Maximum folders of linked files that an error lists."""
MAX_RESOLVED = 1 << 20
"""Number of datapoints whose folders are looked up at a time."""


def save(
    source: Dataset,
    path: str | os.PathLike[str],
    fields: Fields,
    add: AddedFields | None,
    batch_size: int,
    encoders: Mapping[str, Callable[..., Any]] | None,
    link: bool | Iterable[str],
    relink: Mapping[str, str] | None,
    on_error: Literal['raise', 'skip'],
    check_source: bool,
    progress: bool | None,
    workers: int | None,
    options: WriteOptions,
    partial: bool = False,
) -> WriteResult:
    """Writes a dataset or a view as a new dataset; takes the arguments of `Dataset.save` and `bags.copy`."""
    settings = merge(WriterSettings, None, options, function=save)
    if not partial:
        expect_committed('save' if link else 'copy', source)
    settings.refuse_links(NO_LINKS)
    one_of('on_error', on_error, ('raise', 'skip'))
    batch_size = at_least('batch_size', batch_size, 1)
    workers = worker_count(workers)
    new, functions = added_fields(add)
    chosen = select_whole(fields, source.schema, 'copy')
    names = [name for name in source.schema if name in chosen and name not in new]
    firsts = first_sources(source, names)
    schema = {
        name: copied_type(source.schema[name], name in firsts and firsts[name].unsigned) for name in names
    }
    spec = type_texts(reordered({**schema, **new}, [schema, new]))
    full_schema = parse_spec(spec)
    compressed = () if settings.compression is None else field_compressions(settings.compression, full_schema)
    linked = _linked(source, link, names, firsts, compressed)
    existing = LinkBuilder(relink)
    if relink:
        if not link:
            raise ValueError(
                'relink: expected link=True or names of fields: a copy without links has no paths to change'
            )
        linked |= _relinked(source, names, existing, relink)
    compressions, recompressed = compressions_of(settings.compression, full_schema, firsts)
    if settings.compression is None:
        compressions = {name: setting for name, setting in compressions.items() if name not in linked}
    skips = on_error == 'skip'
    computed = None
    if new:
        computed = ComputedFields(
            source, new, functions, Encoder(new, encoders), batch_size, encoders is not None
        )
    checksum: bool | None = settings.checksum
    if checksum is None:
        checksum = any(first.bag.has_checksums for first in firsts.values())
    metadata = settings.metadata
    if metadata is None:
        metadata = metadata_to_store(source.metadata, full_schema) or None
    else:
        metadata = keep_packages(metadata, source.metadata, full_schema)
    changed: WriteOptions = {
        **options, 'compression': compressions, 'checksum': checksum, 'metadata': metadata,
        'linked_fields': linked,
    }  # fmt: skip
    reader = ChunkReader(
        source, schema, compressions, recompressed, skips, workers if skips else 1, computed, checksum
    )
    with ShardedDatasetWriter(
        path,
        spec,
        {field_type.format: bytes for field_type in full_schema.values()},  # Never called.
        **changed,
    ) as writer:
        made_from = {'kind': 'copy', 'fields': spec, 'length': len(source), **source_fingerprints(source)}
        if linked:
            made_from['links'] = sorted(linked)
        log = ProgressLog(writer, made_from, settings.resume, check_source)
        if not any(name in source.schema for name in new):  # Otherwise the datapoints have new values.
            writer.origin = fingerprint(source, of_origin=True), len(source)
        logged_skips = log.state.get('skipped', [])
        position, skipped = resumed(len(writer), [Skipped(*entry) for entry in logged_skips])
        log.state['skipped'] = skipped
        if len(skipped) < len(logged_skips):
            log.save()

        if position < len(source) and not writer.shard_writer().stores_as(compressions):
            # The shard of an earlier run has other compressions, so it cannot take records in stored form.
            writer.end_shard()

        def skip(index: int, exc: Exception) -> None:
            skipped.append(Skipped(index, f'{type(exc).__name__}: {exc}'))
            # Saved before later datapoints are written: resume derives the source position from their count.
            log.save()

        shard = writer.totals
        planner = Planner(
            source, schema, RefsFormat(full_schema).stride + ENTRY, writer.is_full, shard,
            settings.shard_length, reader.load if skips else None, skip, existing if linked else None, linked,
        )  # fmt: skip
        parents = copy_datapoints(
            writer, reader, planner, position, linked, 0 if skips else workers, progress
        )
    notes = [ALL_COPIED] if link is True and firsts and not linked else []
    return WriteResult(
        len(writer), writer.shards, writer.size, writer.spec, skipped, notes,
        sorted(parents.folders), sorted(parents.untrusted),
    )  # fmt: skip


def copy_datapoints(
    writer: ShardedDatasetWriter,
    reader: ChunkReader,
    planner: Planner,
    position: int,
    linked: Collection[str],
    workers: int,
    progress: bool | None,
) -> Parents:
    """Writes the datapoints of a dataset from a position on, and returns the folders of linked files.

    Args:
        writer: Writes the copy.
        reader: Reads the records of chunks.
        planner: Divides the dataset into chunks.
        position: The number of datapoints that are in the copy already.
        linked: The fields whose records are linked.
        workers: Number of threads that read ahead; 0 if the planner has read the chunks.
        progress: Whether to show a progress bar.
    """
    parents, count = Parents(writer), len(planner.dataset) - position
    planned, before = 0, writer.size
    with (
        show_progress('copying', count, 'datapoints', show=progress) as advance,
        WorkerPool(reader.load, workers, name='bags-copy') as pool,
    ):
        for outcome in pool.run(planner.plan(position), ahead=workers + 1):
            records, chunk = outcome.get(), outcome.task
            if chunk.begins_shard:
                writer.end_shard()
            for name in linked:
                parents.add(records.runs[name])
            size = writer.size
            writer.shard_writer().append_runs(records.runs, records.refs)
            advance(chunk.stop - chunk.start, writer.size - size)
            planned += chunk.size
            planner.scale = (writer.size - before) / planned
    return parents


def _linked(
    dataset: Dataset,
    link: bool | Iterable[str],
    names: list[str],
    firsts: Mapping[str, FieldRecords],
    compressed: Collection[str],
) -> set[str]:
    """Returns the fields to link: the named fields, or the linkable fields with large records.

    Args:
        dataset: The dataset.
        link: As in `Dataset.save`.
        names: The fields that are saved.
        firsts: The source of the first record of each field, if it is stored.
        compressed: The fields with an explicit compression, which links cannot have.

    Raises:
        ValueError: A named field is computed.
        KeyError: No such field.
    """
    if isinstance(link, str) or not isinstance(link, bool | Iterable):
        raise TypeError(f'link: expected True, or names of fields, got {link!r:.80}')
    if not isinstance(link, bool):
        for name in (chosen := set(link)) - set(names):
            raise KeyError(f'link: no field {name!r} to link; there are {", ".join(map(repr, names))}')
        for name in chosen - firsts.keys() if firsts else ():
            raise ValueError(f'link: field {name!r} is computed when it is read, so it cannot be linked')
        return chosen
    candidates = [name for name in names if name in firsts and name not in compressed] if link else []
    means = _mean_sizes(dataset, candidates) if candidates else {}
    return {name for name, mean in means.items() if mean > MIN_LINKED_BYTES}


def _mean_sizes(dataset: Dataset, fields: list[str]) -> dict[str, float]:
    """Returns the mean record bytes of each field, over all bags that it is read from; opens these bags.

    Damaged bags are left out: copying their records raises the error.
    """
    sizes: dict[str, dict[str, tuple[int, int]]] = {name: {} for name in fields}

    def open_bags(group: RowGroup) -> None:
        for name in group.selection:
            with contextlib.suppress(CorruptError, DecodeError):
                ranges = group.reader.record_ranges(group.rows[:1], name, True)
                for bag, _ in ranges.sources if ranges is not None else ():
                    sizes[name][bag.path] = bag.size - ENTRY * bag.count, bag.count

    for start in range(0, len(dataset), MAX_RESOLVED):
        rows = np.arange(start, min(start + MAX_RESOLVED, len(dataset)))
        map_concurrently(open_bags, dataset.plan_rows(rows, dict.fromkeys(fields, True)), dataset.is_remote)
    totals = {name: np.array([*bags.values()]).sum(0) for name, bags in sizes.items() if bags}
    return {name: float(size / max(count, 1)) for name, (size, count) in totals.items()}


def _relinked(
    source: Dataset, names: list[str], existing: LinkBuilder, relink: Mapping[str, str]
) -> set[str]:
    """Returns the fields with links, after checking that the linked files are at their new paths.

    Raises:
        EOFError: A file is missing, or differs from the linked file.
        ValueError: No file has moved.
    """
    linked, moved, folders = set(), 0, set[str]()
    for name in names:
        ranges = source.record_ranges(np.arange(len(source)), name)
        bags = [range_source.bag for range_source in (ranges.sources if ranges else ())]
        for bag in {id(bag): bag for bag in bags}.values():
            if isinstance(bag, LinkedRecords):
                linked.add(name)
                moved += existing.check_moves(bag)
                if not moved:
                    folders.update(_folder_of(entry, bag.folder) for entry in bag.entries())
    if not moved:
        listed = ', '.join(sorted(folders)[:MAX_FOLDERS]) + ', …' * (len(folders) > MAX_FOLDERS)
        what = f'which are in {listed}' if folders else 'of which there are none'
        raise ValueError(f'relink: expected paths of linked files, {what}; got {", ".join(relink)}')
    return linked


def _folder_of(entry: LinkedFile, folder: str) -> str:
    """Returns the folder of a linked file, or the dataset of a linked bag."""
    found = resolved_path(entry.path, folder).rpartition('/')[0]
    return dataset_folder(found) if entry.is_bag else found


class Parents:
    """Collects the folders of the linked files of a dataset; in sharded datasets, the shard folders."""

    def __init__(self, writer: ShardedDatasetWriter) -> None:
        self._replacement = writer.replacement
        self._permission = Permission(writer.store, writer.path, ())
        self._checked: set[tuple[str, bool]] = set()
        self.folders: set[str] = set()
        self.untrusted: set[str] = set()
        """Dataset folders that readers of the new dataset need permission for."""

    def add(self, runs: Iterable[LinkRun]) -> None:
        """Adds the folders of linked files.

        Raises:
            ValueError: A linked file belongs to the dataset that is replaced.
        """
        files = {file for run in runs for file in run.files if isinstance(file, LinkedFile)}
        for path in {file.path for file in files} | {
            file.dictionary.path for file in files if file.dictionary
        }:
            if self._replacement is not None:
                self._replacement.expect_outside(path)
            folder = path.rpartition('/')[0]
            self.folders.add(folder)
            key = folder, path.endswith(RECORD_SUFFIXES)  # Bags of nearby datasets need no permission.
            if key not in self._checked:
                self._checked.add(key)
                try:
                    self._permission.check(path)
                except PermissionError:
                    self.untrusted.add(dataset_folder(folder))


def first_sources(dataset: Dataset, fields: list[str]) -> dict[str, FieldRecords]:
    """Returns the source of the first record of each field, if there is one and it is stored."""
    if not len(dataset):
        return {}
    first_ranges = {name: dataset.record_ranges(np.arange(1), name) for name in fields}
    return {
        # For a new value, the underlying field determines how records are stored.
        name: FieldRecords(dataset.open_field(name).bag, ranges.sources[0].unsigned)
        if isinstance(ranges.sources[0].bag, MemoryRecords)
        else ranges.sources[0]
        for name, ranges in first_ranges.items()
        if ranges is not None
    }


def compressions_of(
    compression: Compression, schema: Schema, firsts: Mapping[str, FieldRecords]
) -> tuple[dict[str, FieldCompression], set[str]]:
    """Returns the compression of the copy, and the fields that are always recompressed."""
    stored = {}
    for name, first in firsts.items():
        if first.bag.codec is not None:
            dictionary = first.bag.codec.options.dictionary
            stored[name] = FieldCompression(trained=bool(dictionary), dictionary=dictionary)
    if compression is None:
        return stored, set()
    requested = field_compressions(compression, schema)
    recompressed = set()
    for name, setting in requested.items():
        source = stored.get(name)
        if isinstance(compression, Mapping) and setting != FieldCompression(trained=setting.trained):
            recompressed.add(name)
        elif source is not None and setting.trained and source.trained:
            requested[name] = source  # Use the same dictionary.
    return requested, recompressed
