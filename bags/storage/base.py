"""The interfaces `File`, `Output`, `Lock` and `Store`, with their options, hints, sizes and versions."""

from __future__ import annotations

import enum
import mmap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from bags.storage.request_counter import RequestCounter

Buffer = bytes | bytearray | memoryview
Offsets = npt.NDArray[np.int64]

MAX_SMALL_FILE_BYTES = 1 << 26
"""Maximum bytes of a file that is read as a whole, by default: 64 MiB. Specs, statistics and dictionaries
take kilobytes, and writers limit metadata to 16 MiB."""
LFS_POINTER = b'version https://git-lfs.github.com/spec/'
"""The first bytes of the text that Git LFS stores instead of a large file, by its specification."""
MAX_LFS_POINTER_BYTES = 1024
A_LFS_POINTER = 'a Git LFS pointer, which `git lfs pull` replaces by the file'


def is_lfs_pointer(data: Buffer) -> bool:
    """Returns whether the bytes of a file are the text that Git LFS stores instead of a large file."""
    return len(data) < MAX_LFS_POINTER_BYTES and bytes(data[: len(LFS_POINTER)]) == LFS_POINTER


class Choice(enum.IntEnum):
    """An enum whose members can be given by name, in any case: `ShardingLayout('interleaved')`."""

    @classmethod
    def _missing_(cls, value: object) -> Choice | None:
        if isinstance(value, str):
            return cls.__members__.get(value.upper().replace('-', '_'))
        return None

    def __repr__(self) -> str:
        return f'{type(self).__name__}.{self.name}'

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)


class AccessPattern(Choice):
    """The order of reads from local files, as a hint to the kernel.

    Examples:
        >>> random = bags.bag.AccessPattern.RANDOM  # or its name, 'random'
        >>> bags.bag.Reader('episodes/000000/task.bag', access_pattern=random)[0]
        b'reach 0'
    """

    SYSTEM = 0
    RANDOM = 1
    """No read-ahead (`MADV_RANDOM`, `POSIX_FADV_RANDOM`)."""
    SEQUENTIAL = 2
    """More read-ahead (`MADV_SEQUENTIAL`, `POSIX_FADV_SEQUENTIAL`)."""


class CachePolicy(Choice):
    """How reads of local files use the page cache.

    Examples:
        >>> drop = bags.bag.CachePolicy.DROP_AFTER_READ  # or its name, 'drop_after_read'
        >>> bags.bag.Reader('episodes/000000/task.bag', cache_policy=drop)[0]
        b'reach 0'
    """

    SYSTEM = 0
    DROP_AFTER_READ = 1
    """Read with `pread`, then advise the kernel to drop the pages from the cache. Plain `pread` on systems
    without `posix_fadvise`."""
    DIRECT_IO = 2
    """Bypass the page cache with `O_DIRECT` (`F_NOCACHE` on macOS). Falls back to `DROP_AFTER_READ` if the
    file system does not support it."""


class Durability(Choice):
    """When written local files are synced to disk, so that they survive a power cut.

    On object stores the three values are equivalent: a file is stored when it is closed.
    """

    NONE = 0
    """Whenever the system writes them: files survive the end of the process, not a crash of the machine."""
    CLOSE = 1
    """Before `close` returns."""
    FLUSH = 2
    """Also before each `flush` returns."""


class Hints(NamedTuple):
    """How a file will be read."""

    access_pattern: AccessPattern = AccessPattern.SYSTEM
    cache_policy: CachePolicy = CachePolicy.SYSTEM
    mapped: bool = True
    max_parallelism: int = 100
    keep_open: bool = False
    """Whether a local file that is not mapped keeps its descriptor, as it could not be opened again: a writer
    may append to the file, or another process may remove it."""


class Stat(NamedTuple):
    """Size and version of a file, known without reading it."""

    size: int
    """Bytes."""
    version: str = ''
    """Changes with the content: an ETag without quotes, or a modification time; empty if unknown."""


class SeekableFile(Protocol):
    """A binary file object that can be read and positioned, of Python or of this library."""

    def read(self, size: int = -1, /) -> bytes: ...

    def seek(self, offset: int, whence: int = 0, /) -> int: ...

    def tell(self) -> int: ...

    def close(self) -> None: ...


