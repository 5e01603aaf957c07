"""Records as users give them, and records as files: for decoders that seek, and for large records."""

from __future__ import annotations

import io
from collections import deque
from typing import Any, BinaryIO

from bags.storage import File
from bags.storage.mmap_file import MappedFile
from bags.storage.pread_file import Extent

__all__ = ['RecordFile', 'as_record', 'extent']

MIN_READ_AHEAD = 1 << 16  # Bytes of the first read, and of reads at random places.
MAX_READ_AHEAD = 1 << 23
MAX_CHUNKS = 4


def as_record(value: Any) -> bytes:
    """Returns a record as bytes, from bytes, str (as UTF-8) or any buffer.

    Raises:
        TypeError: Anything else.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    try:
        return bytes(memoryview(value))
    except TypeError:
        raise TypeError(f'record: expected bytes, str or a buffer, got {type(value).__name__}') from None


def extent(file: File, start: int, stop: int) -> BinaryIO:
    """Returns a part of a file to copy from; copied in the kernel where the file is local."""
    if isinstance(file, MappedFile):
        return Extent(file, start, stop)  # type: ignore[return-value]
    return RecordFile(file, start, stop, file.path)  # type: ignore[return-value]


class RecordFile(io.RawIOBase):
    """A readable, seekable file over a range of another file.

    Local files are read exactly as asked. Remote files are read ahead.

    Args:
        file: The file that contains the record.
        start, stop: The range of the record in that file.
        name: The name of the record in error messages.
    """

    def __init__(self, file: File, start: int, stop: int, name: str) -> None:
        self._start = start
        self._size = stop - start
        self._position = 0
        self.name = name
        self._ahead = ReadAhead(file, start, stop) if file.is_remote else None
        self._source: File | ReadAhead = self._ahead or file

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
        """Returns up to `size` bytes; all remaining ones if it is negative or None."""
        if self.closed:
            raise ValueError(f'{self.name} is closed')
        remaining = max(0, self._size - self._position)
        count = remaining if size is None or size < 0 else min(size, remaining)
        if not count:
            return b''
        start = self._start + self._position
        data = bytes(self._source.read(start, start + count))
        self._position += count
        return data

    def expect(self, start: int, stop: int) -> None:
        """Announces that these bytes of the record are read next: a remote file reads them in one request."""
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


class ReadAhead:
    """A range of a remote file, read in chunks of which the last few are cached.

    The chunks of sequential reads double in size, up to `MAX_READ_AHEAD`.
    """

    def __init__(self, file: File, start: int, stop: int) -> None:
        self.file = file
        self.start = start
        self.stop = stop
        self._chunks: deque[tuple[int, bytes]] = deque(maxlen=MAX_CHUNKS)
        self._next = start
        """Where the last read ended."""
        self._read_ahead = MIN_READ_AHEAD // 2

    def read(self, start: int, stop: int) -> bytes:
        """Returns the bytes of the file from `start` to `stop`."""
        parts, position = [], start
        while position < stop:
            part = self._cached(position, stop) or self._fetch(position, stop)
            parts.append(part)
            position += len(part)
        self._next = stop
        return parts[0] if len(parts) == 1 else b''.join(parts)

    def _cached(self, start: int, stop: int) -> bytes:
        for first, data in self._chunks:
            if first <= start < first + len(data):
                return data[start - first : stop - first]
        return b''

    def _fetch(self, start: int, stop: int) -> bytes:
        """Reads to `stop`, or beyond it, but no further than to the beginning of a cached chunk."""
        sequential = start == self._next or any(start == first + len(data) for first, data in self._chunks)
        self._read_ahead = min(MAX_READ_AHEAD, 2 * self._read_ahead) if sequential else MIN_READ_AHEAD
        limit = min([self.stop, *(first for first, _ in self._chunks if first > start)])
        end = min(max(stop, start + self._read_ahead), limit)
        data = bytes(self.file.read(start, end))
        if end - start <= MAX_READ_AHEAD or end > stop:
            self._chunks.append((start, data))
        return data[: stop - start]

    def expect(self, start: int, stop: int) -> None:
        """Reads bytes that are about to be asked for, unless they are cached, in one request."""
        start, stop = max(start, self.start), min(stop, self.stop)
        while start < stop and (part := self._cached(start, stop)):
            start += len(part)
        if start < stop:
            self._chunks.append((start, bytes(self.file.read(start, stop))))
