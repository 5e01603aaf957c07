"""`RecordedFeatures`: the fields of a recording, and the checks of its frames, from features of LeRobot."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from bags.formats.arrays import as_array
from bags.interop.sources.arrays.arrays import type_of_arrays
from bags.interop.targets.lerobot_features import TASKS
from bags.interop.targets.lerobot_meta import COUNTED

TASK = TASKS[1]
TIMESTAMP = 'timestamp'
COMPUTED: dict[str, dict[str, Any]] = {
    name: {'dtype': feature['dtype'], 'shape': (1,), 'names': None} for name, feature in COUNTED.items()
}
"""The features that LeRobot adds to each dataset; frames do not have them."""
DEPTH_KEYS = 'is_depth_map', 'video.is_depth_map'
CREATED_DTYPE = 'created_dtype'
"""The entry in the metadata of a field whose feature has another dtype than the one that is stored."""
CHANNELS = 1, 3
"""Possible numbers of channels of a camera."""

Pixels = np.ndarray[Any, np.dtype[Any]]


@dataclasses.dataclass(frozen=True)
class RecordedFeature:
    """A feature of a frame."""

    name: str
    type: Literal['video', 'image', 'depth', 'string', 'numbers']
    """`depth` is stored as images, whether LeRobot stores it as a video or as images."""
    dtype: str
    shape: tuple[int, ...]
    """Of cameras (height, width, channels)."""
    text: str
    """The type of an item of the field."""

    def item(self, value: Any) -> Any:
        """Returns the item for a value of the feature: pixels (height, width, 3), an array, or a text.

        Raises:
            ValueError: It has another dtype or shape. The message says what is expected, and what it is.
        """
        if self.type == 'string':
            if isinstance(value, str):
                return value
            raise ValueError(f'expected a text, got {_form(value)}')
        if not isinstance(value, np.ndarray) and not hasattr(value, '__array_interface__'):
            value = _tensor(value, self.expected)
        array = as_array(value)
        if self.type != 'numbers':
            return self._pixels(array)
        if array.dtype != np.dtype(self.dtype) or array.shape != self.shape:
            raise ValueError(f'expected {self.expected}, got {_form(array)}')
        return array[0] if self.shape == (1,) else array

    @property
    def expected(self) -> str:
        """The dtypes and shapes of its values."""
        height, width, channels = (*self.shape, 0, 0, 0)[:3]
        if self.type == 'numbers':
            return f'{self.dtype} of shape {self.shape}'
        if self.type == 'depth':
            return f'uint16 of shape {self.shape} or {self.shape[:2]}, in millimetres'
        shapes = f'{self.shape} or {(channels, height, width)}'
        return f'uint8, or floats from 0 to 1, of shape {shapes}'

    def _pixels(self, array: Pixels) -> Pixels:
        height, width, channels = self.shape
        shapes: list[tuple[int, ...]] = [(height, width, channels), (channels, height, width)]
        shapes += [(height, width)] if channels == 1 else []
        if array.shape not in shapes:
            raise ValueError(f'expected {self.expected}, got {_form(array)}')
        if self.type == 'depth':
            if array.dtype != np.uint16:
                raise ValueError(f'expected {self.expected}, got {_form(array)}')
            return array.reshape(height, width)
        if array.shape != self.shape:
            array = array.transpose(1, 2, 0)
        if array.dtype == np.uint8:
            return array
        if array.dtype.kind != 'f':
            raise ValueError(f'expected {self.expected}, got {_form(array)}')
        if not (array.min() >= 0 and array.max() <= 1):  # Also NaN.
            raise ValueError(f'expected floats from 0 to 1, got {array.min()} to {array.max()}')
        return (array * 255).astype(np.uint8)


def created_features(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the features that a recording was created with, from its metadata.

    Raises:
        KeyError, TypeError, AttributeError: A recording has other metadata.
    """
    features = {name: dict(feature) for name, feature in metadata['features'].items()}
    for name, feature in features.items():
        feature['dtype'] = metadata['fields'][name].get(CREATED_DTYPE, feature['dtype'])
    return features


