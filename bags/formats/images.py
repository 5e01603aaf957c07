"""JPEG, PNG, WebP and AVIF: encodes and decodes arrays of pixels; and images of any format.

| type | encodes | quality | decodes to |
| --- | --- | --- | --- |
| `jpeg(quality)` | gray, RGB | 1 to 100, 95 by default | gray, RGB; CMYK as RGB |
| `png` | gray, gray of uint16, RGB, RGBA | lossless | the same; palettes as RGB or RGBA |
| `webp(quality)` | RGB, RGBA | 1 to 100, 90 by default, or `lossless` | RGB; RGBA if a pixel is not opaque |
| `avif(quality)` | RGB, RGBA | 1 to 100, 90 by default | RGB, RGBA |
| `image(mode)` | files of seven formats; pixels as PNG | | as stored, or in the mode |

Gray has shape (height, width), or, for encoding, (height, width, 1); RGB has shape (height, width, 3), and
RGBA (height, width, 4). Pixels are uint8, except gray in PNG and TIFF, such as depth, which may be uint16, or
in TIFF float32.
Formats that do not support gray reject it, since it would be decoded as RGB.

Images are rotated by their EXIF orientation when they are decoded, as in viewers and browsers. The option
`rotate=False` of each type returns the stored pixels, to which boxes and masks made with torchvision or
OpenCV may refer. `min_side=256` decodes JPEGs at a reduced size; see `draft_decoders`. PIL images are rotated
when they are encoded. Colour profiles and gamma are not applied. The first image of an animation is decoded.

Encoders accept pixels, a PIL image, or a file of their format, as bytes or a path, which is stored unchanged.
They raise TypeError for pixels of another dtype, and ValueError for another shape or another format. Decoders
raise ValueError if the file has another format, is cut off or damaged, has pixels that take more than
`max_size` bytes, or has 16 bits a channel with colour or alpha, since Pillow would drop 8 bits.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bags.errors import MissingDependencyError
from bags.formats.arrays import as_array
from bags.formats.encoded import Encoded, already_encoded, decodes
from bags.formats.pixels import UPRIGHT, exif_orientation, jpeg_orientation
from bags.formats.scalars import (
    MAX_VALUE_SIZE,
    Buffer,
    check_count,
    check_value_size,
    parse_bool,
    parse_int,
    split_options,
)
from bags.formats.signatures import IMAGES, identify
from bags.storage.range_file import BorrowedFile, BufferFile
from bags.validation import at_least

MODES = {'gray': ('L', ()), 'rgb': ('RGB', (3,)), 'rgba': ('RGBA', (4,))}
"""Maps the modes of `image(mode)` to Pillow's names, and to the last dimensions of their shape."""

DEPTH_ERROR = (
    '{name} with 16 bits a channel is decoded in grayscale only, got colour or alpha; '
    "'image(rgb)' decodes the upper 8 bits"
)
_DEPTHS = 'an image of 8 bits a channel, or 16 of gray'
MAX_SIDE = 65535
"""Maximum number of pixels of a side of a JPEG."""

Pixels = np.ndarray[Any, np.dtype[Any]]


def _split(args: tuple[str, ...], form: str, count: int = 1) -> tuple[str | None, bool, int]:
    """Returns the positional argument of a type, or None, and the options `rotate` and `min_side`."""
    positional, options = split_options(args, rotate=parse_bool, min_side=_side)
    check_count(positional, count, form)
    argument = positional[0] if positional else None
    return argument, options.get('rotate', True), options.get('min_side', 0)


def _side(text: str) -> int:
    return parse_int(text, 1, MAX_SIDE, 'min_side: pixels')


def draft_decoders(min_side: int) -> dict[str, Callable[..., Pixels]]:
    """Returns decoders for `jpeg` and `image` that decode JPEGs at a reduced size, which is faster.

    JPEGs are scaled by n/8 (1/8, 1/4, …) while they are decoded, such that both sides have at least
    `min_side` pixels. Smaller JPEGs, and images of other formats, keep their size.

        dataset = bags.open(path, bags.decoders | bags.draft_decoders(256))

    Args:
        min_side: Minimum number of pixels of both sides.

    Examples:
        >>> small = bags.open('episodes', bags.decoders | bags.draft_decoders(24))
        >>> small[0]['image'].shape
        (24, 32, 3)
    """
    option = f'min_side={at_least("min_side", min_side, 1)}'
    _side(option.partition('=')[2])
    return {
        'jpeg': functools.partial(_decode_with, decode_jpeg, option),
        'image': functools.partial(_decode_with, decode_image, option),
    }


