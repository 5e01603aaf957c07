"""What the headers of zstd frames say, of many frames at once.

Format of a frame: RFC 8878, section 3.1.1.
"""

from __future__ import annotations

import mmap

import numpy as np
import numpy.typing as npt

from bags.indexing import Int64s

__all__ = ['BEHIND', 'MAGIC', 'content_sizes', 'whole_sizes']

MAGIC = 0xFD2FB528
BEHIND = 32  # Bytes looked at from the beginning of a frame on, at most.

# By the descriptor, the byte behind the magic number: where in the frame the content size is, and its bits.
_BYTES = np.arange(256)
_SINGLE = _BYTES >> 5 & 1  # Such a frame has no window descriptor.
_PLACE = 6 - _SINGLE + np.array([0, 1, 2, 4])[_BYTES & 3]  # Behind the id of a dictionary.
_FLAG = _BYTES >> 6
_WIDTH = np.where(_FLAG == 0, _SINGLE, 1 << _FLAG)
_MASK = np.array([0, 0xFF, 0xFFFF, 0, 0xFFFFFFFF, 0, 0, 0, 0xFFFFFFFFFFFFFFFF], np.uint64)[_WIDTH]
_ADDED = np.where(_WIDTH == 2, 256, 0).astype(np.uint64)
_BLOCK = _PLACE + _WIDTH
_CHECKSUM = (_BYTES >> 2 & 1) * 4
_RESERVED = (_BYTES >> 3 & 1).astype(bool)

Words = npt.NDArray[np.uint64]


def content_sizes(data: bytes | mmap.mmap, starts: Int64s) -> Int64s:
    """Returns the content sizes that frames announce; -1 for one that is no frame, or announces none.

    Args:
        data: The frames, and `BEHIND` bytes or more behind the last start.
        starts: Where they begin.
    """
    words = _words(data)
    heads = words[starts]
    return _sizes(words, starts, heads, _descriptors(heads))


def whole_sizes(data: bytes | mmap.mmap, starts: Int64s, stops: Int64s) -> Int64s | None:
    """Returns the content sizes of frames that surely end where they should, not before nor behind.

    Surely, because a frame of one block says in its header how long it is. (A record of up to 128 KiB takes
    one, RFC 8878 section 3.1.1.2.4, unless a high level splits it.)

    Args:
        data: As for `content_sizes`.
        starts, stops: Where they begin and should end.

    Returns:
        None if a frame may not be whole, is none, or announces no content.
    """
    words = _words(data)
    heads = words[starts]
    descriptors = _descriptors(heads)
    blocks = starts + _BLOCK[descriptors]
    headers = words[blocks].astype(np.int64) & 0xFFFFFF
    sizes = np.where(headers & 6 == 2, 1, headers >> 3)  # Of type 1, a byte that is repeated.
    ends = blocks + 3 + sizes + _CHECKSUM[descriptors]
    if np.count_nonzero((ends != stops) | (headers & 1 == 0)):
        return None
    contents = _sizes(words, starts, heads, descriptors)
    return contents if int(contents.min()) > 0 else None


def _words(data: bytes | mmap.mmap) -> Words:
    """Returns the eight bytes at every place, as overlapping numbers."""
    return np.ndarray((len(data) - 7,), '<u8', data, 0, (1,))


def _descriptors(heads: Words) -> npt.NDArray[np.uint8]:
    """Returns the descriptors of frames; a single one if it is that of all, as it mostly is."""
    descriptors: npt.NDArray[np.uint8] = (heads >> np.uint64(32)).astype(np.uint8)
    return descriptors if np.count_nonzero(descriptors != descriptors[:1]) else descriptors[:1]


def _sizes(words: Words, starts: Int64s, heads: Words, descriptors: npt.NDArray[np.uint8]) -> Int64s:
    masks = _MASK[descriptors]
    found = (words[starts + _PLACE[descriptors]] & masks) + _ADDED[descriptors]
    sizes: Int64s = found.view(np.int64)
    bad = (heads.astype(np.uint32) != MAGIC) | (masks == 0) | _RESERVED[descriptors]
    sizes[bad | (sizes < 0)] = -1
    return sizes
