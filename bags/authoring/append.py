"""`bags.append`: adds the datapoints of a dataset to a sharded dataset."""

from __future__ import annotations

import bisect
import json
import os
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from bags.authoring.copy_plan import Planner
from bags.authoring.copy_records import ChunkReader
from bags.authoring.save import compressions_of, copy_datapoints, first_sources
from bags.bag.checksums import checksums_name
from bags.bag.limits import ENTRY
from bags.dataset.base import Dataset, check_dataset, expect_committed
from bags.dataset.format.metadata import Metadata, metadata_to_store
from bags.dataset.format.options import SHARD_SIZE
from bags.dataset.format.refs import RefsFormat
from bags.dataset.format.shard_index import INDEX
from bags.dataset.format.spec import Schema, type_texts
from bags.dataset.open import open as open_dataset
from bags.dataset.reading.fingerprint import fingerprint
from bags.dataset.writing.open_shards_for_writing import linked_and_copied
from bags.dataset.writing.sharded_writer import ShardedDatasetWriter
from bags.errors import SpecError
from bags.maintenance.consolidate import consolidate
from bags.maintenance.location import Location, locate
from bags.progress.progress_log import ProgressLog, source_of
from bags.progress.source_options import advise_source_options
from bags.progress.write_result import WriteResult
from bags.storage.urls import plain_path
from bags.validation import with_advice, worker_count

KIND = 'append'
"""The kind of the log, in `progress.json`."""


class Appended(NamedTuple):
    """A dataset that was appended, in the log of the target."""

    fingerprint: str
    first: int
    """The datapoint of the target at which it begins."""
    length: int
    """The number of its datapoints."""


