"""Eviction: removes files from a cache folder to keep it below its limit."""

from __future__ import annotations

import collections
import contextlib
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from bags.storage.locks import PathLock, is_at

LOCK_POLL = 0.01  # Seconds between two attempts to lock.
MIN_LISTING_INTERVAL = 20  # Times the duration of a listing: at most a twentieth of the time is spent on it.


class CachedEntry(NamedTuple):
    """A file of the cache, as it was when the folder was listed."""

    used: int
    """Time of the last use, in nanoseconds."""
    size: int
    path: str


class CacheSpace:
    """The space of a cache folder. Evicts the least recently used files that are not open.

    Several processes may share a folder. Each counts the bytes it adds, and lists the folder now and then for
    those that others add.

    Args:
        folder: The folder; it holds no other files.
        limit: Maximum bytes; None for no limit.
    """

    def __init__(self, folder: str, limit: int | None) -> None:
        self.folder = folder
        self.limit = limit
        self.total = 0
        self._oldest: collections.deque[CachedEntry] = collections.deque()
        self._next_listing = 0.0

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lock of the folder, once other processes have released it."""
        lock = wait_for_lock(self.folder)
        try:
            yield
        finally:
            lock.release()

    def reserve(self, size: int) -> bool:
        """Removes files until `size` more bytes fit; returns whether they do. The caller holds the lock."""
        if self.limit is None:
            return True
        if size > self.limit:
            return False
        if time.monotonic() >= self._next_listing:
            self._list()
        if not self._evict(size):
            self._list()
            if not self._evict(size):
                return False
        self.total += size
        return True

    def _list(self) -> None:
        begun = time.monotonic()
        found = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    stat = entry.stat()
                    # The `st_size` of a file that is being downloaded is its final size.
                    found.append(CachedEntry(stat.st_mtime_ns, stat.st_size, entry.path))
        self.total = sum(entry.size for entry in found)
        self._oldest = collections.deque(sorted(found))
        now = time.monotonic()
        self._next_listing = now + MIN_LISTING_INTERVAL * (now - begun)

    def _evict(self, size: int) -> bool:
        assert self.limit is not None
        while self.total + size > self.limit:
            if not self._oldest:
                return False
            entry = self._oldest.popleft()
            if _remove(entry):
                self.total -= entry.size
        return True


def _remove(entry: CachedEntry) -> bool:
    """Removes a file unless it was used since the listing, or is in use."""
    try:
        if os.stat(entry.path).st_mtime_ns != entry.used:
            return False
        lock = PathLock(entry.path)
        try:
            os.unlink(entry.path)
        finally:
            lock.release()
    except OSError:
        return False
    return True


def mark_in_use(fd: int, path: str) -> bool:
    """Marks an open file as in use, for as long as it is open in this process or a fork of it.

    Returns:
        Whether it is still the file at its path.
    """
    try:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_SH)
    except (ImportError, OSError):
        pass  # Without locks it may be removed while it is read; readers keep its bytes.
    return is_at(fd, path)


def wait_for_lock(path: str) -> PathLock:
    """Returns the lock of a file or folder, once its holder has released it or ended.

    Raises:
        FileNotFoundError: There is no such file.
    """
    while True:
        try:
            return PathLock(path)
        except BlockingIOError:
            time.sleep(LOCK_POLL)
