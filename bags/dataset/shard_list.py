"""Which shards a dataset of many folders has: as its index tells, or a listing of it."""

from __future__ import annotations

import dataclasses

from bags.bag.limits import ENTRY
from bags.dataset.folder import is_being_made, not_a_folder
from bags.dataset.refs import RefsFormat
from bags.dataset.shard_index import INDEX, Shard, load_index, numbered
from bags.dataset.spec import Spec
from bags.errors import BagsError, CorruptError
from bags.storage import Store

__all__ = ['ShardList', 'length_by_size', 'list_shards', 'shard_numbers']


@dataclasses.dataclass(frozen=True, slots=True)
class ShardList:
    """The shards of a dataset, in order."""

    shards: list[Shard]
    """Of folders on a local disk only names are known, unless there is an index."""
    types: Spec | None = None
    """As the index tells."""
    after: str | None = None
    """The shard after the last, which is not there if the index is right; None without one."""
    single: bool = False
    """There is a spec.json: it is no dataset of many folders, but a folder of one."""


def shard_numbers(store: Store, directory: str) -> dict[int, str]:
    """Returns the shard folders by their numbers, in order.

    Raises:
        CorruptError: Two folders of one number.
    """
    return numbered(store.names(directory), directory)


def list_shards(store: Store, directory: str) -> ShardList:
    """Returns the shards of a dataset; those at the end that are still being made are left out.

    Raises:
        FileNotFoundError: No such folder.
        CorruptError: Two folders of one number; a remote index that is none.
    """
    return _local(store, directory) if not store.is_remote else _remote(store, directory)


def _local(store: Store, directory: str) -> ShardList:
    try:
        found = store.names(directory)
    except NotADirectoryError:
        raise not_a_folder(directory) from None
    names = list(numbered(found, directory).values())
    if INDEX in found:
        known = _agreeing(store, directory, names)
        if known is not None:
            return known
    while names and is_being_made(store.names(store.join(directory, names[-1]))):
        names.pop()
    return ShardList([Shard(name, {}) for name in names])


def _agreeing(store: Store, directory: str, names: list[str]) -> ShardList | None:
    """Returns what the index of a local dataset tells, if that can still be so."""
    path = store.join(directory, INDEX)
    try:
        types, shards = load_index(store.read(path), path)
    except (BagsError, OSError):
        return None  # The listing tells as much.
    if [shard.name for shard in shards] != names:
        return None
    for shard in shards:
        folder = store.join(directory, shard.name)
        file = next((name for name in ('refs.bag', *sorted(shard.sizes)) if name in shard.sizes), 'refs.bag')
        try:
            if store.size(store.join(folder, file)) != shard.sizes.get(file):
                return None
        except FileNotFoundError:
            return None
    return ShardList(shards, types)


def _remote(store: Store, directory: str) -> ShardList:
    path = store.join(directory, INDEX)
    try:
        data = store.read(path)
    except FileNotFoundError:
        return _listed(store, directory)
    types, shards = load_index(data, path)
    last = shards[-1].name
    return ShardList(shards, types, str(int(last) + 1).rjust(len(last), '0'))


def _listed(store: Store, directory: str) -> ShardList:
    folders: dict[str, dict[str, int]] = {}
    single = False
    for name, stat in store.walk(directory).items():
        first, slash, rest = name.partition('/')
        if slash and '/' not in rest:
            folders.setdefault(first, {})[rest] = stat.size
        single = single or name == 'spec.json'
    shards = [Shard(name, folders[name]) for name in numbered(folders, directory).values()]
    # Folders are uploaded in order, refs last: those at the end without are on their way, or were left.
    while shards and not ({'refs.bag'} | {name for name in shards[-1].sizes if name.endswith('.idx')}) & set(
        shards[-1].sizes
    ):
        shards.pop()
    return ShardList(shards, single=single)


def length_by_size(shard: Shard, format: RefsFormat) -> int | None:
    """Returns how many datapoints a shard has, from its sizes; None if they do not tell.

    Args:
        shard: Of sizes that were listed.
        format: Of refs that all shards seem to have: with rows of one length.
    """
    size = shard.sizes.get('refs.bag')
    if size is None:
        indexes = [shard.sizes.get(f'{name}.idx') for name in format.spec]
        return (
            min((size // ENTRY for size in indexes if size is not None), default=None)
            if all(size is not None for size in indexes)
            else None
        )
    if not size:
        for name, other in shard.sizes.items():
            if other and name.endswith(('.bag', '.bagz')):
                raise CorruptError(f'{shard.name}/refs.bag', None, f'is empty, but {name} is not')
    count, rest = divmod(size, format.stride + ENTRY)
    return None if rest else count