@with_advice
def append(
    dataset: Any,
    path: str | os.PathLike[str],
    *,
    shard_size: int | None = SHARD_SIZE,
    shard_length: int | None = None,
    durability: Literal['close', 'flush', 'none'] = 'close',
    workers: int | None = None,
    progress: bool | None = None,
    source_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> WriteResult:
    """Adds the datapoints of a dataset to a sharded dataset, as new shards after its last one.

    Existing shards are not written. Records are copied without decoding, also of links. A dataset that was
    appended already is not appended again, so that the call can be repeated after an interruption: it
    continues after the last datapoint, which is read and compared. The file `progress.json` of the target
    logs what was appended. If the target has a `shards.json`, it is renewed. `bags.push(…, append=True)`
    appends on the Hugging Face hub.

    Args:
        dataset: A reader, a view, or the path of a dataset, with the spec and the metadata of the target.
        path: A sharded dataset, or a folder for a new one: str, path or URL.
        shard_size, shard_length, durability: As in `ShardedDatasetWriter`.
        workers: Number of threads that read ahead. Default: the number of processors.
        progress: Whether to show a progress bar; None: on a terminal or in a notebook.
        source_options: Like `storage_options`, but for the source dataset, if it is a URL.
        filesystem, storage_options: As in `bags.open`, for the target.

    Returns:
        The counts of the whole target.

    Raises:
        SpecError: The target has other fields or types.
        ValueError: The target has other metadata, is a dataset of one folder, or is unfinished for another
            reason than an interrupted append of this dataset; or others were appended after an interrupted
            append of this dataset: the error names the datapoint to continue from.
        CorruptError: A record cannot be read. The datapoints before it are appended.
        BlockingIOError: Another writer has the target open.

    Examples:
        >>> both = bags.append(dataset[:2], 'some')
        >>> both = bags.append(dataset[4:], 'some')
        >>> both.datapoints, bags.open('some').column('id')
        (6, array([0, 1, 4, 5, 6, 7]))
    """
    workers = worker_count(workers)
    dataset, path = plain_path(dataset), plain_path(path)
    source = dataset
    if isinstance(dataset, str | os.PathLike):
        with advise_source_options('append', [dataset], path, storage_options, source_options):
            source = open_dataset(dataset, raw=True, storage_options=source_options)
    elif source_options:
        raise ValueError('source_options: have no effect for a dataset that is open already')
    check_dataset('append', source)
    expect_committed('append', source)
    storage: dict[str, Any] = {'filesystem': filesystem, 'storage_options': storage_options}
    target = _locate_target(path, storage)
    firsts = first_sources(source, list(source.schema))
    checksum = any(first.bag.has_checksums for first in firsts.values())
    metadata, is_unfinished = source.metadata, False
    log: dict[str, Any] = {}
    if target is not None:
        with open_dataset(path, raw=True, **storage) as opened:
            metadata, is_unfinished = opened.metadata, opened.unfinished
            check_spec(source.schema, opened.schema, target.path)
            check_metadata(source.metadata, metadata, target.path)
        checksum = target.store.exists(target.store.join(target.parts[0], checksums_name('refs.bag')))
        log = source_of(target.store, target.path)
    own_fingerprint = fingerprint(source, of_origin=True)
    state = log.get('state', {}) if log.get('kind') == KIND else {}
    appended = [Appended(*entry) for entry in state.get('appended', [])]
    if is_unfinished and (not appended or appended[-1].fingerprint != own_fingerprint):
        raise ValueError(
            f'{path}: expected a finished dataset, got one that is being written, or whose writer ended '
            'early: repeat what was interrupted, or let bags.recover accept it as it is'
        )
    has_index = target is not None and target.store.exists(target.store.join(target.path, INDEX))
    is_consolidated = has_index or bool(state.get('is_consolidated'))
    compressions, recompressed = compressions_of(None, source.schema, firsts)
    if target is not None:
        for name in linked_and_copied(target.store, target.parts, source.schema)[0]:
            compressions.pop(name, None)  # Links cannot be compressed.
    with ShardedDatasetWriter(
        path, type_texts(source.schema), {field_type.format: bytes for field_type in source.schema.values()},
        shard_size, shard_length, resume=True, compression=compressions, checksum=checksum,
        metadata=metadata_to_store(metadata, source.schema) or None, durability=durability, **storage,
    ) as writer:  # fmt: skip
        position = _appended_count(appended, own_fingerprint, source, len(writer), writer.path, storage)
        if position is None:
            position = 0
            appended.append(Appended(own_fingerprint, len(writer), len(source)))
        if position < len(source):
            progress_log = ProgressLog(writer, {'kind': KIND}, log.get('kind') == KIND)
            progress_log.state = {'appended': appended, 'is_consolidated': is_consolidated}
            progress_log.save()
            if not writer.shard_writer().stores_as(compressions):
                writer.end_shard()
            reader = ChunkReader(source, source.schema, compressions, recompressed, False, 1, None, checksum)
            planner = Planner(
                source, source.schema, RefsFormat(source.schema).stride + ENTRY, writer.is_full,
                writer.totals, shard_length,
            )  # fmt: skip
            copy_datapoints(writer, reader, planner, position, (), workers, progress)
    if is_consolidated:
        consolidate(path, progress=False, **storage)
    return WriteResult(len(writer), writer.shards, writer.size, writer.spec)


def _locate_target(path: str | os.PathLike[str], storage: Mapping[str, Any]) -> Location | None:
    """Returns the location of the target; None if there is no dataset.

    Raises:
        ValueError: The target is not a sharded dataset.
    """
    try:
        location = locate(path, **storage)
    except FileNotFoundError:
        return None
    if location.type != 'shards':
        got = 'a bag' if location.type == 'bags' else 'a dataset of one folder (bags.copy makes shards)'
        raise ValueError(f'{location.path}: expected shards to append to, got {got}')
    return location


def _appended_count(
    appended: list[Appended],
    own_fingerprint: str,
    source: Dataset,
    total: int,
    path: str,
    storage: Mapping[str, Any],
) -> int | None:
    """Returns how many datapoints of a dataset were appended; None if its append has not begun.

    Args:
        appended: What was appended. Entries without datapoints are removed.
        own_fingerprint, source: The fingerprint of the dataset, and the dataset.
        total: The number of datapoints of the target.
        path, storage: The target.

    Raises:
        ValueError: Only a part of the dataset was appended, and then others.
    """
    if appended and appended[-1].first >= total and appended[-1].fingerprint != own_fingerprint:
        del appended[-1]  # Interrupted before its first datapoint.
    length = len(source)
    for number, entry in enumerate(appended):
        if entry.fingerprint == own_fingerprint:
            is_last = number + 1 == len(appended)
            count = (total if is_last else appended[number + 1].first) - entry.first
            # After an interruption, a writer without a log may have appended others.
            position = _equal_datapoints(source, path, storage, entry.first, min(count, length))
            if not position and count:
                del appended[number]
                return None
            if position < length and not (is_last and position == count):
                raise ValueError(
                    f'{path}: only {position:,} of the {length:,} datapoints were appended before others: '
                    f'append dataset[{position}:]'
                )
            return position
    return None


def _equal_datapoints(source: Dataset, path: str, storage: Mapping[str, Any], first: int, count: int) -> int:
    """Returns how many of the first datapoints of a dataset follow each other in the target from `first` on.

    Reads one datapoint if all `count` do, else log2(count).
    """
    if not count:
        return 0
    with open_dataset(path, raw=True, **storage) as target:

        def differ(index: int) -> bool:
            row = np.array([index])
            return any(
                source.read_records(row, name) != target.read_records(row + first, name)
                for name in source.schema
                if source.record_ranges(row, name) is not None  # Computed values may differ.
            )

        return bisect.bisect_left(range(count), True, key=differ) if differ(count - 1) else count


def check_spec(schema: Schema, expected: Schema, where: object) -> None:
    """Raises SpecError if a dataset has other fields or types than the target."""
    own, others = type_texts(schema), type_texts(expected)
    for name in sorted(own.keys() | others.keys()):
        if own.get(name) != others.get(name):
            wanted = repr(others[name]) if name in others else 'no such field'
            raise SpecError(name, f'{wanted}, as in {where}', own.get(name, 'no such field'))


def check_metadata(metadata: Metadata, expected: Metadata, where: object) -> None:
    """Raises ValueError if a dataset has other metadata than the target."""
    own, others = _facts_of(metadata), _facts_of(expected)
    for key in sorted(own.keys() | others.keys()):
        if own.get(key) != others.get(key):
            raise ValueError(
                f'metadata: {key}: expected {json.dumps(others.get(key)):.200}, as in {where}, got '
                f'{json.dumps(own.get(key)):.200}: bags.set_metadata changes it'
            )


def _facts_of(metadata: Metadata) -> dict[str, Any]:
    """Returns the entries of metadata; the facts of a field as one entry."""
    fields = {f'field {name!r}': facts for name, facts in metadata.get('fields', {}).items()}
    return {**{repr(key): value for key, value in metadata.items() if key != 'fields'}, **fields}
