"""The folder that an export writes."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any, Self

from bags.interop.source import find_filesystem
from bags.storage.urls import plain_path

__all__ = ['Target']


class Target:
    """A new or empty folder, path or URL. If its `with` block fails, the files written to it are removed.

    Raises:
        FileExistsError: The folder is not empty.
    """

    def __init__(self, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None) -> None:
        self.path = os.fspath(plain_path(path))
        self._fs, self._root = find_filesystem(self.path, storage_options)
        if self._fs.exists(self._root) and self._fs.ls(self._root):
            raise FileExistsError(errno.EEXIST, 'something is there already', self.path)
        self._fs.makedirs(self._root, exist_ok=True)
        self._folders = {''}
        self.files: set[str] = set()
        """Paths of written files in the folder."""
        self.size = 0
        """Bytes of these files."""
        self.notes: list[str] = []
        """Sentences about what is left out or changed."""

    def write(self, name: str, data: bytes) -> None:
        """Writes a file with the path `name` in the folder."""
        folder = posixpath.dirname(name)
        if folder not in self._folders:
            self._fs.makedirs(posixpath.join(self._root, folder), exist_ok=True)
            self._folders.add(folder)
        self.files.add(name)
        self._fs.pipe_file(posixpath.join(self._root, name), data)
        self.size += len(data)

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[Any]:
        """Opens a file to write, which gets its name once it is complete."""
        path = posixpath.join(self._root, name)
        self.files |= {name, f'{name}.new'}
        with self._fs.open(f'{path}.new', 'wb') as file:
            yield file
            self.size += file.tell()
        self._fs.mv(f'{path}.new', path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        if exc is not None:
            for path in (posixpath.join(self._root, name) for name in self.files):
                if self._fs.exists(path):
                    self._fs.rm_file(path)
        if isinstance(exc, OSError) and exc.filename is None and exc.errno is not None:
            exc.filename = self.path
