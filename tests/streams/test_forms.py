"""A stream gives the same answers, however the field stores it."""

import pickle

import numpy as np
import pytest

import bags
from tests.streams.forms import (
    FORMS,
    PICTURES,
    SOUNDS,
    Recording,
    expected_numbers,
    linked,
    numbers_of,
    write,
)

pytest.importorskip('av')


def recordings_of(form):
    if form in SOUNDS:
        return [
            Recording(5000, 8000.0, 0.5),
            Recording(801, 8000.0, 0.5),
            None,
            Recording(12_000, 8000.0, 0.5),
        ]
    return [Recording(40, 30.0, 0.5), Recording(7, 30.0, 0.5), None, Recording(61, 30.0, 0.5)]


@pytest.fixture(scope='module', params=FORMS)
def case(request, tmp_path_factory):
    form = request.param
    recordings = recordings_of(form)
    return form, recordings, write(tmp_path_factory.mktemp('form') / 'd', form, recordings)


def check_stream(form, stream, recording):
    times = recording.times
    assert len(stream) == recording.count
    np.testing.assert_allclose(stream.times, times, rtol=0, atol=1e-9)
    assert stream.start == pytest.approx(times[0], abs=1e-9)
    assert stream.rate == pytest.approx(recording.rate)
    assert stream.duration == pytest.approx(recording.count / recording.rate, abs=1e-9)

    def expect(found, numbers):
        assert numbers_of(form, found) == expected_numbers(form, numbers)

    count = recording.count
    keys = slice(2, 6), slice(None, None, 2), slice(-3, None), slice(count - 2, count + 9), slice(4, 4)
    for key in keys:
        expect(stream[key], np.arange(count)[key])
    expect(stream[[3, 5, 3, -1]], np.array([3, 5, 3, count - 1]))
    expect(np.asarray(stream[-1])[None], np.array([count - 1]))
    for wrong in (count, -count - 1):
        with pytest.raises(IndexError):
            stream[wrong]
    begin, end = times[0], times[0] + count / recording.rate
    step = 1 / recording.rate
    for moment in (begin, begin + 2.5 * step, times[-1], end - 0.25 * step):
        last = int(np.flatnonzero(times <= moment + 1e-9)[-1])
        expect(np.asarray(stream.at(moment))[None], np.array([last]))
    expect(stream.at([begin + 2.5 * step, begin]), np.array([2, 0]))
    for wrong in (begin - step, end + step):
        with pytest.raises(IndexError):
            stream.at(wrong)
    for low, high in ((begin, begin + 3 * step), (begin - 1, begin + 1.5 * step), (times[3], times[5]),
                      (end - 1.5 * step, end), (end, end + 1), (begin - 3, begin)):  # fmt: skip
        expect(stream.between(low, high), np.flatnonzero((times >= low - 1e-6) & (times < high - 1e-6)))
    for wrong in ((np.nan, end), (begin, np.nan)):
        with pytest.raises(ValueError, match=r'expected times in seconds, got .*nan'):
            stream.between(*wrong)
    assert len(stream.between(end, begin)) == 0
    values, of_values = stream.read(slice(2, 5))
    expect(values, np.arange(2, 5))
    np.testing.assert_allclose(of_values, times[2:5], rtol=0, atol=1e-9)


def test_stream(case):
    form, recordings, dataset = case
    for row, recording in enumerate(recordings):
        stream = dataset.stream(row, 'x')
        if recording is None:
            assert stream is None
            continue
        check_stream(form, stream, recording)
        if form != 'numbers' and form != 'numbers[]':  # Decoders of a test cannot be found by a new process.
            check_stream(form, pickle.loads(pickle.dumps(stream)), recording)


def test_types_of_streams(case):
    form, _, dataset = case
    stream = dataset.stream(0, 'x')
    assert isinstance(stream, bags.types.Stream)
    assert isinstance(stream, bags.Video) == (form in PICTURES[:4])
    assert isinstance(stream, bags.Audio) == (form in SOUNDS[:3])
    for view in (
        dataset[::-1][::-1],
        dataset.rename({'x': 'y'}).rename({'y': 'x'}),
        dataset.select(range(4)),
    ):
        assert len(view.stream(0, 'x')) == len(stream)


def test_lengths_and_durations(case):
    _, recordings, dataset = case
    counts = [0 if each is None else each.count for each in recordings]
    assert dataset.lengths('x', of='elements').tolist() == counts
    seconds = [np.nan if each is None else each.count / each.rate for each in recordings]
    np.testing.assert_allclose(dataset.durations('x'), seconds, rtol=0, atol=1e-9)
    assert dataset[::-1].durations('x')[0] == pytest.approx(seconds[-1])


def test_streams_of_one_rate_beside_another(case, tmp_path):
    form, recordings, dataset = case
    if form in PICTURES:
        slow = [Recording(20, 10.0, 2.0)]
    else:
        slow = [Recording(900, 4000.0, 2.0) if form in SOUNDS else Recording(9, 3.0, 2.0)]
    both = bags.concat([dataset, write(tmp_path / 'slow', form, slow)])
    np.testing.assert_allclose(both.durations('x')[-1], slow[0].count / slow[0].rate)
    check_stream(form, both.stream(4, 'x'), slow[0])
    check_stream(form, both.stream(0, 'x'), recordings[0])


@pytest.mark.parametrize('form', ['video', 'audio'])
def test_parts_of_linked_files(tmp_path, form):
    recording = Recording(30, 30.0) if form == 'video' else Recording(2000, 8000.0)
    dataset = linked(tmp_path / 'd', form, recording, tmp_path / 'file')
    stream = dataset.stream(0, 'x')
    assert len(stream) == recording.count
    first = expected_numbers(form, np.arange(7, 11))
    assert numbers_of('video' if form == 'video' else 'audio', stream[:4]) == first
    np.testing.assert_allclose(stream.times, recording.times, atol=1e-9)
    assert dataset.durations('x')[0] == pytest.approx(recording.count / recording.rate)
    assert dataset.lengths('x', of='elements').tolist() == [recording.count]
