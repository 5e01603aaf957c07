"""Fetching a whole file into the cache: in ranges, side by side, once for all processes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import numpy as np

from bags.concurrency import map_in_threads
from bags.storage.base import File
from bags.storage.cache.eviction import Room, wait_for
from bags.storage.cache.sparse_file import Foreign, Sparse, Unwritable, writing

__all__ = ['CHUNK', 'FULL', 'download']

CHUNK = 1 << 23  # Bytes of a request, and what is fetched again of a chunk whose arrival was cut short.
CONNECTIONS = 8
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What systems say of a disk that has no room, or none for this user."""


def download(
    target: str, size: int, source: Callable[[], File], room: Room, advance: Callable[[int], None]
) -> bool:
    """Makes a local copy of a file, unless another process is quicker; then waits for that one.

    Until it is complete it is `target.part`, under a lock that ends with this process. What a process that
    was killed left there is gone on with.

    Args:
        target: Where the copy will be.
        size: Bytes of the file; at least 1.
        source: Opens the file.
        room: What the cache has room for.
        advance: Is told how many bytes have come, each time some have.

    Returns:
        Whether it is there; False if there is no room.

    Raises:
        Unwritable: The disk is full, or cannot be written to.
        OSError: The file cannot be read.
    """
    part = f'{target}.part'
    while not os.path.exists(target):
        with writing():
            if not _reserve(part, size, room):
                return False
            try:
                lock = wait_for(part)
            except FileNotFoundError:
                continue  # Another process has completed it.
        try:
            _complete(part, size, source, advance)
            with writing():
                os.rename(part, target)
        except Foreign:
            os.unlink(part)
        except Unwritable as exc:
            if exc.cause.errno in FULL:
                os.unlink(part)  # Else chunks that came are of use the next time.
            raise
        finally:
            lock.release()
    return True


def _reserve(part: str, size: int, room: Room) -> bool:
    """Makes the file with its full length, so that all who look see the room it is going to take."""
    lock = wait_for(room.folder)
    try:
        if os.path.exists(part):
            return True
        if not room.make(size):
            return False
        Sparse(part, size, CHUNK)
        return True
    finally:
        lock.release()


def _complete(part: str, size: int, source: Callable[[], File], advance: Callable[[int], None]) -> None:
    if os.path.getsize(part) == size:
        return  # Its process was stopped between its last two steps.
    sparse = Sparse(part, size, CHUNK)
    missing = sparse.missing(np.arange(sparse.count)).tolist()
    if missing:
        file = source()

        def fetch(chunk: int) -> None:
            start, stop = sparse.span(chunk)
            sparse.put(chunk, memoryview(file.read(start, stop)))
            advance(stop - start)

        map_in_threads(fetch, missing, CONNECTIONS)
    sparse.finish()
