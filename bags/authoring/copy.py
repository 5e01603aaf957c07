"""`bags.copy`: writes a dataset or a view as a new dataset, without decoding records."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Unpack

import numpy as np

from bags.authoring.computed_fields import ComputedFields
from bags.authoring.copy_plan import Planner, copied_type
from bags.authoring.copy_records import ChunkReader
from bags.bag.held_records import HeldRecords
from bags.bag.limits import ENTRY
from bags.concurrency import map_concurrently
from bags.dataset.base import Dataset, check_dataset
from bags.dataset.format.metadata import keep_packages, metadata_to_store
from bags.dataset.format.options import Compression, WriteOptions, WriterSettings
from bags.dataset.format.refs import RefsFormat
from bags.dataset.format.spec import Spec, parse_spec, reordered, type_texts
from bags.dataset.open import open as open_dataset
from bags.dataset.reading.fingerprint import fingerprint, source_fingerprints
from bags.dataset.reading.row_groups import Address, Source
from bags.dataset.reading.selection import Fields, select_whole
from bags.dataset.writing.encoder import Encoder
from bags.dataset.writing.field_writer import Compressed, field_compressions
from bags.dataset.writing.sharded_writer import ShardedDatasetWriter
from bags.errors import CorruptError, DecodeError
from bags.links.existing import ExistingRecords, LinkRun
from bags.links.files import LinkedFile
from bags.links.link import MIN_LINKED_BYTES
from bags.links.records import LinkedRecords
from bags.progress.progress import progress as show_progress
from bags.progress.progress_log import ProgressLog, resumed
from bags.progress.source_options import advise_source_options
from bags.progress.write_result import Skipped, Written
from bags.storage.urls import plain_path
from bags.validation import at_least, merge, one_of, worker_count
from bags.workers.pool import WorkerPool

MAX_RESOLVED = 1 << 20
"""Datapoints whose folders are looked up at a time."""


def copy(
    dataset: Any,
    path: str | os.PathLike[str],
    *,
    fields: Fields = None,
    add: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Any]]] | None = None,
    batch_size: int = 256,
    encoders: Mapping[str, Callable[..., Any]] | None = None,
    link: bool | Iterable[str] = False,
    relink: Mapping[str, str] | None = None,
    on_error: Literal['raise', 'skip'] = 'raise',
    check_source: bool = True,
    progress: bool | None = None,
    workers: int | None = None,
    source_options: Mapping[str, Any] | None = None,
    **options: Unpack[WriteOptions],
) -> Written:
    """Copies a dataset or a view of one to a new dataset.

    Records are copied without decoding, and compressed again only if the copy is compressed in another way.
    Records shared by consecutive datapoints are shared in the copy too; others are copied for each datapoint.

    Args:
        dataset: A reader, a view, or the path of a dataset.
        path: The folder of the copy: str, path or URL.
        fields: Names of the fields to copy; all unless given.
        add: New fields: their type, and a function from a batch to the values of its datapoints, an array or
            a list. The batch is a mapping of the dataset's fields to columns, each read when it is first
            used. A field of that name is replaced. Functions are called by one thread at a time. An image, a
            video or a recording of the batch that is returned as it is keeps its bytes, if the types agree.
        batch_size: Maximum number of datapoints in such a batch.
        encoders: Encoders of the new fields; `bags.encoders` unless given.
        link: Fields whose records are not copied: the copy has links to them, and needs the files in which
            they are. True links those whose records have more than 256 bytes on average.
        relink: For links of the dataset whose files have moved, the new prefix of paths by the old one. Sizes
            and samples of all files are compared with the links first. Needs `link`, and links these fields.
        on_error: 'raise', or 'skip' to leave out datapoints that cannot be read, and list them in the result.
            This decompresses all compressed records, and is slower.
        check_source: With `resume`, raise if the dataset has changed since the earlier run. False continues
            with the datapoints after those that were copied.
        progress: Whether to show a progress bar; None: on a terminal or in a notebook.
        workers: Number of threads that read ahead; the number of processors unless given.
        source_options: As `storage_options`, for a dataset that is given as a URL.
        **options: As in `ShardedDatasetWriter`, for the copy. `compression`: unless given, that of each field
            of the dataset. With a level other than 3, fields are compressed again even if they are compressed
            already. `checksum`: unless given, if the dataset has some. Records are then compared with those
            of the dataset, and are in memory for that. `metadata`: unless given, that of the dataset.
            `resume=True` resumes an earlier run, if there was one, after its last datapoint.
            `mode='overwrite'` may overwrite the source.

    Raises:
        FileExistsError: The folder is not empty, and `resume` is not set.
        KeyError: No such field.
        CorruptError: A record cannot be read. `resume` continues after the datapoints before it.
        ValueError: With `resume`, the folder is not a copy of this dataset, or the dataset has changed.

    Examples:
        >>> done = bags.copy(dataset.select([0, 2]), 'some', fields=('id', 'task'))
        >>> done.datapoints, bags.open('some').column('id')
        (2, array([0, 2]))
    """
    settings = merge(WriterSettings, None, options, function=copy)
    settings.refuse_links('link=(FIELD, …) links fields of a copy')
    dataset = plain_path(dataset)
    source = dataset
    if isinstance(dataset, str | os.PathLike):
        with advise_source_options('copy', [dataset], path, settings.storage_options, source_options):
            source = open_dataset(dataset, raw=not add, storage_options=source_options)
    elif source_options:
        raise ValueError('source_options: have no effect for a dataset that is open already')
    check_dataset('copy', source)
    one_of('on_error', on_error, ('raise', 'skip'))
    batch_size = at_least('batch_size', batch_size, 1)
    workers = worker_count(workers)
    new, functions = _added(add)
    chosen = select_whole(fields, source.types, 'copy')
    names = [name for name in source.types if name in chosen and name not in new]
    firsts = _first_sources(source, names)
    types = {
        name: copied_type(source.types[name], name in firsts and firsts[name].unsigned) for name in names
    }
    linked = _linked(source, link, names, firsts)
    existing = ExistingRecords(relink)
    if relink:
        if not link:
            raise ValueError(
                'relink: expected link=True or names of fields, as a copy without links needs none'
            )
        linked |= _relinked(source, names, existing, relink)
    spec = type_texts(reordered({**types, **new}, [types, new]))
    every = parse_spec(spec)
    compressions, recompressed = _compressions(settings.compression, every, firsts)
    if settings.compression is None:
        compressions = {name: how for name, how in compressions.items() if name not in linked}
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
        metadata = metadata_to_store(source.metadata, every) or None
    else:
        metadata = keep_packages(metadata, source.metadata, every)
    changed: WriteOptions = {
        **options, 'compression': compressions, 'checksum': checksum, 'metadata': metadata,
        'links': linked,
    }  # fmt: skip
    reader = ChunkReader(
        source, types, compressions, recompressed, skips, workers if skips else 1, computed, checksum
    )
    with ShardedDatasetWriter(
        path,
        spec,
        {field_type.word: bytes for field_type in every.values()},  # Never called.
        **changed,
    ) as writer:
        made_from = {'kind': 'copy', 'fields': spec, 'length': len(source), **source_fingerprints(source)}
        if linked:
            made_from['links'] = sorted(linked)
        log = ProgressLog(writer, made_from, settings.resume, check_source)
        if not any(name in source.types for name in new):  # Else datapoints have other values.
            writer.origin = fingerprint(source, of_origin=True), len(source)
        noted = log.state.get('skipped', [])
        position, skipped = resumed(len(writer), [Skipped(*entry) for entry in noted])
        log.state['skipped'] = skipped
        if len(skipped) < len(noted):
            log.save()

        if position < len(source) and not writer.shard_writer().stores_as(compressions):
            # The shard of an earlier run has other compressions, so records cannot be copied to it as stored.
            writer.end_shard()

        def skip(index: int, exc: Exception) -> None:
            skipped.append(Skipped(index, f'{type(exc).__name__}: {exc}'))
            # Before later datapoints are written: to resume, the position is derived from their number.
            log.save()

        shard = writer.totals
        planner = Planner(
            source, types, RefsFormat(every).stride + ENTRY, writer.is_full, shard, settings.shard_length,
            reader.load if skips else None, skip, existing if linked else None, linked,
        )  # fmt: skip
        parents: set[str] = set()
        planned, before = 0, writer.size
        with (
            show_progress('copying', len(source) - position, 'datapoints', show=progress) as advance,
            WorkerPool(reader.load, 0 if skips else workers, name='bags-copy') as pool,
        ):
            for outcome in pool.run(planner.plan(position), ahead=workers + 1):
                records, chunk = outcome.get(), outcome.task
                if chunk.begins_shard:
                    writer.end_shard()
                parents |= _parents(writer, [records.runs[name] for name in linked])
                size = writer.size
                writer.shard_writer().append_runs(records.runs, records.refs)
                advance(chunk.stop - chunk.start, writer.size - size)
                planned += chunk.size
                planner.scale = (writer.size - before) / planned
    written = Written(len(writer), writer.shards, writer.size, writer.spec, skipped)
    return dataclasses.replace(written, parents=sorted(parents))


def _linked(
    dataset: Dataset, link: bool | Iterable[str], names: list[str], firsts: Mapping[str, Source]
) -> set[str]:
    """Returns the fields to link.

    Raises:
        ValueError: There is none, although some are to be linked.
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
    for name in names if link and firsts else ():
        if name not in firsts:
            raise ValueError(f'link: field {name!r} is computed when it is read: name the fields to link')
    means = _mean_sizes(dataset, names) if link and firsts else {}
    found = {name for name, mean in means.items() if mean > MIN_LINKED_BYTES}
    if link and not found and firsts:
        detail = f'expected a field in files whose records have more than {MIN_LINKED_BYTES} bytes on average'
        raise ValueError(f'link: {detail}, got {", ".join(names)}')
    return found


