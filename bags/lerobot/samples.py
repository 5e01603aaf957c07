"""The items of LeRobot, as tensors: of each feature one frame, or the frames at some offsets from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bags.dataset.reading.batch import Ragged
from bags.dataset.reading.columns import read_column
from bags.dataset.reading.selection import PerRowItems, Selection
from bags.indexing import Int64s
from bags.interop.targets.lerobot_depth import Floats, as_depth_images, as_distances, distances_of, unit_of
from bags.lerobot.metadata import CAMERAS, LeRobotMetadata
from bags.validation import import_optional, no_field
from bags.views.windows.grid import Grid

NOW = np.zeros(1, np.int64)
LEROBOT_DTYPES = {'f': 'float32', 'i': 'int64', 'u': 'int64', 'b': 'bool'}
"""The dtype of numbers in LeRobot, by the kind of the stored dtype."""


def _exp(values: Floats) -> Floats:
    torch = import_optional('torch')
    powers: Floats = torch.exp(torch.from_numpy(values)).numpy()
    return powers


class FrameSamples:
    """Reads the items of any number of frames in one call.

    Args:
        meta: The metadata, with the dataset.
        delta_timestamps: By feature, the offsets of its items in seconds.
        tolerance_s: Maximum distance of an offset from a frame, in seconds.
        image_transforms: A function that is called with the frames of each camera.
        return_uint8: Whether video frames stay uint8.

    Raises:
        KeyError: A feature is unknown.
        TypeError: A feature of texts has offsets, or a depth camera has no grey of 9 to 12 bits.
        ValueError: An offset is between frames, or the `info` of a depth camera is invalid.
    """

    def __init__(
        self,
        meta: LeRobotMetadata,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerance_s: float = 1e-4,
        image_transforms: Callable[[Any], Any] | None = None,
        return_uint8: bool = False,
    ) -> None:
        self._meta = meta
        self.image_transforms = image_transforms
        self._return_uint8 = return_uint8
        self._dtypes = {name: feature['dtype'] for name, feature in meta.features.items()}
        self.delta_indices: dict[str, list[int]] | None = None
        if delta_timestamps is not None:
            self.delta_indices = {
                name: self._steps(name, offsets, tolerance_s) for name, offsets in delta_timestamps.items()
            }
        self._distances: dict[str, Floats] = {}
        """By video of depth, the distance of each stored value."""
        self._depth_images: dict[str, str | None] = {}
        """By camera with images of depth, their unit if it is known."""
        for name in meta.depth_keys:
            feature = meta.features[name]
            unit = unit_of(name, feature)
            if feature['dtype'] == 'video':
                self._distances[name] = distances_of(name, feature, meta.depth_output_unit, _exp)
            else:
                self._depth_images[name] = unit

    def _steps(self, name: str, offsets: Sequence[float], tolerance: float) -> list[int]:
        """Converts offsets from seconds to frames."""
        if name not in self._dtypes:
            raise KeyError(f'delta_timestamps: {no_field(name, self._dtypes)}')
        if self._dtypes[name] == 'string':
            raise TypeError(f'delta_timestamps: feature {name!r}: expected numbers or frames, got texts')
        fps = self._meta.fps
        for offset in offsets:
            if abs(offset * fps - round(offset * fps)) / fps > tolerance:
                raise ValueError(
                    f'delta_timestamps: feature {name!r}: expected multiples of 1/{fps} s within '
                    f'{tolerance} s, got {offset}'
                )
        if not len(offsets):
            raise ValueError(f'delta_timestamps: feature {name!r}: expected an offset or more, got none')
        return [round(offset * fps) for offset in offsets]

    def read(self, indices: Int64s) -> list[dict[str, Any]]:
        """Returns the items of frames, by their numbers in the whole dataset."""
        meta, offsets = self._meta, self.delta_indices or {}
        if not len(indices):
            return []
        rows = meta.offsets.searchsorted(indices, 'right') - 1
        firsts = meta.offsets[rows]
        steps, last = indices - firsts, meta.offsets[rows + 1] - firsts - 1
        inside: dict[str, Int64s] = {}
        pads: dict[str, Any] = {}
        for name in self._dtypes:
            frames = steps[:, None] + np.array(offsets[name]) if name in offsets else steps[:, None]
            inside[name] = frames.clip(0, last[:, None])
            if name in offsets:
                pads[name] = frames != inside[name]
        columns: dict[str, Any]
        if meta.grid is not None:
            columns = self._counted(inside, rows, firsts) | self._sampled(meta.grid, inside, firsts)
            return [self._item(index, rows, steps, columns, pads) for index in range(len(rows))]
        selection: Selection = {
            name: PerRowItems(
                None,
                np.full(len(rows), positions.shape[1]),
                positions.ravel(),
                self._dtypes[name] == 'video',
            )
            for name, positions in inside.items()
            if name in meta.dataset.schema
            and name != 'episode_index'
            and (name != 'task_index' or meta.task_field == name)
        }
        columns = meta.dataset.read_selection(rows, selection, read_column)
        for name, column in columns.items():
            if isinstance(column, Ragged):
                columns[name] = column.values.reshape(*inside[name].shape, *column.values.shape[1:])
        columns = self._counted(inside, rows, firsts) | columns
        return [self._item(index, rows, steps, columns, pads) for index in range(len(rows))]

    def _sampled(self, grid: Grid, inside: Mapping[str, Int64s], firsts: Int64s) -> dict[str, Any]:
        """Reads the features at the times of a grid; those at the same times together."""
        names_by_times: dict[bytes, list[str]] = {}
        for name, positions in inside.items():
            if name in grid.schema and (name != 'task_index' or self._meta.task_field == name):
                names_by_times.setdefault(positions.tobytes(), []).append(name)
        columns: dict[str, Any] = {}
        for names in names_by_times.values():
            positions = inside[names[0]]
            count = positions.shape[1]
            for name, values in grid.sampled_values(names, (positions + firsts[:, None]).ravel()).items():
                columns[name] = [values[start : start + count] for start in range(0, len(values), count)]
        return columns

    def _counted(self, inside: Mapping[str, Int64s], rows: Int64s, firsts: Int64s) -> dict[str, Any]:
        """Computes the features that count frames and episodes, for a dataset that does not store them."""
        meta = self._meta
        return {
            'timestamp': (inside['timestamp'] / meta.fps).astype(np.float32),
            'frame_index': inside['frame_index'],
            'episode_index': np.broadcast_to(rows[:, None], inside['episode_index'].shape),
            'index': inside['index'] + firsts[:, None],
            'task_index': (
                inside['task_index'] * 0
                if meta.task_field == 'task_index'
                else meta.task_numbers(rows, inside['task_index'])
            ),
        }

    def _item(
        self, index: int, rows: Int64s, steps: Int64s, columns: Mapping[str, Any], pads: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns the item of one of the frames in `columns`."""
        torch = import_optional('torch')
        item: dict[str, Any] = {}
        videos = [name for name, dtype in self._dtypes.items() if dtype == 'video']
        for name in (*videos, *(name for name in self._dtypes if name not in videos)):
            values, dtype = columns[name][index], self._dtypes[name]
            if dtype in CAMERAS:
                item[name] = self._pictures(torch, name, values, dtype == 'video')
                # As in LeRobot: a single video frame has no time axis, even with one offset.
                if name not in pads or (dtype == 'video' and len(values) == 1):
                    item[name] = item[name][0]
            elif dtype == 'string':
                item[name] = values[0]
            else:
                values = values if name in pads else values[0]
                item[name] = torch.tensor(
                    values, dtype=getattr(torch, LEROBOT_DTYPES[np.asarray(values).dtype.kind])
                )
        item |= {f'{name}_is_pad': torch.tensor(is_pad[index]) for name, is_pad in pads.items()}
        if self.image_transforms is not None:
            for name in self._meta.camera_keys:
                if name not in self._distances and name not in self._depth_images:
                    item[name] = self.image_transforms(item[name])
        item['task'] = self._meta.task_names[self._task(columns['task_index'], pads, index, rows, steps)]
        return item

    def _task(self, numbers: Any, pads: Mapping[str, Any], index: int, rows: Int64s, steps: Int64s) -> int:
        """Returns the task of the frame itself, even if `task_index` has offsets."""
        if 'task_index' not in pads:
            return int(numbers[index][0])
        if self._meta.task_field != 'task_index':
            return int(self._meta.task_numbers(rows[index : index + 1], steps[index : index + 1, None])[0, 0])
        row, step = int(rows[index]), int(steps[index])
        if self._meta.grid is not None:
            number = self._meta.offsets[row : row + 1] + step
            return int(self._meta.grid.sampled_values(['task_index'], number)['task_index'][0])
        return int(self._meta.dataset[row, {'task_index': [step]}]['task_index'][0])

    def _pictures(self, torch: Any, name: str, values: Any, is_video: bool) -> Any:
        """Converts pictures (n, H, W, C) to a float32 tensor (n, C, H, W): in [0, 1], or distances."""
        pixels = np.stack(values) if isinstance(values, list) else values
        if name in self._distances:
            return torch.from_numpy(as_distances(name, pixels, self._distances[name])[:, None])
        if name in self._depth_images:
            unit = self._meta.depth_output_unit
            return torch.from_numpy(as_depth_images(name, pixels, self._depth_images[name], unit)[:, None])
        if pixels.ndim == 3 and not is_video:
            pixels = pixels[..., None]
        if pixels.ndim != 4 or pixels.dtype != np.uint8:
            raise TypeError(
                f'lerobot: field {name!r}: expected pictures of colours, uint8 (H, W, C), got '
                f'{pixels.dtype} {pixels.shape[1:]}'
            )
        # With NumPy: for one frame, the threads of PyTorch are slower, especially in workers.
        pictures = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
        if not (self._return_uint8 and is_video):
            pictures = np.divide(pictures, np.float32(255), dtype=np.float32)
        return torch.from_numpy(pictures)
