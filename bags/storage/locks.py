"""Locks on local files and folders, released when the process that holds them ends."""

from __future__ import annotations

import errno
import os
import time
import weakref
from collections.abc import Callable

from bags.storage.descriptors import open_descriptor

MAX_LOCK_ATTEMPTS = 5
"""Maximum number of attempts to lock: `is_locked` in another process may hold the lock for a moment."""

_OPEN_LOCKS: weakref.WeakSet[PathLock] = weakref.WeakSet()  # So that a forked child can close them.


class PathLock:
    """An advisory lock on a file or folder (`flock`). It ends with the process, and leaves no file behind.

    Args:
        path: The file or folder.
        flags: Flags of `os.open` in addition to those for reading, such as `NO_LINK`.

    Raises:
        BlockingIOError: Another writer holds the lock.
    """

    def __init__(self, path: str, flags: int = 0) -> None:
        self.fd = -1
        try:
            import fcntl
        except ImportError:  # Windows, where a file that is being written cannot be opened twice anyway.
            return
        fd = open_descriptor(path, os.O_RDONLY | flags)
        try:
            for attempt in range(MAX_LOCK_ATTEMPTS):
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if attempt == MAX_LOCK_ATTEMPTS - 1:
                        raise
                    time.sleep(0.001)
        except BlockingIOError as exc:
            os.close(fd)
            raise BlockingIOError(exc.errno, 'another writer has it open', path) from None
        except OSError:
            os.close(fd)  # The file system does not support locks.
            return
        if not is_at(fd, path):
            os.close(fd)  # Another writer removed or replaced the locked file.
            raise BlockingIOError(errno.EWOULDBLOCK, 'another writer had it open', path)
        self.fd = fd
        _OPEN_LOCKS.add(self)

    def release(self) -> None:
        """Releases the lock, also for children forked since, which share the descriptor."""
        if self.fd >= 0:
            import fcntl

            fcntl.flock(self.fd, fcntl.LOCK_UN)
        self.leave()

    def leave(self, close: Callable[[int], None] = os.close) -> None:
        """Closes the descriptor. Other processes that share it still hold the lock."""
        # `close` is an argument because `os` may be cleared already when the interpreter exits.
        fd, self.fd = self.fd, -1
        if fd >= 0:
            close(fd)

    def __del__(self) -> None:
        self.leave()


def is_locked(path: str) -> bool:
    """Returns whether a process holds the lock of a file or folder; False if that is unknown."""
    try:
        import fcntl

        fd = open_descriptor(path, os.O_RDONLY)
    except (ImportError, OSError):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # The file system does not support locks.
    finally:
        os.close(fd)
    return False


def is_at(fd: int, path: str) -> bool:
    """Returns whether an open file is still the file at a path."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _release_in_child() -> None:
    for lock in list(_OPEN_LOCKS):
        lock.leave()


if hasattr(os, 'register_at_fork'):
    # All processes that share the descriptor hold the lock. A child may outlive its parent, so it must not.
    os.register_at_fork(after_in_child=_release_in_child)
