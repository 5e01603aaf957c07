"""The attributes of `LeRobotDatasetMetadata` that scripts read, computed from a dataset and its metadata."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from bags.concurrency import cached_attribute
from bags.dataset.base import Dataset
from bags.dataset.reading.selection import frames
from bags.indexing import Int64s, offsets_of
from bags.interop.file_extensions import KEY, WRITTEN_EXTENSIONS
from bags.interop.targets.lerobot_depth import check_unit, info_of_frame, is_depth, rescaled, unit_of
from bags.interop.targets.lerobot_features import (
    COUNTERS,
    TASKS,
    feature_of,
    fps_of,
    grid_features,
    statistics_of,
    tasks_of,
)
from bags.interop.targets.lerobot_meta import COUNTED
from bags.validation import import_optional
from bags.views.windows.grid import GridOptions

CAMERAS = 'video', 'image'


class LeRobotMetadata:
    """The metadata of a dataset, with the interface of LeRobot.

    Frames are numbered across all episodes, and episodes by their position in the dataset.

    Args:
        dataset: The dataset, whose datapoints are episodes.
        options: The times at which streams are sampled. Default: fields have an item for each frame.
        depth_output_unit: The unit of statistics of depth, `mm` or `m`.

    Raises:
        TypeError: LeRobot has no feature for a field.
        ValueError: The metadata has no frame rate, the sequences of an episode differ in length, or the unit
            of depth is another.
    """

    def __init__(
        self, dataset: Dataset, options: GridOptions | None = None, depth_output_unit: str = 'mm'
    ) -> None:
        self.dataset = dataset
        self.depth_output_unit = check_unit(depth_output_unit, 'depth_output_unit')
        self.robot_type: str | None = dataset.metadata.get('robot_type')
        self.grid = None
        """The view of the times at which streams are sampled, if they are."""
        if options is not None:
            sampled = grid_features(dataset, list(dataset.schema), options, 'lerobot')
            self._fields, self.grid, self.fps = sampled.features, sampled.grid, sampled.grid.rate
            self.task_field, self._classes = sampled.task_field, tasks_of(dataset, ())[1]
            self.offsets = sampled.grid.offsets
            return
        left_out = (*COUNTERS[:3], KEY, WRITTEN_EXTENSIONS)
        names = [name for name in dataset.schema if name not in left_out]
        self._fields = {name: feature_of(name, dataset, 'lerobot') for name in names}
        self.fps = fps_of(dataset, self._fields, 'lerobot')
        self.task_field, self._classes = tasks_of(dataset, self._fields)
        self.offsets = offsets_of(self._lengths())
        """The number of frames before each episode, followed by the total."""

    def _lengths(self) -> Int64s:
        """Returns the number of frames of each episode; videos are counted only if there are no sequences."""
        rows = np.arange(len(self.dataset))
        stored = {name: self.dataset.schema[name] for name in self._fields if name not in TASKS[1:]}
        counts = {
            name: self.dataset.item_counts(rows, name)
            for name, field_type in stored.items()
            if field_type.sequence
        }
        for name, item_counts in counts.items():
            first = next(iter(counts))
            if (item_counts != counts[first]).any():
                index = int((item_counts != counts[first]).argmax())
                raise ValueError(
                    f'lerobot: datapoint {index}: expected sequences of one length, got '
                    f'{counts[first][index]} items of {first!r} and {item_counts[index]} of {name!r}'
                )
        if not stored:
            raise ValueError(
                f'lerobot: expected a sequence or a video, got fields {list(self.dataset.schema)}'
            )
        return next(iter(counts.values())) if counts else self.dataset.frame_counts(rows, next(iter(stored)))

    @cached_attribute
    def features(self) -> dict[str, dict[str, Any]]:
        """Each feature's dtype, shape and names, in the order of LeRobot if the dataset was imported."""
        imported = self.dataset.metadata.get('features') or {}
        features = {name: dict(feature) for name, feature in self._fields.items() if name not in TASKS}
        for name, feature in features.items():
            facts = self.dataset.metadata.get('fields', {}).get(name, {})
            if feature['dtype'] in CAMERAS:
                if name in imported:
                    feature |= imported[name]
                else:
                    frame = self._first_frame(name)
                    info = info_of_frame(frame, feature['dtype'] == 'video')
                    feature |= {'shape': (*frame.shape, 1)[:3], **({'info': info} if info else {})}
                feature |= {'info': facts['info']} if facts.get('info') else {}
            elif name in imported:
                feature['names'] = imported[name].get('names')
        features = {
            name: {**feature, 'shape': tuple(feature['shape'])}
            for name, feature in (COUNTED | features).items()
        }
        order = [name for name in imported if name in features]
        order += [name for name in features if name not in order and name not in COUNTED]
        return {name: features[name] for name in (*order, *(name for name in COUNTED if name not in order))}

    def _first_frame(self, name: str) -> npt.NDArray[Any]:
        """Returns the first frame of a camera."""
        if self.grid is not None:
            (frame,) = self.grid.sampled_values([name], np.zeros(1, np.int64))[name]
        else:
            is_video = self._fields[name]['dtype'] == 'video'
            (frame,) = self.dataset[0, {name: frames([0]) if is_video else [0]}][name]
        return np.asarray(frame)

    @cached_attribute
    def stats(self) -> dict[str, dict[str, Any]]:
        """Statistics of each feature as arrays, from the metadata: of cameras (3, 1, 1) in [0, 1], of depth
        cameras (1, 1, 1) in `depth_output_unit`.

        Statistics that the metadata lacks are computed, which reads all frames once, and of depth up to 512.
        """
        return self._stats(self.depth_output_unit)

    def stored_stats(self) -> dict[str, dict[str, Any]]:
        """Returns the statistics as LeRobot stores them, of depth in the unit in `info`, or mm."""
        return self._stats(None)

    def _stats(self, unit: str | None) -> dict[str, dict[str, Any]]:
        all_stats: dict[str, Any] = {}
        facts = self.dataset.metadata.get('fields', {})
        for name in self._fields:
            if stats := facts.get(name, {}).get('stats'):
                all_stats[name] = stats
        missing = [name for name in self._fields if name not in all_stats and name not in COUNTED]
        features = {name: self.features[name] for name in missing if name in self.features}
        computed = statistics_of(self.dataset, features, self.grid, unit)
        arrays = {
            name: {key: np.array(value) for key, value in stats.items()}
            for name, stats in (all_stats | computed).items()
        }
        if unit is not None:
            for name in set(self.depth_keys) & set(all_stats):
                arrays[name] = rescaled(arrays[name], unit_of(name, self.features[name]), unit)
        return arrays

    @cached_attribute
    def _numbered(self) -> tuple[list[str], list[Int64s]]:
        """The tasks, and for each episode the task number of each frame, or one number for all its frames.

        If the field is `task_index`, which stores the numbers, the list of numbers is empty.
        """
        count = len(self.dataset)
        if self.task_field == 'task_index':
            return list(self._classes.values()), []
        if self.task_field is None:
            return [''], [np.zeros(1, np.int64)] * count
        number_of: dict[str, int] = {}
        numbers = []
        for index, value in enumerate(self._task_values(self.task_field)):
            texts = [value] if isinstance(value, str) else list(value)
            length = int(self.offsets[index + 1] - self.offsets[index])
            if len(texts) not in (1, length):
                raise ValueError(
                    f'lerobot: datapoint {index}, field {self.task_field!r}: expected a task, or one for '
                    f'each of {length} frames, got {len(texts)}'
                )
            numbers.append(np.array([number_of.setdefault(text, len(number_of)) for text in texts], np.int64))
        return list(number_of), numbers

    def _task_values(self, field: str) -> list[Any]:
        """Returns the value of a field of tasks in each episode."""
        if self.grid is None or field not in self._fields:
            return list(self.dataset.batch(range(len(self.dataset)), field)[field])
        values = self.grid.sampled_values([field], np.arange(self.total_frames))[field]
        return [values[start:stop] for start, stop in itertools.pairwise(self.offsets.tolist())]

    @property
    def task_names(self) -> list[str]:
        """The tasks, in the order of `task_index`."""
        return self._numbered[0]

    def task_numbers(self, rows: Int64s, steps: Int64s) -> Int64s:
        """Returns the tasks of frames `steps`, (B, n), of episodes `rows`, if no field stores them."""
        numbers = self._numbered[1]
        return np.stack([
            numbers[row][np.minimum(step, len(numbers[row]) - 1)]
            for row, step in zip(rows.tolist(), steps, strict=True)
        ])  # fmt: skip

    @cached_attribute
    def episode_tasks(self) -> list[list[str]]:
        """The tasks of each episode."""
        every = range(len(self.dataset))
        if self.task_field != 'task_index':
            names, numbers = self._numbered
            return [
                [names[number] for number in dict.fromkeys(frame_tasks.tolist())] for frame_tasks in numbers
            ]
        if 'tasks' in self.dataset.schema and self.grid is None:
            return [list(tasks) for tasks in self.dataset.batch(every, 'tasks')['tasks']]
        task_columns = [np.asarray(numbers) for numbers in self._task_values('task_index')]
        return [
            [self._classes[number] for number in dict.fromkeys(frame_tasks.tolist())]
            for frame_tasks in task_columns
        ]

    @property
    def tasks(self) -> Any:
        """The tasks as a pandas DataFrame, with their numbers as `task_index`."""
        names = self.task_names
        return import_optional('pandas').DataFrame({'task_index': range(len(names))}, index=names)

    def get_task_index(self, task: str) -> int | None:
        """Returns the number of a task, or None for an unknown task."""
        return self.task_names.index(task) if task in self.task_names else None

    @property
    def episodes(self) -> Episodes:
        """The episodes: `episodes[number]` is a dict, `episodes[name]` the list of a column."""
        return Episodes(self)

    @property
    def info(self) -> dict[str, Any]:
        """The entries of `meta/info.json`, except those about files."""
        return {
            'codebase_version': 'v3.0', 'robot_type': self.robot_type, 'fps': self.fps,
            'total_episodes': self.total_episodes, 'total_frames': self.total_frames,
            'total_tasks': self.total_tasks, 'splits': {'train': f'0:{self.total_episodes}'},
            'features': self.features,
        }  # fmt: skip

    @property
    def total_episodes(self) -> int:
        """Number of episodes."""
        return len(self.dataset)

    @property
    def total_frames(self) -> int:
        """Number of frames of all episodes."""
        return int(self.offsets[-1])

    @property
    def total_tasks(self) -> int:
        """Number of different tasks."""
        return len(self.task_names)

    def _keys(self, *dtypes: str) -> list[str]:
        return [name for name, feature in self.features.items() if feature['dtype'] in dtypes]

    @property
    def video_keys(self) -> list[str]:
        """The cameras that are videos."""
        return self._keys('video')

    @property
    def image_keys(self) -> list[str]:
        """The cameras that are images."""
        return self._keys('image')

    @property
    def camera_keys(self) -> list[str]:
        """The cameras."""
        return self._keys(*CAMERAS)

    @property
    def depth_keys(self) -> list[str]:
        """The depth cameras, by `is_depth_map` in their `info`, or its former key `video.is_depth_map`."""
        return [name for name in self.camera_keys if is_depth(self.features[name])]

    @property
    def has_language_columns(self) -> bool:
        """Whether frames have columns of language annotations. Tasks do not count as annotations."""
        return False

    @property
    def names(self) -> dict[str, Any]:
        """The names of the elements of each feature."""
        return {name: feature['names'] for name, feature in self.features.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each feature."""
        return {name: feature['shape'] for name, feature in self.features.items()}

    def __repr__(self) -> str:
        return (
            f'bags.lerobot.LeRobotMetadata({self.dataset!r}, {self.total_episodes} episodes, '
            f'{self.total_frames} frames, {self.fps} fps)'
        )


class Episodes(Sequence[dict[str, Any]]):
    """The episodes of a dataset: number, length, tasks, and the range of their frames."""

    def __init__(self, meta: LeRobotMetadata) -> None:
        self._meta = meta

    def _columns(self) -> dict[str, Any]:
        offsets = self._meta.offsets.tolist()
        return {
            'episode_index': list(range(len(self))), 'tasks': self._meta.episode_tasks,
            'length': np.diff(self._meta.offsets).tolist(),
            'dataset_from_index': offsets[:-1], 'dataset_to_index': offsets[1:],
        }  # fmt: skip

    def __len__(self) -> int:
        return self._meta.total_episodes

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, key: slice) -> list[dict[str, Any]]: ...

    @overload
    def __getitem__(self, key: str) -> list[Any]: ...  # type: ignore[overload-overlap, unused-ignore]

    def __getitem__(self, key: Any) -> Any:
        columns = self._columns()
        if isinstance(key, str):
            return columns[key]
        if isinstance(key, slice):
            return [self[number] for number in range(len(self))[key]]
        number = range(len(self))[key]
        return {name: column[number] for name, column in columns.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        columns = self._columns()
        return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
