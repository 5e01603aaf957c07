"""`bags.prefetch`: fills the cache of a dataset before it is read."""

from __future__ import annotations

import errno
from typing import Any, NamedTuple

import numpy as np

from bags.bag.options import CacheMode
from bags.concurrency import map_concurrently, map_in_threads
from bags.dataset.base import Dataset, check_dataset
from bags.dataset.folder import Folder
from bags.dataset.reader import DatasetReader
from bags.dataset.schema import SchemaCache
from bags.dataset.selection import Fields, select_whole
from bags.indexing import Int64s
from bags.progress import Advance
from bags.progress import progress as show_progress
from bags.storage.cache.store import CachedStore

__all__ = ['prefetch']

CONCURRENT_FILES = 8
"""Each is downloaded over several connections."""
ROWS_PER_READ = 256
"""Where only blocks are fetched."""


class Need(NamedTuple):
    """What of a dataset folder is to be fetched."""

    folder: Folder
    fields: list[str]
    rows: Int64s | None
    """Which datapoints; None for all."""

    def files(self) -> dict[str, Any]:
        """Returns the store by the paths of the files with its fields, refs and spec."""
        endings = ('bag', 'bagz', 'idx', 'zdict')
        names = {'refs.bag', 'spec.json', *(f'{field}.{end}' for field in self.fields for end in endings)}
        store = self.folder.store
        return {store.join(self.folder.path, name): store for name in sorted(self.folder.names & names)}


def prefetch(dataset: Any, fields: Fields = None, *, progress: bool | None = None) -> int:
    """Fetches a dataset into its cache, so that reading it is local from then on.

    Args:
        dataset: A reader that was opened with `cache=…`, or a view: of that only the shards it has
            datapoints in, and with `cache_mode='blocks'` only the blocks of these datapoints.
        fields: Which fields; all unless given.
        progress: Show a bar: True, False, or None for on terminals.

    Returns:
        The bytes of the files that are in the cache now, of as much of them as was needed.

    Raises:
        ValueError: The dataset has no cache, or one that is too small.
        KeyError: No such field.
        OSError: Something cannot be fetched, or the disk is full. What was fetched stays.
    """
    check_dataset('prefetch', dataset)
    needs = _needs(dataset, select_whole(fields, dataset._types, 'prefetch'))
    for need in needs:
        if need.folder.options.cache is None:
            raise ValueError(f'{need.folder.path}: has no cache to fetch into (open it with cache=…)')
    remote = [need for need in needs if isinstance(need.folder.store, CachedStore)]
    map_concurrently(lambda need: need.folder.learn(), remote, True)
    partial: list[Need] = []
    files: dict[str, Any] = {}  # Each once, also where several views share it.
    for need in remote:
        if need.rows is not None and need.folder.options.cache_mode is CacheMode.BLOCKS:
            partial.append(need)
        else:
            files |= need.files()
    size: int = sum(store.stat(path).size for path, store in files.items())
    for store in files.values():
        if store.limit is not None and size > store.limit:
            raise ValueError(
                f'cache {store.folder}: expected a cache_size of at least {size}, got {store.limit}'
            )
    with show_progress('fetching', len(files) + len(partial), 'files', show=progress) as advance:

        def fetch(path: str) -> None:
            store = files[path]
            if not store.fetch(path, lambda size: advance(0, size)):
                detail = f'the cache is full of files that are in use, no space for {path}'
                raise OSError(errno.ENOSPC, detail, store.folder)
            advance(1)

        map_in_threads(fetch, list(files), CONCURRENT_FILES)
        return size + sum(_read(need, advance) for need in partial)


def _needs(dataset: Dataset, fields: list[str]) -> list[Need]:
    """Returns the folders that the datapoints of a dataset are in, each with its fields and datapoints."""
    found: dict[str, Need] = {}
    for address in dataset._resolve(np.arange(len(dataset)), dict.fromkeys(fields, True)):
        folder, names, rows = address.reader._folder, list(address.selection), np.unique(address.rows)
        if folder is None:
            continue  # These datapoints do not have these fields.
        known = found.get(folder.path)
        if known is not None:
            names = sorted({*names, *known.fields})
            rows = rows if known.rows is None else np.union1d(rows, known.rows)
        found[folder.path] = Need(folder, names, None if len(rows) == len(address.reader) else rows)
    return list(found.values()) if fields else []


def _read(need: Need, advance: Advance) -> int:
    """Reads records undecoded, so that the cache keeps the blocks they are in; returns their bytes."""
    assert need.rows is not None
    reader = DatasetReader._over(need.folder, SchemaCache(None, True))
    names = [name for name in need.fields if name in reader._types]
    total = 0
    for start in range(0, len(need.rows), ROWS_PER_READ):
        rows = reader._rows(need.rows[start : start + ROWS_PER_READ], dict.fromkeys(names, True))
        size = 0
        for value in (value for row in rows for value in row.values() if value is not None):
            size += sum(map(len, value)) if isinstance(value, list) else len(value)
        advance(0, size)
        total += size
    advance(1)
    return total
