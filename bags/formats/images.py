"""Images: uint8 arrays, and uint16 ones as PNG, to and from JPEG, PNG, WebP and AVIF.

A picture comes back as it is stored. It is not turned by its EXIF orientation: boxes, masks and keypoints
that belong to a picture are given in its stored pixels, and OpenCV's and torchvision's decoders leave it too;
turn before storing, or by the tag. Colour profiles and gamma are not applied. Of an animation, the first
picture is read.
"""

from __future__ import annotations

import importlib
import io
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bags.errors import MissingDependencyError
from bags.formats.arguments import check_count, whole_number
from bags.formats.media import BufferFile, Encoded, already_encoded, decodes
from bags.formats.scalars import Buffer
from bags.memory import aligned

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    'MAX_PIXELS',
    'decode_avif',
    'decode_jpeg',
    'decode_jpegs',
    'decode_png',
    'decode_webp',
    'encode_avif',
    'encode_jpeg',
    'encode_png',
    'encode_webp',
    'image_quality',
    'webp_quality',
]

MAX_PIXELS = 2**28
"""Pictures of more pixels (16384 x 16384) are refused before memory is taken for them: a few bytes can claim
any size."""

SHARING = 1 << 20
"""Bytes of a picture, at most, that shares a block with others: whoever keeps it, keeps the block."""
BLOCK = 64 << 20

Pixels = np.ndarray[Any, np.dtype[Any]]


# Of a JPEG, all that comes before its size, in segments that have a length: tables, comments, and what
# applications have to say. Frames of 8 bits a channel, baseline or progressive, are what most have.
START = b'\xff\xd8'
SEGMENT = struct.Struct('>BBH')
FRAME = struct.Struct('>BHHB')
FRAMES = frozenset((0xC0, 0xC1, 0xC2))
HEAD = 1 << 10  # Bytes to the end of the size, at most, that are compared with those of another.
FEW = 32  # Segments that are looked at.
SEGMENTS = FRAMES | {0xC4, 0xDB, 0xDD, *range(0xE0, 0xF0), 0xFE}


def image_quality(*args: str) -> int | None:
    """Reads the argument of `jpeg(quality)` and `avif(quality)`: 1 to 100, or None if there is none."""
    check_count(args, 1, 'one quality')
    return whole_number(args[0], 1, 100, 'a quality') if args else None


def webp_quality(*args: str) -> int | None:
    """Reads the argument of `webp(quality)`: 1 to 100, 0 for `lossless`, or None if there is none."""
    return 0 if args == ('lossless',) else image_quality(*args)


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
    return already_encoded(value, 'JPEG') or _save(value, 'JPEG', (1, 3), quality=quality)


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
        return _load(data, 'Jpeg')
    if space not in ('Gray', 'YCbCr', 'RGB'):
        return _load(data, 'Jpeg')
    _check_size(width, height)
    try:
        pixels: Pixels = simplejpeg.decode_jpeg(data, 'GRAY' if space == 'Gray' else 'RGB')
    except ValueError as exc:
        # Here the rest of the picture would be grey or noise.
        if any(phrase in str(exc) for phrase in ('remature end', 'bad Huffman code')):
            raise
        # Whatever else it minds, such as the stray bytes between segments that cameras and web sites leave,
        # is Pillow's to decide.
        return _load(data, 'Jpeg')
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


def _shapes(records: Sequence[Buffer]) -> list[tuple[int, int, int] | None]:
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


def _shape(data: Buffer) -> tuple[tuple[int, int, int] | None, int]:
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


def _rooms(shapes: list[tuple[int, int, int] | None]) -> list[Pixels | None]:
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
            block, used = aligned(max(size, min(BLOCK, left))), 0
        rooms.append(block[used : used + size].reshape(shape))
        left, used = left - size, used + size
    return rooms


def encode_png(value: Any) -> Encoded:
    """Encodes a picture as PNG, exactly.

    Args:
        value: uint8, shape (height, width), (height, width, 1), (height, width, 3) or (height, width, 4) with
            alpha; uint16, shape (height, width), such as a depth map; a PIL image; or what is PNG already:
            bytes or a path.

    Raises:
        TypeError: Neither uint8 nor uint16.
        ValueError: Another shape, or a file that is not PNG.
    """
    return already_encoded(value, 'PNG') or _save(value, 'PNG', (1, 3, 4))


@decodes('PNG')
def decode_png(data: Buffer) -> Pixels:
    """Decodes a PNG.

    Palettes become RGB or RGBA, 1 to 4 bits of gray become 8, and any transparency an alpha channel.

    Returns:
        uint8, shape (height, width), (height, width, 3) or (height, width, 4); uint16, shape (height, width),
        if it has 16 bits of gray.

    Raises:
        ValueError: Not PNG, cut off, damaged (every chunk has a checksum), more than `MAX_PIXELS`, or 16 bits
            with colour or alpha: Pillow would drop 8 of them, so read these as `bytes` with a decoder of your
            own.
    """
    depth, colour = bytes(data[24:26])
    if depth == 16 and colour != 0:
        raise ValueError('PNG with 16 bits a channel is read in grayscale only, got colour or alpha')
    return _load(data, 'Png')


