"""The linked files of a dataset, opened when a record in them is first used.

Only bags are memory-mapped: other files may be truncated at any time, and reading a truncated map would
terminate the process.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from bags.bag.checksums import digest_function
from bags.bag.compression import Zstd, check_dictionary, codec_for
from bags.bag.options import CompressionTrained, ReaderOptions
from bags.concurrency import FifoCache, Shareable, cached_attribute
from bags.errors import CorruptError
from bags.links.files import (
    LinkedFile,
    bucket_of,
    is_url,
    options_by_prefix,
    resolved_path,
    sample_of,
    sample_ranges,
    with_advice,
)
from bags.links.permission import Permission
from bags.links.segments import ParsedFiles
from bags.storage import File, Hints, Store, store_for
from bags.storage.base import Buffer, CachePolicy, Offsets
from bags.storage.descriptors import descriptors, opened_path
from bags.storage.local import is_file
from bags.storage.mmap_file import share
from bags.storage.pread_file import PreadFile, RealFolder
from bags.storage.urls import options_of

BUCKETS = ('s3://', 'gs://', 'az://')
"""Beginnings of URLs whose stores may need options: credentials, an endpoint."""
MAX_OPEN_FILES = 2048
"""Maximum number of linked files that a dataset keeps open."""
MAX_FOLDERS = 1 << 12
"""Maximum number of resolved folders of linked files to keep."""

T = TypeVar('T')


class FileDiffersError(EOFError):
    """A linked file is missing, or has changed since it was linked."""

    def __init__(self, path: str, expected: str, found: str) -> None:
        self.path, self.expected, self.found = path, expected, found
        super().__init__(f'{path}: expected {expected}, got {found}')


class OpenFile(NamedTuple):
    """An open linked file."""

    file: File
    codec: Zstd | None
    """Decompresses the records; None if they are not compressed."""
    view: Any
    """An object whose slices are views of the file, if it is mapped; else None."""
    size: int
    """Number of bytes that links can refer to."""


class LinkedFiles(Shareable):
    """The linked files of a dataset. Thread-safe.

    Args:
        store, root: The store and the folder of the dataset; of a sharded dataset, the folder of its shards.
        options: The options with which the dataset is opened.
    """

    def __init__(self, store: Store, root: str, options: ReaderOptions) -> None:
        self._store = store
        self.root = root
        """The folder of the dataset."""
        self._options = options
        self.has_remote = False
        """Whether any remote file was opened."""
        self.parsed = ParsedFiles()
        """Cache of the values parsed from the files for their segments."""
        # A bound method would make a reference cycle, which would keep files open.
        self._advise = functools.partial(_advice, options.storage_options, root)

    @cached_attribute
    def _permission(self) -> Permission:
        return Permission(self._store, self.root, getattr(self._options, 'trust_links', ()))

    @cached_attribute
    def _files(self) -> FifoCache[tuple[str, LinkedFile], OpenFile]:
        return FifoCache(lambda key: self._open(*key), MAX_OPEN_FILES)

    def open(self, folder: str, entry: LinkedFile) -> OpenFile:
        """Returns a linked file. The most recently opened ones stay open.

        Args:
            folder: The folder of the links.
            entry: The file.

        Raises:
            FileDiffersError: The file is missing, or has changed.
            PermissionError: Links may not reach the file.
            ValueError: The path is not valid for a linked file.
        """
        return self._files[folder, entry]

    def _open(self, folder: str, entry: LinkedFile) -> OpenFile:
        local = self._open_in_folder(folder, entry)
        if local is not None:
            with as_file_errors(local.path, entry):
                expect_size(local.path, entry, local.size)
                parts = [local.fetch(start, stop) for start, stop in sample_ranges(entry.size)]
                expect_sample(local.path, entry, parts)
            return OpenFile(local, None, None, entry.size)
        store, path = self.locate(folder, entry.path)
        with as_file_errors(path, entry, self._advise):
            file = self._open_file(store, path, entry)
            if not isinstance(file, CheckedObject):
                expect_size(path, entry, file.size)
                ranges = np.array(sample_ranges(entry.size), np.int64)
                if file.is_remote:
                    expect_sample(path, entry, file.read_many(ranges[:, 0], ranges[:, 1]))
                else:
                    expect_sample(path, entry, [file.fetch(start, stop) for start, stop in ranges.tolist()])
        self.has_remote |= file.is_remote
        view = None if file.buffer is None else share(file.buffer)
        return OpenFile(file, self._codec(folder, entry), view, entry.size)

    def _open_in_folder(self, folder: str, entry: LinkedFile) -> PreadFile | None:
        """Opens a local file through its resolved and permitted folder; returns None if that is not possible.

        Photos of 3 KB in random order take 52 us of CPU time each, and 90 us if each path is resolved.
        """
        is_local = not (entry.is_bag or is_url(entry.path) or self._store.is_remote)
        if not is_local or self._options.cache_policy is CachePolicy.DIRECT_IO:
            return None
        name = entry.path.rpartition('/')[2]
        real_folder = self._folders[folder, entry.path.removesuffix(name)]
        return None if real_folder is None else real_folder.open(name, self._hints)

    @cached_attribute
    def _hints(self) -> Hints:
        options = self._options
        return Hints(options.access_pattern, options.cache_policy, False, options.max_parallelism)

    @cached_attribute
    def _folders(self) -> FifoCache[tuple[str, str], RealFolder | None]:
        return FifoCache(lambda key: self._find_folder(*key), MAX_FOLDERS)

    def _find_folder(self, folder: str, above: str) -> RealFolder | None:
        """Returns the folder of a stored path if links may reach all files in it.

        Args:
            folder: The folder of the links.
            above: The stored path without the file name.
        """
        try:
            above = resolved_path(f'{above}name', folder).removesuffix('name')
            path = self._permission.check_folder(above)
            return RealFolder(path) if path is not None else None
        except OSError:
            return None

    def locate(self, folder: str, path: str) -> tuple[Store, str]:
        """Returns the store of a stored path, and the path in that store.

        Raises:
            PermissionError: Links may not reach the file.
        """
        if self._store.is_remote and not is_url(self.root):
            raise ValueError('a dataset with links is opened by its URL, not with filesystem=…')
        path = resolved_path(path, folder)
        try:
            path = self._permission.check(path)
        except PermissionError:
            # The dataset beside this one was removed: permission would not help.
            if self._permission.is_of_dataset(path, exists=False) and not self._store.exists(path):
                raise FileDiffersError(path, 'a bag of a dataset', 'none') from None
            raise
        if is_url(path):
            options = self._options
            storage = _options_for(options.storage_options, self.root, path)
            if path.startswith(('http://', 'https://')):
                # A redirect, which obstore would follow, could lead to a file that is not permitted.
                storage = {**storage, 'client': 'fsspec', 'allow_redirects': False}
            return store_for(path, None, storage, options.cache, options.cache_size, options.cache_check)
        return store_for(path)

    def _open_file(self, store: Store, path: str, entry: LinkedFile | None) -> File:
        """Opens a permitted file; `entry` is None for a dictionary."""
        options, is_bag = self._options, entry is not None and entry.is_bag
        if not store.is_remote and not is_file(path):
            if store.exists(path):
                raise FileDiffersError(path, 'a file', 'something else')
            raise FileNotFoundError(path)
        hints = self._hints._replace(mapped=is_bag and options.mapped)
        if store.is_remote and entry is not None and not is_bag:
            from bags.storage.object_store import RemoteStore

            if isinstance(store, RemoteStore):
                return CheckedObject(store.open_known(path, entry.size), entry, self._advise)
        file = store.open(path, hints)
        if not store.is_remote and isinstance(file, PreadFile):
            opened = opened_path(descriptors[file.file], path)
            if opened != path:  # The path has become a symbolic link since it was checked.
                self._permission.check(opened)
        return file

    def read(self, folder: str, path: str) -> bytes:
        """Returns all bytes of a file, given its stored path. Raises as `locate`, and if it is missing."""
        store, path = self.locate(folder, path)
        if store.is_remote:
            return store.read(path)
        file = self._open_file(store, path, None)
        return bytes(file.read(0, file.size))

    def _codec(self, folder: str, entry: LinkedFile) -> Zstd | None:
        """Returns the codec of a file.

        Raises:
            FileDiffersError: The dictionary is missing, or has changed.
        """
        if not entry.is_compressed:
            return None
        path, dictionary = '', b''
        if entry.dictionary is not None:
            path = self.locate(folder, entry.dictionary.path)[1]
            with as_file_errors(path, entry, self._advise):
                dictionary = self.read(folder, entry.dictionary.path)
            identity = len(dictionary), digest_function()(dictionary)
            if identity != entry.dictionary[1:]:
                raise FileDiffersError(path, 'the dictionary of the links', 'another one')
            dictionary = check_dictionary(dictionary, path)
        zstd = CompressionTrained(dictionary=dictionary, path=path)
        return codec_for('a.bagz', zstd, self._options.max_record_size)


def _options_for(given: Mapping[str, Any] | None, root: str, path: str) -> Mapping[str, Any]:
    """Returns the storage options of a linked file of the dataset `root`."""
    storage = options_of(given or {}, path)
    if storage is given and bucket_of(path) != bucket_of(root):
        return {}  # The options are for the dataset's bucket, and may contain credentials.
    return storage


def _advice(given: Mapping[str, Any] | None, root: str, path: str) -> str:
    """Returns how to give options for a file whose store has none, to complete an error message."""
    return options_by_prefix(path) if path.startswith(BUCKETS) and not _options_for(given, root, path) else ''


# Checks on first use of a file.


@contextlib.contextmanager
def as_file_errors(
    path: str, entry: LinkedFile, advise: Callable[[str], str] = lambda _: ''
) -> Iterator[None]:
    """Context manager that raises FileDiffersError if a file is missing or has changed.

    `advise` returns advice for a remote file that cannot be read, or ''.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        advice = is_url(path) and advise(path)
        found = f'none; {advice}' if advice else 'none'
        raise FileDiffersError(path, f'a file of {entry.size} bytes', found) from None
    except IsADirectoryError:
        raise FileDiffersError(path, f'a file of {entry.size} bytes', 'a folder') from None
    except FileDiffersError:
        raise
    except (CorruptError, EOFError) as exc:
        raise FileDiffersError(path, f'the {entry.size} bytes that were linked', str(exc)) from exc
    except OSError as exc:
        error = with_advice(exc, advise(path)) if is_url(path) else exc
        if error is exc:
            raise
        raise error from exc


