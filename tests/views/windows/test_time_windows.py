"""Windows at times and steps, compared with a search."""

import io
import json
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

import bags

EPISODES = 20
SPEC = {
    'action': 'array(float32,7)[]',
    'action_time': 'float(8)[]',
    'event': 'utf8[]',
    'event_time': 'float(8)[]',
    'frame': 'array(uint8,4,4,3)[]',
    'frame_time': 'float(8)[]',
    'id': 'int(8)',
    'state': 'array(float32,7)[]',
}
METADATA = {
    'robot': 'arm',
    'fields': {
        'action': {'times': 'action_time'},
        'event': {'times': 'event_time'},
        'frame': {'times': 'frame_time'},
        'state': {'rate': 200, 'start': 0.04},
    },
}


def make(index):
    chance = np.random.default_rng(index)
    seconds = chance.uniform(0.8, 1.6)
    frames = np.arange(0, seconds, 1 / 30)
    frames = np.sort(frames + chance.uniform(-0.003, 0.003, len(frames)))
    states = int((seconds - 0.04) * 200)
    actions = np.arange(0.01, seconds, 1 / 50)
    events = np.unique(np.round(chance.uniform(0, seconds, 12), 4))
    return {
        'action': chance.standard_normal((len(actions), 7)).astype('f4'),
        'action_time': actions,
        'event': [f'{index} {k}' for k in range(len(events))],
        'event_time': events,
        'frame': chance.integers(0, 256, (len(frames), 4, 4, 3)).astype('u1'),
        'frame_time': frames,
        'id': index,
        'state': chance.standard_normal((states, 7)).astype('f4'),
    }


def times_of(row, name):
    if name == 'state':
        return 0.04 + np.arange(len(row['state'])) / 200
    return np.asarray(row[f'{name}_time'])


def find(times, wanted, fill):
    """Returns the item at a time and whether it is padding, by search."""
    distance = np.abs(times - wanted)
    is_pad = wanted < times[0] - 1e-6 or wanted > times[-1] + 1e-6
    if fill == 'previous':
        earlier = np.flatnonzero(times <= wanted + 1e-6)
        return (int(earlier[-1]) if len(earlier) else 0), is_pad
    return int((distance <= distance.min() + 1e-6).argmax()), is_pad  # Of two equally near, the earlier.


def expected(row, moment, name, span):
    times, values = times_of(row, name), row[name]
    if isinstance(span, bags.types.Steps):
        base = int((times < moment - 1e-6).sum())
        places = np.arange(base + span.start, base + span.stop)
        pads = (places < 0) | (places >= len(times))
        places = np.clip(places, 0, len(times) - 1)
        return [values[place] for place in places], pads
    found, pads = [], []
    for offset in span.offsets:
        place, is_pad = find(times, moment + offset, span.fill)
        if span.fill == 'linear':
            columns = np.asarray(values, np.float64).T
            found.append(np.array([np.interp(moment + offset, times, column) for column in columns], 'f4'))
        else:
            found.append(values[place])
        pads.append(is_pad)
    return found, np.array(pads)


@pytest.fixture(scope='module')
def recordings(tmp_path_factory):
    root = tmp_path_factory.mktemp('recordings')
    rows = [make(index) for index in range(EPISODES)]
    with bags.DatasetWriter(root / 'a', SPEC) as writer:
        for row in rows:
            writer.append(row)
    with bags.ShardedDatasetWriter(root / 'b', SPEC, shard_length=6) as writer:
        for row in rows:
            writer.append(row)
    for folder in [root / 'a', *sorted((root / 'b').iterdir())]:
        (folder / 'metadata.json').write_text(json.dumps(METADATA))
    return [bags.open(root / 'a'), bags.open(root / 'b')], rows


SPANS = {
    'action': bags.steps(-2, 6),
    'event': bags.times(-0.3, 0.0, 0.3, fill='previous'),
    'frame': bags.times(-0.2, 0.0),
    'state': bags.times(-0.1, 0.0, rate=100, fill='linear'),
}


