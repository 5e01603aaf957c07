"""The reader of LeRobot for `"storage_format": "bags"` in meta/info.json: meta/ beside the folder bags/.

LeRobot imports this module when a dataset has this format. Without LeRobot, or with a version without custom
readers, the import raises ImportError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lerobot.datasets.dataset_reader import BaseDatasetReader

from bags.dataset.open import open as open_dataset
from bags.interop.targets.lerobot_features import BAGS_FOLDER
from bags.lerobot.frames import FrameDataset
from bags.lerobot.metadata import LeRobotMetadata


class BagsDatasetReader(BaseDatasetReader):  # type: ignore[misc, unused-ignore]  # Any without LeRobot
    """Reads the frames of a dataset whose values are stored in bags.

    Args:
        meta: The metadata that LeRobot loaded.
        root: The folder that contains meta/ and bags/.
        episodes, delta_timestamps, image_transforms, tolerance_s, return_uint8, depth_output_unit: As in
            `bags.lerobot.dataset`.
        **ignored: Other arguments of LeRobot: the revision and token of a repository.

    Raises:
        FileNotFoundError: bags/ has no dataset.
        ValueError: The number of frames differs from the metadata.
    """

    def __init__(
        self,
        *,
        meta: Any,
        root: str | Path,
        episodes: Sequence[int] | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        image_transforms: Callable[[Any], Any] | None = None,
        tolerance_s: float = 1e-4,
        return_uint8: bool = False,
        depth_output_unit: str = 'mm',
        **ignored: Any,
    ) -> None:
        path = f'{root}/{BAGS_FOLDER}'
        self._frames = FrameDataset(
            LeRobotMetadata(open_dataset(path), depth_output_unit=depth_output_unit),
            delta_timestamps=delta_timestamps,
            image_transforms=image_transforms,
            episodes=episodes,
            tolerance_s=tolerance_s,
            return_uint8=return_uint8,
        )
        self.episodes = self._frames.episodes
        if self._frames.meta.total_frames != meta.total_frames:
            raise ValueError(
                f'{path}: expected {meta.total_frames} frames as in meta/info.json, '
                f'got {self._frames.meta.total_frames}'
            )

    @property
    def num_frames(self) -> int:
        return self._frames.num_frames

    @property
    def num_episodes(self) -> int:
        return self._frames.num_episodes

    @property
    def absolute_to_relative_idx(self) -> dict[int, int] | None:
        return self._frames.absolute_to_relative_idx

    def get_item(self, idx: int) -> dict[str, Any]:
        return self._frames[idx]

    def get_items(self, indices: list[int]) -> list[dict[str, Any]]:
        return self._frames.__getitems__(indices)

    def set_image_transforms(self, image_transforms: Callable[[Any], Any] | None) -> None:
        self._frames.set_image_transforms(image_transforms)

    def clear_image_transforms(self) -> None:
        self._frames.clear_image_transforms()


DATASET_READER = BagsDatasetReader


def localize_root(_repo_id: str | None, root: str | Path, *_: Any, **_ignored: Any) -> Path:
    """Rejects a remote folder: use `bags.lerobot.dataset`, which reads URLs.

    Raises:
        FileNotFoundError: Always.
    """
    raise FileNotFoundError(f'{root}: expected a local folder with meta/; bags.lerobot.dataset reads URLs')
