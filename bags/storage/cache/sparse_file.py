"""A local copy of a file of which only some blocks are present, each with a checksum."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from bags.indexing import Int64s

__all__ = ['CacheWriteError', 'NotACopyError', 'SparseFile', 'cache_writes']

PRESENT = 1 << 32


class NotACopyError(Exception):
    """A file that does not have the expected form: of another program, or damaged."""


class CacheWriteError(Exception):
    """The local disk cannot be written to, e.g. because it is full. The cause is an OSError."""

    def __init__(self, cause: OSError) -> None:
        self.cause = cause


@contextlib.contextmanager
def cache_writes() -> Iterator[None]:
    """Distinguishes errors of the local disk from those of the object store.

    Raises:
        CacheWriteError: For any OSError.
    """
    try:
        yield
    except OSError as exc:
        raise CacheWriteError(exc) from exc


class SparseFile:
    """A sparse copy of a file: its bytes at their offsets, and after them a mark for each block.

    A mark is a little-endian u64: 0 for a block that is missing, else 2³² and the CRC-32 of the block. It is
    written after the block, and trusted once the CRC was verified: so a process may end at any moment, the
    machine too, and several processes may fill one copy without knowing of each other.

    Args:
        path: Where it is; created if it does not exist.
        size: Bytes of the file it is a copy of; at least 1.
        block: Bytes of a block.

    Raises:
        NotACopyError: The file at `path` is no such copy.
        CacheWriteError: It cannot be created.
    """

    def __init__(self, path: str, size: int, block: int) -> None:
        self.path = path
        self.size = size
        self.block = block
        self.count = -(-size // block)
        total = size + 8 * self.count
        with cache_writes():
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            found = os.fstat(self.fd).st_size
            if not found:
                os.ftruncate(self.fd, total)
                found = total
        if found != total:
            raise NotACopyError(f'{path}: expected {total} bytes, got {found}')
        self.known = np.zeros(self.count, bool)
        """Which blocks are present, as far as this process has verified."""

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # An argument, as `os` may be cleared already when the interpreter exits.
        fd = self.__dict__.pop('fd', -1)
        if fd >= 0:
            close(fd)

    def block_range(self, block: int) -> tuple[int, int]:
        """Returns start and stop of a block in the file."""
        return block * self.block, min(self.size, (block + 1) * self.block)

    def missing(self, blocks: Int64s) -> Int64s:
        """Returns those of some blocks that are missing. A block is verified when it is first asked for.

        Args:
            blocks: Their numbers, ascending.
        """
        unknown = blocks[~self.known[blocks]]
        if not len(unknown):
            return unknown
        first = int(unknown[0])
        marks = self._marks(first, int(unknown[-1]) + 1)[unknown - first]
        for block, mark in zip(unknown[marks != 0].tolist(), marks[marks != 0].tolist(), strict=True):
            start, stop = self.block_range(block)
            data = os.pread(self.fd, stop - start, start)
            if len(data) == stop - start and mark == _mark(data):
                self.known[block] = True
        return unknown[~self.known[unknown]]

    def _marks(self, start: int, stop: int) -> npt.NDArray[np.uint64]:
        data = os.pread(self.fd, 8 * (stop - start), self.size + 8 * start)
        return np.frombuffer(data.ljust(8 * (stop - start), b'\0'), '<u8')

    def write_block(self, block: int, data: bytes | memoryview) -> None:
        """Writes a block, then its mark.

        Raises:
            CacheWriteError: The block is missing or present, as before.
        """
        with cache_writes():
            _write(self.fd, data, self.block_range(block)[0])
            _write(self.fd, _mark(data).to_bytes(8, 'little'), self.size + 8 * block)
        self.known[block] = True

    def finish(self) -> None:
        """Makes a plain copy once all blocks are present: synced to disk, without the marks.

        Raises:
            CacheWriteError: Blocks may not have reached the disk.
        """
        assert not len(self.missing(np.arange(self.count)))
        with cache_writes():
            os.fsync(self.fd)
            os.ftruncate(self.fd, self.size)


def _mark(data: bytes | memoryview) -> int:
    return PRESENT | zlib.crc32(data)


def _write(fd: int, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done
