"""Targets of an export: a folder of files, or WebDataset tars."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Iterable
from typing import Any

from bags.interop.extensions import KEY, escape_key, file_name

__all__ = ['Files', 'Tars']


def _checked(key: str) -> str:
    """Returns a key; refuses one that would be a file outside the target."""
    parts = key.split('/')
    if (
        not key
        or key.startswith('/')
        or '\\' in key
        or '\0' in key
        or any(part in ('', '.', '..') for part in parts)
    ):
        raise ValueError(f'{KEY}: expected a relative name for files, got {key!r}')
    return key


class Files:
    """Datapoints as files of a folder."""

    def __init__(self, fs: Any, root: str) -> None:
        self._fs, self._root = fs, root
        self._made: set[str] = set()
        self._written: set[str] = set()

    def add(self, key: str, files: list[tuple[str, bytes]], are_named: bool) -> None:
        """Writes the files of a datapoint.

        Args:
            key: What their names begin with.
            files: What follows the key in their names, and their content.
            are_named: These are their original names: one is added even if the key ends with it.
        """
        is_only = len(files) == 1 and not are_named
        for name, data in files:
            path = posixpath.join(self._root, _checked(file_name(_checked(key), name, is_only)))
            if path in self._written:
                raise ValueError(f'{KEY}: expected another key for each datapoint, got {key!r} twice')
            self._written.add(path)
            folder = posixpath.dirname(path)
            if folder not in self._made:
                self._fs.makedirs(folder, exist_ok=True)
                self._made.add(folder)
            self._fs.pipe_file(path, data)

    def close(self, complete: bool) -> None:
        if not complete:
            _remove(self._fs, self._written)


class Tars:
    """Datapoints as WebDataset tars. Each gets its name when it is complete."""

    def __init__(self, fs: Any, root: str, shard_size: int, shard_length: int | None) -> None:
        self._fs, self._root = fs, root
        self._shard_size, self._shard_length = shard_size, shard_length
        self._number = self._size = self._length = 0
        self._written: set[str] = set()
        self._file: Any = None
        self._tar: Any = None

    @property
    def _path(self) -> str:
        return posixpath.join(self._root, f'{self._number:06}.tar')

    def add(self, key: str, files: list[tuple[str, bytes]], are_named: bool) -> None:
        import tarfile

        stem = escape_key(_checked(key))
        if self._tar is None:
            self._written |= {self._path, self._path + '.new'}
            self._file = self._fs.open(self._path + '.new', 'wb')
            self._tar = tarfile.TarFile(fileobj=self._file, mode='w')
        for name, data in files:
            member = tarfile.TarInfo(_checked(f'{stem}.{name or "data"}'))
            member.size, member.mode = len(data), 0o644
            self._tar.addfile(member, io.BytesIO(data))
            self._size += len(data)
        self._length += 1
        is_long = self._shard_length is not None and self._length >= self._shard_length
        if is_long or self._size >= self._shard_size:
            self._finish()

    def _finish(self) -> None:
        if self._tar is None:
            return
        self._tar.close()
        self._file.close()
        self._fs.mv(self._path + '.new', self._path)
        self._tar = self._file = None
        self._size = self._length = 0
        self._number += 1

    def close(self, complete: bool) -> None:
        if complete:
            self._finish()
            return
        try:
            if self._file is not None:
                self._file.close()
        except OSError:
            pass  # E.g. the disk is full. The file is removed below.
        _remove(self._fs, self._written)


def _remove(fs: Any, paths: Iterable[str]) -> None:
    for path in paths:
        if fs.exists(path):
            fs.rm_file(path)
