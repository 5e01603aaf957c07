"""Clips as one video, frames requested from a reader, and windows of frames, which show their numbers."""

import io
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bags
from bags.dataset.reading.field_reader import Record
from bags.streams.joined_video import join_videos

av = pytest.importorskip('av')

COUNT = 60
BITS = 6
SPEC = {
    'clips': 'mp4[]?',
    'film': 'video?',
    'id': 'int(8)',
    'lossless': 'mkv',
    'parts': 'video[]',
    'steps': 'int(4)[]',
}


def picture(number, side=48):
    frame = np.full((48, side, 3), 40, np.uint8)
    for bit in range(BITS):
        frame[8:40, 8 * bit : 8 * bit + 8] = 255 * (number >> bit & 1)
    return frame


def numbers(frames):
    return [
        sum(int(f[24, 8 * bit + 2 : 8 * bit + 6].mean() > 128) << bit for bit in range(BITS)) for f in frames
    ]


def write(count=COUNT, format='mp4', codec='libx264', options=(('g', '10'), ('bf', '2')), start=1000):
    """Returns a video of frames at uneven times, from one second on."""
    file = io.BytesIO()
    with av.open(file, 'w', format=format) as container:
        stream = container.add_stream(codec, rate=25, options=dict(options))
        stream.width = stream.height = 48
        stream.pix_fmt = 'yuv420p'
        stream.codec_context.time_base = Fraction(1, 1000)
        for number in range(count):
            frame = av.VideoFrame.from_ndarray(picture(number), format='rgb24')
            frame.pts, frame.time_base = start + 40 * number + 7 * (number % 3), Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue()


@pytest.fixture(scope='module')
def film():
    return write()


@pytest.fixture(scope='module', params=['plain', 'zstd', 'shards'])
def reader(request, kit, film, tmp_path_factory):
    lossless = write(format='matroska', codec='ffv1', options=())
    rows = [
        {
            'clips': None if index == 2 else bags.cut_clips(film, (10, 7, 60, 25)[index]),
            'film': None if index == 1 else film,
            'id': index,
            'lossless': lossless,
            'parts': list(bags.cut_clips(film, 16)),
            'steps': range(100 * index, 100 * index + COUNT),
        }
        for index in range(4)
    ]
    options = {'plain': {}, 'zstd': {'compression': ['clips', 'film']}, 'shards': {'shard_length': 2}}
    with bags.open(
        kit.fill(tmp_path_factory.mktemp('film') / 'a', rows, SPEC, **options[request.param])
    ) as made:
        yield made


KEYS = st.one_of(
    st.integers(-COUNT, COUNT - 1),
    st.builds(slice, *[st.none() | st.integers(-70, 70)] * 2, st.none() | st.integers(-7, 7).filter(bool)),
    st.lists(st.integers(-COUNT, COUNT - 1), max_size=6),
)


@pytest.mark.slow(all_but='shards')
@settings(deadline=None, max_examples=40)
@given(KEYS, st.sampled_from([0, 1, 3]), st.sampled_from(['clips', 'parts']))
def test_clips_are_one_video(reader, key, index, field):
    clips = join_videos(reader, index, field)
    everything = list(range(COUNT))
    if isinstance(key, int):
        assert numbers([clips[key]]) == [everything[key]]
        return
    wanted = everything[key] if isinstance(key, slice) else [everything[number] for number in key]
    found = clips[key]
    assert found.shape == (len(wanted), 48, 48, 3)
    assert found.dtype == np.uint8
    assert numbers(found) == wanted
    assert numbers(clips[np.array(wanted, np.int16)]) == wanted


def test_what_clips_are(reader):
    clips, whole = join_videos(reader, -1, 'clips'), reader[0]['film']
    assert len(clips) == COUNT
    assert clips.shape == whole.shape
    assert clips.clip_lengths.tolist() == [25, 25, 10]
    assert np.allclose(clips.times, whole.times - 1)
    assert clips.duration == pytest.approx(whole.duration)
    assert clips.rate == pytest.approx(whole.rate)
    assert numbers(clips) == numbers(np.asarray(clips)) == list(range(COUNT))
    for second in (0, 0.039, 0.5, 1.123, clips.duration - 1e-6):
        assert np.array_equal(clips.at(second), clips[int(np.searchsorted(clips.times, second, 'right')) - 1])
    assert (
        numbers(clips.between(0.5, 1.2))
        == np.flatnonzero((clips.times >= 0.5) & (clips.times < 1.2)).tolist()
    )
    assert clips.read(slice(3, 5)).times.tolist() == clips.times[3:5].tolist()
    for wrong in (-0.1, clips.duration):
        with pytest.raises(IndexError, match='nothing is shown'):
            clips.at(wrong)
    again = pickle.loads(pickle.dumps(clips))
    assert repr(again) == repr(clips) == f'bags.Video({clips.name!r}, 3 clips)'
    assert numbers(again[20:30]) == list(range(20, 30))
    small = join_videos(reader, 0, 'clips', size=(16, 24), color='gray')
    assert small[5:15].shape == (10, 16, 24, 1)
    assert numbers(join_videos(reader[::-1], 0, 'clips')[::25]) == [0, 25, 50]
    assert numbers(join_videos(reader, 0, 'lossless')[::25]) == [0, 25, 50]
    assert len(join_videos(reader, 2, 'clips')) == 0
    assert join_videos(reader, 2, 'clips')[:].shape == (0, 0, 0, 3)


