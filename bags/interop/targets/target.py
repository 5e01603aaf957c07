"""The folder that an export writes.

Until the export is complete, a hidden file in the folder records its progress.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import posixpath
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Literal, Self

from bags.bag.temporary_files import remove_leftovers, temporary_path
from bags.concurrency import map_concurrently
from bags.dataset.format.metadata import METADATA
from bags.interop.stores import find_store
from bags.storage import Durability, Output
from bags.storage.local import LocalStore
from bags.storage.urls import plain_path

UNFINISHED = '.unfinished-export.json'
"""The file in the folder of an unfinished export."""
_OWN = re.compile(rf'[0-9]{{6,}}\.(tar|parquet)|{re.escape(METADATA)}|meta|data|videos')
"""Top-level names in the folder of a complete export."""

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
            detail = 'the folder is not empty'
            if UNFINISHED in names:
                detail = "holds an unfinished export: resume=True continues it, mode='overwrite' replaces it"
            raise FileExistsError(errno.EEXIST, detail, self.path)
        if self._store and self._replaced:
            self._root = temporary_path(self._store, self._replaced)
        if self._store:
            self._store.make_folder(self._root)
        self._lock = self._store.lock(self._root) if self._store and self._replaced else None
        self._folders = {''}
        self.files: set[str] = set()
        """Paths of written files in the folder."""
        self._temporary: set[str] = set()
        self.size = 0
        """Total bytes of the exported files."""
        self.notes: list[str] = []
        """Sentences about data that the export leaves out or changes."""
        for number in range(len(self.shards)):
            self.size += self._files.stat(posixpath.join(self._root, self._shard(number))).size
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
        self.files.add(name)
        output = self._files.resume(posixpath.join(self._root, name), 0)
        try:
            output.write([data])
            output.close()
        except BaseException:
            output.discard()
            raise
        self.size += len(data)

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Opens a file for writing; it has the name `name` once it is complete."""
        path = posixpath.join(self._root, name)
        temporary = f'{path}.new' if self._store else path  # Objects become visible when they are complete.
        self.files.add(name)
        self._temporary.add(f'{name}.new')
        output = self._files.resume(temporary, 0)
        try:
            with io.BufferedWriter(_OutputFile(output), BUFFER_BYTES) as file:
                yield file
            self.size += output.size
            output.close()
        except BaseException:
            output.discard()
            raise
        if self._store:
            self._files.rename(temporary, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: object, exc: BaseException | None, traceback: object) -> None:
        if exc is None:
            self._sync()
            self._files.remove(posixpath.join(self._root, UNFINISHED))
            if self._store:
                self._store.sync_folder(self._root)
            self._swap()
        elif self._replaced:
            shutil.rmtree(self._root, ignore_errors=True)
        elif not self._keeps_files:
            for name in [*self.files, *self._temporary, UNFINISHED]:
                self._files.remove(posixpath.join(self._root, name))
        if self._lock is not None:
            self._lock.release()
        if isinstance(exc, OSError) and exc.filename is None and exc.errno is not None:
            exc.filename = self.path

    def _names(self) -> list[str]:
        """Returns the names of files and folders in the folder."""
        try:
            return sorted(self._files.names(self._root))
        except FileNotFoundError:
            return []

    def _continue(self, names: list[str]) -> None:
        """Reads the progress of an unfinished export."""
        if UNFINISHED not in names:
            raise FileExistsError(errno.EEXIST, 'holds no unfinished export to resume', self.path)
        try:
            progress = json.loads(self._files.read(posixpath.join(self._root, UNFINISHED)))
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
        path, data = posixpath.join(self._root, UNFINISHED), json.dumps(self._progress).encode()
        (self._store or self._files).replace(path, data)

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
        if os.path.exists(self._replaced):
            os.rename(self._replaced, old)  # If the process is killed now, `remove_leftovers` puts it back.
        os.rename(self._root, self._replaced)
        self._store.sync_folder(os.path.dirname(self._replaced))
        shutil.rmtree(old, ignore_errors=True)
