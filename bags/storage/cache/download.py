"""Downloads whole files: in concurrent ranges, once for all processes, and resumed after a kill."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import zlib
from collections.abc import Callable, Iterator

from bags.concurrency import map_concurrently
from bags.storage.base import File
from bags.storage.cache.eviction import CacheSpace, wait_for_lock
from bags.storage.positioned import O_BINARY, calls
from bags.storage.pread_file import NO_LINK

CACHE_CHUNK_SIZE = 1 << 23  # Bytes of a request. An incomplete chunk is downloaded again.
MAX_CONNECTIONS = 8
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
PRESENT = 1 << 32


class NotACopyError(Exception):
    """The file belongs to another program, or is a damaged copy."""


class CacheWriteError(Exception):
    """The local disk cannot be written to, e.g. because it is full. The cause is an OSError."""

    def __init__(self, cause: OSError) -> None:
        self.cause = cause


@contextlib.contextmanager
def cache_writes() -> Iterator[None]:
    """Context manager that tells errors of the local disk from errors of the object store.

    Raises:
        CacheWriteError: The block raised an OSError.
    """
    try:
        yield
    except OSError as exc:
        raise CacheWriteError(exc) from exc


class PartialCopy:
    """A partial copy of a file: its chunks, some of them missing, followed by a mark for each chunk.

    A mark is a little-endian u64: 0 for a missing chunk, else 2³² plus the CRC-32 of the name of the copy
    (which depends on the version of the file), the number of the chunk, and its bytes. The mark is written
    after the chunk, and compared with it when the download is resumed, as a process or the machine may stop
    at any time.

    Args:
        path: Path of the copy; created if it does not exist.
        size: Bytes of the original file; at least 1.

    Raises:
        NotACopyError: The file at `path` is not such a copy.
        CacheWriteError: The copy cannot be created.
    """

    def __init__(self, path: str, size: int) -> None:
        self.size = size
        self.name = os.path.basename(path)
        self.count = -(-size // CACHE_CHUNK_SIZE)
        total = size + 8 * self.count
        with cache_writes():
            self.fd = self._open(path)
            found = os.fstat(self.fd)
            if not is_own(found):
                raise NotACopyError(f'{path}: expected a file, got a link or something else')
            actual = found.st_size
            if not actual:
                os.ftruncate(self.fd, total)
                actual = total
        if actual != total:
            raise NotACopyError(f'{path}: expected {total} bytes, got {actual}')

    def _open(self, path: str) -> int:
        """Creates or opens the file. Others may be able to put links in the folder: they are not followed."""
        flags = os.O_RDWR | O_BINARY | NO_LINK
        try:
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            pass
        try:
            return os.open(path, flags)
        except PermissionError as exc:
            raise NotACopyError(f'{path}: belongs to another user') from exc

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # `close` is an argument because `os` may be cleared already when the interpreter exits.
        fd = self.__dict__.pop('fd', -1)
        if fd >= 0:
            close(fd)

    def chunk_range(self, chunk: int) -> tuple[int, int]:
        """Returns start and stop of a chunk in the file."""
        return chunk * CACHE_CHUNK_SIZE, min(self.size, (chunk + 1) * CACHE_CHUNK_SIZE)

    def missing(self) -> list[int]:
        """Returns the numbers of the chunks that are missing or incomplete."""
        return [chunk for chunk in range(self.count) if not self._is_whole(chunk)]

    def _is_whole(self, chunk: int) -> bool:
        mark = calls.pread(self.fd, 8, self.size + 8 * chunk)
        start, stop = self.chunk_range(chunk)
        return any(mark) and mark == self._mark(chunk, calls.pread(self.fd, stop - start, start))

    def _mark(self, chunk: int, data: bytes | memoryview) -> bytes:
        seed = zlib.crc32(f'{self.name} {chunk}'.encode())
        return (PRESENT | zlib.crc32(data, seed)).to_bytes(8, 'little')

    def write(self, chunk: int, data: bytes | memoryview) -> None:
        """Writes a chunk, then its mark.

        Raises:
            CacheWriteError: The chunk could not be written. It is still missing or present, as before.
        """
        with cache_writes():
            _write(self.fd, data, self.chunk_range(chunk)[0])
            _write(self.fd, self._mark(chunk, data), self.size + 8 * chunk)

    def finish(self) -> None:
        """Syncs the file to disk and removes the marks, once all chunks are present.

        Raises:
            CacheWriteError: Chunks may not have reached the disk.
        """
        with cache_writes():
            os.fsync(self.fd)
            os.ftruncate(self.fd, self.size)


def is_own(found: os.stat_result) -> bool:
    """Returns whether a file of the cache may be written to: a regular file with no other hard link."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink <= 1


def _write(fd: int, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = calls.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done


def download(
    target: str, size: int, source: Callable[[], File], space: CacheSpace, advance: Callable[[int], None]
) -> bool:
    """Makes a local copy of a file. Waits if another process is downloading it.

    The incomplete copy is `target.part`, under a lock that ends with this process. The download of a killed
    process is resumed.

    Args:
        target: Path of the copy.
        size: Bytes of the file; at least 1.
        source: Opens the file.
        space: The space of the cache.
        advance: Called with the number of bytes of each chunk that has arrived.

    Returns:
        Whether the copy exists; False if the cache has no space for it.

    Raises:
        CacheWriteError: The disk is full, or cannot be written to.
        OSError: The file cannot be read.
    """
    part = f'{target}.part'
    while not os.path.exists(target):
        with cache_writes():
            if not _reserve(part, size, space):
                return False
            try:
                lock = wait_for_lock(part, NO_LINK)
            except FileNotFoundError:
                continue  # Another process has completed the copy.
        try:
            _complete(part, size, source, advance)
            # Locked, as a concurrent listing of the folder may miss a file that is being renamed.
            with cache_writes(), space.locked():
                os.rename(part, target)
        except NotACopyError:
            with cache_writes():
                os.unlink(part)
        except CacheWriteError as exc:
            if exc.cause.errno in DISK_FULL:
                os.unlink(part)  # In other cases, the next attempt reuses the chunks that arrived.
            raise
        finally:
            lock.release()
    return True


def _reserve(part: str, size: int, space: CacheSpace) -> bool:
    """Creates the file with its final size, so that every process counts its space."""
    with space.locked():
        try:
            if is_own(os.lstat(part)):
                return True
            os.unlink(part)  # A link or a pipe, which another user may have put here.
        except FileNotFoundError:
            pass
        if not space.reserve(size):
            return False
        try:
            PartialCopy(part, size)
        except NotACopyError as exc:
            raise FileExistsError(errno.EEXIST, str(exc), part) from exc
        return True


def _complete(part: str, size: int, source: Callable[[], File], advance: Callable[[int], None]) -> None:
    if os.lstat(part).st_size == size:
        return  # Its process ended after `finish`, before the rename.
    copy = PartialCopy(part, size)
    missing = copy.missing()
    if missing:
        file = source()

        def fetch(chunk: int) -> None:
            start, stop = copy.chunk_range(chunk)
            copy.write(chunk, memoryview(file.read(start, stop)))
            advance(stop - start)

        map_concurrently(fetch, missing, max_threads=MAX_CONNECTIONS)
    copy.finish()
