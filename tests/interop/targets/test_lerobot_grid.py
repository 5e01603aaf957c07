"""Recordings with streams of several rates as LeRobot datasets: sampled at the times of a grid."""

import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import bags
from tests.media.samples import film

SPEC = {
    'front': 'mp4(30)[]', 'side': 'mp4(15)[]', 'mic': 'flac[]', 'joints': 'array(float32,2)[]',
    'joint_time': 'float(8)[]', 'level': 'int(4)[]', 'events': 'utf8[]', 'event_time': 'float(8)[]',
    'task': 'utf8',
}  # fmt: skip
FACTS = {
    'front': {'rate': 30}, 'side': {'rate': 15}, 'mic': {'rate': 16000}, 'joints': {'times': 'joint_time'},
    'level': {'rate': 10}, 'events': {'times': 'event_time'},
}  # fmt: skip
SECONDS = 2


def picture(number):
    """A picture (48, 64, 3) that carries its number: a white or black bar for each of eight bits."""
    bars = number >> np.arange(64) // 8 & 1
    return np.ascontiguousarray(np.broadcast_to(bars[:, None] * 255, (48, 64, 3)), np.uint8)


def number_of(pixels):
    bars = np.asarray(pixels, float).reshape(-1, 48, 8, 8, 3).mean((1, 3, 4)) > 127
    return bars @ (1 << np.arange(8))


