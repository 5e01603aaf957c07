"""Local files read by descriptor, and hints to the kernel about pages that are missing in its cache."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable
from stat import S_ISDIR, S_ISREG

import numpy as np

from bags.concurrency import CPU_COUNT, map_concurrently
from bags.storage.base import AccessPattern, Buffer, CachePolicy, Hints, Offsets
from bags.storage.positioned import O_BINARY, calls
from bags.storage.ranges import merge

MERGE_GAP = 1 << 14  # Bytes that are cheaper to read than to skip with another hint or read.
PARALLEL_SIZE = 1 << 17  # Ranges of this size or more are read by threads.
MAX_THREADS = 32  # Number of these threads; one per processor if the page cache holds the ranges.
CACHED_STREAK = 8  # After this many cached batches in a row, only every eighth is probed.
NO_LINK = os.O_NOFOLLOW | os.O_NONBLOCK if hasattr(os, 'O_NOFOLLOW') else 0
"""Flags to open what is neither a symbolic link nor a pipe that would be waited for; 0 if there are none."""


def advise(fd: int, start: int, stop: int, name: str) -> None:
    """Passes the kernel a hint of `posix_fadvise` about a range, if the system has that call; never fails."""
    advice = getattr(os, name, None)
    if advice is not None:
        try:
            os.posix_fadvise(fd, start, stop - start, advice)
        except OSError:
            pass  # The file system takes no such hint.


def version_of(stat: os.stat_result) -> str:
    """Returns a text that changes when a file is modified or replaced by another one."""
    return f'{stat.st_ino}-{stat.st_mtime_ns}'


def read_ends(path: str, count: int) -> tuple[int, list[bytes]]:
    """Returns the size of a local file, and its first and last bytes. It is closed again.

    Args:
        path: The file.
        count: Bytes of each part. A file of fewer than two of them is one part.

    Raises:
        FileNotFoundError, IsADirectoryError: There is no such file.
        EOFError: It was cut meanwhile.
    """
    fd = os.open(path, os.O_RDONLY | O_BINARY)
    try:
        stat = os.fstat(fd)
        if S_ISDIR(stat.st_mode):
            raise IsADirectoryError(errno.EISDIR, 'Is a directory', path)
        size = stat.st_size
        if size < 2 * count:
            parts, expected = [calls.pread(fd, 2 * count, 0)], size
        else:
            parts, expected = [calls.pread(fd, count, 0), calls.pread(fd, count, size - count)], 2 * count
    except OSError as exc:
        exc.filename = exc.filename or path
        raise
    finally:
        os.close(fd)
    if sum(map(len, parts)) != expected:
        raise EOFError(f'{path}: expected {size} bytes, now there are others: it has changed')
    return size, parts


class PreadFile:
    """A local file read with `pread`, and, by the cache policy, dropped from the page cache after it."""

    buffer: mmap.mmap | bytes | None = None
    is_remote = False
    cached_from = 0

    def __init__(self, path: str, hints: Hints, flags: int = 0) -> None:
        self.path = path
        self.hints = hints
        self.fd = os.open(path, os.O_RDONLY | O_BINARY | flags)
        stat = os.fstat(self.fd)
        if S_ISDIR(stat.st_mode):
            raise IsADirectoryError(errno.EISDIR, 'Is a directory', path)
        self.size = stat.st_size
        self.version = version_of(stat)
        self.cached_streak = 0  # Batches in a row that were found in the page cache.
        self.batch_count = 0
        self.drops = hints.cache_policy is not CachePolicy.SYSTEM
        if hints.access_pattern is not AccessPattern.SYSTEM:
            advise(self.fd, 0, 0, f'POSIX_FADV_{hints.access_pattern.name}')

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # An argument, as `os` may be cleared already when the interpreter exits.
        for name in ('fd', 'direct'):
            fd = self.__dict__.pop(name, -1)
            if fd >= 0:
                close(fd)

    def read(self, start: int, stop: int) -> Buffer:
        return self.fetch(start, stop)

    def fetch(self, start: int, stop: int) -> bytes:
        """Reads a range with `pread`, also in subclasses that override `read`."""
        data = calls.pread(self.fd, stop - start, start)
        while len(data) < stop - start:  # After a signal, or as one call reads at most 2 GiB.
            part = calls.pread(self.fd, stop - start - len(data), start + len(data))
            if not part:
                raise EOFError(f'{self.path}: expected {stop} bytes, now there are {start + len(data)}')
            data += part
        if self.drops and stop > start:
            advise(self.fd, start, stop, 'POSIX_FADV_DONTNEED')
        return data

    def read_many(self, starts: Offsets, stops: Offsets) -> list[bytes]:
        if len(starts) < 2:
            return [self.fetch(int(start), int(stop)) for start, stop in zip(starts, stops, strict=True)]
        if int((stops - starts).sum()) >= PARALLEL_SIZE * len(starts):
            return self.read_large(starts.tolist(), stops.tolist())
        runs = merge(starts, stops, MERGE_GAP)
        self.expect(runs.starts, runs.stops)
        pieces = [memoryview(piece) for piece in self.read_runs(runs.starts.tolist(), runs.stops.tolist())]
        return list(map(bytes, runs.cut(pieces, starts, stops)))

    def read_runs(self, starts: list[int], stops: list[int]) -> list[bytes]:
        """Reads ranges that do not overlap."""
        return list(map(self.fetch, starts, stops))

    def read_large(self, starts: list[int], stops: list[int]) -> list[bytes]:
        """Reads long ranges in threads: a device is faster with a deep queue."""
        cold = self.is_cold(np.array(starts), np.array(stops), 16)
        threads = min(MAX_THREADS if cold else CPU_COUNT, self.hints.max_parallelism)
        return map_concurrently(
            lambda run: self.fetch(starts[run], stops[run]), range(len(starts)), max_threads=threads
        )

    def expect(self, starts: Offsets, stops: Offsets) -> None:
        """Has the kernel read ranges ahead, unless they are cached already.

        One thread then uses the device's full queue (4 KB records, cold: 6k/s without, 50k/s with). Each
        hint costs a system call, so a few of the ranges are probed first.
        """
        self.batch_count += 1
        if not len(starts) or (self.cached_streak >= CACHED_STREAK and self.batch_count % CACHED_STREAK):
            return  # The last batches were cached, so most are not probed: a probe costs 3 us.
        if not self.is_cold(starts, stops):
            self.cached_streak += 1
            return
        self.cached_streak = 0
        runs = merge(starts, stops, MERGE_GAP)
        fd = self.fd
        for start, stop in zip(runs.starts.tolist(), runs.stops.tolist(), strict=True):
            advise(fd, start, stop, 'POSIX_FADV_WILLNEED')

    def is_cold(self, starts: Offsets, stops: Offsets, probes: int = 3) -> bool:
        """Returns whether ranges are missing in the page cache, from a sample; False if unknown."""
        last = len(starts) - 1
        byte = [bytearray(1)]
        try:
            # Through another descriptor, set to random access: else the kernel would begin to read ahead,
            # megabytes for each probe.
            probe = os.open(f'/proc/self/fd/{self.fd}', os.O_RDONLY)
        except OSError:
            return False
        try:
            os.posix_fadvise(probe, 0, 0, os.POSIX_FADV_RANDOM)
            for index in {last * number // (probes - 1) for number in range(probes)}:
                if stops[index] > starts[index]:
                    os.preadv(probe, byte, int(starts[index]), os.RWF_NOWAIT)
        except BlockingIOError:
            return True
        except (OSError, AttributeError):
            return False
        finally:
            os.close(probe)
        return False


class RealFolder:
    """A folder whose path has no symbolic link, so that files in it are opened without resolving theirs.

    Args:
        path: The folder, resolved.

    Raises:
        OSError: There is no such folder.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._identity = _identity(path)

    def open(self, name: str, hints: Hints) -> PreadFile | None:
        """Opens a file in the folder.

        Returns:
            None if that has to be done, or has to fail, by the whole path: for all but ordinary files, and if
            another folder has this path now.
        """
        path = f'{self.path}/{name}'
        try:
            if NO_LINK and S_ISREG(os.lstat(path).st_mode):
                file = PreadFile(path, hints, NO_LINK)
                return file if _identity(self.path) == self._identity else None
        except OSError:
            pass
        return None


def _identity(path: str) -> tuple[int, int]:
    stat = os.lstat(path)
    return stat.st_dev, stat.st_ino
