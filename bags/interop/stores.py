"""Finds, lists and opens the files of a source: local, in a bucket, or on a web server.

Files of a web server that ignores Range, or sends no sizes, are read whole, with aiohttp.
"""

from __future__ import annotations

import fnmatch
import os
import posixpath
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bags.concurrency import map_concurrently
from bags.storage import File, Hints, Store, store_for
from bags.storage.base import Stat
from bags.storage.errors import UnsupportedError
from bags.storage.local import is_file
from bags.storage.object_store import RemoteFile, RemoteStore
from bags.storage.retry import RetryPolicy
from bags.storage.urls import locate, options_of

if TYPE_CHECKING:
    import fsspec

MAGIC = '*?['
"""Characters that make a path a pattern."""


def find_store(path: str, storage_options: Mapping[str, Any] | None) -> tuple[Store, str]:
    """Returns the store of a path or URL, and the path in it. The options are as in `bags.open`."""
    is_local = locate(path)[0] == 'file'
    return store_for(os.path.expanduser(path), None, None if is_local else storage_options)


def hold_stores(paths: Iterable[str], storage_options: Mapping[str, Any] | None) -> list[Store]:
    """Returns the stores of URLs, one for each bucket.

    While they are referenced, `find_store` uses their connections: a new client takes 40 ms and a handshake.
    """
    buckets = {'/'.join(path.split('/', 3)[:3]): path for path in paths if '://' in path}
    return [find_store(path, storage_options)[0] for path in buckets.values()]


def is_one_file(path: str, storage_options: Mapping[str, Any] | None) -> bool:
    """Returns whether a path leads to a file, not a folder."""
    store, path = find_store(path, storage_options)
    return is_file(path) if not store.is_remote else size_in(store, path, storage_options) is not None


def is_present(path: str, storage_options: Mapping[str, Any] | None) -> bool:
    """Returns whether a file or a folder exists."""
    store, path = find_store(path, storage_options)
    return size_in(store, path, storage_options) is not None if store.is_web else _is_in(store, path)


def size_in(store: Store, path: str, storage_options: Mapping[str, Any] | None) -> int | None:
    """Returns the size of a file in bytes, or None if it does not exist."""
    try:
        return store.stat(path).size
    except FileNotFoundError:
        return None
    except UnsupportedError:
        if not store.is_web:
            raise
        return int(_web_filesystem(path, storage_options).size(path) or 0)


def open_in(store: Store, path: str, storage_options: Mapping[str, Any] | None) -> File:
    """Opens a file. A file on a web server that ignores Range is read into memory."""
    try:
        return store.open(path, Hints(mapped=False))
    except UnsupportedError:
        if not isinstance(store, RemoteStore) or not store.is_web:
            raise
        data = bytes(_web_filesystem(path, storage_options).cat_file(path))
        return RemoteFile(store.clients, path, Stat(len(data)), data)


def read_in(store: Store, path: str, storage_options: Mapping[str, Any] | None) -> bytes:
    """Returns all bytes of a file."""
    if not store.is_web:
        return store.read(path, sys.maxsize)
    file = open_in(store, path, storage_options)
    return bytes(file.read(0, file.size))


def without_tail(file: File) -> File:
    """Returns an open file without the bytes read on open, as a source may have thousands of files."""
    return RemoteFile(file.clients, file.path, file.head, b'') if isinstance(file, RemoteFile) else file


def _is_in(store: Store, path: str) -> bool:
    if store.exists(path):
        return True
    return store.is_remote and store.can_list and bool(_names(store, path))


