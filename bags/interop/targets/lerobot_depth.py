"""Depth of LeRobot 0.6: codes of 12 bits in videos, distances in images, and the units of both."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

UNITS = 'mm', 'm'
MILLIMETRES = 1000.0
"""Millimetres in a metre."""
CODE_BITS = 12
MAX_CODE = (1 << CODE_BITS) - 1
MAX_METRES = 1e6
"""Maximum of the numbers of a scale, which float32 converts without overflow."""
MAX_MILLIMETRES = 65535.0
STATISTICS_SIDE = 150
"""Pixels of the longer side to which frames are thinned out for statistics, as in LeRobot."""
QUANTILES = {'q01': 0.01, 'q50': 0.5, 'q99': 0.99}
_GRAY = re.compile(r'gray(9|10|12)[lb]e')


class DepthScale(NamedTuple):
    """How distances are stored as codes: `video.depth_min`, … of the `info` of a feature, in metres."""

    depth_min: float = 0.01
    """Distance of code 0."""
    depth_max: float = 10.0
    """Distance of code 4095."""
    shift: float = 3.5
    use_log: bool = True
    """Whether codes are linear in the logarithm of the distance plus `shift`, and not in the distance."""

    def distances(self, unit: str, exp: Callable[[Floats], Floats] = np.exp) -> Floats:
        """Returns the distance of each code in a unit, float32, shape (4096,).

        Has the operations of LeRobot's `dequantize_depth`, in their order and precision.

        Args:
            unit: `mm`, rounded to whole millimetres, or `m`.
            exp: The exponential function: PyTorch's differs from NumPy's in the last bit.
        """
        low, high = self.depth_min, self.depth_max
        if self.use_log:
            low, high = math.log(low + self.shift), math.log(high + self.shift)
        values = np.arange(MAX_CODE + 1, dtype=np.float32) * ((high - low) / MAX_CODE) + low
        if self.use_log:
            values = exp(values) - self.shift
        values = values.clip(self.depth_min, self.depth_max)
        if unit == 'mm':
            values = np.rint(values * MILLIMETRES).clip(0, MAX_MILLIMETRES)
        return values.astype(np.float32, copy=False)


def check_unit(unit: str, what: str) -> str:
    """Returns a unit of depth.

    Raises:
        ValueError: It is neither `mm` nor `m`; the message begins with `what`.
    """
    if unit not in UNITS:
        raise ValueError(f"{what}: expected 'mm' or 'm', got {unit!r:.40}")
    return unit


def is_depth(feature: Mapping[str, Any]) -> bool:
    """Returns whether a feature is a depth camera, by `is_depth_map` or by its former key."""
    facts = info_of(feature)
    return bool(facts.get('is_depth_map') or facts.get('video.is_depth_map'))


def info_of(feature: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the `info` of a feature, or what earlier versions of LeRobot call `video_info`."""
    both = (feature.get('video_info'), feature.get('info'))
    return {key: value for info in both if isinstance(info, Mapping) for key, value in info.items()}


def unit_of(name: str, feature: Mapping[str, Any]) -> str | None:
    """Returns the unit of the statistics and images of a depth camera; None if it is unknown.

    Raises:
        ValueError: The unit is neither `mm` nor `m`.
    """
    unit = info_of(feature).get('depth_unit')
    return None if unit is None else check_unit(unit, f'lerobot: feature {name!r}, depth_unit in its info')


def scale_of(name: str, feature: Mapping[str, Any]) -> DepthScale:
    """Returns how the codes of a depth camera are scaled; LeRobot's defaults for missing values.

    Raises:
        ValueError: A value is not a number of metres, or no distances have these limits.
    """
    info = info_of(feature)
    given = {key: info.get(f'video.{key}') for key in DepthScale._fields}
    scale = DepthScale(**{key: value for key, value in given.items() if value is not None})
    where = f'lerobot: feature {name!r}, its info'
    for key, value in scale._asdict().items():
        if key == 'use_log':
            is_valid = isinstance(value, bool | int)
        else:
            is_valid = isinstance(value, int | float) and abs(value) <= MAX_METRES
        if not is_valid:
            expected = 'true or false' if key == 'use_log' else 'a number of metres'
            raise ValueError(f'{where}: video.{key}: expected {expected}, got {value!r:.40}')
    if not scale.depth_min < scale.depth_max or (scale.use_log and scale.depth_min + scale.shift <= 0):
        raise ValueError(
            f'{where}: expected video.depth_min < video.depth_max, and with video.use_log video.depth_min + '
            f'video.shift > 0, got {scale}'
        )
    return scale


