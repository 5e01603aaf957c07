"""LeRobot datasets: values equal those of LeRobot's reader, and packets of videos are unchanged."""

import io
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pyarrow.parquet as pq
import pytest

import bags
from bags.interop.open_source import open_source

GOLDEN = Path(__file__).parent / 'golden'
V2, V3 = GOLDEN / 'lerobot_v2', GOLDEN / 'lerobot_v3'
LENGTHS = (5, 3, 6)
SPEC = {
    'action': 'array(float32,3)[]', 'done': 'bool[]', 'episode_index': 'int(8)',
    'matrix': 'array(float64,2,3)[]', 'observation.images.depth': 'video',
    'observation.images.front': 'video', 'observation.images.wrist': 'image[]',
    'observation.state': 'array(float32,2)[]', 'task_index': 'int(8)[]', 'tasks': 'utf8[]',
    'timestamp': 'float(4)[]',
}  # fmt: skip


def packets(file):
    with av.open(file) as container:
        return [bytes(packet) for packet in container.demux(video=0) if packet.size]


def depth_in_mm(codes):
    """Converts codes of depth as LeRobot does by default: 12 bits, on a logarithmic scale."""
    low, high = np.log(0.01 + 3.5), np.log(10 + 3.5)
    metres = np.exp(codes.astype(np.float32) * ((high - low) / 4095) + low) - 3.5
    return np.rint(np.clip(metres, 0.01, 10) * 1000)


@pytest.mark.parametrize('path', [V2, V3])
def test_values_are_those_of_lerobot(tmp_path, path):
    source = open_source(path)
    assert (source.format, source.spec, source.count) == ('lerobot', SPEC, 3)
    assert "'index' and 'frame_index' are left out: they count the frames" in source.notes
    bags.convert(path, tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset, np.load(GOLDEN / 'lerobot.npz') as expected:
        stop = 0
        for index, (found, count) in enumerate(zip(dataset, LENGTHS, strict=True)):
            start, stop = stop, stop + count
            assert found['episode_index'] == index
            assert found['tasks'] == ['push' if index else 'pull']
            for field in ('action', 'done', 'matrix', 'observation.state', 'task_index', 'timestamp'):
                # LeRobot converts float64 to float32.
                values = np.asarray(found[field]).astype(expected[field].dtype)
                assert np.array_equal(values, expected[field][start:stop]), field
            rows = pq.read_table(V3 / 'data/chunk-000/file-000.parquet')['matrix'][start:stop]
            assert np.array_equal(found['matrix'], rows.to_pylist())
            assert np.array_equal(
                found['observation.images.wrist'], expected['observation.images.wrist'][start:stop]
            )
            depth = found['observation.images.depth']
            assert depth.dtype == np.uint16
            shown = expected['observation.images.depth'][start:stop, 0]
            assert np.abs(depth_in_mm(depth[:][..., 0]) - shown).max() <= 1  # Rounding of float32 by torch.
            front = found['observation.images.front'][:].astype(int)
            assert np.abs(front - expected['observation.images.front'][start:stop]).max() <= 2
            assert np.allclose(found['observation.images.front'].timestamps, np.arange(count) / 10)


def test_packets_are_copied(tmp_path):
    bags.convert(V3, tmp_path / 'out')
    bags.convert(V2, tmp_path / 'single')
    for camera in ('depth', 'front'):
        field = f'observation.images.{camera}'
        whole = packets(V3 / f'videos/{field}/chunk-000/file-000.mp4')
        with bags.open(tmp_path / 'out') as dataset, bags.open(tmp_path / 'single') as single:
            parts = [packets(io.BytesIO(data)) for data in dataset.field(field)]
            assert [len(part) for part in parts] == list(LENGTHS)
            assert [packet for part in parts for packet in part] == whole
            for index, data in enumerate(single.field(field)):
                path = V2 / f'videos/chunk-000/{field}/episode_{index:06}.mp4'
                assert data == path.read_bytes()


def test_depth_is_exact(tmp_path):
    bags.convert(V3, tmp_path / 'out')
    field = 'observation.images.depth'
    with av.open(V3 / f'videos/{field}/chunk-000/file-000.mp4') as container:
        whole = [frame.to_ndarray() for frame in container.decode(video=0)]
    with bags.open(tmp_path / 'out') as dataset:
        assert np.array_equal(np.concatenate([found[field][:][..., 0] for found in dataset]), whole)
        facts = dataset.metadata['fields'][field]['info']
        assert (facts['is_depth_map'], facts['video.depth_max'], facts['video.shift']) == (True, 10.0, 3.5)


def test_metadata(tmp_path):
    bags.convert(V3, tmp_path / 'out')
    with bags.open(tmp_path / 'out') as dataset:
        assert (dataset.metadata['fps'], dataset.metadata['robot_type']) == (10, 'so100')
        fields = dataset.metadata['fields']
        assert fields['observation.state']['names'] == ['a', 'b']
        assert fields['observation.state']['rate'] == 10
        assert fields['task_index']['classes'] == ['pull', 'push']
        stats = json.loads((V3 / 'meta/stats.json').read_text())
        assert fields['action']['stats'] == stats['action']
        windows = bags.windows(dataset, {'action': bags.steps(0, 2)}, every='observation.state')
        assert len(windows) == 14
        assert np.array_equal(windows[1]['action'], dataset[0]['action'][1:3])


def copy(target, path=V3):
    shutil.copytree(path, target)
    return target


def change_info(root, **changes):
    path = root / 'meta/info.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ('changes', 'expected'),
    [
        (
            {'codebase_version': 'v1.6'},
            r'info.json: expected a codebase_version of v2.1 or v3.0, got v1.6',
        ),
        (
            {'data_path': '../{file_index}.parquet'},
            r"data_path: expected paths in the dataset, got '\.\./0",
        ),
        (
            {'video_path': '/etc/{video_key}'},
            r"video_path: expected paths in the dataset, got '/etc/",
        ),
        ({'data_path': '{chunk_index:0999999999d}'}, r'info.json: .* data_path: expected placeholders like'),
        ({'video_path': '{nothing}'}, r'info.json: .* video_path: '),
    ],
)
def test_bad_info(tmp_path, changes, expected):
    root = copy(tmp_path / 'in')
    change_info(root, **changes)
    with pytest.raises(bags.SourceError, match=expected):
        bags.convert(root, tmp_path / 'out')


