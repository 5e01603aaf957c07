"""The tags of MP3 files (ID3v2.4 structure, section 3), with which files begin."""

from __future__ import annotations

import re

from bags.formats.scalars import Sliceable

TAG = re.compile(rb'ID3[\x02-\x04][^\xff].[\0-\x7f]{4}', re.DOTALL)
"""The header of a tag: version, flags, and four digits of 7 bits, its size without headers."""
FRAME = re.compile(rb'\xff[\xe0-\xff]')
"""The begin of a frame."""
HEADER_BYTES = 10
BLOCK_BYTES = 1 << 20


def check_one_file(data: Sliceable) -> None:
    """Raises ValueError if a tag is behind the first frames, as when files are joined.

    libavformat takes it for a packet, which no decoder can read. Tags of ID3v1 and APE may end a file.
    """
    start = _tag_end(bytes(data[:HEADER_BYTES]), 0)
    for first in range(start, len(data), BLOCK_BYTES):
        block = bytes(data[first : first + BLOCK_BYTES + HEADER_BYTES - 1])
        for found in TAG.finditer(block):
            position = first + found.start()
            end = _tag_end(found[0], position)
            if end == len(data) or FRAME.match(bytes(data[end : end + 2])):
                raise ValueError(
                    f'MP3 has a second ID3v2 tag, at byte {position}: it was joined from several files, and '
                    'decoders fail at the tag; expected one'
                )


def _tag_end(header: bytes, start: int) -> int:
    """Returns where a tag ends that begins at `start`; `start` if there is none."""
    if not TAG.match(header):
        return start
    size = 0
    for digit in header[6:]:
        size = size << 7 | digit
    has_footer = bool(header[5] & 0x10)
    return start + HEADER_BYTES * (1 + has_footer) + size