def _mean_sizes(dataset: Dataset, fields: list[str]) -> dict[str, float]:
    """Returns the mean bytes of the records in all bags that each field is read from; opens them.

    Bags that are damaged are left out: copying their records raises the error.
    """
    sizes: dict[str, dict[str, tuple[int, int]]] = {name: {} for name in fields}

    def open_bags(address: Address) -> None:
        for name in address.selection:
            with contextlib.suppress(CorruptError, DecodeError):
                ranges = address.reader.record_ranges(address.rows[:1], name, True)
                for bag, _ in ranges.sources if ranges is not None else ():
                    sizes[name][bag.path] = bag.size - ENTRY * bag.count, bag.count

    for start in range(0, len(dataset), MAX_RESOLVED):
        rows = np.arange(start, min(start + MAX_RESOLVED, len(dataset)))
        map_concurrently(open_bags, dataset.resolve(rows, dict.fromkeys(fields, True)), dataset.is_remote)
    totals = {name: np.array([*bags.values()]).sum(0) for name, bags in sizes.items() if bags}
    return {name: float(size / max(count, 1)) for name, (size, count) in totals.items()}


def _relinked(
    source: Dataset, names: list[str], existing: ExistingRecords, relink: Mapping[str, str]
) -> set[str]:
    """Returns the fields that have links, whose files are at their new paths.

    Raises:
        EOFError: A file is missing, or is not the one that was linked.
        ValueError: No file has moved.
    """
    found, moved = set(), 0
    for name in names:
        ranges = source.record_ranges(np.arange(len(source)), name)
        for bag in {id(each.bag): each.bag for each in (ranges.sources if ranges else ())}.values():
            if isinstance(bag, LinkedRecords):
                found.add(name)
                moved += existing.check_moves(bag)
    if not moved:
        raise ValueError(f'relink: expected paths of linked files, got {", ".join(relink)}')
    return found


