"""Local files read past the page cache, with `O_DIRECT`."""

from __future__ import annotations

import mmap
import os
import sys
import threading

from bags.bag.files.pread import THREADS, PreadFile
from bags.bag.files.protocols import Hints
from bags.bag.ranges import split

__all__ = ['DirectFile']

ALIGNMENTS = (512, 1024, 2048, 4096, 8192, 16384, 65536)
KEPT = 1 << 20  # Bytes of the aligned buffer that a thread keeps between reads.


class DirectFile(PreadFile):
    """A local file whose blocks go from the device into the result, leaving the page cache alone.

    Offset, length and memory of such a read must be aligned. By how much is found by trying, from small
    to large (Python has no `statx` to ask with). The end of the file that fills no block is read once,
    at open, in the usual way. Where the file system refuses, reads go through the cache and are dropped.
    """

    def __init__(self, path: str, hints: Hints) -> None:
        super().__init__(path, hints)
        self.local = threading.local()
        self.alignment = 0
        self.direct = self._open_direct()
        if self.direct >= 0:
            self.alignment = self._probe()
        self.body = self.size - self.size % self.alignment if self.alignment else 0
        self.tail = PreadFile.fetch(self, self.body, self.size) if self.alignment else b''

    def _open_direct(self) -> int:
        try:
            if sys.platform == 'darwin':
                import fcntl

                fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
                fcntl.fcntl(fd, fcntl.F_NOCACHE, 1)
                return fd
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
        except (OSError, AttributeError):
            return -1

    def _probe(self) -> int:
        """Returns the least alignment that reads are accepted with, or 0 if none is."""
        buffer = mmap.mmap(-1, max(ALIGNMENTS))
        for alignment in ALIGNMENTS:
            if alignment > self.size:
                break
            # An offset that is a multiple of this alignment and of no larger one.
            offset = alignment if self.size >= 2 * alignment else 0
            try:
                if os.preadv(self.direct, [memoryview(buffer)[:alignment]], offset) == alignment:
                    return alignment
            except OSError:
                continue
        return 0

    def fetch(self, start: int, stop: int) -> bytes:
        if not self.alignment or stop <= start:
            return super().fetch(start, stop)
        if start >= self.body:
            return self.tail[start - self.body : stop - self.body]
        first = start - start % self.alignment
        last = min(self.body, -(-stop // self.alignment) * self.alignment)
        buffer = self._aligned(last - first)
        filled = 0
        while filled < last - first:
            try:
                count = os.preadv(self.direct, [buffer[filled : last - first]], first + filled)
            except OSError:
                return super().fetch(start, stop)
            if not count:
                raise EOFError(f'{self.path}: expected {stop} bytes, now there are {first + filled}')
            if count % self.alignment:
                return super().fetch(start, stop)
            filled += count
        data = bytes(buffer[start - first : min(stop, last) - first])
        return data if stop <= last else data + self.tail[: stop - self.body]

    def _aligned(self, size: int) -> memoryview:
        """Returns memory that starts at a page; this thread's own until its next read."""
        kept: memoryview | None = getattr(self.local, 'buffer', None)
        if kept is not None and size <= len(kept):
            return kept
        # Private: a forked child must not read into what its parent reads into.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        buffer = memoryview(mmap.mmap(-1, max(size, KEPT // 16), flags))
        if size <= KEPT:
            self.local.buffer = buffer
        return buffer

    def read_runs(self, starts: list[int], stops: list[int]) -> list[bytes]:
        """Reads ranges in threads: nothing is cached, so each waits for the device."""
        parts = split(len(starts), min(THREADS, self.hints.max_parallelism))
        if len(parts) == 1:
            return list(map(self.fetch, starts, stops))
        return self.read_large(starts, stops)

    def is_cold(self, starts: object, stops: object, looks: int = 0) -> bool:
        return False  # Hints would fill the cache that is to be left alone.
