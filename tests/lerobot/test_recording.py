"""`RecordingDataset` in place of LeRobot's class: equal frames, its command, bad frames, and kills."""

import json
import re
import subprocess
import sys

import huggingface_hub.constants
import numpy as np
import pytest
import torch
from PIL import Image

import bags
from bags.lerobot import RecordingDataset
from tests.interop.hub.conftest import hub
from tests.lerobot.recordings import HAS_0_4, LeRobotDataset, camera, expect_equal, vector

__all__ = ['hub']

FEATURES = {
    'observation.images.front': camera('video', 48, 64, 3),
    'observation.images.still': camera('image', 24, 32, 3),
    'observation.state': vector(6, names=[f'joint_{number}' for number in range(6)]),
    'grid': {'dtype': 'float64', 'shape': (2, 3), 'names': None},
    'next.reward': vector(1),
    'count': vector(1, 'int64'),
    'next.done': vector(1, 'bool'),
    'note': {'dtype': 'string', 'shape': (1,), 'names': None},
    'action': vector(6),
}
FRONT, STILL = 'observation.images.front', 'observation.images.still'


def picture(height, width, step):
    rows, columns = np.ogrid[:height, :width]
    red = (rows * 3 + 2 * step) % 256 + 0 * columns
    return np.stack([red, (columns * 3) % 256 + 0 * red, 255 - red], -1).astype(np.uint8)


def frame(step, task='stack the cubes'):
    return {
        FRONT: picture(48, 64, step),
        STILL: picture(24, 32, step),
        'observation.state': np.full(6, step, np.float32),
        'grid': np.full((2, 3), step / 7),
        'next.reward': np.array([step / 3], np.float32),
        'count': np.array([step]),
        'next.done': np.array([step == 19]),
        'note': f'note {step}',
        'action': np.full(6, -step, np.float32),
        'task': task,
    }


def record(dataset, lengths):
    for episode, length in enumerate(lengths):
        for step in range(length):
            dataset.add_frame(frame(step, f'task {(episode + step // 10) % 2}'))
        dataset.save_episode()
    return dataset


@pytest.fixture
def recording(tmp_path):
    return RecordingDataset.create('me/cubes', 30, FEATURES, tmp_path / 'cubes', robot_type='arm')


def test_an_exported_recording_equals_that_of_lerobot(recording, tmp_path):
    record(recording, (20, 17))
    recording.finalize()
    record(theirs := LeRobotDataset.create('me/cubes', 30, FEATURES, tmp_path / 'theirs'), (20, 17))
    theirs.finalize()
    bags.export(recording.root, tmp_path / 'exported', format='lerobot', every=FRONT)
    exported = LeRobotDataset('me/cubes', tmp_path / 'exported', video_backend='pyav')
    theirs = LeRobotDataset('me/cubes', tmp_path / 'theirs', video_backend='pyav')
    ours = bags.lerobot.dataset(recording.root, every=FRONT)
    assert len(exported) == len(theirs) == len(ours) == recording.num_frames == 37
    assert (exported.num_episodes, recording.num_episodes) == (2, 2)
    assert exported.meta.robot_type == 'arm'
    assert exported.features.keys() == theirs.features.keys()
    with pytest.raises(
        TypeError, match=r"images.front': .* got type mp4\(30\)\[\]; sample the clips .* every="
    ):
        bags.export(recording.root, tmp_path / 'refused', format='lerobot')
    for index in (0, 12, 19, 20, 36):
        items = [dataset[index] for dataset in (exported, theirs, ours)]
        fronts = [item.pop(FRONT) for item in items]
        for item in items:
            item.pop('note', None)  # Texts are not in the items of each version.
            item.pop('task_index')  # Numbered in the order of the episode, or of a set.
        expect_equal(items[0], items[1])
        expect_equal(items[2], items[0])
        assert torch.equal(fronts[0], fronts[2])
        assert (fronts[0] - fronts[1]).abs().mean() < 0.05  # In two codecs.
    row = bags.open(recording.root)[1]
    assert row['note'] == [f'note {step}' for step in range(17)]
    assert row['task'] == ['task 1'] * 10 + ['task 0'] * 7


