"""Lists the shards of a dataset and the files of a folder; on web servers, requests each possible name."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

from bags.bag.checksums import checksums_name
from bags.bag.limits import ENTRY
from bags.concurrency import map_concurrently
from bags.dataset.format.file_names import BAG_SUFFIXES, DERIVED, IDENTITY, is_temporary
from bags.dataset.format.folder_layout import parse_layout
from bags.dataset.format.identity import read_id
from bags.dataset.format.journal import JOURNAL
from bags.dataset.format.json_files import check_json
from bags.dataset.format.metadata import METADATA
from bags.dataset.format.refs import RefsFormat
from bags.dataset.format.shard_index import INDEX, MAX_INDEX_BYTES, Shard, load_index, numbered
from bags.dataset.format.spec import Schema
from bags.errors import BagsError, CorruptError
from bags.links.files import LINKED
from bags.storage import Stat, Store
from bags.storage.base import MAX_SMALL_FILE_BYTES

FIRST_SHARDS = 8
"""Number of shards in the first round of requests; it doubles every round until a shard is missing."""
MAX_SHARDS = 1 << 16
RENEW_INDEX = '`bags consolidate` writes it again'
CONSOLIDATE = 'a web server does not list its files, so run bags.consolidate where they are'


class ShardList(NamedTuple):
    """The shards of a dataset, in order."""

    shards: list[Shard]
    """The shards. In a local folder without shards.json, only their names are known."""
    schema: Schema | None = None
    """The schema in shards.json; None without one."""
    after: str | None = None
    """The next shard's name, which must not exist. Only set on an object store with shards.json."""
    beside: Shard = Shard('')
    """The listed files beside the shards. If they include spec.json, the dataset is a single folder."""
    is_unfinished: bool = False
    """Whether incomplete shards at the end were left out."""


def shard_numbers(store: Store, directory: str) -> dict[int, str]:
    """Returns the names of the shard folders by number, in order.

    Raises:
        CorruptError: Two shards have the same number.
    """
    return numbered(root_names(store, directory), directory)


def root_names(store: Store, directory: str) -> set[str]:
    """Returns the names of files and shards of a dataset. Stores without a listing omit files beside shards.

    Raises:
        FileNotFoundError, NotADirectoryError: The folder does not exist, or is a file.
    """
    if store.can_list:
        return set(store.names(directory))
    listed = list_remote_shards(store, directory)
    return {*listed.beside.sizes, *(shard.name for shard in listed.shards)}


def dataset_of_shard(store: Store, directory: str) -> str | None:
    """Returns the dataset that a folder is, or by its name would become, a shard of; else None."""
    parent, _, name = directory.rstrip('/').rpartition('/')
    if not numbered({name}, parent):
        return None
    try:
        names = store.names(parent)
    except (FileNotFoundError, NotADirectoryError):
        return None
    first = next(iter(numbered(names, parent).values()), name)
    return parent if store.exists(store.join(store.join(parent, first), 'spec.json')) else None


