"""The files of a dataset where folders cannot be listed: a web server is asked for each by its name."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from bags.bag.checksums import checksums_name
from bags.concurrency import map_concurrently
from bags.dataset.metadata import METADATA
from bags.dataset.schema import parse_schema
from bags.dataset.unfinished import MARK
from bags.errors import BagsError, CorruptError
from bags.storage import Stat, Store

__all__ = ['CONSOLIDATE', 'ask_for_folder', 'ask_for_shards', 'files_below', 'names_in']

FIRST_SHARDS = 8
"""Shards that are asked for at first; then twice as many each time, until one is missing."""
MAX_SHARDS = 1 << 16
CONSOLIDATE = 'a web server does not list its files, so run bags.consolidate where they are'


def names_in(store: Store, folder: str, *ends: str) -> set[str]:
    """Returns the names of what is in a dataset folder.

    Args:
        store: Where it is.
        folder: The folder.
        *ends: As in `ask_for_folder`.

    Raises:
        FileNotFoundError, NotADirectoryError: There is no such folder.
    """
    return set(store.names(folder) if store.can_list else ask_for_folder(store, folder, None, *ends))


def files_below(store: Store, folders: Sequence[str], root: str) -> dict[str, Stat]:
    """Returns the files below the root of a dataset, by their paths in it, with size and version.

    Args:
        store: Where they are.
        folders: The root, or the folders of the shards in it.
        root: The dataset.
    """
    if store.can_list:
        return store.walk(root)
    every = map_concurrently(lambda folder: ask_for_folder(store, folder), folders, True)
    return {
        store.join(folder, name)[len(root) :].lstrip('/'): stat
        for folder, found in zip(folders, every, strict=True)
        for name, stat in found.items()
    }


def ask_for_folder(store: Store, folder: str, spec: bytes | None = None, *ends: str) -> dict[str, Stat]:
    """Asks for the files that a folder of datapoints can have.

    Args:
        store: Where it is.
        folder: The folder.
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
    found = {'spec.json': Stat(len(spec)), **_ask(store, folder, names)}
    more: list[str] = []
    for name in fields:
        if f'{name}.bag' not in found:
            more.append(f'{name}.bagz')
        if 'refs.bag' not in found:
            more.append(f'{name}.idx')
        if checksums_name('refs.bag') in found:
            more += map(checksums_name, (f'{name}.bag', f'{name}.bagz'))
    return found | _ask(store, folder, more)


def ask_for_shards(store: Store, directory: str) -> dict[str, dict[str, int]]:
    """Asks for 000000, 000001, … until one is missing, and returns the sizes of their spec and refs.

    Of a shard without refs, which Granular has written or nobody has completed, the sizes of all files.

    Raises:
        CorruptError: Shards in between are missing, or there are very many.
    """
    shards: dict[str, dict[str, int]] = {}
    count, is_last = FIRST_SHARDS, False
    while not is_last:
        names = [f'{number:06}' for number in range(len(shards), len(shards) + count)]
        files = [f'{name}/{file}' for name in names for file in ('spec.json', 'refs.bag')]
        found = _ask(store, directory, files)
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
    every = map_concurrently(lambda name: ask_for_folder(store, store.join(directory, name)), bare, True)
    for name, stats in zip(bare, every, strict=True):
        shards[name] = {file: stat.size for file, stat in stats.items()}
    return shards


def _ask(store: Store, folder: str, names: list[str]) -> dict[str, Stat]:
    """Returns size and version of those files that exist, with concurrent requests."""

    def ask(name: str) -> Stat | None:
        try:
            return store.stat(store.join(folder, name))
        except FileNotFoundError:
            return None

    stats = map_concurrently(ask, names, True)
    return {name: stat for name, stat in zip(names, stats, strict=True) if stat is not None}
