"""LeRobot datasets: values equal those of LeRobot's reader, and packets of videos are unchanged."""

import io
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bags
from bags.interop.open_source import open_source
from bags.media import demux

GOLDEN = Path(__file__).parents[1] / 'golden'
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
            assert np.abs(depth_in_mm(depth[:]) - shown).max() <= 1  # Rounding of float32 by torch.
            front = found['observation.images.front'][:].astype(int)
            assert np.abs(front - expected['observation.images.front'][start:stop]).max() <= 2
            assert np.allclose(found['observation.images.front'].times, np.arange(count) / 10)


def test_packets_are_copied(tmp_path):
    bags.convert(V3, tmp_path / 'out')
    bags.convert(V2, tmp_path / 'single')
    for camera in ('depth', 'front'):
        field = f'observation.images.{camera}'
        whole = packets(V3 / f'videos/{field}/chunk-000/file-000.mp4')
        with bags.open(tmp_path / 'out') as dataset, bags.open(tmp_path / 'single') as single:
            parts = [packets(io.BytesIO(data)) for data in dataset.records(field)]
            assert [len(part) for part in parts] == list(LENGTHS)
            assert [packet for part in parts for packet in part] == whole
            for index, data in enumerate(single.records(field)):
                path = V2 / f'videos/chunk-000/{field}/episode_{index:06}.mp4'
                assert data == path.read_bytes()


def test_depth_is_exact(tmp_path):
    bags.convert(V3, tmp_path / 'out')
    field = 'observation.images.depth'
    with av.open(V3 / f'videos/{field}/chunk-000/file-000.mp4') as container:
        whole = [frame.to_ndarray() for frame in container.decode(video=0)]
    with bags.open(tmp_path / 'out') as dataset:
        assert np.array_equal(np.concatenate([found[field][:] for found in dataset]), whole)
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
        windows = dataset.windows({'action': bags.steps(0, 2)}, every='observation.state')
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


def frames_of(video):
    """Returns the number that each frame shows as its brightness."""
    return [round(float(frame.mean()) / 6) for frame in video]


def encode(path, count, codec='libx264', **options):
    path.parent.mkdir(parents=True)
    with av.open(path, 'w') as container:
        stream = container.add_stream(codec, 30, options=options)
        stream.width = stream.height = 32
        stream.pix_fmt = 'yuv420p'
        for number in range(count):
            frame = av.VideoFrame.from_ndarray(
                np.full((32, 32, 3), 6 * number % 252, np.uint8), format='rgb24'
            )
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def make(
    root, lengths, begins=None, *, shown=None, left_out=(), order=None, ends=None, cameras=('cam',), **options
):
    """Makes a dataset of version 3 with a video file a camera, whose frame `i` is `i` in `state` too.

    Args:
        root: The folder.
        lengths: The rows of each episode.
        begins, ends: Their times in the video; those of their frames unless given.
        shown: The frames of each episode.
        left_out: Episodes without metadata and rows.
        order: Order of the rows.
        options: Of the encoder.
    """
    shown = shown or lengths
    stops = np.cumsum(shown)
    starts = (stops - shown).tolist()
    begins = [start / 30 for start in starts] if begins is None else begins
    if ends is None:
        ends = [begin + length / 30 for begin, length in zip(begins, lengths, strict=True)]
    column = {'dtype': 'int64', 'shape': [1]}
    features = {
        'state': column, **{name: {'dtype': 'video', 'shape': [32, 32, 3]} for name in cameras},
        'timestamp': {'dtype': 'float32', 'shape': [1]},
        **dict.fromkeys(('frame_index', 'episode_index', 'index', 'task_index'), column),
    }  # fmt: skip
    path = '{chunk_index:03d}/file-{file_index:03d}'
    info = {
        'codebase_version': 'v3.0', 'fps': 30, 'features': features,
        'data_path': f'data/chunk-{path}.parquet', 'video_path': f'videos/{{video_key}}/chunk-{path}.mp4',
    }  # fmt: skip
    (root / 'meta/episodes/chunk-000').mkdir(parents=True)
    (root / 'data/chunk-000').mkdir(parents=True)
    (root / 'meta/info.json').write_text(json.dumps(info))
    pq.write_table(pa.table({'task_index': [0], 'task': ['a']}), root / 'meta/tasks.parquet')
    kept = [number for number in range(len(lengths)) if number not in left_out]
    places = {
        f'{part}/{name}_index': 0
        for part in ('data', *(f'videos/{camera}' for camera in cameras))
        for name in ('chunk', 'file')
    }
    episodes = [
        {'episode_index': number, 'length': lengths[number], 'tasks': ['a'], **places,
         **{f'videos/{camera}/from_timestamp': begins[number] for camera in cameras},
         **{f'videos/{camera}/to_timestamp': ends[number] for camera in cameras}}
        for number in kept
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(episodes), root / 'meta/episodes/chunk-000/file-000.parquet')
    rows = [
        {'state': starts[number] + frame, 'timestamp': frame / 30, 'frame_index': frame,
         'episode_index': number, 'index': 0, 'task_index': 0}
        for number in kept for frame in range(lengths[number])
    ]  # fmt: skip
    rows = rows if order is None else [rows[row] for row in order]
    pq.write_table(pa.Table.from_pylist(rows), root / 'data/chunk-000/file-000.parquet')
    for camera in cameras:
        encode(root / f'videos/{camera}/chunk-000/file-000.mp4', int(stops[-1]), **{'g': '1', **options})
    return root


