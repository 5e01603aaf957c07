"""JPEG, to and from uint8 arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from bags.formats.encoded import Encoded, already_encoded, decodes
from bags.formats.images import Pixels, check_size, image_quality, load, save
from bags.formats.scalars import Buffer

__all__ = ['decode_jpeg', 'encode_jpeg']


def encode_jpeg(value: Any, *args: str) -> Encoded:
    """Encodes an image as JPEG, with chroma at half the resolution (4:2:0).

    Args:
        value: uint8, shape (height, width), (height, width, 1) or (height, width, 3), a PIL image,
            or a JPEG file: bytes or a path.
        *args: The quality, 1 to 100; 95 by default.

    Raises:
        TypeError: Not uint8.
        ValueError: Another shape, a side of more than 65,535 pixels, or a file that is not JPEG.
    """
    quality = image_quality(*args) or 95
    return already_encoded(value, 'JPEG') or save(value, 'JPEG', (1, 3), quality=quality)


@decodes('JPEG')
def decode_jpeg(data: Buffer, *_args: str) -> Pixels:
    """Decodes a JPEG with simplejpeg where it is installed, else with Pillow. CMYK is converted to RGB.

    Both use libjpeg-turbo and give the same pixels. Only simplejpeg detects damage inside the compressed
    data, of which a JPEG has no checksum.

    Returns:
        uint8, shape (height, width) if gray, else (height, width, 3).

    Raises:
        ValueError: Not JPEG, cut off, damaged, or more than `MAX_PIXELS`.
    """
    # Chosen by benchmarks/jpeg.py (November 2026, 2 cores, other photographs; ms an image from a memoryview,
    # on one thread / on two):
    #
    #                            simplejpeg        Pillow   imagecodecs        OpenCV            av
    #     512 x 512, 99 KB       0.9 / 0.5     1.3 / 0.7     1.0 / 0.6     1.0 / 0.6     1.4 / 0.8
    #     1411 x 1411, 228 KB    3.8 / 2.2     5.7 / 4.0     3.9 / 2.3     4.0 / 2.5    13.4 / 8.9
    #     3000 x 2000, 640 KB    12.8 / 11    45.5 / 32     12.6 / 7.9    12.6 / 8.8    16.3 / 9.2
    #     3000 x 2000, 1.2 MB    14.6 / 12    38.8 / 37     16.9 / 13     18.5 / 15     21.8 / 18
    #
    # All release the GIL, and all but av (off by up to 36) give Pillow's pixels. Of the three fast ones
    # simplejpeg is the smallest (0.4 MB, against 18 and 60), takes any buffer without a copy, and reports
    # damage. Pillow reads the memoryview in blocks of 64 KB; a BytesIO copies all of it, and is not faster.
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
        # The rest of the image would be grey or noise.
        if any(phrase in str(exc) for phrase in ('remature end', 'bad Huffman code')):
            raise
        # Pillow decides about other irregularities, such as stray bytes between segments, which cameras and
        # web sites leave.
        return load(data, 'Jpeg')
    return np.array(pixels[:, :, 0]) if space == 'Gray' else pixels
