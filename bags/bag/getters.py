"""The way to one record: functions with nothing in them that is not needed.

Reading a record of 100 B takes 0.2 µs, so an attribute or a call more can be measured. Each function here
is a closure over just what it uses, and leaves all that is unusual (an index from the end, a limit that
cannot be, a damaged frame) to the slow way, `OpenBag.record`, which raises what has to be raised.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import zstandard

from bags.bag.compression import Buffer, Zstd
from bags.bag.limits import ENTRY, Table

if TYPE_CHECKING:
    from bags.bag.opened import OpenBag

__all__ = ['SHIFT', 'SOUND', 'Uniform', 'getters']

COPIED = (
    1 << 11
)  # Frames up to this are passed on as bytes, which are quicker made than a view; larger ones not.
SHIFT = 9  # Limits are looked over in blocks of this many bits: a page of memory.
SOUND = 255
UNEVEN = 254
OFTEN = 8  # A block used this often is looked over as a whole.

_pair = struct.Struct('<QQ').unpack_from


class Uniform:
    """The one length that all records of a bag seem to have, as the ends of the first and the last say.

    Where it is known of a record, it is read without a look at its limits (a third of the time, and a
    cache miss less). It is known once the block of limits that it is in was compared with what it should
    be, which is done for blocks that are used often, and never for all at once.
    """

    def __init__(self, ends: Table, length: int) -> None:
        self.ends = ends
        self.length = length
        self.marks = bytearray(((len(ends) - 1) >> SHIFT) + 1)
        """By block: how often it was used, then SOUND or UNEVEN."""

    def touch(self, index: int) -> None:
        """Counts a use of a record, and looks its block over if there were enough."""
        block = index >> SHIFT
        mark = self.marks[block]
        if mark < OFTEN:
            self.marks[block] = mark + 1
        elif mark < UNEVEN:
            start = block << SHIFT
            found = self.ends[max(0, start - 1) : start + (1 << SHIFT)]
            first = start or start + 1
            expected = np.arange(first, first + len(found), dtype=np.int64) * self.length
            self.marks[block] = SOUND if bool((found == expected).all()) else UNEVEN


def getters(bag: OpenBag) -> tuple[Callable[[int], bytes], Callable[[int], Buffer]]:
    """Returns the functions that give a record as bytes, and as a buffer that may alias the file."""
    if bag.file.buffer is None or bag.limits.buffer is None:
        return bag.record, bag.record_view
    if bag.codec is not None:
        decoding = _decoding(bag, bag.codec)
        return decoding, decoding
    assert bag.view is not None
    get, get_view = _slicing(bag, bag.file.buffer, bag.record), _slicing(bag, bag.view, bag.record_view)
    if bag.uniform is not None:
        return _uniform(bag, bag.uniform, bag.file.buffer, get), _uniform(
            bag, bag.uniform, bag.view, get_view
        )
    return get, get_view


def _slicing(bag: OpenBag, buffer: Any, slow: Callable[[int], Any]) -> Callable[[int], Any]:
    table, first, count, end, pair = bag.limits.buffer, bag.offset - ENTRY, bag.count, bag.end, _pair
    assert table is not None

    def get(index: int) -> Any:
        if 0 < index < count:
            start, stop = pair(table, first + 8 * index)
            if start <= stop <= end:
                return buffer[start:stop]
        return slow(index)

    return get


def _uniform(
    bag: OpenBag, uniform: Uniform, buffer: Any, otherwise: Callable[[int], Any]
) -> Callable[[int], Any]:
    count, length, marks, touch = bag.count, uniform.length, uniform.marks, uniform.touch

    def get(index: int) -> Any:
        if 0 <= index < count:
            if marks[index >> 9] == 255:
                start = index * length
                return buffer[start : start + length]
            touch(index)
        return otherwise(index)

    return get


def _decoding(bag: OpenBag, codec: Zstd) -> Callable[[int], bytes]:
    """As `Zstd.decode` of the record's bytes, without the calls in between."""
    buffer, view, table, slow = bag.file.buffer, bag.view, bag.limits.buffer, bag.record
    assert buffer is not None
    assert view is not None
    assert table is not None
    first, count, end, pair = bag.offset - ENTRY, bag.count, bag.end, _pair
    content_size, most, local = zstandard.frame_content_size, codec.max_record_size, codec.local

    def get(index: int) -> bytes:
        if 0 < index < count:
            start, stop = pair(table, first + 8 * index)
            if start < stop <= end:
                frame = buffer[start:stop] if stop - start < COPIED else view[start:stop]
                try:
                    if 0 < content_size(frame) <= most:
                        record: bytes = local.decompress(frame, 0, False, False)
                        return record
                except (zstandard.ZstdError, AttributeError):
                    pass  # Damaged, or this thread's first frame: the long way knows.
        return slow(index)

    return get