def check(view, rows, spans, padding, order):
    batch = view.batch(order)
    datapoints = view.origins(order).datapoint
    moments = view.anchor_times(order)
    for place, (index, row, moment) in enumerate(
        zip(order, datapoints.tolist(), moments.tolist(), strict=True)
    ):
        one = view[index]
        assert one['id'] == batch['id'][place] == row
        for name, span in spans.items():
            values, pads = expected(rows[row], moment, name, span)
            assert np.array_equal(batch[f'{name}_is_pad'][place], pads)
            assert np.array_equal(one[f'{name}_is_pad'], pads)
            if name == 'event':
                assert batch[name][place] == values
                assert one[name] == values
                continue
            if padding == 'zero':
                values = [value * (not pad) for value, pad in zip(values, pads, strict=True)]
            wanted = np.stack(values)
            np.testing.assert_allclose(batch[name][place], wanted, rtol=1e-6, atol=1e-7)
            assert batch[name].dtype == one[name].dtype == wanted.dtype
            assert np.array_equal(batch[name][place], one[name])


@pytest.mark.slow(all_but='zero-0')
@pytest.mark.parametrize('which', [0, 1])
@pytest.mark.parametrize('padding', ['edge', 'zero', 'drop'])
def test_every_frame(recordings, which, padding):
    reader, rows = recordings[0][which], recordings[1]
    spans = SPANS if padding != 'zero' else {name: SPANS[name] for name in ('action', 'frame', 'state')}
    view = reader.windows(every='frame', padding=padding, **spans)
    if padding == 'drop':
        kept = []
        for number, row in enumerate(rows):
            for item, moment in enumerate(row['frame_time'].tolist()):
                if not any(expected(row, moment, name, span)[1].any() for name, span in spans.items()):
                    kept.append((number, item))
        assert list(zip(*(part.tolist() for part in view.origins()[1:3]), strict=True)) == kept
    else:
        assert len(view) == sum(len(row['frame']) for row in rows)
    check(view, rows, spans, padding, np.random.default_rng(0).permutation(len(view))[:200].tolist())
    again = pickle.loads(pickle.dumps(view))
    assert repr(again) == repr(view)
    assert np.array_equal(again.batch([3], 'state')['state'], view.batch([3], 'state')['state'])


