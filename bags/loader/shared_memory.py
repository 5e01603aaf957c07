"""Memory that processes share, without a name: there is nothing to clean up, however they end."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from bags.memory import ALIGNMENT

__all__ = ['Arena']

STEP = 1 << 20


class Arena:
    """A file in memory that grows as it is written to. It is sent to a process when that is spawned."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = _create() if fd is None else fd
        self._map: mmap.mmap | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        from multiprocessing.reduction import DupFd

        return _received, (DupFd(self._fd),)

    def _mapped(self, size: int) -> mmap.mmap:
        """Returns a map of at least `size` bytes, which the file has."""
        if self._map is None or len(self._map) < size:
            self._map = mmap.mmap(self._fd, os.fstat(self._fd).st_size)
        return self._map

    def write(self, buffers: Sequence[memoryview]) -> list[int]:
        """Writes buffers, one after the other, each at a multiple of the alignment; returns where.

        Raises:
            OSError: There is no memory for them.
        """
        offsets, end = [], 0
        for buffer in buffers:
            offsets.append(end)
            end += -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
        if not end:
            return offsets
        if os.fstat(self._fd).st_size < end:
            # Memory that is only promised would end the process where there is none.
            allocate = getattr(os, 'posix_fallocate', None)
            size = -(-(end + end // 4) // STEP) * STEP
            if allocate is None:
                os.ftruncate(self._fd, size)
            else:
                allocate(self._fd, 0, size)
        target = memoryview(self._mapped(end))
        for offset, buffer in zip(offsets, buffers, strict=True):
            target[offset : offset + buffer.nbytes] = buffer
        return offsets

    def view(self, size: int) -> memoryview:
        """Returns its first bytes, which another process has written."""
        return memoryview(self._mapped(size))[:size] if size else memoryview(b'')

    def close(self, close: Callable[[int], None] = os.close) -> None:
        self._map = None
        fd, self._fd = self._fd, -1
        if fd >= 0:
            close(fd)

    def __del__(self) -> None:
        self.close()


def _create() -> int:
    create = getattr(os, 'memfd_create', None)
    if create is not None:
        return int(create('bags', os.MFD_CLOEXEC))
    fd, path = tempfile.mkstemp(prefix='bags-')
    os.unlink(path)
    return fd


def _received(handle: Any) -> Arena:
    return Arena(handle.detach())