def encode_webp(value: Any, *args: str) -> Encoded:
    """Encodes a picture as WebP.

    Args:
        value: uint8, shape (height, width, 3) or (height, width, 4) with alpha, a PIL image, or what is WebP
            already: bytes or a path. WebP has no grayscale.
        *args: The quality, 1 to 100 (90 unless told), or `'lossless'`.

    Raises:
        TypeError: Not uint8.
        ValueError: Another shape, larger than 16,383 pixels a side, or a file that is not WebP.
    """
    quality = webp_quality(*args)
    how = {'lossless': True} if quality == 0 else {'quality': quality or 90}
    return already_encoded(value, 'WebP') or _save(value, 'WebP', (3, 4), exact=True, **how)


@decodes('WebP')
def decode_webp(data: Buffer, *_args: str) -> Pixels:
    """Decodes a WebP.

    Returns:
        uint8, shape (height, width, 3), or (height, width, 4) if any pixel is not opaque: WebP does not keep
        an alpha channel without effect.

    Raises:
        ValueError: Not WebP, cut off, damaged, or more than `MAX_PIXELS`.
    """
    return _load(data, 'WebP')


def encode_avif(value: Any, *args: str) -> Encoded:
    """Encodes a picture as AVIF.

    Args:
        value: uint8, shape (height, width, 3) or (height, width, 4) with alpha, a PIL image, or what is AVIF
            already: bytes or a path. Grayscale is not taken, because it would come back as RGB.
        *args: The quality, 1 to 100; 90 unless told.

    Raises:
        TypeError: Not uint8.
        ValueError: Another shape, or a file that is not AVIF.
    """
    quality = image_quality(*args) or 90
    return already_encoded(value, 'AVIF') or _save(value, 'AVIF', (3, 4), quality=quality)


@decodes('AVIF')
def decode_avif(data: Buffer, *_args: str) -> Pixels:
    """Decodes an AVIF.

    Returns:
        uint8, shape (height, width, 3), or (height, width, 4) if it has an alpha channel.

    Raises:
        ValueError: Not AVIF, cut off, damaged, or more than `MAX_PIXELS`.
    """
    return _load(data, 'Avif')


def _load(data: Buffer, name: str) -> Pixels:
    # The plugin's class instead of Image.open: no other plugin sees the bytes, none is imported, and the
    # limit is ours instead of a warning.
    image = _plugin(name)(BufferFile(data))
    _check_size(*image.size)
    return _pixels(image)


def _plugin(name: str) -> Callable[[Any], Image]:
    try:
        module = importlib.import_module(f'PIL.{name}ImagePlugin')
    except ImportError as exc:
        raise MissingDependencyError('pillow', 'images') from exc
    plugin: Callable[[Any], Image] = getattr(module, f'{name}ImageFile')
    return plugin


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise ValueError(f'expected at most {MAX_PIXELS} pixels, got {width} x {height}')


def _pixels(image: Image) -> Pixels:
    """The pixels of a PIL image of any mode that has 8 bits a channel, or 16 of gray."""
    mode = image.mode
    if mode.startswith('I;16'):
        return np.array(image).astype(np.uint16, copy=False)
    if mode in ('I', 'F') or ';' in mode:
        raise ValueError(f'expected an image of 8 bits a channel, or 16 of gray, got mode {mode}')
    if image.has_transparency_data and mode != 'RGBA':
        image = image.convert('RGBA')
    elif mode == '1':
        image = image.convert('L')
    elif mode not in ('L', 'RGB', 'RGBA'):
        image = image.convert('RGB')
    return np.array(image)


def _save(value: Any, format: str, channels: Sequence[int], **how: Any) -> bytes:
    try:
        from PIL import Image
    except ImportError as exc:
        raise MissingDependencyError('pillow', 'images') from exc
    _plugin(format.title() if format != 'WebP' else format)
    array = _pixels(value) if isinstance(value, Image.Image) else np.asarray(value)
    array = array.astype(array.dtype.newbyteorder('='), copy=False)
    if array.dtype != np.uint8 and not (format == 'PNG' and array.dtype == np.uint16):
        raise TypeError(f'expected an image of uint8, got {type(value).__name__} of {array.dtype}')
    if array.ndim == 2 and 1 in channels:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in channels or array.size == 0:
        shapes = ', '.join(f'(height, width, {count})' for count in channels)
        raise ValueError(f'expected a picture of shape {shapes}, got {array.shape}')
    if array.dtype == np.uint16 and array.shape[2] != 1:
        raise ValueError(f'expected uint16 in grayscale only, shape (height, width), got {array.shape}')
    _check_size(*array.shape[:2])
    picture = array[:, :, 0] if array.shape[2] == 1 else array
    stream = io.BytesIO()
    try:
        image = Image.fromarray(np.ascontiguousarray(picture))
        image.save(stream, format, **how)
    except (OSError, RuntimeError) as exc:
        raise ValueError(f'cannot encode {array.shape} as {format}: {exc}') from exc
    return stream.getvalue()
