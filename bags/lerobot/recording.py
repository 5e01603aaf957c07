"""`RecordingDataset`: records episodes frame by frame, with the interface of LeRobot's dataset class.

A frame has an item for each field. Cameras are encoded while they are recorded, so that an episode survives a
kill except for its last frames.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bags.dataset.open import open as open_dataset
from bags.dataset.writing.episode import Episode
from bags.dataset.writing.sharded_writer import ShardedDatasetWriter
from bags.display.counts import plural
from bags.interop.hub.push import push
from bags.lerobot.recorded_features import COMPUTED, TASK, TIMESTAMP, RecordedFeatures, created_features
from bags.maintenance.metadata import set_metadata
from bags.validation import import_optional

CLIP_SECONDS = 0.5
FLUSH_SECONDS = 0.1
"""The length of clips, and the age at which items survive a kill: with the delay of the encoders, a kill
loses less than a second."""


class RecordingDataset:
    """A dataset to which episodes are recorded, in place of `LeRobotDataset` in a record loop.

    Use `create` or `resume`. `bags.lerobot.dataset` reads the recorded frames.

    Attributes:
        repo_id: The name of the dataset, and of its repository on the Hugging Face hub.
        root: The folder, a dataset of bags.
        meta: The metadata that a record loop reads.
        writer: Always None: LeRobot has nothing to clean up when a loop is interrupted.

    Examples:
        >>> features = {
        ...     'observation.images.front': {'dtype': 'video', 'shape': (48, 64, 3), 'names': None},
        ...     'action': {'dtype': 'float32', 'shape': (6,), 'names': None},
        ... }
        >>> recording = bags.lerobot.RecordingDataset.create('me/cubes', 30, features, root='cubes')
        >>> for step in range(45):
        ...     recording.add_frame(
        ...         {
        ...             'observation.images.front': np.full((48, 64, 3), 4 * step, np.uint8),
        ...             'action': np.zeros(6, np.float32),
        ...             'task': 'stack the cubes',
        ...         }
        ...     )
        >>> recording.save_episode()
        >>> recording.finalize()
        >>> recording.num_episodes, recording.num_frames
        (1, 45)
        >>> len(bags.lerobot.dataset('cubes', every='action'))
        45
    """

    writer: None = None

    def __init__(
        self, repo_id: str, root: Path, recorded: RecordedFeatures, writer: ShardedDatasetWriter
    ) -> None:
        self.repo_id = repo_id
        self.root = root
        self._recorded = recorded
        self._writer = writer
        self._episode: Episode | None = None
        self._pending = 0
        """Number of frames of the open episode."""
        self._frames = 0
        """Number of frames of the saved episodes."""
        self.meta = RecordingMetadata(self, (writer.metadata or {}).get('robot_type'))

    @classmethod
    def create(
        cls,
        repo_id: str,
        fps: int,
        features: Mapping[str, Any],
        root: str | os.PathLike[str] | None = None,
        robot_type: str | None = None,
        use_videos: bool = True,
        tolerance_s: float = 1e-4,
        image_writer_processes: int = 0,
        image_writer_threads: int = 0,
        video_backend: str | None = None,
        batch_encoding_size: int = 1,
        rgb_encoder: object = None,
        depth_encoder: object = None,
        metadata_buffer_size: int = 10,
        streaming_encoding: bool = False,
        encoder_queue_maxsize: int = 30,
        encoder_threads: int | None = None,
        video_files_size_in_mb: int | None = None,
        data_files_size_in_mb: int | None = None,
    ) -> RecordingDataset:
        """Creates a dataset for recording.

        Args:
            repo_id: The name of the dataset, `OWNER/NAME`.
            fps: Frames per second.
            features: By name, `dtype`, `shape` and `names`, as LeRobot describes them. Videos are stored as
                clips of H.264, images as PNG. Depth cameras, whose `info` has `is_depth_map`, are stored as
                PNG of uint16, without loss.
            root: A new or empty folder. Default: `$HF_LEROBOT_HOME/OWNER/NAME`, as in LeRobot.
            robot_type: The type of the robot.
            use_videos: Whether features may be videos.
            tolerance_s, video_backend, metadata_buffer_size: These and the following are options of
                LeRobot that have no effect. A warning names those that are set.
            image_writer_processes, image_writer_threads: Options of its writers of images.
            rgb_encoder, depth_encoder, encoder_threads: Options of its encoders.
            batch_encoding_size, streaming_encoding, encoder_queue_maxsize: When it encodes.
            video_files_size_in_mb, data_files_size_in_mb: The sizes of its files.

        Raises:
            FileExistsError: The folder is not empty.
            TypeError: A feature cannot be recorded.
            ValueError: A name, a dtype or a shape is invalid, or `fps` is.
        """
        recorded = RecordedFeatures(features, fps, use_videos)
        _warn_of({
            'tolerance_s': tolerance_s != 1e-4,
            'image_writer_processes': image_writer_processes,
            'image_writer_threads': image_writer_threads,
            'video_backend': video_backend,
            'batch_encoding_size': batch_encoding_size != 1,
            'rgb_encoder': rgb_encoder,
            'depth_encoder': depth_encoder,
            'metadata_buffer_size': metadata_buffer_size != 10,
            'streaming_encoding': streaming_encoding,
            'encoder_queue_maxsize': encoder_queue_maxsize != 30,
            'encoder_threads': encoder_threads,
            'video_files_size_in_mb': video_files_size_in_mb,
            'data_files_size_in_mb': data_files_size_in_mb,
        })  # fmt: skip
        folder = _root_of(repo_id, root)
        writer = ShardedDatasetWriter(folder, recorded.spec, metadata=recorded.metadata(robot_type))
        return cls(repo_id, folder, recorded, writer)

    @classmethod
    def resume(
        cls,
        repo_id: str,
        root: str | os.PathLike[str] | None = None,
        tolerance_s: float = 1e-4,
        revision: str | None = None,
        force_cache_sync: bool = False,
        video_backend: str | None = None,
        batch_encoding_size: int = 1,
        rgb_encoder: object = None,
        depth_encoder: object = None,
        encoder_threads: int | None = None,
        image_writer_processes: int = 0,
        image_writer_threads: int = 0,
        streaming_encoding: bool = False,
        encoder_queue_maxsize: int = 30,
        *,
        token: str | bool | None = None,
    ) -> RecordingDataset:
        """Opens a recording to add episodes. An episode that a kill interrupted becomes its last episode.

        Args:
            repo_id, root: As in `create`.
            tolerance_s, video_backend, revision, force_cache_sync, token: These and the following are
                options of LeRobot that have no effect. A warning names those that are set.
            image_writer_processes, image_writer_threads: Options of its writers of images.
            rgb_encoder, depth_encoder, encoder_threads: Options of its encoders.
            batch_encoding_size, streaming_encoding, encoder_queue_maxsize: When it encodes.

        Raises:
            FileNotFoundError: The folder has no dataset.
            BlockingIOError: Another process records to the folder.
            ValueError: `RecordingDataset.create` did not create the dataset.
        """
        _warn_of({
            'tolerance_s': tolerance_s != 1e-4,
            'revision': revision,
            'force_cache_sync': force_cache_sync,
            'video_backend': video_backend,
            'batch_encoding_size': batch_encoding_size != 1,
            'rgb_encoder': rgb_encoder,
            'depth_encoder': depth_encoder,
            'encoder_threads': encoder_threads,
            'image_writer_processes': image_writer_processes,
            'image_writer_threads': image_writer_threads,
            'streaming_encoding': streaming_encoding,
            'encoder_queue_maxsize': encoder_queue_maxsize != 30,
            'token': token,
        })  # fmt: skip
        folder = _root_of(repo_id, root)
        with open_dataset(folder) as existing:
            metadata, spec = dict(existing.metadata), dict(existing.spec)
        try:
            recorded = RecordedFeatures(created_features(metadata), metadata['fps'])
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise ValueError(f'{folder}: expected a recording of RecordingDataset.create: {exc}') from exc
        if spec != recorded.spec:
            name = next(name for name in recorded.spec | spec if spec.get(name) != recorded.spec.get(name))
            raise ValueError(
                f'{folder}: expected a recording of RecordingDataset.create: field {name!r}: expected type '
                f'{recorded.spec.get(name)}, got {spec.get(name)}'
            )
        writer = ShardedDatasetWriter(folder, recorded.spec, metadata=metadata, resume=True)
        dataset = cls(repo_id, folder, recorded, writer)
        if len(writer):
            with open_dataset(folder) as existing:
                dataset._frames = int(existing.item_counts(np.arange(len(existing)), TIMESTAMP).sum())
        return dataset

    @property
    def fps(self) -> int | float:
        """Frames per second."""
        return self._recorded.fps

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """Each feature's dtype, shape and names, with the features that LeRobot computes."""
        return self._recorded.features

    @property
    def num_episodes(self) -> int:
        """Number of saved episodes."""
        return len(self._writer)

    @property
    def num_frames(self) -> int:
        """Number of frames of the saved episodes."""
        return self._frames

    def __len__(self) -> int:
        return self.num_frames

    def add_frame(self, frame: Mapping[str, Any]) -> None:
        """Adds a frame to the open episode, or begins an episode with it.

        Args:
            frame: A value of each feature, and `task`, a text. Numbers are arrays or tensors of the dtype and
                shape of the feature. Cameras are uint8 (H, W, 3) or (3, H, W), floats from 0 to 1, or images
                of PIL; depth cameras uint16 (H, W), (H, W, 1) or (1, H, W), in millimetres. Arrays are
                copied. `timestamp` and the other features that LeRobot computes are not given.

        Raises:
            ValueError: A feature is missing or unknown, or has another dtype or shape. Nothing of the frame
                is written.
            EncodeError, OSError: Earlier frames could not be encoded or written, e.g. the disk is full.
            RuntimeError: The dataset is finalized.
        """
        self._expect_open('add_frame')
        items = self._recorded.items(frame, self._pending)
        if self._episode is None:
            self._episode = self._writer.begin(flush=FLUSH_SECONDS, clip_seconds=CLIP_SECONDS)
        self._episode.append(items)
        self._pending += 1

    def save_episode(
        self, episode_data: Mapping[str, Any] | None = None, parallel_encoding: bool = True
    ) -> None:
        """Saves the open episode, after its last frames are encoded.

        Args:
            episode_data: An episode to save instead, if no episode is open: by feature, and `task`, a value
                for each frame. All its frames are checked before one is written.
            parallel_encoding: No effect: cameras are encoded while they are recorded.

        Raises:
            ValueError: There are no frames, or `episode_data` is invalid.
            EncodeError, OSError: As for `add_frame`.
            RuntimeError: The dataset is finalized.
        """
        self._expect_open('save_episode')
        if episode_data is not None:
            self._add_frames(episode_data)
        if self._episode is None or not self._pending:
            raise ValueError('save_episode: expected frames in the episode (add_frame), got none')
        self._episode.commit()
        self._frames += self._pending
        self._episode, self._pending = None, 0

    def _add_frames(self, episode_data: Mapping[str, Any]) -> None:
        """Adds the frames of an episode, or none of them."""
        if self._pending:
            raise ValueError(
                f'save_episode: expected no episode_data while {plural(self._pending, "frame")} of another '
                'episode are not saved'
            )
        columns = {name: values for name, values in episode_data.items() if name not in ('size', *COMPUTED)}
        lengths = {name: len(values) for name, values in columns.items()}
        length = lengths.get(TASK, 0)
        if wrong := [name for name in lengths if lengths[name] != length]:
            raise ValueError(
                f'save_episode: episode_data, feature {wrong[0]!r}: expected {length} values, as many as '
                f'tasks, got {lengths[wrong[0]]}'
            )
        frames = [{name: values[step] for name, values in columns.items()} for step in range(length)]
        for step, frame in enumerate(frames):
            self._recorded.items(frame, step)
        for frame in frames:
            self.add_frame(frame)

    def clear_episode_buffer(self, delete_images: bool = True) -> None:
        """Discards the open episode, so that it can be recorded again.

        Args:
            delete_images: No effect: there are no files of single images.
        """
        self._expect_open('clear_episode_buffer')
        if self._episode is not None:
            self._episode.discard()
        self._episode, self._pending = None, 0

    def has_pending_frames(self) -> bool:
        """Returns whether there are frames that are not saved."""
        return self._pending > 0

    def finalize(self) -> None:
        """Closes the dataset. Further calls have no effect.

        Frames that are not saved are kept as after a kill, with a warning: `bags.recover(root)` or `resume`
        makes an episode of them.
        """
        if self._writer.closed:
            return
        if self._episode is None:
            self._writer.close()
            return
        self._episode.leave()
        self._writer.abandon()
        warnings.warn(
            f'{self.root}: {plural(self._pending, "frame")} of an episode are not saved. bags.recover or '
            'RecordingDataset.resume makes an episode of them; clear_episode_buffer() before finalize() '
            'discards them',
            UserWarning,
            stacklevel=2,
        )

    def push_to_hub(
        self,
        branch: str | None = None,
        tags: list[str] | None = None,
        license: str | None = 'apache-2.0',
        tag_version: bool = True,
        push_videos: bool = True,
        private: bool | None = None,
        allow_patterns: list[str] | str | None = None,
        upload_large_folder: bool = False,
    ) -> None:
        """Uploads the dataset of bags to the repository `repo_id`, which is created if it does not exist.

        `bags.export(root, target, format='lerobot')` writes the format of LeRobot instead.

        Args:
            branch: The branch. Default: `main`.
            tags, license: Stored in the metadata of the dataset, for the card of the repository.
            tag_version, upload_large_folder: No effect: tags are versions of LeRobot's format, and an
                interrupted upload is continued by the same call.
            push_videos, allow_patterns: Must be True and None, because all fields are uploaded.
                `bags.copy(root, path, fields=…)` makes a dataset of some fields.
            private: Whether a new repository is private. Default: as the hub decides.

        Raises:
            MissingDependencyError: huggingface_hub is not installed.
            PermissionError, OSError: As for `bags.push`.
            RuntimeError: The dataset is not finalized.
            ValueError: `push_videos` or `allow_patterns` is set.
        """
        if not self._writer.closed or self._episode is not None:
            left = 'is not finalized' if not self._writer.closed else 'has frames that are not saved'
            raise RuntimeError(
                f'{self.root}: push_to_hub: the recording {left}: call finalize() or bags.recover'
            )
        if not push_videos or allow_patterns is not None:
            raise ValueError(
                'push_to_hub: expected push_videos=True and allow_patterns=None: all fields are uploaded; '
                'bags.copy(root, path, fields=…) makes a dataset of some fields'
            )
        with open_dataset(self.root) as dataset:
            metadata = dict(dataset.metadata)
        facts = {'license': license, 'tags': tags}
        if facts := {key: fact for key, fact in facts.items() if fact and metadata.get(key) != fact}:
            set_metadata(self.root, {**metadata, **facts})
        api = import_optional('huggingface_hub', 'hf').HfApi(library_name='bags')
        api.create_repo(self.repo_id, private=private, repo_type='dataset', exist_ok=True)
        if branch is not None:
            api.create_branch(self.repo_id, branch=branch, repo_type='dataset', exist_ok=True)
        push(self.root, f'hf://datasets/{self.repo_id}{f"@{branch}" if branch else ""}')

    def _expect_open(self, method: str) -> None:
        if self._writer.closed:
            raise RuntimeError(
                f'{self.root}: {method}: the recording is finalized; RecordingDataset.resume opens it again'
            )

    def __repr__(self) -> str:
        return (
            f'bags.lerobot.RecordingDataset({self.repo_id!r}, {os.fspath(self.root)!r}, '
            f'{plural(self.num_episodes, "episode")}, {plural(self.num_frames, "frame")})'
        )


