"""A remote file of which the cache keeps the blocks that were read."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

import numpy as np

from bags.storage.base import Buffer, File, Hints, Offsets, Stat
from bags.storage.cache.eviction import pin
from bags.storage.cache.sparse_file import Sparse, Unwritable
from bags.storage.mmap_file import MappedFile

__all__ = ['BLOCK', 'BlockFile']

BLOCK = 1 << 16
AT_ONCE = 1 << 26  # Bytes that are fetched, and held in memory, before they are written.


class BlockFile:
    """A remote file read through a sparse local copy: what was read once is read from a map.

    Args:
        path: The remote path, for messages.
        copy: Where the copy is; made if it is not there.
        stat: Size and version of the file.
        source: Opens the file; called when a block is missing.
        keep: Asks for room for so many bytes.
        give_up: Is told the error when the disk is full, say; from then on the copy does not grow.

    Raises:
        Foreign: What is there is no copy.
        Unwritable: No copy can be made.
        FileNotFoundError: It was removed while it was opened.
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
        keep: Callable[[int], bool],
        give_up: Callable[[Unwritable], None],
    ) -> None:
        self.path = path
        self.size = stat.size
        self.version = stat.version
        self._sparse = Sparse(copy, stat.size, BLOCK)
        self._file = MappedFile(copy, hints)
        if not pin(self._sparse.fd, copy) or not os.path.samestat(
            os.fstat(self._sparse.fd), os.fstat(self._file.fd)
        ):
            raise FileNotFoundError(copy)
        self._source = source
        self._keep = keep
        self._give_up = give_up
        self._remote: File | None = None
        self._grows = True

    def read(self, start: int, stop: int) -> Buffer:
        first, last = start // BLOCK, -(-stop // BLOCK)
        if not self._sparse.known[first:last].all() and not self._fill(np.arange(first, last)):
            return self._open().read(start, stop)
        return self._file.read(start, stop)

    def read_many(self, starts: Offsets, stops: Offsets) -> list[bytes]:
        if not self.fill(starts, stops):
            return self._open().read_many(starts, stops)
        return self._file.read_many(starts, stops)

    def expect(self, starts: Offsets, stops: Offsets) -> None:
        self.fill(starts, stops)

    def fill(self, starts: Offsets, stops: Offsets) -> bool:
        """Fetches the blocks of some ranges that are missing. Tells whether all are there now."""
        return self._fill(blocks_of(starts, stops, self._sparse.count))

    def _fill(self, blocks: Offsets) -> bool:
        missing = self._sparse.missing(blocks)
        for first in range(0, len(missing), AT_ONCE // BLOCK):
            if not self._grows or not self._fetch(missing[first : first + AT_ONCE // BLOCK]):
                return False
        return True

    def _fetch(self, blocks: Offsets) -> bool:
        if not self._keep(len(blocks) * BLOCK):
            return False
        cuts = np.flatnonzero(np.diff(blocks) > 1) + 1
        runs = np.split(blocks, cuts)
        starts = np.array([run[0] for run in runs]) * BLOCK
        stops = np.minimum((np.array([run[-1] for run in runs]) + 1) * BLOCK, self.size)
        try:
            for run, data in zip(runs, self._open().read_many(starts, stops), strict=True):
                view = memoryview(data)
                for place, block in enumerate(run.tolist()):
                    self._sparse.put(block, view[place * BLOCK : (place + 1) * BLOCK])
        except Unwritable as exc:
            self._grows = False
            self._give_up(exc)
            return False
        return True

    def _open(self) -> File:
        if self._remote is None:
            self._remote = self._source()
        return self._remote


def blocks_of(starts: Offsets, stops: Offsets, count: int) -> Offsets:
    """Returns the blocks that ranges lie in, rising, each once."""
    touched = stops > starts
    firsts, lasts = starts[touched] // BLOCK, -(-stops[touched] // BLOCK)
    if not len(firsts):
        return np.empty(0, np.int64)
    # How many ranges begin and end at each block: where more have begun than ended, it is touched.
    depth = np.zeros(count + 1, np.int64)
    np.add.at(depth, firsts, 1)
    np.add.at(depth, lasts, -1)
    return np.flatnonzero(np.cumsum(depth)[:count] > 0)