def check_frames(root, target, **options):
    """Imports, and returns the episodes; each has a frame for each row, the one that the row describes.

    Links, and checks the same.
    """
    done = bags.convert(root, target, **options)
    also = bags.convert(root, f'{target}-linked', link=True, **options)
    assert also.skipped == done.skipped
    with bags.open(target) as dataset, bags.open(f'{target}-linked', trust_links=root) as linked:
        assert linked.schema == dataset.schema
        assert linked.metadata == dataset.metadata
        assert len(linked) == len(dataset)
        for row, other in zip(dataset, linked, strict=True):
            assert other['state'].tolist() == row['state'].tolist()
            for video in (row['cam'], other['cam']):
                assert frames_of(video) == row['state'].tolist()
                assert np.allclose(video.times, np.arange(len(row['state'])) / 30)
        return dataset.column('episode_index').tolist(), done


LENGTHS_MADE = (8, 14, 3, 16)
STARTS = np.array([0, 8, 22, 25]) / 30


@pytest.mark.parametrize(
    'begins',
    [STARTS + np.arange(4) / 30, STARTS + 0.005 * np.arange(4), STARTS + 0.4 * np.arange(4), STARTS + 1.4,
     STARTS - [0, 0.012, 0.02, -0.01], STARTS - np.arange(4) / 60, [None] * 4],
)  # fmt: skip
def test_frames_are_counted_if_the_times_of_episodes_drift(begins, tmp_path):
    ends = [None] * 4 if begins[0] is None else None
    root = make(tmp_path / 'in', LENGTHS_MADE, list(begins), ends=ends)
    found, done = check_frames(root, tmp_path / 'out')
    assert found == [0, 1, 2, 3]
    assert (begins[0] is None) == (not any('from_timestamp is off by' in note for note in done.notes))


@pytest.mark.parametrize(
    ('shown', 'wrong'),
    [
        ((8, 15, 3, 16), {}),
        ((8, 14, 3, 17), {}),
        ((8, 14, 3, 15), {3: 'expected 16 frames from .* s on, got 15'}),
        ((8, 13, 3, 16), {1: 'expected 14 frames from .* s on, got 13'}),
        ((8, 13, 4, 16), {1: 'expected 14 frames from .* s on, got 13', 2: 'another episode may have'}),
        ((7, 15, 3, 16), {0: 'expected 8 frames from .* s on, got 7', 1: 'another episode may have'}),
    ],
)
def test_frames_that_are_missing_or_too_many_shift_no_others(shown, wrong, tmp_path):
    root = make(tmp_path / 'in', LENGTHS_MADE, shown=shown)
    found, done = check_frames(root, tmp_path / 'out', on_error='skip')
    assert found == [number for number in range(4) if number not in wrong]
    for (_, error), expected in zip(done.skipped, wrong.values(), strict=True):
        assert re.search(expected, error)


def test_times_that_drift_in_a_file_with_other_frames_are_an_error(tmp_path):
    root = make(tmp_path / 'in', LENGTHS_MADE, list(STARTS + np.array([0, 0.0002, 0, 1 / 30])), left_out=[0])
    found, done = check_frames(root, tmp_path / 'out', on_error='skip')
    assert found == [2]
    assert 'got no frame within 0.0001 s of that' in done.skipped[0].error
    assert done.skipped[1].error.endswith('expected 16 frames from 0.8666666666666667 s on, got 15')


