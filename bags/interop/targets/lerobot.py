"""Writes LeRobot datasets of version 3. Each datapoint becomes an episode.

meta/info.json, stats.json, tasks.parquet, episodes/chunk-000/file-000.parquet
data/chunk-000/file-000.parquet, …       an episode, with a row for each frame
videos/FIELD/chunk-000/file-000.mp4, …   an episode, as in the records of the dataset
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bags.dataset.base import Dataset
from bags.errors import SourceError
from bags.formats.pixels import frame_format
from bags.formats.signatures import identify
from bags.interop.targets.lerobot_features import COUNTERS, TASKS, feature_of, fps_of, statistics_of, tasks_of
from bags.interop.targets.lerobot_meta import COUNTED, parquet_bytes, write_meta
from bags.interop.targets.target import Target
from bags.media.remux import copy_obstacle, remux
from bags.media.video_decoder import open_video
from bags.progress.progress import Advance
from bags.validation import import_optional

if TYPE_CHECKING:
    import pyarrow as pa

FILES = 1000
"""Number of files in a folder."""
TOLERANCE = 1e-4
"""Maximum error of the time of a frame in LeRobot, in seconds."""
DATA_PATH = 'data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet'
VIDEO_PATH = 'videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4'
DEPTH = {'is_depth_map': True, 'depth_unit': 'mm', 'video.depth_min': 0.0, 'video.depth_max': 4.095,
         'video.shift': 0.0, 'video.use_log': False}  # fmt: skip
"""Metadata of 12-bit gray videos, so that LeRobot returns the stored values as millimetres."""
MAX_DEPTH_BITS = 12


def write_lerobot(target: Target, dataset: Dataset, names: list[str], advance: Advance) -> None:
    """Writes the given fields as a LeRobot dataset."""
    import_optional('pyarrow', 'lerobot')
    writer = _Writer(target, dataset, names)
    for index in range(len(dataset)):
        advance(1, writer.add(index))
    writer.write_meta()


class _Writer:
    """Writes the files of episodes, then the files that describe them."""

    def __init__(self, target: Target, dataset: Dataset, names: list[str]) -> None:
        self._target, self._dataset = target, dataset
        self._facts: Mapping[str, Any] = dataset.metadata.get('fields', {})
        self._fields = {
            name: feature_of(name, dataset, 'export') for name in names if name not in COUNTERS[:3]
        }
        self._task_field, self._classes = tasks_of(dataset, self._fields)
        self._fps = fps_of(dataset, self._fields, 'export')
        computed = (*TASKS, 'timestamp')
        self._features = {name: feature for name, feature in self._fields.items() if name not in computed}
        self._tasks: dict[str, int] = {}
        self._episodes: list[dict[str, Any]] = []
        self._frames = 0

    def add(self, index: int) -> int:
        """Writes an episode; returns its approximate bytes."""
        where, size = f'datapoint {index}', 0
        facts: dict[str, Any] = {}
        lengths: dict[str, int] = {}
        values: dict[str, Any] = {}
        videos = [name for name, feature in self._fields.items() if feature['dtype'] == 'video']
        if names := [name for name in self._fields if name not in videos]:
            (batch,) = self._dataset[index : index + 1].to_arrow(names, media='bytes')
            for name, column in zip(names, batch.columns, strict=True):
                values[name] = column.flatten() if self._dataset.schema[name].sequence else column
                if name not in TASKS[1:]:
                    lengths[name] = len(values[name])
        for name in videos:
            (stored,) = self._dataset.read_records(np.array([index]), name)
            record = bytes(stored or b'')
            size += len(record)
            times, end = self._add_video(f'{where}, field {name!r}', name, index, record)
            lengths[name] = len(times)
            file = {**_file_of(index), 'from_timestamp': float(times[0]), 'to_timestamp': end}
            facts |= {f'videos/{name}/{key}': value for key, value in file.items()}
        if len(set(lengths.values())) != 1 or 0 in lengths.values():
            detail = ', '.join(f'{count} in {name!r}' for name, count in lengths.items())
            raise SourceError(where, f'expected fields of one length, got {detail or "none"}')
        count = next(iter(lengths.values()))
        tasks = self._tasks_of(where, values, count)
        table = self._table(index, count, values, tasks)
        self._target.write(DATA_PATH.format(**_file_of(index)), parquet_bytes(table))
        facts |= {f'data/{key}': value for key, value in _file_of(index).items()}
        self._episodes.append({
            **facts, 'episode_index': index, 'tasks': list(dict.fromkeys(tasks)), 'length': count,
            'dataset_from_index': self._frames, 'dataset_to_index': self._frames + count,
        })  # fmt: skip
        self._frames += count
        return size + int(table.nbytes)

    def _tasks_of(self, where: str, values: Mapping[str, Any], count: int) -> list[str]:
        """Returns the task of each frame, from the first of the fields in `TASKS`."""
        tasks: list[Any] = values[self._task_field].to_pylist() if self._task_field else ['']
        if self._task_field == 'task_index':
            tasks = [self._classes.get(number) for number in tasks]
        tasks = tasks * count if len(tasks) == 1 else tasks
        if len(tasks) != count or not all(isinstance(task, str) for task in tasks):
            raise SourceError(where, f'expected a task, or one for each of {count} frames, got {tasks!r:.80}')
        for task in tasks:
            self._tasks.setdefault(task, len(self._tasks))
        return tasks

    def _add_video(self, where: str, name: str, index: int, record: bytes) -> tuple[Any, float]:
        """Writes the video of an episode: the record, or its packets as an MP4 if the record is not an MP4.

        Returns:
            The presentation times of its frames in seconds, and the end of the last one.
        """
        try:
            if identify(record) != 'MP4':
                with remux(record) as file:
                    record = file.read()
            decoder = open_video(io.BytesIO(record))
            timeline = decoder.timeline
            times = timeline.seconds(timeline.ticks)
            max_error = float(abs(times - times[0] - np.arange(len(times)) / self._fps).max())
            if max_error > TOLERANCE or timeline.truncation:
                detail = f'expected {self._fps} frames per second, got a frame that is {max_error:.4f} s off'
                raise ValueError(timeline.truncation or detail)
            ((_, frame),) = decoder.frames(np.array([0]))
            bits = frame.format.components[0].bits if frame_format(frame).is_deep_gray else 8
            if bits > MAX_DEPTH_BITS:
                raise ValueError(f'expected grey of {MAX_DEPTH_BITS} bits at most, got {bits}')
        except ValueError as exc:
            raise SourceError(where, str(exc)) from exc
        shape = [frame.height, frame.width, 1 if bits > 8 else 3]
        info = {
            'video.height': shape[0], 'video.width': shape[1], 'video.channels': shape[2],
            'video.codec': copy_obstacle(decoder)[0], 'video.pix_fmt': frame.format.name,
            'video.fps': self._fps, 'has_audio': False, 'is_depth_map': False,
        }  # fmt: skip
        info |= self._facts.get(name, {}).get('info') or (DEPTH if bits > 8 else {})
        feature = self._features[name]
        if feature['shape'] not in ([], shape):
            raise SourceError(where, f'expected frames of shape {feature["shape"]}, got {shape}')
        feature |= {'shape': shape, 'info': info}
        self._target.write(VIDEO_PATH.format(video_key=name, **_file_of(index)), record)
        return times, timeline.end * timeline.time_base[0] / timeline.time_base[1]

    def _table(self, index: int, count: int, values: dict[str, Any], tasks: list[str]) -> pa.Table:
        """Returns the rows of an episode."""
        import pyarrow as pa

        columns: dict[str, Any] = {}
        for name, feature in self._features.items():
            dtype, shape = feature['dtype'], feature['shape']
            if dtype == 'image':
                names = pa.array([f'frame-{number:06}' for number in range(count)])
                columns[name] = pa.StructArray.from_arrays([values[name], names], ['bytes', 'path'])
                if not shape:
                    shape += [*self._dataset[index, name][name][0].shape, 1][:3]
            elif dtype != 'video':
                columns[name] = values[name]
                if dtype != 'string':
                    columns[name] = values[name].cast(_arrow_type(dtype, shape))
        frames = np.arange(count)
        columns['timestamp'] = values.get('timestamp', pa.array(frames / self._fps)).cast(pa.float32())
        columns['frame_index'] = pa.array(frames)
        columns['episode_index'] = pa.array(np.full(count, index))
        columns['index'] = pa.array(self._frames + frames)
        columns['task_index'] = pa.array([self._tasks[task] for task in tasks], pa.int64())
        return pa.table(columns)

    def write_meta(self) -> None:
        """Writes the files that describe the episodes."""
        info = {
            'robot_type': self._dataset.metadata.get('robot_type'), 'fps': self._fps, 'chunks_size': FILES,
            'data_files_size_in_mb': 100, 'video_files_size_in_mb': 200, 'data_path': DATA_PATH,
            'video_path': VIDEO_PATH, 'features': self._features | COUNTED,
        }  # fmt: skip
        stats = statistics_of(self._dataset, self._features)
        write_meta(self._target.write, info, stats, list(self._tasks), self._episodes)


def _file_of(number: int) -> dict[str, Any]:
    """Returns the number of the folder of a file, and its number in the folder."""
    return {'chunk_index': number // FILES, 'file_index': number % FILES}


def _arrow_type(dtype: str, shape: list[int]) -> pa.DataType:
    """Returns the type of a column of numbers."""
    import pyarrow as pa

    arrow_type = pa.from_numpy_dtype(np.dtype(dtype))
    if len(shape) == 1:
        return arrow_type if shape == [1] else pa.list_(arrow_type, shape[0])
    for _ in shape:
        arrow_type = pa.list_(arrow_type)
    return arrow_type
