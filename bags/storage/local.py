"""Local folders: opening, growing, renaming and locking files."""

from __future__ import annotations

import bisect
import errno
import itertools
import os
import struct
import weakref
from collections.abc import Callable, Sequence
from typing import BinaryIO

from bags.storage.base import Buffer, File, Hints, Stat
from bags.storage.direct_file import DirectFile
from bags.storage.mmap_file import MappedFile
from bags.storage.options import CachePolicy
from bags.storage.pread_file import PreadFile

__all__ = ['LocalOutput', 'LocalStore', 'PathLock', 'is_at']

PIECE = 1 << 22
BLOCK = 1 << 18  # Bytes that are copied at a time: they stay in the cache of the processor.
FICLONERANGE = 0x4020940D
VECTORS = 1024  # What Linux and macOS take in one writev.
# Bytes written in one call. From 2 MiB on, Linux takes whole blocks of its memory for them. In a virtual
# machine one such call in ten took three times as long (6.18, ext4): perhaps the host had taken the block.
MOST = (1 << 21) - 1


class LocalStore:
    """The local file system."""

    is_remote = False

    def open(self, path: str, hints: Hints) -> File:
        if hints.cache_policy is CachePolicy.DIRECT_IO:
            return DirectFile(path, hints)
        if hints.cache_policy is CachePolicy.DROP_AFTER_READ or not hints.mapped:
            return PreadFile(path, hints)
        return MappedFile(path, hints)

    def create(self, path: str) -> LocalOutput:
        return LocalOutput(path, os.open(path, _flags(os.O_RDWR | os.O_CREAT | os.O_EXCL), 0o666), 0)

    def resume(self, path: str, size: int) -> LocalOutput:
        fd = os.open(path, _flags(os.O_RDWR | os.O_CREAT), 0o666)
        os.ftruncate(fd, size)
        return LocalOutput(path, fd, size)

    def clone(self, path: str, target: str, size: int) -> None:
        source = os.open(path, _flags(os.O_RDONLY))
        try:
            output = LocalOutput(
                target, os.open(target, _flags(os.O_RDWR | os.O_CREAT | os.O_EXCL), 0o666), 0
            )
            try:
                with os.fdopen(os.dup(source), 'rb') as file:
                    output.copy(file, size)
                os.chmod(target, os.stat(path).st_mode)
            except BaseException:
                os.unlink(target)
                raise
            finally:
                output.close()
        finally:
            os.close(source)

    def read(self, path: str) -> bytes:
        with open(path, 'rb') as file:
            return file.read()

    def replace(self, path: str, data: bytes) -> None:
        beside = f'{path}.{os.getpid()}.new'
        try:
            with open(beside, 'wb') as file:
                file.write(data)
            os.replace(beside, path)
        except BaseException as exc:
            if isinstance(exc, OSError):
                exc.filename = exc.filename or path  # A full disk is of no file.
            self.remove(beside)
            raise

    def rename(self, path: str, target: str) -> None:
        os.replace(path, target)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def stat(self, path: str) -> Stat:
        found = os.stat(path)
        return Stat(found.st_size, str(found.st_mtime_ns))

    def walk(self, folder: str) -> dict[str, Stat]:
        found: dict[str, Stat] = {}
        folders = ['']
        while folders:
            prefix = folders.pop()
            with os.scandir(os.path.join(folder, prefix)) as entries:
                for entry in entries:
                    if entry.is_dir():
                        folders.append(f'{prefix}{entry.name}/')
                        continue
                    try:
                        found[prefix + entry.name] = self.stat(entry.path)
                    except FileNotFoundError:
                        pass  # Limits that a writer has just put into their bag.
        return found

    def names(self, folder: str) -> list[str]:
        return os.listdir(folder or '.')

    def make_folder(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)

    def remove_folder(self, folder: str) -> None:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            pass

    def join(self, folder: str, name: str) -> str:
        return os.path.join(folder, name)

    def lock(self, folder: str) -> PathLock:
        return PathLock(folder)


def _flags(flags: int) -> int:
    return flags | getattr(os, 'O_CLOEXEC', 0) | getattr(os, 'O_BINARY', 0)


def _shares_blocks(source: int, target: int) -> bool:
    """Tells if the file system of two files can have them share blocks, so that copying is next to nothing.

    Others copy in the kernel no faster than is done here (a gigabyte on ext4: 0.26 s, here 0.22 s).
    """
    try:
        import fcntl

        # A range that no file system can share: those that share others call it invalid.
        fcntl.ioctl(target, FICLONERANGE, struct.pack('=qQQQ', source, 1, 1, 1))
    except (ImportError, OSError) as exc:
        return getattr(exc, 'errno', None) == errno.EINVAL
    return True


