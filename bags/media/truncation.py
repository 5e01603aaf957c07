"""Detects a missing end of a media file, from the length in its header or from its last page."""

from __future__ import annotations

import struct

from bags.formats.signatures import ebml_number
from bags.storage.range_file import BorrowedFile

MAX_OGG_PAGE_BYTES = 27 + 255 + 255 * 255


def find_truncation(file: BorrowedFile, name: str) -> str | None:
    """Describes the missing end of a file; None if the file is complete or its length is unknown."""
    size, end = file.size(), 0
    head = file.read_at(0, 64)
    if name in ('WAV', 'AVI'):
        end = 8 + int.from_bytes(head[4:8], 'little')
        end = end if end < 1 << 32 else 0
    elif name == 'AIFF':
        end = 8 + int.from_bytes(head[4:8], 'big')
    elif name == 'AU':
        start, length = int.from_bytes(head[4:8], 'big'), int.from_bytes(head[8:12], 'big')
        end = 0 if length == (1 << 32) - 1 else start + length  # The length may be unknown.
    elif name in ('WebM', 'Matroska'):
        try:
            segment = sum(ebml_number(head, 4))  # After the EBML header.
            mark = file.read_at(segment, 12)
            length, begin = ebml_number(mark, 4)
            if mark[:4] == b'\x18\x53\x80\x67' and length + 1 != 1 << 7 * (begin - 4):
                end = segment + begin + length
        except (struct.error, IndexError):
            pass  # libavformat raises.
    elif name.startswith('Ogg') and not _ends_with_page(
        file.read_at(max(0, size - MAX_OGG_PAGE_BYTES), MAX_OGG_PAGE_BYTES)
    ):
        return f'cut off: expected the end of an Ogg page, got the end of the file at {size} bytes'
    return f'cut off: expected {end} bytes, got {size}' if end > size else None


def _ends_with_page(tail: bytes) -> bool:
    """Returns whether the last page ends at the end of the file; a page lists the lengths of its segments."""
    offset = len(tail)
    while (offset := tail.rfind(b'OggS', 0, offset)) >= 0:
        count = tail[offset + 26] if offset + 26 < len(tail) else 255
        lengths = tail[offset + 27 : offset + 27 + count]
        if len(lengths) == count and offset + 27 + count + sum(lengths) == len(tail):
            return True
    return False
