"""Imports with links: selects the linked fields, lists the folders to permit, and updates a dataset."""

from __future__ import annotations

import itertools
import os
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bags.concurrency import map_concurrently
from bags.dataset.base import Dataset
from bags.dataset.format.listing import shard_numbers
from bags.dataset.format.options import WriterSettings
from bags.dataset.format.spec import Schema, load_spec, type_texts
from bags.dataset.open import open as open_dataset
from bags.dataset.writing.open_shards_for_writing import linked_and_copied
from bags.dataset.writing.sharded_writer import ShardedDatasetWriter
from bags.interop.file_extensions import KEY
from bags.interop.files import F, FileEntry, FileSource
from bags.interop.imported import BATCH, FileComparison, as_named_in_source
from bags.interop.link_comparison import LinkComparison
from bags.interop.source import DamagedEntries, E, Source, list_some
from bags.interop.sources.files.folders import FolderSource
from bags.interop.sources.files.open_files import FirstLayout
from bags.links.link import MIN_LINKED_BYTES
from bags.links.records import LinkedRecords
from bags.progress.progress_log import source_of
from bags.storage import store_for
from bags.storage.urls import without_revision
from bags.validation import no_field

CHANGED = (
    'expected a source that only grows: import it again, or pass check_source=False to keep the existing '
    'datapoints'
)
CHECKED_AT_ONCE = 1 << 16
"""Number of datapoints whose refs are read at a time."""


def fields_to_link(source: Source, link: bool | Iterable[str]) -> set[str]:
    """Returns the fields of a source to link.

    Args:
        source: The source.
        link: As in `convert`.

    Raises:
        KeyError: No such field.
        ValueError: No field can be linked, or a chosen field cannot be linked.
    """
    if isinstance(link, str) or not isinstance(link, bool | Iterable):
        raise TypeError(f'link: expected True, or names of fields, got {link!r:.80}')
    linkable = {name: size for name, size in source.linkable().items() if name in source.spec} if link else {}
    if not isinstance(link, bool):
        chosen = set(link)
        for name in sorted(chosen - source.spec.keys()):
            raise KeyError(f'link: {no_field(name, source.spec)}')
        for name in sorted(chosen):
            if isinstance(reason := linkable.get(name, 'its values are created by the import'), str):
                raise ValueError(f'link: field {name!r} cannot be linked: {reason}')
        return chosen
    chosen = {
        name for name, size in linkable.items() if not isinstance(size, str) and size > MIN_LINKED_BYTES
    }
    if link and not chosen:
        fields: dict[str, list[str]] = {}
        for name, size in linkable.items():
            reason = size if isinstance(size, str) else f'records of {size:,.0f} bytes on average'
            fields.setdefault(reason, []).append(repr(name))
        reasons = [f'{", ".join(names)}: {reason}' for reason, names in fields.items()]
        expected = f'expected a field with files of more than {MIN_LINKED_BYTES} bytes on average'
        raise ValueError(f'link: {source.path}: {expected}, got {"; ".join(reasons)}')
    return chosen


def linked_folders(folders: Collection[str]) -> list[str]:
    """Returns the folder that contains all linked files; if there is none, the folders of the files.

    Folders in a hub repository are returned without a revision, and so also permit files of later updates.
    """
    if not folders:
        return []
    folders = {without_revision(folder) for folder in folders}
    parts = [folder.split('/') for folder in folders]
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(min(parts), max(parts), strict=False))
    common = '/'.join(part for part, _ in pairs)
    return [common] if common.rpartition('://')[2].strip('/') else sorted(folders)


class StoredFields(NamedTuple):
    """The fields of a dataset that is resumed, also if it was killed before it had a datapoint."""

    spec: dict[str, str]
    layout: FirstLayout | None
    """The layout of the files that it was made from, if its log has it."""
    linked: set[str]
    """The linked fields."""
    copied: set[str]
    """The fields that are not linked, and stay so. Fields without bags are neither linked nor copied."""