def test_what_clips_are_not(reader):
    with pytest.raises(TypeError, match="'steps' of type"):
        join_videos(reader, 0, 'steps')
    with pytest.raises(KeyError):
        join_videos(reader, 0, 'x')
    with pytest.raises(IndexError):
        join_videos(reader, 4, 'clips')
    with pytest.raises(TypeError, match='expected a dataset'):
        join_videos([], 0, 'clips')
    clips = join_videos(reader, 0, 'clips')
    for wrong in (COUNT, -COUNT - 1):
        with pytest.raises(IndexError, match=f'frame {wrong} out of range'):
            clips[wrong]
        with pytest.raises(IndexError, match=f'frame {wrong} out of range'):
            clips[[0, wrong]]
    for wrong in ('a', 1.5, None):
        with pytest.raises(TypeError):
            clips[wrong]


def test_only_the_clips_that_hold_frames_are_read(reader, monkeypatch):
    clips = join_videos(reader, 0, 'clips')
    opened = []
    original = Record.open
    monkeypatch.setattr(Record, 'open', lambda self: opened.append(self.index) or original(self))
    assert numbers(clips[12:18]) == list(range(12, 18))
    assert opened == [0, 1]
    assert numbers(clips[12:25]) == list(range(12, 25))
    assert opened == [0, 1, 2]


@pytest.mark.parametrize('field', ['clips', 'film', 'lossless', 'parts'])
def test_frames_of_a_reader(reader, field):
    missing = {'clips': 2, 'film': 1}.get(field)
    for key, wanted in (
        (bags.frames(8, 33), range(8, 33)),
        (bags.frames(50, 999), range(50, COUNT)),
        (bags.frames(-5, None), range(COUNT - 5, COUNT)),
        (bags.frames(0, 60, 13), range(0, 60, 13)),
        (bags.frames(None, None, -20), range(COUNT - 1, -1, -20)),
        (bags.frames([7, 0, -1, 7]), [7, 0, COUNT - 1, 7]),
    ):
        for index in range(4):
            row = reader[index, {field: key, 'id': True}]
            assert row['id'] == index
            assert row[field] is None if index == missing else numbers(row[field]) == list(wanted)
        batch = reader.batch([3, 0, 3], {field: key})[field]
        assert isinstance(batch, np.ndarray)
        assert [numbers(frames) for frames in batch] == [list(wanted)] * 3
        if missing is not None:
            batch = reader.batch([missing, 0], {field: key})[field]
            assert batch[0] is None
            assert numbers(batch[1]) == list(wanted)
    assert reader[0, {field: bags.frames(5, 5)}][field].shape == (0, 48, 48, 3)
    rows = reader[1:][::-1].__getitems__([0])
    assert rows[0]['id'] == 3


def test_frames_that_cannot_be_meant(reader):
    with pytest.raises(TypeError, match=r"'steps' of type .* has no frames"):
        reader[0, {'steps': bags.frames(0, 3)}]
    with pytest.raises(IndexError, match='frame 60'):
        reader[0, {'clips': bags.frames([3, 60])}]
    with pytest.raises(ValueError, match='step'):
        bags.frames(0, 3, 0)
    for wrong in ('abc', 1.5, [1.5]):
        with pytest.raises(TypeError):
            bags.frames(wrong)


def test_columns_of_parts_that_differ(reader, film, kit, tmp_path):
    short = [{'film': write(count)} for count in (4, 9)]
    both = bags.concat(
        [
            bags.open(kit.fill(tmp_path / str(number), [row], {'film': 'video'}))
            for number, row in enumerate(short)
        ]
    )
    batch = both.batch([1, 0, 1], {'film': bags.frames(2, 8)})['film']
    assert [numbers(frames) for frames in batch] == [[2, 3, 4, 5, 6, 7], [2, 3], [2, 3, 4, 5, 6, 7]]
    assert both.batch([1, 0], {'film': bags.frames(0, 4)})['film'].shape == (2, 4, 48, 48, 3)


