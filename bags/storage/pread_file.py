"""Local files read by descriptor."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable
from stat import S_ISDIR

import numpy as np

from bags.concurrency import CPU_COUNT, map_in_threads
from bags.storage.base import Buffer, Hints, Offsets
from bags.storage.options import AccessPattern, CachePolicy
from bags.storage.ranges import merge

__all__ = ['Extent', 'PreadFile', 'advise']

GAP = 1 << 14  # A hint or a read costs about as much as reading this many bytes more.
LARGE = 1 << 17  # From this size on, reads are divided among threads ...
THREADS = 32  # ... of this number, or one a processor where the page cache has them.
STREAK = 8  # After as many cached batches in a row, only each eighth is looked at.


def advise(fd: int, start: int, stop: int, name: str) -> None:
    """Tells the kernel what will be done with a range, where there is a way to; never fails."""
    advice = getattr(os, name, None)
    if advice is not None:
        try:
            os.posix_fadvise(fd, start, stop - start, advice)
        except OSError:
            pass  # A hint that the file system does not take changes nothing.


class PreadFile:
    """A local file read with `pread`, and, if so wished, dropped from the page cache after it."""

    version = ''
    buffer: mmap.mmap | bytes | None = None
    is_remote = False
    at_hand = 0

    def __init__(self, path: str, hints: Hints) -> None:
        self.path = path
        self.hints = hints
        self.fd = os.open(path, os.O_RDONLY | getattr(os, 'O_CLOEXEC', 0) | getattr(os, 'O_BINARY', 0))
        stat = os.fstat(self.fd)
        if S_ISDIR(stat.st_mode):
            raise IsADirectoryError(errno.EISDIR, 'Is a directory', path)
        self.size = stat.st_size
        self.streak = 0  # Batches in a row that were found in the page cache.
        self.turn = 0
        self.drops = hints.cache_policy is not CachePolicy.SYSTEM
        if hints.access_pattern is not AccessPattern.SYSTEM:
            advise(self.fd, 0, 0, f'POSIX_FADV_{hints.access_pattern.name}')

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # Kept in the signature, as `os` may be gone when the interpreter ends.
        for name in ('fd', 'direct'):
            fd = self.__dict__.pop(name, -1)
            if fd >= 0:
                close(fd)

    def read(self, start: int, stop: int) -> Buffer:
        return self.fetch(start, stop)

    def fetch(self, start: int, stop: int) -> bytes:
        """Reads a range with `pread`, whatever `read` does."""
        data = os.pread(self.fd, stop - start, start)
        while len(data) < stop - start:  # A signal, or more than the 2 GiB that one call reads.
            part = os.pread(self.fd, stop - start - len(data), start + len(data))
            if not part:
                raise EOFError(f'{self.path}: expected {stop} bytes, now there are {start + len(data)}')
            data += part
        if self.drops and stop > start:
            advise(self.fd, start, stop, 'POSIX_FADV_DONTNEED')
        return data

    def read_many(self, starts: Offsets, stops: Offsets) -> list[bytes]:
        if not len(starts):
            return []
        if int((stops - starts).sum()) >= LARGE * len(starts):
            return self.read_large(starts.tolist(), stops.tolist())
        runs = merge(starts, stops, GAP)
        if len(starts) > 1:
            self.expect(runs.starts, runs.stops)
        pieces = [memoryview(piece) for piece in self.read_runs(runs.starts.tolist(), runs.stops.tolist())]
        offsets = runs.starts[runs.owner]
        places = zip(
            runs.owner.tolist(), (starts - offsets).tolist(), (stops - offsets).tolist(), strict=True
        )
        return [bytes(pieces[run][start:stop]) for run, start, stop in places]

    def read_runs(self, starts: list[int], stops: list[int]) -> list[bytes]:
        """Reads ranges that are apart from each other."""
        return list(map(self.fetch, starts, stops))

    def read_large(self, starts: list[int], stops: list[int]) -> list[bytes]:
        """Reads long ranges in threads, each straight into its result.

        On a device a deep queue helps more than as many threads as processors would. From the page cache too
        if the memory for the results is fresh: its page faults are taken outside the GIL (512 records of
        1 MB: 590 µs a record as slices of a map, 400 µs so).
        """
        cold = self.is_cold(np.array(starts), np.array(stops))
        most = min(THREADS if cold else CPU_COUNT, self.hints.max_parallelism)
        return map_in_threads(lambda index: self.fetch(starts[index], stops[index]), range(len(starts)), most)

    def expect(self, starts: Offsets, stops: Offsets) -> None:
        """Has the kernel read ranges ahead, unless they are cached already.

        One thread then sees the device's full queue (4 KB records, cold: 6k/s without, 50k/s with).
        Each hint costs a system call, so a few of the ranges are first asked whether they are cached.
        """
        self.turn += 1
        if not len(starts) or (self.streak >= STREAK and self.turn % STREAK):
            return  # The last batches were cached, so most are not probed: a probe costs 3 us.
        if not self.is_cold(starts, stops):
            self.streak += 1
            return
        self.streak = 0
        runs = merge(starts, stops, GAP)
        fd = self.fd
        for start, stop in zip(runs.starts.tolist(), runs.stops.tolist(), strict=True):
            advise(fd, start, stop, 'POSIX_FADV_WILLNEED')

    def is_cold(self, starts: Offsets, stops: Offsets, looks: int = 3) -> bool:
        """Tells, from a sample, whether ranges are missing in the page cache; False if unknown."""
        last = len(starts) - 1
        byte = [bytearray(1)]
        try:
            # Asking through a descriptor of its own that is set to random access: else the kernel answers no,
            # and begins to read ahead, megabytes for each sample.
            probe = os.open(f'/proc/self/fd/{self.fd}', os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            os.posix_fadvise(probe, 0, 0, os.POSIX_FADV_RANDOM)
            for index in {last * look // (looks - 1) for look in range(looks)}:
                if stops[index] > starts[index]:
                    os.preadv(probe, byte, int(starts[index]), os.RWF_NOWAIT)
        except BlockingIOError:
            return True
        except (OSError, AttributeError):
            return False
        finally:
            os.close(probe)
        return False


class Extent:
    """A part of a local file, from where it begins, as what copies files takes one."""

    def __init__(self, file: PreadFile, start: int, stop: int) -> None:
        self._file = file
        self._position = start
        self._stop = stop
        self.name = file.path

    def fileno(self) -> int:
        return self._file.fd

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int) -> int:
        self._position = offset
        return offset

    def read(self, size: int) -> bytes:
        data = self._file.fetch(self._position, min(self._position + size, self._stop))
        self._position += len(data)
        return data
