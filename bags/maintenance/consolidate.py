"""`bags.consolidate`: writes `shards.json`, so that a sharded dataset opens with one request."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any

from bags.bag.checksums import checksums_name
from bags.bag.options import LimitsStorage, ReaderOptions
from bags.concurrency import map_concurrently
from bags.dataset.format.file_names import DERIVED, IDENTITY
from bags.dataset.format.folder import Folder
from bags.dataset.format.identity import read_id
from bags.dataset.format.journal import JOURNAL, describe_not_begun, has_journal, shards_not_begun
from bags.dataset.format.json_files import check_json, write_json
from bags.dataset.format.listing import RENEW_INDEX, files_below, root_names
from bags.dataset.format.metadata import METADATA
from bags.dataset.format.shard_index import INDEX, MAX_INDEX_BYTES, Shard, dump_index, load_index
from bags.dataset.format.spec import Schema, unite
from bags.errors import BagsError, CorruptError, SpecError
from bags.maintenance.location import Location, locate
from bags.progress.progress import progress as show_progress
from bags.storage import Store
from bags.validation import with_advice

EXPECTED_FINISHED = (
    'expected a finished dataset, got one that is being written, or whose writer ended early (bags.recover '
    'accepts it as it is)'
)


@with_advice
def consolidate(
    path: str | os.PathLike[str],
    *,
    progress: bool | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """Writes `shards.json` into a sharded dataset, so that it opens with one request.

    The file holds the spec, and the sizes and counts of every shard. If it does not match the shards, it is
    ignored or refused as stale. A `ShardedDatasetWriter` that adds shards removes it. Bags 0.x and Granular
    would mistake it for a shard.

    Args:
        path: The folder of the shard folders: str, path or URL.
        progress: Whether to show a progress bar; None: on a terminal.
        filesystem, storage_options: As in `bags.open`.

    Returns:
        The number of shards.

    Raises:
        FileNotFoundError: The folder does not exist, or contains no shards.
        ValueError: A shard is unfinished.
        SpecError: Shards have different specs.
        CorruptError: A shard cannot be read.
        OSError: On an object store, another process has replaced `shards.json` meanwhile.

    Examples:
        >>> bags.consolidate('episodes')
        2
    """
    location = locate(path, filesystem, storage_options)
    if location.type != 'shards':
        detail = 'no shard folder here: expected 000000, 000001, …'
        if location.type == 'folder':
            detail += '; a dataset of one folder opens with as few requests without shards.json'
        raise FileNotFoundError(errno.ENOENT, detail, location.path)
    if has_journal(location.store, location.path):
        not_begun = describe_not_begun(shards_not_begun(root_names(location.store, location.path)))
        raise ValueError(f'{location.path}: {EXPECTED_FINISHED}{not_begun and f"; {not_begun}"}')
    # Raises on a web server, before shards are read.
    location.store.make_folder(location.path)
    index = location.store.join(location.path, INDEX)
    version = location.store.current_version(index)
    schema, shards = describe_shards(location, progress)
    checksum = checksums_name('refs.bag') in shards[0].sizes
    if location.store.is_remote and has_journal(location.store, location.path):
        raise ValueError(f'{location.path}: {EXPECTED_FINISHED}')  # A writer has begun meanwhile.
    write_json(location.store, index, dump_index(schema, shards), checksum, version, MAX_INDEX_BYTES)
    return len(shards)


def describe_shards(location: Location, progress: bool | None = False) -> tuple[Schema, list[Shard]]:
    """Returns the schema of a sharded dataset, and the descriptions of its shards for `shards.json`.

    Raises:
        ValueError, SpecError, CorruptError: As `consolidate`.
    """
    store, options = location.store, ReaderOptions()
    if store.is_remote:
        options.limits_storage = LimitsStorage.IN_MEMORY
    sizes: dict[str, dict[str, int]] = {os.path.basename(path): {} for path in location.parts}
    for file, stat in files_below(store, location.parts, location.path).items():
        folder, _, name = file.rpartition('/')
        if folder in sizes:
            sizes[folder][name] = stat.size
    with show_progress('consolidating', len(sizes), 'shards', show=progress) as advance:

        def describe(name: str) -> tuple[Schema, Shard]:
            path = store.join(location.path, name)
            described = describe_folder(store, path, options, Shard(name, sizes[name]))
            advance(1, sum(sizes[name].values()))
            return described

        described = map_concurrently(describe, list(sizes), store.is_remote)
    named = ((store.join(location.path, shard.name), schema) for schema, shard in described)
    schema = unite(named, 'the shards before it')
    return Folder(store, location.parts[0], options).in_order(schema), [shard for _, shard in described]


def index_damage(location: Location) -> str | None:
    """Describes the damage of the shards.json of a dataset; None if it is valid or does not exist."""
    path = location.store.join(location.path, INDEX)
    try:
        data = location.store.read(path, MAX_INDEX_BYTES)
        check_json(location.store, path, data, RENEW_INDEX)
        schema, shards = load_index(data, path)
    except FileNotFoundError:
        return None
    except (CorruptError, SpecError) as exc:
        return str(exc).removeprefix(f'{path}: ')
    try:
        described = describe_shards(location)
    except (BagsError, ValueError, OSError):
        return None  # Reported with the shard, or it is being written.
    is_same = (described[0], list(map(_data_of, described[1]))) == (schema, list(map(_data_of, shards)))
    ids = zip(described[1], shards, strict=False)
    if is_same and all(now.id == then.id for now, then in ids if now.id is not None and then.id is not None):
        return None
    return 'differs from the shards: run bags consolidate'


def _sizes(shard: Shard) -> dict[str, int]:
    """Returns the sizes of the files, except for statistics and key indexes, which may be written later."""
    return {name: size for name, size in sorted(shard.sizes.items()) if not DERIVED.fullmatch(name)}


def _data_of(shard: Shard) -> Shard:
    """Returns the description of a shard, without files that may change while the data stay the same."""
    changed = {METADATA, IDENTITY, *map(checksums_name, (METADATA, IDENTITY, 'spec.json'))}
    sizes = {name: size for name, size in _sizes(shard).items() if name not in changed}
    return shard._replace(sizes=sizes, id=None)


def describe_folder(store: Store, path: str, options: ReaderOptions, shard: Shard) -> tuple[Schema, Shard]:
    """Returns the schema of a shard, and its description for `shards.json`."""
    files = _sizes(shard)
    is_closed = any(name == 'refs.bag' or name.endswith('.idx') for name in files)
    if not is_closed or any(name == JOURNAL or name.startswith('limits.') for name in files):
        raise ValueError(f'{path}: {EXPECTED_FINISHED}')
    folder = Folder(store, path, options)
    try:
        refs = folder.open_refs()
        schema = folder.layout().schema
    except FileNotFoundError as exc:
        raise CorruptError(path, None, f'shard without {os.path.basename(exc.filename or "")}') from exc
    counts = {} if refs is None else {'refs.bag': refs.count}
    for name in schema:
        bag = folder.open_bag(name)
        counts[os.path.basename(bag.path)] = bag.count
    length = folder.shortest(schema) if refs is None else refs.count
    id = read_id(store, path) if IDENTITY in files else None
    return schema, Shard(shard.name, files, length, counts, id=id)
