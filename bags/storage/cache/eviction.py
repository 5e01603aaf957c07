"""Eviction: removes files from a cache folder to keep it below its limit."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from typing import NamedTuple

from bags.storage.locks import PathLock
from bags.storage.positioned import O_BINARY
from bags.storage.pread_file import NO_LINK

LOCK_POLL = 0.01  # Seconds between two attempts to lock.
TOTAL_FILE = '.total'
TAG_FILE = 'CACHEDIR.TAG'
"""The mark of a cache folder. Backup programs know it: see https://bford.info/cachedir."""
TAG = b'Signature: 8a477f597d28d172789f06886806bc55\n# This folder is a cache of bags'
TAG_TEXT = (
    TAG
    + b""": copies of remote files, which can be deleted at any time.
# It was named in the option `cache`. Only files named by 40 hexadecimal digits are deleted by bags.
"""
)
COPY_NAME = re.compile(r'[0-9a-f]{40}(\.part)?')
"""The names of copies, and of copies that are being downloaded."""
SYSTEM_NAMES = ('lost+found', '.DS_Store')
"""Names that a folder without other files may have."""
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

    Only files with the names of copies are counted and removed. Links in the folder are not followed, as
    other users may be able to put them there.

    Args:
        folder: The folder.
        limit: Maximum bytes; None for no limit.
    """

    def __init__(self, folder: str, limit: int | None) -> None:
        self.folder = folder
        self.limit = limit
        self._total_file = os.path.join(folder, TOTAL_FILE)
        self._tag_file = os.path.join(folder, TAG_FILE)
        self._oldest: collections.deque[CachedEntry] = collections.deque()
        self._next_listing = 0.0

    def claim(self) -> str:
        """Marks the folder as a cache, if it contains nothing else.

        Returns:
            Why the folder cannot be used, or an empty string if it can.
        """
        if self._is_marked():
            return ''
        try:
            with self.locked():
                if self._is_marked():  # By another process.
                    return ''
                for name in sorted(os.listdir(self.folder)):
                    if not self._is_of_cache(name):
                        advice = f'pass a folder of its own, such as {os.path.join(self.folder, "cache")}'
                        return (
                            f'expected an empty folder, or a cache of bags, got one with {name!r}: {advice}'
                        )
                with contextlib.suppress(OSError):  # The folder is read-only, or the disk is full.
                    self._mark()
        except OSError as exc:
            return str(exc)
        return ''

    def _is_marked(self) -> bool:
        try:
            fd = os.open(self._tag_file, os.O_RDONLY | O_BINARY | NO_LINK)
        except OSError:
            return False
        try:
            return os.read(fd, len(TAG)) == TAG
        except OSError:
            return False
        finally:
            os.close(fd)

    def _is_of_cache(self, name: str) -> bool:
        """Returns whether a cache without a mark may have a file: earlier versions made none."""
        if name == TAG_FILE:  # Empty if its process was killed.
            return not os.lstat(self._tag_file).st_size
        return name == TOTAL_FILE or name in SYSTEM_NAMES or COPY_NAME.fullmatch(name) is not None

    def _mark(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._tag_file)
        fd = os.open(self._tag_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_BINARY | NO_LINK, 0o666)
        try:
            os.write(fd, TAG_TEXT)
        finally:
            os.close(fd)

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
        """Lists the folder; returns the total size of its copies, in bytes."""
        start = time.monotonic()
        files = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if COPY_NAME.fullmatch(entry.name) is None:
                    continue
                with contextlib.suppress(FileNotFoundError):
                    # The `st_size` of a file that is being downloaded is its final size.
                    if entry.is_file(follow_symlinks=False):
                        found = entry.stat(follow_symlinks=False)
                        files.append(CachedEntry(found.st_mtime_ns, found.st_size, entry.path))
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
            found = os.lstat(self._total_file)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        total = found.st_mtime_ns
        # If the process that created the file was killed before it set the time, the time is the current one.
        return total if total <= self.limit else None

    def _write_total(self, total: int) -> None:
        with contextlib.suppress(OSError):  # The file belongs to another user, or is a link.
            fd = os.open(self._total_file, os.O_CREAT | os.O_RDONLY | NO_LINK, 0o666)
            try:
                found = os.fstat(fd)
                if stat.S_ISREG(found.st_mode) and found.st_nlink <= 1:
                    os.utime(fd if os.utime in os.supports_fd else self._total_file, ns=(total, total))
                    if os.fstat(fd).st_mtime_ns == total:
                        return
            finally:
                os.close(fd)
        self._forget_total()

    def _forget_total(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._total_file)


def _remove(entry: CachedEntry) -> bool:
    """Removes a file, unless it was used since the listing, or is in use. Returns whether it was removed."""
    try:
        if os.lstat(entry.path).st_mtime_ns != entry.used:
            return False
        lock = PathLock(entry.path, NO_LINK)
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
        Whether the file is still at its path, which is not a symbolic link.
    """
    try:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_SH)
    except (ImportError, OSError):
        pass  # Without locks, the file may be removed while it is open; readers can still read its bytes.
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def wait_for_lock(path: str, flags: int = 0) -> PathLock:
    """Locks a file or folder. Waits until another holder releases the lock or ends.

    Args:
        path, flags: As for `PathLock`.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    while True:
        try:
            return PathLock(path, flags)
        except BlockingIOError:
            time.sleep(LOCK_POLL)