def expect_size(path: str, entry: LinkedFile, size: int) -> None:
    """Raises FileDiffersError unless a file has the size of its entry. A bag may be larger, as bags grow."""
    if size != entry.size and not (entry.is_bag and size > entry.size):
        raise FileDiffersError(path, f'{entry.size} bytes', str(size))


def expect_sample(path: str, entry: LinkedFile, parts: list[Any]) -> None:
    """Raises FileDiffersError unless the first and last bytes of a file match the sample of its entry."""
    sample = sample_of(parts)
    if sample != entry.sample:
        expected = f'the sample {entry.sample:016x} of its first and last bytes'
        raise FileDiffersError(path, expected, f'{sample:016x}: it has changed since it was linked')


class CheckedObject:
    """A linked object, opened without a request. Each range response includes the object's size.

    The sample is compared on the first read, without an additional request if the whole object is read.
    """

    buffer: mmap.mmap | bytes | None = None
    is_remote = True

    def __init__(self, file: File, entry: LinkedFile, advise: Callable[[str], str]) -> None:
        self._file = file
        self._entry = entry
        self._advise = advise
        self._is_checked = False
        self.path, self.size, self.version = file.path, file.size, file.version
        self.cached_from = file.size

    def read(self, start: int, stop: int) -> Buffer:
        return self.read_many(np.array([start]), np.array([stop]))[0]

    fetch = read

    def peek(self, start: int, stop: int) -> Buffer:
        """As `read`, but compares only the size, which takes no other request."""
        with as_file_errors(self.path, self._entry, self._advise):
            return self._file.read(start, stop)

    def read_many(self, starts: Offsets, stops: Offsets) -> list[bytes]:
        with as_file_errors(self.path, self._entry, self._advise):
            if self._is_checked:
                return self._file.read_many(starts, stops)
            ranges = sample_ranges(self.size)
            whole = np.flatnonzero((starts == 0) & (stops == self.size))
            if len(whole):
                data = self._file.read_many(starts, stops)
                parts: list[Any] = [data[int(whole[0])][start:stop] for start, stop in ranges]
            else:
                bounds = np.array(ranges, np.int64)
                pieces = self._file.read_many(
                    np.concatenate([starts, bounds[:, 0]]), np.concatenate([stops, bounds[:, 1]])
                )
                data, parts = pieces[: len(starts)], pieces[len(starts) :]
            expect_sample(self.path, self._entry, parts)
        self._is_checked = True
        return data

    def check(self) -> None:
        """Compares size and sample, unless an earlier read has done so."""
        if not self._is_checked:
            self.read_many(np.empty(0, np.int64), np.empty(0, np.int64))

    def will_need(self, starts: Offsets, stops: Offsets) -> None:
        self._file.will_need(starts, stops)


