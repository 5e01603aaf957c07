"""The folder that an export writes.

Until the export is complete, a hidden file in the folder records its progress. On an object store, the file
also has an id of the export: of two exports that begin at the same moment, one raises an error before it has
written anything, and an export that another one has resumed raises an error and removes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import posixpath
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Literal, Self

from bags.bag.temporary_files import remove_leftovers, temporary_path
from bags.concurrency import map_concurrently
from bags.dataset.format.journal import RemoteJournal
from bags.dataset.format.metadata import METADATA
from bags.interop.stores import find_store
from bags.storage import Durability, Output, Store
from bags.storage.local import LocalStore
from bags.storage.urls import plain_path

UNFINISHED = '.unfinished-export.json'
"""The file in the folder of an unfinished export."""
_OWN = re.compile(rf'[0-9]{{6,}}\.(tar|parquet)|tokens\.(bin|idx)|{re.escape(METADATA)}|meta|data|videos')
"""Top-level names in the folder of a complete export."""

_TAKEN = (
    'another export has continued this one, or its files were removed, since it began: nothing more is '
    'written. If the other export fails, run this one again with resume=True'
)

BUFFER_BYTES = 1 << 16
"""Bytes of a tar or Parquet file that are collected before they are passed to the store."""


class _OutputFile(io.RawIOBase):
    """An `Output` as a file object."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._output.size

    def write(self, data: Any, /) -> int:
        self._output.write([bytes(data)])
        return len(data)