def _names(store: Store, folder: str) -> list[str]:
    """Returns the names in a folder; empty if it does not exist or is a file."""
    try:
        return store.names(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def list_paths(paths: Iterable[str], storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """Expands globs in paths and URLs; returns sorted paths.

    In a glob, `**` matches any number of folders.
    """
    files: list[str] = []
    for pattern in paths:
        store, path = find_store(pattern, storage_options)
        is_glob = any(letter in path for letter in MAGIC) and store.can_list and not _is_in(store, path)
        files += _find_matches(store, path) if is_glob else [path]
    return files


def _find_matches(store: Store, pattern: str) -> list[str]:
    parts = pattern.split('/')
    first = next(number for number, part in enumerate(parts) if any(letter in part for letter in MAGIC))
    if '://' in pattern and first < 3:
        raise ValueError(f'expected the name of a bucket or host, got {pattern!r:.200}')
    return sorted(find_in_folder(store, '/'.join(parts[:first]) or '/', parts[first:]))


def find_in_folder(store: Store, folder: str, parts: list[str]) -> Iterator[str]:
    """Yields the paths below a folder that match a glob, given as the parts between its slashes."""
    part, rest = parts[0], parts[1:]
    if '**' in parts:
        for name in walk(store, folder)[0]:
            if _matches(name.split('/'), parts):
                yield posixpath.join(folder, name)
        return
    is_glob = any(letter in part for letter in MAGIC)
    for name in fnmatch.filter(_names(store, folder), part) if is_glob else [part]:
        path = posixpath.join(folder, name)
        if rest:
            yield from find_in_folder(store, path, rest)
        elif is_glob or _is_in(store, path):
            yield path


def _matches(names: list[str], parts: list[str]) -> bool:
    if not parts or not names:
        return not names and parts in ([], ['**'])
    if parts[0] == '**':
        return _matches(names, parts[1:]) or _matches(names[1:], parts)
    return fnmatch.fnmatchcase(names[0], parts[0]) and _matches(names[1:], parts[1:])


def list_files(root: str, storage_options: Mapping[str, Any] | None = None) -> tuple[list[str], list[str]]:
    """Returns the paths of the files below a folder, and of empty and linked folders."""
    store, path = find_store(root, storage_options)
    if not store.is_remote:
        return _list_local(path)
    if not store.can_list:
        return _list_page(root, storage_options), []
    stats, folders = walk(store, path)
    parents = {name[:end] for name in stats for end, letter in enumerate(name) if letter == '/'}
    empty = folders - parents
    empty -= {name[:end] for name in empty for end, letter in enumerate(name) if letter == '/'}
    return sorted(stats), sorted(empty)


def walk(store: Store, folder: str) -> tuple[dict[str, Stat], set[str]]:
    """Returns the stats of all files below a folder by their paths in it, and folders that have an object.

    Consoles of object stores create a folder as an empty object whose key ends with a slash. obstore lists it
    without the slash. Both results are empty if the folder does not exist or is a file.
    """
    if not store.is_remote:
        return {name: _local_stat(store, f'{folder}/{name}') for name in _list_local(folder)[0]}, set()
    try:
        stats = store.walk(folder)
    except FileNotFoundError:
        return {}, set()
    folders = set()
    if folder.startswith(('s3://', 'gs://')):
        empty = [name for name, stat in stats.items() if not stat.size]
        exists = map_concurrently(lambda name: store.exists(posixpath.join(folder, name)), empty)
        folders = {name for name, is_object in zip(empty, exists, strict=True) if not is_object}
    return {name: stat for name, stat in stats.items() if name not in folders}, folders


def _local_stat(store: Store, path: str) -> Stat:
    try:
        return store.stat(path)
    except OSError:  # A broken link; reading it says so.
        return Stat(0)


def _list_page(url: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    """Returns the paths of the files below a folder of a web server, by the links of its pages."""
    fs = _web_filesystem(url, storage_options)
    return sorted(name[len(url.rstrip('/')) + 1 :] for name in fs.find(url) if name.rstrip('/') != url)


def _web_filesystem(url: str, storage_options: Mapping[str, Any] | None) -> fsspec.AbstractFileSystem:
    from bags.storage.filesystem import make_filesystem

    policy, options = RetryPolicy.from_options(options_of(storage_options or {}, url))
    options.pop('client', None)
    return make_filesystem(url.partition('://')[0], options, policy)


def _list_local(root: str) -> tuple[list[str], list[str]]:
    """Returns the result of `list_files` for a local folder, without a system call for each file."""
    files, folders, pending = [], [], ['']
    while pending:
        parent = pending.pop()
        is_empty, name = True, parent[:-1]
        try:
            with os.scandir(f'{root}/{parent}') as entries:
                for entry in entries:
                    is_empty = False
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(f'{parent}{entry.name}/')
                    elif entry.is_file(follow_symlinks=False) or (
                        entry.is_symlink() and not os.path.isdir(entry.path)
                    ):
                        files.append(parent + entry.name)
                    else:
                        folders.append(parent + entry.name)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except PermissionError:
            if not parent:
                raise
            name += ' (permission denied)'
        if is_empty and parent:
            folders.append(name)
    return sorted(files), sorted(folders)
