"""Reads and writes at an offset of a descriptor, also on systems without `pread` and `pwritev`."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Protocol

from bags.storage.base import Buffer

O_BINARY = getattr(os, 'O_BINARY', 0)
"""A flag of `os.open` without which Windows translates line endings."""
MAX_JOINED = 1 << 20  # Maximum bytes of buffers that are joined for one write.

# Descriptor `fd` uses lock `fd % 64`, so that a seek and its read or write exclude others.
_POSITION_LOCKS = [threading.Lock() for _ in range(64)]


class Calls(Protocol):
    """Functions of `os`. Offsets and lengths are in bytes."""

    def pread(self, fd: int, length: int, offset: int, /) -> bytes: ...

    def pwrite(self, fd: int, data: Buffer, offset: int, /) -> int: ...

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int, /) -> int: ...


def _pread(fd: int, count: int, offset: int) -> bytes:
    with _POSITION_LOCKS[fd % len(_POSITION_LOCKS)]:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, count)


def _pwrite(fd: int, data: Buffer, offset: int) -> int:
    with _POSITION_LOCKS[fd % len(_POSITION_LOCKS)]:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.write(fd, data)


def _pwritev(fd: int, buffers: Sequence[Buffer], offset: int) -> int:
    if sum(map(len, buffers)) <= MAX_JOINED:
        return calls.pwrite(fd, b''.join(buffers), offset)
    written = 0
    for buffer in buffers:
        count = calls.pwrite(fd, buffer, offset + written)
        written += count
        if count < len(buffer):
            break
    return written


calls: Calls = os
"""Provides `pread`, `pwrite` and `pwritev`: the module `os`, or replacements that seek if `os` lacks them.

Windows lacks all three, and macOS before version 11 lacks `pwritev`. On Windows, reads and writes of one
descriptor exclude each other in this process, as they share its position.
"""
if not hasattr(os, 'pwritev'):
    calls = SimpleNamespace(
        pread=getattr(os, 'pread', _pread), pwrite=getattr(os, 'pwrite', _pwrite), pwritev=_pwritev
    )
