"""What images, videos and audio share: taking what is already encoded, and reading without a copy.

A value for a media type may be the finished file, as bytes or as a path. It goes in untouched, after a look
at its first bytes: nobody encodes a folder of JPEGs a second time.
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

from bags.formats.scalars import Buffer
from bags.formats.signatures import HEAD, START, check_whole, identify

__all__ = ['BufferFile', 'Encoded', 'already_encoded', 'decodes']

Encoded = bytes | BinaryIO
"""A record: its bytes, or an open file that is copied in without being held in memory, and then closed."""

T = TypeVar('T')


def already_encoded(value: object, name: str) -> Encoded | None:
    """Takes a value that is a finished file.

    Args:
        value: Bytes or a path, or anything else.
        name: The format it must be, as `identify` names it.

    Returns:
        The bytes, the file opened at its start, or None if the value is neither and has to be encoded.

    Raises:
        ValueError: It is another format.
        OSError: The path cannot be read.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        _expect(data, name)
        return data
    if isinstance(value, str | os.PathLike):
        file = open(value, 'rb')  # noqa: SIM115, the writer closes it
        try:
            _expect(file.read(HEAD), name, f'{os.fspath(value)!s}: ')
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file
    return None


def _expect(head: Buffer, name: str, where: str = '') -> None:
    start = START.get(name)
    if start is None or head[: len(start)] != start:
        found = identify(head)
        if found != name:
            raise ValueError(f'{where}expected {name}, got {found}')


def decodes(name: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Makes a decoder safe for bytes of any origin.

    The decorated function sees only whole files of its format. Whatever a foreign library raises on them
    becomes a ValueError, here and nowhere else.

    Args:
        name: The format, as `identify` names it.
    """

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(function)
        def decode(data: Buffer, *args: str) -> T:
            _expect(data, name)
            check_whole(data, name)
            try:
                return function(data, *args)
            except Exception as exc:
                # By exact type: av raises subclasses of its own, for headers that claim nonsense.
                if type(exc) in (ValueError, MemoryError) or isinstance(exc, ImportError):
                    raise
                raise ValueError(f'damaged {name}: {str(exc) or type(exc).__name__}') from exc

        return decode

    return decorate


class BufferFile(io.RawIOBase):
    """A read-only file over a buffer. It copies what is asked for, where `io.BytesIO` copies all there is at
    once.

    Attributes:
        data: The buffer.
        position: Where the next read begins.
    """

    def __init__(self, data: Buffer) -> None:
        self.data = data if isinstance(data, bytes) else memoryview(data)
        self.position = 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes, or all that are left."""
        start = self.position
        stop = len(self.data) if size is None or size < 0 else min(start + size, len(self.data))
        self.position = max(start, stop)
        return bytes(self.data[start:stop])  # All of a bytes object is itself.

    def readall(self) -> bytes:
        """What is left."""
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        """Fills a buffer, and tells how much of it."""
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Sets where the next read begins."""
        self.position = max(0, offset + (0, self.position, len(self.data))[whence])
        return self.position

    def tell(self) -> int:
        """Where the next read begins."""
        return self.position