class Target:
    """A folder, path or URL. If its `with` block fails, the files written to it are removed.

    Args:
        path: The folder.
        storage_options: As in `bags.open`, for a URL.
        facts: The arguments that determine the files. `resume` compares them.
        fingerprint: Returns the fingerprint of the dataset.
        resume: Continue an unfinished export.
        mode: 'overwrite' replaces an earlier export, finished or not, when the new one is complete.
        durability: Unless NONE, local files are on disk before the export is complete, and tars and Parquet
            files before they are listed as complete.

    Raises:
        FileExistsError: The folder is not empty. With `resume`: it does not contain an unfinished export.
            With 'overwrite': it contains other files than an export.
        ValueError: The unfinished export has other facts or another dataset, or 'overwrite' is used with a
            URL.
        BlockingIOError: Another export writes to the folder.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None,
        facts: Mapping[str, Any],
        fingerprint: Callable[[], str],
        *,
        resume: bool = False,
        mode: Literal['create', 'overwrite'] = 'create',
        durability: Durability = Durability.CLOSE,
    ) -> None:
        self.path = os.fspath(plain_path(path))
        self._files, self._root = find_store(self.path, storage_options)
        """The store of the files, which are not synced one by one, and the folder in it."""
        self._progress = {**facts, 'fingerprint': None, 'shards': []}
        self._fingerprint = fingerprint
        self._extension = facts['extension']
        self._keeps_files = False
        self._found = b''
        """The progress of the export that is resumed, as it was read."""
        self._replaced = ''
        self._store: LocalStore | None = None
        """The store that syncs files, if they are local."""
        if self._files.is_remote:
            self._files.make_folder(self._root)
        else:
            self._files, self._store = LocalStore(Durability.NONE), LocalStore(durability)
        if self._store and mode == 'overwrite':
            self._replaced = os.path.realpath(self._root)
            remove_leftovers(self._store, self._replaced)
        names = self._names()
        if resume and names:
            self._continue(names)
        elif mode == 'overwrite' and names:
            self._check_own(names)
        elif names:
            raise self._not_empty_error(names)
        self._old: Store | None = None
        """Holds the export to replace."""
        if self._store and self._replaced:
            self._old = self._store.hold(self._replaced) if names else None
            self._root = temporary_path(self._store, self._replaced)
        if self._store:
            self._store.make_folder(self._root)
        self._lock = self._store.lock(self._root) if self._store else None
        self._journal = None if self._store else self._take(names)
        """The journal on an object store."""
        self._folders = {''}
        self.files: set[str] = set()
        """Paths of written files in the folder."""
        self._temporary: set[str] = set()
        self.size = 0
        """Total bytes of the exported files."""
        self.notes: list[str] = []
        """Sentences about data that the export leaves out or changes."""
        try:
            for number in range(len(self.shards)):
                self.size += self._files.stat(posixpath.join(self._root, self._shard(number))).size
        except BaseException:
            if self._journal is not None:
                self._journal.leave()
            raise
        if self._store:
            self._write_progress()

    @property
    def shards(self) -> list[int]:
        """For each complete tar or Parquet file, the number of datapoints up to its end."""
        shards: list[int] = self._progress['shards']
        return shards

    @property
    def start(self) -> int:
        """The number of datapoints in complete tars or Parquet files."""
        return self.shards[-1] if self.shards else 0

    def _shard(self, number: int) -> str:
        return f'{number:06}.{self._extension}'

    def end_shard(self, datapoints: int) -> None:
        """Records that a tar or Parquet file is complete, and holds datapoints up to index `datapoints`."""
        if self._store:
            self._store.sync(posixpath.join(self._root, self._shard(len(self.shards))))
            self._store.sync_folder(self._root)
        self._progress['fingerprint'] = self._progress['fingerprint'] or self._fingerprint()
        self.shards.append(datapoints)
        self._write_progress()

    def write(self, name: str, data: bytes) -> None:
        """Writes a file with the path `name` in the folder."""
        folder = posixpath.dirname(name)
        if folder not in self._folders:
            self._files.make_folder(posixpath.join(self._root, folder))
            self._folders.add(folder)
        with self._open(name, posixpath.join(self._root, name)) as output:
            output.write([data])

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Opens a file for writing; it has the name `name` once it is complete."""
        path = posixpath.join(self._root, name)
        temporary = f'{path}.new' if self._store else path  # Objects become visible when they are complete.
        self._temporary.add(f'{name}.new')
        with (
            self._open(name, temporary) as output,
            io.BufferedWriter(_OutputFile(output), BUFFER_BYTES) as file,
        ):
            yield file
        if self._store:
            self._files.rename(temporary, path)

    @contextlib.contextmanager
    def _open(self, name: str, path: str) -> Iterator[Output]:
        """Opens the output for a file."""
        self.files.add(name)
        replaces = bool(self._store) or self._keeps_files
        output = self._files.resume(path, 0) if replaces else self._files.create(path)
        try:
            yield output
            size = output.size
            output.close()
        except BaseException as exc:
            output.discard()
            if isinstance(exc, OSError) and exc.errno in (errno.EEXIST, errno.ESTALE):
                self.files.discard(name)  # The file is of another process.
            raise
        self.size += size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: object, exc: BaseException | None, traceback: object) -> None:
        if exc is None:
            if self._journal is not None:
                self._journal.expect_own()
            self._sync()
            self._files.remove(posixpath.join(self._root, UNFINISHED))
            if self._store:
                self._store.sync_folder(self._root)
            try:
                self._swap()
            except BaseException:
                shutil.rmtree(self._root, ignore_errors=True)
                raise
        elif self._replaced:
            shutil.rmtree(self._root, ignore_errors=True)
        elif not self._keeps_files:
            self._remove_files()
        elif self._journal is not None:
            self._journal.is_changed = bool(self.files)
            self._journal.leave()
        if self._lock is not None:
            self._lock.release()
        if self._old is not None:
            self._old.release()
        if isinstance(exc, OSError) and exc.filename is None and exc.errno is not None:
            exc.filename = self.path

    def _remove_files(self) -> None:
        """Removes what this export has written, unless another one has taken the folder."""
        if self._journal is not None:
            try:
                self._journal.expect_own()
            except OSError:
                return
        for name in [*self.files, *self._temporary, UNFINISHED]:
            self._files.remove(posixpath.join(self._root, name))

    def _names(self) -> list[str]:
        """Returns the names of files and folders in the folder."""
        try:
            return sorted(self._files.names(self._root))
        except FileNotFoundError:
            return []

    def _not_empty_error(self, names: list[str]) -> FileExistsError:
        detail = 'the folder is not empty'
        if UNFINISHED in names:
            detail = "holds an unfinished export: resume=True continues it, mode='overwrite' replaces it"
        return FileExistsError(errno.EEXIST, detail, self.path)

    def _take(self, names: list[str]) -> RemoteJournal:
        """Takes a folder on an object store by writing the progress, and lists it again.

        Args:
            names: The names that were listed in the folder.

        Raises:
            FileExistsError, BlockingIOError: The folder is not empty, or another export has just begun.
            OSError: The listing is wrong.
        """
        self._progress['writer'] = secrets.token_hex(12)
        path = posixpath.join(self._root, UNFINISHED)
        journal = RemoteJournal(self._files, path, json.dumps(self._progress).encode(), _TAKEN)
        journal.take(UNFINISHED in names)
        try:
            if (journal.earlier or b'') != self._found:
                detail = 'another export has just changed this one: try again once it has ended'
                raise BlockingIOError(errno.EWOULDBLOCK, detail, self.path)
            listed = self._names()
            journal.expect_listed(listed)
            if not self._keeps_files and listed != [UNFINISHED]:
                raise self._not_empty_error([name for name in listed if name != UNFINISHED])
        except BaseException:
            journal.leave()
            raise
        return journal

    def _continue(self, names: list[str]) -> None:
        """Reads the progress of an unfinished export."""
        if UNFINISHED not in names:
            raise FileExistsError(errno.EEXIST, 'holds no unfinished export to resume', self.path)
        try:
            self._found = self._files.read(posixpath.join(self._root, UNFINISHED))
            progress = json.loads(self._found)
            progress.pop('writer', None)
            shards = [int(stop) for stop in progress.pop('shards')]
            fingerprint = progress.pop('fingerprint')
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ValueError(f"{self.path}: {UNFINISHED} is damaged; mode='overwrite' begins again") from None
        own = ('shards', 'fingerprint')
        expected = {key: value for key, value in self._progress.items() if key not in own}
        if shards and fingerprint != self._fingerprint():
            progress, expected = {'dataset': fingerprint}, {'dataset': self._fingerprint()}
        if progress != json.loads(json.dumps(expected)):
            detail = ', '.join(
                f'{key} {value!r:.80}, got {progress.get(key)!r:.80}'
                for key, value in expected.items()
                if progress.get(key) != value
            )
            raise ValueError(
                f'{self.path}: resume: expected an export of the same arguments and dataset: {detail}; '
                "mode='overwrite' begins again"
            )
        self._progress |= {'shards': shards, 'fingerprint': fingerprint}
        self._keeps_files = True

    def _check_own(self, names: list[str]) -> None:
        if self._store is None:
            raise ValueError(
                f"{self.path}: mode='overwrite' needs a local folder, as object stores cannot rename "
                'folders: write to another folder, then remove this one'
            )
        foreign = [name for name in names if not _OWN.fullmatch(name)]
        if foreign and UNFINISHED not in names and not self._is_exported(names):
            detail = f'holds {foreign[0]!r}, which an export did not write: not overwritten'
            raise FileExistsError(errno.EEXIST, detail, self.path)

    def _is_exported(self, names: list[str]) -> bool:
        """Returns whether an export wrote the files, according to `metadata.json`."""
        if METADATA not in names:
            return False
        with contextlib.suppress(ValueError, RecursionError):
            return '__export__' in json.loads(self._files.read(posixpath.join(self._root, METADATA)))
        return False

    def _write_progress(self) -> None:
        data = json.dumps(self._progress).encode()
        if self._journal is not None:
            self._journal.update(data)
        elif self._store:
            self._store.replace(posixpath.join(self._root, UNFINISHED), data)

    def _sync(self) -> None:
        """Syncs the files and their folders to disk."""
        if not self._store or not self._store.durability:
            return
        shards = set(map(self._shard, range(len(self.shards))))
        files = sorted(self.files - shards)
        # Concurrent, because a file system commits its journal once for many files.
        map_concurrently(self._store.sync, [posixpath.join(self._root, name) for name in files])
        folders = {posixpath.dirname(name) for name in files}
        folders |= {folder[:end] for folder in folders for end, letter in enumerate(folder) if letter == '/'}
        for folder in sorted(folders | {''}, reverse=True):
            self._store.sync_folder(posixpath.join(self._root, folder))

    def _swap(self) -> None:
        """Moves the new export to the path of the export that it replaces."""
        if not self._store or not self._replaced:
            return
        old = self._root.removesuffix('.new') + '.old'
        if self._old is not None:
            self._old.expect_held()
            os.rename(self._replaced, old)  # If the process is killed now, `remove_leftovers` puts it back.
            try:
                self._old.expect_held(moved_to=old)
            except BaseException:
                os.rename(old, self._replaced)
                raise
        elif os.path.exists(self._replaced):
            os.rmdir(self._replaced)  # Raises an error unless it is still empty.
        os.rename(self._root, self._replaced)
        self._store.sync_folder(os.path.dirname(self._replaced))
        shutil.rmtree(old, ignore_errors=True)
