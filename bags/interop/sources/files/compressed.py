"""Compressed files as streams that verify checksums, up to the last byte of the file.

The classes of the standard library verify a checksum only if a caller reads past the last byte, and the
reader of zstandard treats the end of a truncated file as the end of its content.
"""

from __future__ import annotations

import bz2
import lzma
import os
import zlib
from collections.abc import Callable
from typing import BinaryIO, Protocol

import zstandard

from bags.interop.source import check_expanded


class Decompressor(Protocol):
    """A decompressor of one member of a file, as in the standard library."""

    @property
    def eof(self) -> bool:
        """Whether the member is complete."""
        ...

    @property
    def unused_data(self) -> bytes:
        """The bytes after the member."""
        ...

    def decompress(self, data: bytes, /) -> bytes: ...


CODECS: dict[str, tuple[bytes, Callable[[], Decompressor]]] = {
    'gz': (b'\x1f\x8b\x08', lambda: zlib.decompressobj(wbits=31)),
    'bz2': (b'BZh', bz2.BZ2Decompressor),
    'xz': (b'\xfd7zXZ\0', lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=1 << 30)),
    'zstd': (b'\x28\xb5\x2f\xfd', lambda: zstandard.ZstdDecompressor().decompressobj()),
}
"""For each codec, the first bytes of a file, and a function that returns a decompressor for one member."""
_PADDED = ('gz', 'xz')
"""Codecs whose data may be followed by zeros."""
_STORED_BYTES = 1 << 12
"""Compressed bytes that are decompressed at a time; with zstd, to at most 128 MiB."""
_KEPT_BYTES = 1 << 10
"""Bytes before the buffered content that are kept, so that `seek` can go back to them."""


def codec_of(head: bytes) -> str:
    """Returns the codec of a file by its first bytes; '' for other files."""
    return next((codec for codec, (magic, _) in CODECS.items() if head.startswith(magic)), '')


class DecompressedFile:
    """The content of a compressed file, which may have several members, read in order.

    The checksum of a member is verified when its last byte is read, so content that was returned earlier may
    turn out to be damaged. All checksums are verified after `finish`, and after a `read` that returns fewer
    bytes than requested.

    Raises:
        ValueError: The file is damaged, cut off, or followed by other bytes.
    """

    def __init__(self, file: BinaryIO, codec: str) -> None:
        self._file, self._codec = file, codec
        self._member: Decompressor | None = None
        self._stored = b''
        """Bytes of the file after the current member."""
        self._buffer = b''
        self._position = 0
        """Position in the buffer."""
        self._offset = 0
        """Position of the buffer in the content."""
        self._ended = self._has_members = False

    def tell(self) -> int:
        return self._offset + self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves forward, or a few bytes back."""
        offset += self.tell() if whence == os.SEEK_CUR else 0
        while offset > self._offset + len(self._buffer) and self._fill():
            pass
        self._position = min(offset - self._offset, len(self._buffer))
        if self._position < 0:
            raise ValueError(f'expected a position from {self._offset} on, got {offset}')
        return self.tell()

    def read(self, size: int) -> bytes:
        """Returns up to `size` bytes, at most 1 GiB; fewer only at the end of the content."""
        check_expanded(size, 'a part of it')
        parts = []
        while True:
            parts.append(self._buffer[self._position : self._position + size])
            self._position += len(parts[-1])
            size -= len(parts[-1])
            if not size or not self._fill():
                return b''.join(parts)

    def finish(self) -> None:
        """Reads to the end, which verifies the remaining checksums."""
        while self._fill():
            pass

    def _fill(self) -> bool:
        """Appends content to the buffer; returns False at the end of the content."""
        while not self._ended:
            if data := self._decompress():
                tail = self._buffer[-_KEPT_BYTES:]
                self._position += len(tail) - len(self._buffer)
                self._offset += len(self._buffer) - len(tail)
                self._buffer = tail + data
                return True
        return False

    def _decompress(self) -> bytes:
        """Decompresses the next bytes of the file; the result may be empty."""
        stored = self._stored or self._file.read(_STORED_BYTES)
        self._stored = b''
        if self._member is None:
            if self._has_members and self._codec in _PADDED and stored:
                stored = stored.lstrip(b'\0')
                if not stored:
                    return b''
            if self._has_members and not stored:
                self._ended = True
                return b''
            self._member, self._has_members = CODECS[self._codec][1](), True
        if not stored:
            raise ValueError(f'expected the end of its {self._codec} data, got the end of the file')
        try:
            data = self._member.decompress(stored)
        except (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, ValueError, EOFError) as exc:
            raise ValueError(f'its {self._codec} data is damaged: {exc}') from exc
        if self._member.eof:
            self._stored, self._member = self._member.unused_data, None
        return data