def test_what_a_record_loop_reads(recording, tmp_path):
    names = {'timestamp', 'frame_index', 'episode_index', 'index', 'task_index'}
    assert recording.features.keys() == FEATURES.keys() | names
    assert recording.features[FRONT] == FEATURES[FRONT]
    assert (recording.fps, recording.root, recording.writer) == (30, tmp_path / 'cubes', None)
    meta = recording.meta
    assert (meta.fps, meta.robot_type, meta.features) == (30, 'arm', recording.features)
    assert (meta.video_keys, meta.image_keys) == ([FRONT], [STILL])
    assert meta.shapes['action'] == (6,)
    assert not recording.has_pending_frames()
    recording.add_frame(frame(0))
    assert recording.has_pending_frames()
    assert (recording.num_episodes, recording.num_frames) == (0, 0)
    recording.clear_episode_buffer()
    assert not recording.has_pending_frames()
    record(recording, (3,))
    recording.finalize()
    recording.finalize()
    assert (recording.num_episodes, recording.num_frames, meta.total_frames) == (1, 3, 3)
    again = RecordingDataset.resume('me/cubes', tmp_path / 'cubes')
    assert (again.features, again.meta.robot_type, again.num_frames) == (recording.features, 'arm', 3)
    record(again, (2,))
    again.finalize()
    assert (again.num_episodes, again.num_frames) == (2, 5)


BAD = {
    'shape': (
        {FRONT: np.zeros((24, 32, 3), np.uint8)},
        r"images.front': expected uint8, or floats from 0 to 1, of shape \(48, 64, 3\) or .* got uint8 of",
    ),
    'dtype of pixels': ({STILL: np.zeros((24, 32, 3), np.int64)}, r"still': expected uint8.* got int64 of"),
    'range': ({STILL: np.full((24, 32, 3), 1.5)}, r"still': expected floats from 0 to 1, got 1.5 to 1.5"),
    'dtype': ({'action': np.zeros(6)}, r"'action': expected float32 of shape \(6,\), got float64 of shape"),
    'length': ({'action': np.zeros(5, np.float32)}, r"'action': expected .*\(6,\), got float32 .*\(5,\)"),
    'no array': ({'count': 3}, r"'count': expected int64 of shape \(1,\), got int"),
    'text': ({'note': 3}, r"'note': expected a text, got int"),
    'extra': ({'speed': np.zeros(1)}, r"'speed': expected one of observation.images.front, .*, or task"),
    'computed': ({'timestamp': np.zeros(1)}, r"'timestamp': expected no value, as it is computed"),
    'task': ({'task': None}, r"'task': expected a text, got NoneType"),
}


@pytest.mark.parametrize('case', BAD)
def test_nothing_of_a_bad_frame_is_written(case, recording):
    change, message = BAD[case]
    for step in range(2):
        with pytest.raises(ValueError, match=message):
            recording.add_frame(frame(step) | change)
        recording.add_frame(frame(step))
    without = frame(2)
    del without['action']
    with pytest.raises(ValueError, match=r"'action': expected float32 of shape \(6,\), got no value"):
        recording.add_frame(without)
    recording.save_episode()
    recording.finalize()
    row = bags.open(recording.root)[0]
    assert {len(value) for name, value in row.items() if name != FRONT} == {2}
    assert len(bags.open(recording.root).stream(0, FRONT)) == 2


