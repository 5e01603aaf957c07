"""Links to a source of another format: the linked fields, the paths to permit, and updates of the source."""

from __future__ import annotations

import itertools
import os
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from bags.dataset.format.listing import shard_numbers
from bags.dataset.format.options import WriterSettings
from bags.dataset.open import open as open_dataset
from bags.dataset.writing.sharded_writer import ShardedDatasetWriter
from bags.interop.extensions import KEY
from bags.interop.files import Entry, FileSource
from bags.interop.imported import BATCH, Comparison, as_named_in_source
from bags.interop.link_comparison import LinkComparison
from bags.interop.source import DamagedEntries, Source, list_some
from bags.interop.sources.files.folders import FolderSource
from bags.links.link import MIN_LINKED_BYTES
from bags.links.records import LinkedRecords
from bags.storage import store_for
from bags.storage.urls import without_revision
from bags.validation import no_field

CHANGED = (
    'expected a source that only grows: import it again, or pass check_source=False to keep the existing '
    'datapoints'
)


def fields_to_link(source: Source, link: bool | Iterable[str]) -> set[str]:
    """Returns the fields of a source to link.

    Args:
        source: The source.
        link: As in `convert`.

    Raises:
        KeyError: No such field.
        ValueError: There is none, or one cannot be linked.
    """
    if isinstance(link, str) or not isinstance(link, bool | Iterable):
        raise TypeError(f'link: expected True, or names of fields, got {link!r:.80}')
    found = {name: each for name, each in source.linkable().items() if name in source.spec} if link else {}
    if not isinstance(link, bool):
        chosen = set(link)
        for name in sorted(chosen - source.spec.keys()):
            raise KeyError(f'link: {no_field(name, source.spec)}')
        for name in sorted(chosen):
            if isinstance(why := found.get(name, 'is made by the import'), str):
                raise ValueError(f'link: field {name!r} cannot be linked: {why}')
        return chosen
    chosen = {name for name, size in found.items() if not isinstance(size, str) and size > MIN_LINKED_BYTES}
    if link and not chosen:
        fields: dict[str, list[str]] = {}
        for name, why in found.items():
            reason = why if isinstance(why, str) else f'records of {why:,.0f} bytes on average'
            fields.setdefault(reason, []).append(repr(name))
        reasons = [f'{", ".join(names)}: {reason}' for reason, names in fields.items()]
        expected = f'expected a field with files of more than {MIN_LINKED_BYTES} bytes on average'
        raise ValueError(f'link: {source.path}: {expected}, got {"; ".join(reasons)}')
    return chosen


def linked_folders(folders: Collection[str]) -> list[str]:
    """Returns the folder that all linked files are below; their folders if there is none.

    Repositories of a hub have no revision, so that they also permit files of later updates.
    """
    if not folders:
        return []
    folders = {without_revision(each) for each in folders}
    parts = [each.split('/') for each in folders]
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(min(parts), max(parts), strict=False))
    common = '/'.join(part for part, _ in pairs)
    return [common] if common.rpartition('://')[2].strip('/') else sorted(folders)


def is_begun(path: str | os.PathLike[str], settings: WriterSettings) -> bool:
    """Returns whether there are shards to resume, whose linked fields are fixed."""
    store, folder = store_for(path, **settings.storage)
    try:
        return settings.resume and bool(shard_numbers(store, folder))
    except FileNotFoundError:
        return False


def with_optional(
    source: Source, types: Mapping[str, str], path: str | os.PathLike[str], settings: WriterSettings
) -> dict[str, str]:
    """Returns the types of a source, and of the optional fields that only the dataset it is added to has.

    The types of fields are optional where they are so in the dataset.

    Raises:
        ValueError: The files of a folder have other fields, as if they were in another layout than before.
    """
    with open_dataset(path, raw=True, **settings.storage) as dataset:
        stored = dataset.spec
    added = {name: text for name, text in stored.items() if name not in types and text.endswith('?')}
    found = added | {
        name: stored[name] if stored.get(name, '').rstrip('?') == text.rstrip('?') else text
        for name, text in types.items()
    }
    required = {name: text for name, text in found.items() if name in stored or not text.endswith('?')}
    if isinstance(source, FolderSource) and required != stored:
        raise ValueError(
            f'update: {source.path}: expected the fields {stored}, as before, got {found}: the files are '
            f'taken for the layout {source.layout!r} now; the layout of the first run (layout=, --layout) '
            'or a spec reads them as before'
        )
    return found