def stored_fields(path: str | os.PathLike[str], settings: WriterSettings) -> StoredFields | None:
    """Returns the fields of a dataset to resume; None if there are no shards to resume.

    Only reads specs and names of files: records need not be readable until the writer has recovered them.
    """
    store, folder = store_for(path, **settings.storage)
    try:
        shards = [store.join(folder, name) for name in shard_numbers(store, folder).values()]
    except FileNotFoundError:
        return None
    if not settings.resume or not shards:
        return None

    def read_spec(shard: str) -> Schema:
        file = store.join(shard, 'spec.json')
        try:
            return load_spec(store.read(file), file)
        except FileNotFoundError:  # The shard was not begun, or the writer raises the error.
            return {}

    schema: Schema = {}
    for shard_schema in map_concurrently(read_spec, shards, store.is_remote):
        schema |= shard_schema
    log = source_of(store, folder)
    layout, state = log.get('layout'), log.get('state')
    is_given = isinstance(state, dict) and state.get('is_layout_given') is True
    first = FirstLayout(layout, is_given) if isinstance(layout, str) else None
    return StoredFields(type_texts(schema), first, *linked_and_copied(store, shards, schema))


def merge_types(source: Source, types: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    """Returns the types of the fields of a source, merged with the types of the dataset that is updated.

    Fields that are optional in the dataset are optional, and added if the source does not have them.

    Raises:
        ValueError: The files of a folder have other fields than the dataset: their layout seems different.
    """
    added = {name: text for name, text in stored.items() if name not in types and text.endswith('?')}
    merged = added | {
        name: stored[name] if stored.get(name, '').rstrip('?') == text.rstrip('?') else text
        for name, text in types.items()
    }
    required = {name: text for name, text in merged.items() if name in stored or not text.endswith('?')}
    if stored and isinstance(source, FolderSource) and required != stored:
        raise ValueError(
            f'update: {source.path}: expected the fields {dict(stored)}, as before, got {merged}: the files '
            f'now seem to have the layout {source.layout!r}; pass the layout of the first run (layout=, '
            '--layout) or a spec'
        )
    return merged


def check_fields(source: Source, dataset: Dataset, fields: Collection[str]) -> None:
    """Checks that a source still has all fields that have values in the dataset.

    Args:
        source: The source.
        dataset: The dataset.
        fields: The names in the dataset of the fields of the source.

    Raises:
        ValueError: It does not.
    """
    for name in dataset.schema:
        for start in range(0, 0 if name in fields else len(dataset), CHECKED_AT_ONCE):
            indices = np.arange(start, min(start + CHECKED_AT_ONCE, len(dataset)))
            ranges = dataset.record_ranges(indices, name)
            if ranges is not None and ranges.counts.any():
                index = int(indices[ranges.counts > 0][0])
                raise ValueError(
                    f'update: {source.path}: expected field {name!r}, which datapoint {index:,} of the '
                    f'dataset has, got a source with the fields {", ".join(map(repr, fields))}; {CHANGED}'
                )


def options_to_replace(
    source: Source, path: str | os.PathLike[str], settings: WriterSettings
) -> dict[str, Any]:
    """Returns the writer options that replace a dataset, if a linked file has changed.

    Args:
        source: A source whose files are rewritten as it grows.
        path, settings: The dataset.

    Returns:
        The options; empty if no linked file has changed.

    Raises:
        ValueError: A file is missing, or the dataset is on an object store, where it cannot be replaced.
    """
    try:
        dataset = open_dataset(path, raw=True, **settings.storage)
    except FileNotFoundError:  # Killed before it had a datapoint.
        return {}
    with dataset:
        comparison = LinkComparison(dataset)
        change = comparison.check_files(dataset.schema, source.opener)
        if not change:  # Also if the dataset is empty.
            return {}
        if change.endswith('is missing') or store_for(path, **settings.storage)[0].is_remote:
            raise ValueError(f'{change}; {CHANGED}')
        bags = {name: comparison.bags(name) for name in dataset.schema}
        linked = {
            name
            for name, field_bags in bags.items()
            if any(isinstance(bag, LinkedRecords) for bag in field_bags)
        }
        has_checksums = any(bag.has_checksums for field_bags in bags.values() for bag in field_bags)
        checksum = has_checksums if settings.checksum is None else settings.checksum
        return {'mode': 'overwrite', 'resume': False, 'linked_fields': linked, 'checksum': checksum}


def check_replaced(
    source: Source,
    writer: ShardedDatasetWriter,
    path: str | os.PathLike[str],
    storage: Mapping[str, Any],
    names: Mapping[str, str],
) -> None:
    """Compares the dataset that a writer replaces with the first datapoints of the new one.

    Copied values must be equal. Links are not compared.

    Args:
        source, writer, storage, names: As in `remaining_entries`.
        path: The dataset.

    Raises:
        ValueError: They differ.
    """
    writer.flush()
    with (
        open_dataset(path, raw=True, **storage) as old,
        open_dataset(writer.path, raw=True, **storage) as new,
    ):
        check_fields(source, old, names.values())
        copied = [name for name in old.schema if name not in writer.linked_fields]
        if len(new) < len(old):
            raise ValueError(
                f'expected the {len(old):,} datapoints of the dataset, got {len(new):,}; {CHANGED}'
            )
        changed = old[:, copied].diff(new[: len(old), copied]).changed if copied else {}
        if changed:
            index, field = min((int(pairs[0, 0]), name) for name, pairs in changed.items())
            where = f'datapoint {index:,} of the dataset, field {field!r}'
            raise ValueError(f'{where}: its source has another value, or another order; {CHANGED}')


def new_entries(
    source: FileSource[F],
    writer: ShardedDatasetWriter,
    storage: Mapping[str, Any],
    names: Mapping[str, str],
    notes: list[str],
    *,
    check_source: bool,
    workers: int,
) -> Iterator[FileEntry[F]]:
    """Returns the entries that are not in a dataset yet, in the order of the source.

    If several datapoints have one name, the first ones in the source count as the ones in the dataset.

    Args:
        source, writer, storage, names, notes, workers: As in `remaining_entries`.
        check_source: Whether to compare the other entries with the dataset.

    Raises:
        ValueError: The files of a datapoint are missing or have changed.
    """
    writer.flush()
    with open_dataset(writer.path, raw=True, **storage) as written:
        if check_source:
            check_fields(source, written, names.values())
        dataset = as_named_in_source(written, names)
        indices_of: dict[str, deque[int]] = defaultdict(deque)
        for index, row in enumerate(dataset[:, KEY]):
            indices_of[str(row[KEY], 'utf-8')].append(index)
        comparison = FileComparison(source, dataset, workers, f'has changed; {CHANGED}')
        new, pending = set(), list[tuple[int, FileEntry[F]]]()
        for position, entry in enumerate(source.entries()):
            if not indices_of[entry.key]:
                new.add(position)
                continue
            pending.append((indices_of[entry.key].popleft(), entry))
            if len(pending) == BATCH and check_source:
                comparison.check(pending)
                pending = []
        if check_source:
            comparison.check(pending)
            lost = [key for key, indices in indices_of.items() if indices]
            if lost:
                raise ValueError(f'{list_some(lost)}: the files of these datapoints are missing; {CHANGED}')
            notes += comparison.notes()
    return (entry for position, entry in enumerate(source.entries()) if position in new)


def check_first(
    source: Source[E],
    writer: ShardedDatasetWriter,
    storage: Mapping[str, Any],
    names: Mapping[str, str],
    position: int,
) -> None:
    """Compares the links and texts of the last datapoint with the source, and checks all linked files.

    Args:
        source, writer, storage, names: As in `remaining_entries`.
        position: The number of the last datapoint in the source.

    Raises:
        ValueError: They differ, so the datapoints of the dataset are not the first ones of the source.
    """
    writer.flush()
    with open_dataset(writer.path, raw=True, **storage) as written:
        if not len(written):
            return
        check_fields(source, written, names.values())
        dataset = as_named_in_source(written, names)
        comparison = LinkComparison(dataset)
        if change := comparison.check_files(source.linked, source.opener):
            raise ValueError(f'{change}; {CHANGED}')
        entry = next(source.entries(position))
        values = {} if isinstance(entry, DamagedEntries) else source.load(entry)
        last = len(dataset) - 1
        changed = [field for field in source.linked if not comparison.agree(last, field, values.get(field))]
        # Several rows of a table may name one file.
        texts = [
            field
            for field, field_type in dataset.schema.items()
            if field_type.format == 'utf8'
            and isinstance(values.get(field), str)
            and field not in source.linked
        ]
        stored = dataset[last, texts] if texts else {}
        changed += [
            field for field in texts if stored[field] != str(values[field]).encode('utf-8', 'surrogatepass')
        ]
        if changed:
            where = f'datapoint {last:,} of the dataset, field {min(changed)!r}'
            raise ValueError(f'{where}: its source has another value, or another order; {CHANGED}')
