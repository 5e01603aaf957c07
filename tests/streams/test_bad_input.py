"""Streams that contradict themselves raise errors that name the datapoint, the field, and what was found."""

import numpy as np
import pytest

import bags

pytest.importorskip('av')


def write(path, spec, rows, **facts):
    with bags.DatasetWriter(path, spec, metadata={'fields': facts}) as writer:
        for row in rows:
            writer.append(row)
    return bags.open(path)


def samples(rate):
    return np.zeros((800, 1), np.int16), rate


def clip(height):
    return bytes(bags.encoders['mp4'](np.zeros((4, height, 32, 3), np.uint8), '10'))


def test_seconds_of_a_stream_without_times(tmp_path):
    dataset = write(tmp_path / 'd', {'x': 'array(float32)[]'}, [{'x': np.zeros(5, np.float32)}])
    stream = dataset.stream(0, 'x')
    assert (len(stream), stream[1:3].shape) == (5, (2,))
    for ask in (
        lambda: stream.times,
        lambda: stream.at(1),
        lambda: stream.between(0, 1),
        lambda: dataset.durations('x'),
        lambda: dataset.windows(every='x', x=bags.between(0, 1)),
    ):
        with pytest.raises(
            ValueError, match=r"field 'x': the times of its items are unknown: expected a rate"
        ):
            ask()


@pytest.mark.parametrize(
    ('times', 'error'),
    [
        ([0, 1, 0.5], r"datapoint 1: expected increasing times in 'w', got 0\.5 s as item 2 after 1\.0 s"),
        ([0, 1, 1], r"datapoint 1: expected increasing times in 'w', got 1\.0 s as item 2 after 1\.0 s"),
        ([0, np.nan, 1], r"datapoint 1: expected increasing times in 'w', got nan s as item 1 after 0\.0 s"),
        ([0, 1, np.inf], r"datapoint 1: expected increasing times in 'w', got inf s as item 2"),
        ([0, 1], r"datapoint 1: expected a time in 'w' for each of the 3 items of 'x', got 2"),
    ],
)
def test_wrong_times(tmp_path, times, error):
    rows = [{'x': np.zeros(len(each), np.float32), 'w': each} for each in ([0, 1], [0, 1, 2])]
    rows[1]['w'] = times
    spec = {'x': 'array(float32)[]', 'w': 'float(8)[]'}
    dataset = write(tmp_path / 'd', spec, rows, x={'times': 'w'})
    assert dataset.stream(0, 'x').duration == 2
    for ask in (
        lambda: dataset.durations('x'),
        lambda: dataset.stream(1, 'x').times,
        lambda: dataset.windows(every='x', x=bags.between(-0.1, 0.1)).batch([2]),
        lambda: dataset.filter('duration(x) > 1'),
    ):
        with pytest.raises(ValueError, match=error):
            ask()


def test_clips_of_two_sizes(tmp_path):
    dataset = write(tmp_path / 'd', {'x': 'mp4[]'}, [{'x': [clip(32), clip(48)]}])
    assert dataset.lengths('x', of='elements').tolist() == [8]
    assert dataset.durations('x') == pytest.approx([0.8])
    with pytest.raises(
        ValueError, match=r"datapoint 0, field 'x': expected frames of the same size.*48, 32, 3"
    ):
        dataset.stream(0, 'x')[2:6]


def test_recordings_of_two_rates(tmp_path):
    dataset = write(tmp_path / 'd', {'x': 'flac[]'}, [{'x': [samples(8000), samples(16000)]}])
    assert dataset.lengths('x', of='elements').tolist() == [1600]
    assert dataset.durations('x') == pytest.approx([0.15])
    sound = dataset.stream(0, 'x')
    assert (len(sound), sound.start) == (1600, 0)
    assert sound.duration == pytest.approx(0.15)
    assert repr(sound).endswith('cannot be read: ValueError)')
    for ask in (lambda: sound[:], lambda: sound.rate, lambda: sound.times, lambda: sound.at(0.1)):
        with pytest.raises(
            ValueError, match=r"datapoint 0, field 'x': expected recordings of one rate.* 16000 Hz"
        ):
            ask()


@pytest.mark.parametrize('field_type', ['audio(rate=4000)[]', 'audio[]'])
def test_the_length_of_stored_recordings_of_two_rates(tmp_path, field_type):
    parts = [bags.encoders['wav'](samples(rate)) for rate in (8000, 16000)]
    dataset = write(tmp_path / 'd', {'x': field_type}, [{'x': parts}])
    sound = dataset.stream(0, 'x')
    assert [len(sound)] == dataset.lengths('x', of='elements').tolist()
    assert [sound.duration] == pytest.approx(dataset.durations('x'))


def test_clips_of_two_rates(tmp_path):
    clips = [bags.encoders['mp4'](np.zeros((count, 32, 32, 3), np.uint8), str(count)) for count in (30, 10)]
    dataset = write(tmp_path / 'd', {'x': 'mp4[]'}, [{'x': clips}])
    camera = dataset.stream(0, 'x')
    assert dataset.lengths('x', of='elements').tolist() == [len(camera)] == [40]
    assert [camera.duration, *dataset.durations('x')] == pytest.approx([2.0, 2.0])
    assert camera.times[[29, 30, 31]] == pytest.approx([29 / 30, 1.0, 1.1])


def test_a_rate_that_contradicts_the_recordings(tmp_path):
    dataset = write(tmp_path / 'd', {'x': 'flac[]'}, [{'x': [samples(8000)]}], x={'rate': 16000})
    for ask in (lambda: dataset.durations('x'), lambda: dataset.stream(0, 'x').times):
        with pytest.raises(
            ValueError, match=r"field 'x': rate 16000 .* expected the 8000 samples .*datapoint 0"
        ):
            ask()


def test_windows_of_a_missing_stream(tmp_path):
    spec = {'x': 'int(4)[]', 'e': 'int(4)[]?'}
    rows = [{'x': range(5), 'e': range(5)}, {'x': range(5), 'e': None}]
    dataset = write(tmp_path / 'd', spec, rows, x={'rate': 10}, e={'rate': 10})
    with pytest.raises(ValueError, match=r"datapoint 1: expected items of 'e', got none"):
        dataset.windows(every='x', e=bags.times(0)).batch([5])
    assert len(dataset.windows(every='x', e=bags.times(0), padding='drop')) == 5


def test_intervals_that_are_empty_or_reversed():
    for stop in (0, -1):
        with pytest.raises(ValueError, match=f'between: expected a stop after the start, got .* stop {stop}'):
            bags.between(0, stop)
    for bound in (np.nan, np.inf):
        with pytest.raises(ValueError, match='between: stop: expected a finite number'):
            bags.between(0, bound)
