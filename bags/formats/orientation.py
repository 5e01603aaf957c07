"""How pictures are turned to be shown: by the EXIF tag of an image, or by the display matrix of a video."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy.typing as npt

from bags.formats.scalars import Buffer

__all__ = ['UPRIGHT', 'Orientation', 'exif_orientation', 'jpeg_orientation', 'matrix_orientation']


Array = npt.NDArray[Any]


class Orientation(NamedTuple):
    """What is done to the stored pixels, in this order."""

    transpose: bool = False
    flip_rows: bool = False
    flip_columns: bool = False

    @property
    def rotation(self) -> int:
        """Degrees clockwise: 0, 90, 180 or 270; of a mirrored picture, after it is mirrored left to right."""
        if self.transpose:
            return 90 if self.flip_columns else 270
        return 180 if self.flip_rows else 0

    def apply(self, pixels: Array) -> Array:
        """Returns pixels, shape (height, width, ...), as they are shown, without a copy."""
        if self == UPRIGHT:
            return pixels
        pixels = pixels.swapaxes(0, 1) if self.transpose else pixels
        return pixels[:: -1 if self.flip_rows else 1, :: -1 if self.flip_columns else 1]


UPRIGHT = Orientation()
_OF_EXIF = {number: Orientation('t' in how, 'r' in how, 'c' in how)
            for number, how in enumerate(('', 'c', 'rc', 'r', 't', 'tc', 'trc', 'tr'), 1)}  # fmt: skip
"""By the value of the tag: transposed, rows flipped, columns flipped."""


def matrix_orientation(data: Buffer | None) -> Orientation:
    """Returns the orientation of a display matrix of FFmpeg, 9 native int32, to the nearest right angle."""
    if data is None:
        return UPRIGHT
    a, b, _, c, d = struct.unpack_from('=5i', data)  # x' = a x + c y, y' = b x + d y
    if abs(b) + abs(c) > abs(a) + abs(d):
        return Orientation(True, b < 0, c < 0)
    return Orientation(False, d < 0, a < 0)


def exif_orientation(data: Buffer) -> Orientation:
    """Returns the orientation in EXIF data; upright if there is none, or if the data is damaged."""
    try:
        tiff = bytes(data[6:] if bytes(data[:6]) == b'Exif\0\0' else data)
        order = {b'II*\0': '<', b'MM\0*': '>'}[tiff[:4]]
        (start,) = struct.unpack_from(order + 'I', tiff, 4)
        (count,) = struct.unpack_from(order + 'H', tiff, start)
        for number in range(count):
            tag, kind, _, value = struct.unpack_from(order + 'HHIH', tiff, start + 2 + 12 * number)
            if (tag, kind) == (0x112, 3):
                return _OF_EXIF[value]
    except (KeyError, struct.error):
        pass
    return UPRIGHT


def jpeg_orientation(data: Buffer) -> Orientation:
    """Returns the orientation of a JPEG, by the EXIF segment before its image data."""
    start = 2
    while start + 10 <= len(data) and data[start] == 0xFF and data[start + 1] != 0xDA:
        length = data[start + 2] << 8 | data[start + 3]
        if data[start + 1] == 0xE1 and bytes(data[start + 4 : start + 10]) == b'Exif\0\0':
            return exif_orientation(data[start + 4 : start + 2 + length])
        start += 2 + max(length, 2)
    return UPRIGHT