class File(Protocol):
    """The bytes of one file as of the time when it was opened. Thread-safe, and usable after a fork.

    The descriptor is closed with the last reference to the file, so never during a read.
    """

    path: str
    size: int
    """Number of bytes when it was opened."""
    version: str
    """As in `Stat`."""
    buffer: mmap.mmap | bytes | None
    """The whole file if it is in memory or memory-mapped, else None. Slices are `bytes`."""
    cached_from: int
    """Offset from which reads need no request, since the bytes were fetched on open; 0 for a local file."""
    is_remote: bool
    """Whether reads wait for a network, so that concurrent reads pay off."""

    def read(self, start: int, stop: int) -> Buffer:
        """Returns the bytes from `start` to `stop`.

        Raises:
            EOFError: The file has become shorter.
        """
        ...

    def fetch(self, start: int, stop: int) -> Buffer:
        """As `read`, but never through a memory map, so that reading a truncated file raises EOFError."""
        ...

    def read_many(self, starts: Offsets, stops: Offsets) -> list[bytes]:
        """Returns many ranges, in any order and with repeats. May merge, read ahead, or read concurrently."""
        ...

    def will_need(self, starts: Offsets, stops: Offsets) -> None:
        """Announces the ranges to read next. Cheap if the file cannot read ahead."""
        ...


