"""Listing the files of a dataset, also on web servers, which are asked for each possible name."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from bags.bag.checksums import checksums_name
from bags.concurrency import map_concurrently
from bags.dataset.metadata import METADATA
from bags.dataset.resume import MARK
from bags.dataset.schema import parse_schema
from bags.errors import BagsError, CorruptError
from bags.storage import Stat, Store

__all__ = ['CONSOLIDATE', 'files_below', 'names_in', 'probe_folder', 'probe_shards']

FIRST_SHARDS = 8
"""Shards of the first round of requests; each next round has twice as many, until a shard is missing."""
MAX_SHARDS = 1 << 16
CONSOLIDATE = 'a web server does not list its files, so run bags.consolidate where they are'


def names_in(store: Store, folder: str, *ends: str) -> set[str]:
    """Returns the names of the files in a dataset folder; `ends` as in `probe_folder`.

    Raises:
        FileNotFoundError, NotADirectoryError: There is no such folder.
    """
    return set(store.names(folder) if store.can_list else probe_folder(store, folder, None, *ends))


def files_below(store: Store, folders: Sequence[str], root: str) -> dict[str, Stat]:
    """Returns size and version of the files of a dataset, by their paths below its root.

    `folders` are the shards in the root, or the root itself.
    """
    if store.can_list:
        return store.walk(root)
    every = map_concurrently(lambda folder: probe_folder(store, folder), folders, True)
    return {
        store.join(folder, name)[len(root) :].lstrip('/'): stat
        for folder, found in zip(folders, every, strict=True)
        for name, stat in found.items()
    }


def probe_folder(store: Store, folder: str, spec: bytes | None = None, *ends: str) -> dict[str, Stat]:
    """Requests the files that a folder of datapoints can have; returns those that exist.

    Args:
        store, folder: The folder.
        spec: Its spec.json, if that has been read.
        *ends: Suffixes of more files that a field can have, such as 'index'.

    Raises:
        FileNotFoundError: It has no spec.json.
    """
    if spec is None:
        spec = store.read(store.join(folder, 'spec.json'))
    fields: list[str] = []
    with contextlib.suppress(BagsError):  # Raises where the spec is used.
        fields = list(parse_schema(spec).types)
    names = [METADATA, 'refs.bag', 'limits.refs.bag', MARK, checksums_name('refs.bag')]
    names += [f'{name}.{end}' for name in fields for end in ('bag', 'zdict', *ends)]
    found = {'spec.json': Stat(len(spec)), **_stat_all(store, folder, names)}
    more: list[str] = []
    for name in fields:
        if f'{name}.bag' not in found:
            more.append(f'{name}.bagz')
        if 'refs.bag' not in found:
            more.append(f'{name}.idx')
        if checksums_name('refs.bag') in found:
            more += map(checksums_name, (f'{name}.bag', f'{name}.bagz'))
    return found | _stat_all(store, folder, more)


def probe_shards(store: Store, directory: str) -> dict[str, dict[str, int]]:
    """Requests shards 000000, 000001, … until one is missing; returns the sizes of their spec and refs.

    Of a shard without refs, from Granular or incomplete, the sizes of all files.

    Raises:
        CorruptError: Shards in between are missing, or there are very many.
    """
    shards: dict[str, dict[str, int]] = {}
    count, is_last = FIRST_SHARDS, False
    while not is_last:
        names = [f'{number:06}' for number in range(len(shards), len(shards) + count)]
        files = [f'{name}/{file}' for name in names for file in ('spec.json', 'refs.bag')]
        found = _stat_all(store, directory, files)
        for name in names:
            sizes = {
                file: found[f'{name}/{file}'].size
                for file in ('spec.json', 'refs.bag')
                if f'{name}/{file}' in found
            }
            if 'spec.json' not in sizes:
                is_last = True
            elif is_last:
                raise CorruptError(
                    directory, None, f'has shard {name}, but not the one before: {CONSOLIDATE}'
                )
            else:
                shards[name] = sizes
        count *= 2
        if len(shards) > MAX_SHARDS:
            raise CorruptError(directory, None, f'expected at most {MAX_SHARDS} shards: {CONSOLIDATE}')
    bare = [name for name, sizes in shards.items() if 'refs.bag' not in sizes]
    every = map_concurrently(lambda name: probe_folder(store, store.join(directory, name)), bare, True)
    for name, stats in zip(bare, every, strict=True):
        shards[name] = {file: stat.size for file, stat in stats.items()}
    return shards


def _stat_all(store: Store, folder: str, names: list[str]) -> dict[str, Stat]:
    """Returns size and version of those files that exist, with concurrent requests."""

    def stat(name: str) -> Stat | None:
        try:
            return store.stat(store.join(folder, name))
        except FileNotFoundError:
            return None

    stats = map_concurrently(stat, names, True)
    return {name: stat for name, stat in zip(names, stats, strict=True) if stat is not None}
