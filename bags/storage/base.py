"""The two seams to storage, and what passes through them."""

from __future__ import annotations

import dataclasses
import mmap
from collections.abc import Sequence
from typing import BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from bags.storage.options import AccessPattern, CachePolicy

__all__ = ['Buffer', 'File', 'Hints', 'Lock', 'Output', 'Stat', 'Store']

Buffer = bytes | bytearray | memoryview
Offsets = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Hints:
    """How a file is going to be read."""

    access_pattern: AccessPattern = AccessPattern.SYSTEM
    cache_policy: CachePolicy = CachePolicy.SYSTEM
    mapped: bool = True
    max_parallelism: int = 100


@dataclasses.dataclass(frozen=True)
class Stat:
    """What a storage says of a file without showing its bytes."""

    size: int
    """Bytes."""
    version: str = ''
    """Another one for other content: an ETag without quotes, say, or a time of change; empty if unknown."""


class File(Protocol):
    """The bytes of one file, as it was when opened. Safe to use from any thread and after a fork.

    Descriptors close with the last reference, never under a read that is on its way.
    """

    path: str
    size: int
    """Bytes there were at open."""
    version: str
    """As in `Stat`, of what was opened; empty for local files."""
    buffer: mmap.mmap | bytes | None
    """The whole file as something whose slices are `bytes`, where it is mapped; else None."""
    cached_from: int
    """From this offset on, bytes were read at open and need no request: 0 for a local file."""
    is_remote: bool
    """Whether reads wait long enough (a network, a queue of a device) to be worth overlapping."""

    def read(self, start: int, stop: int) -> Buffer:
        """Returns the bytes from `start` to `stop`.

        Raises:
            EOFError: The file has become shorter.
        """
        ...

    def read_many(self, starts: Offsets, stops: Offsets) -> list[bytes]:
        """Returns many ranges at once, in any order and with repeats: here batches get their speed."""
        ...

    def expect(self, starts: Offsets, stops: Offsets) -> None:
        """Is told of ranges that are about to be read. Costs next to nothing where it is of no use."""
        ...


class Output(Protocol):
    """A file that is being written, from a position on."""

    path: str
    size: int
    """Bytes written, and where the next ones go. Set back, the bytes after it do not count any more."""

    @property
    def closed(self) -> bool: ...

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Appends buffers. On an error nothing is appended: the next write goes to the same place."""
        ...

    def copy(self, source: BinaryIO, size: int) -> None:
        """Appends `size` bytes of an open file, a piece at a time. On an error nothing is appended."""
        ...

    def read(self, start: int, stop: int) -> bytes:
        """Returns bytes written before (only of stores whose files can grow)."""
        ...

    def cut(self) -> None:
        """Drops what lies behind `size`."""
        ...

    def close(self) -> None:
        """Ends the file at `size`; on stores whose files cannot grow, this is when it appears.

        May be called again.
        """
        ...

    def discard(self) -> None:
        """Stops writing and removes what there is."""
        ...


class Lock(Protocol):
    """A claim on a folder that ends with `release` or with the process."""

    def release(self) -> None: ...


class Store(Protocol):
    """A place that holds files."""

    is_remote: bool
    """Whether files can grow and be read at once. If not, a file appears as a whole at `close`."""

    def open(self, path: str, hints: Hints) -> File: ...

    def create(self, path: str) -> Output:
        """Starts a file that must not exist.

        Raises:
            FileExistsError: It does.
        """
        ...

    def resume(self, path: str, size: int) -> Output:
        """Goes on with a file after its first `size` bytes; what it has beyond them is dropped."""
        ...

    def clone(self, path: str, target: str, size: int) -> None:
        """Makes `target` the first `size` bytes of a file, sharing its blocks where it can."""
        ...

    def read(self, path: str) -> bytes:
        """Returns the whole of a small file."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Makes a small file appear with this content, as a whole."""
        ...

    def rename(self, path: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Removes a file if it is there."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """Returns the bytes of a file."""
        ...

    def stat(self, path: str) -> Stat:
        """Returns size and version of a file, with one small request.

        Raises:
            FileNotFoundError: It is not there.
        """
        ...

    def walk(self, folder: str) -> dict[str, Stat]:
        """Lists all files below a folder, by their paths in it (`000000/refs.bag`), with one listing.

        Raises:
            FileNotFoundError, NotADirectoryError: It is none.
        """
        ...

    def names(self, folder: str) -> list[str]:
        """Lists a folder, unsorted.

        Raises:
            FileNotFoundError, NotADirectoryError: It is none.
        """
        ...

    def make_folder(self, folder: str) -> None:
        """Makes a folder and those above it; one that exists is fine."""
        ...

    def remove_folder(self, folder: str) -> None:
        """Removes an empty folder if it is there (and is more than a part of the names of files)."""
        ...

    def join(self, folder: str, name: str) -> str: ...

    def lock(self, folder: str) -> Lock:
        """Claims a folder for one writer.

        Raises:
            BlockingIOError: Another writer has it.
        """
        ...
