"""Whether zstd frames end where they should, told by their headers, for many frames at once.

A frame is a header, blocks that each say how long they are, and perhaps a checksum. Walking the headers finds
limits that do not lie between frames, without decompressing anything: a step for the first block of every
frame, one for the second of those that have two, and so on.

Format of a frame: RFC 8878, section 3.1.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bags.bag.frames import MAGIC
from bags.indexing import Int64s

__all__ = ['broken_frames']

_BYTES = np.arange(256)
_SINGLE = _BYTES >> 5 & 1  # Such a frame has no window descriptor, but a content size of at least a byte.
_FLAG = _BYTES >> 6
_WIDTH = np.where(_FLAG == 0, _SINGLE, 1 << _FLAG)
# By the byte behind the magic number: how long the header is, and whether a checksum ends the frame.
_HEADER = 5 + (1 - _SINGLE) + np.array([0, 1, 2, 4])[_BYTES & 3] + _WIDTH
_CHECKSUM = 4 * (_BYTES >> 2 & 1)
_RESERVED = (_BYTES >> 3 & 3).astype(bool)  # One bit that must be 0, and one that nobody sets.

RLE, RESERVED = 1, 3
LEAST = 9  # Bytes of a frame: magic, descriptor, content size or window, and the header of one block.


def broken_frames(buffer: Any, starts: Int64s, stops: Int64s) -> npt.NDArray[np.bool_]:
    """Returns which ranges are not exactly one zstd frame each, by the headers.

    Args:
        buffer: A file as a buffer.
        starts, stops: Ranges in it, each of at least a byte.
    """
    data = np.frombuffer(buffer, np.uint8)
    broken = stops - starts < LEAST
    if not len(data):
        return broken
    places = np.flatnonzero(~broken)
    at, ends = starts[places], stops[places]
    descriptors = data[at + 4]
    wrong = (_number(data, at, 4) != MAGIC) | _RESERVED[descriptors]
    at = at + _HEADER[descriptors]
    ends = ends - _CHECKSUM[descriptors]
    while len(places):
        wrong |= at + 3 > ends
        broken[places[wrong]] = True
        places, at, ends = places[~wrong], at[~wrong], ends[~wrong]
        header = _number(data, at, 3)
        kind = header >> 1 & 3
        at = at + 3 + np.where(kind == RLE, 1, header >> 3)
        last = (header & 1).astype(bool)
        wrong = (kind == RESERVED) | (at > ends) | (last & (at != ends))
        broken[places[wrong]] = True
        left = ~wrong & ~last
        places, at, ends = places[left], at[left], ends[left]
        wrong = np.zeros(len(places), bool)
    return broken


def _number(data: npt.NDArray[np.uint8], at: Int64s, width: int) -> Int64s:
    """Returns the little-endian numbers of so many bytes at these places, all inside the data."""
    total: Int64s = data[at].astype(np.int64)
    for byte in range(1, width):
        total |= data[at + byte].astype(np.int64) << 8 * byte
    return total
