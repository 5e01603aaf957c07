"""Where bytes are: the only part of the library that touches the operating system or a network.

Two seams. A `File` is one file's bytes as they were when it was opened. A `Store` is a place that
holds files by path. What is above this package works with any store alike; another kind of storage
is one more module here and one more line in `store_for`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

from bags.storage.base import File, Hints, Lock, Output, Stat, Store
from bags.storage.options import CacheMode
from bags.storage.urls import SCHEMES, locate

__all__ = ['File', 'Hints', 'Lock', 'Output', 'Stat', 'Store', 'store_for', 'store_to_read']


def store_for(
    path: str | os.PathLike[str],
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Store, str]:
    """Returns the store of a path, and the path in that store's own form.

    Args:
        path: A local path, `file://…`, or bagz's `/posix:/abs`; `s3://…`, `gs://…`, `az://…`, `https://…`,
            the URL of anything fsspec knows, and the `/s3:/…` that pathlib makes of one. A name that has
            a colon but exists, or that has no known scheme before it, is a local path.
        filesystem: An fsspec file system that the path belongs to, whatever its form.
        storage_options: Options of the storage, as s3fs, gcsfs or fsspec call them, and `timeout`,
            `connect_timeout`, `retries`, `concurrency` (see `RetryPolicy`) and `client` ('obstore' or
            'fsspec'; unless given, obstore where it can be used).

    Raises:
        TypeError: No path.
        ValueError: A URL of a kind that is not supported.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f'expected a path or a URL, got {path!r:.80}')
    text = os.fspath(path)
    if filesystem is None:
        found = locate(text)
        if found.scheme == 'file' or os.path.exists(text):
            return _local(found.path if found.scheme == 'file' else text)
        if found.scheme not in SCHEMES:
            import fsspec

            if found.scheme not in fsspec.available_protocols():
                raise ValueError(f'{text}: expected a local path or URL, got one that is not supported')
    from bags.storage.connect import clients_for
    from bags.storage.object_store import RemoteStore

    if filesystem is not None:
        return RemoteStore(clients_for('', filesystem, storage_options or {})), text.rstrip('/')
    return RemoteStore(clients_for(found.scheme, None, storage_options or {})), found.path


class CacheOptions(Protocol):
    """What `store_to_read` needs to know; `bags.bag.options.ReaderOptions` has it."""

    filesystem: Any
    storage_options: Mapping[str, Any] | None
    cache: str | os.PathLike[str] | None
    cache_size: int | None
    cache_mode: CacheMode


def store_to_read(path: str | os.PathLike[str], options: CacheOptions) -> tuple[Store, str]:
    """As `store_for`, with the local cache that the options ask for in front of a remote store."""
    store, path = store_for(path, options.filesystem, options.storage_options)
    if options.cache is None or not store.is_remote:
        return store, path
    from bags.storage.cache.store import CachedStore

    return CachedStore(store, os.fspath(options.cache), options.cache_size, options.cache_mode), path


def _local(path: str) -> tuple[Store, str]:
    from bags.storage.local import LocalStore

    # As an absolute path: after a change of the working directory it is still the same file.
    return LocalStore(), os.path.abspath(path) if path else path
