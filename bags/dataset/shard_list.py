"""Listing the shards of a dataset, from its shards.json or from its folder."""

from __future__ import annotations

from typing import NamedTuple

from bags.bag.limits import ENTRY
from bags.dataset.folder import is_being_made, not_a_folder
from bags.dataset.refs import RefsFormat
from bags.dataset.shard_index import INDEX, Shard, load_index, numbered
from bags.dataset.spec import Spec
from bags.errors import BagsError, CorruptError
from bags.storage import Store

__all__ = ['ShardList', 'length_by_size', 'list_local_shards', 'list_remote_shards', 'shard_numbers']


class ShardList(NamedTuple):
    """The shards of a dataset, in order."""

    shards: list[Shard]
    """The shards. In a local folder without shards.json, only their names are known."""
    types: Spec | None = None
    """The spec in shards.json; None without one."""
    after: str | None = None
    """The name that a shard after the last would have, on an object store with shards.json: to check it."""
    files: frozenset[str] = frozenset()
    """The files beside the shards, from a listing. With a spec.json this is a dataset of one folder."""
    is_unfinished: bool = False
    """Whether shards at the end are incomplete, and left out."""


def shard_numbers(store: Store, directory: str) -> dict[int, str]:
    """Returns the names of the shard folders by number, in order.

    Raises:
        CorruptError: Two shards have the same number.
    """
    return numbered(store.names(directory), directory)


def list_local_shards(store: Store, directory: str) -> ShardList:
    """Returns the shards of a local dataset, without incomplete ones at the end, which are being written.

    Raises:
        FileNotFoundError, NotADirectoryError: The folder does not exist, or is a file.
        CorruptError: Two shards have the same number.
    """
    try:
        found = store.names(directory)
    except NotADirectoryError:
        raise not_a_folder(directory) from None
    names = list(numbered(found, directory).values())
    if INDEX in found:
        listed = _read_local_index(store, directory, names)
        if listed is not None:
            return listed
    count = len(names)
    while names:
        folder = store.join(directory, names[-1])
        if store.exists(store.join(folder, 'refs.bag')) or not is_being_made(store.names(folder)):
            break
        names.pop()
    return ShardList(list(map(Shard, names)), is_unfinished=len(names) < count)


def _read_local_index(store: Store, directory: str, names: list[str]) -> ShardList | None:
    """Returns what the shards.json of a local dataset says; None if it is damaged or out of date."""
    path = store.join(directory, INDEX)
    try:
        types, shards = load_index(store.read(path), path)
        if [shard.name for shard in shards] != names:
            return None
        for shard in shards:
            file = 'refs.bag' if 'refs.bag' in shard.sizes else min(shard.sizes, default='refs.bag')
            path = store.join(store.join(directory, shard.name), file)
            if store.stat(path).size != shard.sizes.get(file):
                return None
    except (BagsError, OSError):
        return None
    return ShardList(shards, types)


def list_remote_shards(store: Store, directory: str) -> ShardList:
    """As `list_local_shards`, on an object store: from shards.json, or with one listing of all files.

    Raises:
        FileNotFoundError: The folder does not exist.
        CorruptError: Two shards have the same number, or shards.json is damaged.
    """
    path = store.join(directory, INDEX)
    try:
        types, shards = load_index(store.read(path), path)
        last = shards[-1].name
        return ShardList(shards, types, str(int(last) + 1).rjust(len(last), '0'))
    except FileNotFoundError:
        files = store.walk(directory)
    folders: dict[str, dict[str, int]] = {}
    beside: list[str] = []
    for name, stat in files.items():
        folder, slash, file = name.partition('/')
        if not slash:
            beside.append(name)
        elif '/' not in file:
            folders.setdefault(folder, {})[file] = stat.size
    names = list(numbered(folders, directory).values())
    # Refs are uploaded last: shards at the end without refs are being written, or were left incomplete.
    count = len(names)
    while names and 'refs.bag' not in folders[names[-1]] and is_being_made(folders[names[-1]], True):
        names.pop()
    shards = list(map(Shard, names, map(folders.__getitem__, names)))
    return ShardList(shards, files=frozenset(beside), is_unfinished=len(shards) < count)


def length_by_size(shard: Shard, format: RefsFormat) -> int | None:
    """Returns the number of datapoints of a shard, from the sizes of its files; None if they do not fit.

    Args:
        shard: The shard, with its sizes.
        format: The format of its refs, if all rows have the same length.
    """
    size = shard.sizes.get('refs.bag')
    if size is None:  # Granular has an index for each field.
        indexes = [shard.sizes.get(f'{name}.idx') for name in format.spec]
        sizes = [size for size in indexes if size is not None]
        return min(sizes) // ENTRY if sizes and len(sizes) == len(indexes) else None
    if not size:
        for name, other in shard.sizes.items():
            if other and name.endswith(('.bag', '.bagz')):
                raise CorruptError(f'{shard.name}/refs.bag', None, f'is empty, but {name} is not')
    count, rest = divmod(size, format.stride + ENTRY)
    return None if rest else count
