"""The files that links are written to: opened once, with their entries for `FIELD.files`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bags.concurrency import FifoCache
from bags.links.files import BAG_SUFFIXES, LinkedFile, sample_of, sample_ranges, stored_path
from bags.links.link import Link
from bags.storage import File, Hints, store_for

MAX_OPEN_SOURCES = 64


class SourceRange(NamedTuple):
    """A linked range of a file, which exists."""

    entry: LinkedFile
    file: File
    start: int
    stop: int


class LinkSources:
    """Opens the files of links.

    Args:
        folder: The folder of the links.
        above: The folder that holds the dataset. Paths below it are stored relative to `folder`.
        storage_options: Storage options by prefix, for files on object stores.
    """

    def __init__(self, folder: str, above: str, storage_options: Mapping[str, Any] | None) -> None:
        self._folder = folder
        self._above = above
        is_by_prefix = storage_options and all('://' in name for name in storage_options)
        self._options = storage_options if is_by_prefix else None
        self._files: FifoCache[str, tuple[LinkedFile, File]] = FifoCache(self._open, MAX_OPEN_SOURCES)

    def locate(self, link: Link) -> SourceRange:
        """Returns the range of a link.

        Raises:
            FileNotFoundError, IsADirectoryError: There is no such file.
            ValueError: It cannot be linked, or has no such range.
        """
        entry, file = self._files[os.fspath(link.path)]
        stop = entry.size if link.length is None else link.offset + link.length
        if not link.offset <= stop <= entry.size:
            raise ValueError(f'expected a range of the {entry.size} bytes of {file.path}, got {link!r:.200}')
        return SourceRange(entry, file, link.offset, stop)

    def stored(self, file: LinkedFile) -> LinkedFile:
        """Returns the entry of a file with an absolute path as it is stored.

        Raises:
            ValueError: It cannot be linked.
        """
        dictionary = file.dictionary
        if dictionary is not None:
            dictionary = dictionary._replace(path=self._stored(dictionary.path))
        return file._replace(path=self._stored(file.path), dictionary=dictionary)

    def _stored(self, path: str) -> str:
        return stored_path(path, self._folder, self._above)

    def _open(self, path: str) -> tuple[LinkedFile, File]:
        store, path = store_for(path, None, self._options)
        if path.endswith(BAG_SUFFIXES):
            raise ValueError(f'expected a link to a file that is no bag, which may change, got {path!r:.200}')
        file = store.open(path, Hints(mapped=False))
        ranges = np.array(sample_ranges(file.size), np.int64)
        sample = sample_of(file.read_many(ranges[:, 0], ranges[:, 1]))
        return LinkedFile(self._stored(path), file.size, sample), file
