"""The pixels of decoded images as arrays: their size, colors, depth and orientation.

Images are rotated by their EXIF tag, and videos by their display matrix.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.formats.ffmpeg import import_av, one_thread
from bags.formats.scalars import Buffer, parse_bool

Pixels = np.ndarray[Any, np.dtype[np.unsignedinteger[Any]]]
"""uint8, or uint16 for depths of more than 8 bits."""


def pixel_dtype(dtype: Any) -> np.dtype[Any]:
    """Returns the dtype of pixels, uint8 or uint16. Raises ValueError for other dtypes."""
    if dtype not in ('uint8', 'uint16', np.uint8, np.uint16):
        raise ValueError(f'expected a dtype of uint8 or uint16, got {dtype!r}')
    pixel: np.dtype[Any] = np.dtype(dtype)
    return pixel


class Orientation(NamedTuple):
    """The operations that turn stored pixels upright, in this order."""

    transpose: bool = False
    flip_rows: bool = False
    flip_columns: bool = False

    @property
    def rotation(self) -> int:
        """Clockwise degrees: 0, 90, 180 or 270. A mirrored image is first mirrored left to right."""
        if self.transpose:
            return 90 if self.flip_columns else 270
        return 180 if self.flip_rows else 0

    def apply(self, pixels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns pixels, shape (height, width, ...), as they are displayed, without a copy."""
        if self == UPRIGHT:
            return pixels
        pixels = pixels.swapaxes(0, 1) if self.transpose else pixels
        return pixels[:: -1 if self.flip_rows else 1, :: -1 if self.flip_columns else 1]


UPRIGHT = Orientation()
_OF_EXIF = {number: Orientation('t' in how, 'r' in how, 'c' in how)
            for number, how in enumerate(('', 'c', 'rc', 'r', 't', 'tc', 'trc', 'tr'), 1)}  # fmt: skip
"""Maps values of the EXIF tag to orientations: transposed, rows flipped, columns flipped."""


def matrix_orientation(data: Buffer | None) -> Orientation:
    """Returns the orientation of an FFmpeg display matrix (9 native int32), to the nearest right angle."""
    if data is None:
        return UPRIGHT
    a, b, _, c, d = struct.unpack_from('=5i', data)  # x' = a x + c y, y' = b x + d y
    if abs(b) + abs(c) > abs(a) + abs(d):
        return Orientation(True, b < 0, c < 0)
    return Orientation(False, d < 0, a < 0)


def exif_orientation(data: Buffer) -> Orientation:
    """Returns the orientation in EXIF data; upright if it is missing, or if the data is damaged."""
    try:
        tiff = bytes(data[6:] if bytes(data[:6]) == b'Exif\0\0' else data)
        order = {b'II*\0': '<', b'MM\0*': '>'}[tiff[:4]]
        (start,) = struct.unpack_from(order + 'I', tiff, 4)
        (count,) = struct.unpack_from(order + 'H', tiff, start)
        for number in range(count):
            tag, value_type, _, value = struct.unpack_from(order + 'HHIH', tiff, start + 2 + 12 * number)
            if (tag, value_type) == (0x112, 3):
                return _OF_EXIF[value]
    except (KeyError, struct.error):
        pass
    return UPRIGHT


def jpeg_orientation(data: Buffer) -> Orientation:
    """Returns the orientation of a JPEG, from the EXIF segment before its image data."""
    start = 2
    while start + 10 <= len(data) and data[start] == 0xFF and data[start + 1] != 0xDA:
        length = data[start + 2] << 8 | data[start + 3]
        if data[start + 1] == 0xE1 and bytes(data[start + 4 : start + 10]) == b'Exif\0\0':
            return exif_orientation(data[start + 4 : start + 2 + length])
        start += 2 + max(length, 2)
    return UPRIGHT


class FrameFormat(NamedTuple):
    """The properties that all frames of a video share."""

    height: int
    """The stored height."""
    width: int
    is_deep_gray: bool
    """Whether frames are grey with more than 8 bits."""
    orientation: Orientation = UPRIGHT


def frame_format(frame: Any, orientation: Orientation | None = None) -> FrameFormat:
    """Returns the format of a frame. `orientation` is the orientation of the video, if known."""
    if orientation is None:  # Reading side data creates a reference cycle with the frame.
        orientation = matrix_orientation(frame.side_data.get('DISPLAYMATRIX'))
    components = frame.format.components
    is_deep_gray = len(components) <= 2 and components[0].bits > 8  # 2: with alpha
    return FrameFormat(frame.height, frame.width, is_deep_gray, orientation)


COLORS = {'rgb': (3, 'rgb24', 'rgb48le'), 'gray': (1, 'gray', 'gray16le')}
"""Maps colors to their number of channels, and FFmpeg's formats for 8 and 16 bits."""


