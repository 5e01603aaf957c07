"""Recordings of several rates: LeRobot over an export, and `bags.lerobot.dataset` without an export."""

import pickle

import numpy as np
import pytest
import torch

import bags
from tests.lerobot.recordings import LeRobotDataset, expect_equal

SPEC = {
    'front': 'mp4(30)[]', 'side': 'mp4(15)[]', 'wrist': 'png[]', 'mic': 'flac[]',
    'state': 'array(float32,3)[]', 'state_time': 'float(8)[]', 'reward': 'float(4)[]', 'events': 'utf8[]',
    'event_time': 'float(8)[]',
    'task': 'utf8',
}  # fmt: skip
FACTS = {
    'front': {'rate': 30}, 'side': {'rate': 15}, 'wrist': {'rate': 10}, 'mic': {'rate': 16000},
    'state': {'times': 'state_time'}, 'reward': {'rate': 5}, 'events': {'times': 'event_time'},
}  # fmt: skip
DELTAS = {
    'front': [-0.1, 0.0],
    'wrist': [-0.2, 0.0],
    'state': [-1 / 30, 0.0],
    'reward': [0.0, 1 / 30, 2 / 30],
}


def picture(number):
    bars = number >> np.arange(64) // 8 & 1
    return np.ascontiguousarray(np.broadcast_to(bars[:, None] * 255, (48, 64, 3)), np.uint8)


@pytest.fixture(scope='module')
def recording(tmp_path_factory):
    """Episodes of 2 and 1.5 seconds. The state begins 0.04 s after the cameras."""
    path = tmp_path_factory.mktemp('recording') / 'in'
    rng = np.random.default_rng(0)
    with bags.DatasetWriter(path, SPEC, metadata={'fields': FACTS, 'robot_type': 'arm'}) as writer:
        for number, count in enumerate((60, 45)):
            with writer.begin(clip_seconds=0.7, values={'task': f'task {number}'}) as episode:
                for frame in range(count):
                    episode.append({'front': picture(frame), 'mic': np.zeros(533, np.int16)})
                    if frame % 2 == 0:
                        episode.append({'side': picture(frame)})
                    if frame % 3 == 0:
                        episode.append({'wrist': picture(frame)})
                    if frame % 6 == 0:
                        episode.append({'reward': frame})
                for time in 0.04 + np.arange(round(count / 30 * 200)) / 200:
                    state = rng.random(3).astype(np.float32)
                    episode.append({'state': state, 'state_time': time})
                episode.append({'events': 'grasp', 'event_time': 0.5})
    return path


def open_exported(recording, folder, options, deltas):
    bags.export(recording, folder, format='lerobot', **options)
    theirs = LeRobotDataset('me/x', folder, video_backend='pyav', delta_timestamps=deltas)
    return bags.lerobot.dataset(recording, delta_timestamps=deltas, **options), theirs


@pytest.mark.parametrize('deltas', [None, DELTAS], ids=['frames', 'windows'])
@pytest.mark.parametrize('fill', ['previous', 'linear'])
def test_items_equal_those_of_lerobot_over_the_export(recording, tmp_path, fill, deltas):
    # `side` is encoded again by an export.
    options = {'every': 'front', 'fill': fill}
    ours, theirs = open_exported(recording, tmp_path / 'out', options, deltas)
    # From frame 2, the first at which there is a state, to the end of the cameras.
    assert len(ours) == len(theirs) == 58 + 43
    assert (ours.fps, ours.meta.robot_type) == (30, 'arm')
    assert set(ours.meta.camera_keys) == set(theirs.meta.camera_keys) == {'front', 'side', 'wrist'}
    for index in range(0, len(ours), 7):
        item, expected = ours[index], theirs[index]
        side, their_side = item.pop('side'), expected.pop('side')
        assert torch.allclose(side, their_side, atol=0.15)
        expect_equal(item, expected)
    assert theirs[0]['task'] == 'task 0'
    assert theirs[len(theirs) - 1]['task'] == 'task 1'


def test_metadata_equals_that_of_lerobot(recording, tmp_path):
    ours, theirs = open_exported(recording, tmp_path / 'out', {'every': 'front'}, None)
    assert {name: tuple(each['shape']) for name, each in ours.meta.features.items()} == {
        name: tuple(each['shape']) for name, each in theirs.meta.features.items()
    }
    assert ours.meta.total_frames == theirs.meta.total_frames
    assert ours.meta.episodes['length'] == list(theirs.meta.episodes['length'])
    for name in ('state', 'reward', 'front', 'wrist'):
        for key in ('min', 'max', 'mean', 'std'):
            assert np.allclose(ours.meta.stats[name][key], theirs.meta.stats[name][key]), (name, key)


def test_batches_in_workers(recording):
    frames = bags.lerobot.dataset(recording, every='front', delta_timestamps={'state': [-0.1, 0.0]})
    frames = pickle.loads(pickle.dumps(frames))
    batch = next(iter(torch.utils.data.DataLoader(frames, batch_size=8, num_workers=1)))
    assert batch['front'].shape == (8, 3, 48, 64)
    assert batch['state'].shape == (8, 2, 3)
    assert batch['state_is_pad'].tolist()[0] == [True, False]


def test_options_need_every(recording):
    with pytest.raises(ValueError, match='fps: expected every'):
        bags.lerobot.dataset(recording, fps=30)
