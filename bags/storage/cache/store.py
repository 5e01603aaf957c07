"""A store that reads files of another store through a local cache folder."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import warnings
import zlib
from collections.abc import Callable, Mapping
from stat import S_ISREG
from typing import Any, NoReturn

from bags.storage.base import MAX_SMALL_FILE_BYTES, Durability, File, Hints, Stat, Store
from bags.storage.cache.download import CacheWriteError, download
from bags.storage.cache.eviction import CacheSpace, mark_in_use
from bags.storage.descriptors import open_regular
from bags.storage.errors import replaced_error, too_large_error
from bags.storage.local import LocalStore
from bags.storage.memory_file import MemoryFile
from bags.storage.positioned import O_BINARY
from bags.storage.pread_file import NO_LINK, PreadFile
from bags.storage.request_counter import RequestCounter


class CachedStore:
    """Reads files of another store through copies in a local folder.

    The name of a copy is a hash of the path, size and version of the file, so that a changed file has another
    copy, and of the endpoint of its store. Any number of processes may share a folder, and any of them may be
    killed at any time.

    A folder that contains other files is not used: files are read from the inner store, with a warning.

    Args:
        inner: The store of the files.
        folder: The folder of the copies; created for this user only, if it does not exist.
        limit: Maximum bytes of the folder. When it is full, the least recently used files are removed. Files
            in use stay; if they fill the folder, other files are read from the inner store.
        check: 'open' to ask the inner store, when files are first used, whether they have changed; 'never' to
            ask only what the folder has no answer to.
        origin: The endpoint and the account of the inner store, if its URLs do not tell them.
    """

    is_remote = True
    durability = Durability.NONE

    def __init__(
        self, inner: Store, folder: str, limit: int | None, check: str = 'open', origin: str = ''
    ) -> None:
        self.inner = inner
        self.join = inner.join
        self.folder = folder
        self.limit = limit
        self.check = check
        self._origin = f'\0{origin}' if origin else ''
        self.local = LocalStore(Durability.NONE)
        try:
            os.makedirs(folder, 0o700, exist_ok=True)
        except FileExistsError:
            detail = 'cache: expected a folder, got a file, or a link to nothing'
            raise NotADirectoryError(errno.ENOTDIR, detail, folder) from None
        self._space = CacheSpace(folder, limit)
        self._refusal = self._space.claim()
        """Why the folder is not used; empty if it is."""
        self._has_warned = False
        self._stats: dict[str, Stat] = {}
        """Stats by path, as of the first listing or request of a file. Files are read in this version."""

    @property
    def request_counter(self) -> RequestCounter | None:
        return self.inner.request_counter

    @property
    def is_web(self) -> bool:
        return self.inner.is_web

    @property
    def can_list(self) -> bool:
        return self.inner.can_list

    @property
    def version_type(self) -> str:
        return self.inner.version_type

    def expect_versions(self, folder: str, versions: Mapping[str, Stat], version_type: str) -> None:
        if version_type != self.version_type:
            self.inner.expect_versions(folder, versions, version_type)
        else:
            for name, stat in versions.items():
                self._stats[self.inner.join(folder, name)] = stat

    def forget(self, path: str) -> None:
        """Reads a file in its present version from now on."""
        self._stats.pop(path, None)

    # Reading.

    def open(self, path: str, hints: Hints) -> File:
        if self._refusal:
            self._warn(self._refusal)
            known = self._stats.get(path)
            return self.inner.open(path, hints) if known is None else self._source(path, known, hints)()
        stat = self.stat(path)
        if not stat.size:
            return MemoryFile(path, b'')
        copy = self._copy_path(path, stat)
        file = self._open_copy(path, copy, stat, hints)
        if file is not None:
            return file
        source = self._source(path, stat, hints)
        try:
            # Another process may remove the copy immediately. After two attempts, the file is read remotely.
            for _ in range(2):
                if not download(copy, stat.size, source, self._space, lambda _: None):
                    break
                file = self._open_copy(path, copy, stat, hints)
                if file is not None:
                    return file
        except CacheWriteError as exc:
            self._warn(exc.cause)
        return source()

    def read(self, path: str, max_size: int = MAX_SMALL_FILE_BYTES) -> bytes:
        stat = self._stats.get(path)
        # Without a version, an equal size does not show that a copy is up to date.
        if stat is None or (not stat.version and self.check == 'open'):
            data = self._answer('read', path, lambda path: self.inner.read(path, max_size))
            if len(data) > max_size:
                raise too_large_error(path, len(data), max_size)
            return data
        if stat.size > max_size:
            raise too_large_error(path, stat.size, max_size)
        file = self.open(path, Hints())
        return bytes(file.read(0, file.size))

    def fetch(self, path: str, advance: Callable[[int], None]) -> bool:
        """Downloads a whole file, unless it is in the cache.

        Args:
            path: The file.
            advance: Called with the number of bytes, whenever some have arrived.

        Returns:
            Whether the copy exists; False if the cache has no space for it.

        Raises:
            ValueError: The folder contains other files.
            OSError: The disk is full, or the file or its copy cannot be read.
        """
        if self._refusal:
            raise ValueError(f'cache {self.folder}: {self._refusal}')
        stat = self.stat(path)
        copy = self._copy_path(path, stat)
        if not stat.size or self._open_copy(path, copy, stat, Hints()) is not None:
            advance(stat.size)
            return True
        if os.path.lexists(copy):
            os.close(open_regular(copy, NO_LINK))  # Raises the error for which it could not be opened.
        try:
            return download(copy, stat.size, self._source(path, stat, Hints()), self._space, advance)
        except CacheWriteError as exc:
            exc.cause.filename = exc.cause.filename or self.folder
            raise exc.cause from None

    def _copy_path(self, path: str, stat: Stat) -> str:
        key = '\0'.join((path, str(stat.size), stat.version)) + self._origin
        return os.path.join(self.folder, hashlib.sha256(key.encode()).hexdigest()[:40])

    def _open_copy(self, path: str, copy: str, stat: Stat, hints: Hints) -> File | None:
        """Opens the complete copy of a file; returns None if it does not exist, or cannot be read."""
        try:
            found = os.lstat(copy)
            if not S_ISREG(found.st_mode) or found.st_size != stat.size:
                os.unlink(copy)  # Not a copy that this class completed.
                return None
            # A file that is not mapped keeps its descriptor, as the copy may be evicted.
            file = self.local.open(copy, hints._replace(keep_open=True))
            assert isinstance(file, PreadFile)
            descriptor = file.descriptor()
            if not mark_in_use(descriptor, copy) or file.size != stat.size:
                return None
        except FileNotFoundError:
            return None
        except OSError as exc:
            self._warn(exc)  # E.g. it belongs to another user, or the disk has errors.
            return None
        if found.st_nlink <= 1:
            with contextlib.suppress(OSError):  # The folder belongs to another user, or is read-only.
                # Stores the time of the last use.
                os.utime(descriptor if os.utime in os.supports_fd else copy)
        file.path, file.version = path, stat.version
        return file

    def _source(self, path: str, stat: Stat, hints: Hints) -> Callable[[], File]:
        """Returns a function that opens a file remotely, and checks that it has not changed."""
        inner = self.inner

        def open_remote() -> File:
            file = inner.open(path, hints)
            if file.size != stat.size or (stat.version and file.version and file.version != stat.version):
                advice = 'open the dataset or bag again'
                if self.check == 'never':
                    advice += " without cache_check='never', which takes the version from the cache"
                raise replaced_error(path, stat, Stat(file.size, file.version), advice)
            return file

        return open_remote

    def _warn(self, reason: object) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(f'cache {self.folder}: {reason}; reading without it', RuntimeWarning, 2)

    # Metadata.

    def _answer(self, question: str, path: str, ask: Callable[[str], bytes]) -> bytes:
        """Returns the answer of the inner store to a question about a file.

        With `check='never'`, it is kept in the folder, and the inner store is not asked again.

        Raises:
            FileNotFoundError: The file does not exist. This is kept as well.
        """
        if self._refusal:
            return ask(path)
        key = f'\0{question}\0{path}{self._origin}'  # A copy's key begins with a path.
        file = os.path.join(self.folder, hashlib.sha256(key.encode()).hexdigest()[:40])
        kept = _read_answer(file)
        if kept is not None and self.check == 'never':
            with contextlib.suppress(OSError):
                os.utime(file)
            if not kept:
                detail = "no such file when it was cached (cache_check='never')"
                raise FileNotFoundError(errno.ENOENT, detail, path)
            return kept[1:]
        try:
            answer = b'+' + ask(path)
        except FileNotFoundError:
            self._keep(file, b'', kept)
            raise
        self._keep(file, answer, kept)
        return answer[1:]

    def _keep(self, file: str, answer: bytes, kept: bytes | None) -> None:
        """Writes an answer into the folder, if there is space and the folder is writable.

        Without `check='never'`, only an earlier answer is replaced.
        """
        if kept == answer or (kept is None and self.check != 'never'):
            return
        data = zlib.crc32(answer).to_bytes(4, 'little') + answer
        with contextlib.suppress(OSError), self._space.locked():
            if self._space.reserve(len(data)):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(file)
                fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_BINARY | NO_LINK, 0o666)
                with os.fdopen(fd, 'wb') as stream:
                    stream.write(data)

    def _answer_json(self, question: str, path: str, ask: Callable[[str], Any]) -> Any:
        return json.loads(self._answer(question, path, lambda path: json.dumps(ask(path)).encode()))

    def pinned(self, path: str) -> str:
        return str(self._answer_json('pinned', path, self.inner.pinned))

    def names(self, folder: str) -> list[str]:
        return list(self._answer_json('names', folder, self.inner.names))

    def stat(self, path: str) -> Stat:
        stat = self._stats.get(path)
        if stat is None:
            stat = self._stats[path] = Stat(*self._answer_json('stat', path, self.inner.stat))
        return stat

    def walk(self, folder: str) -> dict[str, Stat]:
        found = self._answer_json('walk', folder, self.inner.walk)
        stats = {name: Stat(*stat) for name, stat in found.items()}
        for name, stat in stats.items():
            self._stats[self.inner.join(folder, name)] = stat
        return stats

    def learn(self, folder: str) -> None:
        """Lists the folder of a dataset, unless it was listed before, or its store requests files by name."""
        if not self.is_web and self.inner.join(folder, 'spec.json') not in self._stats:
            self.walk(folder)

    def exists(self, path: str) -> bool:
        return path in self._stats or bool(self._answer_json('exists', path, self.inner.exists))

    # Writing is not supported.

    def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        raise ValueError(f'{args[0]}: a store with a cache is read-only')

    create = resume = clone = replace = rename = exchange = remove = make_folder = remove_folder = _refuse
    current_version = sync = sync_folder = is_locked = lock = hold = expect_held = release = _refuse


def _read_answer(file: str) -> bytes | None:
    """Returns an answer that was kept, which is empty for a file that does not exist; None without one.

    An answer begins with its CRC-32, as its process may be killed while it is written.
    """
    try:
        with open(os.open(file, os.O_RDONLY | O_BINARY | NO_LINK), 'rb') as stream:
            data = stream.read()
    except OSError:
        return None
    return data[4:] if zlib.crc32(data[4:]).to_bytes(4, 'little') == data[:4] else None
