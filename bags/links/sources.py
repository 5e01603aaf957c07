"""Opens the files that a writer links to, each once, and makes their entries for `FIELD.files`."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from bags.bag.bag_file import BagFile
from bags.concurrency import FifoCache
from bags.links.files import (
    FILE_SAMPLE_BYTES,
    RECORD_SUFFIXES,
    LinkedFile,
    options_by_prefix,
    sample_of,
    sample_ranges,
    stored_path,
    with_advice,
)
from bags.links.link import Link
from bags.links.link_builder import LinkBuilder
from bags.storage import File, Hints, store_for
from bags.storage.base import Buffer
from bags.storage.pread_file import read_ends
from bags.storage.urls import options_of

MAX_OPEN_SOURCES = 64
LINK_MEMORY_BYTES = 1 << 10
"""Approximate memory of a link and its values, in bytes."""
MAX_KNOWN_FOLDERS = 1 << 12
"""Maximum number of folders whose stored paths are kept."""
RECORDS_AT_ONCE = 1 << 12
"""Number of records of a bag whose limits are read at a time."""


@dataclasses.dataclass(frozen=True, slots=True)
class OpenedLink(Link):
    """A link whose file is open and has the range. Slices are read on access."""

    entry: LinkedFile = dataclasses.field(kw_only=True)
    """The file, with its absolute path or URL."""
    open: Callable[[], File] = dataclasses.field(kw_only=True, repr=False)
    """Returns the open file."""
    known: bytes = dataclasses.field(kw_only=True)
    """Bytes of the file that were read already, starting at the offset `known_from`."""
    known_from: int = dataclasses.field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        pass  # The link was validated before.

    @property
    def file(self) -> File:
        """The open file."""
        return self.open()

    @property
    def stop(self) -> int:
        """Offset of the end of the record in the file."""
        return self.offset + len(self)

    @property
    def nbytes(self) -> int:
        """Approximate memory, in bytes."""
        return LINK_MEMORY_BYTES + len(self.known)

    def __len__(self) -> int:
        return self.length or 0

    def __getitem__(self, key: slice) -> Buffer:
        start, stop, _ = (position + self.offset for position in key.indices(len(self)))
        first = self.known_from
        if first <= start and stop <= first + len(self.known):
            return self.known[start - first : stop - first]
        return self.file.read(start, max(start, stop))

    def part(self, start: int, stop: int) -> OpenedLink:
        """Returns a link to a part of the range.

        Raises:
            ValueError: The part is outside the range.
        """
        if not start <= stop <= len(self):
            raise ValueError(f'expected bytes {start} to {stop} in {len(self)} bytes')
        return dataclasses.replace(self, offset=self.offset + start, length=stop - start)

    def read_ahead(self, count: int) -> OpenedLink:
        """Reads the first `count` bytes, and returns a link that holds them."""
        data = bytes(self.file.read(self.offset, self.offset + min(count, len(self))))
        return dataclasses.replace(self, known=data, known_from=self.offset)


class LinkOpener:
    """Opens the files of links, and keeps the most recent ones open. Thread-safe.

    Args:
        storage_options: As in `bags.open`, for files on object stores.
    """

    def __init__(self, storage_options: Mapping[str, Any] | None) -> None:
        self._options = storage_options
        self._files: FifoCache[str, tuple[LinkedFile, Callable[[], File], bytes]] = FifoCache(
            self._open, MAX_OPEN_SOURCES
        )
        self._opening: dict[str, threading.Lock] = {}
        self.folders: set[str] = set()
        """The folders of all files opened so far."""

    def open(self, link: Link) -> OpenedLink:
        """Opens the file of a link, and returns an `OpenedLink`.

        Raises:
            FileNotFoundError, IsADirectoryError: The file does not exist, or is a folder.
            ValueError: The file cannot be linked, or is shorter than the range.
        """
        path = os.fspath(link.path)
        opened = self._files.get(path)
        if opened is None:
            with self._opening.setdefault(path, threading.Lock()):  # Only one thread opens the file.
                opened = self._files[path]
            self._opening.pop(path, None)
        entry, file, head = opened
        length = entry.size - link.offset if link.length is None else link.length
        if not 0 <= length <= entry.size - link.offset:
            raise ValueError(f'expected a range of the {entry.size} bytes of {entry.path}, got {link!r:.200}')
        return OpenedLink(
            link.path, link.offset, length, link.times, link.frames, entry=entry, open=file, known=head
        )

    def open_whole(self, path: str) -> OpenedLink:
        """Returns a link to the whole file at an absolute path or URL.

        A local file is closed again: an episode may have more files than a process may have open.

        Raises:
            FileNotFoundError, IsADirectoryError, ValueError: As in `open`.
            EOFError: The file was truncated while it was read.
        """
        if '://' in path:
            return self.open(Link(path))
        _check_no_bag(path)
        size, parts = read_ends(path, FILE_SAMPLE_BYTES)
        self.folders.add(path.rpartition('/')[0])
        entry = LinkedFile(path, size, sample_of(parts))
        return OpenedLink(path, 0, size, entry=entry, open=lambda: self._reopen(entry), known=parts[0])

    def _reopen(self, entry: LinkedFile) -> File:
        link = self.open(Link(entry.path))
        if link.entry != entry:
            raise ValueError(f'{entry.path}: has changed since it was opened')
        return link.file

    def records(self, bag: BagFile, start: int) -> Iterator[OpenedLink]:
        """Yields links to the records of a bag from `start` on, or to the zstd frames of a compressed bag."""
        entry, get_file = LinkBuilder().entry_of(bag), lambda: bag.file
        self.folders.add(entry.path.rpartition('/')[0])
        for first in range(start, bag.count, RECORDS_AT_ONCE):
            ((_, _, _, starts, stops, *_),) = bag.locate(
                range(first, min(first + RECORDS_AT_ONCE, bag.count))
            )
            for begin, end in zip(starts.tolist(), stops.tolist(), strict=True):
                yield OpenedLink(entry.path, begin, end - begin, entry=entry, open=get_file, known=b'')

    def _open(self, path: str) -> tuple[LinkedFile, Callable[[], File], bytes]:
        store, path = store_for(path, None, self._options if '://' in path else None)
        _check_no_bag(path)
        try:
            file = store.open(path, Hints(mapped=False))
        except OSError as exc:
            is_without = '://' in path and not options_of(self._options or {}, path)
            error = with_advice(exc, options_by_prefix(path)) if is_without else exc
            if error is exc:
                raise
            raise error from exc
        ranges = sample_ranges(file.size)
        if file.is_remote:
            bounds = np.array(ranges, np.int64)
            parts = file.read_many(bounds[:, 0], bounds[:, 1])
        else:
            parts = [bytes(file.fetch(start, stop)) for start, stop in ranges]
        self.folders.add(path.rpartition('/')[0])
        return LinkedFile(path, file.size, sample_of(parts)), lambda: file, parts[0]


def _check_no_bag(path: str) -> None:
    if path.endswith(RECORD_SUFFIXES):
        raise ValueError(
            f'expected a link to a file that is not a bag, as bags may change, got {path!r:.200}'
        )


class LinkSources:
    """Makes the entries of linked files as a folder of links stores them.

    Args:
        folder: The folder of the links.
        above: The parent folder of the dataset. Paths below it are stored relative to `folder`.
        storage_options: Storage options by prefix, for files on object stores.
    """

    def __init__(self, folder: str, above: str, storage_options: Mapping[str, Any] | None) -> None:
        self._folder = folder
        self._above = above
        is_by_prefix = storage_options and all('://' in name for name in storage_options)
        self.opener = LinkOpener(storage_options if is_by_prefix else None)
        self._folders: FifoCache[str, str] = FifoCache(
            lambda path: stored_path(path, folder, above), MAX_KNOWN_FOLDERS
        )

    def stored(self, file: LinkedFile) -> LinkedFile:
        """Converts the paths of an entry from absolute paths to their stored form.

        Raises:
            ValueError: The file cannot be linked.
        """
        path, dictionary = self._stored(file.path), file.dictionary
        if dictionary is not None:
            dictionary = dictionary._replace(path=self._stored(dictionary.path))
        return LinkedFile(path, file.size, file.sample, file.is_compressed, dictionary)

    def _stored(self, path: str) -> str:
        folder, _, name = path.rpartition('/')
        is_above = f'{self._folder}/'.startswith(f'{folder}/')
        if is_above or not folder.startswith(self._above.rstrip('/') + '/'):
            return stored_path(path, self._folder, self._above)
        return f'{self._folders[folder]}/{name}'  # A tenth of the time, for many files of one folder.
