"""Writing the index of a dataset of many folders, so that opening it takes one request."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any

from bags.bag.options import ReaderOptions
from bags.concurrency import map_in_threads
from bags.dataset.folder import Folder, reader_options
from bags.dataset.schema import SchemaCache
from bags.dataset.shard_index import INDEX, Shard, dump_index, numbered
from bags.dataset.spec import Spec
from bags.errors import CorruptError, SpecError
from bags.progress import progress as show_progress
from bags.storage import Store, store_for

__all__ = ['index']

THREADS = 32


def index(
    directory: str | os.PathLike[str],
    *,
    progress: bool | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """Writes `shards.json` into a dataset of many folders, which tells all that opening it has to know.

    A dataset on a storage with ten thousand shards then opens with one request. The index is a file more in
    the folder, which Bags 0.x and Granular would take for a shard. It counts as long as it agrees with the
    shards; a `ShardedDatasetWriter` that adds some removes it.

    Args:
        directory: The folder of the shard folders: str, path or URL.
        progress: Show a bar: True, False, or None for on terminals.
        filesystem, storage_options: As in `bags.open`.

    Returns:
        The number of shards.

    Raises:
        FileNotFoundError: No such folder, or no shard in it.
        ValueError: A shard that is not closed.
        SpecError: Shards of different specs.
        CorruptError: A shard that cannot be read.
    """
    store, path = store_for(directory, filesystem, storage_options)
    options = reader_options(store, True, {'filesystem': filesystem, 'storage_options': storage_options})
    sizes: dict[str, dict[str, int]] = {}
    for name, stat in store.walk(path).items():
        folder, slash, file = name.partition('/')
        if slash and '/' not in file:
            sizes.setdefault(folder, {})[file] = stat.size
    names = list(numbered(sizes, path).values())
    if not names:
        raise FileNotFoundError(errno.ENOENT, 'no shard folder here: expected 000000, 000001, …', path)
    schemas = SchemaCache(None, True)
    with show_progress('indexing', len(names), 'shards', show=progress) as advance:

        def work(name: str) -> tuple[Spec, Shard]:
            found = _look(store, store.join(path, name), options, schemas, Shard(name, sizes[name]))
            advance(1, sum(sizes[name].values()))
            return found

        found = map_in_threads(work, names, 1 if not store.is_remote else THREADS)
    types = found[0][0]
    for other, shard in found:
        if other != types:
            texts = [{name: kind.text for name, kind in each.items()} for each in (types, other)]
            expected, where = f'that of the first shard, {texts[0]}', store.join(path, shard.name)
            raise SpecError(None, expected, texts[1], where)
    store.replace(store.join(path, INDEX), dump_index(types, [shard for _, shard in found]))
    return len(found)


def _look(
    store: Store, path: str, options: ReaderOptions, schemas: SchemaCache, shard: Shard
) -> tuple[Spec, Shard]:
    """Reads of a shard what the index tells of it."""
    files = dict(sorted(shard.sizes.items()))
    if any(name.startswith('limits.') for name in files) or not any(
        name == 'refs.bag' or name.endswith('.idx') for name in files
    ):
        raise ValueError(f'{path}: expected a closed shard, got one that is being written or was left so')
    folder = Folder(store, path, options)
    try:
        refs = folder.open_refs()
        types = folder.schema(schemas).types
    except FileNotFoundError as exc:
        raise CorruptError(path, None, f'shard without {os.path.basename(exc.filename or "")}') from exc
    counts = {} if refs is None else {'refs.bag': refs.count}
    for name in types:
        bag = folder.open_bag(name)
        counts[os.path.basename(bag.path)] = bag.count
    length = folder.shortest(types) if refs is None else refs.count
    return types, Shard(shard.name, files, length, counts)
