"""Descriptors of local files that are read: one budget for the process, whose limit is raised on demand.

An open file holds a descriptor while the budget has space. Above it, the descriptors that were opened first
are closed, and a file is opened again when it next needs one. The budget is global, as the limit is global.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import sys
from collections.abc import Callable

from bags.concurrency import FifoCache
from bags.storage.positioned import O_BINARY

MAX_DESCRIPTORS = 1 << 14
"""Maximum number of descriptors that the process keeps open for reading, at any limit."""
RAISED_LIMITS = (2 * MAX_DESCRIPTORS, 10_240)
"""Soft limits to try. macOS accepts at most 10,240, although its hard limit is often unlimited."""
SWITCH = 'BAGS_RAISE_FILE_LIMIT'
"""Environment variable; with the value 0, the soft limit is not raised."""
READ_FLAGS = os.O_RDONLY | O_BINARY | getattr(os, 'O_NONBLOCK', 0)
"""Flags of `os.open` to read a regular file. Opening a pipe does not wait for a writer."""
UNKNOWN_LIMIT = 1024
OPEN_ATTEMPTS = 3


class Descriptor(int):
    """An open descriptor. It is closed with the last reference to it, so never during a read."""

    __slots__ = ()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # `close` is an argument because `os` may be cleared already when the interpreter exits.
        close(self)


class FileChangedError(EOFError):
    """A file cannot be opened again: another file is at its path, or it has changed."""


class ReopenableFile:
    """A local file that is open for reading, a key in `descriptors`. The caller sets `path` and `flags`."""

    path: str
    flags: int
    """Flags of `os.open`."""
    prepare: Callable[[int], object] | None = None
    """Called with each descriptor of the file."""
    stat: os.stat_result | None = None
    """The stat of the file when it was opened first."""

    def open(self) -> Descriptor:
        """Opens the file. The caller adds the descriptor to `descriptors`.

        Raises:
            FileChangedError: The file was opened before. Now another file is at its path, or it has changed.
        """
        if len(descriptors) >= descriptors.max_items:  # Not at each open: a photo that is linked takes 50 us.
            _make_room()
        first = self.stat
        try:
            descriptor = Descriptor(os.open(self.path, self.flags))
        except OSError as exc:
            if exc.errno in (errno.EMFILE, errno.ENFILE):
                descriptor = Descriptor(open_descriptor(self.path, self.flags))
            elif first is None or exc.errno == errno.EIO:
                raise
            else:
                raise self._changed_error(exc.strerror) from exc
        if first is None:
            self.stat = os.fstat(descriptor)
            if not os.path.isabs(self.path):
                self.path = os.path.abspath(self.path)  # The working directory may change.
        else:
            self._check_same(os.fstat(descriptor), first)
        if self.prepare is not None:
            self.prepare(descriptor)
        return descriptor

    def is_cut(self) -> bool:
        """Returns whether the file is at its path, and has become shorter."""
        try:
            now = os.stat(self.path)
        except OSError:
            return False
        first = self.stat
        return first is not None and os.path.samestat(now, first) and now.st_size < first.st_size

    def _check_same(self, now: os.stat_result, first: os.stat_result) -> None:
        if not os.path.samestat(now, first):
            raise self._changed_error('another file')
        if (now.st_size, now.st_mtime_ns) != (first.st_size, first.st_mtime_ns):
            raise self._changed_error(f'{now.st_size} bytes with another modification time')

    def _changed_error(self, found: str | None) -> FileChangedError:
        size = self.stat.st_size if self.stat is not None else 0
        detail = f'expected the same file of {size} bytes, got {found}'
        return FileChangedError(
            f'{self.path}: was replaced or changed since it was opened: {detail}; open the dataset again'
        )


def _make_room() -> None:
    """Raises the soft limit if necessary, or closes the oldest descriptors above the maximum number."""
    if 2 * len(descriptors) >= soft_limit():
        raise_soft_limit()
    # The other half is for writers, sockets, and the rest of the program.
    descriptors.max_items = max(1, min(MAX_DESCRIPTORS, soft_limit() // 2))
    excess = len(descriptors) + 1 - descriptors.max_items
    if excess > 0:  # Several at a time: to find its first key, a dict skips all deleted entries.
        _close_oldest(excess + descriptors.max_items // 1024)


def _close_oldest(count: int) -> None:
    """Closes the descriptors that were opened first, except those that are being read."""
    try:
        for oldest in [*itertools.islice(descriptors, count)]:
            descriptors.pop(oldest, None)
    except RuntimeError:
        pass  # Another thread changed the cache.


def soft_limit() -> int:
    """Returns the number of descriptors that the process may have."""
    try:
        import resource

        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except (ImportError, OSError):
        return UNKNOWN_LIMIT
    return 2 * MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def raise_soft_limit() -> bool:
    """Raises the soft limit of descriptors towards the hard limit; returns whether it is higher now."""
    if os.environ.get(SWITCH) == '0':
        return False
    try:
        import resource
    except ImportError:
        return False
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return False
    for target in RAISED_LIMITS:
        limit = target if hard == resource.RLIM_INFINITY else min(target, hard)
        if limit <= soft:
            return False
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (OSError, ValueError):
            continue
        return True
    return False


def open_descriptor(path: str, flags: int, mode: int = 0o777, dir_fd: int | None = None) -> int:
    """As `os.open` of binary files. At the limit of the process, raises it, or closes other descriptors."""
    flags |= O_BINARY
    for _ in range(OPEN_ATTEMPTS):
        try:
            return os.open(path, flags, mode, dir_fd=dir_fd)
        except OSError as exc:
            if exc.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            if not raise_soft_limit():
                _close_oldest((len(descriptors) + 1) // 2)
    return os.open(path, flags, mode, dir_fd=dir_fd)


def open_regular(path: str, flags: int = READ_FLAGS) -> int:
    """Opens a regular file to read it; does not wait for the other end of a pipe.

    Raises:
        OSError: The file is a folder, a pipe or a device.
    """
    fd = open_descriptor(path, flags | READ_FLAGS)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise irregular_error(path, mode)
    return fd


def opened_path(descriptor: int, path: str) -> str:
    """Returns the path of an open file, without symbolic links.

    The system says which file was opened, whatever has been renamed since. Where it does not, the file is
    compared with the one at `path`.

    Args:
        descriptor: A descriptor of the file.
        path: The path with which it was opened.

    Raises:
        FileChangedError: Another file is at `path` now.
    """
    try:
        found = os.readlink(f'/proc/self/fd/{descriptor}')  # 2 us.
        if found.startswith('/'):
            return found
    except OSError:
        if sys.platform == 'darwin':
            import fcntl

            data = fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024))
            return os.fsdecode(data.partition(b'\0')[0])
    found = os.path.realpath(path)
    if not os.path.samestat(os.fstat(descriptor), os.lstat(found)):
        raise FileChangedError(f'{path}: was replaced while it was opened')
    return found


def irregular_error(path: str, mode: int) -> OSError:
    """Returns the error for a folder, a pipe or a device in place of a regular file."""
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, 'Is a directory', path)
    found = 'a pipe' if stat.S_ISFIFO(mode) else 'a socket' if stat.S_ISSOCK(mode) else 'a device'
    return OSError(errno.EINVAL, f'expected a regular file, got {found}', path)


descriptors: FifoCache[ReopenableFile, Descriptor] = FifoCache(ReopenableFile.open, 1)
"""The open descriptors of the process. `descriptors[file]` opens a file, also again, if necessary."""
mapped_files: dict[int, None] = {}
"""The ids of the mapped files of the process."""
