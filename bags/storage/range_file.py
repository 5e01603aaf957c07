"""File objects with a position, for decoders and copies: over buffers, borrowed files, and byte ranges."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from bags.storage.base import Buffer, File
from bags.storage.mmap_file import MappedFile

MIN_READ_AHEAD = 1 << 16  # Minimum bytes of the first read of a remote file, and of non-sequential reads.
MAX_READ_AHEAD = 1 << 23
MAX_KEPT_READS = 4
PIECE_SIZE = 1 << 22


def read_pieces(source: BinaryIO, size: int) -> Iterator[bytes]:
    """Reads the next `size` bytes of an open file, in pieces of up to 4 MiB.

    Raises:
        EOFError: The file has fewer bytes.
    """
    while size:
        piece = source.read(min(PIECE_SIZE, size))
        if not piece:
            raise EOFError(f'{getattr(source, "name", source)}: expected {size} more bytes, got none')
        yield piece
        size -= len(piece)


class PositionedFile(io.RawIOBase):
    """A read-only file object with its own position. Subclasses implement `read_at` and `size`."""

    position = 0

    def read_at(self, start: int, count: int | None) -> bytes:
        """Returns up to `count` bytes from `start`; all bytes up to the end if `count` is None."""
        raise NotImplementedError

    def size(self) -> int:
        """Returns the number of bytes."""
        raise NotImplementedError

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Returns up to `size` bytes; all remaining bytes if `size` is negative or None."""
        data = self.read_at(self.position, None if size is None or size < 0 else size)
        self.position += len(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast('B')
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self.read()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = 0 if whence == io.SEEK_SET else self.position if whence == io.SEEK_CUR else self.size()
        self.position = max(0, base + offset)
        return self.position

    def tell(self) -> int:
        return self.position


class BufferFile(PositionedFile):
    """A file object over a buffer. Copies only the bytes that are read; `io.BytesIO` copies all of them."""

    def __init__(self, data: Buffer) -> None:
        self.data = data if isinstance(data, bytes) else memoryview(data)

    def read_at(self, start: int, count: int | None) -> bytes:
        return bytes(self.data[start : None if count is None else start + count])  # bytes[:] is not a copy.

    def size(self) -> int:
        return len(self.data)


class BorrowedFile(PositionedFile):
    """A view of the caller's seekable file, from its current position on. Closing it leaves the file open."""

    def __init__(self, file: BinaryIO | PositionedFile) -> None:
        self._file = file
        self.position = file.tell()
        self.name = getattr(file, 'name', repr(file))

    def read_at(self, start: int, count: int | None) -> bytes:
        self._file.seek(start)
        return self._file.read(-1 if count is None else count)

    def size(self) -> int:
        return self._file.seek(0, io.SEEK_END)


def positioned(file: BinaryIO) -> PositionedFile:
    """Returns a `PositionedFile`: the file itself, or a view of it."""
    return file if isinstance(file, PositionedFile) else BorrowedFile(file)


class RangeFile(PositionedFile):
    """A readable, seekable file object over a byte range of a `File`.

    Remote files are read ahead: sequential reads double in size, up to 8 MiB. The last four reads are kept.

    Args:
        file: The file.
        start, stop: The byte range.
        name: Name of the file in messages.
    """

    def __init__(self, file: File, start: int, stop: int, name: str) -> None:
        self.name = name
        self._file = file
        self._start = start
        self._stop = stop
        self._reads_ahead = start < file.cached_from
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=MAX_KEPT_READS)  # Offsets in the file, and bytes.
        self._expected: list[tuple[int, bytes]] = []
        self._sequential = start  # Offset of the end of the last read.
        self._read_ahead = MIN_READ_AHEAD // 2  # Half of the minimum size of the next sequential read.

    def size(self) -> int:
        return self._stop - self._start

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = 0 if whence == io.SEEK_SET else self.position if whence == io.SEEK_CUR else self.size()
        if base + offset < 0:
            raise ValueError(f'{self.name}: expected a position of at least 0, got {base + offset}')
        self.position = base + offset
        return self.position

    def read_at(self, start: int, count: int | None) -> bytes:
        if self.closed:
            raise ValueError(f'{self.name} is closed')
        start += self._start
        stop = self._stop if count is None else min(start + count, self._stop)
        if stop <= start:
            return b''
        return self._read_remote(start, stop) if self._reads_ahead else bytes(self._file.read(start, stop))

    def __len__(self) -> int:
        return self._stop - self._start

    def local_range(self) -> tuple[int, int] | None:
        """Returns the descriptor of a memory-mapped file and the position in it; None for other files.

        The descriptor stays open as long as this object.
        """
        if not isinstance(self._file, MappedFile):
            return None
        try:
            self._descriptor = self._file.descriptor()
        except EOFError:  # The map still has the bytes of the file.
            return None
        return self._descriptor, self._start + self.position

    def will_need(self, parts: Sequence[tuple[int, int]]) -> None:
        """Announces the parts to read next. Parts of a remote file are read together, and kept."""
        if self._reads_ahead:
            bounds = np.array(parts, np.int64).reshape(len(parts), 2) + self._start
            starts, stops = bounds[:, 0], np.minimum(bounds[:, 1], self._stop)
            data = self._file.read_many(starts, stops) if len(parts) else []
            self._expected = list(zip(starts.tolist(), map(bytes, data), strict=True))

    def _read_remote(self, start: int, stop: int) -> bytes:
        parts, position = [], start
        while position < stop:
            part = self._find_kept(position, stop) or self._fetch(position, stop)
            parts.append(part)
            position += len(part)
        self._sequential = stop
        return parts[0] if len(parts) == 1 else b''.join(parts)

    def _find_kept(self, start: int, stop: int) -> bytes:
        for first, data in (*self._kept, *self._expected):
            if first <= start < first + len(data):
                return data[start - first : stop - first]
        return b''

    def _fetch(self, start: int, stop: int) -> bytes:
        """Reads to `stop` or further, but not beyond the start of kept bytes."""
        is_sequential = start == self._sequential or any(
            start == first + len(data) for first, data in self._kept
        )
        self._read_ahead = min(MAX_READ_AHEAD, 2 * self._read_ahead) if is_sequential else MIN_READ_AHEAD
        limit = min([self._stop, *(first for first, _ in self._kept if first > start)])
        end = min(max(stop, start + self._read_ahead), limit)
        data = bytes(self._file.read(start, end))
        if end - start <= MAX_READ_AHEAD or end > stop:
            self._kept.append((start, data))
        return data[: stop - start]