def _parents(writer: ShardedDatasetWriter, runs: Iterable[list[LinkRun]]) -> set[str]:
    """Returns the folders that links lead into, of datasets with shards those of the shards.

    Raises:
        ValueError: The dataset that is replaced is one of them.
    """
    files = {file for each in runs for run in each for file in run.files if isinstance(file, LinkedFile)}
    paths = {file.path for file in files} | {file.dictionary.path for file in files if file.dictionary}
    if writer.replacement is not None:
        for path in paths:
            writer.replacement.expect_outside(path)
    return {path.rpartition('/')[0] for path in paths}


def _added(add: Any) -> tuple[Spec, dict[str, Callable[[Mapping[str, Any]], Any]]]:
    """Returns types and functions of new fields."""
    if not isinstance(add, Mapping | None):
        raise TypeError(f'add: expected a mapping of fields to a type and a function, got {add!r:.80}')
    pairs: Mapping[str, Any] = add or {}
    for name, pair in pairs.items():
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and callable(pair[1])):
            raise TypeError(f'add: expected a type and a function for field {name!r}, got {pair!r}')
    types = parse_spec({name: field_type for name, (field_type, _) in pairs.items()})
    return types, {name: function for name, (_, function) in pairs.items()}


def _first_sources(dataset: Dataset, fields: list[str]) -> dict[str, Source]:
    """Returns the source of the first record of each field, if there is one and it is stored."""
    if not len(dataset):
        return {}
    found = {name: dataset.record_ranges(np.arange(1), name) for name in fields}
    return {
        # Of a new value, the field below says how records are stored.
        name: Source(dataset.open_field(name).bag, ranges.sources[0].unsigned)
        if isinstance(ranges.sources[0].bag, HeldRecords)
        else ranges.sources[0]
        for name, ranges in found.items()
        if ranges is not None
    }


def _compressions(
    compression: Compression, spec: Spec, firsts: Mapping[str, Source]
) -> tuple[dict[str, Compressed], set[str]]:
    """Returns the compression of the copy, and the fields that are always compressed again."""
    stored = {}
    for name, first in firsts.items():
        if first.bag.codec is not None:
            dictionary = first.bag.codec.options.dictionary
            stored[name] = Compressed(trained=bool(dictionary), dictionary=dictionary)
    if compression is None:
        return stored, set()
    asked = field_compressions(compression, spec)
    again = set()
    for name, how in asked.items():
        source = stored.get(name)
        if isinstance(compression, Mapping) and how != Compressed(trained=how.trained):
            again.add(name)
        elif source is not None and how.trained and source.trained:
            asked[name] = source  # Use the same dictionary.
    return asked, again
