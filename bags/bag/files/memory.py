"""A file that is only in memory: the limits of a bag that is on its way to a storage of objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from bags.bag.files.protocols import Buffer

__all__ = ['MemoryOutput']


class MemoryOutput:
    """Bytes that grow, and that nobody else ever sees."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.closed = False
        self._data = bytearray()

    @property
    def size(self) -> int:
        return len(self._data)

    @size.setter
    def size(self, size: int) -> None:
        del self._data[size:]

    def write(self, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            self._data += buffer

    def copy(self, source: BinaryIO, size: int) -> None:
        self._data += source.read(size)

    def read(self, start: int, stop: int) -> bytes:
        return bytes(self._data[start:stop])

    def cut(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def discard(self) -> None:
        self.closed = True
        self._data.clear()