@pytest.mark.parametrize('dtype', ['image', 'video'])
def test_forms_of_pictures(dtype, tmp_path):
    depth = {**camera(dtype, 24, 32, 1), 'info': {'is_depth_map': True}}
    first = {'dtype': 'image', 'shape': (3, 24, 32), 'names': ['channels', 'height', 'width']}
    features = {'depth': depth, 'still': camera('image', 24, 32, 3), 'first': first}
    recording = RecordingDataset.create('me/x', 10, features, tmp_path / 'x')
    pixels, meters = picture(24, 32, 5), np.arange(24 * 32, dtype=np.uint16).reshape(24, 32) * 85
    for still, deep in [
        (pixels, meters),
        (pixels.transpose(2, 0, 1), meters[..., None]),
        (torch.tensor(pixels), meters[None]),
        (Image.fromarray(pixels), torch.tensor(meters.astype(np.int32)).to(torch.uint16)),
        (pixels / 255, meters),
    ]:
        recording.add_frame({'depth': deep, 'still': still, 'first': still, 'task': ''})
    with pytest.raises(ValueError, match=r"'depth': expected uint16 .* in millimetres, got float32 of shape"):
        recording.add_frame(
            {'depth': meters.astype(np.float32), 'still': pixels, 'first': pixels, 'task': ''}
        )
    recording.save_episode()
    recording.finalize()
    again = RecordingDataset.resume('me/x', tmp_path / 'x')
    assert again.features == recording.features
    assert again.features['depth'] == {**depth, 'info': {'is_depth_map': True, 'depth_unit': 'mm'}}
    again.finalize()
    row = bags.open(tmp_path / 'x')[0]
    assert all(np.array_equal(stored, meters) for stored in row['depth'])
    assert all(np.abs(stored - pixels.astype(int)).max() <= 1 for stored in [*row['still'], *row['first']])
    assert len(row['depth']) == 5


def test_an_unsaved_episode_is_kept_as_after_a_kill(recording):
    record(recording, (3,))
    for step in range(4):
        recording.add_frame(frame(step))
    with pytest.warns(UserWarning, match=r'cubes: 4 frames of an episode are not saved\. bags\.recover'):
        recording.finalize()
    with pytest.raises(RuntimeError, match=r'push_to_hub: the recording has frames that are not saved'):
        recording.push_to_hub()
    again = RecordingDataset.resume('me/cubes', recording.root)
    assert (again.num_episodes, again.num_frames) == (2, 7)
    again.finalize()


def test_an_episode_as_a_whole(recording):
    frames = [frame(step) for step in range(3)]
    episode = {name: [each[name] for each in frames] for name in frames[0]}
    bad = {**episode, 'action': [*episode['action'][:2], np.zeros(5)]}
    with pytest.raises(ValueError, match=r"frame 2 is not written:\n  feature 'action'"):
        recording.save_episode(bad)
    with pytest.raises(ValueError, match=r"episode_data, feature 'note': expected 3 values, .* got 2"):
        recording.save_episode({**episode, 'note': ['a', 'b']})
    with pytest.raises(ValueError, match='expected frames in the episode'):
        recording.save_episode()
    recording.save_episode({**episode, 'size': 3, 'timestamp': np.arange(3)})
    recording.add_frame(frame(0))
    with pytest.raises(ValueError, match='while 1 frame of another episode are not saved'):
        recording.save_episode(episode)
    recording.clear_episode_buffer()
    recording.finalize()
    assert (recording.num_episodes, recording.num_frames) == (1, 3)
    with pytest.raises(
        RuntimeError, match=r'add_frame: the recording is finalized; RecordingDataset\.resume'
    ):
        recording.add_frame(frame(0))