@pytest.fixture(scope='module')
def recording(tmp_path_factory):
    """Two episodes: cameras at 30 and 15 Hz in clips, joints at 200 Hz, whose value is their time."""
    path = tmp_path_factory.mktemp('recording') / 'in'
    with bags.DatasetWriter(path, SPEC, metadata={'fields': FACTS}) as writer:
        for _ in range(2):
            with writer.begin(clip_seconds=1, values={'task': 'stack'}) as episode:
                for number in range(30 * SECONDS):
                    episode.append({'front': picture(number), 'mic': np.zeros(533, np.int16)})
                    if number % 2 == 0:
                        episode.append({'side': picture(number // 2)})
                for number in range(200 * SECONDS):
                    time = number / 200
                    episode.append({'joints': np.array([time, -time], np.float32), 'joint_time': time})
                for number in range(10 * SECONDS):
                    episode.append({'level': number})
                episode.append({'events': 'grasp', 'event_time': 0.5})
    return path


def packets_of(data):
    import av

    with av.open(io.BytesIO(data)) as file:
        return [bytes(packet) for packet in file.demux(video=0) if packet.size]


def rows_of(path, number=0):
    return pq.read_table(path / f'data/chunk-000/file-{number:03}.parquet').to_pydict()


def video_of(path, name, number=0):
    return bags.Video((path / f'videos/{name}/chunk-000/file-{number:03}.mp4').read_bytes())


def test_streams_of_several_rates(recording, tmp_path):
    done = bags.export(recording, tmp_path / 'out', format='lerobot', every='front')
    info = json.loads((tmp_path / 'out/meta/info.json').read_text())
    assert (info['fps'], info['total_frames'], info['total_episodes']) == (30, 120, 2)
    assert [name for name in info['features'] if not name.endswith('index')] == [
        'front', 'side', 'joints', 'level', 'timestamp',
    ]  # fmt: skip
    times = np.arange(60) / 30
    for episode in range(2):
        rows = rows_of(tmp_path / 'out', episode)
        assert np.allclose(rows['timestamp'], times)
        # The last joints at or before each frame: nothing from the future.
        assert np.allclose(np.array(rows['joints'])[:, 0], np.floor(times * 200 + 1e-6) / 200)
        assert rows['level'] == np.floor(times * 10 + 1e-6).astype(int).tolist()
        front, side = (video_of(tmp_path / 'out', name, episode) for name in ('front', 'side'))
        assert number_of(front[:]).tolist() == list(range(60))
        assert number_of(side[:]).tolist() == (np.arange(60) // 2).tolist()
        assert np.allclose(front.times, times, atol=1e-4)
        assert np.allclose(side.times, times, atol=1e-4)
    assert done.notes == [
        "field 'mic' is left out: LeRobot has no sound",
        "field 'joint_time' is left out: it has the times of 'joints'",
        "field 'events' is left out: its texts have no rate, as words and events",
        "field 'event_time' is left out: it has the times of 'events'",
        "field 'front': copied; of 120 frames, 0 are repeated and 0 left out",
        "field 'side': encoded in 2 of 2 episodes; of 60 frames, 60 are repeated and 0 left out",
    ]
    stats = json.loads((tmp_path / 'out/meta/stats.json').read_text())
    assert stats['joints']['count'] == [120]
    assert np.allclose(stats['joints']['max'], [1.965, 0], atol=0.006)


def test_clips_on_the_grid_are_copied_packet_by_packet(recording, tmp_path):
    bags.export(recording, tmp_path / 'out', format='lerobot', every='front')
    copied = (tmp_path / 'out/videos/front/chunk-000/file-000.mp4').read_bytes()
    with bags.open(recording) as dataset:
        (clips,) = dataset.read_records(np.array([0]), 'front')
        assert len(clips) > 1
        assert packets_of(copied) == [packet for clip in clips for packet in packets_of(bytes(clip))]
        assert np.array_equal(bags.Video(copied)[:], dataset.stream(0, 'front')[:])


def test_another_rate_leaves_frames_out(recording, tmp_path):
    done = bags.export(
        recording, tmp_path / 'out', format='lerobot', every='front', fps=15, fields=('front', 'side')
    )
    assert done.notes == [
        "field 'front': encoded in 2 of 2 episodes; of 120 frames, 0 are repeated and 60 left out",
        "field 'side': copied; of 60 frames, 0 are repeated and 0 left out",
    ]
    assert number_of(video_of(tmp_path / 'out', 'front')[:]).tolist() == list(range(0, 60, 2))


def write(path, spec, facts, *episodes):
    with bags.DatasetWriter(path, spec, metadata={'fields': facts}) as writer:
        for episode in episodes:
            writer.append(episode)
    return path


def test_linear_fill_uses_the_future_only_for_floats(tmp_path):
    spec = {'at': 'int[]', 'x': 'float(4)[]', 'n': 'int(4)[]'}
    facts = {'at': {'rate': 4}, 'x': {'rate': 2}, 'n': {'rate': 2}}
    path = write(tmp_path / 'in', spec, facts, {'at': range(4), 'x': [0.0, 1.0], 'n': [0, 10]})
    for fill, x, n in [
        ('previous', [0, 0, 1, 1], [0, 0, 10, 10]),
        ('linear', [0, 0.5, 1, 1], [0, 0, 10, 10]),
        ('nearest', [0, 0, 1, 1], [0, 0, 10, 10]),
    ]:
        bags.export(path, tmp_path / fill, format='lerobot', every='at', fill=fill)
        rows = rows_of(tmp_path / fill)
        assert (rows['x'], rows['n']) == (x, n)


def test_the_grid_lasts_from_the_first_to_the_last_common_time(tmp_path):
    facts = {'front': {'rate': 30}, 'state': {'rate': 100, 'start': 0.11}}
    episode = {'front': film(count=30), 'state': np.arange(60) / 100}
    path = write(tmp_path / 'in', {'front': 'video', 'state': 'float(8)[]'}, facts, episode)
    done = bags.export(path, tmp_path / 'out', format='lerobot', every='front')
    state = np.array(rows_of(tmp_path / 'out')['state'])
    times = np.arange(4, 22) / 30  # Frame 4, at 0.133 s, is the first after 0.11 s; the state ends at 0.71 s.
    assert np.allclose(state, np.floor((times - 0.11) * 100 + 1e-6) / 100)
    assert done.notes == ["field 'front': copied; of 30 frames, 0 are repeated and 12 left out"]
    episodes = pq.read_table(tmp_path / 'out/meta/episodes/chunk-000/file-000.parquet').to_pylist()
    # The file has the frames before, too: nothing is encoded.
    assert np.isclose(episodes[0]['videos/front/from_timestamp'], 4 / 30, atol=1e-4)
    assert np.isclose(episodes[0]['videos/front/to_timestamp'], 22 / 30, atol=1e-4)
    bags.convert(tmp_path / 'out', tmp_path / 'back', link=True)
    with bags.open(path) as source, bags.open(tmp_path / 'back', trust_links=tmp_path / 'out') as back:
        assert np.array_equal(back[0]['front'][:], source[0]['front'][4:22])


def test_gaps_end_or_refuse_the_episode(tmp_path):
    times = np.concatenate([np.arange(20) / 20, 1.5 + np.arange(20) / 20])
    spec = {'at': 'int[]', 'x': 'float(8)[]', 't': 'float(8)[]'}
    facts = {'at': {'rate': 10}, 'x': {'times': 't'}}
    path = write(tmp_path / 'in', spec, facts, {'at': range(25), 'x': times, 't': times})
    with pytest.raises(
        ValueError, match=r"datapoint 0: field 'x': expected an element in the 0\.2 s before 1\.2 s"
    ):
        bags.export(path, tmp_path / 'out', format='lerobot', every='at', gap=0.2)
    done = bags.export(path, tmp_path / 'end', format='lerobot', every='at', gap=0.2, gaps='end')
    assert "datapoint 0 ends at 1.2 s, in a gap of field 'x'" in done.notes
    assert len(rows_of(tmp_path / 'end')['x']) == 12
    bags.export(path, tmp_path / 'whole', format='lerobot', every='at')
    assert len(rows_of(tmp_path / 'whole')['x']) == 25


def test_all_forms_of_a_camera_give_the_same_episode(tmp_path):
    frames = [picture(number) for number in range(12)]
    forms = {
        'video': frames, 'mp4(30)': frames, 'mp4(30)[]': [frames[:5], frames[5:]],
        'mkv[]': [frames[:5], frames[5:]],
        'png[]': frames, 'array(uint8,48,64,3)[]': np.stack(frames),
    }  # fmt: skip
    for number, (form, value) in enumerate(forms.items()):
        episode = {'cam': value, 'x': np.arange(24)}
        facts = {'cam': {'rate': 30}, 'x': {'rate': 60}}
        path = write(tmp_path / f'in{number}', {'cam': form, 'x': 'int[]'}, facts, episode)
        out = tmp_path / f'out{number}'
        bags.export(path, out, format='lerobot', every='cam')
        rows = rows_of(out)
        assert rows['x'] == list(range(0, 24, 2)), form
        if form == 'png[]':
            pixels = np.stack([bags.decoders['png'](picture['bytes']) for picture in rows['cam']])
        else:
            pixels = video_of(out, 'cam')[:]
        assert number_of(pixels).tolist() == list(range(12)), form
        stats = json.loads((out / 'meta/stats.json').read_text())['cam']
        assert np.allclose(stats['max'], 1, atol=0.02), form
        assert np.shape(stats['mean']) == (3, 1, 1), form


@pytest.mark.parametrize(
    ('spec', 'facts', 'episode', 'options', 'expected'),
    [
        ({'x': 'float[]', 'y': 'float[]'}, {'x': {'rate': 5}}, {'x': [1.0], 'y': [1.0]}, {'every': 'x'},
         r"export: field 'y': its times are unknown: expected a rate"),
        ({'x': 'float[]', 'y': 'float[]'}, {'x': {'rate': 5}, 'y': {'rate': 5, 'start': 9}},
         {'x': [1.0], 'y': [1.0]}, {'every': 'x'},
         r"datapoint 0: expected a time at which all streams have elements.*'y' from 9 s to 9\.2 s"),
        ({'x': 'float[]', 'y': 'float[]'}, {'x': {'rate': 5}, 'y': {'rate': 5}}, {'x': [1.0], 'y': []},
         {'every': 'x'}, r"datapoint 0: .*'y' without elements"),
        ({'x': 'float[]'}, {'x': {'rate': 5}}, {'x': [1.0]}, {'fps': 5}, r'fps: expected every'),
        ({'x': 'float[]'}, {'x': {'rate': 5}}, {'x': [1.0]}, {'every': 'x', 'fps': -1}, r'fps: expected'),
        ({'x': 'float[]'}, {'x': {'rate': 5}}, {'x': [1.0]}, {'every': 'x', 'fill': 'next'},
         r'fill: expected'),
    ],
)  # fmt: skip
def test_what_cannot_be_sampled(tmp_path, spec, facts, episode, options, expected):
    write(tmp_path / 'in', spec, facts, episode)
    with pytest.raises(ValueError, match=expected):
        bags.export(tmp_path / 'in', tmp_path / 'out', format='lerobot', **options)
    assert not [path for path in tmp_path.glob('out/**/*') if path.is_file()]


def test_it_imports_again(recording, tmp_path):
    bags.export(recording, tmp_path / 'out', format='lerobot', every='front')
    bags.convert(tmp_path / 'out', tmp_path / 'back')
    with bags.open(tmp_path / 'back') as dataset:
        assert number_of(dataset[1]['front'][:]).tolist() == list(range(60))
        assert dataset[1]['tasks'] == ['stack']
