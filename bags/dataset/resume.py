"""Resuming datasets: which files and datapoints of an interrupted writer are kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.certain_records import certain_counts
from bags.bag.checksums import SUFFIX, checksums_name
from bags.bag.open import open_bag
from bags.bag.options import ReaderOptions
from bags.dataset.json_files import remove_json
from bags.dataset.mark import MARK, is_mark
from bags.dataset.metadata import METADATA, STATISTICS
from bags.dataset.refs import RefsFormat, dangling, is_missing
from bags.dataset.shard_index import INDEX
from bags.errors import CorruptError
from bags.links.existing import first_lost
from bags.storage import Store

LINKED = ('.links', '.files', '.values')
"""Suffixes of the bags of a linked field: the links, the files that they lead to, and other records."""
BAG_SUFFIXES = ('.bag', '.bagz', *LINKED)
ROWS_AT_ONCE = 1 << 18
"""Rows of refs that are checked at a time."""
SOURCE = 'source.json'
"""A file beside shards: their source, and the progress in it (`ProgressLog`)."""


def is_temporary(name: str) -> bool:
    """Returns whether a file, by its name, is temporary: one that is left was written by a killed writer."""
    return name.endswith('.new')


def is_file_of_dataset(name: str) -> bool:
    """Returns whether a file in a dataset folder, by its name, is a part of the dataset."""
    files = ('spec.json', METADATA, STATISTICS, SOURCE, INDEX)
    return (
        name in files
        or is_mark(name)
        or name.endswith((*BAG_SUFFIXES, '.idx', '.index', '.zdict', '.new', SUFFIX))
    )


def is_derived(name: str) -> bool:
    """Returns whether a file, by its name, is computed from datapoints: statistics, or an index of keys."""
    return name.removesuffix(SUFFIX) == STATISTICS or name.endswith('.index')


def remove_files(store: Store, folder: str) -> None:
    """Removes the files of a dataset folder, refs first and the mark last."""
    names = filter(is_file_of_dataset, store.names(folder))
    for name in sorted(names, key=lambda name: (name == MARK, name != 'refs.bag')):
        store.remove(store.join(folder, name))


def accept(store: Store, folder: str) -> None:
    """Removes the mark of a folder whose bags are closed, after everything in it is on disk."""
    names = set(store.names(folder))
    for name in names:
        store.sync(store.join(folder, name))
    if SOURCE not in names:
        remove_json(store, store.join(folder, SOURCE))  # Its checksum is written first.
    store.sync_folder(folder)
    store.remove(store.join(folder, MARK))
    store.sync_folder(folder)


def bag_suffix(folder: str, field: str, has: Callable[[str], bool]) -> str | None:
    """Returns the extension of a field's bag; None if there is no bag yet. `has`: whether there is a file.

    Raises:
        CorruptError: There are two bags.
    """
    is_plain, is_compressed = has(f'{field}.bag'), has(f'{field}.bagz')
    if is_plain and is_compressed:
        raise CorruptError(folder, None, f'field {field!r}: has both {field}.bag and {field}.bagz')
    if is_plain or is_compressed:
        return '.bag' if is_plain else '.bagz'
    return LINKED[0] if has(field + LINKED[0]) else None


def begun_suffix(field: str, names: Collection[str]) -> str | None:
    """Returns the extension of a bag by its limits, which exist first: a power cut may lose its name."""
    return next((end for end in ('.bag', '.bagz') if f'limits.{field}{end}' in names), None)


def is_linked(field: str, names: Collection[str]) -> bool:
    """Returns whether a writer has begun a field as a linked one, by the names in its folder."""
    return any(f'{before}{field}{suffix}' in names for before in ('', 'limits.') for suffix in LINKED)


def linked_fields(folder: str, fields: Iterable[str], names: Collection[str], asked: set[str]) -> set[str]:
    """Returns the linked fields of a folder: those that are, and those that are asked for.

    Raises:
        ValueError: A field that is asked for is in the folder, and is not linked.
    """
    found = {name for name in fields if is_linked(name, names)}
    for name in asked - found:
        if bag_suffix(folder, name, names.__contains__):
            raise ValueError(f'links: field {name!r} is not linked in the folder, and stays so: {folder}')
    return found | asked


def bag_files(
    folder: str, fields: Iterable[str], names: Collection[str], linked: Collection[str] = ()
) -> dict[str, str]:
    """Returns the file names of the bags of a dataset folder in the order of its journal.

    Args:
        folder, fields, names: The folder, its fields, and the names in it.
        linked: Linked fields, besides those that are in the folder.

    Returns:
        Names by `refs`, field, and, before linked fields, `FIELD/values` and `FIELD/files`.
    """
    found: dict[str, str] = {}
    for name in ('refs', *fields):
        linked_suffix = LINKED[0] if name in linked or is_linked(name, names) else '.bag'
        found_suffix = bag_suffix(folder, name, names.__contains__) or begun_suffix(name, names)
        suffix = found_suffix or linked_suffix
        if suffix == LINKED[0]:
            found |= {f'{name}/{each}': f'{name}.{each}' for each in ('values', 'files')}
        found[name] = name + suffix
    return found


class Kept(NamedTuple):
    """What resuming keeps of a dataset folder."""

    counts: dict[str, int]
    """Number of records, by field and of `refs`, which is the number of datapoints."""
    dropping: frozenset[str] = frozenset()
    """The bags that may have more records, which are dropped."""
    before: Mapping[str, int] = MappingProxyType({})
    """Number of records before some are dropped, of bags whose records are all on disk."""

    def truncated(self, length: int) -> Kept:
        """Returns what is kept of the first `length` datapoints."""
        before = {'refs': self.counts['refs'], **self.before}
        return Kept({**self.counts, 'refs': length}, self.dropping | {'refs'}, before)

    def limit(self, name: str) -> int | None:
        """Returns the number of records to which a bag is cut, if it is."""
        return self.counts[name] if name in self.dropping else None


def records_to_keep(
    store: Store, folder: str, format: RefsFormat, names: Collection[str], storage: dict[str, Any]
) -> Kept | None:
    """Returns what resuming a dataset folder keeps, and writes that to the disk.

    All datapoints are kept, except those at the end whose records are missing or not certain: a power cut may
    keep refs and lose records.

    Args:
        store, folder: The dataset folder.
        format: The format of its refs.
        names: The files in the folder.
        storage: The options `filesystem` and `storage_options`.

    Returns:
        What is kept; None if the folder has no refs yet.

    Raises:
        CorruptError: Files are missing, or records are missing although the folder was closed.
        ValueError: Another library wrote the folder.
    """
    bags = bag_files(folder, format.spec, names)
    certain = None
    if not store.is_remote:
        paths = [store.join(folder, file) for file in bags.values()]
        certain = certain_counts(store, store.join(folder, MARK), paths)
    if certain is not None:
        counts = dict(zip(bags, certain, strict=True))
        kept: Kept | None = Kept(counts, frozenset(counts))
    else:
        kept = _complete_records(store, folder, format, names, ReaderOptions(**storage))
    for name in bags.values():
        if f'limits.{name}' in names:
            for file in {name, f'limits.{name}', checksums_name(name)} & set(names):
                store.sync(store.join(folder, file))
    store.sync_folder(folder)
    return kept


def _complete_records(
    store: Store, folder: str, format: RefsFormat, names: Collection[str], options: ReaderOptions
) -> Kept | None:
    """As `records_to_keep`, of bags that are as their writer left them."""
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
    for key, file in bag_files(folder, format.spec, names).items():
        if key != 'refs' and file in names:
            counts[key] = open_bag(store, store.join(folder, file), options).count
        elif key != 'refs' and refs.count:
            # All bags are created before the first datapoint.
            field = key.partition('/')[0]
            detail = f'has no {file}' if key != field else f'has neither {field}.bag nor {field}.bagz'
            raise CorruptError(folder, None, f'field {field!r}: {detail}')
    dropping, before = set(), {}
    for name in format.spec:
        if f'{name}/values' in counts and name in counts:  # The links are created last.
            paths = [store.join(folder, f'{name}.{each}') for each in ('links', 'values')]
            links, values = (open_bag(store, each, options) for each in paths)
            count = first_lost(links, values, counts[f'{name}/files'])
            if count < counts[name]:
                before[name], counts[name] = counts[name], count
                dropping.add(name)
    keep = refs.count
    while keep and not _is_complete(refs, keep - 1, format, counts):
        keep -= 1
    keep = min(keep, _first_dangling(refs, keep, format, counts))
    if keep < refs.count and 'limits.refs.bag' not in names:
        raise CorruptError(refs.path, keep, 'its refs lead to records that are missing')
    if keep < refs.count:
        dropping.add('refs')
        before['refs'] = refs.count
    return Kept({'refs': keep, **counts}, frozenset(dropping), before)


def _first_dangling(refs: BagFile, count: int, format: RefsFormat, counts: dict[str, int]) -> int:
    """Returns the first of some rows whose records are missing, or their number.

    A kill loses records of the last row only; a power cut may lose limits that earlier rows need.
    """
    for start in range(0, count, ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, count)
        data = refs.file.fetch(start * format.stride, stop * format.stride)
        table = np.frombuffer(data, np.uint8).reshape(-1, format.stride)
        if int(refs.ends[stop - 1 : stop][0]) != stop * format.stride or not format.has_tags(table):
            return count  # Of another writer, which has no marks.
        rows = np.frombuffer(data, format.dtype)
        for name, found in format.columns(rows, list(format.spec)).items():
            firsts, lengths = found if format.spec[name].sequence else (found, None)
            bad = dangling(format.spec[name], firsts, lengths, counts[name])
            if bad.any():
                count = min(count, start + int(bad.argmax()))
        if count < stop:
            return count
    return count


def _is_complete(refs: BagFile, index: int, format: RefsFormat, counts: dict[str, int]) -> bool:
    try:
        row = format.unpack(refs.record(index))
    except (CorruptError, ValueError):
        return False
    for name, field_type in format.spec.items():
        position = format.positions[name]
        first, count = row[position], row[position + 1] if field_type.sequence else 1
        if count and first + count > counts[name] and not (field_type.optional and is_missing(first)):
            return False
    return True