def _decode_with(decode: Callable[..., Pixels], option: str, data: Buffer, *args: str) -> Pixels:
    return decode(data, *args, option)


def image_quality(*args: str) -> int | None:
    """Parses the quality of `jpeg(quality,rotate=False)` and `avif`: 1 to 100; None without a quality."""
    quality, *_ = _split(args, 'one quality')
    return None if quality is None else parse_int(quality, 1, 100, 'a quality')


def webp_quality(*args: str) -> int | None:
    """Parses the quality of `webp(quality,rotate=False)`: as `image_quality`, but 0 for `lossless`."""
    return 0 if _split(args, 'one quality')[0] == 'lossless' else image_quality(*args)


def png_options(*args: str) -> None:
    """Checks the option of `png(rotate=False)`, which the encoder does not use."""
    _split(args, 'png or png(rotate=False)', 0)


def image_mode(*args: str) -> str | None:
    """Parses the mode of `image(mode,rotate=False)`: one of `MODES`; None without a mode."""
    mode, *_ = _split(args, 'image(mode)')
    if mode is not None and mode not in MODES:
        raise ValueError(f'expected a mode of {", ".join(MODES)}, got {mode!r}')
    return mode


def encode_jpeg(value: Any, *args: str) -> Encoded:
    """Encodes an image of at most 65,535 pixels per side as JPEG, with chroma at half resolution (4:2:0)."""
    quality = image_quality(*args) or 95
    return already_encoded(value, 'JPEG') or _save(value, 'JPEG', (1, 3), quality=quality)


@decodes('JPEG')
def decode_jpeg(data: Buffer, *args: str, max_size: int = MAX_VALUE_SIZE) -> Pixels:
    """Decodes a JPEG with simplejpeg, if it is installed, else with Pillow.

    Both use libjpeg-turbo and return the same pixels. Only simplejpeg detects damage in the compressed data,
    for which JPEG has no checksum.
    """
    return _load(data, args, max_size)


def encode_png(value: Any, *_args: str) -> Encoded:
    """Encodes an image as PNG, losslessly."""
    return _checked_depth(already_encoded(value, 'PNG')) or _save(value, 'PNG', (1, 3, 4))


@decodes('PNG')
def decode_png(data: Buffer, *args: str, max_size: int = MAX_VALUE_SIZE) -> Pixels:
    """Decodes a PNG. Gray of 1 to 4 bits becomes 8 bits; any transparency becomes an alpha channel."""
    return _load(data, args, max_size)


def encode_webp(value: Any, *args: str) -> Encoded:
    """Encodes an image of at most 16,383 pixels per side as WebP."""
    quality = webp_quality(*args)
    options = {'lossless': True} if quality == 0 else {'quality': quality or 90}
    return already_encoded(value, 'WebP') or _save(value, 'WebP', (3, 4), exact=True, **options)


@decodes('WebP')
def decode_webp(data: Buffer, *args: str, max_size: int = MAX_VALUE_SIZE) -> Pixels:
    """Decodes a WebP. An alpha channel without effect is dropped."""
    return _load(data, args, max_size)


def encode_avif(value: Any, *args: str) -> Encoded:
    """Encodes an image as AVIF."""
    quality = image_quality(*args) or 90
    return already_encoded(value, 'AVIF') or _save(value, 'AVIF', (3, 4), quality=quality)


@decodes('AVIF')
def decode_avif(data: Buffer, *args: str, max_size: int = MAX_VALUE_SIZE) -> Pixels:
    """Decodes an AVIF."""
    return _load(data, args, max_size)


def encode_image(value: Any, *args: str) -> Encoded:
    """Stores an image file of any supported format unchanged, or encodes pixels as PNG.

    Raises:
        ValueError: According to its header, the file is cut off, or has a depth that cannot be decoded:
            integers of more than 16 bits, floats of 64 bits or with a mode, or, without a mode, 16 bits with
            colour or alpha.
    """
    drop_bits = image_mode(*args) is not None
    return _checked_depth(already_encoded(value, *IMAGES), drop_bits) or encode_png(value)