class RecordingMetadata:
    """The attributes of `LeRobotDatasetMetadata` that a record loop reads."""

    def __init__(self, dataset: RecordingDataset, robot_type: str | None) -> None:
        self._dataset = dataset
        self.robot_type = robot_type

    @property
    def repo_id(self) -> str:
        """The name of the dataset."""
        return self._dataset.repo_id

    @property
    def root(self) -> Path:
        """The folder."""
        return self._dataset.root

    @property
    def fps(self) -> int | float:
        """Frames per second."""
        return self._dataset.fps

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """Each feature's dtype, shape and names."""
        return self._dataset.features

    @property
    def names(self) -> dict[str, Any]:
        """The names of the elements of each feature."""
        return {name: feature.get('names') for name, feature in self.features.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each feature."""
        return {name: feature['shape'] for name, feature in self.features.items()}

    @property
    def camera_keys(self) -> list[str]:
        """The cameras."""
        return [*self.video_keys, *self.image_keys]

    @property
    def video_keys(self) -> list[str]:
        """The cameras whose feature is a video."""
        return [name for name, feature in self.features.items() if feature['dtype'] == 'video']

    @property
    def image_keys(self) -> list[str]:
        """The cameras whose feature is an image."""
        return [name for name, feature in self.features.items() if feature['dtype'] == 'image']

    @property
    def total_episodes(self) -> int:
        """Number of saved episodes."""
        return self._dataset.num_episodes

    @property
    def total_frames(self) -> int:
        """Number of frames of the saved episodes."""
        return self._dataset.num_frames


def _root_of(repo_id: str, root: str | os.PathLike[str] | None) -> Path:
    """Returns the folder of a dataset, by default where LeRobot stores it."""
    if root:
        return Path(root)
    cache = os.environ.get('HF_HOME') or f'{os.environ.get("XDG_CACHE_HOME", "~/.cache")}/huggingface'
    return Path(os.environ.get('HF_LEROBOT_HOME', f'{cache}/lerobot')).expanduser() / repo_id


def _warn_of(options: Mapping[str, object]) -> None:
    """Warns of the options that are set."""
    if names := [name for name, is_set in options.items() if is_set]:
        warnings.warn(
            f'RecordingDataset: {", ".join(names)} without effect: cameras are encoded in H.264 while they '
            'are recorded',
            UserWarning,
            stacklevel=3,
        )