class Output(Protocol):
    """A file that is being written."""

    path: str
    size: int
    """Bytes written, and offset of the next write. Setting a lower value discards the bytes after it."""

    @property
    def closed(self) -> bool: ...

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Appends buffers of bytes. After an error nothing is appended, and the offset is unchanged."""
        ...

    def copy(self, source: BinaryIO, size: int) -> None:
        """Appends the next `size` bytes of an open file, in pieces. After an error nothing is appended."""
        ...

    def read(self, start: int, stop: int) -> bytes:
        """Returns written bytes. Not supported by remote stores."""
        ...

    def stored(self) -> int:
        """Returns the bytes that readers may have seen: more than `size` if a write failed halfway."""
        ...

    def sync(self) -> None:
        """Syncs the file to disk, if the store is durable. After an error, later calls raise it again."""
        ...

    def close(self) -> None:
        """Truncates the file to `size`, syncs and closes it. A remote file becomes visible. Idempotent.

        Readers that have a local file memory-mapped do not access bytes beyond `size`.
        """
        ...

    def is_in_place(self) -> bool:
        """Returns whether the open file is still the file at its path; True for closed files.

        For a remote file, returns whether the path still has the file that it replaces, or still no file.
        """
        ...

    def discard(self) -> None:
        """Stops writing and removes the file, if it exists and no other file has replaced it."""
        ...


class Lock(Protocol):
    """A lock on a folder, released by `release` or when the process ends."""

    def release(self) -> None: ...


class Store(Protocol):
    """Holds files by path.

    A local store syncs its writes, unless its durability is `NONE`: `replace` and `make_folder` return after
    syncing, and `close` of an output syncs its content. Other changes of names (`create`, `rename`, `remove`)
    are synced by `sync_folder`.
    """

    durability: Durability
    """When files are synced to disk; NONE for remote stores."""

    is_remote: bool
    """Whether reads wait for a network. Files of a remote store become visible as a whole at `close`."""

    @property
    def request_counter(self) -> RequestCounter | None:
        """Counts requests; None for a store without requests."""
        ...

    @property
    def is_web(self) -> bool:
        """Whether files are requested by name with GET: listings are slow or not supported."""
        ...

    @property
    def can_list(self) -> bool:
        """Whether `names` and `walk` work. Files of a plain web server can only be requested by name."""
        ...

    def hold(self, folder: str) -> Store:
        """Returns a store for the writer of a folder, which it holds until `release`.

        This store changes files only while the folder is at its path: otherwise the changes raise OSError, so
        that a writer whose folder was removed or moved leaves a new folder at its path alone. Object stores
        have no folders to hold.
        """
        ...

    def expect_held(self, moved_to: str | None = None) -> None:
        """Raises OSError if the folder of `hold` is no longer at its path, or at `moved_to`."""
        ...

    def release(self) -> None:
        """Stops holding the folder of `hold`, if there is one."""
        ...

    def pinned(self, path: str) -> str:
        """Returns a path to the current state of a folder, which later writes do not change.

        For the Hugging Face hub, the path has the commit in place of a branch. Other stores return `path`.
        """
        ...

    @property
    def version_type(self) -> str:
        """The type of the versions in `Stat`, as versions of different types cannot be compared."""
        ...

    def expect_versions(self, folder: str, versions: Mapping[str, Stat], version_type: str) -> None:
        """Makes a remote store read files in these versions only.

        `open`, `read` and `stat` raise CorruptError if a file was replaced. Local stores ignore the call.

        Args:
            folder: The folder of the files.
            versions: Sizes and versions of files, by their names in the folder.
            version_type: The type of the versions.
        """
        ...

    def open(self, path: str, hints: Hints) -> File: ...

    def create(self, path: str) -> Output:
        """Creates a file.

        Raises:
            FileExistsError: The file exists.
        """
        ...

    def resume(self, path: str, size: int) -> Output:
        """Continues a file after its first `size` bytes.

        A remote file must not be replaced by others until `close`, which then raises OSError (errno ESTALE).
        Later bytes stay until they are overwritten or `close` truncates the file, as readers may have the
        file memory-mapped.
        """
        ...

    def clone(self, path: str, target: str, size: int) -> None:
        """Copies the first `size` bytes of a file to `target`, sharing disk blocks where possible."""
        ...

    def read(self, path: str, max_size: int = MAX_SMALL_FILE_BYTES) -> bytes:
        """Returns all bytes of a small file.

        Raises:
            CorruptError: The file has more than `max_size` bytes. It was not read.
        """
        ...

    def current_version(self, path: str) -> str | None:
        """Returns the version of a file for `replace`, as of a moment before it is read; None without a file.

        A local store returns '': it has locks instead.
        """
        ...

    def replace(self, path: str, data: bytes, version: str | None = '') -> None:
        """Writes a small file atomically: a power cut leaves the old or the new content.

        Args:
            path, data: The file.
            version: The version that is replaced: None if the file must not exist, '' for any. Local stores
                replace any.

        Raises:
            FileExistsError: The file exists, although it must not.
            OSError: The file has another version, or was removed (errno ESTALE).
        """
        ...

    def rename(self, path: str, target: str, /) -> None: ...

    def exchange(self, path: str, other: str) -> bool:
        """Exchanges two folders atomically; returns False, and does nothing, if that is not possible."""
        ...

    def remove(self, path: str) -> None:
        """Removes a file, if it exists."""
        ...

    def exists(self, path: str, /) -> bool: ...

    def stat(self, path: str) -> Stat:
        """Returns size and version of a file, with one small request.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        ...

    def walk(self, folder: str) -> dict[str, Stat]:
        """Lists all files below a folder, by their paths in it (`000000/refs.bag`), with one listing.

        Raises:
            FileNotFoundError, NotADirectoryError: The folder does not exist.
        """
        ...

    def names(self, folder: str) -> list[str]:
        """Returns the names in a folder, unsorted.

        Raises:
            FileNotFoundError, NotADirectoryError: The folder does not exist.
        """
        ...

    def make_folder(self, folder: str) -> None:
        """Creates a folder and its parents, if they do not exist."""
        ...

    def remove_folder(self, folder: str) -> None:
        """Removes an empty folder, if it exists. Remote stores have no empty folders."""
        ...

    def sync(self, path: str) -> None:
        """Syncs a file to disk, if the store is durable."""
        ...

    def sync_folder(self, folder: str) -> None:
        """Syncs the names in a folder to disk, if the store is durable and the file system supports it."""
        ...

    def join(self, folder: str, name: str, /) -> str: ...

    def is_locked(self, path: str, /) -> bool:
        """Returns whether a writer holds the lock of a file or folder; False if that is unknown."""
        ...

    def lock(self, folder: str) -> Lock:
        """Locks a folder for one writer.

        Raises:
            BlockingIOError: Another writer holds the lock.
        """
        ...
