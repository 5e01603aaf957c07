"""Windows of a stream are those of a search through its elements, however the field stores it."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import bags
from tests.streams.forms import (
    DECODERS,
    ENCODERS,
    FORMS,
    SOUNDS,
    Recording,
    expected_numbers,
    facts_of,
    numbers_of,
    value_of,
)

pytest.importorskip('av')

EPSILON = 1e-6


def write(path, form, recordings):
    """Writes recordings with marks at some times, which are the anchors of windows."""
    spec = {'x': f'{form}?', 'mark': 'int(4)[]', 'mark_time': 'float(8)[]'}
    facts = facts_of(form, recordings[0]) | {'rate': recordings[0].rate}
    metadata = {'fields': {'x': facts, 'mark': {'times': 'mark_time'}}}
    marks = []
    with bags.DatasetWriter(path, spec, metadata=metadata, encoders=ENCODERS) as writer:
        for number, recording in enumerate(recordings):
            chance = np.random.default_rng(number)
            begin, end = recording.times[0], recording.times[-1]
            times = np.unique(np.round(chance.uniform(begin - 0.2, end + 0.2, 6), 3))
            times = np.unique(np.append(times, [begin, recording.times[recording.count // 2]]))
            marks.append(times)
            value = value_of(form, recording)
            writer.append({'x': value, 'mark': np.arange(len(times)), 'mark_time': times})
    return bags.open(path, decoders=DECODERS), marks


@pytest.fixture(scope='module')
def datasets(tmp_path_factory):
    found = {}

    def get(form):
        if form not in found:
            if form in SOUNDS:
                recordings = [Recording(4000, 8000.0, 0.25), Recording(900, 8000.0, 0.25)]
            else:
                recordings = [Recording(30, 30.0, 0.25), Recording(8, 30.0, 0.25)]
            path = tmp_path_factory.mktemp('windows') / 'd'
            found[form] = recordings, *write(path, form, recordings)
        return found[form]

    return get


def between(recording, moment, span):
    """Returns the numbers of elements of a window, with those outside the recording."""
    count = round((span.stop - span.start) * recording.rate)
    position = (moment + span.start - recording.times[0]) * recording.rate
    slack = EPSILON * recording.rate
    first = np.floor(position + slack) + 1 if span.closed == 'right' else np.ceil(position - slack)
    return int(first) + np.arange(count)


def at_times(recording, moment, span):
    numbers = []
    for offset in span.offsets:
        distances = np.abs(recording.times - (moment + offset))
        numbers.append(int(np.flatnonzero(distances <= distances.min() + EPSILON)[0]))
    wanted = moment + np.array(span.offsets)
    outside = (wanted < recording.times[0] - EPSILON) | (wanted > recording.times[-1] + EPSILON)
    return np.array(numbers), outside


@st.composite
def cases(draw):
    form = draw(st.sampled_from(FORMS))
    scale = 0.01 if form in SOUNDS else 1.0
    start = scale * draw(st.integers(-12, 8)) / 20
    length = scale * draw(st.integers(2, 12)) / 20
    if draw(st.booleans()):
        span = bags.between(start, start + length, closed=draw(st.sampled_from(['left', 'right'])))
    else:
        span = bags.times(start, start + length, rate=draw(st.sampled_from([7, 30])) / scale)
    return form, span, draw(st.sampled_from(['edge', 'zero', 'drop'])), draw(st.booleans())


def check(datasets, case):
    form, span, padding, is_view = case
    recordings, dataset, marks = datasets(form)
    if is_view:
        dataset, recordings, marks = dataset[::-1], recordings[::-1], marks[::-1]
    view = dataset.windows(every='mark', x=span, padding=padding)
    expected = []
    for row, (recording, times) in enumerate(zip(recordings, marks, strict=True)):
        for anchor, moment in enumerate(times.tolist()):
            if isinstance(span, bags.types.Between):
                numbers = between(recording, moment, span)
                is_pad = (numbers < 0) | (numbers >= recording.count)
            else:
                numbers, is_pad = at_times(recording, moment, span)
            if padding != 'drop' or not is_pad.any():
                expected.append((row, anchor, numbers.clip(0, recording.count - 1), is_pad))
    _, rows, anchors, _, _ = view.origins()
    sources = range(len(recordings))[::-1] if is_view else range(len(recordings))
    expected_origins = [(sources[row], anchor) for row, anchor, _, _ in expected]
    assert list(zip(rows.tolist(), anchors.tolist(), strict=True)) == expected_origins
    batch = view.batch(range(len(view)), ('x', 'x_is_pad'))
    for place, (_, _, numbers, is_pad) in enumerate(expected):
        assert np.array_equal(batch['x_is_pad'][place], is_pad)
        found, wanted = (
            np.array(numbers_of(form, batch['x'][place])),
            np.array(expected_numbers(form, numbers)),
        )
        shown = ~is_pad if padding == 'zero' else np.ones(len(is_pad), bool)
        assert np.array_equal(found[shown], wanted[shown])
        if padding == 'zero' and is_pad.any():
            assert not np.asarray(batch['x'][place])[is_pad].any()
    if len(view):
        one = view[len(view) // 2, ('x', 'x_is_pad')]
        assert np.array_equal(one['x'], batch['x'][len(view) // 2])


@hypothesis.given(case=cases())
@hypothesis.settings(max_examples=150, deadline=None)
def test_windows_are_those_of_a_search(datasets, case):
    check(datasets, case)


@pytest.mark.campaign
@hypothesis.given(case=cases())
@hypothesis.settings(max_examples=10_000, deadline=None)
def test_many_windows_are_those_of_a_search(datasets, case):
    check(datasets, case)
