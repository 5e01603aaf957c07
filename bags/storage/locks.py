"""Locks on local files and folders that end with the process that holds them."""

from __future__ import annotations

import errno
import os
import time
import weakref
from collections.abc import Callable

ATTEMPTS = 5
"""Attempts to lock, as a reader may hold the lock for the moment in which it asks whether it is free."""

_LOCKS: weakref.WeakSet[PathLock] = weakref.WeakSet()  # So that a forked child can leave them.


class PathLock:
    """An advisory lock on a file or folder (`flock`): it ends with the process, and leaves no file behind.

    Raises:
        BlockingIOError: Another writer holds it.
    """

    def __init__(self, path: str) -> None:
        self.fd = -1
        try:
            import fcntl
        except ImportError:  # Windows: files that are being written cannot be opened twice there anyway.
            return
        fd = os.open(path, os.O_RDONLY)
        try:
            for attempt in range(ATTEMPTS):
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if attempt == ATTEMPTS - 1:
                        raise
                    time.sleep(0.001)
        except BlockingIOError as exc:
            os.close(fd)
            raise BlockingIOError(exc.errno, 'another writer has it open', path) from None
        except OSError:
            os.close(fd)  # A file system without locks.
            return
        if not is_at(fd, path):
            os.close(fd)  # Another writer removed or replaced the locked file.
            raise BlockingIOError(errno.EWOULDBLOCK, 'another writer had it open', path)
        self.fd = fd
        _LOCKS.add(self)

    def release(self) -> None:
        """Releases the lock, also for children that were forked since and share the descriptor."""
        if self.fd >= 0:
            import fcntl

            fcntl.flock(self.fd, fcntl.LOCK_UN)
        self.leave()

    def leave(self, close: Callable[[int], None] = os.close) -> None:
        """Closes the descriptor: the lock stays with the other processes that share it."""
        # An argument, as `os` may be cleared already when the interpreter exits.
        fd, self.fd = self.fd, -1
        if fd >= 0:
            close(fd)

    def __del__(self) -> None:
        self.leave()


def is_locked(path: str) -> bool:
    """Returns whether a process holds the lock of a file or folder; False where that is unknown."""
    try:
        import fcntl

        fd = os.open(path, os.O_RDONLY)
    except (ImportError, OSError):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # A file system without locks.
    finally:
        os.close(fd)
    return False


def is_at(fd: int, path: str) -> bool:
    """Returns whether an open file is the one at a path."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _release_in_child() -> None:
    for lock in list(_LOCKS):
        lock.leave()


if hasattr(os, 'register_at_fork'):
    # All processes that share the descriptor hold the lock: a child that outlives its parent must not.
    os.register_at_fork(after_in_child=_release_in_child)
