"""Where bytes are: the only part of the library that touches the operating system or a network.

Two seams. A `File` is one file's bytes as they were when it was opened. A `Store` is a place that
holds files by path. What is above this package works with any store alike; another kind of storage
is one more module here and one more line in `store_for`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from bags.bag.files.protocols import File, Hints, Lock, Output, Stat, Store
from bags.bag.options import ReaderOptions

__all__ = ['File', 'Hints', 'Lock', 'Output', 'Stat', 'Store', 'store_for', 'store_to_read']

URL = re.compile(r'/?(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>/*)(?P<rest>.*)', re.DOTALL)


def store_for(
    path: str | os.PathLike[str],
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Store, str]:
    """Returns the store of a path, and the path in that store's own form.

    Args:
        path: A local path, `file://…`, or bagz's `/posix:/abs`. A name that has a colon but exists,
            or that has no known scheme before it, is a local path.
        filesystem: Not supported yet for anything but None.
        storage_options: Options of a storage other than the local one.

    Raises:
        ValueError: A URL of a kind that is not supported.
    """
    text = os.fspath(path)
    match = URL.fullmatch(text)
    if filesystem is None and (match is None or len(match['scheme']) < 2 or os.path.exists(text)):
        return _local(text)
    if filesystem is None and match is not None:
        if match['scheme'].lower() in ('posix', 'file'):
            return _local('/' * bool(match['slashes']) + match['rest'])
        if not match['slashes']:
            return _local(text)
    given = f' with {", ".join(storage_options)}' if storage_options else ''
    raise ValueError(f'{text}{given}: expected a local path, got a storage that is not supported')


def store_to_read(path: str | os.PathLike[str], options: ReaderOptions) -> tuple[Store, str]:
    """As `store_for`, and before a storage that is not local stands the cache that the options ask for."""
    store, path = store_for(path, options.filesystem, options.storage_options)
    if options.cache is None or store.appendable:
        return store, path
    from bags.bag.files.cached import CachedStore

    return CachedStore(store, os.fspath(options.cache), options.cache_size, options.cache_mode), path


def _local(path: str) -> tuple[Store, str]:
    from bags.bag.files.local import LocalStore

    # As an absolute path: after a change of the working directory it is still the same file.
    return LocalStore(), os.path.abspath(path) if path else path
