"""Determines which records and datapoints of an interrupted writer are kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.checksums import checksums_name
from bags.bag.journal_recovery import certain_counts
from bags.bag.open import open_bag
from bags.bag.options import ReaderOptions
from bags.dataset.format.file_names import BAG_SUFFIXES, IDENTITY, bag_files, is_file_of_dataset
from bags.dataset.format.journal import JOURNAL
from bags.dataset.format.json_files import remove_json
from bags.dataset.format.refs import RefsFormat, dangling, is_missing
from bags.errors import CorruptError
from bags.links.link_builder import first_lost
from bags.storage import Store

CHECKED_REFS_AT_ONCE = 1 << 18
"""Number of rows of refs that are checked at a time."""


def remove_files(store: Store, folder: str, is_foreign: bool = False) -> None:
    """Removes the files of a dataset folder, refs first and the journal last.

    For a folder of another writer on an object store, the journal is removed first: if the writer still runs,
    it then knows that it has lost the folder.
    """
    try:
        names = filter(is_file_of_dataset, store.names(folder))
    except FileNotFoundError:
        return  # On an object store, another process has removed them.
    for name in sorted(names, key=lambda name: ((name == JOURNAL) != is_foreign, name != 'refs.bag')):
        store.remove(store.join(folder, name))


def accept(store: Store, folder: str) -> None:
    """Removes the journal of a folder whose bags are closed, after everything in it is on disk."""
    names = set(store.names(folder))
    for name in names:
        store.sync(store.join(folder, name))
    if IDENTITY not in names:
        remove_json(store, store.join(folder, IDENTITY))  # Removes a leftover checksum: it is written first.
    store.sync_folder(folder)
    store.remove(store.join(folder, JOURNAL))
    store.sync_folder(folder)


class ResumeState(NamedTuple):
    """The records of a dataset folder that resuming keeps."""

    counts: dict[str, int]
    """Number of records by field, and of `refs`, which is the number of datapoints."""
    dropping: frozenset[str] = frozenset()
    """The bags whose further records are dropped, if there are any."""
    before: Mapping[str, int] = MappingProxyType({})
    """Number of records before dropping, of bags whose records are all on disk."""

    def truncated(self, length: int) -> ResumeState:
        """Returns the state for keeping only the first `length` datapoints."""
        before = {'refs': self.counts['refs'], **self.before}
        return ResumeState({**self.counts, 'refs': length}, self.dropping | {'refs'}, before)

    def limit(self, name: str) -> int | None:
        """Returns the number of records to which a bag is truncated; None if it is not."""
        return self.counts[name] if name in self.dropping else None


def records_to_keep(
    store: Store,
    folder: str,
    refs_format: RefsFormat,
    names: Collection[str],
    linked: Collection[str],
    storage: dict[str, Any],
) -> ResumeState | None:
    """Returns the records of a dataset folder that resuming keeps, and syncs them to disk.

    All datapoints are kept, except those at the end whose records are missing or not certain: a power cut may
    keep refs and lose records.

    Args:
        store, folder: The dataset folder.
        refs_format: The format of its refs.
        names: The files in the folder.
        linked: Linked fields. A power cut may lose all files of a field, which the journal counts.
        storage: The options `filesystem` and `storage_options`.

    Returns:
        The kept records; None if the folder does not have refs yet.

    Raises:
        CorruptError: Files are missing, or records are missing although the folder was closed.
        ValueError: Another library wrote the folder.
    """
    bags = bag_files(folder, refs_format.schema, names, linked)
    certain = None
    if not store.is_remote:
        paths = [store.join(folder, file) for file in bags.values()]
        certain = certain_counts(store, store.join(folder, JOURNAL), paths)
    if certain is not None:
        counts = dict(zip(bags, certain, strict=True))
        kept: ResumeState | None = ResumeState(counts, frozenset(counts))
    else:
        kept = _complete_records(store, folder, refs_format, names, ReaderOptions(**storage))
    for name in bags.values():
        if f'limits.{name}' in names:
            for file in {name, f'limits.{name}', checksums_name(name)} & set(names):
                store.sync(store.join(folder, file))
    store.sync_folder(folder)
    return kept


def _complete_records(
    store: Store, folder: str, refs_format: RefsFormat, names: Collection[str], options: ReaderOptions
) -> ResumeState | None:
    """Returns the records to keep according to the bags themselves, without the journal."""
    if 'refs.bag' not in names:
        if any(name.endswith('.idx') for name in names):
            raise ValueError(f'{folder}: was written by Granular, and can be read but not resumed')
        # The refs are created before all other bags.
        if not store.is_remote and any(
            name.endswith(BAG_SUFFIXES) and name != 'limits.refs.bag' for name in names
        ):
            raise CorruptError(folder, None, 'has bags, but no refs.bag')
        return None
    refs = open_bag(store, store.join(folder, 'refs.bag'), options)
    if refs.count and not int(refs.ends[0:1][0]):
        raise ValueError(f'{folder}: was written by Bags 0.x, and can be read but not resumed')
    counts: dict[str, int] = {}
    for key, file in bag_files(folder, refs_format.schema, names).items():
        if key != 'refs' and file in names:
            counts[key] = open_bag(store, store.join(folder, file), options).count
        elif key != 'refs' and refs.count:
            # All bags are created before the first datapoint.
            field = key.partition('/')[0]
            detail = f'has no {file}' if key != field else f'has neither {field}.bag nor {field}.bagz'
            raise CorruptError(folder, None, f'field {field!r}: {detail}')
    dropping, before = set(), {}
    for name in refs_format.schema:
        if f'{name}/values' in counts and name in counts:  # The links are created last.
            paths = [store.join(folder, f'{name}.{each}') for each in ('links', 'values')]
            links, values = (open_bag(store, each, options) for each in paths)
            count = first_lost(links, values, counts[f'{name}/files'])
            if count < counts[name]:
                before[name], counts[name] = counts[name], count
                dropping.add(name)
    keep = refs.count
    while keep and not _is_complete(refs, keep - 1, refs_format, counts):
        keep -= 1
    keep = min(keep, _first_dangling(refs, keep, refs_format, counts))
    if keep < refs.count and 'limits.refs.bag' not in names:
        raise CorruptError(refs.path, keep, 'its refs lead to records that are missing')
    if keep < refs.count:
        dropping.add('refs')
        before['refs'] = refs.count
    return ResumeState({'refs': keep, **counts}, frozenset(dropping), before)


def _first_dangling(refs: BagFile, count: int, refs_format: RefsFormat, counts: dict[str, int]) -> int:
    """Returns the index of the first row whose records are missing, or the number of rows.

    A kill loses records of the last row only; a power cut may lose limits that earlier rows need.
    """
    for start in range(0, count, CHECKED_REFS_AT_ONCE):
        stop = min(start + CHECKED_REFS_AT_ONCE, count)
        data = refs.file.fetch(start * refs_format.stride, stop * refs_format.stride)
        table = np.frombuffer(data, np.uint8).reshape(-1, refs_format.stride)
        if int(refs.ends[stop - 1 : stop][0]) != stop * refs_format.stride or not refs_format.has_tags(table):
            return count  # Written by another library, whose refs do not have tags.
        rows = np.frombuffer(data, refs_format.dtype)
        for name, found in refs_format.columns(rows, list(refs_format.schema)).items():
            firsts, lengths = found if refs_format.schema[name].sequence else (found, None)
            bad = dangling(refs_format.schema[name], firsts, lengths, counts[name])
            if bad.any():
                count = min(count, start + int(bad.argmax()))
        if count < stop:
            return count
    return count


def _is_complete(refs: BagFile, index: int, refs_format: RefsFormat, counts: dict[str, int]) -> bool:
    try:
        row = refs_format.unpack(refs.record(index))
    except (CorruptError, ValueError):
        return False
    for name, field_type in refs_format.schema.items():
        position = refs_format.positions[name]
        first, count = row[position], row[position + 1] if field_type.sequence else 1
        if count and first + count > counts[name] and not (field_type.optional and is_missing(first)):
            return False
    return True
