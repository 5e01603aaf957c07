"""Writes LeRobot datasets of version 3. Each datapoint becomes an episode.

meta/info.json, stats.json, tasks.parquet, episodes/chunk-000/file-000.parquet
data/chunk-000/file-000.parquet, …       an episode, with a row for each frame
videos/FIELD/chunk-000/file-000.mp4, …   an episode, as in the records of the dataset

Without a grid, the fields of an episode have one item for each frame. With a grid, streams of any rates are
sampled at its times.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bags.dataset.base import Dataset
from bags.dataset.format.registry import VIDEO_FORMATS
from bags.errors import SourceError
from bags.formats.pixels import frame_format
from bags.formats.signatures import identify
from bags.indexing import Int64s
from bags.interop.targets.lerobot_depth import CODE_BITS, info_of_frame, info_of_gray, is_depth
from bags.interop.targets.lerobot_features import (
    COUNTERS,
    TASKS,
    GridFeatures,
    feature_of,
    fps_of,
    grid_features,
    statistics_of,
    tasks_of,
)
from bags.interop.targets.lerobot_meta import COUNTED, parquet_bytes, write_meta
from bags.interop.targets.lerobot_video import TOLERANCE, EpisodeVideo, copy_video, encode_video
from bags.interop.targets.target import Target
from bags.media.encoders import reading_options
from bags.media.remux import copy_obstacle, remux
from bags.media.video_decoder import VideoDecoder, open_video
from bags.progress.progress import Advance
from bags.validation import import_optional
from bags.views.windows.grid import Grid, GridOptions

if TYPE_CHECKING:
    import pyarrow as pa

FILES = 1000
"""Number of files in a folder."""
DATA_PATH = 'data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet'
VIDEO_PATH = 'videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4'


def write_lerobot(
    target: Target, dataset: Dataset, names: list[str], advance: Advance, options: GridOptions | None = None
) -> None:
    """Writes the given fields as a LeRobot dataset; with `options`, at the times of a grid."""
    import_optional('pyarrow', 'lerobot')
    sampled = None if options is None else grid_features(dataset, names, options, 'export')
    writer = _Writer(target, dataset, names, sampled)
    for index in range(len(dataset)):
        advance(1, writer.add(index))
    writer.write_meta()


class _Writer:
    """Writes the files of episodes, then the files that describe them."""

    def __init__(
        self, target: Target, dataset: Dataset, names: list[str], sampled: GridFeatures | None
    ) -> None:
        self._target, self._dataset = target, dataset
        self._facts: Mapping[str, Any] = dataset.metadata.get('fields', {})
        self._grid = None if sampled is None else sampled.grid
        if sampled is None:
            self._fields = {
                name: feature_of(name, dataset, 'export') for name in names if name not in COUNTERS[:3]
            }
            self._task_field, self._classes = tasks_of(dataset, self._fields)
            self._fps = fps_of(dataset, self._fields, 'export')
        else:
            self._fields, self._fps = sampled.features, sampled.grid.rate
            self._task_field, self._classes = sampled.task_field, tasks_of(dataset, ())[1]
            target.notes += sampled.notes
        self._uses: dict[str, _FrameUse] = {}
        """How the frames of each camera on a grid are used."""
        computed = (*TASKS, 'timestamp')
        self._features = {name: feature for name, feature in self._fields.items() if name not in computed}
        self._tasks: dict[str, int] = {}
        self._episodes: list[dict[str, Any]] = []
        self._frames = 0

    def add(self, index: int) -> int:
        """Writes an episode; returns its approximate bytes."""
        return self._add_stored(index) if self._grid is None else self._add_sampled(self._grid, index)

    def _add_stored(self, index: int) -> int:
        """Writes an episode whose fields have an item for each frame."""
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
        return size + self._add_rows(where, index, next(iter(lengths.values())), values, facts)

    def _add_sampled(self, grid: Grid, index: int) -> int:
        """Writes an episode of streams at the times of a grid."""
        import pyarrow as pa

        where, size = f'datapoint {index}', 0
        facts: dict[str, Any] = {}
        values: dict[str, Any] = {}
        first, stop = grid.offsets[index : index + 2].tolist()
        dtypes = {name: feature['dtype'] for name, feature in self._fields.items()}
        numeric = [name for name, dtype in dtypes.items() if dtype not in ('video', 'image')]
        for name, column in grid.sampled_values(numeric, np.arange(first, stop)).items():
            values[name] = pa.array(column) if dtypes[name] == 'string' else _as_arrow(column)
        for name, dtype in dtypes.items():
            if dtype == 'image':
                values[name] = pa.array(list(map(bytes, grid.sampled_records(name, index))), pa.binary())
            if dtype in ('video', 'image'):
                numbers = grid.sampled_elements(name, index)
                use = self._uses.setdefault(name, _FrameUse())
                use.add(numbers, grid.element_count(name, index))
            if dtype == 'video':
                video = self._sampled_video(grid, f'{where}, field {name!r}', name, index, numbers)
                use.encoded += not video.is_copied
                size += len(video.data)
                self._describe(f'{where}, field {name!r}', name, open_video(io.BytesIO(video.data)))
                self._target.write(VIDEO_PATH.format(video_key=name, **_file_of(index)), video.data)
                file = {**_file_of(index), 'from_timestamp': video.start, 'to_timestamp': video.end}
                facts |= {f'videos/{name}/{key}': value for key, value in file.items()}
        if self._task_field is not None and self._task_field not in values:
            task = self._dataset[index, self._task_field][self._task_field]
            values[self._task_field] = pa.array([task] if isinstance(task, str) else task)
        return size + self._add_rows(where, index, stop - first, values, facts)

    def _sampled_video(self, grid: Grid, where: str, name: str, index: int, numbers: Int64s) -> EpisodeVideo:
        """Returns the video of an episode at the times of a grid: copied, or else encoded."""
        field_type = self._dataset.schema[name]
        if field_type.format in VIDEO_FORMATS:
            (stored,) = self._dataset.read_records(np.array([index]), name)
            records = [bytes(record) for record in (stored if field_type.sequence else [stored])]
            track = reading_options(*field_type.args).get('track') if field_type.format == 'video' else None
            video = copy_video(records, track, numbers, self._fps)
            if video is not None:
                return video
        stream: Any = self._dataset.stream(index, name)
        try:
            return encode_video(stream, numbers, self._fps)
        except (TypeError, ValueError) as exc:
            raise SourceError(where, f'its frames at {self._fps} Hz are not copied, and: {exc}') from exc

    def _add_rows(
        self, where: str, index: int, count: int, values: dict[str, Any], facts: dict[str, Any]
    ) -> int:
        """Writes the table of an episode, and adds the episode; returns the bytes of the table."""
        tasks = self._tasks_of(where, values, count)
        table = self._table(index, count, values, tasks)
        self._target.write(DATA_PATH.format(**_file_of(index)), parquet_bytes(table))
        facts |= {f'data/{key}': value for key, value in _file_of(index).items()}
        self._episodes.append({
            **facts, 'episode_index': index, 'tasks': list(dict.fromkeys(tasks)), 'length': count,
            'dataset_from_index': self._frames, 'dataset_to_index': self._frames + count,
        })  # fmt: skip
        self._frames += count
        return int(table.nbytes)

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
        except ValueError as exc:
            raise SourceError(where, str(exc)) from exc
        self._describe(where, name, decoder)
        self._target.write(VIDEO_PATH.format(video_key=name, **_file_of(index)), record)
        return times, timeline.end * timeline.time_base[0] / timeline.time_base[1]

    def _describe(self, where: str, name: str, decoder: VideoDecoder) -> None:
        """Adds the shape and the format of a video to its feature.

        Raises:
            SourceError: They differ from those of earlier episodes, or LeRobot cannot read such pixels.
        """
        try:
            ((_, frame),) = decoder.frames(np.array([0]))
            bits = frame.format.components[0].bits if frame_format(frame).is_deep_gray else 8
            if bits > CODE_BITS:
                raise ValueError(f'expected grey of {CODE_BITS} bits at most, got {bits}')
        except ValueError as exc:
            raise SourceError(where, str(exc)) from exc
        shape = [frame.height, frame.width, 1 if bits > 8 else 3]
        info = {
            'video.height': shape[0], 'video.width': shape[1], 'video.channels': shape[2],
            'video.codec': copy_obstacle(decoder)[0], 'video.pix_fmt': frame.format.name,
            'video.fps': self._fps, 'has_audio': False, 'is_depth_map': False,
        }  # fmt: skip
        info |= self._facts.get(name, {}).get('info') or {}
        if bits > 8 and not is_depth({'info': info}):
            info |= info_of_gray(bits)
        feature = self._features[name]
        if feature['shape'] not in ([], shape):
            raise SourceError(where, f'expected frames of shape {feature["shape"]}, got {shape}')
        feature |= {'shape': shape, 'info': info}

    def _describe_image(self, name: str, image: npt.NDArray[Any]) -> None:
        """Adds the shape of images to their feature, and the `info` of the field or of depth."""
        info = self._facts.get(name, {}).get('info') or info_of_frame(image, is_video=False)
        feature = self._features[name]
        feature['shape'] += [*image.shape, 1][:3]
        if info:
            feature['info'] = info

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
                    self._describe_image(name, self._dataset[index, {name: [0]}][name][0])
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
        stats = statistics_of(self._dataset, self._features, self._grid)
        self._target.notes += [use.note(name) for name, use in self._uses.items()]
        for index, (name, time) in (self._grid.ends if self._grid is not None else {}).items():
            self._target.notes.append(f'datapoint {index} ends at {time:.6g} s, in a gap of field {name!r}')
        write_meta(self._target.write, info, stats, list(self._tasks), self._episodes)


@dataclasses.dataclass
class _FrameUse:
    """How often the frames of a camera are in the episodes of an export."""

    episodes: int = 0
    encoded: int = 0
    """Number of episodes whose video was encoded."""
    frames: int = 0
    repeated: int = 0
    left_out: int = 0

    def add(self, numbers: Int64s, count: int) -> None:
        """Counts the frames of an episode: `numbers` of `count` frames."""
        used = len(np.unique(numbers))
        self.episodes += 1
        self.frames += count
        self.repeated += len(numbers) - used
        self.left_out += count - used

    def note(self, name: str) -> str:
        """Returns a sentence about the frames."""
        how = f'encoded in {self.encoded:,} of {self.episodes:,} episodes' if self.encoded else 'copied'
        return (
            f'field {name!r}: {how}; of {self.frames:,} frames, {self.repeated:,} are repeated and '
            f'{self.left_out:,} left out'
        )


def _as_arrow(values: npt.NDArray[Any]) -> pa.Array:
    """Returns numbers (n, *shape) as an array of n numbers or lists."""
    import pyarrow as pa

    array = pa.array(np.ascontiguousarray(values.astype(values.dtype.newbyteorder('='))).ravel())
    for length in values.shape[:0:-1]:
        array = pa.FixedSizeListArray.from_arrays(array, length)
    return array


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
