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
TOTAL_FILE = '.total'
MIN_LISTING_INTERVAL = 20  # As a multiple of the duration of a listing, which takes at most 1/20 of the time.


class CachedEntry(NamedTuple):
    """A file of the cache, as of the last listing of the folder."""

    used: int
    """Time of the last use, in nanoseconds."""
    size: int
    path: str


class CacheSpace:
    """The space of a cache folder. Evicts the least recently used files that are not open.

    Several processes may share a folder. The total size of its files is stored as the modification time, in
    nanoseconds, of the empty file `.total`. It is an upper bound, since files may be removed at any time. The
    folder is listed if the total is unknown. While the folder is full, it is listed again, for at most a
    twentieth of the time, and whenever no listed file is left to evict.

    Args:
        folder: The folder, which must not contain other files.
        limit: Maximum bytes; None for no limit.
    """

    def __init__(self, folder: str, limit: int | None) -> None:
        self.folder = folder
        self.limit = limit
        self._total_file = os.path.join(folder, TOTAL_FILE)
        self._oldest: collections.deque[CachedEntry] = collections.deque()
        self._next_listing = 0.0

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Context manager that holds the lock of the folder. Waits until other processes release it."""
        lock = wait_for_lock(self.folder)
        try:
            yield
        finally:
            lock.release()

    def reserve(self, size: int) -> bool:
        """Removes files until `size` more bytes fit; returns whether they do. The caller holds the lock."""
        if self.limit is None:
            self._forget_total()
            return True
        if size > self.limit:
            return False
        total = self._read_total() if self._next_listing else None
        if total is None or (total + size > self.limit and time.monotonic() >= self._next_listing):
            total = self._list()
        total = self._evict(total, size)
        if total + size > self.limit:
            total = self._evict(self._list(), size)
        is_free = total + size <= self.limit
        self._write_total(total + size if is_free else total)
        return is_free

    def _list(self) -> int:
        """Lists the folder; returns the total size of its files, in bytes."""
        start = time.monotonic()
        files = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    stat = entry.stat()
                    # The `st_size` of a file that is being downloaded is its final size.
                    if entry.name != TOTAL_FILE:
                        files.append(CachedEntry(stat.st_mtime_ns, stat.st_size, entry.path))
        self._oldest = collections.deque(sorted(files))
        end = time.monotonic()
        self._next_listing = end + MIN_LISTING_INTERVAL * (end - start)
        return sum(file.size for file in files)

    def _evict(self, total: int, size: int) -> int:
        """Removes files until `size` more bytes fit, or no file is left to evict; returns the total."""
        assert self.limit is not None
        while total + size > self.limit and self._oldest:
            entry = self._oldest.popleft()
            if _remove(entry):
                total -= entry.size
        return total

    def _read_total(self) -> int | None:
        """Returns the total that was written last; None if it is missing, or exceeds the limit."""
        assert self.limit is not None
        try:
            total = os.stat(self._total_file).st_mtime_ns
        except FileNotFoundError:
            return None
        # If the process that created the file was killed before it set the time, the time is the current one.
        return total if total <= self.limit else None

    def _write_total(self, total: int) -> None:
        with contextlib.suppress(OSError):  # The file belongs to another user.
            os.close(os.open(self._total_file, os.O_CREAT | os.O_RDONLY, 0o666))
            os.utime(self._total_file, ns=(total, total))
            if os.stat(self._total_file).st_mtime_ns == total:
                return
        self._forget_total()

    def _forget_total(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._total_file)


def _remove(entry: CachedEntry) -> bool:
    """Removes a file, unless it was used since the listing, or is in use. Returns whether it was removed."""
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
    """Marks an open file as in use, while it is open in this process or a fork of it.

    Returns:
        Whether the file is still at its path.
    """
    try:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_SH)
    except (ImportError, OSError):
        pass  # Without locks, the file may be removed while it is open; readers can still read its bytes.
    return is_at(fd, path)


def wait_for_lock(path: str) -> PathLock:
    """Locks a file or folder. Waits until another holder releases the lock or ends.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    while True:
        try:
            return PathLock(path)
        except BlockingIOError:
            time.sleep(LOCK_POLL)