def pixel_color(color: Any) -> str:
    """Returns a color, a key of `COLORS`. Raises ValueError for other colors."""
    if color not in COLORS:
        raise ValueError(f'expected a color of {" or ".join(COLORS)}, got {color!r}')
    return str(color)


PIXEL_OPTIONS: dict[str, Callable[[str], Any]] = {
    'rotate': parse_bool, 'dtype': pixel_dtype, 'color': pixel_color,
}  # fmt: skip
"""Parsers for the options of decoded frames."""
DEEP_GRAY = {f'gray{bits}le' for bits in (9, 10, 12, 14, 16)}
"""Formats of FFmpeg for grey of more than 8 bits."""


class PixelOptions(NamedTuple):
    """Options of the returned pixels of frames."""

    size: tuple[int, int] | None = None
    """Displayed height and width to which frames are scaled."""
    color: str | None = None
    """A key of `COLORS`. None for `rgb`, except that grey of more than 8 bits has no channels:
    (height, width), as grey images."""
    dtype: np.dtype[Any] | None = None
    """uint8 or uint16, with values from 0 to 255 or 65535. None for uint8, except that grey of more than 8
    bits is uint16 with the stored values, e.g. 0 to 4095 for 12 bits."""
    rotate: bool = True
    """Whether frames are rotated as the file specifies."""

    def result(self, stored: FrameFormat) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Returns the shape and the dtype of a frame: (height, width, channels), or without channels."""
        is_turned = self.rotate and stored.orientation.transpose
        height, width = self.size or (stored[1::-1] if is_turned else stored[:2])
        default = np.uint16 if stored.is_deep_gray else np.uint8
        is_flat = self.color is None and stored.is_deep_gray
        shape = (height, width) if is_flat else (height, width, COLORS[self.color or 'rgb'][0])
        return shape, np.dtype(self.dtype or default)


class PixelConverter:
    """Converts the frames of one video to pixels.

    Args:
        stored: The format of the frames.
        options: Options of the returned pixels.
    """

    def __init__(self, stored: FrameFormat, options: PixelOptions) -> None:
        self.frame_format, self.options = stored, options
        (self._height, self._width, *channels), self._dtype = options.result(stored)
        self._channels = channels[0] if channels else None
        """The number of channels; None for pixels without channels."""
        self._color = options.color or ('rgb' if channels else 'gray')
        self._orientation = stored.orientation if options.rotate else UPRIGHT
        if self._orientation.transpose:
            self._height, self._width = self._width, self._height
        self._format: tuple[int, int, str] | None = None
        """Height, width and format of the last frame."""
        self._target, self._target_channels = '', 0
        """The format to which FFmpeg converts these frames, and its number of channels."""
        # Shared by all frames: `frame.reformat` would prepare the conversion again for each frame.
        self._reformatter = import_av().video.reformatter.VideoReformatter()
        self._threads = one_thread()

    def __call__(self, frame: Any) -> Pixels:
        """Returns the pixels of a frame, in most cases without a copy.

        Raises:
            ValueError: The frame has another format.
        """
        format = frame.height, frame.width, frame.format.name
        if format != self._format:
            self._set_format(frame)
            self._format = format
        height, width, channels = self._height, self._width, self._target_channels
        converted = self._reformatter.reformat(
            frame, width=width, height=height, format=self._target, **self._threads
        )
        plane = converted.planes[0]
        rows = np.frombuffer(plane, self._dtype).reshape(-1, plane.line_size // self._dtype.itemsize)
        pixels = rows[:height, : channels * width]
        if self._channels is not None:
            pixels = pixels.reshape(height, width, channels)
            if channels < self._channels:
                pixels = np.repeat(pixels, self._channels, axis=2)
        return pixels if self._orientation == UPRIGHT else self._orientation.apply(pixels)

    def _set_format(self, frame: Any) -> None:
        """Checks a frame with a new size or format, and chooses the format to which it is converted."""
        expected, got = self.frame_format, frame_format(frame, self.frame_format.orientation)
        name = frame.format.name
        if got != expected:
            depth = f' of {name}' if got.is_deep_gray != expected.is_deep_gray else ''
            detail = f'expected {expected.height} x {expected.width} pixels as in earlier frames'
            raise ValueError(f'{detail}, got {got.height} x {got.width}{depth}')
        is_wide = self._dtype == np.uint16
        self._target_channels, *targets = COLORS[self._color]
        self._target = targets[is_wide]
        if expected.is_deep_gray and is_wide:
            name = name.rstrip('bel') + 'le'
            self._target, self._target_channels = (name if name in DEEP_GRAY else 'gray16le'), 1
