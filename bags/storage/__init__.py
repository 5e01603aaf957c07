"""Local files and object stores: the only part of the library that accesses files or a network.

There are two interfaces: a `File` provides the bytes of one file as of the time when it was opened, and a
`Store` holds files by path. Code above this package works with any store. To add a type of store, add a
module here and a line in `store_for`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from bags.storage.base import Durability, File, Hints, Lock, Output, Stat, Store
from bags.storage.local import LocalStore
from bags.storage.urls import SCHEMES, locate, options_of, plain_path

__all__ = ['Durability', 'File', 'Hints', 'Lock', 'Output', 'Stat', 'Store', 'plain_path', 'store_for']


def store_for(
    path: str | os.PathLike[str],
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_size: int | None = None,
    cache_check: str = 'open',
    durability: Durability = Durability.CLOSE,
) -> tuple[Store, str]:
    """Returns the store of a path, and the path in that store's own form.

    Args:
        path: A local path, `file://…`, or bagz's `/posix:/abs`; `s3://…`, `gs://…`, `az://…`, `https://…`,
            any other URL that fsspec supports, or the form `/s3:/…` that pathlib makes of a URL. A path with
            a colon is local if it exists or does not begin with a known scheme.
        filesystem: The fsspec file system of the path. The path may then have any form.
        storage_options: Options with the names of s3fs, gcsfs or fsspec, and `timeout`, `connect_timeout`,
            `retries`, `concurrency` (see `RetryPolicy`) and `client` ('obstore' or 'fsspec'; default: obstore
            if it can be used). Or a mapping of prefixes, such as `s3://bucket/`, to such options.
        cache: A local folder, of at most `cache_size` bytes, in which files read from an object store are
            cached.
        cache_check: 'open' to ask the object store whether cached files have changed; else 'never'.
        durability: When written local files are synced to disk.

    Raises:
        TypeError: The path is not a string or path object, or `filesystem` is not an fsspec file system.
        ValueError: The URL is not supported, or an option of object stores is passed for a local path.
    """
    path = plain_path(path)
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f'expected a path or a URL, got {path!r:.80}')
    text = os.fspath(path)
    scheme, url = '', text.rstrip('/') or text
    storage_options = options_of(storage_options, text) if storage_options else {}
    if filesystem is None:
        scheme, url = locate(text) if ':' in text else ('file', text)
        if url.startswith('hf://buckets/'):
            storage_options = {'client': 'fsspec', **storage_options}
        if scheme == 'file' or os.path.exists(text):
            # Absolute, so that a change of the working directory does not affect it.
            local = url if scheme == 'file' else text
            for name, value in (('cache', cache), ('storage_options', storage_options)):
                if value:
                    detail = f'{name}: has no effect on a local path, got {text!r:.200}'
                    missing = name == 'cache' and not os.path.exists(local)
                    raise ValueError(f'{detail}, which does not exist' if missing else detail)
            return LocalStore(durability), os.path.abspath(local) if local else local
        if scheme not in SCHEMES:
            import fsspec

            if scheme not in fsspec.available_protocols():
                raise ValueError(f'{text}: expected a local path or URL, got one that is not supported')
    elif not hasattr(filesystem, '_strip_protocol'):
        raise TypeError(f'filesystem: expected a file system of fsspec, got {filesystem!r:.80}')
    from bags.storage.connect import clients_for
    from bags.storage.object_store import RemoteStore

    store = RemoteStore(clients_for(scheme, filesystem, storage_options))
    if cache is None:
        return store, url
    from bags.storage.cache.store import CachedStore
    from bags.storage.obstore_options import origin_of

    origin = origin_of(scheme, storage_options or {}, filesystem)
    return CachedStore(store, os.fspath(cache), cache_size, cache_check, origin), url