def test_damage_names_the_file_and_is_skipped(tmp_path):
    root = copy(tmp_path / 'in', V2)
    video = root / 'videos/chunk-000/observation.images.front/episode_000001.mp4'
    video.write_bytes(video.read_bytes()[:900])
    rows = root / 'data/chunk-000/episode_000002.parquet'
    rows.write_bytes(rows.read_bytes()[:500])
    with pytest.raises(bags.SourceError, match=r'episode_000001.mp4: .* video of episode 1: '):
        bags.convert(root, tmp_path / 'out')
    done = bags.convert(root, tmp_path / 'some', on_error='skip')
    assert done.datapoints == 1
    assert [Path(name).name for name, _ in done.skipped] == [video.name, rows.name]
    shutil.copy(V2 / video.relative_to(root), video)
    shutil.copy(V2 / rows.relative_to(root), rows)
    assert bags.convert(root, tmp_path / 'out', resume=True).datapoints == 3


def test_rows_and_frames_that_do_not_fit(tmp_path):
    root = copy(tmp_path / 'in', V2)
    rows = root / 'data/chunk-000/episode_000001.parquet'
    shutil.copy(root / 'data/chunk-000/episode_000000.parquet', rows)
    with pytest.raises(bags.SourceError, match=r'1.parquet: expected 3 rows of episode 1, got 0'):
        bags.convert(root, tmp_path / 'out')
    pq.write_table(pq.read_table(V2 / rows.relative_to(root)).slice(1), rows)
    with pytest.raises(bags.SourceError, match=r'1.parquet: expected 3 rows of episode 1, got 2'):
        bags.convert(root, tmp_path / 'out', resume=True)


def test_a_killed_import_resumes(tmp_path):
    source = tmp_path / 'in'
    copy(source)
    code = f"""
import time, bags
from bags.interop.sources.lerobot import LeRobotSource
load = LeRobotSource.load
def slow(self, entry):
    if entry.number == 2:
        print('ready', flush=True)
        time.sleep(60)
    return load(self, entry)
LeRobotSource.load = slow
bags.convert({str(source)!r}, {str(tmp_path / 'out')!r}, workers=1)
"""
    with subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert bags.convert(source, tmp_path / 'out', resume=True).datapoints == 3
    bags.convert(source, tmp_path / 'again')
    with bags.open(tmp_path / 'out', raw=True) as resumed, bags.open(tmp_path / 'again', raw=True) as again:
        assert list(resumed) == list(again)
