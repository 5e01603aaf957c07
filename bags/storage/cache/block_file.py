"""Local copies of which only some blocks are present, and remote files that are read through one."""

from __future__ import annotations

import contextlib
import mmap
import os
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from bags.indexing import Int64s
from bags.storage.base import Buffer, File, Hints, Offsets, Stat
from bags.storage.cache.eviction import CacheSpace, mark_in_use
from bags.storage.mmap_file import MappedFile

__all__ = [
    'BLOCK_SIZE',
    'BlockFile',
    'CacheWriteError',
    'NotACopyError',
    'SparseFile',
    'blocks_of',
    'cache_writes',
]

BLOCK_SIZE = 1 << 16  # Bytes of a block of a `BlockFile`.
MAX_FETCHED = 1 << 26  # Bytes that are held in memory before they are written.
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
        block_size: Bytes of a block.

    Raises:
        NotACopyError: The file at `path` is no such copy.
        CacheWriteError: It cannot be created.
    """

    def __init__(self, path: str, size: int, block_size: int) -> None:
        self.path = path
        self.size = size
        self.block_size = block_size
        self.count = -(-size // block_size)
        total = size + 8 * self.count
        with cache_writes():
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            found = os.fstat(self.fd).st_size
            if not found:
                os.ftruncate(self.fd, total)
                found = total
        if found != total:
            raise NotACopyError(f'{path}: expected {total} bytes, got {found}')
        self.verified = np.zeros(self.count, bool)
        """Which blocks this process has found to be present and intact."""

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # An argument, as `os` may be cleared already when the interpreter exits.
        fd = self.__dict__.pop('fd', -1)
        if fd >= 0:
            close(fd)

    def block_range(self, block: int) -> tuple[int, int]:
        """Returns start and stop of a block in the file."""
        return block * self.block_size, min(self.size, (block + 1) * self.block_size)

    def missing(self, blocks: Int64s) -> Int64s:
        """Returns those of some blocks that are missing. A block is verified when it is first asked for.

        Args:
            blocks: Their numbers, ascending.
        """
        unknown = blocks[~self.verified[blocks]]
        if not len(unknown):
            return unknown
        first = int(unknown[0])
        marks = self._marks(first, int(unknown[-1]) + 1)[unknown - first]
        for block, mark in zip(unknown[marks != 0].tolist(), marks[marks != 0].tolist(), strict=True):
            start, stop = self.block_range(block)
            data = os.pread(self.fd, stop - start, start)
            if len(data) == stop - start and mark == _mark(data):
                self.verified[block] = True
        return unknown[~self.verified[unknown]]

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
        self.verified[block] = True

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


class BlockFile:
    """A remote file read through a sparse local copy: what was read once is read from a memory map.

    Args:
        path: The remote path, for messages.
        copy: Where the copy is; created if it does not exist.
        stat: Size and version of the file.
        hints: How the copy is read.
        source: Opens the file; called when a block is missing.
        space: The space of the cache.
        report: Called with the error when the copy cannot be written to; from then on it does not grow.

    Raises:
        NotACopyError: The file at `copy` is no copy.
        CacheWriteError: The copy cannot be created.
        FileNotFoundError: The copy was removed while it was opened.
    """

    buffer: mmap.mmap | bytes | None = None
    is_remote = True
    cached_from = 0

    def __init__(
        self,
        path: str,
        copy: str,
        stat: Stat,
        hints: Hints,
        source: Callable[[], File],
        space: CacheSpace,
        report: Callable[[CacheWriteError], None],
    ) -> None:
        self.path = path
        self.size = stat.size
        self.version = stat.version
        self._sparse = SparseFile(copy, stat.size, BLOCK_SIZE)
        self._file = MappedFile(copy, hints)
        if not mark_in_use(self._sparse.fd, copy) or not os.path.samestat(
            os.fstat(self._sparse.fd), os.fstat(self._file.fd)
        ):
            raise FileNotFoundError(copy)
        self._source = source
        self._space = space
        self._report = report
        self._remote: File | None = None
        self._can_grow = True

    def read(self, start: int, stop: int) -> Buffer:
        first, last = start // BLOCK_SIZE, -(-stop // BLOCK_SIZE)
        if not self._sparse.verified[first:last].all() and not self._fetch(np.arange(first, last)):
            return self._open_remote().read(start, stop)
        return self._file.read(start, stop)

    fetch = read

    def read_many(self, starts: Offsets, stops: Offsets) -> list[bytes]:
        if not self._fetch(blocks_of(starts, stops, self._sparse.count)):
            return self._open_remote().read_many(starts, stops)
        return self._file.read_many(starts, stops)

    def expect(self, starts: Offsets, stops: Offsets) -> None:
        self._fetch(blocks_of(starts, stops, self._sparse.count))

    def _fetch(self, blocks: Offsets) -> bool:
        """Fetches those of some blocks that are missing; returns whether all are present now."""
        missing = self._sparse.missing(blocks)
        step = MAX_FETCHED // BLOCK_SIZE
        for first in range(0, len(missing), step):
            if not self._can_grow or not self._fetch_missing(missing[first : first + step]):
                return False
        return True

    def _fetch_missing(self, blocks: Offsets) -> bool:
        if not self._reserve(len(blocks) * BLOCK_SIZE):
            return False
        runs = np.split(blocks, np.flatnonzero(np.diff(blocks) > 1) + 1)
        starts = np.array([run[0] for run in runs]) * BLOCK_SIZE
        stops = np.minimum((np.array([run[-1] for run in runs]) + 1) * BLOCK_SIZE, self.size)
        try:
            for run, data in zip(runs, self._open_remote().read_many(starts, stops), strict=True):
                view = memoryview(data)
                for number, block in enumerate(run.tolist()):
                    self._sparse.write_block(block, view[number * BLOCK_SIZE : (number + 1) * BLOCK_SIZE])
        except CacheWriteError as exc:
            self._can_grow = False
            self._report(exc)
            return False
        return True

    def _reserve(self, size: int) -> bool:
        if self._space.limit is None:
            return True
        with self._space.locked():
            return self._space.reserve(size)

    def _open_remote(self) -> File:
        if self._remote is None:
            self._remote = self._source()
        return self._remote


def blocks_of(starts: Offsets, stops: Offsets, count: int) -> Offsets:
    """Returns the blocks that hold some ranges, ascending, each once."""
    is_filled = stops > starts
    firsts, lasts = starts[is_filled] // BLOCK_SIZE, -(-stops[is_filled] // BLOCK_SIZE)
    if not len(firsts):
        return np.empty(0, np.int64)
    # How many ranges begin and end at each block: those where more have begun than ended hold some.
    depth = np.zeros(count + 1, np.int64)
    np.add.at(depth, firsts, 1)
    np.add.at(depth, lasts, -1)
    return np.flatnonzero(np.cumsum(depth)[:count] > 0)
