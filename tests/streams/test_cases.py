import numpy as np
import pytest

import bags
from tests.streams.cases import CASES, TABLE, write_case

BY_NAME = {case['name']: case for case in CASES}
FIELDS = [(case['name'], field) for case in CASES for field in case['expected']]


def nan_for_none(seconds):
    return np.array([np.nan if value is None else value for value in seconds], float)


@pytest.fixture(scope='module')
def opened(tmp_path_factory):
    """Opens the dataset of a case, which is written once."""
    known = {}

    def opened(name):
        if name not in known:
            path = tmp_path_factory.mktemp('case') / 'dataset'
            write_case(BY_NAME[name], path)
            known[name] = bags.open(path)
        return known[name]

    yield opened
    for dataset in known.values():
        dataset.close()


@pytest.mark.filterwarnings('ignore:field .* are not used:RuntimeWarning')
@pytest.mark.parametrize(('name', 'field'), FIELDS)
def test_case(opened, name, field):
    dataset, expected = opened(name), BY_NAME[name]['expected'][field]
    if 'error' in expected:
        with pytest.raises(ValueError, match=expected['error']):
            dataset.durations(field)
        return
    assert dataset.lengths(field, of='elements').tolist() == expected['elements']
    if expected.get('has_times') is False:
        with pytest.raises(ValueError, match='are unknown'):
            dataset.durations(field)
        return
    seconds = nan_for_none(expected['seconds'])
    np.testing.assert_allclose(dataset.durations(field), seconds, atol=1e-6)
    for row, ends in enumerate(expected.get('times', ())):
        stream = dataset.stream(row, field)
        assert (stream is None) == (expected['seconds'][row] is None)
        if ends is not None:
            assert len(stream) == expected['elements'][row]
            assert stream.times[[0, -1]] == pytest.approx(ends, abs=1e-6)
            assert stream.duration == pytest.approx(seconds[row], abs=1e-6)
    for row, time, element in expected.get('at', ()):
        stream = dataset.stream(row, field)
        found, wanted = stream.at(time), stream[element]
        same = str(found) == str(wanted) if isinstance(found, str | tuple) else np.array_equal(found, wanted)
        assert same, (time, element)
    for row, start, stop, first, end in expected.get('between', ()):
        stream = dataset.stream(row, field)
        assert len(stream.between(start, stop)) == len(stream[first:end]) == end - first


CONDITIONS = [(case['name'], text) for case in CASES for text, _ in case.get('conditions', ())]


@pytest.mark.parametrize(('name', 'text'), CONDITIONS)
def test_condition(opened, name, text):
    assert opened(name).filter(text).indices.tolist() == dict(BY_NAME[name]['conditions'])[text]


@pytest.mark.parametrize('names', TABLE['concat'], ids=' and '.join)
def test_concat(opened, names):
    joined = bags.concat([opened(name) for name in names], fields='union')
    for field in BY_NAME[names[0]]['expected']:
        parts = [
            BY_NAME[name]['expected'].get(field)
            or {'elements': [0] * len(BY_NAME[name]['rows']), 'seconds': [None] * len(BY_NAME[name]['rows'])}
            for name in names
        ]
        lengths = [count for part in parts for count in part['elements']]
        assert joined.lengths(field, of='elements').tolist() == lengths
        if all('seconds' in part for part in parts):
            seconds = nan_for_none([value for part in parts for value in part['seconds']])
            np.testing.assert_allclose(joined.durations(field), seconds, atol=1e-6)
