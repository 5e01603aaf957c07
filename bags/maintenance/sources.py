"""What is at a path: a dataset folder, a dataset of many folders, or bags."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from bags.bag.sharding import expand
from bags.dataset.folder import reader_options
from bags.dataset.shard_list import shard_numbers
from bags.storage import Store, store_for

__all__ = ['Source', 'find_source']


class Source(NamedTuple):
    """What was found, and where."""

    kind: Literal['folder', 'shards', 'bags']
    store: Store
    path: str
    """In the form of the store; for bags the file spec as it was given."""
    parts: list[str]
    """The folder itself, the shard folders in order, or the bags in order."""

    def options(self, keywords: Mapping[str, Any] | None = None) -> Any:
        """Returns how its bags are read, as `ReaderOptions`."""
        return reader_options(self.store, False, keywords or {})


def find_source(
    path: str | os.PathLike[str], filesystem: Any = None, storage_options: Mapping[str, Any] | None = None
) -> Source:
    """Finds out what is at a path.

    Args:
        path: A folder of a dataset, a bag, or a spec of several, such as `name@*.bagz`; also as a URL.
        filesystem, storage_options: As in `bags.open`.

    Raises:
        FileNotFoundError: Nothing, or a folder with neither a dataset nor shards of one.
        CorruptError: Two shard folders of one number.
    """
    store, folder = store_for(path, filesystem, storage_options)
    try:
        names = store.names(folder)
    except (FileNotFoundError, NotADirectoryError):
        return _find_bags(os.fspath(path), store, filesystem, storage_options)
    if 'spec.json' in names:
        return Source('folder', store, folder, [folder])
    shards = [store.join(folder, name) for name in shard_numbers(store, folder).values()]
    if shards:
        return Source('shards', store, folder, shards)
    found = sorted(name for name in names if name.endswith(('.bag', '.bagz')))
    detail = 'expected a dataset (spec.json, or shard folders 000000, 000001, …)'
    if found:
        raise FileNotFoundError(errno.ENOENT, f'{detail}, got bags by themselves, such as {found[0]}', folder)
    what = 'other files' if names else 'nothing'
    raise FileNotFoundError(errno.ENOENT, f'{detail}, got a folder with {what} in it', folder)


def _find_bags(spec: str, store: Store, filesystem: Any, storage_options: Mapping[str, Any] | None) -> Source:
    def local(path: str) -> str:
        return store_for(path, filesystem, storage_options)[1]

    def exists(path: str) -> bool:
        return store.exists(local(path))

    paths, text = expand([spec], exists, lambda folder: store.names(local(folder)))
    for path in paths:
        if not exists(path):
            raise FileNotFoundError(errno.ENOENT, 'no such dataset or bag', path)
    return Source('bags', store, text, list(map(local, paths)))
