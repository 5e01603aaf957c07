"""Reads of another store through a local cache folder."""

from __future__ import annotations

import errno
import hashlib
import os
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from bags.concurrency import map_in_threads
from bags.errors import CorruptError
from bags.storage.base import CacheMode, File, Hints, Stat, Store
from bags.storage.cache.block_file import BlockFile, CacheWriteError, NotACopyError, SparseFile, cache_writes
from bags.storage.cache.eviction import CacheSpace, mark_in_use, wait_for_lock
from bags.storage.local import LocalStore
from bags.storage.pread_file import PreadFile

__all__ = ['CHUNK_SIZE', 'CachedStore']

CHUNK_SIZE = 1 << 23  # Bytes of a request; a chunk that was cut short is downloaded again.
MAX_CONNECTIONS = 8
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CachedStore:
    """Reads files of another store through copies in a local folder.

    A copy is named by a hash of the file's path, size and version, so that a changed file gets another copy.
    Any number of processes may share a folder, and any of them may be killed.

    Args:
        inner: The store of the files.
        folder: Where their copies are; created if it does not exist.
        limit: Bytes of the folder, at most. When it is full, the least recently used files are removed;
            files in use stay, and if they alone fill it, others are read from the store.
        mode: Whether whole files are kept or blocks.
    """

    is_remote = True

    def __init__(self, inner: Store, folder: str, limit: int | None, mode: CacheMode) -> None:
        self.inner = inner
        self.names, self.join = inner.names, inner.join
        self.folder = folder
        self.limit = limit
        self.mode = mode
        self.local = LocalStore()
        self.local.make_folder(folder)
        self._space = CacheSpace(folder, limit)
        self._has_warned = False
        self._stats: dict[str, Stat] = {}
        """By path, when first listed or requested: files are read as they were then."""

    # Reading.

    def open(self, path: str, hints: Hints) -> File:
        stat = self.stat(path)
        if not stat.size:
            return self.inner.open(path, hints)
        copy = self._copy_path(path, stat)
        file = self._open_copy(path, copy, stat, hints)
        if file is not None:
            return file
        if self.mode is CacheMode.BLOCKS:
            return self._open_blocks(path, copy, stat, hints)
        source = self._source(path, stat, hints)
        try:
            # Another process may remove the copy at once: after the second time, the file is read remotely.
            for _ in range(2):
                if not _download(copy, stat.size, source, self._space, lambda _: None):
                    break
                file = self._open_copy(path, copy, stat, hints)
                if file is not None:
                    return file
        except CacheWriteError as exc:
            self._warn(exc)
        return source()

    def read(self, path: str) -> bytes:
        if path not in self._stats or not self._stats[path].size:
            return self.inner.read(path)
        file = self.open(path, Hints())
        return bytes(file.read(0, file.size))

    def fetch(self, path: str, advance: Callable[[int], None]) -> bool:
        """Downloads the whole of a file, unless there is a copy.

        Args:
            path: The file.
            advance: Called with the number of bytes, each time some have arrived.

        Returns:
            Whether the copy exists; False if the cache has no space for it.

        Raises:
            OSError: The disk is full, or the file cannot be read.
        """
        stat = self.stat(path)
        copy = self._copy_path(path, stat)
        if not stat.size or os.path.exists(copy):
            advance(stat.size)
            return True
        try:
            return _download(copy, stat.size, self._source(path, stat, Hints()), self._space, advance)
        except CacheWriteError as exc:
            exc.cause.filename = exc.cause.filename or self.folder
            raise exc.cause from None

    def _copy_path(self, path: str, stat: Stat) -> str:
        key = '\0'.join((path, str(stat.size), stat.version))
        return os.path.join(self.folder, hashlib.sha256(key.encode()).hexdigest()[:40])

    def _open_copy(self, path: str, copy: str, stat: Stat, hints: Hints) -> File | None:
        """Opens the whole copy of a file, if there is one."""
        try:
            file = self.local.open(copy, hints)
            if file.size != stat.size:
                os.unlink(copy)  # Not a copy that was completed here.
                return None
            if isinstance(file, PreadFile) and not mark_in_use(file.fd, copy):
                return None
        except FileNotFoundError:
            return None
        _touch(copy)
        file.path, file.version = path, stat.version
        return file

    def _open_blocks(self, path: str, copy: str, stat: Stat, hints: Hints) -> File:
        blocks, source = f'{copy}.blocks', self._source(path, stat, hints)
        for _ in range(3):
            try:
                file = BlockFile(path, blocks, stat, hints, source, self._space, self._warn)
            except NotACopyError:
                os.unlink(blocks)
            except FileNotFoundError:
                continue  # Another process has just removed it.
            except CacheWriteError as exc:
                self._warn(exc)
                break
            else:
                _touch(blocks)
                return file
        return source()

    def _source(self, path: str, stat: Stat, hints: Hints) -> Callable[[], File]:
        """Returns a function that opens a file remotely, and checks that it has not changed."""
        inner = self.inner

        def open_remote() -> File:
            file = inner.open(path, hints)
            if file.size != stat.size or (stat.version and file.version and file.version != stat.version):
                detail = f'has changed: expected {stat}, got {Stat(file.size, file.version)}'
                raise CorruptError(path, None, detail)
            return file

        return open_remote

    def _warn(self, exc: CacheWriteError) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(f'cache {self.folder}: {exc.cause}; reading without it', RuntimeWarning, 2)

    # Metadata.

    def stat(self, path: str) -> Stat:
        stat = self._stats.get(path)
        if stat is None:
            stat = self._stats[path] = self.inner.stat(path)
        return stat

    def walk(self, folder: str) -> dict[str, Stat]:
        found = self.inner.walk(folder)
        for name, stat in found.items():
            self._stats[self.inner.join(folder, name)] = stat
        return found

    def learn(self, folder: str) -> None:
        """Lists the folder of a dataset, unless its files are known."""
        if self.inner.join(folder, 'spec.json') not in self._stats:
            self.walk(folder)

    def exists(self, path: str) -> bool:
        return path in self._stats or self.inner.exists(path)

    # Nothing is written through a cache.

    def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        raise ValueError(f'{args[0]}: a cache is for reading')

    create = resume = clone = replace = rename = remove = make_folder = remove_folder = lock = _refuse


