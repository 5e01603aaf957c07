"""Exports to LeRobot: they import to the same dataset, and open in LeRobot where it is installed."""

import json
from pathlib import Path

import numpy as np
import pytest

import bags
from tests.media.samples import deep, film, x264

V3 = Path(__file__).parents[1] / 'sources' / 'golden' / 'lerobot_v3'


def write(directory, episodes, spec, metadata):
    with bags.DatasetWriter(directory, spec, metadata=metadata) as writer:
        for episode in episodes:
            writer.append(episode)
    return directory


def test_an_imported_dataset_is_exported_and_imported_again(tmp_path):
    bags.convert(V3, tmp_path / 'first')
    assert bags.export(tmp_path / 'first', tmp_path / 'lerobot', format='lerobot').datapoints == 3
    bags.convert(tmp_path / 'lerobot', tmp_path / 'second')
    with bags.open(tmp_path / 'first', raw=True) as first, bags.open(tmp_path / 'second', raw=True) as second:
        assert first.spec == second.spec
        assert list(first) == list(second)
        for field, facts in first.metadata['fields'].items():
            for key in ('names', 'rate', 'classes'):
                assert second.metadata['fields'].get(field, {}).get(key) == facts.get(key)
        ours, theirs = (each.metadata['fields']['action']['stats'] for each in (second, first))
        for key in ('min', 'max', 'mean', 'std'):
            assert np.allclose(ours[key], theirs[key])
    rows = json.loads((tmp_path / 'lerobot/meta/info.json').read_text())
    assert (rows['fps'], rows['robot_type'], rows['total_frames']) == (10, 'so100', 14)


def test_changed_bytes_are_found_by_the_checksums_of_pages(tmp_path):
    state = np.random.default_rng(0).random((50, 2)).astype(np.float32)
    with bags.DatasetWriter(tmp_path / 'in', {'state': 'array(float32,2)[]'}, metadata={'fps': 5}) as writer:
        writer.append({'state': state})
    bags.export(tmp_path / 'in', tmp_path / 'out', format='lerobot')
    (file,) = (tmp_path / 'out/data').rglob('*.parquet')
    data = bytearray(file.read_bytes())
    data[data.index(state[30].tobytes()) + 1] ^= 1
    file.write_bytes(data)
    with pytest.raises(bags.SourceError, match=r'\.parquet.*CRC'):
        bags.convert(tmp_path / 'out', tmp_path / 'back')


def test_a_dataset_of_its_own(tmp_path):
    depth = np.random.default_rng(0).integers(0, 4096, (5, 32, 48)).astype(np.uint16)
    lossless = {'x265-params': 'lossless=1:open-gop=0:log-level=none'}
    episodes = [
        {
            'camera': film(count=5, options=x264(bframes=0), format='matroska'),
            'depth': deep(depth, 'gray12le', 'libx265', 'mp4', lossless),
            'state': np.arange(10, dtype=np.float32).reshape(5, 2) + number,
            'reward': np.arange(5) / 10,
            'task': 'reach',
        }
        for number in range(2)
    ]
    spec = {
        'camera': 'video', 'depth': 'video', 'state': 'array(float32,2)[]', 'reward': 'float(8)[]',
        'task': 'utf8',
    }  # fmt: skip
    write(tmp_path / 'in', episodes, spec, {'fields': {'state': {'rate': 25, 'names': ['x', 'y']}}})
    bags.export(tmp_path / 'in', tmp_path / 'out', format='lerobot')
    bags.convert(tmp_path / 'out', tmp_path / 'back')
    with bags.open(tmp_path / 'back') as dataset:
        assert dataset.spec == {
            'camera': 'video', 'depth': 'video', 'episode_index': 'int(8)', 'reward': 'float(8)[]',
            'state': 'array(float32,2)[]', 'task_index': 'int(8)[]', 'tasks': 'utf8[]',
            'timestamp': 'float(4)[]',
        }  # fmt: skip
        found = dataset[1]
        assert found['tasks'] == ['reach']
        assert np.array_equal(found['state'], episodes[1]['state'])
        assert np.array_equal(found['camera'][:], bags.Video(episodes[1]['camera'])[:])
        assert np.array_equal(found['depth'][:], depth)
        assert dataset.metadata['fields']['depth']['info']['is_depth_map'] is True


@pytest.mark.parametrize(
    ('spec', 'episode', 'metadata', 'error', 'expected'),
    [
        ({'x': 'float[]'}, {'x': [1.0]}, None, ValueError, r'expected the frames per second .* got none'),
        ({'x': 'json[]'}, {'x': [{}]}, {'fps': 5}, TypeError, r"'x': .* got type json\[\]; leave it out"),
        ({'x': 'bool'}, {'x': True}, {'fps': 5}, TypeError, r"'x': .* got type bool; leave it out"),
        ({'x': 'float[]', 'y': 'int[]'}, {'x': [1.0], 'y': [1, 2]}, {'fps': 5}, bags.SourceError,
         "datapoint 0: expected fields of one length, got 1 in 'x', 2 in 'y'"),
        ({'x': 'video'}, {'x': film(count=4)}, {'fps': 5}, bags.SourceError,
         "datapoint 0, field 'x': expected 5 frames per second, got a frame that is"),
    ],
)  # fmt: skip
def test_what_does_not_fit(tmp_path, spec, episode, metadata, error, expected):
    write(tmp_path / 'in', [episode], spec, metadata)
    with pytest.raises(error, match=expected):
        bags.export(tmp_path / 'in', tmp_path / 'out', format='lerobot')
    assert not [path for path in tmp_path.glob('out/**/*') if path.is_file()]


def test_lerobot_reads_it(tmp_path):
    dataset = pytest.importorskip('lerobot.datasets.lerobot_dataset')
    bags.convert(V3, tmp_path / 'in')
    bags.export(tmp_path / 'in', tmp_path / 'out', format='lerobot')
    golden = np.load(V3.parent / 'lerobot.npz')
    found = dataset.LeRobotDataset('our/sample', tmp_path / 'out', video_backend='pyav')
    for index, sample in enumerate(found):
        for field in ('action', 'observation.state', 'observation.images.depth', 'timestamp', 'task_index'):
            assert np.array_equal(sample[field], golden[field][index])
        front = np.moveaxis(np.rint(np.asarray(sample['observation.images.front']) * 255), 0, -1)
        assert np.array_equal(front, golden['observation.images.front'][index])
