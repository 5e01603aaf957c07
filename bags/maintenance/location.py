"""Detects the type of a path: a dataset folder, a sharded dataset, or bags."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from bags.bag.sharding import expand
from bags.dataset.format.listing import root_names, shard_numbers
from bags.storage import Store, store_for
from bags.storage.urls import plain_path

NO_FOLDER = os.strerror(errno.ENOENT), os.strerror(errno.ENOTDIR), 'no such folder'
"""Error reasons that only mean that a path is not a folder."""
MAX_TRIED = 100
"""Maximum number of names in a folder that are tried as datasets."""


class Location(NamedTuple):
    """The type of a path, and the folders or bags it consists of."""

    type: Literal['folder', 'shards', 'bags']
    store: Store
    path: str
    """The path in its store; for bags, the file spec as given."""
    parts: list[str]
    """The folder itself, the shard folders in order, or the bags in order."""


def locate(
    path: str | os.PathLike[str], filesystem: Any = None, storage_options: Mapping[str, Any] | None = None
) -> Location:
    """Detects the type of a path.

    Args:
        path: A dataset, a bag, or several bags, such as `name@*.bagz`; also a URL.
        filesystem, storage_options: As in `bags.open`.

    Raises:
        FileNotFoundError: The path does not exist, or is a folder without a dataset.
        CorruptError: Two shard folders have the same number.
    """
    path = plain_path(path)
    store, folder = store_for(path, filesystem, storage_options)
    try:
        names = root_names(store, folder)
    except (FileNotFoundError, NotADirectoryError) as exc:
        return _locate_bags(os.fspath(path), store, filesystem, storage_options, exc)
    return _location_of(store, folder, names)


def a_file(location: Location) -> str:
    """Returns 'a bag' or 'a file', for errors about a path that is not a dataset."""
    return 'a bag' if location.path.endswith(('.bag', '.bagz')) else 'a file'


def locate_folder(store: Store, folder: str) -> Location:
    """Detects the type of a dataset in a store; raises as `locate`."""
    return _location_of(store, folder, root_names(store, folder))


def _location_of(store: Store, folder: str, names: set[str]) -> Location:
    if 'spec.json' in names:
        return Location('folder', store, folder, [folder])
    shards = [store.join(folder, name) for name in shard_numbers(store, folder).values()]
    if shards:
        return Location('shards', store, folder, shards)
    bags = sorted(name for name in names if name.endswith(('.bag', '.bagz')))
    if bags:
        got = f'bags by themselves, such as {bags[0]}'
    elif datasets := _datasets_in(store, folder, names):
        got = f'a folder of datasets, such as {datasets[0]}'
    else:
        got = f'a folder with {"other files (bags.convert imports them)" if names else "nothing"} in it'
    detail = f'expected a dataset (spec.json, or shard folders 000000, 000001, …), got {got}'
    raise FileNotFoundError(errno.ENOENT, detail, folder)


def _datasets_in(store: Store, folder: str, names: set[str]) -> list[str]:
    """Returns the datasets among the first names in a local folder, for an error message."""
    if store.is_remote:
        return []
    firsts = ('spec.json', '000000/spec.json')
    return [
        name
        for name in sorted(names)[:MAX_TRIED]
        if any(store.exists(store.join(folder, f'{name}/{first}')) for first in firsts)
    ]


def _locate_bags(
    spec: str,
    store: Store,
    filesystem: Any,
    storage_options: Mapping[str, Any] | None,
    reason: OSError,
) -> Location:
    """Returns the location of bags; `reason` says why the path is not a folder, e.g. no repository."""

    def in_store(path: str) -> str:
        return store_for(path, filesystem, storage_options)[1]

    def exists(path: str) -> bool:
        return store.exists(in_store(path))

    paths, text = expand([spec], exists, lambda folder: store.names(in_store(folder)))
    for path in paths:
        if not exists(path):
            why = reason.strerror or ''
            detail = f'no such dataset or bag{"" if why.startswith(NO_FOLDER) else f": {why}"}'
            raise FileNotFoundError(errno.ENOENT, detail, path)
    return Location('bags', store, text, list(map(in_store, paths)))