@decodes(*IMAGES)
def decode_image(data: Buffer, *args: str, max_size: int = MAX_VALUE_SIZE) -> Pixels:
    """Decodes an image of any supported format; of a GIF or TIFF with several images, the first.

    Args:
        data: A JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF file.
        *args: The mode: `gray`, `rgb` or `rgba`. Images are converted to it: alpha is dropped, or added as
            opaque; gray is Rec. 601 luma; the upper 8 bits of 16 bits a channel are kept.
        max_size: Maximum bytes of the pixels.
    """
    mode = image_mode(*args)
    pixels = _load(data, args, max_size, drop_bits=mode is not None)
    if mode is None:
        return pixels
    name, end = MODES[mode]
    if pixels.dtype == np.uint16:
        pixels = (pixels >> 8).astype(np.uint8)
    if pixels.shape[2:] == end:
        return pixels
    from PIL import Image

    return np.array(Image.fromarray(pixels).convert(name))


def _checked_depth(file: Encoded | None, drop_bits: bool = False) -> Encoded | None:
    """Returns a file unchanged, if its header has a depth that can be decoded. `drop_bits`: see `_load`."""
    if file is None:
        return None
    opened: Any = io.BytesIO(file) if isinstance(file, bytes) else file
    start = opened.tell()
    head = opened.read(32)
    name = identify(head)
    opened.seek(start)
    try:
        if name == 'PNG' and len(head) > 25 and head[24] > 8 and head[25] and not drop_bits:
            raise ValueError(DEPTH_ERROR.format(name=name))
        if name == 'TIFF':
            with contextlib.suppress(
                ImportError, OSError, SyntaxError, TypeError, KeyError
            ):  # Decoding raises these errors.
                _check_depth(_plugin(name)(BorrowedFile(opened)), name, drop_bits)
    except ValueError:
        opened.close()
        raise
    opened.seek(start)
    return file


def _check_depth(image: Any, name: str, drop_bits: bool, depth: int = 8) -> None:
    """Raises ValueError for a PIL image with a depth that cannot be decoded."""
    bits = max(image.tag_v2.get(258, (1,))) if name == 'TIFF' else depth
    if bits > 8 and image.mode[0] not in 'IF' and not drop_bits:
        raise ValueError(DEPTH_ERROR.format(name=name))
    if image.mode == 'F' and bits == 32 and not drop_bits:
        return
    if image.mode in ('I', 'F') or (';' in image.mode and not image.mode.startswith('I;16')):
        raise ValueError(f'expected {_DEPTHS}, got mode {image.mode} of {bits} bits')


def _load(data: Buffer, args: tuple[str, ...], max_size: int, drop_bits: bool = False) -> Pixels:
    """Decodes an image of any format. `drop_bits` drops the lower 8 bits of colour with 16 bits a channel."""
    name, (_, rotate, min_side) = identify(data), _split(args, 'one argument')
    if name == 'JPEG' and (pixels := _load_jpeg(data, max_size, min_side)) is not None:
        return np.ascontiguousarray(jpeg_orientation(data).apply(pixels)) if rotate else pixels
    # Uses the class of the plugin instead of `Image.open`, so that no other plugin is imported or gets the
    # bytes. The limit `max_size` replaces Pillow's warning.
    image: Any = _plugin(name)(BufferFile(data))
    _check_depth(image, name, drop_bits, data[24] if name == 'PNG' else 8)
    width, height = image.size
    channels = {'1': 1, 'L': 1, 'I;16': 2, 'I;16B': 2, 'F': 4}.get(image.mode, 3)
    _check_size(width, height, 4 if image.has_transparency_data else channels, max_size)
    if min_side:
        image.draft(None, (min_side, min_side))  # Has no effect on formats other than JPEG.
    return _pixels(image, rotate, floats=True)


def decode_grey_jpeg(data: Buffer, max_size: int = MAX_VALUE_SIZE) -> Pixels | None:
    """Returns the brightness of a JPEG, upright, uint8 (height, width).

    None if only `decode_jpeg` can read it, or raises an error for it.
    """
    try:
        grey = _load_jpeg(data, max_size, 0, in_grey=True)
        return None if grey is None else jpeg_orientation(data).apply(grey)
    except ValueError:
        return None


