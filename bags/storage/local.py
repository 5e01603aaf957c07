"""Local folders: opening, writing, copying and listing files."""

from __future__ import annotations

import contextlib
import copy
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

from bags.storage.base import MAX_SMALL_FILE_BYTES, Buffer, CachePolicy, Durability, File, Hints, Stat
from bags.storage.descriptors import mapped_files, open_descriptor, open_regular
from bags.storage.direct_file import DirectFile
from bags.storage.errors import too_large_error
from bags.storage.held_folder import HeldFolder
from bags.storage.locks import PathLock, is_at, is_locked
from bags.storage.mmap_file import MAX_MAPS, MappedFile
from bags.storage.positioned import O_BINARY, calls
from bags.storage.pread_file import PreadFile, version_of
from bags.storage.range_file import RangeFile, read_pieces
from bags.storage.sync import exchange, start_writing_back, sync_file, sync_folder

WRITABLE = os.O_RDWR | os.O_CREAT | O_BINARY
MAX_VECTORS = 1024  # Maximum number of buffers of one `writev` on Linux and macOS.
MAX_WRITE = 1 << 30  # Maximum bytes of one call: Linux writes at most 2 GiB, and macOS rejects larger writes.
WRITE_BACK_BYTES = 1 << 25
"""Bytes after which the kernel is asked to start writing them to disk, so that `close` is fast."""


def real_path(path: str) -> str:
    """Returns an absolute path without `..` and symbolic links. The file need not exist."""
    return os.path.realpath(path)


def is_file(path: str) -> bool:
    """Returns whether a path leads to a regular file: not a folder, a device or a pipe."""
    return os.path.isfile(path)


class LocalStore:
    """The local file system.

    Args:
        durability: When files are synced to disk.
    """

    is_remote = False
    version_type = 'mtime'
    is_web = False
    can_list = True
    request_counter = None
    exists = staticmethod(os.path.exists)
    join = staticmethod(os.path.join)
    lock = PathLock
    is_locked = staticmethod(is_locked)
    exchange = staticmethod(exchange)

    _held: HeldFolder | None = None
    """The folder that must be at its path whenever a file is changed."""

    def __init__(self, durability: Durability = Durability.CLOSE) -> None:
        self.durability = durability

    def expect_versions(self, folder: str, versions: Mapping[str, Stat], version_type: str) -> None:
        pass

    def hold(self, folder: str) -> LocalStore:
        held = copy.copy(self)
        held._held = HeldFolder(folder)
        return held

    def expect_held(self, moved_to: str | None = None) -> None:
        if self._held is not None:
            self._held.expect_in_place(moved_to)

    def release(self) -> None:
        if self._held is not None:
            self._held.release()

    def _at(self, path: str) -> tuple[str, int | None]:
        """Returns a path to change, and the descriptor of the folder that it is relative to, if any."""
        return (path, None) if self._held is None else self._held.locate(path)

    def _open(self, path: str, flags: int) -> int:
        name, folder = self._at(path)
        try:
            return open_descriptor(name, flags | O_BINARY, 0o666, folder)
        except OSError as exc:
            exc.filename = path
            raise

    def pinned(self, path: str) -> str:
        return path

    def open(self, path: str, hints: Hints) -> File:
        if hints.cache_policy is CachePolicy.DIRECT_IO:
            return DirectFile(path, hints)
        if hints.cache_policy is CachePolicy.DROP_AFTER_READ or not hints.mapped:
            return PreadFile(path, hints)
        if len(mapped_files) >= MAX_MAPS:
            return PreadFile(path, hints)
        return MappedFile(path, hints)

    def create(self, path: str) -> LocalOutput:
        return LocalOutput(self, path, self._open(path, WRITABLE | os.O_EXCL), 0)

    def resume(self, path: str, size: int) -> LocalOutput:
        return LocalOutput(self, path, self._open(path, WRITABLE), size)

    def clone(self, path: str, target: str, size: int) -> None:
        with open(path, 'rb') as file:
            output = self.create(target)
            try:
                output.copy(file, size)
                os.chmod(target, os.stat(path).st_mode)
                output.close()
            except BaseException:
                output.discard()
                raise

    def read(self, path: str, max_size: int = MAX_SMALL_FILE_BYTES) -> bytes:
        with open(path, 'rb', opener=open_regular) as file:
            size = os.fstat(file.fileno()).st_size
            if size > max_size:
                raise too_large_error(path, size, max_size)
            data = file.read(size + 1)
            if len(data) > size:  # The file grows, or its file system does not know its size.
                data += file.read(max_size + 1 - len(data))
                if len(data) > max_size:
                    raise too_large_error(path, len(data), max_size)
            return data

    def current_version(self, path: str) -> str | None:
        return ''

    def replace(self, path: str, data: bytes, version: str | None = '') -> None:
        temporary = f'{path}.{os.getpid()}.new'
        try:
            with open(temporary, 'wb', opener=self._open) as file:
                file.write(data)
                file.flush()
                if self.durability:
                    sync_file(file.fileno(), path)
            self.rename(temporary, path)
            self.sync_folder(os.path.dirname(path))
        except BaseException as exc:
            if isinstance(exc, OSError):
                exc.filename = exc.filename or path  # ENOSPC does not name the file.
            self.remove(temporary)
            raise

    def rename(self, path: str, target: str) -> None:
        (source, source_folder), (name, folder) = self._at(path), self._at(target)
        try:
            os.replace(source, name, src_dir_fd=source_folder, dst_dir_fd=folder)
        except OSError as exc:
            exc.filename, exc.filename2 = path, target
            raise

    def remove(self, path: str) -> None:
        name, folder = self._at(path)
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            pass
        except OSError as exc:
            exc.filename = path
            raise

    def stat(self, path: str) -> Stat:
        stat = os.stat(path)
        return Stat(stat.st_size, version_of(stat))

    def walk(self, folder: str) -> dict[str, Stat]:
        stats: dict[str, Stat] = {}
        folders = ['']
        while folders:
            prefix = folders.pop()
            with os.scandir(os.path.join(folder, prefix)) as entries:
                for entry in entries:
                    if entry.is_dir():
                        folders.append(f'{prefix}{entry.name}/')
                        continue
                    try:
                        stats[prefix + entry.name] = self.stat(entry.path)
                    except FileNotFoundError:
                        pass  # E.g. limits that a writer has just moved into their bag.
        return stats

    def names(self, folder: str) -> list[str]:
        return os.listdir(folder or '.')

    def make_folder(self, folder: str) -> None:
        self.expect_held()
        missing = []
        parent = folder
        while parent and not os.path.exists(parent):
            missing.append(parent)
            parent = os.path.dirname(parent)
        os.makedirs(folder, exist_ok=True)
        for created in missing:
            self.sync_folder(os.path.dirname(created))

    def sync(self, path: str) -> None:
        if self.durability:
            # Open for writing: Windows does not sync files that are open for reading.
            fd = open_descriptor(path, os.O_RDWR)
            try:
                sync_file(fd, path)
            finally:
                os.close(fd)

    def sync_folder(self, folder: str) -> None:
        if self.durability:
            sync_folder(folder)

    def remove_folder(self, folder: str) -> None:
        name, parent = self._at(folder)
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(name, dir_fd=parent)