def test_ends_that_name_fewer_frames_than_rows_are_an_error(tmp_path):
    ends = [8 / 30, 21 / 30, 25 / 30, 41 / 30]
    root = make(tmp_path / 'in', LENGTHS_MADE, ends=ends)
    found, done = check_frames(root, tmp_path / 'out', on_error='skip')
    assert found == [0, 2, 3]
    assert 'expected 14 frames from 0.26666666666666666 s on, got 13' in done.skipped[0].error


def test_deleted_episodes(tmp_path):
    root = make(tmp_path / 'in', LENGTHS_MADE, left_out=[1])
    assert check_frames(root, tmp_path / 'out')[0] == [0, 2, 3]


def test_rows_pair_with_frames_by_number(tmp_path):
    root = make(tmp_path / 'in', (5, 4), order=[8, 0, 2, 1, 7, 6, 5, 4, 3])
    assert check_frames(root, tmp_path / 'out')[0] == [0, 1]
    path = root / 'data/chunk-000/file-000.parquet'
    rows = pq.read_table(path).to_pylist()
    rows[1]['frame_index'] = 3
    pq.write_table(pa.Table.from_pylist(rows), path)
    with pytest.raises(bags.SourceError, match='episode 0: expected each frame_index from 0 to 4 once'):
        bags.convert(root, tmp_path / 'other')


@pytest.mark.parametrize(
    'options', [{'g': '60', 'bf': '0'}, {'g': '60', 'bf': '3', 'x264-params': 'b-adapt=0:scenecut=0'}]
)
def test_episodes_that_begin_at_no_key_frame_are_encoded_again_if_asked(options, tmp_path):
    root = make(tmp_path / 'in', LENGTHS_MADE, **options)
    if options['bf'] == '3':
        with pytest.raises(bags.SourceError, match='with encode=True, they are encoded again'):
            bags.convert(root, tmp_path / 'out')
    else:
        assert check_frames(root, tmp_path / 'out')[0] == [0, 1, 2, 3]
    found, done = check_frames(root, tmp_path / 'again', encode=True)
    assert found == [0, 1, 2, 3]
    assert sum('is encoded again: ' in note for note in done.notes) == 3 + (options['bf'] == '3')
    with bags.open(tmp_path / 'again') as dataset:
        for data in dataset.records('cam'):
            assert len(packets(io.BytesIO(data))) == len(bags.Video(data))


@pytest.mark.parametrize(
    'options',
    [{'codec': 'libvpx-vp9', 'g': '1', 'deadline': 'realtime'},
     {'codec': 'libsvtav1', 'g': '1', 'preset': '12'},
     {'codec': 'libx265', 'g': '1', 'x265-params': 'log-level=none'}, {'codec': 'mpeg4', 'g': '1', 'q': '2'}],
)  # fmt: skip
def test_codecs_of_videos(options, tmp_path):
    root = make(tmp_path / 'in', LENGTHS_MADE, **options)
    assert check_frames(root, tmp_path / 'out')[0] == [0, 1, 2, 3]