def _touch(path: str) -> None:
    """Marks a copy as used now."""
    try:
        os.utime(path)
    except OSError:
        pass  # The folder belongs to another user, or is read-only.


# Downloads of whole files: several ranges at a time, once for all processes.


def _download(
    target: str, size: int, source: Callable[[], File], space: CacheSpace, advance: Callable[[int], None]
) -> bool:
    """Makes a local copy of a file; if another process is making it, waits for that one.

    Until it is complete it is `target.part`, under a lock that ends with this process. The download of a
    process that was killed is continued.

    Args:
        target: Where the copy will be.
        size: Bytes of the file; at least 1.
        source: Opens the file.
        space: The space of the cache.
        advance: Called with the number of bytes, each time some have arrived.

    Returns:
        Whether the copy exists; False if the cache has no space for it.

    Raises:
        CacheWriteError: The disk is full, or cannot be written to.
        OSError: The file cannot be read.
    """
    part = f'{target}.part'
    while not os.path.exists(target):
        with cache_writes():
            if not _reserve(part, size, space):
                return False
            try:
                lock = wait_for_lock(part)
            except FileNotFoundError:
                continue  # Another process has completed it.
        try:
            _complete(part, size, source, advance)
            with cache_writes():
                os.rename(part, target)
        except NotACopyError:
            os.unlink(part)
        except CacheWriteError as exc:
            if exc.cause.errno in DISK_FULL:
                os.unlink(part)  # In other cases, chunks that arrived are of use the next time.
            raise
        finally:
            lock.release()
    return True


def _reserve(part: str, size: int, space: CacheSpace) -> bool:
    """Creates the file with its full length, so that every process counts the space it is going to take."""
    with space.locked():
        if os.path.exists(part):
            return True
        if not space.reserve(size):
            return False
        SparseFile(part, size, CHUNK_SIZE)
        return True


def _complete(part: str, size: int, source: Callable[[], File], advance: Callable[[int], None]) -> None:
    if os.path.getsize(part) == size:
        return  # Its process ended between its last two steps.
    sparse = SparseFile(part, size, CHUNK_SIZE)
    missing = sparse.missing(np.arange(sparse.count)).tolist()
    if missing:
        file = source()

        def fetch(chunk: int) -> None:
            start, stop = sparse.block_range(chunk)
            sparse.write_block(chunk, memoryview(file.read(start, stop)))
            advance(stop - start)

        map_in_threads(fetch, missing, MAX_CONNECTIONS)
    sparse.finish()