class LocalOutput:
    """A local file that is being written: an `Output`.

    Args:
        store: The store of the file. If it is durable, `sync` and `close` sync the file to disk.
        path, fd: Path and descriptor of the file.
        size: Offset of the first write.
    """

    def __init__(self, store: LocalStore, path: str, fd: int, size: int) -> None:
        self.path = path
        self.size = size
        self.fd = fd
        self._store = store
        self._syncs = bool(store.durability)
        self._written_back = size
        """Offset up to which the kernel was asked to write the file to disk."""
        self._failure: OSError | None = None
        """The error of a failed sync, after which the system may have dropped data."""

    def write(self, buffers: Sequence[Buffer]) -> None:
        offset = self.size
        try:
            for first in range(0, len(buffers), MAX_VECTORS):
                part = buffers[first : first + MAX_VECTORS]
                total = sum(map(len, part))
                # `pwritev` may write less, e.g. after a signal.
                if total > MAX_WRITE or calls.pwritev(self.fd, part, offset) < total:
                    position = offset
                    for buffer in part:
                        view = memoryview(buffer)
                        while view:
                            done = calls.pwritev(self.fd, [view[:MAX_WRITE]], position)
                            view, position = view[done:], position + done
                offset += total
        except OSError as exc:
            exc.filename = self.path  # ENOSPC does not name the file.
            raise
        self.size = offset
        if self._syncs and offset - self._written_back >= WRITE_BACK_BYTES:
            start_writing_back(self.fd, self._written_back, offset)
            self._written_back = offset

    def copy(self, source: BinaryIO, size: int) -> None:
        before = self.size
        try:
            self.size = self._copy_file(source, before, before + size)
            for piece in read_pieces(source, before + size - self.size):
                self.write([piece])
        except BaseException:
            self.size = before
            raise

    def _copy_file(self, source: BinaryIO, offset: int, stop: int) -> int:
        """Copies from a local file in the kernel, which may share disk blocks; returns the offset reached."""
        try:
            position = source.tell()
            local = source.local_range() if isinstance(source, RangeFile) else (source.fileno(), position)
        except (OSError, AttributeError, ValueError):
            local = None
        if local is None or not hasattr(os, 'copy_file_range'):
            return offset
        fd, start = local
        begin, done = offset, 1
        while offset < stop and done:
            try:
                done = os.copy_file_range(fd, self.fd, stop - offset, start + offset - begin, offset)
            except OSError:
                break  # E.g. another file system, or a full disk: plain writes raise the real error.
            offset += done
        source.seek(position + offset - begin)
        return offset

    def read(self, start: int, stop: int) -> bytes:
        return calls.pread(self.fd, stop - start, start)

    def stored(self) -> int:
        return os.fstat(self.fd).st_size

    @property
    def closed(self) -> bool:
        return self.fd < 0

    def sync(self) -> None:
        if not self._syncs:
            return
        if self._failure is not None:
            raise self._failure
        try:
            sync_file(self.fd, self.path)
        except OSError as exc:
            self._failure = exc
            raise

    def close(self) -> None:
        if not self.closed:
            os.ftruncate(self.fd, self.size)  # A failed write may have left bytes after `size`.
            self.sync()
            self._release()

    def is_in_place(self) -> bool:
        # Windows does not remove or rename files that are open.
        return self.closed or sys.platform == 'win32' or is_at(self.fd, self.path)

    def discard(self) -> None:
        is_in_place = self.is_in_place()
        self._release()
        if is_in_place:
            self._store.remove(self.path)

    def _release(self, close: Callable[[int], None] = os.close) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            close(fd)

    def __del__(self) -> None:
        self._release()
