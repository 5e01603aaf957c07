"""`bags.consolidate`: writes `shards.json`, with which a sharded dataset opens with one request."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from typing import Any

from bags.bag.options import LimitsStorage, ReaderOptions
from bags.concurrency import map_concurrently
from bags.dataset.folder import Folder
from bags.dataset.key_index import INDEX_SUFFIX
from bags.dataset.listing import files_below
from bags.dataset.metadata import STATISTICS
from bags.dataset.resume import MARK
from bags.dataset.shard_index import INDEX, Shard, dump_index, load_index, numbered
from bags.dataset.spec import Spec, union
from bags.errors import BagsError, CorruptError, SpecError
from bags.maintenance.findings import Damage
from bags.maintenance.location import Location
from bags.progress import progress as show_progress
from bags.storage import Store, store_for

__all__ = ['consolidate', 'describe_shards', 'index_damage']


def consolidate(
    directory: str | os.PathLike[str],
    *,
    progress: bool | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """Writes `shards.json` into a sharded dataset, so that it opens with one request.

    The file holds the spec, and the sizes and counts of every shard. It is ignored, or refused as stale,
    where it does not agree with the shards; a `ShardedDatasetWriter` that adds some removes it. Bags 0.x and
    Granular would take it for a shard.

    Args:
        directory: The folder of the shard folders: str, path or URL.
        progress: Show a bar: True, False, or None for on terminals.
        filesystem, storage_options: As in `bags.open`.

    Returns:
        The number of shards.

    Raises:
        FileNotFoundError: No such folder, or no shard in it.
        ValueError: A shard is unfinished.
        SpecError: Shards have different specs.
        CorruptError: A shard cannot be read.
    """
    store, path = store_for(directory, filesystem, storage_options)
    types, shards = describe_shards(store, path, progress)
    store.replace(store.join(path, INDEX), dump_index(types, shards))
    return len(shards)


def describe_shards(store: Store, path: str, progress: bool | None) -> tuple[Spec, list[Shard]]:
    """Returns the spec of a sharded dataset, and what `shards.json` holds of its shards.

    Raises:
        FileNotFoundError, ValueError, SpecError, CorruptError: As `consolidate`.
    """
    options = ReaderOptions()
    if store.is_remote:
        options.limits_storage = LimitsStorage.IN_MEMORY
    sizes: dict[str, dict[str, int]] = {}
    for file, stat in store.walk(path).items():
        folder, slash, name = file.partition('/')
        if slash and '/' not in name:
            sizes.setdefault(folder, {})[name] = stat.size
    names = list(numbered(sizes, path).values())
    if not names:
        raise FileNotFoundError(errno.ENOENT, 'no shard folder here: expected 000000, 000001, …', path)
    with show_progress('consolidating', len(names), 'shards', show=progress) as advance:

        def describe(name: str) -> tuple[Spec, Shard]:
            found = _describe(store, store.join(path, name), options, Shard(name, sizes[name]))
            advance(1, sum(sizes[name].values()))
            return found

        found = map_concurrently(describe, names, store.is_remote)
    types = found[0][0]
    for other, shard in found:
        both = union(types, other)
        if both is None:
            texts = [{name: kind.text for name, kind in each.items()} for each in (types, other)]
            expected = f'that of the first shard, {texts[0]}'
            raise SpecError(None, expected, texts[1], store.join(path, shard.name))
        types = both
    return types, [shard for _, shard in found]


def index_damage(location: Location) -> Iterator[Damage]:
    """Yields what is wrong with the shards.json of a dataset, if there is one."""
    store, path = location.store, location.store.join(location.path, INDEX)
    try:
        types, shards = load_index(store.read(path), path)
    except FileNotFoundError:
        return
    except (CorruptError, SpecError) as exc:
        yield Damage(path, None, None, str(exc).removeprefix(f'{path}: '))
        return
    sizes: dict[str, dict[str, int]] = {}
    for file, stat in files_below(store, location.parts, location.path).items():
        folder, _, name = file.rpartition('/')
        sizes.setdefault(folder, {})[name] = stat.size
    options = ReaderOptions(limits_storage=LimitsStorage.IN_MEMORY)
    try:
        found = [
            _describe(store, part, options, Shard(name, sizes.get(name, {})))
            for part in location.parts
            for name in [os.path.basename(part)]
        ]
    except (BagsError, ValueError, OSError):
        return  # Reported with the shard, or it is being written.
    listed = [shard._replace(sizes=_sizes(shard)) for shard in shards]
    if [(types, shard) for shard in listed] != found:
        yield Damage(path, None, None, 'differs from the shards: run bags consolidate')


def _sizes(shard: Shard) -> dict[str, int]:
    """Returns the sizes of its files, without statistics and key indexes: these may be written later."""
    return {
        name: size
        for name, size in sorted(shard.sizes.items())
        if name != STATISTICS and not name.endswith(INDEX_SUFFIX)
    }


def _describe(store: Store, path: str, options: ReaderOptions, shard: Shard) -> tuple[Spec, Shard]:
    """Returns the spec of a shard, and what `shards.json` holds of it."""
    files = _sizes(shard)
    is_closed = any(name == 'refs.bag' or name.endswith('.idx') for name in files)
    if not is_closed or any(name == MARK or name.startswith('limits.') for name in files):
        detail = 'expected a finished shard, got one that is being written, or whose writer ended early'
        raise ValueError(f'{path}: {detail} (bags.recover accepts it as it is)')
    folder = Folder(store, path, options)
    try:
        refs = folder.open_refs()
        types = folder.schema().types
    except FileNotFoundError as exc:
        raise CorruptError(path, None, f'shard without {os.path.basename(exc.filename or "")}') from exc
    counts = {} if refs is None else {'refs.bag': refs.count}
    for name in types:
        bag = folder.open_bag(name)
        counts[os.path.basename(bag.path)] = bag.count
    length = folder.shortest(types) if refs is None else refs.count
    return types, Shard(shard.name, files, length, counts)
