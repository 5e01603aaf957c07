"""Writing LeRobot datasets of version 3: each datapoint becomes an episode.

meta/info.json, stats.json, tasks.parquet, episodes/chunk-000/file-000.parquet
data/chunk-000/file-000.parquet, …       a row a frame
videos/FIELD/chunk-000/file-000.mp4, …   a file an episode: the records of the dataset
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bags.dataset.base import Dataset
from bags.dataset.columns import read_values
from bags.dataset.registry import decoders, fixed_dtype
from bags.dataset.selection import VIDEO_WORDS
from bags.errors import MissingDependencyError, SourceError
from bags.formats.pixels import frame_kind
from bags.formats.signatures import identify
from bags.interop.extensions import PICTURE_TYPES
from bags.maintenance.statistics import FieldStatistics, statistics
from bags.media.cutting import why_not_copied
from bags.media.remux import remux
from bags.media.video_decoder import open_video
from bags.progress import Advance

__all__ = ['write_lerobot']

MAX_FILE_BYTES = 100 << 20
"""Of values in a file of `data`, about."""
FILES = 1000
"""In a folder."""
TOLERANCE = 1e-4
"""Seconds by which LeRobot lets a frame be late."""
COUNTERS = ('frame_index', 'episode_index', 'index', 'task_index')
TASKS = ('task', 'tasks', 'task_index')
"""Fields of tasks; the first of them that there is tells the task of each frame."""
DATA_PATH = 'data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet'
VIDEO_PATH = 'videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4'
QUANTILES = {0.01: 'q01', 0.5: 'q50', 0.99: 'q99'}
DEPTH = {'is_depth_map': True, 'depth_unit': 'mm', 'video.depth_min': 0.0, 'video.depth_max': 4.095,
         'video.shift': 0.0, 'video.use_log': False}  # fmt: skip
"""Of grey of 12 bits: LeRobot returns the stored values, as millimetres."""
MAX_DEPTH_BITS = 12


class Feature(NamedTuple):
    """What becomes of a field."""

    kind: str
    """'number', 'string', 'image', 'video', or 'fact', which is a column of the table of episodes."""
    dtype: str
    shape: tuple[int, ...]


def write_lerobot(
    dataset: Dataset, names: list[str], fs: Any, root: str, written: set[str], advance: Advance
) -> int:
    """Writes a LeRobot dataset.

    Args:
        dataset: The dataset.
        names: Its fields to write.
        fs: An fsspec file system.
        root: A new folder there.
        written: Gets the path of each file.
        advance: Reports datapoints and bytes.

    Returns:
        The number of files.

    Raises:
        SourceError: Sequences or videos of a datapoint that differ in length, or videos without a constant
            frame rate.
        TypeError: A field that LeRobot has no feature for.
        ValueError: The metadata have no frame rate.
    """
    try:
        import pyarrow as _  # noqa: F401, ICN001
    except ImportError as exc:
        raise MissingDependencyError('pyarrow', 'lerobot') from exc
    writer = _Writer(dataset, names, fs, root, written)
    try:
        for index in range(len(dataset)):
            advance(1, writer.add(index))
    finally:
        writer.close_rows()
    writer.write_meta()
    return len(written)


def _feature(name: str, dataset: Dataset) -> Feature:
    kind = dataset._types[name]
    fixed = fixed_dtype(kind.word, kind.args, decoders)
    if not kind.optional:
        if kind.word in VIDEO_WORDS and not kind.sequence:
            return Feature('video', 'video', ())
        if kind.sequence and kind.word in (*PICTURE_TYPES, 'jpg'):
            return Feature('image', 'image', ())
        if kind.word == 'utf8' and (kind.sequence or name in TASKS):
            return Feature('string', 'string', (1,))
        if fixed is not None and kind.sequence and fixed[0].kind in 'biuf' and len(fixed[1]) <= 5:
            return Feature('number', fixed[0].name, fixed[1] or (1,))
    if not kind.sequence and (kind.word == 'utf8' or (fixed is not None and not fixed[1])):
        return Feature('fact', kind.word, ())
    raise TypeError(
        f'export: field {name!r}: expected numbers, texts, images or a video for each frame, as '
        f'LeRobot has them, got type {kind.text}; leave it out with fields='
    )


class _Writer:
    """Writes the files of episodes, then those that describe them."""

    def __init__(self, dataset: Dataset, names: list[str], fs: Any, root: str, written: set[str]) -> None:
        self._dataset, self._fs, self._root, self._written = dataset, fs, root, written
        self._about: Mapping[str, Any] = dataset.metadata.get('fields', {})
        self._fields = {name: _feature(name, dataset) for name in names if name not in COUNTERS[:3]}
        self._task_field = next((name for name in TASKS if name in self._fields), None)
        self._fps = self._frame_rate()
        self._features: dict[str, dict[str, Any]] = {}
        for name, feature in self._fields.items():
            if feature.kind not in ('fact', 'video') and name not in (*TASKS, 'timestamp'):
                named = self._about.get(name, {}).get('names')
                self._features[name] = {'dtype': feature.dtype, 'shape': list(feature.shape), 'names': named}
        self._tasks: dict[str, int] = {}
        self._episodes: list[dict[str, Any]] = []
        self._frames = 0
        self._rows: Any = None  # The writer of the file of rows, once there are some.
        self._file: Any = None
        self._file_number, self._file_bytes = 0, 0

    def _frame_rate(self) -> int | float:
        rates = {self._about.get(name, {}).get('rate') for name in self._fields} - {None}
        rate = self._dataset.metadata.get('fps') or (rates.pop() if len(rates) == 1 else None)
        if not isinstance(rate, int | float) or not rate > 0:
            found = f'fields with rates {sorted(rates)}' if rates else 'none'
            raise ValueError(f"export: expected the frames per second as 'fps' in the metadata, got {found}")
        return int(rate) if rate == int(rate) else rate

    def _create(self, path: str) -> str:
        """Returns the path of a new file, in a folder that exists."""
        path = f'{self._root}/{path}'
        self._fs.makedirs(path.rpartition('/')[0], exist_ok=True)
        self._written.add(path)
        return path

    def add(self, index: int) -> int:
        """Writes an episode; returns its bytes, about."""
        where, rows, size = f'datapoint {index}', np.array([index]), 0
        wanted: dict[str, Any] = {
            name: True for name, feature in self._fields.items() if feature.kind not in ('image', 'video')
        }
        columns = self._dataset._read(rows, wanted, read_values)
        values: dict[str, Any] = {name: column[0] for name, column in columns.items()}
        facts: dict[str, Any] = {}
        lengths: dict[str, int] = {}
        for name, feature in self._fields.items():
            if feature.kind == 'image':
                count = int(self._dataset._lengths(rows, name)[0])
                values[name] = self._dataset._records(np.repeat(rows, count), name, np.arange(count))
            elif feature.kind == 'video':
                (record,) = self._dataset._records(rows, name, None)
                size += len(record or b'')
                times, end = self._add_video(f'{where}, field {name!r}', name, index, bytes(record or b''))
                lengths[name] = len(times)
                place = {**_place(index), 'from_timestamp': float(times[0]), 'to_timestamp': end}
                facts |= {f'videos/{name}/{key}': value for key, value in place.items()}
            if feature.kind not in ('fact', 'video') and name not in ('task', 'tasks'):
                lengths[name] = len(values[name])
        if len(set(lengths.values())) != 1 or 0 in lengths.values():
            detail = ', '.join(f'{count} in {name!r}' for name, count in lengths.items())
            raise SourceError(where, f'expected fields of one length, got {detail or "none"}')
        count = next(iter(lengths.values()))
        tasks = self._tasks_of(where, values, count)
        table = self._table(index, count, values, tasks)
        self._add_rows(table)
        facts |= {name: values[name] for name, feature in self._fields.items() if feature.kind == 'fact'}
        facts |= {f'data/{key}': value for key, value in _place(self._file_number).items()}
        self._episodes.append({
            **facts, 'episode_index': index, 'tasks': list(dict.fromkeys(tasks)), 'length': count,
            'dataset_from_index': self._frames, 'dataset_to_index': self._frames + count,
            'meta/episodes/chunk_index': 0, 'meta/episodes/file_index': 0,
        })  # fmt: skip
        self._frames += count
        return size + int(table.nbytes)

    def _tasks_of(self, where: str, values: Mapping[str, Any], count: int) -> list[str]:
        """Returns the task of each frame, from the field that there is."""
        tasks: list[Any]
        found = values.get(self._task_field) if self._task_field else None
        if 'task_index' in values and (classes := self._about.get('task_index', {}).get('classes')):
            tasks = [
                classes[number] if 0 <= number < len(classes) else None for number in values['task_index']
            ]
        elif found is None or isinstance(found, str):
            tasks = [found or ''] * count
        else:
            tasks = list(found) * count if len(found) == 1 else list(found)
        if len(tasks) != count or not all(isinstance(task, str) for task in tasks):
            raise SourceError(where, f'expected a task, or one for each of {count} frames, got {tasks!r:.80}')
        for task in tasks:
            self._tasks.setdefault(task, len(self._tasks))
        return tasks

    def _add_video(self, where: str, name: str, index: int, record: bytes) -> tuple[Any, float]:
        """Writes the video of an episode: the record, or a copy of its packets if that is no MP4.

        Returns:
            The seconds at which its frames are shown, and at which the last one ends.
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
            bits = frame.format.components[0].bits if frame_kind(frame).is_deep_gray else 8
            if bits > MAX_DEPTH_BITS:
                raise ValueError(f'expected grey of {MAX_DEPTH_BITS} bits at most, got {bits}')
        except ValueError as exc:
            raise SourceError(where, str(exc)) from exc
        shape = [frame.height, frame.width, 1 if bits > 8 else 3]
        info = {
            'video.height': shape[0], 'video.width': shape[1], 'video.channels': shape[2],
            'video.codec': why_not_copied(decoder)[0], 'video.pix_fmt': frame.format.name,
            'video.fps': self._fps, 'has_audio': False, 'is_depth_map': False,
        }  # fmt: skip
        info |= self._about.get(name, {}).get('info') or (DEPTH if bits > 8 else {})
        feature = {'dtype': 'video', 'shape': shape, 'names': ['height', 'width', 'channels'], 'info': info}
        if (first := self._features.setdefault(name, feature)['shape']) != shape:
            raise SourceError(where, f'expected frames of shape {first}, got {shape}')
        self._fs.pipe_file(self._create(VIDEO_PATH.format(video_key=name, **_place(index))), record)
        return times, timeline.end * timeline.time_base[0] / timeline.time_base[1]

    def _table(self, index: int, count: int, values: dict[str, Any], tasks: list[str]) -> Any:
        """Returns the rows of an episode as a table of Arrow."""
        import pyarrow as pa

        columns: dict[str, Any] = {}
        for name, feature in self._features.items():
            kind, value = self._fields[name].kind, values.get(name, ())
            if kind == 'number':
                columns[name] = _arrow(np.asarray(value, feature['dtype']), feature['shape'])
            elif kind == 'string':
                columns[name] = pa.array(value, pa.string())
            elif kind == 'image':
                items = [{'bytes': item, 'path': f'frame-{number:06}'} for number, item in enumerate(value)]
                columns[name] = pa.array(items, pa.struct({'bytes': pa.binary(), 'path': pa.string()}))
                if not feature['shape']:
                    shape = self._dataset[index, name][name][0].shape
                    feature |= {'shape': [*shape, 1][:3], 'names': ['height', 'width', 'channels']}
        times = values.get('timestamp', np.arange(count) / self._fps)
        columns['timestamp'] = pa.array(np.asarray(times, np.float32))
        frames = np.arange(count)
        columns['frame_index'] = pa.array(frames)
        columns['episode_index'] = pa.array(np.full(count, index))
        columns['index'] = pa.array(self._frames + frames)
        columns['task_index'] = pa.array([self._tasks[task] for task in tasks], pa.int64())
        return pa.table(columns)

    def _add_rows(self, table: Any) -> None:
        import pyarrow.parquet as pq

        if self._rows is not None and self._file_bytes + table.nbytes > MAX_FILE_BYTES:
            self.close_rows()
            self._file_number += 1
        if self._rows is None:
            self._file = self._fs.open(self._create(DATA_PATH.format(**_place(self._file_number))), 'wb')
            self._rows, self._file_bytes = pq.ParquetWriter(self._file, table.schema), 0
        self._rows.write_table(table)
        self._file_bytes += table.nbytes

    def close_rows(self) -> None:
        if self._rows is not None:
            self._rows.close()
            self._file.close()
            self._rows = None

    def write_meta(self) -> None:
        """Writes the files that describe the episodes."""
        import pyarrow as pa

        tasks = pa.table({'task_index': list(self._tasks.values()), 'task': list(self._tasks)})
        # LeRobot looks tasks up in the index that pandas makes of the column.
        columns = [
            {'name': name, 'field_name': name, 'pandas_type': kind, 'numpy_type': dtype, 'metadata': None}
            for name, kind, dtype in (('task_index', 'int64', 'int64'), ('task', 'unicode', 'object'))
        ]
        about = {'index_columns': ['task'], 'column_indexes': [], 'columns': columns}
        self._write_table('meta/tasks.parquet', tasks.replace_schema_metadata({'pandas': json.dumps(about)}))
        self._write_table('meta/episodes/chunk-000/file-000.parquet', pa.Table.from_pylist(self._episodes))
        made = {'dtype': 'int64', 'shape': [1], 'names': None}
        features = self._features | {'timestamp': made | {'dtype': 'float32'}} | dict.fromkeys(COUNTERS, made)
        self._write_json('info', {
            'codebase_version': 'v3.0', 'robot_type': self._dataset.metadata.get('robot_type'),
            'fps': self._fps, 'total_episodes': len(self._episodes), 'total_frames': self._frames,
            'total_tasks': len(self._tasks), 'splits': {'train': f'0:{len(self._episodes)}'},
            'chunks_size': FILES, 'data_files_size_in_mb': 100, 'video_files_size_in_mb': 200,
            'data_path': DATA_PATH, 'video_path': VIDEO_PATH, 'features': features,
        })  # fmt: skip
        self._write_json('stats', self._statistics())

    def _statistics(self) -> dict[str, Any]:
        """Returns the statistics of features as LeRobot has them: of cameras by channel, from 0 to 1."""
        found: dict[str, Any] = {}
        names = []
        for name, feature in self._features.items():
            if feature.get('info', {}).get('is_depth_map'):  # In its unit.
                found |= {name: kept} if (kept := self._about.get(name, {}).get('stats')) else {}
            elif self._fields[name].kind != 'string':
                names.append(name)
        for name, stats in statistics(self._dataset, names, progress=False).items() if names else ():
            found[name] = _as_lerobot(stats, self._fields[name].kind in ('image', 'video'))
        return found

    def _write_table(self, path: str, table: Any) -> None:
        import pyarrow.parquet as pq

        file = io.BytesIO()
        pq.write_table(table, file)
        self._fs.pipe_file(self._create(path), file.getvalue())

    def _write_json(self, name: str, value: Any) -> None:
        self._fs.pipe_file(self._create(f'meta/{name}.json'), json.dumps(value, indent=4).encode())


def _place(number: int) -> dict[str, Any]:
    """Returns the folder and the number in it of a file."""
    return {'chunk_index': number // FILES, 'file_index': number % FILES}


def _arrow(rows: Any, shape: list[int]) -> Any:
    """Returns numbers as the column of a feature of a shape."""
    import pyarrow as pa

    column = pa.array(rows.reshape(-1))
    if shape == [1]:
        return column
    if len(shape) == 1:
        return pa.FixedSizeListArray.from_arrays(column, shape[0])
    for length in reversed(shape):
        column = pa.ListArray.from_arrays(pa.array(np.arange(0, len(column) + 1, length), pa.int32()), column)
    return column


def _as_lerobot(stats: FieldStatistics, is_picture: bool) -> dict[str, Any]:
    values = {key: getattr(stats, key) for key in ('min', 'max', 'mean', 'std')}
    values |= {name: stats.quantiles[key] for key, name in QUANTILES.items() if key in stats.quantiles}
    if is_picture:
        values = {key: np.asarray(value).reshape(-1, 1, 1) / 255 for key, value in values.items()}
    count = int(np.max(stats.count, initial=0))
    return {**{key: np.atleast_1d(value).tolist() for key, value in values.items()}, 'count': [count]}