@pytest.mark.slow(all_but='plain-*-drop')
@pytest.mark.parametrize('padding', ['drop', 'edge'])
@pytest.mark.parametrize('fields', [('film',), ('clips',), ('parts', 'steps'), ('lossless', 'parts')])
def test_windows_of_frames(reader, fields, padding):
    spans = dict.fromkeys(fields, bags.steps(0, 16))
    # Videos are aligned by time; with one rate for both, by the numbers of their frames.
    times = dict.fromkeys(fields, 25) if len(fields) == 2 and fields[0] == 'lossless' else None
    view = reader.windows(spans, every=fields[0], stride=11, padding=padding, times=times)
    missing = {'clips': 2, 'film': 1}.get(fields[0])
    wanted = [
        (index, start, [min(frame, COUNT - 1) for frame in range(start, start + 16)])
        for index in range(4)
        if index != missing
        for start in range(0, COUNT - 15 if padding == 'drop' else COUNT, 11)
    ]
    assert len(view) == len(wanted)
    assert [view.origin(index)[1:3] for index in range(len(view))] == [
        (row, start) for row, start, _ in wanted
    ]
    assert all(view.spec[field] == ('array' if field != 'steps' else 'array(int32,16)') for field in fields)
    order = [*range(len(view)), 1, 0, 1][::-1]
    rows = view.__getitems__(order)
    batch = view.batch(order, (*fields, 'id'))
    assert list(batch) == [*fields, 'id']
    for place, index in enumerate(order):
        row, _, frames = wanted[index]
        single = view[index, (*fields, 'id')]
        for found in (single, rows[place], {name: column[place] for name, column in batch.items()}):
            assert found['id'] == row
            for field in fields:
                if field == 'steps':
                    assert list(found['steps']) == [100 * row + frame for frame in frames]
                else:
                    assert found[field].shape == (len(frames), 48, 48, 3)
                    assert numbers(found[field]) == frames
    assert batch[fields[0]].shape == (len(order), 16, 48, 48, 3)
    rows[-2][fields[0]][:] = 77
    assert rows[0][fields[0]].max() > 200
    records = view.records(fields[0])
    assert numbers(bags.decoders['array'](records[1])) == wanted[1][2]
    assert view.file(1, fields[0]).read() == records[1]
    again = pickle.loads(pickle.dumps(view))
    assert repr(again) == repr(view)
    assert len(again) == len(view)


def test_what_cannot_be_cut_into_windows(reader, film, kit, tmp_path):
    with pytest.raises(TypeError, match='expected a sequence, a video, a recording'):
        reader.windows(every='id', id=bags.steps(0, 3))
    uneven = kit.fill(
        tmp_path / 'a', [{'film': film, 'steps': [1, 2]}], {'film': 'video', 'steps': 'int(1)[]'}
    )
    view = bags.open(uneven).windows(every='film', film=bags.steps(0, 3), steps=bags.steps(0, 3))
    with pytest.raises(ValueError, match=r"60 items of 'film' and 2 of 'steps' in datapoint 0"):
        len(view)


def test_damaged_clips_give_what_is_before(film, tmp_path):
    parts = list(bags.cut_clips(film, 20, codec='vp9'))
    broken = [parts[0], b'\x1a\x45\xdf\xa3' + bytes(100), parts[2]]
    with bags.DatasetWriter(tmp_path / 'b', {'parts': 'bytes[]'}) as writer:
        writer.append({'parts': broken})
    (tmp_path / 'b/spec.json').write_text('{"parts": "video[]"}')
    clips = join_videos(bags.open(tmp_path / 'b'), 0, 'parts')
    assert numbers(clips[5:20]) == list(range(5, 20))
    for key in (slice(15, 25), 30, slice(None), -1):
        with pytest.raises(bags.DecodeError, match="field 'parts'"):
            clips[key]


@pytest.mark.slow('mkv-*', 'webm-*', '*-3600.0', '*-1764000000.0')
@pytest.mark.parametrize('jump', [1000.0, 2150.0, 3600.0, 1_764_000_000.0])
@pytest.mark.parametrize('clip_seconds', [2.0, 100_000.0])
@pytest.mark.parametrize('format', ['mp4', 'webm', 'mkv'])
def test_a_gap_of_any_length(tmp_path, format, clip_seconds, jump):
    """A camera without frames, or a clock that is set while it records, does not end the episode."""
    times = np.concatenate([np.arange(20), np.arange(5) + 30 * jump, np.arange(20) + 60 * jump]) / 30 + 5
    spec, metadata = {'cam': f'{format}(30)[]', 't': 'float(8)[]'}, {'fields': {'cam': {'times': 't'}}}
    with (
        bags.DatasetWriter(tmp_path / 'd', spec, metadata=metadata) as writer,
        writer.begin(clip_seconds=clip_seconds) as episode,
    ):
        for number, time in enumerate(times):
            episode.append({'cam': np.full((48, 64, 3), 5 * number, np.uint8), 't': time})
    dataset = bags.open(tmp_path / 'd')
    video = dataset.stream(0, 'cam')
    assert len(video) == len(times)
    assert np.abs(video.times - times).max() < 2e-3
    assert abs(video.duration - (times[-1] - times[0] + 1 / 30)) < 5e-3
    assert np.abs(video[:].mean((1, 2, 3)) - 5 * np.arange(len(times))).max() < 4
    assert dataset[0, 't']['t'].tolist() == times.tolist()
    assert bags.verify(tmp_path / 'd', decode=True) == []
