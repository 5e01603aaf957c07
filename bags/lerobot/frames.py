"""A map-style PyTorch dataset with the items of `LeRobotDataset`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, SupportsIndex, Unpack

import numpy as np

from bags.dataset.base import Dataset
from bags.dataset.format.options import OpenOptions
from bags.dataset.open import open as open_dataset
from bags.indexing import as_indices
from bags.lerobot.metadata import LeRobotMetadata
from bags.lerobot.samples import FrameSamples
from bags.validation import with_advice
from bags.views.windows.grid import Gaps, GridFill, grid_options


@with_advice
def dataset(
    dataset: str | os.PathLike[str] | Dataset,
    *,
    delta_timestamps: Mapping[str, Sequence[float]] | None = None,
    image_transforms: Callable[[Any], Any] | None = None,
    episodes: Iterable[int] | None = None,
    tolerance_s: float = 1e-4,
    return_uint8: bool = False,
    depth_output_unit: Literal['mm', 'm'] = 'mm',
    every: str | None = None,
    fps: float | None = None,
    fill: GridFill = 'previous',
    gap: float | None = None,
    gaps: Gaps = 'raise',
    **options: Unpack[OpenOptions],
) -> FrameDataset:
    """Opens a dataset with the interface of LeRobot: an item is a frame, with windows around it.

    `LeRobotDataset(repo_id, root, delta_timestamps=…)` becomes `bags.lerobot.dataset(dataset,
    delta_timestamps=…)`: the items have the same keys, dtypes, shapes and values.

    Args:
        dataset: A dataset whose datapoints are episodes, imported from LeRobot or not: a path, a URL,
            or an open dataset.
        delta_timestamps: By feature, the offsets of its items in seconds, multiples of `1 / fps`. Offsets
            outside the episode give its first or last item, and True in `FEATURE_is_pad`, bool (n,).
        image_transforms: A function that is called with the tensor of each camera, except depth cameras.
        episodes: The numbers of the episodes to read. Default: all. Their frames are in the order of the
            dataset.
        tolerance_s: Maximum distance of an offset from a multiple of `1 / fps`, in seconds.
        return_uint8: Keep video frames as uint8, which takes a quarter of the memory.
        depth_output_unit: Unit of the items of depth cameras, and of their statistics: `mm` or `m`.
        every, fps, fill, gap, gaps: As in `bags.export`: streams of any rates are sampled at the times of the
            export, without one.
        **options: As in `bags.open`, such as `trust_links` for a dataset that links to its source.

    Returns:
        A dataset for `torch.utils.data.DataLoader`. An item has frames as float32 (C, H, W) in [0, 1], depth
        as float32 (1, H, W) in `depth_output_unit`, numbers as float32, int64 or bool, and `task`,
        `timestamp`, `index`, `frame_index`, `episode_index` and `task_index`. A feature with n offsets has n
        items, (n, …).

    Raises:
        KeyError: `delta_timestamps` names an unknown feature.
        IndexError: An episode does not exist.
        TypeError: LeRobot has no feature for the type of a field, or a depth camera has no grey of 9 to 12
            bits.
        ValueError: The metadata has no frame rate, sequences of an episode differ in length, an offset is
            not a multiple of `1 / fps`, or a unit of depth is neither `mm` nor `m`.

    Examples:
        >>> frames = bags.lerobot.dataset('arm', delta_timestamps={'action': [0, 0.1]})
        >>> len(frames), frames.meta.camera_keys
        (40, ['camera'])
        >>> frames[9]['action'].shape, frames[9]['action_is_pad'].tolist(), frames[9]['task']
        (torch.Size([2, 7]), [False, True], 'wave')
    """
    opened = dataset if isinstance(dataset, Dataset) else open_dataset(dataset, **options)
    return FrameDataset(
        LeRobotMetadata(opened, grid_options(every, fps, fill, gap, gaps), depth_output_unit),
        delta_timestamps=delta_timestamps,
        image_transforms=image_transforms,
        episodes=episodes,
        tolerance_s=tolerance_s,
        return_uint8=return_uint8,
    )


class FrameDataset:
    """The frames of episodes, as `bags.lerobot.dataset` returns them.

    A `DataLoader` reads a batch in one call. With `num_workers`, workers may be forked or spawned.

    Args:
        meta: The metadata, with the dataset.
        delta_timestamps, image_transforms, episodes, tolerance_s, return_uint8: As in `dataset`.

    Examples:
        >>> frames = bags.lerobot.dataset('arm')
        >>> loader = torch.utils.data.DataLoader(frames, batch_size=8, shuffle=True)
    """

    def __init__(
        self,
        meta: LeRobotMetadata,
        *,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        image_transforms: Callable[[Any], Any] | None = None,
        episodes: Iterable[int] | None = None,
        tolerance_s: float = 1e-4,
        return_uint8: bool = False,
    ) -> None:
        self.meta = meta
        self.delta_timestamps = delta_timestamps
        self.tolerance_s = tolerance_s
        self._samples = FrameSamples(meta, delta_timestamps, tolerance_s, image_transforms, return_uint8)
        self.episodes: list[int] | None = None
        self._indices = np.arange(meta.total_frames)
        if episodes is not None:
            chosen = as_indices(list(episodes), meta.total_episodes)
            self.episodes = chosen.tolist()
            parts = [np.arange(*meta.offsets[number : number + 2]) for number in np.unique(chosen).tolist()]
            self._indices = np.concatenate(parts) if parts else np.empty(0, np.int64)

    @property
    def delta_indices(self) -> dict[str, list[int]] | None:
        """The offsets of `delta_timestamps` in frames."""
        return self._samples.delta_indices

    @property
    def image_transforms(self) -> Callable[[Any], Any] | None:
        """The function that is called with the tensor of each camera."""
        return self._samples.image_transforms

    @image_transforms.setter
    def image_transforms(self, function: Callable[[Any], Any] | None) -> None:
        self._samples.image_transforms = function

    def set_image_transforms(self, image_transforms: Callable[[Any], Any] | None) -> None:
        """Replaces the function that is called with the tensor of each camera.

        Raises:
            TypeError: `image_transforms` is not callable.
        """
        if image_transforms is not None and not callable(image_transforms):
            raise TypeError(f'image_transforms: expected a function or None, got {image_transforms!r:.80}')
        self.image_transforms = image_transforms

    def clear_image_transforms(self) -> None:
        """Removes the transform: the tensors of cameras are returned unchanged."""
        self.image_transforms = None

    @property
    def depth_output_unit(self) -> str:
        """The unit of the items and the statistics of depth cameras."""
        return self.meta.depth_output_unit

    @property
    def fps(self) -> int | float:
        """Frames per second."""
        return self.meta.fps

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """Each feature's dtype, shape and names."""
        return self.meta.features

    @property
    def num_frames(self) -> int:
        """Number of frames of the chosen episodes."""
        return len(self._indices)

    @property
    def num_episodes(self) -> int:
        """Number of chosen episodes."""
        return self.meta.total_episodes if self.episodes is None else len(self.episodes)

    def __len__(self) -> int:
        return self.num_frames

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Iterable[SupportsIndex]) -> list[dict[str, Any]]:
        """Returns the items of a batch, which are read in one call."""
        return self._samples.read(self._indices[as_indices(indices, len(self))])

    @property
    def absolute_to_relative_idx(self) -> dict[int, int] | None:
        """The position in this dataset of each frame, by its `index`; None if all episodes are read."""
        if self.episodes is None:
            return None
        return {index: position for position, index in enumerate(self._indices.tolist())}

    def close(self) -> None:
        """Closes the dataset."""
        self.meta.dataset.close()

    def __repr__(self) -> str:
        return (
            f'bags.lerobot.dataset({self.meta.dataset!r}, {self.num_episodes} episodes, {len(self)} frames)'
        )
