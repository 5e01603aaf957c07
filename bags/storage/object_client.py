"""The seam between remote files and the clients of storages: whole objects, ranges of them, lists of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bags.storage.base import Stat

__all__ = ['Client', 'Upload', 'part_size']

MiB = 1 << 20
PART = 8 * MiB
EVEN = 1000
RISE = 60


class Upload(Protocol):
    """An object on its way, part by part; visible when it is complete."""

    def send(self, part: bytes) -> None:
        """Sends the next part; may return before it has arrived.

        Raises:
            OSError: This part or an earlier one could not be sent.
        """
        ...

    def complete(self, last: bytes) -> None:
        """Sends the last part, which may be empty, and makes the object appear.

        Raises:
            FileExistsError: It must not exist, and does.
        """
        ...

    def abort(self) -> None:
        """Has the storage forget what was sent."""
        ...


class Client(Protocol):
    """A storage, for one process. Safe to use from any thread. Paths are URLs.

    Everything is tried again where the reason may pass. Errors are those of this library: FileNotFoundError,
    PermissionError, TimeoutError, OSError, each with the path.
    """

    gap: int
    """Bytes that are cheaper to read than to ask for separately."""
    versions: str
    """Of what kind its versions are: an object has the same one for all clients of that kind."""
    concurrency: int
    """Requests at a time."""

    def tail(self, path: str, count: int) -> tuple[Stat, bytes]:
        """Returns the last bytes of an object, at most `count`, and which it is, in one request."""
        ...

    def fetch(self, path: str, starts: Sequence[int], stops: Sequence[int], head: Stat) -> list[bytes]:
        """Returns ranges of an object (none of them empty), asked for all at once.

        Raises:
            CorruptError: It is another object than `head` says.
        """
        ...

    def head(self, path: str) -> Stat: ...

    def put(self, path: str, data: bytes, create: bool) -> None:
        """Makes an object appear; with `create`, only if there is none.

        Raises:
            FileExistsError: There is one.
        """
        ...

    def upload(self, path: str, create: bool) -> Upload: ...

    def listing(self, folder: str, deep: bool) -> dict[str, Stat | None]:
        """Returns what is in a folder by name, None for folders; nothing if there is no such folder.

        Args:
            folder: The folder.
            deep: Return all files below it instead, by their paths in it.
        """
        ...

    def remove(self, path: str) -> None:
        """Removes an object if it is there."""
        ...

    def copy(self, path: str, target: str) -> None: ...


def part_size(number: int) -> int:
    """Returns the bytes of a part of an upload, counted from 0.

    The first thousand have 8 MiB; then they grow, so that the 10,000 that S3 takes hold 5 TB.
    """
    return PART * (1 + max(0, number - EVEN) // RISE)
