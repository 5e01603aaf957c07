"""JPEG, to and from uint8 arrays; of a batch, laid out in memory before any is decoded."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from bags.formats.encoded import Encoded, already_encoded, decodes
from bags.formats.images import Pixels, check_size, image_quality, load, save
from bags.formats.scalars import Buffer

__all__ = ['decode_jpeg', 'decode_jpegs', 'encode_jpeg']

SHARING = 1 << 20
"""Bytes of a picture, at most, that shares a block with others: whoever keeps it, keeps the block."""
BLOCK = 64 << 20

# All that comes before the size, in segments that have a length: tables, comments, and what
# applications have to say. Frames of 8 bits a channel, baseline or progressive, are what most have.
START = b'\xff\xd8'
SEGMENT = struct.Struct('>BBH')
FRAME = struct.Struct('>BHHB')
FRAMES = frozenset((0xC0, 0xC1, 0xC2))
HEAD = 1 << 10  # Bytes to the end of the size, at most, that are compared with those of another.
FEW = 32  # Segments that are looked at.
SEGMENTS = FRAMES | {0xC4, 0xDB, 0xDD, *range(0xE0, 0xF0), 0xFE}

Shape = tuple[int, int, int]


def encode_jpeg(value: Any, *args: str) -> Encoded:
    """Encodes a picture as JPEG, with colour at half the resolution (4:2:0).

    Args:
        value: uint8, shape (height, width), (height, width, 1) or (height, width, 3), a PIL image,
            or what is JPEG already: bytes or a path.
        *args: The quality, 1 to 100; 95 unless told.

    Raises:
        TypeError: Not uint8.
        ValueError: Another shape, larger than 65,535 pixels a side, or a file that is not JPEG.
    """
    quality = image_quality(*args) or 95
    return already_encoded(value, 'JPEG') or save(value, 'JPEG', (1, 3), quality=quality)


@decodes('JPEG')
def decode_jpeg(data: Buffer, *_args: str) -> Pixels:
    """Decodes a JPEG. A file that is cut off raises; CMYK is turned into RGB.

    simplejpeg is used where it is installed, Pillow else. Both give the same pixels, being libjpeg-turbo;
    only simplejpeg sees damage inside the compressed data, of which a JPEG has no checksum.

    Returns:
        uint8, shape (height, width) if gray, else (height, width, 3).

    Raises:
        ValueError: Not JPEG, cut off, damaged, or more than `MAX_PIXELS`.
    """
    # Chosen by benchmarks/jpeg.py (November 2026, 2 cores, other photographs; ms a picture from a memoryview,
    # on one thread / on two):
    #
    #                            simplejpeg        Pillow   imagecodecs        OpenCV            av
    #     512 x 512, 99 KB       0.9 / 0.5     1.3 / 0.7     1.0 / 0.6     1.0 / 0.6     1.4 / 0.8
    #     1411 x 1411, 228 KB    3.8 / 2.2     5.7 / 4.0     3.9 / 2.3     4.0 / 2.5    13.4 / 8.9
    #     3000 x 2000, 640 KB    12.8 / 11    45.5 / 32     12.6 / 7.9    12.6 / 8.8    16.3 / 9.2
    #     3000 x 2000, 1.2 MB    14.6 / 12    38.8 / 37     16.9 / 13     18.5 / 15     21.8 / 18
    #
    # All release the GIL, and all but av (off by up to 36) give Pillow's pixels. Of the three fast ones
    # simplejpeg is the smallest (0.4 MB, against 18 and 60), takes any buffer as it is, and tells of damage.
    # Pillow reads the memoryview in blocks of 64 KB; a BytesIO over it would be a copy of all, and is not
    # faster.
    try:
        import simplejpeg

        height, width, space, _ = simplejpeg.decode_jpeg_header(data)
    except (ImportError, ValueError):
        return load(data, 'Jpeg')
    if space not in ('Gray', 'YCbCr', 'RGB'):
        return load(data, 'Jpeg')
    check_size(width, height)
    try:
        pixels: Pixels = simplejpeg.decode_jpeg(data, 'GRAY' if space == 'Gray' else 'RGB')
    except ValueError as exc:
        # Here the rest of the picture would be grey or noise.
        if any(phrase in str(exc) for phrase in ('remature end', 'bad Huffman code')):
            raise
        # Whatever else it minds, such as the stray bytes between segments that cameras and web sites leave,
        # is Pillow's to decide.
        return load(data, 'Jpeg')
    return np.array(pixels[:, :, 0]) if space == 'Gray' else pixels


def decode_jpegs(records: Sequence[Buffer], each: Callable[..., Iterable[Pixels]] = map) -> list[Pixels]:
    """Decodes several JPEGs as `decode_jpeg` does; small ones share the memory that they are in.

    Around each there is next to nothing in Python: threads that decode would wait for one another.

    Args:
        records: The JPEGs.
        each: What does work on each of several things.
    """
    try:
        from simplejpeg import decode_jpeg as decode_in
    except ImportError:
        return list(each(decode_jpeg, records))

    def decode(picture: tuple[Buffer, Pixels | None]) -> Pixels:
        data, room = picture
        if room is not None:
            try:
                shape = decode_in(data, 'RGB', buffer=room).shape
            except Exception:
                shape = ()  # It is looked at again.
            if shape == room.shape:
                return room
        return decode_jpeg(data)

    rooms = _rooms(_shapes(records)) if len(records) > 1 else [None] * len(records)
    return list(each(decode, list(zip(records, rooms, strict=True))))


vars(decode_jpeg)['together'] = decode_jpegs


def _shapes(records: Sequence[Buffer]) -> list[Shape | None]:
    """Returns the shapes of JPEGs of colour; None for those of gray, and all that is out of the ordinary.

    Many have the same bytes up to their size and its, so that only the first is looked through. simplejpeg's
    function lets go of the GIL, and to get that back takes longer than this.
    """
    shapes = []
    head, shape = b'', None
    for data in records:
        start = bytes(data[: len(head)])
        if not head or start != head:
            shape, stop = _shape(data)
            head = bytes(data[:stop]) if stop <= HEAD else b''
        shapes.append(shape)
    return shapes


def _shape(data: Buffer) -> tuple[Shape | None, int]:
    """Returns the shape of a JPEG of colour, and after how many bytes it is known; else None and 0."""
    stop = len(START)
    try:
        for _ in range(FEW if data[:stop] == START else 0):
            begin, code, length = SEGMENT.unpack_from(data, stop)
            if begin != 0xFF or code not in SEGMENTS:
                break
            if code in FRAMES:
                depth, height, width, channels = FRAME.unpack_from(data, stop + SEGMENT.size)
                if depth != 8 or channels != 3 or not height or not width:
                    break
                return (height, width, 3), stop + SEGMENT.size + FRAME.size
            stop += 2 + length
    except struct.error:
        pass
    return None, 0


def _rooms(shapes: list[Shape | None]) -> list[Pixels | None]:
    """Returns memory for pictures that are decoded together, in blocks; None for those that need their own.

    Memory that is new to a process costs a page fault every 4 KB: of 64 pictures of 256 x 256, 60 us each,
    where decoding takes 220. Large blocks come in pages of 2 MB, as numpy asks for them, and cost 5.
    """
    sizes = [math.prod(shape) if shape else 0 for shape in shapes]
    left = sum(size for size in sizes if size <= SHARING)
    block, used = np.empty(0, np.uint8), 0
    rooms: list[Pixels | None] = []
    for shape, size in zip(shapes, sizes, strict=True):
        if shape is None or size > SHARING:
            rooms.append(None)
            continue
        if used + size > len(block):
            block, used = np.empty(max(size, min(BLOCK, left)), np.uint8), 0
        rooms.append(block[used : used + size].reshape(shape))
        left, used = left - size, used + size
    return rooms