class FileReader(Protocol):
    """Opens linked files by their numbers: `LinkedRecords`."""

    def read_file(self, number: int, index: int | None, read: Callable[[File], T]) -> T:
        """Calls `read` with file `number`; errors name record `index`."""


class LazyFile:
    """A linked file other than a bag, opened on first read.

    Args:
        records: The `LinkedRecords` that open the file. Their errors name the record.
        number: Number of the file.
        index: Index of the record.
        size, is_remote: As in `File`.
    """

    buffer: mmap.mmap | bytes | None = None
    version = ''

    def __init__(
        self, records: FileReader, number: int, index: int | None, size: int, is_remote: bool
    ) -> None:
        self._of = records, number, index
        self.size, self.is_remote = size, is_remote
        self.cached_from = size if is_remote else 0

    @property
    def path(self) -> str:
        """Path or URL of the file, if links may reach it."""
        records, number, index = self._of
        return records.read_file(number, index, lambda file: file.path)

    def read(self, start: int, stop: int) -> Buffer:
        records, number, index = self._of
        return records.read_file(number, index, lambda file: file.read(start, stop))

    fetch = read

    def peek(self, start: int, stop: int) -> Buffer:
        """As `read`, but does not compare the sample of a remote file, which would take two more requests."""
        records, number, index = self._of
        return records.read_file(
            number,
            index,
            lambda file: (
                file.peek(start, stop) if isinstance(file, CheckedObject) else file.read(start, stop)
            ),
        )

    def read_many(self, starts: Offsets, stops: Offsets) -> list[bytes]:
        records, number, index = self._of
        return records.read_file(number, index, lambda file: file.read_many(starts, stops))

    def check(self) -> None:
        """Compares size and sample of the file with its entry."""
        records, number, index = self._of
        records.read_file(
            number, index, lambda file: file.check() if isinstance(file, CheckedObject) else None
        )

    def will_need(self, starts: Offsets, stops: Offsets) -> None:
        pass  # Opening many files ahead costs more than it saves.
