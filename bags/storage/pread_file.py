"""Local files read with `pread`, with read-ahead hints for pages that are missing in the page cache."""

from __future__ import annotations

import functools
import mmap
import os
from collections.abc import Callable
from stat import S_ISREG

import numpy as np

from bags.concurrency import CPU_COUNT, map_concurrently
from bags.storage.base import AccessPattern, Buffer, CachePolicy, Hints, Offsets
from bags.storage.descriptors import (
    READ_FLAGS,
    Descriptor,
    FileChangedError,
    ReopenableFile,
    descriptors,
    irregular_error,
    mapped_files,
    open_regular,
    opened_path,
)
from bags.storage.positioned import calls
from bags.storage.ranges import merge

MERGE_GAP = 1 << 14  # Bytes that are cheaper to read than to skip with another hint or read.
PARALLEL_SIZE = 1 << 17  # Ranges with a mean size of at least this many bytes are read by threads.
MAX_READ_THREADS = 32  # Maximum number of these threads; one per processor for ranges in the page cache.
CACHED_STREAK = 8  # After this many cached batches in a row, only every eighth batch is probed.
NO_LINK = os.O_NOFOLLOW | os.O_NONBLOCK if hasattr(os, 'O_NOFOLLOW') else 0
"""Flags of `os.open` that reject symbolic links and do not block on pipes; 0 if the system lacks them."""


def advise(fd: int, start: int, stop: int, name: str) -> None:
    """Calls `posix_fadvise` on a range, if the system supports it. Ignores errors."""
    advice = getattr(os, name, None)
    if advice is not None:
        try:
            os.posix_fadvise(fd, start, stop - start, advice)
        except OSError:
            pass  # The file system does not support the hint.


version_of: Callable[[os.stat_result], str] = '{0.st_ino}-{0.st_mtime_ns}'.format
"""Returns a string that changes when a file is modified or replaced."""


def read_ends(path: str, count: int) -> tuple[int, list[bytes]]:
    """Returns the size of a local file, and its first and last bytes. The file is closed again.

    Args:
        path: The file.
        count: Number of bytes of each part. A file of fewer than `2 * count` bytes is returned as one part.

    Raises:
        FileNotFoundError, IsADirectoryError: The file does not exist, or is a folder.
        EOFError: The file was truncated while it was read.
    """
    fd = open_regular(path)
    try:
        stat = os.fstat(fd)
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
        raise EOFError(f'{path}: expected {size} bytes, but the file has changed since it was opened')
    return size, parts


