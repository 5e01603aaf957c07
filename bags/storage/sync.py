"""Syncs files and folders to disk, so that they survive a power cut; exchanges two paths atomically."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Any

from bags.storage.descriptors import open_descriptor

REFUSALS = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF}
"""Errors raised by file systems that do not support syncing folders."""
AT_FDCWD = -100
RENAME_EXCHANGE = 2  # Flag of renameat2 on Linux; equals RENAME_SWAP of renamex_np on macOS.
SYNC_FILE_RANGE_WRITE = 2


def sync_file(fd: int, path: str) -> None:
    """Syncs an open file to disk.

    Raises:
        OSError: The disk failed or is full. The system may have dropped the data that it could not write, so
            a later attempt that succeeds proves nothing.
    """
    try:
        # `fsync` on macOS leaves data in the disk cache. Network file systems may not support F_FULLFSYNC.
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            full_sync = getattr(fcntl, 'F_FULLFSYNC', None)
            if full_sync is not None:
                fcntl.fcntl(fd, full_sync)
                return
        os.fsync(fd)
    except OSError as exc:
        exc.filename = path
        raise


def sync_folder(folder: str) -> None:
    """Syncs the names in a folder to disk, if its file system supports it.

    Raises:
        OSError: The disk failed.
    """
    try:
        fd = open_descriptor(folder or '.', os.O_RDONLY)
    except PermissionError:
        return  # E.g. on Windows, where folders cannot be opened.
    try:
        sync_file(fd, folder)
    except OSError as exc:
        if exc.errno not in REFUSALS:
            raise
    finally:
        os.close(fd)


def start_writing_back(fd: int, start: int, stop: int) -> None:
    """Asks the kernel, where supported, to start writing a part of a file to disk. Speeds up a later sync."""
    write = _libc_function('sync_file_range', 'c_int', 'c_int64', 'c_int64', 'c_uint')
    if write is not None:
        write(fd, start, stop - start, SYNC_FILE_RANGE_WRITE)


def exchange(path: str, other: str) -> bool:
    """Exchanges two files or folders atomically; returns False, and does nothing, if that is not possible.

    Raises:
        FileNotFoundError: One of them does not exist.
    """
    first, second = os.fsencode(path), os.fsencode(other)
    if sys.platform == 'darwin':
        swap = _libc_function('renamex_np', 'c_char_p', 'c_char_p', 'c_uint')
        arguments: tuple[Any, ...] = (first, second, RENAME_EXCHANGE)
    else:
        swap = _libc_function('renameat2', 'c_int', 'c_char_p', 'c_int', 'c_char_p', 'c_uint')
        arguments = (AT_FDCWD, first, AT_FDCWD, second, RENAME_EXCHANGE)
    if swap is None:
        return False
    import ctypes

    if swap(*arguments) == 0:
        return True
    code = ctypes.get_errno()
    if code == errno.ENOENT:
        raise FileNotFoundError(code, os.strerror(code), path, None, other)
    return False  # The caller falls back to plain renames, which raise any other error again.


def _libc_function(name: str, *types: str) -> Any:
    """Returns a function of the C library; None if it does not exist."""
    if sys.platform == 'win32':
        return None
    import ctypes

    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is not None:
        function.argtypes = [getattr(ctypes, name) for name in types]
    return function