class LocalOutput:
    """A local file that grows at its end."""

    def __init__(self, path: str, fd: int, size: int) -> None:
        self.path = path
        self.size = size
        self.fd = fd

    def write(self, buffers: Sequence[Buffer]) -> None:
        sizes = [buffer.nbytes if isinstance(buffer, memoryview) else len(buffer) for buffer in buffers]
        ends = list(itertools.accumulate(sizes, initial=0))
        start, first, count = self.size, 0, len(buffers)
        while first < count:
            # As many as take less than `MOST` together, or one.
            beyond = min(first + VECTORS, count) + 1
            last = max(first + 1, bisect.bisect_left(ends, ends[first] + MOST, first, beyond) - 1)
            done, total = 0, ends[last] - ends[first]
            if total < MOST:
                done = self._put(buffers[first:last], start + ends[first])
            if done < total:
                rest = memoryview(buffers[first] if last == first + 1 else b''.join(buffers[first:last]))
                while done < total:
                    done += self._put([rest[done : done + MOST]], start + ends[first] + done)
            first = last
        self.size = start + ends[-1]

    def _put(self, buffers: Sequence[Buffer], offset: int) -> int:
        try:
            return os.pwritev(self.fd, buffers, offset)
        except OSError as exc:
            exc.filename = self.path  # The system does not say which file has no room.
            raise

    def copy(self, source: BinaryIO, size: int) -> None:
        offset, stop = self.size, self.size + size
        offset = self._copy_file(source, offset, stop)
        while offset < stop:
            piece = source.read(min(PIECE, stop - offset))
            if not piece:
                raise EOFError(
                    f'{getattr(source, "name", source)}: expected {stop - offset} more bytes, got none'
                )
            view = memoryview(piece)
            while view:
                done = self._put([view], offset)
                view, offset = view[done:], offset + done
        self.size = stop

    def _copy_file(self, source: BinaryIO, offset: int, stop: int) -> int:
        """Copies from a file of the system; returns where it came to."""
        try:
            fd, start = source.fileno(), source.tell()
        except (OSError, AttributeError, ValueError):
            return offset  # Not a file of the system.
        begin = offset
        shares = _shares_blocks(fd, self.fd)
        view = memoryview(bytearray(0 if shares else min(BLOCK, stop - offset)))
        while offset < stop:
            place = start + offset - begin
            if shares:
                try:
                    done = os.copy_file_range(fd, self.fd, stop - offset, place, offset)
                except OSError:
                    break  # A full disk, say: plain writes meet what is real.
            else:
                done = os.preadv(fd, [view[: stop - offset]], place)
                if done:
                    done = self._put([view[:done]], offset)
            if not done:
                break
            offset += done
        source.seek(start + offset - begin)
        return offset

    def read(self, start: int, stop: int) -> bytes:
        return os.pread(self.fd, stop - start, start)

    def cut(self) -> None:
        os.ftruncate(self.fd, self.size)

    @property
    def closed(self) -> bool:
        return self.fd < 0

    def close(self) -> None:
        if not self.closed:
            self.cut()  # Behind it may lie what a failed write left.
            self._release()

    def discard(self) -> None:
        self._release()
        os.unlink(self.path)

    def _release(self, close: Callable[[int], None] = os.close) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            close(fd)

    def __del__(self) -> None:
        self._release()


_LOCKS: weakref.WeakSet[PathLock] = weakref.WeakSet()  # Only so that a forked child can let go of them.


class PathLock:
    """An advisory lock on a folder (`flock`), gone with the process, leaving no file behind.

    Raises:
        BlockingIOError: Another writer holds it.
    """

    def __init__(self, folder: str) -> None:
        self.fd = -1
        try:
            import fcntl
        except ImportError:  # Windows: files that are being written cannot be opened twice there anyway.
            return
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            os.close(fd)
            raise BlockingIOError(exc.errno, 'another writer is at work here', folder) from None
        except OSError:
            os.close(fd)  # A file system without locks.
            return
        if not is_at(fd, folder):
            os.close(fd)  # What was locked is what another writer removed since, or made anew.
            raise BlockingIOError(errno.EWOULDBLOCK, 'another writer was at work here', folder)
        self.fd = fd
        _LOCKS.add(self)

    def release(self) -> None:
        """Gives the lock up, also for children that were forked since and share the descriptor."""
        if self.fd >= 0:
            import fcntl

            fcntl.flock(self.fd, fcntl.LOCK_UN)
        self.leave()

    def leave(self, close: Callable[[int], None] = os.close) -> None:
        """Closes the descriptor: the lock stays with the processes that share it."""
        # Kept in the signature, as `os` may be gone when the interpreter ends.
        fd, self.fd = self.fd, -1
        if fd >= 0:
            close(fd)

    def __del__(self) -> None:
        self.leave()


def is_at(fd: int, path: str) -> bool:
    """Tells whether an open file is the one at a path."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _release_in_child() -> None:
    for lock in list(_LOCKS):
        lock.leave()


if hasattr(os, 'register_at_fork'):
    # A lock belongs to all processes that share the descriptor: a child that outlives its parent must
    # not hold it.
    os.register_at_fork(after_in_child=_release_in_child)
