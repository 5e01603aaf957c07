"""A remote file of which the cache keeps the blocks that were read."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

import numpy as np

from bags.storage.base import Buffer, File, Hints, Offsets, Stat
from bags.storage.cache.eviction import CacheSpace, mark_in_use
from bags.storage.cache.sparse_file import CacheWriteError, SparseFile
from bags.storage.mmap_file import MappedFile

__all__ = ['BLOCK_SIZE', 'BlockFile', 'blocks_of']

BLOCK_SIZE = 1 << 16
MAX_FETCHED = 1 << 26  # Bytes that are held in memory before they are written.


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
        if not self._sparse.known[first:last].all() and not self._fetch(np.arange(first, last)):
            return self._open_remote().read(start, stop)
        return self._file.read(start, stop)

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
        lock = self._space.lock()
        try:
            return self._space.reserve(size)
        finally:
            lock.release()

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