class RecordedFeatures:
    """The features of a recording.

    Args:
        features: By name, `dtype`, `shape` and `names`, as LeRobot describes them. `info` with `is_depth_map`
            marks a depth camera. Features that LeRobot computes, such as `timestamp`, are ignored.
        fps: Frames per second.
        use_videos: Whether features may be videos.

    Raises:
        TypeError: A feature cannot be recorded.
        ValueError: A name, a dtype or a shape is invalid.
    """

    def __init__(self, features: Mapping[str, Any], fps: float, use_videos: bool = True) -> None:
        if not 0 < fps < math.inf:
            raise ValueError(f'fps: expected a number above 0, got {fps!r}')
        self.fps = int(fps) if fps == int(fps) else fps
        given = {name: feature for name, feature in features.items() if name not in COMPUTED}
        self.fields = {name: _recorded(name, feature) for name, feature in given.items()}
        videos = [name for name, feature in given.items() if feature['dtype'] == 'video']
        if videos and not use_videos:
            raise ValueError(f'use_videos: expected True for the videos {", ".join(videos)}, got False')
        if not self.fields:
            raise ValueError('features: expected at least one, got none')
        self.features: dict[str, dict[str, Any]] = {
            name: {**copy.deepcopy(dict(feature)), 'shape': tuple(feature['shape'])}
            for name, feature in given.items()
        } | copy.deepcopy(COMPUTED)
        """All features, with those that LeRobot computes."""
        for name, recorded in self.fields.items():
            if recorded.type == 'depth':
                self.features[name]['info']['depth_unit'] = 'mm'

    @property
    def spec(self) -> dict[str, str]:
        """The type of each field."""
        spec = {
            name: f'mp4({self.fps})[]' if feature.type == 'video' else f'{feature.text}[]'
            for name, feature in self.fields.items()
        }
        return {**spec, TASK: 'utf8[]', TIMESTAMP: 'float(8)[]'}

    def metadata(self, robot_type: str | None) -> dict[str, Any]:
        """Returns the metadata of the dataset: the entries of an imported dataset, and the times of fields.

        All fields have the same times, so that a recovered episode has the same frames of each.
        """
        facts: dict[str, dict[str, Any]] = {}
        for name in (*self.fields, TASK):
            feature = self.features.get(name, {})
            names = feature.get('names')
            if isinstance(names, dict) and len(names) == 1:
                (names,) = names.values()
            field = {'rate': self.fps, 'times': TIMESTAMP, 'names': names, 'info': feature.get('info')}
            facts[name] = {key: fact for key, fact in field.items() if fact}
        described = {
            name: {**self.features[name], 'shape': [*self.features[name]['shape']]} for name in self.fields
        }
        for name, recorded in self.fields.items():
            if recorded.type == 'depth' and described[name]['dtype'] == 'video':
                described[name]['dtype'] = 'image'  # As it is stored: readers do not convert its values.
                facts[name][CREATED_DTYPE] = 'video'
        metadata = {'fps': self.fps, 'robot_type': robot_type, 'features': described, 'fields': facts}
        return {key: value for key, value in metadata.items() if value is not None}

    def items(self, frame: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Returns the items of a frame, one for each field.

        Args:
            frame: A value of each feature, and `task`.
            number: The number of the frame in its episode.

        Raises:
            TypeError: The frame is not a mapping.
            ValueError: Features are missing or unknown, or values have another dtype or shape. The message
                has a line for each of them.
        """
        if not isinstance(frame, Mapping):
            raise TypeError(f'frame: expected a mapping, got {type(frame).__name__}')
        problems = [
            f'feature {name!r}: expected {self.fields[name].expected if name in self.fields else "a text"}, '
            'got no value'
            for name in (*self.fields, TASK)
            if name not in frame
        ]
        for name in frame:
            if name in COMPUTED:
                problems.append(f'feature {name!r}: expected no value, as it is computed, got one')
            elif name not in self.fields and name != TASK:
                problems.append(f'feature {name!r}: expected one of {", ".join(self.fields)}, or {TASK}')
        items: dict[str, Any] = {}
        for name, feature in self.fields.items():
            if name in frame:
                try:
                    items[name] = feature.item(frame[name])
                except ValueError as exc:
                    problems.append(f'feature {name!r}: {exc}')
        if TASK in frame and not isinstance(frame[TASK], str):
            problems.append(f'feature {TASK!r}: expected a text, got {_form(frame[TASK])}')
        if problems:
            raise ValueError(f'frame {number} is not written:\n  ' + '\n  '.join(problems))
        return {**items, TASK: frame[TASK], TIMESTAMP: number / self.fps}


def _recorded(name: str, feature: Any) -> RecordedFeature:
    """Returns a feature as it is recorded."""
    where = f'feature {name!r}'
    if name in TASKS or '/' in name:
        raise ValueError(
            f'{where}: expected another name: {TASKS[1]!r} is the task of a frame, and "/" is not allowed'
        )
    if not isinstance(feature, Mapping) or not {'dtype', 'shape'} <= feature.keys():
        raise ValueError(f"{where}: expected a mapping with 'dtype' and 'shape', got {feature!r:.80}")
    dtype, shape = feature['dtype'], tuple(feature['shape'])
    if not all(isinstance(length, int) and length > 0 for length in shape):
        raise ValueError(f'{where}: expected a shape of numbers above 0, got {shape}')
    if dtype in ('video', 'image'):
        return _camera(name, feature, shape)
    if dtype == 'string':
        return RecordedFeature(name, 'string', dtype, shape, 'utf8')
    if not isinstance(dtype, str) or dtype not in np.sctypeDict or np.dtype(dtype).kind not in 'biuf':
        raise TypeError(f"{where}: expected 'video', 'image', 'string' or a dtype of numbers, got {dtype!r}")
    text = type_of_arrays({dtype}, {() if shape == (1,) else shape})
    return RecordedFeature(name, 'numbers', dtype, shape, text)


def _camera(name: str, feature: Mapping[str, Any], shape: tuple[int, ...]) -> RecordedFeature:
    info = feature.get('info') or {}
    names = feature.get('names') or ()
    has_channels_first = len(shape) == 3 and (
        'channel' in str(next(iter(names), '')) or (shape[0] in CHANNELS and shape[2] not in CHANNELS)
    )
    size = (*shape[1:], shape[0]) if has_channels_first else shape
    is_depth = any(info.get(key) for key in DEPTH_KEYS)
    if len(size) != 3 or size[2] != (1 if is_depth else 3):
        what = '(height, width, 1) of a depth camera' if is_depth else '(height, width, 3)'
        raise ValueError(f'feature {name!r}: expected shape {what}, got {shape}')
    if is_depth:
        return RecordedFeature(name, 'depth', 'uint16', size, 'png')
    if feature['dtype'] == 'image':
        return RecordedFeature(name, 'image', 'uint8', size, 'png')
    return RecordedFeature(name, 'video', 'uint8', size, 'mp4')


def _tensor(value: Any, expected: str) -> Any:
    """Returns a tensor as an array."""
    to_array: Callable[[], Any] | None = getattr(value, 'numpy', None)
    if to_array is None:
        raise ValueError(f'expected {expected}, got {_form(value)}')
    return to_array()


def _form(value: Any) -> str:
    """Returns the dtype and shape of a value, or its class."""
    if hasattr(value, 'dtype') and hasattr(value, 'shape'):
        return f'{value.dtype} of shape {tuple(value.shape)}'
    return type(value).__name__