def test_a_killed_import_resumes(tmp_path):
    source = tmp_path / 'in'
    copy(source)
    code = f"""
import time, bags
from bags.interop.sources.lerobot.lerobot import LeRobotSource
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


@pytest.mark.parametrize('type', [pa.duration('us'), pa.string(), pa.list_(pa.int64())])
def test_episode_numbers_of_another_type_are_an_error(type, tmp_path):
    source = copy(tmp_path / 'in')
    path = source / 'data/chunk-000/file-000.parquet'
    table = pq.read_table(path)
    index = table.schema.get_field_index('episode_index')
    pq.write_table(table.set_column(index, 'episode_index', pa.nulls(len(table), type)), path)
    with pytest.raises(bags.SourceError, match=r"file-000\.parquet: Function 'equal' has no"):
        bags.convert(source, tmp_path / 'out')


ENCODERS = {
    'h264': {'codec': 'libx264', 'g': '60', 'bf': '3', 'x264-params': 'b-adapt=0:scenecut=0'},
    'open groups': {'codec': 'libx264', 'bf': '3', 'x264-params': 'keyint=12:open-gop=1:b-adapt=0'},
    'hevc': {'codec': 'libx265', 'x265-params': 'log-level=none:keyint=50:bframes=3'},
    'vp9': {'codec': 'libvpx-vp9', 'g': '30', 'deadline': 'realtime', 'cpu-used': '8'},
    'av1': {'codec': 'libsvtav1', 'g': '2', 'preset': '12'},
    'av1, long groups': {'codec': 'libsvtav1', 'g': '100', 'preset': '12'},
}


@pytest.mark.parametrize('options', ENCODERS.values(), ids=ENCODERS)
def test_linked_frames_and_windows_are_those_of_the_file(options, tmp_path):
    cameras = ('left', 'right.wrist')
    root = make(
        tmp_path / 'in', LENGTHS_MADE, list(STARTS + 0.005 * np.arange(4)), cameras=cameras, **options
    )
    done = bags.convert(root, tmp_path / 'index', link=True)
    assert done.parents == [str(root / 'videos')]
    whole = bags.Video(root / 'videos/left/chunk-000/file-000.mp4')[:]
    stops = np.cumsum(LENGTHS_MADE)
    with bags.open(tmp_path / 'index', trust_links=done.parents) as dataset:
        for camera in cameras:
            assert [len(row[camera]) for row in dataset] == list(LENGTHS_MADE)
            for row, stop, count in zip(dataset, stops, LENGTHS_MADE, strict=True):
                assert np.array_equal(row[camera][:], whole[stop - count : stop])
                assert np.allclose(row[camera].times, np.arange(count) / 30)
        windows = dataset.windows(
            every='state', state=bags.steps(-2, 2), left=bags.steps(-2, 2), padding='edge'
        )
        chosen = np.random.default_rng(0).permutation(len(windows))
        assert len(chosen) == stops[-1]
        batch = windows.batch(chosen)
        assert np.array_equal(batch['left'], whole[batch['state']])


def test_linking_copies_no_video_and_reads_each_header_once(tmp_path, monkeypatch):
    lengths, cameras = (3,) * 60, ('left', 'right')
    root = make(tmp_path / 'in', lengths, cameras=cameras)
    found, find = [], demux.find_moov
    bags.convert(root, tmp_path / 'copy')
    monkeypatch.setattr(demux, 'find_moov', lambda file: found.append(1) or find(file))
    bags.convert(root, tmp_path / 'index', link=cameras, workers=4)
    assert len(found) == len(cameras)

    def size_of(target, prefixes=('',)):
        paths = (tmp_path / target).rglob('*')
        return sum(each.stat().st_size for each in paths if each.is_file() and each.name.startswith(prefixes))

    others = size_of('copy') - size_of('copy', cameras)
    assert size_of('index') <= others + 150 * len(lengths) * len(cameras)
    with bags.open(tmp_path / 'copy') as copy, bags.open(tmp_path / 'index', trust_links=root) as dataset:
        views = [
            each.windows(every='state', state=bags.steps(0, 2), right=bags.steps(0, 2))
            for each in (copy, dataset)
        ]
        found.clear()
        assert views[1].batch(range(0, 120, 7))['right'].shape == (18, 2, 32, 32, 3)
        assert len(found) == 1
        for row, other in zip(*views, strict=True):
            assert all(np.array_equal(row[name], other[name]) for name in row)
        assert not copy.diff(dataset).changed


def test_a_linked_dataset_is_made_whole(tmp_path):
    root = make(tmp_path / 'in', LENGTHS_MADE)
    bags.convert(root, tmp_path / 'copy')
    bags.convert(root, tmp_path / 'index', link=True)
    bags.copy(bags.open(tmp_path / 'index', trust_links=root), tmp_path / 'whole')
    shutil.rmtree(root)
    with bags.open(tmp_path / 'copy', raw=True) as copy, bags.open(tmp_path / 'whole', raw=True) as whole:
        assert [*whole] == [*copy]


@pytest.mark.parametrize('path', [V2, V3])
def test_what_is_linked_equals_the_copy(tmp_path, path):
    root = copy(tmp_path / 'in', path)
    bags.convert(root, tmp_path / 'copy')
    done = bags.convert(root, tmp_path / 'index', link=True)
    with (
        bags.open(tmp_path / 'copy') as one,
        bags.open(tmp_path / 'index', trust_links=done.parents) as other,
    ):
        assert other.metadata == one.metadata
        assert not one.diff(other).changed
        assert bags.info(tmp_path / 'index').linked_bytes == sum(
            each.stat().st_size for each in root.rglob('*.mp4')
        )
    bags.convert(root, tmp_path / 'index', link=True, update=True)
    with pytest.raises(ValueError, match="link: field 'action' cannot be linked: its values are in tables"):
        bags.convert(root, tmp_path / 'other', link=['action'])


def test_new_episodes_are_added(tmp_path):
    root = copy(tmp_path / 'in', V2)
    path = root / 'meta/episodes.jsonl'
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(''.join(lines[:2]))
    bags.convert(root, tmp_path / 'index', link=True, update=True)
    path.write_text(''.join(lines))
    assert bags.convert(root, tmp_path / 'index', link=True, update=True).datapoints == 3
    bags.convert(root, tmp_path / 'copy')
    with bags.open(tmp_path / 'index', trust_links=root) as index, bags.open(tmp_path / 'copy') as whole:
        assert not whole.diff(index).changed


def test_a_video_that_grows_is_linked_anew(tmp_path):
    """LeRobot 3 adds episodes to the last video file of each camera, which is written again."""
    root, index = tmp_path / 'in', tmp_path / 'index'
    cameras = ('cam', 'other')
    for number, lengths in enumerate([(8, 14), (8, 14, 3), (8, 14, 3), (8, 14, 3, 9, 5)]):
        if number != 2:  # The third update finds nothing new.
            shutil.rmtree(root, ignore_errors=True)
            make(root, lengths, cameras=cameras)
        done = bags.convert(root, index, link=True, update=True, shard_length=2)
        assert done.datapoints == len(lengths)
        note = 'all links were created again, because a linked file has changed'
        assert (note in done.notes) == (number in (1, 3))
        anew = bags.convert(root, tmp_path / f'anew-{number}', link=True, shard_length=2)
        assert (done.spec, done.shards, done.parents) == (anew.spec, anew.shards, anew.parents)
        with (
            bags.open(index, trust_links=root) as one,
            bags.open(tmp_path / f'anew-{number}', trust_links=root) as two,
        ):
            assert one.diff(two).is_empty
            assert one.metadata == two.metadata
            for row in one:
                for camera in cameras:
                    assert frames_of(row[camera]) == row['state'].tolist()
    assert bags.verify(index, trust_links=True) == []
    assert {each.name for each in tmp_path.iterdir()} == {'in', 'index', *(f'anew-{n}' for n in range(4))}


def test_what_a_grown_video_keeps(tmp_path):
    root, index = tmp_path / 'in', tmp_path / 'index'
    make(root, (8, 14, 3))
    bags.convert(root, index, link=['cam'], rename={'cam': 'video'}, checksum=True)
    options = {'link': True, 'update': True, 'rename': {'cam': 'video'}}
    before = {each: each.read_bytes() for each in index.rglob('*') if each.is_file()}

    def fails(expected, lengths, **changes):
        shutil.rmtree(root)
        make(root, lengths, **changes)
        with pytest.raises(ValueError, match=expected):
            bags.convert(root, index, **options)
        assert {each: each.read_bytes() for each in index.rglob('*') if each.is_file()} == before

    fails(r"datapoint 1 of the dataset, field 'state': its source has another value", (8, 13, 3, 16))
    fails(r'expected the 3 datapoints of the dataset, got 2; expected a source that only grows', (8, 14))
    fails(r"datapoint 1 of the dataset, field 'episode_index'", (8, 14, 3, 16), left_out=[1])
    (root / 'videos/cam/chunk-000/file-000.mp4').unlink()
    with pytest.raises((ValueError, FileNotFoundError), match=r'file-000\.mp4'):
        bags.convert(root, index, **options)
    shutil.rmtree(root)
    make(root, (8, 14, 3, 9))
    assert bags.convert(root, index, **options).datapoints == 4
    assert (index / '000000' / 'video.links').exists()
    assert bags.info(index).checksums
    assert bags.verify(index, trust_links=True) == []
    shutil.rmtree(root)
    make(root, (8, 14, 3, 9, 5))
    done = bags.convert(root, index, check_source=False, **options)
    assert done.datapoints == 5
    with bags.open(index, trust_links=root) as dataset:
        assert frames_of(dataset[4]['video']) == dataset[4]['state'].tolist()
        with pytest.raises(bags.LinkError, match=r'file-000\.mp4'):
            dataset[0]['video'][:]
