"""One record as a file: for decoders that seek, and for records too large to be read as a whole."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

from bags.bag.readahead import ReadAhead
from bags.storage import File
from bags.storage.mmap_file import MappedFile
from bags.storage.pread_file import Extent

__all__ = ['RecordFile', 'extent']


def extent(file: File, start: int, stop: int) -> BinaryIO:
    """Returns a part of a file to copy from: as quick as the system can, where it is a local one."""
    if isinstance(file, MappedFile):
        return Extent(file, start, stop)  # type: ignore[return-value]
    return RecordFile(file, start, stop, file.path)  # type: ignore[return-value]


class RecordFile(io.RawIOBase):
    """A readable, seekable file over a range of another one.

    From a local file it reads the bytes asked for and no others; from one that is waited for, longer pieces.

    Args:
        file: What holds the record.
        start, stop: Where it is there.
        name: What messages call it.
    """

    def __init__(self, file: File, start: int, stop: int, name: str) -> None:
        self._file = file
        self._start = start
        self._size = stop - start
        self._position = 0
        self.name = name
        self._ahead = ReadAhead(file, start, stop) if start < file.at_hand else None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f'{self.name}: expected a position of at least 0, got {base + offset}')
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Returns up to `size` bytes; all that are left if it is negative or None."""
        if self.closed:
            raise ValueError(f'{self.name} is closed')
        left = max(0, self._size - self._position)
        count = left if size is None or size < 0 else min(size, left)
        if not count:
            return b''
        start = self._start + self._position
        source = self._file if self._ahead is None else self._ahead
        data = bytes(source.read(start, start + count))
        self._position += count
        return data

    def expect(self, start: int, stop: int) -> None:
        """Is told that these bytes of the record are read next: one request, on a storage that waits."""
        if self._ahead is not None:
            self._ahead.expect(self._start + start, self._start + stop)

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast('B')
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def __len__(self) -> int:
        return self._size
