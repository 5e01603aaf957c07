"""A storage with a local folder before it, which keeps what is read."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from typing import NoReturn

from bags.errors import CorruptError
from bags.storage.base import File, Hints, Lock, Output, Stat, Store
from bags.storage.cache.block_file import BlockFile
from bags.storage.cache.download import download
from bags.storage.cache.eviction import Room, pin, wait_for
from bags.storage.cache.sparse_file import Foreign, Unwritable
from bags.storage.local import LocalStore
from bags.storage.options import CacheMode
from bags.storage.pread_file import PreadFile

__all__ = ['CachedStore']


class CachedStore:
    """Reads files of another store through copies in a local folder.

    A copy is called by a hash of the file's path, size and version: a file that has changed is another one.
    Any number of processes may share a folder, and any of them may be killed.

    Args:
        inner: Where the files are.
        folder: Where their copies are; made, with those above it.
        limit: Most bytes the folder may take. When it is full, what was used longest ago goes; files
            that are in use stay, and if they alone fill it, others are read from the storage.
        mode: Whether whole files are kept or blocks.
    """

    is_remote = True

    def __init__(self, inner: Store, folder: str, limit: int | None, mode: CacheMode) -> None:
        self.inner = inner
        self.folder = folder
        self.limit = limit
        self.mode = mode
        self.local = LocalStore()
        self.local.make_folder(folder)
        self._room = Room(folder, limit)
        self._has_warned = False
        self._stats: dict[str, Stat] = {}
        """What was listed, or asked for: files are read as they were then."""

    # Reading.

    def open(self, path: str, hints: Hints) -> File:
        stat = self.stat(path)
        if not stat.size:
            return self.inner.open(path, hints)
        copy = self._copy_of(path, stat)
        file = self._open_copy(path, copy, stat, hints)
        if file is not None:
            return file
        if self.mode is CacheMode.BLOCKS:
            return self._open_blocks(path, copy, stat, hints)
        source = self._source(path, stat, hints)
        try:
            # Another process may have removed it again at once: a second time, it is read where it is.
            for _ in range(2):
                if not download(copy, stat.size, source, self._room, _ignore):
                    break
                file = self._open_copy(path, copy, stat, hints)
                if file is not None:
                    return file
        except Unwritable as exc:
            self._give_up(exc)
        return source()

    def read(self, path: str) -> bytes:
        if path not in self._stats or not self._stats[path].size:
            return self.inner.read(path)
        file = self.open(path, Hints())
        return bytes(file.read(0, file.size))

    def fetch(self, path: str, advance: Callable[[int], None]) -> bool:
        """Has the whole of a file copied, if it is not yet.

        Args:
            path: The file.
            advance: Is told how many bytes have come, each time some have.

        Returns:
            Whether it is there; False if there is no room.

        Raises:
            OSError: The disk is full, or the file cannot be read.
        """
        stat = self.stat(path)
        copy = self._copy_of(path, stat)
        if not stat.size or os.path.exists(copy):
            advance(stat.size)
            return True
        source = self._source(path, stat, Hints())
        try:
            return download(copy, stat.size, source, self._room, advance)
        except Unwritable as exc:
            exc.cause.filename = exc.cause.filename or self.folder
            raise exc.cause from None

    def _copy_of(self, path: str, stat: Stat) -> str:
        key = '\0'.join((path, str(stat.size), stat.version))
        return os.path.join(self.folder, hashlib.sha256(key.encode()).hexdigest()[:40])

    def _open_copy(self, path: str, copy: str, stat: Stat, hints: Hints) -> File | None:
        """Opens the whole copy of a file, if there is one."""
        try:
            file = self.local.open(copy, hints)
            if file.size != stat.size:
                os.unlink(copy)  # No copy that was completed here.
                return None
            if isinstance(file, PreadFile) and not pin(file.fd, copy):
                return None
        except FileNotFoundError:
            return None
        _touch(copy)
        file.path, file.version = path, stat.version
        return file

    def _open_blocks(self, path: str, copy: str, stat: Stat, hints: Hints) -> File:
        blocks, source, keep = f'{copy}.blocks', self._source(path, stat, hints), self._keeper()
        for _ in range(3):
            try:
                file = BlockFile(path, blocks, stat, hints, source, keep, self._give_up)
            except Foreign:
                os.unlink(blocks)
            except FileNotFoundError:
                continue  # Another process has just removed it.
            except Unwritable as exc:
                self._give_up(exc)
                break
            else:
                _touch(blocks)
                return file
        return source()

    def _keeper(self) -> Callable[[int], bool]:
        """Returns what asks for room."""
        room = self._room

        def keep(size: int) -> bool:
            if room.limit is None:
                return True
            lock = wait_for(room.folder)
            try:
                return room.make(size)
            finally:
                lock.release()

        return keep

    def _source(self, path: str, stat: Stat, hints: Hints) -> Callable[[], File]:
        """Returns what opens a file where it is, and makes sure that it is the one that is meant."""
        inner = self.inner

        def opened() -> File:
            file = inner.open(path, hints)
            if file.size != stat.size or (stat.version and file.version and file.version != stat.version):
                detail = f'has changed: expected {stat}, got {Stat(file.size, file.version)}'
                raise CorruptError(path, None, detail)
            return file

        return opened

    def _give_up(self, exc: Unwritable) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(f'cache {self.folder}: {exc.cause}; reading without it', RuntimeWarning, 2)

    # What is asked of the storage itself.

    def stat(self, path: str) -> Stat:
        stat = self._stats.get(path)
        if stat is None:
            stat = self._stats[path] = self.inner.stat(path)
        return stat

    def walk(self, folder: str) -> dict[str, Stat]:
        found = self.inner.walk(folder)
        for name, stat in found.items():
            self._stats[self.inner.join(folder, name)] = stat
        return found

    def learn(self, folder: str) -> None:
        """Makes sure that what is in the folder of a dataset is known, with one listing."""
        if self.inner.join(folder, 'spec.json') not in self._stats:
            self.walk(folder)

    def exists(self, path: str) -> bool:
        return path in self._stats or self.inner.exists(path)

    def size(self, path: str) -> int:
        return self._stats[path].size if path in self._stats else self.inner.size(path)

    def names(self, folder: str) -> list[str]:
        return self.inner.names(folder)

    def join(self, folder: str, name: str) -> str:
        return self.inner.join(folder, name)

    # Nothing is written through a cache.

    def create(self, path: str) -> Output:
        return self._refuse(path)

    def resume(self, path: str, size: int) -> Output:
        return self._refuse(path)

    def clone(self, path: str, target: str, size: int) -> None:
        self._refuse(path)

    def replace(self, path: str, data: bytes) -> None:
        self._refuse(path)

    def rename(self, path: str, target: str) -> None:
        self._refuse(path)

    def remove(self, path: str) -> None:
        self._refuse(path)

    def make_folder(self, folder: str) -> None:
        self._refuse(folder)

    def remove_folder(self, folder: str) -> None:
        self._refuse(folder)

    def lock(self, folder: str) -> Lock:
        return self._refuse(folder)

    def _refuse(self, path: str) -> NoReturn:
        raise ValueError(f'{path}: a cache is for reading')


def _ignore(size: int) -> None:
    """Nobody is told how far a download is that was not asked for."""


def _touch(path: str) -> None:
    """Notes that a copy is used now."""
    try:
        os.utime(path)
    except OSError:
        pass  # The folder of somebody else, or one that was filled and is only read now.