def options_to_begin_anew(
    source: Source, path: str | os.PathLike[str], settings: WriterSettings
) -> dict[str, Any]:
    """Returns the options with which a dataset is made anew, if its links lead to a file that has changed.

    Args:
        source: It rewrites its files as it grows.
        path, settings: The dataset.

    Returns:
        The options; none if no linked file has changed.

    Raises:
        ValueError: A file is missing, or the dataset is on an object store, where it cannot be replaced.
    """
    with open_dataset(path, raw=True, **settings.storage) as dataset:
        comparison = LinkComparison(dataset)
        change = comparison.check_files(dataset.types, source.opener)
        if not change:  # Also if there is no datapoint.
            return {}
        if change.endswith('is missing') or store_for(path, **settings.storage)[0].is_remote:
            raise ValueError(f'{change}; {CHANGED}')
        bags = {name: comparison.bags(name) for name in dataset.types}
        linked = {name for name, each in bags.items() if any(isinstance(bag, LinkedRecords) for bag in each)}
        has_checksums = any(bag.has_checksums for each in bags.values() for bag in each)
        checksum = has_checksums if settings.checksum is None else settings.checksum
        return {'mode': 'overwrite', 'resume': False, 'linked_fields': linked, 'checksum': checksum}


def check_kept(
    writer: ShardedDatasetWriter, path: str | os.PathLike[str], storage: Mapping[str, Any]
) -> None:
    """Compares the dataset that a writer replaces with the first datapoints of the new one.

    Values that are copied have to be equal; of links, nothing is compared.

    Raises:
        ValueError: They differ.
    """
    writer.flush()
    with (
        open_dataset(path, raw=True, **storage) as one,
        open_dataset(writer.path, raw=True, **storage) as two,
    ):
        copied = [name for name in one.types if name not in writer.linked_fields]
        if len(two) < len(one):
            raise ValueError(
                f'expected the {len(one):,} datapoints of the dataset, got {len(two):,}; {CHANGED}'
            )
        changed = one[:, copied].diff(two[: len(one), copied]).changed if copied else {}
        if changed:
            index, field = min((int(pairs[0, 0]), name) for name, pairs in changed.items())
            where = f'datapoint {index:,} of the dataset, field {field!r}'
            raise ValueError(f'{where}: its source has another value, or another order; {CHANGED}')


def new_entries(
    source: FileSource,
    writer: ShardedDatasetWriter,
    storage: Mapping[str, Any],
    names: Mapping[str, str],
    notes: list[str],
    *,
    check_source: bool,
    workers: int,
) -> Iterator[Entry]:
    """Returns the entries that are not in a dataset yet, in the order of the source.

    If datapoints share a name, the first ones in the source have it.

    Args:
        source, writer, storage, names, notes, workers: As in `remaining_entries`.
        check_source: Whether to compare the other entries with the dataset.

    Raises:
        ValueError: The files of a datapoint are missing or have changed.
    """
    writer.flush()
    with open_dataset(writer.path, raw=True, **storage) as found:
        dataset = as_named_in_source(found, names)
        known: dict[str, deque[int]] = defaultdict(deque)
        for index, row in enumerate(dataset[:, KEY]):
            known[str(row[KEY], 'utf-8')].append(index)
        comparison = Comparison(source, dataset, workers, f'has changed; {CHANGED}')
        new, pending = set(), list[tuple[int, Entry]]()
        for position, entry in enumerate(source.entries()):
            if not known[entry.key]:
                new.add(position)
                continue
            pending.append((known[entry.key].popleft(), entry))
            if len(pending) == BATCH and check_source:
                comparison.check(pending)
                pending = []
        if check_source:
            comparison.check(pending)
            lost = [key for key, indices in known.items() if indices]
            if lost:
                raise ValueError(f'{list_some(lost)}: the files of these datapoints are missing; {CHANGED}')
            notes += comparison.notes()
    return (entry for position, entry in enumerate(source.entries()) if position in new)


def check_first(
    source: Source,
    writer: ShardedDatasetWriter,
    storage: Mapping[str, Any],
    names: Mapping[str, str],
    position: int,
) -> None:
    """Compares the last datapoint of a dataset with its source, and all linked files.

    Args:
        source, writer, storage, names: As in `remaining_entries`.
        position: The number of the last datapoint in the source.

    Raises:
        ValueError: They differ, so that the datapoints of the dataset are not the first ones of the source.
    """
    writer.flush()
    with open_dataset(writer.path, raw=True, **storage) as found:
        if not len(found):
            return
        dataset = as_named_in_source(found, names)
        comparison = LinkComparison(dataset)
        if change := comparison.check_files(source.linked, source.opener):
            raise ValueError(f'{change}; {CHANGED}')
        entry = next(source.entries(position))
        values = {} if isinstance(entry, DamagedEntries) else source.load(entry)
        for field in source.linked:
            if not comparison.agree(len(dataset) - 1, field, values.get(field)):
                where = f'datapoint {len(dataset) - 1:,} of the dataset, field {field!r}'
                raise ValueError(f'{where}: its source has another value, or another order; {CHANGED}')
