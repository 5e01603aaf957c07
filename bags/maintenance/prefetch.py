"""Filling the cache of a dataset before it is read."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bags.bag.options import CacheMode
from bags.concurrency import in_threads
from bags.dataset.base import Dataset, check_dataset
from bags.dataset.folder import Folder
from bags.dataset.reader import DatasetReader
from bags.dataset.schema import SchemaCache
from bags.dataset.selection import select_fields
from bags.indexing import Int64s
from bags.progress import Advance
from bags.progress import progress as show_progress
from bags.storage.cache.store import CachedStore

__all__ = ['prefetch']

FILES = 8  # At a time, each over several connections.
LISTINGS = 32
ROWS = 256  # At a time, where only blocks are fetched.


class Need(NamedTuple):
    """What of a dataset folder is to be fetched."""

    folder: Folder
    fields: list[str]
    rows: Int64s | None
    """Which datapoints; None for all."""


def prefetch(dataset: Any, fields: str | Iterable[str] | None = None, *, progress: bool | None = None) -> int:
    """Fetches into the cache of a dataset what reading it takes, so that reading it is local from then on.

    Args:
        dataset: A reader that was opened with `cache=…`, or a view: of that only the shards it has
            datapoints in, and with `cache_mode='blocks'` only the blocks of these datapoints.
        fields: Which fields; all unless given.
        progress: Show a bar: True, False, or None for on terminals.

    Returns:
        The bytes of the files that are there now, of as much of them as was needed.

    Raises:
        ValueError: The dataset has no cache, or one that is too small.
        KeyError: No such field.
        OSError: Something cannot be fetched, or the disk is full. What came stays.
    """
    check_dataset('prefetch', dataset)
    names = fields if fields is None or isinstance(fields, str) else tuple(fields)
    needs = _needs(dataset, list(select_fields(names, dataset._types)))
    for need in needs:
        if need.folder.options.cache is None:
            raise ValueError(f'{need.folder.path}: has no cache to fetch into (open it with cache=…)')
    remote = [need for need in needs if isinstance(need.folder.store, CachedStore)]
    in_threads(lambda need: need.folder.learn(), remote, LISTINGS)
    parts = [need for need in remote if need.rows is not None and _has_blocks(need)]
    # Each file once, also where several views share it.
    files = {
        path: need.folder.store
        for need in remote
        if need.rows is None or not _has_blocks(need)
        for path in _paths(need)
    }
    sizes = {path: store.stat(path).size for path, store in files.items()}
    _check_room(files, sum(sizes.values()))
    with show_progress('fetching', len(files) + len(parts), 'files', show=progress) as advance:
        in_threads(lambda path: _fetch(files[path], path, advance), list(files), FILES)
        taken = [_read(need, advance) for need in parts]
    return sum(sizes.values()) + sum(taken)


def _has_blocks(need: Need) -> bool:
    return need.folder.options.cache_mode is CacheMode.BLOCKS


def _needs(dataset: Dataset, fields: list[str]) -> list[Need]:
    """Returns the folders that the datapoints of a dataset are in, each with its fields and datapoints."""
    found: dict[str, Need] = {}
    for address in dataset._resolve(np.arange(len(dataset)), dict.fromkeys(fields, True)):
        folder, rows = address.reader._folder, np.unique(address.rows)
        known = found.get(folder.path)
        if known is not None:
            rows = rows if known.rows is None else np.union1d(rows, known.rows)
            fields = sorted({*address.selection, *known.fields})
        else:
            fields = list(address.selection)
        found[folder.path] = Need(folder, fields, None if len(rows) == len(address.reader) else rows)
    return [need for need in found.values() if need.fields]


def _paths(need: Need) -> Iterator[str]:
    """Returns the files of a folder that some fields are in, with the refs and the spec."""
    folder = need.folder
    names = folder.names
    wanted = {'refs.bag', 'spec.json'}
    for field in need.fields:
        wanted |= {f'{field}.bag', f'{field}.bagz', f'{field}.idx', f'{field}.zdict'}
    return (folder.store.join(folder.path, name) for name in sorted(names & wanted))


def _check_room(files: dict[str, Any], size: int) -> None:
    for store in files.values():
        if store.limit is not None and size > store.limit:
            raise ValueError(
                f'cache {store.folder}: expected a cache_size of at least {size}, got {store.limit}'
            )


def _fetch(store: Any, path: str, advance: Advance) -> None:
    if not store.fetch(path, lambda size: advance(0, size)):
        raise OSError(errno.ENOSPC, f'no room in the cache beside files in use, for {path}', store.folder)
    advance(1)


def _read(need: Need, advance: Advance) -> int:
    """Reads datapoints as they are, so that the blocks they are in are kept."""
    reader = DatasetReader._over(need.folder, SchemaCache(None, True))
    assert need.rows is not None
    size = 0
    for start in range(0, len(need.rows), ROWS):
        rows = reader._rows(need.rows[start : start + ROWS], dict.fromkeys(need.fields, True))
        part = sum(_size(value) for row in rows for value in row.values())
        advance(0, part)
        size += part
    advance(1)
    return size


def _size(value: Any) -> int:
    if value is None:
        return 0
    return sum(map(len, value)) if isinstance(value, list) else len(value)
