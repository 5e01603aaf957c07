"""Writes files and folders to the disk, so that they survive a power cut; exchanges two paths in one step."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Any

REFUSALS = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF}
"""Errors of file systems that cannot sync folders."""
AT_FDCWD = -100
RENAME_EXCHANGE = 2  # Of renameat2 on Linux, and as RENAME_SWAP of renamex_np on macOS.
SYNC_FILE_RANGE_WRITE = 2


def sync_file(fd: int, path: str) -> None:
    """Writes an open file to the disk.

    Raises:
        OSError: The disk failed or is full. The system may have dropped what it could not write, so another
            attempt that succeeds proves nothing.
    """
    try:
        # `fsync` of macOS leaves data in the cache of the disk. Network file systems may refuse the call.
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
    """Writes the names in a folder to the disk, if its file system can.

    Raises:
        OSError: The disk failed.
    """
    try:
        fd = os.open(folder or '.', os.O_RDONLY)
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
    """Has the kernel begin to write a part of a file to the disk, where it can: a later sync is quicker."""
    write = _libc_function('sync_file_range', 'c_int', 'c_int64', 'c_int64', 'c_uint')
    if write is not None:
        write(fd, start, stop - start, SYNC_FILE_RANGE_WRITE)


def exchange(path: str, other: str) -> bool:
    """Exchanges two files or folders in one step; returns False, and does nothing, where that is impossible.

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
    return False  # The plain renames that follow raise the errors that are not of this call alone.


def _libc_function(name: str, *types: str) -> Any:
    """Returns a function of the C library; None if there is none."""
    if sys.platform == 'win32':
        return None
    import ctypes

    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is not None:
        function.argtypes = [getattr(ctypes, each) for each in types]
    return function
