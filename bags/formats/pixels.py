"""The pixels of decoded frames as arrays: their size, colors, depth and orientation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bags.formats.orientation import UPRIGHT, Orientation, matrix_orientation
from bags.formats.scalars import truth

__all__ = ['COLORS', 'PIXEL_OPTIONS', 'FrameKind', 'PixelOptions', 'Pixels', 'frame_kind', 'pixel_dtype']

Pixels = np.ndarray[Any, np.dtype[np.unsignedinteger[Any]]]
"""uint8, or uint16 for more than 8 bits."""


def pixel_dtype(dtype: Any) -> np.dtype[Any]:
    """Returns the dtype of pixels, uint8 or uint16; ValueError for any other."""
    if dtype not in ('uint8', 'uint16', np.uint8, np.uint16):
        raise ValueError(f'expected a dtype of uint8 or uint16, got {dtype!r}')
    found: np.dtype[Any] = np.dtype(dtype)
    return found


PIXEL_OPTIONS: dict[str, Callable[[str], Any]] = {'rotate': truth, 'dtype': pixel_dtype}
"""What parses the options of decoded frames."""


class FrameKind(NamedTuple):
    """What all frames of a video have in common."""

    height: int
    """As stored."""
    width: int
    is_deep_gray: bool
    """Whether it is grey of more than 8 bits."""
    orientation: Orientation = UPRIGHT


def frame_kind(frame: Any, orientation: Orientation | None = None) -> FrameKind:
    """Returns the kind of a frame; `orientation` is that of the video if it is known."""
    if orientation is None:  # Side data and its frame refer to one another: the collector would free them.
        orientation = matrix_orientation(frame.side_data.get('DISPLAYMATRIX'))
    components = frame.format.components
    is_deep_gray = len(components) <= 2 and components[0].bits > 8  # 2: with alpha
    return FrameKind(frame.height, frame.width, is_deep_gray, orientation)


COLORS = {'rgb': (3, 'rgb24', 'rgb48le'), 'gray': (1, 'gray', 'gray16le')}
"""The number of channels of each color, and FFmpeg's formats for 8 and 16 bits."""
_DEEP_GRAY = {f'gray{bits}le' for bits in (9, 10, 12, 14, 16)}


class PixelOptions(NamedTuple):
    """How the pixels of frames are returned."""

    size: tuple[int, int] | None = None
    """Height and width to scale to, as shown."""
    color: str = 'rgb'
    """A key of `COLORS`."""
    dtype: np.dtype[Any] | None = None
    """uint8 or uint16: values from 0 to 255 or 65535. None: uint8; but uint16 for grey of more than 8 bits,
    whose values are then those that are stored, 0 to 4095 for 12 bits."""
    rotate: bool = True
    """Whether frames are turned as the file says."""

    def result(self, kind: FrameKind) -> tuple[tuple[int, int, int], np.dtype[Any]]:
        """Returns the shape (height, width, channels) and the dtype of the pixels of a frame."""
        is_turned = self.rotate and kind.orientation.transpose
        height, width = self.size or (kind[1::-1] if is_turned else kind[:2])
        default = np.uint16 if kind.is_deep_gray else np.uint8
        return (height, width, COLORS[self.color][0]), np.dtype(self.dtype or default)

    def pixels(self, reformatter: Any, frame: Any, kind: FrameKind) -> Pixels:
        """Returns the pixels of a frame of a kind, in most cases without a copy."""
        orientation = kind.orientation if self.rotate else UPRIGHT
        (height, width, all_channels), dtype = self.result(kind)
        if orientation.transpose:
            height, width = width, height
        channels, *formats = COLORS[self.color]
        format = formats[dtype == np.uint16]
        if kind.is_deep_gray and dtype == np.uint16:
            name, channels = frame.format.name.rstrip('bel') + 'le', 1
            format = name if name in _DEEP_GRAY else 'gray16le'
        converted = reformatter.reformat(frame, width=width, height=height, format=format, threads=1)
        plane = converted.planes[0]
        rows = np.frombuffer(plane, dtype).reshape(-1, plane.line_size // dtype.itemsize)
        pixels = rows[:height, : channels * width].reshape(height, width, channels)
        if channels < all_channels:
            pixels = np.repeat(pixels, all_channels, axis=2)
        return pixels if orientation == UPRIGHT else orientation.apply(pixels)
