"""What a handle opens when it is first asked for something: a record, a path, or bytes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, runtime_checkable

from bags.formats.encoded import BufferFile

__all__ = ['Source', 'as_source']


@runtime_checkable
class Source(Protocol):
    """Something that can be opened, again and again, as a seekable binary file.

    A file may have a method `expect(start, stop)`, which is told which bytes are read next.
    """

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    def open(self) -> BinaryIO: ...

    def error(self, exc: Exception) -> Exception:
        """Returns the error to raise for what went wrong with its content."""
        ...


@dataclass(frozen=True)
class _File:
    """A source of its own, which belongs to no dataset."""

    content: Any

    @property
    def name(self) -> str:
        if isinstance(self.content, str | os.PathLike):
            return os.fspath(self.content)
        return f'{len(self.content)} bytes'

    def open(self) -> BinaryIO:
        if isinstance(self.content, str | os.PathLike):
            return open(self.content, 'rb')
        return BufferFile(self.content)  # type: ignore[return-value]

    def error(self, exc: Exception) -> Exception:
        return ValueError(f'{self.name}: {exc}')


def as_source(value: Any) -> Source:
    """Returns the source of a path, of bytes, or of what is one already.

    Raises:
        TypeError: It is none of these.
    """
    if isinstance(value, str | os.PathLike | bytes | bytearray | memoryview):
        return _File(value)
    if isinstance(value, Source):
        return value
    raise TypeError(f'expected a path, bytes or a record, got {type(value).__name__}')
