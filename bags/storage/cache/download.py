"""Downloads of whole files into the cache: several ranges at a time, once for all processes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import numpy as np

from bags.concurrency import map_in_threads
from bags.storage.base import File
from bags.storage.cache.eviction import CacheSpace, wait_for_lock
from bags.storage.cache.sparse_file import CacheWriteError, NotACopyError, SparseFile, cache_writes

__all__ = ['CHUNK_SIZE', 'download']

CHUNK_SIZE = 1 << 23  # Bytes of a request; a chunk that was cut short is downloaded again.
MAX_CONNECTIONS = 8
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def download(
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
    lock = space.lock()
    try:
        if os.path.exists(part):
            return True
        if not space.reserve(size):
            return False
        SparseFile(part, size, CHUNK_SIZE)
        return True
    finally:
        lock.release()


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
