"""The way to one record: functions with nothing in them that is not needed.

Reading a record of 100 B takes 0.2 µs, so an attribute or a call more can be measured. Each function here
is a closure over just what it uses, and leaves all that is unusual (an index from the end, a limit that
cannot be, a damaged frame) to the slow way, `BagFile.record`, which raises what has to be raised.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import zstandard

from bags.bag.limits import ENTRY
from bags.bag.uniform import Uniform
from bags.bag.zstd import Buffer, Zstd

if TYPE_CHECKING:
    from bags.bag.bag_file import BagFile

__all__ = ['ends_of', 'getters']

WIDE = 0x80  # From here on, the descriptor (byte 4) of a zstd frame means a size of 4 or 8 bytes.
ANNOUNCED = (1 << 16) + 255  # What a size of 1 or 2 bytes announces at most (RFC 8878, 3.1.1.1).
COPIED = 1 << 11  # Frames up to this are passed on as bytes, which are quicker made than views.


def getters(bag: BagFile) -> tuple[Callable[[int], bytes], Callable[[int], Buffer]]:
    """Returns the functions that give a record as bytes, and as a buffer that may alias the file."""
    if bag.file.buffer is None or bag.limits.buffer is None or sys.byteorder != 'little':
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


def ends_of(bag: BagFile) -> memoryview:
    """Returns the table of ends as something that is indexed by any integer.

    Arithmetic with the index would overflow where it is an `np.int8`. It also takes longer (a record of
    100 B: 167 ns with `struct`, 141 so).
    """
    table = bag.limits.buffer
    assert table is not None
    return memoryview(table)[bag.offset : bag.offset + bag.count * ENTRY].cast('Q')


def _slicing(bag: BagFile, buffer: Any, slow: Callable[[int], Any]) -> Callable[[int], Any]:
    ends, count, end = ends_of(bag), bag.count, bag.end

    def get(index: int) -> Any:
        if 0 < index < count:
            start, stop = ends[index - 1], ends[index]
            if start <= stop <= end:
                return buffer[start:stop]
        return slow(index)

    return get


def _uniform(
    bag: BagFile, uniform: Uniform, buffer: Any, otherwise: Callable[[int], Any]
) -> Callable[[int], Any]:
    count, length, marks, touch = bag.count, uniform.length, uniform.marks, uniform.touch

    def get(index: int) -> Any:
        if type(index) is int and 0 <= index < count:  # An np.int8 would overflow.
            if marks[index >> 9] == 255:
                start = index * length
                return buffer[start : start + length]
            touch(index)
        return otherwise(index)

    return get


def _decoding(bag: BagFile, codec: Zstd) -> Callable[[int], bytes]:
    """As `Zstd.decode` of the record's bytes, without the calls in between."""
    buffer, view, ends, slow = bag.file.buffer, bag.view, ends_of(bag), bag.record
    assert buffer is not None
    assert view is not None
    count, end, copied = bag.count, bag.end, COPIED
    content_size, most, local = zstandard.frame_content_size, codec.max_record_size, codec.local
    small = WIDE if most >= ANNOUNCED else 0

    def get(index: int) -> bytes:
        if 0 < index < count:
            start, stop = ends[index - 1], ends[index]
            if start < stop <= end:
                frame = buffer[start:stop] if stop - start < copied else view[start:stop]
                try:
                    if frame[4] < small or 0 < content_size(frame) <= most:
                        record: bytes = local.decompress(frame, 0, False, False)
                        if record:
                            return record  # An empty one is not looked at beyond its header.
                except (zstandard.ZstdError, AttributeError, IndexError):
                    pass  # Damaged, too short, or this thread's first frame: the long way knows.
        return slow(index)

    return get