def list_local_shards(store: Store, directory: str) -> ShardList:
    """Returns the shards of a local dataset, except incomplete shards at the end, which are being written.

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
        if checksums_name(INDEX) in found:
            path = store.join(directory, INDEX)
            check_json(store, path, store.read(path, MAX_INDEX_BYTES), RENEW_INDEX)
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
    """Returns the shards in the shards.json of a local dataset; None if it is damaged or out of date."""
    path = store.join(directory, INDEX)
    try:
        schema, shards = load_index(store.read(path, MAX_INDEX_BYTES), path)
        if [shard.name for shard in shards] != names:
            return None
        for shard in shards:
            file = 'refs.bag' if 'refs.bag' in shard.sizes else min(shard.sizes, default='refs.bag')
            path = store.join(store.join(directory, shard.name), file)
            if store.stat(path).size != shard.sizes.get(file):
                return None
    except (BagsError, OSError):
        return None
    return ShardList(shards, schema)


def list_remote_shards(store: Store, directory: str, checksum: bool = False) -> ShardList:
    """As `list_local_shards`, on an object store: from shards.json, or with one listing of all files.

    On stores without a listing, it requests spec.json, and if that is missing 000000, 000001, …

    With `checksum`, shards.json is compared with its checksum, if any, which takes another request.

    Raises:
        FileNotFoundError: The folder does not exist.
        CorruptError: Two shards have the same number, or shards.json is damaged.
    """
    path = store.join(directory, INDEX)
    spec: bytes | None = None
    if store.can_list:
        index = _read_if_exists(store, path, MAX_INDEX_BYTES)
    else:
        sizes = {path: MAX_INDEX_BYTES, store.join(directory, 'spec.json'): MAX_SMALL_FILE_BYTES}
        index, spec = map_concurrently(lambda path: _read_if_exists(store, path, sizes[path]), [*sizes], True)
    if index is not None:
        if checksum:
            check_json(store, path, index, RENEW_INDEX)
        schema, shards = load_index(index, path)
        last = shards[-1].name
        return ShardList(shards, schema, str(int(last) + 1).rjust(len(last), '0'))
    folders: dict[str, dict[str, Stat]] = {}
    beside: dict[str, Stat] = {}
    if store.can_list:
        for name, stat in store.walk(directory).items():
            folder, slash, file = name.partition('/')
            if not slash:
                beside[name] = stat
            elif '/' not in file:
                folders.setdefault(folder, {})[file] = stat
    elif spec is not None:
        beside = _probe_folder(store, directory, spec)
    else:
        folders = _probe_shards(store, directory)
        if not folders:
            raise _nothing_at(store, directory)
    names = list(numbered(folders, directory).values())
    # Refs are uploaded last: shards at the end without refs are incomplete.
    count = len(names)
    while names and 'refs.bag' not in folders[names[-1]] and is_being_made(folders[names[-1]], True):
        names.pop()
    type = store.version_type
    shards = list(map(_listed_shard, names, map(folders.__getitem__, names), repeat(type)))
    listed = _listed_shard('', beside, type)
    if not store.can_list:
        # The ids identify the shards, as only versions of their specs and refs are known, if any.
        ids = map_concurrently(lambda name: read_id(store, store.join(directory, name)), names, True)
        shards = [shard._replace(id=id) for shard, id in zip(shards, ids, strict=True)]
        if IDENTITY in beside and not listed.versions:  # The server sends no versions.
            listed = listed._replace(id=read_id(store, directory))
    return ShardList(shards, beside=listed, is_unfinished=len(shards) < count)


def _listed_shard(name: str, files: Mapping[str, Stat], version_type: str) -> Shard:
    """Returns the description of a folder whose files were listed."""
    sizes, versions = {}, {}
    for file, stat in files.items():
        sizes[file] = stat.size
        # Statistics and key indexes may be written while the dataset is read. They say what they belong to.
        if stat.version and not DERIVED.fullmatch(file):
            versions[file] = stat
    return Shard(name, sizes, versions=versions, version_type=version_type)


def _nothing_at(store: Store, directory: str) -> OSError:
    """Returns the error for a folder on a web server without any file of a dataset."""
    detail = f'no dataset here: expected spec.json, {INDEX} or 000000/spec.json; {CONSOLIDATE}'
    if directory.endswith(('.bag', '.bagz')):
        detail += ' (bags.bag.Reader opens a single bag)'
    try:
        store.stat(store.join(directory, 'spec.json'))
    except PermissionError as exc:
        return PermissionError(exc.errno, exc.strerror, exc.filename)
    except FileNotFoundError:
        pass
    return FileNotFoundError(errno.ENOENT, detail, directory)


def _read_if_exists(store: Store, path: str, max_size: int) -> bytes | None:
    try:
        return store.read(path, max_size)
    except FileNotFoundError:
        return None


def length_by_size(shard: Shard, refs_format: RefsFormat) -> int | None:
    """Computes the number of datapoints of a shard from its file sizes, if all rows of refs have the same
    size.

    Returns None if the sizes do not fit.
    """
    size = shard.sizes.get('refs.bag')
    if size is None:  # Granular has one index for each field.
        indexes = [shard.sizes.get(f'{name}.idx') for name in refs_format.schema]
        sizes = [size for size in indexes if size is not None]
        return min(sizes) // ENTRY if sizes and len(sizes) == len(indexes) else None
    if not size:
        for name, other in shard.sizes.items():
            if other and name.endswith(BAG_SUFFIXES):
                raise CorruptError(f'{shard.name}/refs.bag', None, f'is empty, but {name} is not')
    count, rest = divmod(size, refs_format.stride + ENTRY)
    return None if rest else count


# The files of a folder.


def is_being_made(names: Iterable[str], is_remote: bool = False) -> bool:
    """Returns whether a folder has only files that writers create before the refs.

    The refs are the first bag created in a local folder, and the last one on an object store.
    """
    if is_remote:
        return not any(name == 'refs.bag' or name.endswith('.idx') for name in names)
    known = {'spec.json', METADATA, JOURNAL, 'limits.refs.bag'}
    known |= {checksums_name(METADATA), checksums_name('refs.bag')}
    return {name for name in names if not is_temporary(name)} <= known


def not_a_folder(path: str) -> NotADirectoryError:
    """Returns the error for a file in place of a dataset folder."""
    got = 'a single bag (bags.bag.Reader opens it)' if path.endswith(('.bag', '.bagz')) else 'a file'
    return NotADirectoryError(errno.ENOTDIR, f'expected a dataset, which is a folder, got {got}', path)


def names_in(store: Store, folder: str, *ends: str) -> set[str]:
    """Returns the names of the files in a dataset folder; `ends` as in `_probe_folder`.

    Raises:
        FileNotFoundError, NotADirectoryError: The folder does not exist, or is a file.
    """
    return set(store.names(folder) if store.can_list else _probe_folder(store, folder, None, *ends))


def list_folder(store: Store, folder: str) -> Shard:
    """Returns the description of a dataset folder on an object store or web server, with all its files.

    Raises:
        FileNotFoundError: The folder does not exist.
    """
    return _listed_shard('', files_below(store, [folder], folder), store.version_type)


def files_below(store: Store, folders: Sequence[str], root: str) -> dict[str, Stat]:
    """Returns size and version of the files of a dataset, by their paths below its root.

    `folders` are the shards in the root, or the root itself.
    """
    if store.can_list:
        return store.walk(root)
    every = map_concurrently(lambda folder: _probe_folder(store, folder), folders, True)
    return {
        store.join(folder, name)[len(root) :].lstrip('/'): stat
        for folder, found in zip(folders, every, strict=True)
        for name, stat in found.items()
    }


def _probe_folder(store: Store, folder: str, spec: bytes | None = None, *ends: str) -> dict[str, Stat]:
    """Requests the files that a dataset folder can have; returns those that exist.

    Args:
        store, folder: The folder.
        spec: The content of its spec.json, if already read.
        *ends: Suffixes of more files that a field can have, such as 'index'.

    Raises:
        FileNotFoundError: spec.json is missing.
    """
    if spec is None:
        spec = store.read(store.join(folder, 'spec.json'))
    fields: list[str] = []
    with contextlib.suppress(BagsError):  # The error is raised where the spec is used.
        fields = list(parse_layout(spec).schema)
    names = [METADATA, 'refs.bag', 'limits.refs.bag', JOURNAL, checksums_name('refs.bag')]
    names += [f'{name}.{end}' for name in fields for end in ('bag', 'zdict', *ends)]
    found = {'spec.json': Stat(len(spec)), **_stat_all(store, folder, names)}
    more: list[str] = []
    for name in fields:
        if f'{name}.bag' not in found:
            more += [f'{name}.bagz', f'{name}{LINKED[0]}']
        if 'refs.bag' not in found:
            more.append(f'{name}.idx')
        if checksums_name('refs.bag') in found:
            more += map(checksums_name, (f'{name}.bag', f'{name}.bagz'))
    are_bags_known = not more
    if checksums_name('refs.bag') in found and METADATA in found:
        more.append(checksums_name(METADATA))
    # The id is requested after the bags, to tell whether they are of one dataset: see `Folder.confirm`.
    if are_bags_known:
        more.append(IDENTITY)
    found |= _stat_all(store, folder, more)
    linked = [name for name in fields if f'{name}{LINKED[0]}' in found]
    more = [name + suffix for name in linked for suffix in LINKED[1:]]
    if not are_bags_known:
        more.append(IDENTITY)
    if checksums_name('refs.bag') in found:
        more += [checksums_name(name + LINKED[0]) for name in linked]
    return found | _stat_all(store, folder, more)


def _probe_shards(store: Store, directory: str) -> dict[str, dict[str, Stat]]:
    """Requests shards 000000, 000001, … until one is missing; returns the spec and refs of each.

    For a shard without refs, which is incomplete or from Granular, returns all files.

    Raises:
        CorruptError: A shard in between is missing, or there are more than `MAX_SHARDS` shards.
    """
    shards: dict[str, dict[str, Stat]] = {}
    count, is_last = FIRST_SHARDS, False
    while not is_last:
        names = [f'{number:06}' for number in range(len(shards), len(shards) + count)]
        files = [f'{name}/{file}' for name in names for file in ('spec.json', 'refs.bag')]
        found = _stat_all(store, directory, files)
        for name in names:
            stats = {
                file: found[f'{name}/{file}']
                for file in ('spec.json', 'refs.bag')
                if f'{name}/{file}' in found
            }
            if 'spec.json' not in stats:
                is_last = True
            elif is_last:
                raise CorruptError(
                    directory, None, f'has shard {name}, but not the one before: {CONSOLIDATE}'
                )
            else:
                shards[name] = stats
        count *= 2
        if len(shards) > MAX_SHARDS:
            raise CorruptError(directory, None, f'expected at most {MAX_SHARDS} shards: {CONSOLIDATE}')
    bare = [name for name, stats in shards.items() if 'refs.bag' not in stats]
    every = map_concurrently(lambda name: _probe_folder(store, store.join(directory, name)), bare, True)
    return shards | dict(zip(bare, every, strict=True))


def _stat_all(store: Store, folder: str, names: list[str]) -> dict[str, Stat]:
    """Returns size and version of the files that exist, with concurrent requests."""

    def stat(name: str) -> Stat | None:
        try:
            return store.stat(store.join(folder, name))
        except FileNotFoundError:
            return None

    stats = map_concurrently(stat, names, True)
    return {name: stat for name, stat in zip(names, stats, strict=True) if stat is not None}
