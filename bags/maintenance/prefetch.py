"""`bags.prefetch`: downloads a dataset into its cache before it is read."""

from __future__ import annotations

import errno
from itertools import repeat
from typing import Any

from bags.bag.checksums import SUFFIX
from bags.concurrency import map_concurrently
from bags.dataset.base import Dataset, check_dataset
from bags.dataset.format.file_names import BAG_SUFFIXES, IDENTITY
from bags.dataset.format.folder import Folder
from bags.dataset.format.metadata import METADATA
from bags.dataset.reading.selection import Fields, select_whole
from bags.links.files import LINKED
from bags.links.records import LinkedRecords
from bags.progress.progress import progress as show_progress
from bags.storage.cache.store import CachedStore

CONCURRENT_FILES = 8
"""Number of files downloaded at the same time, each over several connections."""


def prefetch(dataset: Dataset, fields: Fields = None, *, progress: bool | None = None) -> int:
    """Downloads a dataset into its cache, so that later reads are local.

    Args:
        dataset: A reader that was opened with `cache=…`, or a view; only the shards with its datapoints
            are downloaded.
        fields: Names of fields. Default: all.
        progress: Whether to show a progress bar; None: on a terminal.

    Returns:
        The total size of the files, in bytes.

    Raises:
        ValueError: The dataset has no cache, because it is local or was opened without one; or the cache is
            too small.
        KeyError: A field does not exist.
        OSError: A file cannot be downloaded, or the disk is full. Files already downloaded stay cached.

    Examples:
        >>> remote = bags.open('s3://bucket/episodes', cache='cache')  # doctest: +SKIP
        >>> bags.prefetch(remote, ('id', 'state'))  # doctest: +SKIP
    """
    check_dataset('prefetch', dataset)
    folders = dataset.folders(select_whole(fields, dataset.schema, 'prefetch'))
    cached = [(folder, names) for folder, names in folders if isinstance(folder.store, CachedStore)]
    for folder, _ in folders:
        if not cached or (folder.store.is_remote and not isinstance(folder.store, CachedStore)):
            detail = 'has no cache to download into: open a remote dataset with cache=…'
            raise ValueError(f'{folder.path}: {detail}')
    map_concurrently(lambda item: item[0].learn(), cached, True)
    if any(folder.options.cache_check == 'never' for folder, _ in cached):
        _ = dataset.unfinished  # The answer is kept in the cache, as `repr` asks for it.
    files: dict[str, Any] = {}  # A mapping removes duplicates: views may share files.
    for folder, names in cached:
        files |= _files(folder, names)
    files = {path: store for path, store in files.items() if isinstance(store, CachedStore)}
    size: int = sum(store.stat(path).size for path, store in files.items())
    for store in files.values():
        if store.limit is not None and size > store.limit:
            raise ValueError(
                f'cache {store.folder}: expected a cache_size of at least {size}, got {store.limit}'
            )
    with show_progress('fetching', len(files), 'files', show=progress) as advance:

        def fetch(path: str) -> None:
            store = files[path]
            if not store.fetch(path, lambda size: advance(0, size)):
                detail = f'the cache is full of files in use, and has no space for {path}'
                raise OSError(errno.ENOSPC, detail, store.folder)
            advance(1)

        map_concurrently(fetch, list(files), max_threads=CONCURRENT_FILES)
        return size


def _files(folder: Folder, fields: list[str]) -> dict[str, Any]:
    """Returns the files of some fields and of the folder itself, as a mapping from path to store."""
    endings = (*BAG_SUFFIXES, '.idx', '.zdict')
    names = {'refs.bag', 'spec.json', METADATA, *(field + end for field in fields for end in endings)}
    if folder.options.checksum:
        names |= {f'{name}{SUFFIX}' for name in names}
    names.add(IDENTITY)
    files = {folder.store.join(folder.path, name): folder.store for name in sorted(folder.names & names)}
    for field in fields:
        if field + LINKED[0] in folder.names and isinstance(bag := folder.open_bag(field), LinkedRecords):
            for entry in bag.entries():
                paths = [entry.path, *([entry.dictionary.path] if entry.dictionary else ())]
                files |= {path: store for store, path in map(bag.linked.locate, repeat(folder.path), paths)}
    return files