def _load_jpeg(data: Buffer, max_size: int, min_side: int, *, in_grey: bool = False) -> Pixels | None:
    """Decodes a JPEG with simplejpeg; None if it is not installed, or Pillow should decode the image."""
    # benchmarks/jpeg.py (November 2026), in ms on one thread, for 512 x 512 and for 3000 x 2000 pixels:
    # simplejpeg 0.9 and 12.8, Pillow 1.3 and 45.5, imagecodecs and OpenCV 1.0 and 12.6, av 1.4 and 16.3. All
    # except av return the same pixels as Pillow. Of the three fast packages, simplejpeg is the smallest
    # (0.4 MB, against 18 and 60), accepts any buffer without a copy, and reports damage.
    try:
        import simplejpeg

        height, width, space, _ = simplejpeg.decode_jpeg_header(data)
    except (ImportError, ValueError):
        return None
    if space not in ('Gray', 'YCbCr', 'RGB') or (in_grey and space == 'RGB'):
        return None
    _check_size(width, height, 1 if space == 'Gray' else 3, max_size)
    try:
        pixels: Pixels = simplejpeg.decode_jpeg(
            data, 'GRAY' if space == 'Gray' or in_grey else 'RGB', min_height=min_side, min_width=min_side
        )
    except ValueError as exc:
        # The rest of the image is lost: it would be grey or noise.
        if any(phrase in str(exc) for phrase in ('remature end', 'bad Huffman code')):
            raise
        # Pillow handles other irregularities, such as stray bytes between segments, which some cameras and
        # web sites produce.
        return None
    if in_grey:
        return pixels.reshape(pixels.shape[:2])  # A copy takes a quarter of the time of decoding.
    return np.array(pixels[:, :, 0]) if space == 'Gray' else pixels


def _plugin(name: str) -> Callable[[Any], Any]:
    """Returns the image class of Pillow for a format."""
    name = name if name == 'WebP' else name.title()
    try:
        module = importlib.import_module(f'PIL.{name}ImagePlugin')
    except ImportError as exc:
        raise MissingDependencyError('pillow', 'images') from exc
    return getattr(module, f'{name}ImageFile')  # type: ignore[no-any-return]


def _check_size(width: int, height: int, channels: int, max_size: int) -> None:
    check_value_size(width * height * channels, max_size, f'an image of {width} x {height} pixels')


def _pixels(image: Any, rotate: bool = True, floats: bool = False) -> Pixels:
    """Returns the pixels of a PIL image with 8 bits a channel, or 16 of gray; with `floats`, of float32."""
    image.load()  # The EXIF data of a PNG may follow the pixels.
    orientation = exif_orientation(image.info.get('exif') or b'') if rotate else UPRIGHT
    mode = image.mode
    if mode.startswith('I;16'):
        return np.ascontiguousarray(orientation.apply(np.array(image).astype(np.uint16, copy=False)))
    if mode == 'F' and floats:
        return np.ascontiguousarray(orientation.apply(np.array(image, np.float32)))
    if mode in ('I', 'F') or ';' in mode:
        raise ValueError(f'expected {_DEPTHS}, got mode {mode}')
    if image.has_transparency_data and mode != 'RGBA':
        image = image.convert('RGBA')
    elif mode not in ('L', 'RGB', 'RGBA'):
        image = image.convert('L' if mode == '1' else 'RGB')
    return np.ascontiguousarray(orientation.apply(np.array(image)))


def _save(value: Any, format: str, channels: Sequence[int], **options: Any) -> bytes:
    """Encodes an array or a PIL image with Pillow. `channels` are the allowed numbers of channels."""
    _plugin(format)  # Registers the format. Raises if Pillow is missing.
    from PIL import Image

    array = _pixels(value) if isinstance(value, Image.Image) else as_array(value)
    array = array.astype(array.dtype.newbyteorder('='), copy=False)
    if array.dtype != np.uint8 and not (format == 'PNG' and array.dtype == np.uint16):
        advice = '; (255 * value).astype(np.uint8) converts 0 to 1' if array.dtype.kind == 'f' else ''
        raise TypeError(f'expected an image of uint8, got {type(value).__name__} of {array.dtype}{advice}')
    if array.ndim == 2 and 1 in channels:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in channels or array.size == 0:
        shapes = ', '.join(f'(height, width, {count})' for count in channels)
        is_first = array.ndim == 3 and array.shape[0] in channels and array.size
        advice = '; np.moveaxis(value, 0, -1) moves the channels to the end' if is_first else ''
        raise ValueError(f'expected an image of shape {shapes}, got {array.shape}{advice}')
    if array.dtype == np.uint16 and array.shape[2] != 1:
        raise ValueError(f'expected uint16 in grayscale only, shape (height, width), got {array.shape}')
    check_value_size(array.nbytes, MAX_VALUE_SIZE, f'an image of shape {array.shape}')
    pixels = array[:, :, 0] if array.shape[2] == 1 else array
    stream = io.BytesIO()
    try:
        image = Image.fromarray(np.ascontiguousarray(pixels))
        image.save(stream, format, **options)
    except (OSError, RuntimeError) as exc:
        raise ValueError(f'cannot encode {array.shape} as {format}: {exc}') from exc
    return stream.getvalue()
