"""Describes a dataset as LeRobot does: features, frames per second, tasks and statistics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.dataset.base import Dataset
from bags.dataset.format.registry import AUDIO_FORMATS, VIDEO_FORMATS, decoders, fixed_dtype
from bags.dataset.reading.selection import frames
from bags.formats.arrays import array_type
from bags.indexing import offsets_of
from bags.interop.file_extensions import IMAGE_TYPES, KEY, WRITTEN_EXTENSIONS
from bags.interop.targets.lerobot_depth import (
    as_depth_images,
    as_distances,
    depth_statistics,
    distances_of,
    is_depth,
    unit_of,
)
from bags.maintenance.statistics import statistics
from bags.streams.field import StreamField
from bags.views.windows.grid import Grid, GridOptions

COUNTERS = ('frame_index', 'episode_index', 'index', 'task_index')
TASKS = ('task_index', 'task', 'tasks')
"""Fields of tasks. The first that exists gives the task of each frame, `task_index` through its classes."""
BAGS_FOLDER = 'bags'
"""The folder with the values, beside meta/, of a dataset whose `storage_format` is 'bags'."""
PIXELS = ['height', 'width', 'channels']
HELD_FRAMES = 16
"""Number of frames of depth in memory for statistics."""
SAMPLED_FRAMES = 512
"""Maximum number of frames that are read for the statistics of pictures stored as arrays."""
QUANTILES = {0.01: 'q01', 0.5: 'q50', 0.99: 'q99'}


def feature_of(name: str, dataset: Dataset, what: str) -> dict[str, Any]:
    """Returns the feature of a field, without the shape of cameras; errors begin with `what`.

    Raises:
        TypeError: LeRobot has no feature for its type.
    """
    field_type = dataset.schema[name]
    fixed = fixed_dtype(field_type.format, field_type.args, decoders)
    feature: dict[str, Any] = {'names': dataset.metadata.get('fields', {}).get(name, {}).get('names')}
    if not field_type.optional:
        if field_type.format in VIDEO_FORMATS and not field_type.sequence:
            return feature | {'dtype': 'video', 'shape': [], 'names': PIXELS}
        if field_type.sequence and field_type.format in (*IMAGE_TYPES, 'jpg'):
            return feature | {'dtype': 'image', 'shape': [], 'names': PIXELS}
        if field_type.format == 'utf8' and (field_type.sequence or name in TASKS):
            return feature | {'dtype': 'string', 'shape': [1]}
        if fixed is not None and field_type.sequence and fixed[0].kind in 'biuf' and len(fixed[1]) <= 5:
            return feature | {'dtype': fixed[0].name, 'shape': list(fixed[1]) or [1]}
    advice = 'leave it out with fields='
    if what != 'export':
        advice = f"leave it out: dataset.drop(fields='{name}')"
    if field_type.format in VIDEO_FORMATS:
        advice = f'sample the clips of recordings with every=, or {advice}'
    raise TypeError(
        f'{what}: field {name!r}: expected a type that LeRobot supports (a video, or numbers, texts or '
        f'images for each frame), got type {field_type.text}; {advice}'
    )


class GridFeatures(NamedTuple):
    """The features of a dataset whose streams are sampled at the times of a grid."""

    grid: Grid
    """The grid, with a field for each feature."""
    features: dict[str, dict[str, Any]]
    """The feature of each field in the grid, without the shape of cameras."""
    task_field: str | None
    """The field with the task of an episode, or with a task at each time if the grid has it."""
    notes: list[str]
    """Sentences about the fields that are left out."""


def grid_features(dataset: Dataset, names: Sequence[str], options: GridOptions, what: str) -> GridFeatures:
    """Returns the features of streams at the times of a grid; errors begin with `what`.

    Sound, texts at times of their own, such as words and events, fields of times, and fields that LeRobot has
    no feature for are left out.

    Raises:
        KeyError, TypeError, ValueError: The options are invalid, or the times of a field are unknown.
    """
    facts: Mapping[str, Any] = dataset.metadata.get('fields', {})
    clocks = {
        origin.facts['times']: name
        for name in dataset.schema
        for origin in dataset.field_origins(name)
        if isinstance(origin.facts.get('times'), str)
    }
    features: dict[str, dict[str, Any]] = {}
    task_fields: list[str] = []
    notes = []
    for name in names:
        if name in (*COUNTERS[:3], 'timestamp', KEY, WRITTEN_EXTENSIONS):
            continue
        reason = ''
        if name in clocks:
            reason = f'it has the times of {clocks[name]!r}'
        elif name in TASKS[1:] and dataset.schema[name].text in ('utf8', 'utf8[]'):
            stream = StreamField(dataset, name) if dataset.schema[name].sequence else None
            task_fields.append(name)
            if stream is not None and stream.clock is not None:
                features[name] = {'dtype': 'string', 'shape': [1], 'names': None}
        else:
            feature, reason = _sampled_feature(dataset, name)
            if feature is not None:
                features[name] = {'names': facts.get(name, {}).get('names')} | feature
        if reason:
            notes.append(f'field {name!r} is left out: {reason}')
    if facts.get('task_index', {}).get('classes') and 'task_index' in features:
        task_fields.append('task_index')
    if not features:
        raise ValueError(f'{what}: expected streams of numbers or pictures, got fields {list(names)}')
    for name in features:
        if StreamField(dataset, name).clock is None:
            raise ValueError(
                f'{what}: field {name!r}: its times are unknown: expected a rate, or a field of times that '
                f'the dataset has, in its metadata (`bags.set_metadata`), or without the field: '
                f"dataset.drop(fields='{name}')"
            )
    return GridFeatures(
        Grid(dataset, list(features), options),
        features,
        next((name for name in TASKS if name in task_fields), None),
        notes,
    )


def _sampled_feature(dataset: Dataset, name: str) -> tuple[dict[str, Any] | None, str]:
    """Returns the feature of a stream, or None and the reason why it has none."""
    field_type = dataset.schema[name]
    if field_type.format in AUDIO_FORMATS:
        return None, 'LeRobot has no sound'
    array = array_type(*field_type.args) if field_type.format == 'array' else None
    is_rows = array is not None and not field_type.sequence and array[1][:1] == (-1,)
    if not (field_type.sequence or is_rows or field_type.format in VIDEO_FORMATS):
        return None, f'it is no stream, but one value of type {field_type.text} for each episode'
    stream = StreamField(dataset, name)
    if field_type.format in VIDEO_FORMATS:
        if stream.type == 'frames':
            return {'dtype': 'video', 'shape': [], 'names': PIXELS}, ''
        return None, 'each clip is an element'
    if field_type.format in (*IMAGE_TYPES, 'jpg'):
        return {'dtype': 'image', 'shape': [], 'names': PIXELS}, ''
    if field_type.format == 'utf8':
        if stream.has_rate or 'rate' in dataset.metadata.get('fields', {}).get(name, {}):
            return {'dtype': 'string', 'shape': [1]}, ''
        return None, 'its texts have no rate, as words and events'
    fixed = fixed_dtype(field_type.format, field_type.args, decoders)
    if is_rows and array is not None:
        fixed = array[0], array[1][1:]
    if fixed is None or fixed[0].kind not in 'biuf' or len(fixed[1]) > 5:
        return None, f'LeRobot has no feature for type {field_type.text}'
    if fixed[0] == np.uint8 and len(fixed[1]) == 3 and fixed[1][2] == 3:
        return {'dtype': 'video', 'shape': list(fixed[1]), 'names': PIXELS}, ''
    return {'dtype': fixed[0].name, 'shape': list(fixed[1]) or [1]}, ''


def tasks_of(dataset: Dataset, fields: Collection[str]) -> tuple[str | None, dict[int, str]]:
    """Returns the field that gives the task of each frame, if there is one, and the names of `task_index`."""
    classes = dataset.metadata.get('fields', {}).get('task_index', {}).get('classes') or ()
    task_fields = [name for name in TASKS[not classes :] if name in fields]
    return (task_fields[0] if task_fields else None), dict(enumerate(classes))


def fps_of(dataset: Dataset, fields: Collection[str], what: str) -> int | float:
    """Returns the frames per second: from the metadata, or the rate that all fields with a rate share.

    Raises:
        ValueError: Neither exists.
    """
    facts = dataset.metadata.get('fields', {})
    rates = {facts.get(name, {}).get('rate') for name in fields} - {None}
    fps: Any = dataset.metadata.get('fps') or (min(rates) if len(rates) == 1 else None)
    if not isinstance(fps, int | float) or not fps > 0:
        actual = f'fields with rates {sorted(rates)}' if rates else 'none'
        raise ValueError(f"{what}: expected the frames per second as 'fps' in the metadata, got {actual}")
    return int(fps) if fps == int(fps) else fps


def statistics_of(
    dataset: Dataset,
    features: Mapping[str, Mapping[str, Any]],
    grid: Grid | None = None,
    depth_unit: str | None = None,
) -> dict[str, Any]:
    """Computes the statistics of features in LeRobot's form: by channel for cameras, from 0 to 1.

    Args:
        dataset: The dataset.
        features: The features.
        grid: The grid at which the features are sampled. Statistics of videos are those of whole videos.
        depth_unit: The unit of statistics of depth. Default: `depth_unit` of the `info` of the feature, or
            mm; statistics of depth in the metadata are then returned.
    """
    stats_of_features: dict[str, Any] = {}
    names = []
    for name, feature in features.items():
        if is_depth(feature):
            stored = dataset.metadata.get('fields', {}).get(name, {}).get('stats')
            if stored and depth_unit is None:
                stats_of_features[name] = stored
                continue
            unit = depth_unit or unit_of(name, feature) or 'mm'
            depth_stats = depth_statistics(_sampled_depth(dataset, name, feature, grid, unit))
            stats_of_features |= {name: depth_stats} if depth_stats else {}
        elif feature['dtype'] != 'string':
            names.append(name)
    sampled = [name for name in names if grid is not None and name in grid.schema and not grid.is_video(name)]
    arrays = [name for name in sampled if features[name]['dtype'] == 'video']
    sampled = [name for name in sampled if name not in arrays]
    whole = [name for name in names if name not in (*sampled, *arrays)]
    computed = dict(statistics(dataset, whole, progress=False)) if whole else {}
    if grid is not None:
        computed |= statistics(grid, sampled, progress=False) if sampled else {}
        stats_of_features |= {name: _pixel_statistics(grid, name) for name in arrays}
    for name, stats in computed.items():
        values = {key: getattr(stats, key) for key in ('min', 'max', 'mean', 'std')}
        values |= {QUANTILES[key]: value for key, value in stats.quantiles.items() if key in QUANTILES}
        if features[name]['dtype'] in ('image', 'video'):
            values = {key: np.asarray(value).reshape(-1, 1, 1) / 255 for key, value in values.items()}
        elif name in sampled:
            values = {key: np.reshape(value, features[name]['shape']) for key, value in values.items()}
        stats_of_features[name] = {key: np.atleast_1d(value).tolist() for key, value in values.items()}
        stats_of_features[name]['count'] = [int(np.max(stats.count, initial=0))]
    return stats_of_features


def _sampled_depth(
    dataset: Dataset, name: str, feature: Mapping[str, Any], grid: Grid | None, unit: str
) -> Iterator[npt.NDArray[np.float32]]:
    """Yields some frames of a depth camera as distances in a unit, float32 (height, width)."""
    is_video = feature['dtype'] == 'video'
    distances = distances_of(name, feature, unit) if is_video else None
    every = np.arange(len(dataset))
    if grid is not None:
        offsets = np.array([0, len(grid)])
    else:
        counts = dataset.frame_counts(every, name) if is_video else dataset.item_counts(every, name)
        offsets = offsets_of(counts)
    total = int(offsets[-1])
    sampled = np.unique(np.linspace(0, total - 1, min(total, SAMPLED_FRAMES)).astype(np.int64))
    for row in range(len(offsets) - 1):
        numbers = sampled[slice(*sampled.searchsorted(offsets[row : row + 2]))]
        for start in range(0, len(numbers), HELD_FRAMES):
            some = numbers[start : start + HELD_FRAMES]
            if grid is not None:
                values = grid.sampled_values([name], some)[name]
            else:
                items = (some - offsets[row]).tolist()
                values = dataset[row, {name: frames(items) if is_video else items}][name]
            if distances is not None:
                yield from as_distances(name, np.stack(values), distances)
            else:
                yield from as_depth_images(name, np.stack(values), unit_of(name, feature), unit)


def _pixel_statistics(grid: Grid, name: str) -> dict[str, Any]:
    """Computes the statistics of pictures that are stored as arrays, by channel, from a sample of frames."""
    numbers = np.unique(np.linspace(0, len(grid) - 1, min(len(grid), SAMPLED_FRAMES)).astype(np.int64))
    low, high = np.full(3, np.inf), np.full(3, -np.inf)
    total, squares, count = np.zeros(3), np.zeros(3), 0
    for number in numbers:
        pixels = grid.sampled_values([name], np.array([number]))[name][0].reshape(-1, 3) / 255
        low, high = np.minimum(low, pixels.min(0)), np.maximum(high, pixels.max(0))
        total, squares, count = total + pixels.sum(0), squares + (pixels**2).sum(0), count + len(pixels)
    mean = total / count
    values = {'min': low, 'max': high, 'mean': mean, 'std': np.sqrt(np.maximum(squares / count - mean**2, 0))}
    return {key: value.reshape(-1, 1, 1).tolist() for key, value in values.items()} | {'count': [count]}