def distances_of(
    name: str, feature: Mapping[str, Any], unit: str, exp: Callable[[Floats], Floats] = np.exp
) -> Floats:
    """Returns the distance of each stored value of a video of depth, float32, shape (values,).

    Grey of 9 and 10 bits has fewer values than codes: LeRobot's decoder repeats their upper bits.

    Raises:
        TypeError: The video is not grey of 9 to 12 bits.
        ValueError: The scale is invalid.
    """
    pixel_format = info_of(feature).get('video.pix_fmt') or 'gray12le'
    match = _GRAY.fullmatch(str(pixel_format))
    if match is None:
        raise TypeError(
            f"lerobot: feature {name!r}: expected depth of video.pix_fmt 'gray12le', got "
            f"{pixel_format!r:.40}; leave it out: dataset.drop(fields='{name}')"
        )
    distances = scale_of(name, feature).distances(unit, exp)
    bits = int(match[1])
    values = np.arange(1 << bits)
    return distances.take(values << (CODE_BITS - bits) | values >> (2 * bits - CODE_BITS))


def as_distances(name: str, values: npt.NDArray[Any], distances: Floats) -> Floats:
    """Returns frames of codes, uint16 (n, height, width), as distances of float32.

    Raises:
        TypeError, ValueError: The frames are not codes.
    """
    if values.dtype != np.uint16 or values.ndim != 3:
        raise TypeError(
            f'lerobot: field {name!r}: expected frames of depth, uint16 (H, W), got {values.dtype} '
            f'{values.shape[1:]}'
        )
    if values.size and (largest := int(values.max())) >= len(distances):
        raise ValueError(
            f'lerobot: field {name!r}: expected codes of depth from 0 to {len(distances) - 1}, got {largest}'
        )
    return distances.take(values)


def as_depth_images(name: str, values: npt.NDArray[Any], stored: str | None, unit: str) -> Floats:
    """Returns images of depth, uint16 or float32 (n, height, width), as float32 in a unit.

    Args:
        name: The field, for errors.
        values: The images.
        stored: Their unit; None if it is unknown: the values are not converted.
        unit: The unit of the result.

    Raises:
        TypeError: They are not depth.
    """
    if values.dtype not in (np.uint16, np.float32) or values.ndim != 3:
        raise TypeError(
            f'lerobot: field {name!r}: expected images of depth, uint16 or float32 (H, W), got '
            f'{values.dtype} {values.shape[1:]}'
        )
    floats = values.astype(np.float32, copy=False)
    if stored in (None, unit):
        return floats
    return floats * MILLIMETRES if stored == 'm' else floats / MILLIMETRES


def info_of_frame(frame: npt.NDArray[Any], is_video: bool) -> dict[str, Any]:
    """Returns the `info` of a camera from a frame: of depth for grey of uint16 or float32, else nothing.

    The values of videos and of images of uint16 are taken as millimetres, images of float32 as metres.
    """
    if frame.ndim != 2 or frame.dtype not in (np.uint16, np.float32):
        return {}
    return info_of_gray(CODE_BITS) if is_video else info_of_image(frame.dtype)


def info_of_gray(bits: int) -> dict[str, Any]:
    """Returns the `info` of a video of grey of `bits`, so that LeRobot returns its values as millimetres."""
    return {
        'is_depth_map': True, 'depth_unit': 'mm', 'video.depth_min': 0.0,
        'video.depth_max': ((1 << bits) - 1) / MILLIMETRES, 'video.shift': 0.0, 'video.use_log': False,
    }  # fmt: skip


def info_of_image(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Returns the `info` of images of depth of a dtype."""
    return {'is_depth_map': True, 'depth_unit': 'm' if dtype.kind == 'f' else 'mm'}


def rescaled(stats: Mapping[str, Any], stored: str | None, unit: str) -> dict[str, Any]:
    """Returns statistics, as arrays, in a unit of depth; unchanged if the stored unit is unknown."""
    if stored in (None, unit):
        return dict(stats)
    factor = MILLIMETRES if stored == 'm' else 1.0 / MILLIMETRES
    return {key: value if key == 'count' else value * factor for key, value in stats.items()}


def depth_statistics(frames: Iterator[Floats]) -> dict[str, Any]:
    """Computes the statistics of distances from every few pixels of some frames.

    Args:
        frames: Frames, shape (height, width). Values that are not finite are left out.
    """
    thinned = []
    for frame in frames:
        step = max(1, max(frame.shape) // STATISTICS_SIDE)
        pixels = frame[::step, ::step].ravel()
        thinned.append(pixels[np.isfinite(pixels)])
    values = np.concatenate(thinned or [np.empty(0, np.float32)]).astype(np.float64)
    if not len(values):
        return {}
    stats = {'min': values.min(), 'max': values.max(), 'mean': values.mean(), 'std': values.std()}
    stats |= dict(zip(QUANTILES, np.quantile(values, list(QUANTILES.values())), strict=True))
    return {key: [[[float(value)]]] for key, value in stats.items()} | {'count': [len(values)]}
