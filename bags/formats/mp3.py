"""The ID3v2 tags at the beginning of MP3 files (ID3v2.4 structure, section 3)."""

from __future__ import annotations

import re

from bags.formats.scalars import SEARCH_BLOCK_BYTES, Sliceable

TAG = re.compile(rb'ID3[\x02-\x04][^\xff].[\0-\x7f]{4}', re.DOTALL)
"""Matches the header of a tag: version, flags, and the size without headers, as four digits of 7 bits."""
FRAME_START = re.compile(rb'\xff[\xe0-\xff]')
"""Matches the beginning of a frame."""
TAG_HEADER_BYTES = 10


def check_one_file(data: Sliceable) -> None:
    """Raises ValueError if a tag follows frames, e.g. because several files were concatenated.

    libavformat returns such a tag as a packet, which decoders cannot read. A file may end with ID3v1 and APE
    tags.
    """
    start = _tag_end(bytes(data[:TAG_HEADER_BYTES]), 0)
    for first in range(start, len(data), SEARCH_BLOCK_BYTES):
        block = bytes(data[first : first + SEARCH_BLOCK_BYTES + TAG_HEADER_BYTES - 1])
        for match in TAG.finditer(block):
            position = first + match.start()
            end = _tag_end(match[0], position)
            if end == len(data) or FRAME_START.match(bytes(data[end : end + 2])):
                raise ValueError(
                    f'MP3 has a second ID3v2 tag, at byte {position}: it was joined from several files, and '
                    'decoders fail at the tag; expected one'
                )


def _tag_end(header: bytes, start: int) -> int:
    """Returns the end of the tag at `start`; `start` if `header` is not the header of a tag."""
    if not TAG.match(header):
        return start
    size = 0
    for digit in header[6:]:
        size = size << 7 | digit
    has_footer = bool(header[5] & 0x10)
    return start + TAG_HEADER_BYTES * (1 + has_footer) + size
