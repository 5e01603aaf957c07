"""A local copy of a file of which only some blocks are there, and which are known to be whole."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from bags.indexing import Int64s

__all__ = ['Foreign', 'Sparse', 'Unwritable', 'total_size', 'writing']

THERE = 1 << 32


class Foreign(Exception):
    """A file that is not of the form expected: another program's, or damaged."""


class Unwritable(Exception):
    """The local disk does not take what is to be kept there: it is full, say. The cause is an OSError."""

    def __init__(self, cause: OSError) -> None:
        self.cause = cause


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Tells errors of the local disk from those of the storage behind it.

    Raises:
        Unwritable: For any OSError.
    """
    try:
        yield
    except OSError as exc:
        raise Unwritable(exc) from exc


def total_size(size: int, block: int) -> int:
    """Returns the bytes of a sparse copy of a file of `size` bytes, holes counted."""
    return size + -(-size // block) * 8


class Sparse:
    """A sparse copy of a file: its bytes at their places, and behind them a mark for each block.

    A mark is a little-endian u64: 0 for a block that is not there, else 2³² and the CRC-32 of the block. It
    is written after the block, and believed once the CRC was found to be right: so a process may die at any
    moment, the machine too, and several may fill in one copy without knowing of each other.

    Args:
        path: Where it is; made if it is not there.
        size: Bytes of the file it is a copy of; at least 1.
        block: Bytes of a block.

    Raises:
        Foreign: What is there is no such copy.
        Unwritable: It cannot be made.
    """

    def __init__(self, path: str, size: int, block: int) -> None:
        self.path = path
        self.size = size
        self.block = block
        self.count = -(-size // block)
        total = total_size(size, block)
        with writing():
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, 'O_CLOEXEC', 0), 0o666)
            found = os.fstat(self.fd).st_size
            if not found:
                os.ftruncate(self.fd, total)
                found = total
        if found != total:
            raise Foreign(f'{path}: expected {total} bytes, got {found}')
        self.known = np.zeros(self.count, bool)
        """Which blocks are there, as far as this process has found out."""

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # Kept in the signature, as `os` may be gone when the interpreter ends.
        fd = self.__dict__.pop('fd', -1)
        if fd >= 0:
            close(fd)

    def span(self, block: int) -> tuple[int, int]:
        """Returns start and stop of a block in the file."""
        return block * self.block, min(self.size, (block + 1) * self.block)

    def missing(self, blocks: Int64s) -> Int64s:
        """Returns those of some blocks that are not there, looking at each the first time it is asked for.

        Args:
            blocks: Their numbers, rising.
        """
        unknown = blocks[~self.known[blocks]]
        if not len(unknown):
            return unknown
        first = int(unknown[0])
        marks = self._marks(first, int(unknown[-1]) + 1)[unknown - first]
        for block, mark in zip(unknown[marks != 0].tolist(), marks[marks != 0].tolist(), strict=True):
            start, stop = self.span(block)
            data = os.pread(self.fd, stop - start, start)
            if len(data) == stop - start and mark == _mark(data):
                self.known[block] = True
        return unknown[~self.known[unknown]]

    def _marks(self, start: int, stop: int) -> npt.NDArray[np.uint64]:
        data = os.pread(self.fd, 8 * (stop - start), self.size + 8 * start)
        return np.frombuffer(data.ljust(8 * (stop - start), b'\0'), '<u8')

    def put(self, block: int, data: bytes | memoryview) -> None:
        """Fills in a block.

        Raises:
            Unwritable: The block is as before.
        """
        with writing():
            _write(self.fd, data, self.span(block)[0])
            _write(self.fd, _mark(data).to_bytes(8, 'little'), self.size + 8 * block)
        self.known[block] = True

    def finish(self) -> None:
        """Makes a plain copy of it, once all blocks are there: on the disk, and without the marks.

        Raises:
            Unwritable: What was put may not have reached the disk.
        """
        assert not len(self.missing(np.arange(self.count)))
        with writing():
            os.fsync(self.fd)
            os.ftruncate(self.fd, self.size)


def _mark(data: bytes | memoryview) -> int:
    return THERE | zlib.crc32(data)


def _write(fd: int, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done
