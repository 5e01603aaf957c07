"""Files in memory, for limits that are written to an object store, and for refs read from one."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import BinaryIO

from bags.storage.base import Buffer, Offsets


class MemoryOutput:
    """An output that stays in memory, and is never stored."""

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

    def stored(self) -> int:
        return self.size

    def sync(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def is_in_place(self) -> bool:
        return True

    def discard(self) -> None:
        self.closed = True
        self._data.clear()


class MemoryFile:
    """A file whose bytes are all in memory."""

    is_remote = False
    cached_from = 0
    version = ''

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.size = len(data)
        self.buffer: mmap.mmap | bytes | None = data
        self._data = data

    def read(self, start: int, stop: int) -> Buffer:
        return self._data[start:stop]

    fetch = read

    def read_many(self, starts: Offsets, stops: Offsets) -> list[bytes]:
        data = self._data
        return [data[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]

    def will_need(self, starts: Offsets, stops: Offsets) -> None:
        pass