@pytest.mark.slow('state-linear', 'state-nearest')
@pytest.mark.parametrize('fill', ['nearest', 'previous', 'linear'])
@pytest.mark.parametrize('every', ['frame', 'event', 'state', 'action', 0.07])
def test_fills_and_anchors(recordings, every, fill):
    (reader, _), rows = recordings
    spans = {'state': bags.times(-0.05, 0.013, 0.2, fill=fill), 'action': bags.times(-0.1, 0.1, fill=fill)}
    view = reader.windows(every=every, stride=3 if isinstance(every, str) else 1, **spans)
    if isinstance(every, str):
        assert len(view) == sum(-(-len(row[every]) // 3) for row in rows)
    check(view, rows, spans, 'edge', list(range(0, len(view), 7)))


def test_exact_and_tolerance(recordings):
    (reader, _), rows = recordings
    view = reader.windows(every='state', state=bags.times(-0.005, 0.0, fill='exact'))
    check(view, rows, {'state': bags.times(-0.005, 0.0)}, 'edge', list(range(0, len(view), 11)))
    view = reader.windows(every='state', state=bags.times(0.0021, fill='exact'))
    with pytest.raises(
        ValueError, match=r"datapoint 0: field 'state' has no item within 0.0001 s of 0\.0421"
    ):
        view[0]
    gaps = reader.windows(every='frame', event=bags.times(0.0, tolerance=0.01, gaps='pad'))
    for index in range(0, len(gaps), 5):
        row, moment = gaps.origin(index).datapoint, gaps.anchor_times([index])[0]
        near = np.abs(rows[row]['event_time'] - moment).min() <= 0.01 + 1e-6
        assert gaps[index]['event_is_pad'].tolist() == [not near]


def test_types_and_copies(recordings, tmp_path):
    (reader, _), _ = recordings
    view = reader.windows(every='frame', stride=10, **SPANS)
    assert view.spec['state'] == 'array(float32,11,7)'
    assert view.spec['state_is_pad'] == 'array(bool,11)'
    assert view.spec['event'] == 'utf8[]'
    assert view.metadata['robot'] == 'arm'
    bags.copy(view.select(range(20)), tmp_path / 'c')
    copied = bags.open(tmp_path / 'c')
    assert np.array_equal(copied[7]['state'], view[7]['state'])
    assert copied[7]['event'] == view[7]['event']


def test_views_of_windows(recordings):
    (reader, sharded), _ = recordings
    view = reader.windows(every='frame', **SPANS)
    names = ('id', 'state', 'state_is_pad', 'event')
    chosen = view.select([5, 3, 200])
    both = bags.concat([chosen, sharded.windows(every='frame', **SPANS)])
    for index, source in [(0, 5), (1, 3), (2, 200), (3, 0), (40, 37)]:
        for got, wanted in zip(both[index, names].items(), view[source, names].items(), strict=True):
            assert got[0] == wanted[0]
            assert np.array_equal(got[1], wanted[1])
    batch = both.batch([2, 3, 0], names)
    assert np.array_equal(batch['state'], view.batch([200, 0, 5], 'state')['state'])
    assert both.lengths('event').tolist() == [3] * len(both)
    assert view.records('event')[4] == view[1]['event'][1].encode()
    with pytest.raises(TypeError, match='windows'):
        chosen.file(0, 'event', 0)
    loader = bags.Loader(both, 8, fields=names, seed=0, epochs=1)
    assert next(iter(loader))['state'].shape == (8, 11, 7)


def test_views_without_the_field_of_times_are_windowed_by_steps(tmp_path):
    facts = {'fields': {'action': {'times': 'time'}}}
    spec = {'action': 'int(4)[]', 'time': 'float(8)[]'}
    with bags.DatasetWriter(tmp_path / 'x', spec, metadata=facts) as writer:
        writer.append({'action': range(4), 'time': [0.0, 0.1, 0.2, 0.3]})
    view = bags.open(tmp_path / 'x')[:, 'action']
    found = view.windows(every='action', action=bags.steps(0, 2))
    assert [row['action'].tolist() for row in found] == [[0, 1], [1, 2], [2, 3], [3, 3]]
    with pytest.raises(ValueError, match=r"field 'action': .* a field of times that the dataset has"):
        view.windows(every='action', action=bags.times(0))


def test_what_cannot_be_meant(recordings, tmp_path):
    (reader, _), _ = recordings
    wrong = [
        ({'every': 'frame', 'frame': bags.times(0.0, fill='linear')}, TypeError, 'linear fill needs floats'),
        ({'every': 'id', 'frame': bags.times(0.0)}, TypeError, 'id'),
        ({'every': 'frame', 'id': bags.times(0.0)}, TypeError, 'id'),
        ({'every': 'frame', 'frame': 3}, TypeError, "field 'frame': expected bags.times"),
        ({'every': 0, 'frame': bags.times(0.0)}, ValueError, 'every'),
        ({'every': 'frame', 'frame': bags.times(0.0), 'padding': 'x'}, ValueError, 'padding'),
        ({'every': 'action_time', 'frame': bags.times(0.0)}, ValueError, 'times of its items are unknown'),
        ({'every': 'frame', 'action_time': bags.steps(0, 2)}, ValueError, 'sequences of equal length'),
        ({'frame': bags.times(0.0)}, TypeError, 'every='),
        ({'every': 'frame', 'nothing': bags.times(0.0)}, KeyError, 'nothing'),
    ]
    for options, kind, text in wrong:
        with pytest.raises(kind, match=text):
            len(reader.windows(**options))
    bad = [((), {}), (('x',), {}), ((np.nan,), {}), ((0, 1), {'rate': 0}), ((0,), {'rate': 5})]
    for arguments, options in [*bad, ((0,), {'fill': 'last'}), ((0,), {'tolerance': -1})]:
        with pytest.raises((ValueError, TypeError), match='times'):
            bags.times(*arguments, **options)
    for low, high in [(3, 3), (4, 1)]:
        with pytest.raises(ValueError, match='steps'):
            bags.steps(low, high)


@pytest.mark.parametrize(('times', 'text'), [
    ([0.0, 0.2, 0.1], 'increasing'), ([0.0, np.nan, 1.0], 'increasing'),
    ([0.0, 0.1], 'for each of the 3 items'),
])  # fmt: skip
def test_times_that_cannot_be(tmp_path, times, text):
    with bags.DatasetWriter(tmp_path / 'x', {'a': 'int(4)[]', 't': 'float(8)[]'}) as writer:
        writer.append({'a': [1, 2, 3], 't': times})
    with pytest.raises(ValueError, match=text):
        bags.open(tmp_path / 'x').windows(every='a', a=bags.times(0.0), times={'a': 't'})[0]


def film(seed, seconds):
    """Returns a recording with a jitter of 3 ms around 30 frames a second, and its times."""
    av = pytest.importorskip('av')
    chance = np.random.default_rng(seed)
    count = int(seconds * 30)
    ticks = np.round(1000 * np.arange(count) / 30 + chance.uniform(-3, 3, count)).astype(int)
    ticks[0] = 0
    file = io.BytesIO()
    with av.open(file, 'w', 'matroska') as container:
        stream = container.add_stream('ffv1', 30)
        stream.width, stream.height, stream.pix_fmt = 32, 16, 'bgr0'
        stream.codec_context.time_base = stream.time_base = Fraction(1, 1000)
        for number, tick in enumerate(ticks.tolist()):
            frame = av.VideoFrame.from_ndarray(np.full((16, 32, 3), 2 * number, np.uint8), 'rgb24')
            frame.pts, frame.time_base = tick, Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue(), ticks / 1000


@pytest.fixture(scope='module')
def films(tmp_path_factory):
    path, rows = tmp_path_factory.mktemp('films') / 'x', []
    spec = {'audio': 'audio', 'camera': 'video', 'id': 'int(4)', 'state': 'array(float32,2)[]'}
    with bags.DatasetWriter(path, spec) as writer:
        for index in range(4):
            data, times = film(index, 1.5 + index / 4)
            sound = np.random.default_rng(index).uniform(-1, 1, (8000 + 800 * index, 1)).astype('f4')
            state = np.random.default_rng(9 + index).standard_normal((300, 2)).astype('f4')
            rows.append((times, sound, state))
            writer.append({'audio': (sound, 8000), 'camera': data, 'id': index, 'state': state})
    return path, rows


@pytest.mark.parametrize('padding', ['edge', 'zero', 'drop'])
def test_frames_and_samples(films, padding):
    path, rows = films
    reader = bags.open(path)
    view = reader.windows(every='camera', camera=bags.times(-0.2, 0.0), audio=bags.between(-0.1, 0.05),
        state=bags.times(0.0, 0.05, rate=100), times={'state': 200}, padding=padding,
    )  # fmt: skip
    order = np.random.default_rng(1).permutation(len(view)).tolist()
    batch = view.batch(order)
    assert batch['camera'].shape == (len(order), 2, 16, 32, 3)
    assert batch['audio'].shape == (len(order), 1200, 1)
    _, datapoints, anchors, _, _ = view.origins(order)
    assert padding == 'drop' or len(view) == sum(len(times) for times, _, _ in rows)
    for place, (row, anchor) in enumerate(zip(datapoints.tolist(), anchors.tolist(), strict=True)):
        times, sound, state = rows[row]
        moment = times[anchor]
        earlier = int(np.abs(times - (moment - 0.2)).argmin())
        is_pad = moment - 0.2 < times[0] - 1e-6
        assert batch['camera_is_pad'][place].tolist() == [is_pad, False]
        shade = 0 if is_pad and padding == 'zero' else 2 * earlier
        assert batch['camera'][place, :, 0, 0, 0].tolist() == [shade, 2 * anchor]
        first = math.ceil((moment - 0.1 - 1e-6) * 8000)
        heard = np.arange(first, first + 1200)
        outside = (heard < 0) | (heard >= len(sound))
        samples = reader[row]['audio'][:][np.clip(heard, 0, len(sound) - 1)]
        samples = np.where(outside[:, None], 0, samples) if padding == 'zero' else samples
        if not outside.all():
            assert np.array_equal(batch['audio'][place], samples)
        assert np.array_equal(batch['audio_is_pad'][place], outside)
        wanted = moment + np.arange(6) / 100
        nearest = [int(np.abs(np.arange(300) / 200 - t).argmin()) for t in wanted]
        beyond = wanted > 299 / 200 + 1e-6
        values = state[nearest] * (~beyond[:, None] if padding == 'zero' else 1)
        assert np.array_equal(batch['state'][place], values)
        assert np.array_equal(batch['state_is_pad'][place], beyond)
    one = view[order[0]]
    assert np.array_equal(one['camera'], batch['camera'][0])
    assert np.array_equal(one['audio'], batch['audio'][0])


@pytest.mark.parametrize('field_type', ['video', 'mp4[]'])
def test_a_video_keeps_its_first_time(tmp_path, field_type):
    """The first clip of a sequence begins at 0."""
    pytest.importorskip('av')
    from tests.media import samples as media

    data = media.film(times=range(480, 1480, 40), count=25)
    with bags.DatasetWriter(tmp_path / 'x', {'camera': field_type, 'mark': 'int(8)[]'}) as writer:
        writer.append({'camera': [data] if field_type == 'mp4[]' else data, 'mark': range(200)})
    start = 0.48 if field_type == 'video' else 0
    assert bags.Video(data).times[0] == pytest.approx(0.48)
    view = bags.open(tmp_path / 'x').windows(every='camera', camera=bags.times(0.0), mark=bags.times(0.0),
        times={'mark': 100},
    )  # fmt: skip
    batch = view.batch(range(len(view)))
    assert batch['mark'].ravel().tolist() == (100 * start + 4 * np.arange(25)).round().tolist()
    assert [media.number_of(frame) for frame in batch['camera'][:, 0]] == list(range(25))


def test_windows_without_items(tmp_path):
    """A datapoint without one of the streams is refused, skipped, or filled with zeros."""
    spec = {'camera': 'int(4)[]', 'touch': 'array(float32,2)[]?'}
    facts = {'fields': {'camera': {'rate': 10}, 'touch': {'rate': 20}}}
    with bags.DatasetWriter(tmp_path / 'x', spec, metadata=facts) as writer:
        for touch in (np.ones((6, 2), 'f4'), None, []):
            writer.append({'camera': range(3), 'touch': touch})
    reader = bags.open(tmp_path / 'x')
    span = bags.times(0.0, 0.05, fill='linear')
    with pytest.raises(ValueError, match="datapoint 1: expected items of 'touch', got none"):
        len(reader.windows(every='camera', touch=span))
    assert len(reader.windows(every='camera', touch=span, padding='drop')) == 3
    view = reader.windows(every='camera', touch=span, padding='zero')
    batch = view.batch([8, 0, 4])
    assert batch['touch'].tolist() == [[[0, 0]] * 2, [[1, 1]] * 2, [[0, 0]] * 2]
    assert batch['touch_is_pad'].tolist() == [[True] * 2, [False] * 2, [True] * 2]
    assert view[4]['touch'].tolist() == [[0, 0]] * 2
    assert view.batch([], ('touch', 'touch_is_pad'))['touch'].shape == (0, 2, 2)


def test_zeros_instead_of_pictures_of_different_sizes(tmp_path):
    pytest.importorskip('PIL')
    with bags.DatasetWriter(tmp_path / 'x', {'image': 'png[]', 'text': 'utf8[]'}) as writer:
        for size in (4, 5):
            writer.append({'image': [np.full((size, 4, 3), 9, np.uint8)] * 2, 'text': []})
    reader = bags.open(tmp_path / 'x')
    view = reader.windows(every='image', image=bags.steps(-1, 1), padding='zero')
    batch = view.batch([0, 3])
    assert [window.max((1, 2, 3)).tolist() for window in batch['image']] == [[0, 9], [9, 9]]
    assert batch['image'][1].shape == (2, 5, 4, 3)
    with pytest.raises(TypeError, match="padding='zero' needs arrays"):
        reader.windows(every='image', text=bags.steps(0, 1), padding='zero')


def test_what_the_metadata_says_is_checked(tmp_path):
    spec = {'a': 'int(4)[]', 't': 'int(8)[]'}

    def write(name, metadata):
        with bags.DatasetWriter(tmp_path / name, spec) as writer:
            writer.append({'a': [1, 2, 3], 't': [0, 100, 200]})
        (tmp_path / name / 'metadata.json').write_text(json.dumps(metadata))
        return bags.open(tmp_path / name)

    wrong = [
        3,
        {'rate': 0},
        {'rate': 'a'},
        {'rate': np.nan},
        {'rate': np.inf},
        {'times': ['t']},
        {'start': True},
    ]
    for number, facts in enumerate(wrong):
        with pytest.raises((ValueError, TypeError), match="metadata: field 'a': "):
            write(f'wrong {number}', {'fields': {'a': facts}}).windows(every='a', a=bags.times(0.0))
    with pytest.raises(TypeError, match="metadata: field 't': expected a mapping"):
        write('no facts', {'fields': {'a': {'times': 't'}, 't': 3}}).windows(every='a', a=bags.times(0.0))
    for number, unit in enumerate(['minutes', ['s'], None]):
        reader = write(f'unit {number}', {'fields': {'a': {'times': 't'}, 't': {'unit': unit}}})
        with pytest.raises(ValueError, match="field 't': unit of times: expected 's', 'ms'"):
            reader.windows(every='a', a=bags.times(0.0))
    fast = write('fast', {'fields': {'a': {'rate': 20, 'unit': 'm'}}})
    slow = write('slow', {'fields': {'a': {'rate': 10, 'unit': 'm'}}})
    both = bags.concat([fast, slow]).windows(every='a', a=bags.times(0.1))
    assert both.column('a').ravel().tolist() == [3, 3, 3, 2, 3, 3]
    view = write('ms', {'fields': {'a': {'times': 't'}, 't': {'unit': 'ms'}}}).windows(
        every='a', a=bags.times(0.1)
    )
    assert view.column('a').ravel().tolist() == [2, 3, 3]


def test_times_of_a_video_are_as_many_as_its_frames(tmp_path):
    data, times = film(0, 1)
    with bags.DatasetWriter(tmp_path / 'x', {'camera': 'video', 'time': 'float(8)[]'}) as writer:
        writer.append({'camera': data, 'time': times})
        writer.append({'camera': data, 'time': times[:-3]})
    view = bags.open(tmp_path / 'x').windows(every='camera', camera=bags.times(0.0), times={'camera': 'time'})
    assert view[29]['camera'][0, 0, 0, 0] == 58
    with pytest.raises(ValueError, match="datapoint 1: expected a time in 'time' for each of the 30 frames"):
        view[59]


def test_zeros_instead_of_pictures_are_not_copied(tmp_path):
    with bags.DatasetWriter(tmp_path / 'x', {'image': 'png[]'}) as writer:
        writer.append({'image': [np.full((4, 4, 3), 9, np.uint8)] * 3})
    reader = bags.open(tmp_path / 'x')
    view = reader.windows(every='image', image=bags.steps(0, 2), padding='zero')
    with pytest.raises(
        TypeError, match="field 'image': records of zeros do not exist: copy windows with padding='edge'"
    ):
        bags.copy(view, tmp_path / 'y')
    bags.copy(view[:2], tmp_path / 'z')
    assert np.array_equal(bags.open(tmp_path / 'z')[1]['image'], view[1]['image'])


def test_sounds_beyond_the_recording(tmp_path):
    pytest.importorskip('av')
    sound = np.linspace(-1, 1, 800, dtype='f4')[:, None]
    with bags.DatasetWriter(
        tmp_path / 'x', {'audio': 'audio', 'mark': 'int(4)[]', 'time': 'float(8)[]'}
    ) as writer:
        writer.append({'audio': (sound, 8000), 'mark': range(4), 'time': [-1.0, 0.05, 0.0995, 5.0]})
    reader = bags.open(tmp_path / 'x')
    times = {'mark': 'time'}
    samples = reader[0]['audio'][:]
    for padding in ('edge', 'zero', 'drop'):
        view = reader.windows(every='mark', audio=bags.between(0, 0.01), times=times, padding=padding)
        if padding == 'drop':
            assert len(view) == 1
            assert view.origin(0)[1:3] == (0, 1)
            continue
        found, pads = view.column('audio'), view.column('audio_is_pad')
        assert pads.sum(1).tolist() == [80, 0, 76, 80]
        ends = (samples[0], samples[-1]) if padding == 'edge' else (0, 0)
        assert (found[0] == ends[0]).all()
        assert np.array_equal(found[1], samples[400:480])
        assert np.array_equal(found[2][:4], samples[796:])
        assert (found[2][4:] == ends[1]).all()
        assert (found[3] == ends[1]).all()
    for wrong in (bags.times(0.1, 0.0), bags.times(0.0, 0.1), bags.steps(0, 2)):
        with pytest.raises(TypeError, match=r'audio.*bags\.between'):
            reader.windows(every='mark', audio=wrong, times=times)
    points = reader.windows(every='mark', audio=bags.times(0.0, 0.001, rate=4000), times=times)
    assert np.array_equal(points[1]['audio'], samples[[400, 402, 404, 406, 408]])


def test_values_that_are_not_numbers_stay_where_they_are(tmp_path):
    facts = {'fields': {'a': {'rate': 10}}}
    with bags.DatasetWriter(tmp_path / 'x', {'a': 'float(4)[]'}, metadata=facts) as writer:
        writer.append({'a': [0.0, np.nan, 2.0, np.inf, 4.0]})
    view = bags.open(tmp_path / 'x').windows(every='a', a=bags.times(0.0, 0.05, fill='linear'))
    nan, inf = np.nan, np.inf
    np.testing.assert_array_equal(view.column('a'), [[0, nan], [nan, nan], [2, inf], [inf, nan], [4, 4]])


def test_fields_with_dotted_names(tmp_path):
    spec = {'observation.images.top': 'int(1)[]', 'action': 'int(1)[]'}
    with bags.DatasetWriter(tmp_path / 'x', spec) as writer:
        writer.append({name: range(5) for name in spec})
    spans = {'observation.images.top': bags.steps(-1, 1), 'action': bags.steps(0, 2)}
    with bags.open(tmp_path / 'x') as dataset:
        for view in (
            dataset.windows(spans, every='observation.images.top'),
            dataset.windows(every='observation.images.top', **spans),
        ):
            assert view[2]['observation.images.top'].tolist() == [1, 2]
            assert view[4]['action_is_pad'].tolist() == [False, True]
            assert view[0]['observation.images.top_is_pad'].tolist() == [True, False]
