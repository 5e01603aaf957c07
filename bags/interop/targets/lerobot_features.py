"""Describes a dataset as LeRobot does: features, frames per second, tasks and statistics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from bags.dataset.base import Dataset
from bags.dataset.format.registry import VIDEO_FORMATS, decoders, fixed_dtype
from bags.interop.file_extensions import IMAGE_TYPES
from bags.maintenance.statistics import statistics

COUNTERS = ('frame_index', 'episode_index', 'index', 'task_index')
TASKS = ('task_index', 'task', 'tasks')
"""Fields of tasks. The first that exists gives the task of each frame, `task_index` through its classes."""
BAGS_FOLDER = 'bags'
"""The folder with the values, beside meta/, of a dataset whose `storage_format` is 'bags'."""
PIXELS = ['height', 'width', 'channels']
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
    raise TypeError(
        f'{what}: field {name!r}: expected a type that LeRobot supports (a video, or numbers, texts or '
        f'images for each frame), got type {field_type.text}; {advice}'
    )


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


def statistics_of(dataset: Dataset, features: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Computes the statistics of features in LeRobot's form: by channel for cameras, from 0 to 1."""
    stats_of_features: dict[str, Any] = {}
    names = []
    for name, feature in features.items():
        if (feature.get('info') or {}).get('is_depth_map'):  # Statistics are in the unit of depth.
            stored = dataset.metadata.get('fields', {}).get(name, {}).get('stats')
            stats_of_features |= {name: stored} if stored else {}
        elif feature['dtype'] != 'string':
            names.append(name)
    for name, stats in statistics(dataset, names, progress=False).items() if names else ():
        values = {key: getattr(stats, key) for key in ('min', 'max', 'mean', 'std')}
        values |= {QUANTILES[key]: value for key, value in stats.quantiles.items() if key in QUANTILES}
        if features[name]['dtype'] in ('image', 'video'):
            values = {key: np.asarray(value).reshape(-1, 1, 1) / 255 for key, value in values.items()}
        stats_of_features[name] = {key: np.atleast_1d(value).tolist() for key, value in values.items()}
        stats_of_features[name]['count'] = [int(np.max(stats.count, initial=0))]
    return stats_of_features
