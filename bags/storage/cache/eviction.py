"""How much a folder of cached files holds, and which of them go when there is no room."""

from __future__ import annotations

import collections
import dataclasses
import os
import time
from collections.abc import Iterator

from bags.storage.locks import PathLock, is_at

__all__ = ['Room', 'pin', 'wait_for']

PAUSE = 0.01  # Seconds between two looks at a lock.
SHARE = 20  # Of the time, at most this part is spent on listing the folder.


@dataclasses.dataclass(frozen=True)
class Kept:
    """A file of the cache, as it was when the folder was listed."""

    used: int
    """When it was used last, in nanoseconds."""
    size: int
    path: str


class Room:
    """Keeps a folder below a number of bytes, by removing what was used longest ago and is not in use.

    Several processes may keep the same folder. Each counts what it adds itself, and lists the folder now and
    then for what others do.

    Args:
        folder: The folder; no other files should be in it.
        limit: Most bytes; None for no bound.
    """

    def __init__(self, folder: str, limit: int | None) -> None:
        self.folder = folder
        self.limit = limit
        self.total = 0
        self._oldest: collections.deque[Kept] = collections.deque()
        self._next_look = 0.0

    def make(self, size: int) -> bool:
        """Removes files until so many bytes more have room. Tells whether they have.

        To be called by whoever holds the lock of the folder.
        """
        if self.limit is None:
            return True
        if size > self.limit:
            return False
        if time.monotonic() >= self._next_look:
            self._look()
        if not self._evict(size):
            self._look()
            if not self._evict(size):
                return False
        self.total += size
        return True

    def _look(self) -> None:
        start = time.monotonic()
        found = sorted(listed(self.folder), key=lambda kept: kept.used)
        self.total = sum(kept.size for kept in found)
        self._oldest = collections.deque(found)
        stop = time.monotonic()
        self._next_look = stop + SHARE * (stop - start)

    def _evict(self, size: int) -> bool:
        assert self.limit is not None
        while self.total + size > self.limit:
            if not self._oldest:
                return False
            kept = self._oldest.popleft()
            if _remove(kept):
                self.total -= kept.size
        return True


def listed(folder: str) -> Iterator[Kept]:
    """Lists the files of a cache, with the bytes that each takes."""
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                found = entry.stat()
            except FileNotFoundError:
                continue
            # Of a file that is filled in here and there, what it takes; of one that arrives, what it will.
            sparse = entry.name.endswith('.blocks') and hasattr(found, 'st_blocks')
            size = found.st_blocks * 512 if sparse else found.st_size
            yield Kept(found.st_mtime_ns, size, entry.path)


def _remove(kept: Kept) -> bool:
    """Removes a file unless it was used since, or is in use."""
    try:
        if os.stat(kept.path).st_mtime_ns != kept.used:
            return False
        lock = PathLock(kept.path)
    except OSError:
        return False
    try:
        os.unlink(kept.path)
    except OSError:
        return False
    finally:
        lock.release()
    return True


def pin(fd: int, path: str) -> bool:
    """Marks an open file as one in use, for as long as it is open in this process or a fork of it.

    Tells whether it is still the file at its path.
    """
    try:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_SH)
    except (ImportError, OSError):
        pass  # Without locks it may be removed while it is read, which does not hurt those who read.
    return is_at(fd, path)


def wait_for(path: str) -> PathLock:
    """Returns the lock of a file or folder, when whoever has it gives it up or ends.

    Raises:
        FileNotFoundError: It is gone.
    """
    while True:
        try:
            return PathLock(path)
        except BlockingIOError:
            time.sleep(PAUSE)
