"""Recordings of LeRobot, and functions to open and compare them."""

import importlib.metadata
import os
import warnings
from types import SimpleNamespace

os.environ['HF_HUB_OFFLINE'] = '1'

import numpy as np
import torch

HAS_0_4 = importlib.metadata.version('lerobot').startswith('0.4.')
if HAS_0_4:
    # torchvision finds no compiled operators beside this torch, and without this one cannot be imported.
    OPERATORS = torch.library.Library('torchvision', 'DEF')
    OPERATORS.define('nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')

with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # Of torchvision, about the operators.
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    if HAS_0_4:
        from lerobot.datasets.utils import dataset_to_policy_features

        H264 = {'vcodec': 'h264'}
    else:
        from lerobot.configs.video import RGBEncoderConfig
        from lerobot.utils.feature_utils import dataset_to_policy_features

        H264 = {'rgb_encoder': RGBEncoderConfig(vcodec='h264')}

import bags  # noqa: E402

__all__ = ['LeRobotDataset', 'dataset_to_policy_features']

PIXELS = ['height', 'width', 'channels']


def vector(count, dtype='float32', names=None):
    return {'dtype': dtype, 'shape': (count,), 'names': names}


def camera(dtype, *shape):
    return {'dtype': dtype, 'shape': shape, 'names': PIXELS}


JOINTS = {'motors': [f'joint_{number}' for number in range(14)]}
RECORDINGS = {
    # One camera at 10 Hz, in the codec that LeRobot chooses.
    'pusht': SimpleNamespace(
        fps=10,
        lengths=[24, 17, 30],
        options={'robot_type': 'pusht'},
        features={
            'observation.image': camera('video', 64, 48, 3),
            'observation.state': vector(2, names={'motors': ['x', 'y']}),
            'action': vector(2, names={'motors': ['x', 'y']}),
            'next.reward': vector(1),
            'next.done': vector(1, 'bool'),
            'next.success': vector(1, 'bool'),
        },
        deltas={
            'observation.image': [-0.1, 0.0],
            'observation.state': [-0.1, 0.0],
            'action': [step / 10 for step in range(-1, 15)],
        },
    ),
    # Several cameras at 50 Hz, in files that several episodes share, and others that have one.
    'aloha': SimpleNamespace(
        fps=50,
        lengths=[31, 2, 45, 20, 27],
        options={'robot_type': 'aloha', **H264},
        features={
            'observation.images.top': camera('video', 48, 64, 3),
            'observation.images.left_wrist': camera('video', 32, 48, 3),
            'observation.images.cam_low': camera('video', 32, 32, 3),
            'observation.state': vector(14, names=JOINTS),
            'observation.effort': vector(14, 'float64', names=JOINTS),
            'action': vector(14, names=JOINTS),
            'next.done': vector(1, 'bool'),
        },
        deltas={
            'observation.images.top': [-0.2, -0.02, 0.0],
            'observation.images.cam_low': [0.0],
            'observation.state': [-0.04, 0.0, 0.02],
            'action': [step / 50 for step in range(20)],
            'next.done': [0.5],
        },
    ),
    # Images in the tables, and numbers of other kinds.
    'images': SimpleNamespace(
        fps=30,
        lengths=[12, 9, 3],
        options={},
        features={
            'observation.image': camera('image', 24, 32, 3),
            'observation.state': vector(3),
            'grid': {'dtype': 'float64', 'shape': (2, 3), 'names': None},
            'count': vector(1, 'int32'),
            'levels': vector(4, 'uint8'),
            'action': vector(3),
        },
        deltas={
            'observation.image': [-0.1, 0.0, 0.1],
            'grid': [-1 / 30],
            'count': [0.0, 0.1],
            'levels': [-0.2, 0.0],
            'action': [0.0, 1 / 30, 2 / 30],
            'timestamp': [-0.1, 0.0],
            'index': [0.0, 0.1],
            'frame_index': [-0.1, 0.1],
            'episode_index': [0.0, 0.1],
        },
    ),
}


def value_of(feature, name, step, length, rng):
    """Returns the value of a frame; pictures are smooth, as a codec expects."""
    dtype, shape = feature['dtype'], feature['shape']
    if dtype in ('video', 'image'):
        rows, columns = np.ogrid[: shape[0], : shape[1]]
        red = (rows * 3 + step * 5) % 256 + 0 * columns
        green = (columns * 4 + step * 3 + rng.integers(40)) % 256 + 0 * rows
        return np.stack([red, green, (red + green) // 2], -1).astype(np.uint8)
    if name in ('next.done', 'next.success'):
        return np.array([step == length - 1])
    if dtype.startswith('float'):
        return rng.normal(size=shape).astype(dtype)
    return rng.integers(0, 100, shape).astype(dtype)


def record(name, root, lengths=None):
    """Writes a recording by LeRobot, with different tasks."""
    about = RECORDINGS[name]
    dataset = LeRobotDataset.create(f'me/{name}', about.fps, about.features, root, **about.options)
    rng = np.random.default_rng(0)
    for episode, length in enumerate(lengths or about.lengths):
        for step in range(length):
            values = {
                key: value_of(feature, key, step, length, rng) for key, feature in about.features.items()
            }
            dataset.add_frame({**values, 'task': f'task {(episode + 1) % 3}'})
        dataset.save_episode()
        if episode == 1:  # The next episodes are in other files.
            dataset.meta.update_chunk_settings(data_files_size_in_mb=1e-6, video_files_size_in_mb=1e-6)
        elif episode == 2:
            dataset.meta.update_chunk_settings(data_files_size_in_mb=100, video_files_size_in_mb=200)
    dataset.finalize()


def open_theirs(recording, **options):
    return LeRobotDataset('me/x', recording.root / 'lerobot', video_backend='pyav', **options)


def positions_of(theirs):
    """Returns the position of each frame in a dataset of chosen episodes, by its `index`."""
    return theirs._absolute_to_relative_idx if HAS_0_4 else theirs.absolute_to_relative_idx


def open_ours(recording, form='copied', **options):
    return bags.lerobot.dataset(recording.root / form, trust_links=recording.links, **options)


def expect_equal(ours, theirs):
    """Compares two items: keys, dtypes, shapes and values."""
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        if isinstance(value, str):
            assert ours[name] == value
            continue
        assert ours[name].dtype == value.dtype, name
        assert ours[name].shape == value.shape, name
        assert torch.equal(ours[name], value), name