class PreadFile:
    """A local file read with `pread`. By the cache policy, its pages are dropped from the page cache."""

    buffer: mmap.mmap | bytes | None = None
    is_remote = False
    cached_from = 0

    def __init__(self, path: str, hints: Hints, flags: int = 0) -> None:
        self.path = path
        self.hints = hints
        prepare = None
        if hints.access_pattern is not AccessPattern.SYSTEM:
            advice = f'POSIX_FADV_{hints.access_pattern.name}'
            prepare = functools.partial(advise, start=0, stop=0, name=advice)
        self.file = ReopenableFile()
        self.file.path, self.file.flags = path, READ_FLAGS | flags
        self.file.prepare = prepare
        self.kept: Descriptor | None = None
        """The descriptor, if it stays open as long as the file."""
        descriptor = self.file.open()
        stat = self.file.stat
        assert stat is not None
        if not S_ISREG(stat.st_mode):
            raise irregular_error(path, stat.st_mode)
        descriptors[self.file] = descriptor
        if hints.keep_open:
            self.kept = descriptor
        self.size = stat.st_size
        self.version = version_of(stat)
        self.cached_streak = 0  # Number of consecutive batches that were in the page cache.
        self.batch_count = 0
        self.drops = hints.cache_policy is not CachePolicy.SYSTEM

    def __del__(
        self,
        opened: dict[ReopenableFile, Descriptor] = descriptors,
        mapped: dict[int, None] = mapped_files,
    ) -> None:
        # The dicts are arguments because the module may be cleared already when the interpreter exits.
        mapped.pop(id(self), None)
        for name in ('file', 'direct'):
            opened.pop(self.__dict__.get(name), None)  # type: ignore[arg-type]

    def descriptor(self) -> Descriptor:
        """Returns the descriptor, which is opened again if the process needed it for other files.

        Raises:
            FileChangedError: The file was replaced or changed since it was opened.
        """
        return descriptors[self.file] if self.kept is None else self.kept

    def read(self, start: int, stop: int) -> Buffer:
        return self.fetch(start, stop)

    def fetch(self, start: int, stop: int) -> bytes:
        """Reads a range with `pread`, also in subclasses that override `read`.

        Raises:
            FileChangedError: The process needed the descriptor for other files, and the file was replaced or
                changed since it was opened.
        """
        try:
            descriptor = descriptors[self.file] if self.kept is None else self.kept
        except FileChangedError as exc:
            return self.fetch_changed(start, stop, exc)
        data = calls.pread(descriptor, stop - start, start)
        while len(data) < stop - start:  # A signal interrupted the read, or it exceeds the 2 GiB of one call.
            part = calls.pread(descriptor, stop - start - len(data), start + len(data))
            if not part:
                raise EOFError(f'{self.path}: expected {stop} bytes, got {start + len(data)}')
            data += part
        if self.drops and stop > start:
            advise(descriptor, start, stop, 'POSIX_FADV_DONTNEED')
        return data

    def fetch_changed(self, start: int, stop: int, error: FileChangedError) -> bytes:
        """Reads a range of a file that cannot be opened again, or raises the error."""
        raise error

    def read_many(self, starts: Offsets, stops: Offsets) -> list[bytes]:
        if len(starts) < 2:
            return [self.fetch(int(start), int(stop)) for start, stop in zip(starts, stops, strict=True)]
        if int((stops - starts).sum()) >= PARALLEL_SIZE * len(starts):
            return self.read_large(starts.tolist(), stops.tolist())
        runs = merge(starts, stops, MERGE_GAP)
        self.will_need(runs.starts, runs.stops)
        pieces = self.read_runs(runs.starts.tolist(), runs.stops.tolist())
        if len(pieces) == len(starts):  # Nothing was merged.
            return list(map(pieces.__getitem__, runs.owner.tolist()))
        return list(map(bytes, runs.cut([memoryview(piece) for piece in pieces], starts, stops)))

    def read_runs(self, starts: list[int], stops: list[int]) -> list[bytes]:
        """Reads ranges that do not overlap."""
        return list(map(self.fetch, starts, stops))

    def read_large(self, starts: list[int], stops: list[int]) -> list[bytes]:
        """Reads long ranges in threads, as devices are faster with a deep queue."""
        cold = self.is_cold(np.array(starts), np.array(stops), 16)
        threads = min(MAX_READ_THREADS if cold else CPU_COUNT, self.hints.max_parallelism)
        return map_concurrently(
            lambda run: self.fetch(starts[run], stops[run]), range(len(starts)), max_threads=threads
        )

    def will_need(self, starts: Offsets, stops: Offsets) -> None:
        """Asks the kernel to read ranges ahead, unless they are in the page cache already.

        One thread then uses the full queue of the device (cold 4 KB records: 6k/s without hints, 50k/s with).
        Each hint costs a system call, so a few of the ranges are probed first.
        """
        self.batch_count += 1
        if not len(starts) or (self.cached_streak >= CACHED_STREAK and self.batch_count % CACHED_STREAK):
            return  # The last batches were cached, so most batches are not probed: a probe costs 3 us.
        if not self.is_cold(starts, stops):
            self.cached_streak += 1
            return
        self.cached_streak = 0
        runs = merge(starts, stops, MERGE_GAP)
        try:
            descriptor = self.descriptor()
        except EOFError:
            return  # The next read raises the error.
        for start, stop in zip(runs.starts.tolist(), runs.stops.tolist(), strict=True):
            advise(descriptor, start, stop, 'POSIX_FADV_WILLNEED')

    def is_cold(self, starts: Offsets, stops: Offsets, probes: int = 3) -> bool:
        """Returns whether some of the probed ranges are missing in the page cache; False if unknown."""
        last = len(starts) - 1
        byte = [bytearray(1)]
        try:
            # Probes use another descriptor, set to random access: otherwise the kernel would read ahead
            # megabytes for each probe.
            descriptor = self.descriptor()
            probe = os.open(f'/proc/self/fd/{int(descriptor)}', os.O_RDONLY)
        except (OSError, EOFError):
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
    """A folder at a resolved path, in which files are opened without resolving their paths.

    Args:
        path: The resolved path of the folder, without symbolic links.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def open(self, name: str, hints: Hints) -> PreadFile | None:
        """Opens a regular file in the folder.

        Returns:
            The file; None if the caller has to open its whole path, which may fail: if it is not a regular
            file, or if a symbolic link has come into its path.
        """
        path = f'{self.path}/{name}'
        try:
            if NO_LINK:
                file = PreadFile(path, hints, NO_LINK)
                return file if opened_path(descriptors[file.file], path) == path else None
        except (OSError, EOFError):
            pass
        return None