@pytest.mark.parametrize(('features', 'options', 'error', 'message'), [
    ({'x/y': vector(1)}, {}, ValueError, r"'x/y': expected another name"),
    ({'task': vector(1)}, {}, ValueError, r"'task': expected another name"),
    ({'x': {'dtype': 'language', 'shape': (1,)}}, {}, TypeError, r"'x': expected 'video', .* got 'language'"),
    ({'x': vector(0)}, {}, ValueError, r"'x': expected a shape of numbers above 0, got \(0,\)"),
    ({'x': camera('video', 48, 64, 4)}, {}, ValueError, r"'x': expected shape \(height, width, 3\), got"),
    ({'x': camera('video', 48, 64, 3)}, {'use_videos': False}, ValueError, 'use_videos: expected True'),
    ({'x': vector(1)}, {'fps': 0}, ValueError, 'fps: expected a number above 0, got 0'),
    ({}, {}, ValueError, 'features: expected at least one, got none'),
])  # fmt: skip
def test_features_that_cannot_be_recorded(features, options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        RecordingDataset.create(
            'me/x', **({'fps': 30, 'features': features, 'root': tmp_path / 'x'} | options)
        )
    assert not (tmp_path / 'x').exists()


def test_folders(recording, tmp_path, monkeypatch):
    with pytest.raises(FileExistsError):
        RecordingDataset.create('me/x', 30, FEATURES, recording.root)
    with pytest.raises(BlockingIOError):
        RecordingDataset.resume('me/cubes', recording.root)
    with pytest.raises(FileNotFoundError):
        RecordingDataset.resume('me/x', tmp_path / 'none')
    with bags.DatasetWriter(tmp_path / 'other', {'x': 'int(8)'}) as writer:
        writer.append({'x': 1})
    with pytest.raises(ValueError, match=r'other: expected a recording of RecordingDataset\.create'):
        RecordingDataset.resume('me/x', tmp_path / 'other')
    monkeypatch.setenv('HF_LEROBOT_HOME', str(tmp_path / 'home'))
    with pytest.warns(UserWarning, match=r'RecordingDataset: rgb_encoder, encoder_threads without effect'):
        dataset = RecordingDataset.create('me/x', 30, FEATURES, rgb_encoder=object(), encoder_threads=2)
    assert dataset.root == tmp_path / 'home/me/x'
    dataset.finalize()


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # Of httpx, in newer huggingface_hub.
@pytest.mark.parametrize('branch', [None, 'new'])
def test_a_push_to_the_hub(branch, hub, tmp_path, monkeypatch):
    monkeypatch.setenv('HF_TOKEN', 'hf_secret')
    monkeypatch.setattr(huggingface_hub.constants, 'HF_HUB_OFFLINE', False)
    recording = RecordingDataset.create('u/d', 30, FEATURES, tmp_path / 'cubes')
    record(recording, (3,))
    with pytest.raises(RuntimeError, match=r'push_to_hub: the recording is not finalized'):
        recording.push_to_hub()
    recording.finalize()
    for options in ({'push_videos': False}, {'allow_patterns': '*.json'}):
        with pytest.raises(ValueError, match='expected push_videos=True and allow_patterns=None'):
            recording.push_to_hub(**options)
    recording.push_to_hub(branch, tags=['cubes'], private=True)
    assert [request['name'] for request in hub.created] == ['d']
    pushed = hub.commits[hub.branches[branch or 'main']]
    assert {'cubes'} <= set(re.findall(r'"(\w+)"', (pushed / 'README.md').read_text().split('\n---')[0]))
    with bags.open(pushed) as dataset:
        assert len(dataset[0]['task']) == 3
        assert (dataset.metadata['license'], dataset.metadata['fps']) == ('apache-2.0', 30)


@pytest.mark.skipif(HAS_0_4, reason='the command of 0.4.4 needs rerun')
def test_the_record_command_of_lerobot(tmp_path):
    from tests.lerobot.kills import record as record_by_command

    for resume in (False, True):
        with pytest.warns(UserWarning, match='rgb_encoder, depth_encoder'):
            dataset = record_by_command(tmp_path, 1, 0.5, (48, 64), resume)
    times = np.fromfile(tmp_path / 'log', np.float64)
    assert (dataset.num_episodes, dataset.num_frames) == (2, len(times))
    bags.export(tmp_path / 'cubes', tmp_path / 'exported', format='lerobot', every=FRONT)
    exported = LeRobotDataset('me/cubes', tmp_path / 'exported', video_backend='pyav')
    assert len(exported) == len(times)
    assert exported[0]['observation.state'].tolist() == [0, 1, 2, 3, 4, 5]
    assert exported[0]['action'].tolist() == [0.5] * 6


@pytest.mark.campaign
def test_a_kill_loses_less_than_a_second(tmp_path):
    """Run alone: `make test-lerobot-0.6 ARGS='-m campaign -k kill -n 0 -s'`."""
    command = [sys.executable, '-W', 'ignore', '-m', 'tests.lerobot.kills', tmp_path / 'kills', '50', '0']
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    sys.stdout.write(output)
    result = json.loads(output.splitlines()[-1])
    assert len(re.findall('^kill', output, re.MULTILINE)) == result['count'] == 50
    assert 0 < result['median'] <= result['maximum'] <= 1
