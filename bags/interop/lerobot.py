"""Writing LeRobot datasets of version 3: each datapoint becomes an episode.

meta/info.json, stats.json, tasks.parquet, episodes/chunk-000/file-000.parquet
data/chunk-000/file-000.parquet, …       an episode; a row a frame
videos/FIELD/chunk-000/file-000.mp4, …   an episode: the records of the dataset
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bags.dataset.base import Dataset
from bags.dataset.registry import VIDEO_WORDS, decoders, fixed_dtype
from bags.errors import SourceError
from bags.formats.pixels import frame_format
from bags.formats.signatures import identify
from bags.interop.extensions import IMAGE_TYPES
from bags.interop.target import Target
from bags.maintenance.statistics import statistics
from bags.media.remux import copy_obstacle, remux
from bags.media.video_decoder import open_video
from bags.progress import Advance
from bags.validation import import_optional

if TYPE_CHECKING:
    import pyarrow as pa

FILES = 1000
"""Number of files in a folder."""
TOLERANCE = 1e-4
"""Seconds by which a frame may be late in LeRobot."""
COUNTERS = ('frame_index', 'episode_index', 'index', 'task_index')
TASKS = ('task_index', 'task', 'tasks')
"""Fields of tasks. The first that exists gives the task of each frame; `task_index` by its classes."""
DATA_PATH = 'data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet'
VIDEO_PATH = 'videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4'
QUANTILES = {0.01: 'q01', 0.5: 'q50', 0.99: 'q99'}
DEPTH = {'is_depth_map': True, 'depth_unit': 'mm', 'video.depth_min': 0.0, 'video.depth_max': 4.095,
         'video.shift': 0.0, 'video.use_log': False}  # fmt: skip
"""Facts of grey videos of 12 bits, with which LeRobot returns the stored values as millimetres."""
MAX_DEPTH_BITS = 12
PIXELS = ['height', 'width', 'channels']


def write_lerobot(target: Target, dataset: Dataset, names: list[str], advance: Advance) -> None:
    """Writes a LeRobot dataset of some fields."""
    import_optional('pyarrow', 'lerobot')
    writer = _Writer(target, dataset, names)
    for index in range(len(dataset)):
        advance(1, writer.add(index))
    writer.write_meta()


def _feature(name: str, dataset: Dataset) -> dict[str, Any]:
    """Returns the feature of a field; the shape of images is added later."""
    field_type = dataset.types[name]
    fixed = fixed_dtype(field_type.word, field_type.args, decoders)
    feature: dict[str, Any] = {'names': dataset.metadata.get('fields', {}).get(name, {}).get('names')}
    if not field_type.optional:
        if field_type.word in VIDEO_WORDS and not field_type.sequence:
            return feature | {'dtype': 'video', 'shape': [], 'names': PIXELS}
        if field_type.sequence and field_type.word in (*IMAGE_TYPES, 'jpg'):
            return feature | {'dtype': 'image', 'shape': [], 'names': PIXELS}
        if field_type.word == 'utf8' and (field_type.sequence or name in TASKS):
            return feature | {'dtype': 'string', 'shape': [1]}
        if fixed is not None and field_type.sequence and fixed[0].kind in 'biuf' and len(fixed[1]) <= 5:
            return feature | {'dtype': fixed[0].name, 'shape': list(fixed[1]) or [1]}
    raise TypeError(
        f'export: field {name!r}: expected numbers, texts, images or a video for each frame, as '
        f'LeRobot has them, got type {field_type.text}; leave it out with fields='
    )


class _Writer:
    """Writes the files of episodes, then the files that describe them."""

    def __init__(self, target: Target, dataset: Dataset, names: list[str]) -> None:
        self._target, self._dataset = target, dataset
        self._about: Mapping[str, Any] = dataset.metadata.get('fields', {})
        self._fields = {name: _feature(name, dataset) for name in names if name not in COUNTERS[:3]}
        self._classes = dict(enumerate(self._about.get('task_index', {}).get('classes') or ()))
        there = [name for name in TASKS[not self._classes :] if name in self._fields]
        self._task_field = there[0] if there else None
        rates = {self._about.get(name, {}).get('rate') for name in self._fields} - {None}
        self._fps: Any = dataset.metadata.get('fps') or (rates.pop() if len(rates) == 1 else None)
        if not isinstance(self._fps, int | float) or not self._fps > 0:
            found = f'fields with rates {sorted(rates)}' if rates else 'none'
            raise ValueError(f"export: expected the frames per second as 'fps' in the metadata, got {found}")
        made = (*TASKS, 'timestamp')
        self._features = {name: each for name, each in self._fields.items() if name not in made}
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
        if wanted := [name for name in self._fields if name not in videos]:
            (batch,) = self._dataset[index : index + 1].to_arrow(wanted, media='bytes')
            for name, column in zip(wanted, batch.columns, strict=True):
                values[name] = column.flatten() if self._dataset.types[name].sequence else column
                if name not in TASKS[1:]:
                    lengths[name] = len(values[name])
        for name in videos:
            (found,) = self._dataset.read_records(np.array([index]), name)
            record = bytes(found or b'')
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
        self._write_table(DATA_PATH.format(**_file_of(index)), table)
        facts |= {f'data/{key}': value for key, value in _file_of(index).items()}
        self._episodes.append({
            **facts, 'episode_index': index, 'tasks': list(dict.fromkeys(tasks)), 'length': count,
            'dataset_from_index': self._frames, 'dataset_to_index': self._frames + count,
            'meta/episodes/chunk_index': 0, 'meta/episodes/file_index': 0,
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
        """Writes the video of an episode: the record, or a copy of its packets if the record is not an MP4.

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
            late = float(abs(times - times[0] - np.arange(len(times)) / self._fps).max())
            if late > TOLERANCE or timeline.truncation:
                detail = f'expected {self._fps} frames per second, got one that is {late:.4f} s off'
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
        info |= self._about.get(name, {}).get('info') or (DEPTH if bits > 8 else {})
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
        import pyarrow as pa

        tasks = pa.table({'task_index': list(self._tasks.values()), 'task': list(self._tasks)})
        # LeRobot looks tasks up in the index that pandas creates from the column.
        columns = [
            {
                'name': name,
                'field_name': name,
                'pandas_type': pandas_type,
                'numpy_type': dtype,
                'metadata': None,
            }
            for name, pandas_type, dtype in (('task_index', 'int64', 'int64'), ('task', 'unicode', 'object'))
        ]
        about = {'index_columns': ['task'], 'column_indexes': [], 'columns': columns}
        self._write_table('meta/tasks.parquet', tasks.replace_schema_metadata({'pandas': json.dumps(about)}))
        self._write_table('meta/episodes/chunk-000/file-000.parquet', pa.Table.from_pylist(self._episodes))
        made = {'dtype': 'int64', 'shape': [1], 'names': None}
        features = self._features | {'timestamp': made | {'dtype': 'float32'}} | dict.fromkeys(COUNTERS, made)
        info = {
            'codebase_version': 'v3.0', 'robot_type': self._dataset.metadata.get('robot_type'),
            'fps': int(self._fps) if self._fps == int(self._fps) else self._fps,
            'total_episodes': len(self._episodes), 'total_frames': self._frames,
            'total_tasks': len(self._tasks), 'splits': {'train': f'0:{len(self._episodes)}'},
            'chunks_size': FILES, 'data_files_size_in_mb': 100, 'video_files_size_in_mb': 200,
            'data_path': DATA_PATH, 'video_path': VIDEO_PATH, 'features': features,
        }  # fmt: skip
        self._target.write('meta/info.json', json.dumps(info, indent=4).encode())
        self._target.write('meta/stats.json', json.dumps(self._statistics(), indent=4).encode())

    def _statistics(self) -> dict[str, Any]:
        """Returns the statistics of features in LeRobot's form: by channel for cameras, from 0 to 1."""
        found: dict[str, Any] = {}
        names = []
        for name, feature in self._features.items():
            if feature.get('info', {}).get('is_depth_map'):  # Statistics are in the unit of depth.
                found |= {name: kept} if (kept := self._about.get(name, {}).get('stats')) else {}
            elif feature['dtype'] != 'string':
                names.append(name)
        for name, stats in statistics(self._dataset, names, progress=False).items() if names else ():
            values = {key: getattr(stats, key) for key in ('min', 'max', 'mean', 'std')}
            values |= {QUANTILES[key]: value for key, value in stats.quantiles.items() if key in QUANTILES}
            if self._features[name]['dtype'] in ('image', 'video'):
                values = {key: np.asarray(value).reshape(-1, 1, 1) / 255 for key, value in values.items()}
            found[name] = {key: np.atleast_1d(value).tolist() for key, value in values.items()}
            found[name]['count'] = [int(np.max(stats.count, initial=0))]
        return found

    def _write_table(self, path: str, table: pa.Table) -> None:
        import pyarrow.parquet as pq

        file = io.BytesIO()
        pq.write_table(table, file, write_page_checksum=True)
        self._target.write(path, file.getvalue())


def _file_of(number: int) -> dict[str, Any]:
    """Returns the folder of a file and its number in the folder."""
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
