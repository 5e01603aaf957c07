"""Types of the user whose values are sequences, read in parts: frames, lengths and windows."""

from __future__ import annotations

import numpy as np
import pytest

import bags

SHAPE = (5, 3)
"""Points of a sweep, and their coordinates."""
SIZE = 4 * 15


class Cloud:
    """Sweeps of points, read from the file of a record when they are asked for."""

    def __init__(self, record, asked):
        self.record, self.asked = record, asked

    def __len__(self):
        with self.record.open() as file:
            return file.seek(0, 2) // SIZE

    def __getitem__(self, numbers):
        self.asked.append(numbers.tolist())
        found = np.empty((len(numbers), *SHAPE), np.float32)
        with self.record.open() as file:
            for position, number in enumerate(numbers.tolist()):
                file.seek(number * SIZE)
                found[position] = np.frombuffer(file.read(SIZE), np.float32).reshape(SHAPE)
        return found


class DecodeCloud:
    lazy = True

    def __init__(self):
        self.asked = []

    def __call__(self, record, *args):
        return Cloud(record, self.asked)

    frames = __call__


ENCODERS = {**bags.encoders, 'cloud': lambda value, *args: np.ascontiguousarray(value, np.float32).tobytes()}


def sweeps(count, seed):
    return np.random.default_rng(seed).random((count, *SHAPE), np.float32)


COUNTS = [6, 1, 9]
ROWS = [{'id': row, 'scan': sweeps(count, row)} for row, count in enumerate(COUNTS)]


@pytest.fixture
def path(tmp_path):
    with bags.DatasetWriter(
        tmp_path / 'd',
        {'id': 'int', 'scan': 'cloud(5)'},
        ENCODERS,
        metadata={'fields': {'scan': {'rate': 10}}},
    ) as writer:
        for row in ROWS:
            writer.append(row)
    return tmp_path / 'd'


@pytest.fixture
def decode():
    return DecodeCloud()


@pytest.fixture
def dataset(path, decode):
    return bags.open(path, {**bags.decoders, 'cloud': decode})


@pytest.mark.parametrize(
    'frames',
    [
        bags.frames(2, 5),
        bags.frames(0, None, 2),
        bags.frames(-2, None),
        bags.frames([3, 0, 3, -1]),
        bags.frames(4, 4),
    ],
    ids=repr,
)
def test_frames_of_a_value(dataset, decode, frames):
    found = dataset[0, {'scan': frames}]['scan']
    expected = ROWS[0]['scan'][frames.key]
    assert found.dtype == np.float32
    assert np.array_equal(found, expected)
    assert [len(asked) for asked in decode.asked] == [len(expected)]
    (same,) = dataset.batch([0], {'scan': frames})['scan']
    assert np.array_equal(same, expected)


def test_lengths_are_those_of_values(dataset, decode):
    assert dataset.lengths('scan').tolist() == COUNTS
    assert dataset[1:].lengths('scan').tolist() == COUNTS[1:]
    assert decode.asked == []


def test_values_are_lazy(dataset, decode):
    scan = dataset[2]['scan']
    assert len(scan) == 9
    assert decode.asked == []
    assert np.array_equal(scan[np.array([8])], ROWS[2]['scan'][[8]])


def test_windows_of_consecutive_frames(dataset, decode):
    windows = dataset.windows(every='scan', scan=bags.steps(0, 3), padding='drop')
    assert len(windows) == 4 + 0 + 7
    assert windows.spec == {'id': 'int', 'scan': 'array', 'scan_is_pad': 'array(bool,3)'}
    assert decode.asked == []
    assert np.array_equal(windows[3]['scan'], ROWS[0]['scan'][3:6])
    batch = windows.batch([0, 5, 10])
    assert batch['id'].tolist() == [0, 2, 2]
    assert np.array_equal(batch['scan'], [ROWS[0]['scan'][:3], ROWS[2]['scan'][1:4], ROWS[2]['scan'][6:9]])
    assert decode.asked[1:] == [[0, 1, 2], [1, 2, 3, 6, 7, 8]]


class Timed(Cloud):
    """Sweeps with times of their own."""

    @property
    def timestamps(self):
        return np.arange(len(self)) / 10 + 0.001 * np.arange(len(self)) ** 2


class InMemory(Timed):
    """Sweeps in memory, of which consecutive ones are returned as a view."""

    def __init__(self, record, asked):
        super().__init__(record, asked)
        self.sweeps = super().__getitem__(np.arange(len(self)))

    def __getitem__(self, numbers):
        are_consecutive = len(numbers) and (np.diff(numbers) == 1).all()
        return self.sweeps[numbers[0] : numbers[-1] + 1] if are_consecutive else self.sweeps[numbers]


@pytest.mark.parametrize('type', [Timed, InMemory])
@pytest.mark.parametrize('places', [[3, 4, 4], [4], [0, 4, 14]])
def test_a_write_to_a_window_changes_no_other(tmp_path, type, places):
    with bags.DatasetWriter(tmp_path / 'd', {'scan': 'cloud'}, ENCODERS) as writer:
        for row in ROWS:
            writer.append({'scan': row['scan']})
    decode = DecodeCloud()
    decode.frames = lambda record, *_: type(record, [])
    dataset = bags.open(tmp_path / 'd', {**bags.decoders, 'cloud': decode})
    windows = dataset.windows(every='scan', scan=bags.between(-0.15, 0.15))
    expected = [windows[place]['scan'].copy() for place in places]
    assert {len(frames) for frames in expected} <= {2, 3}
    for _ in range(2):
        batch = windows.batch(places)['scan']
        for frames, right in zip(batch, expected, strict=True):
            assert np.array_equal(frames, right)
            frames[:] = -1


def test_windows_by_steps_and_by_times(dataset):
    windows = dataset.windows(every='scan', scan=bags.steps(-1, 1))
    assert len(windows) == sum(COUNTS)
    assert np.array_equal(windows[0]['scan'], ROWS[0]['scan'][[0, 0]])
    assert windows[0]['scan_is_pad'].tolist() == [True, False]
    assert np.array_equal(windows[5]['scan'], ROWS[0]['scan'][[4, 5]])
    timed = dataset.windows(every=0.2, scan=bags.times(0.0, 0.1))
    assert np.array_equal(timed[1]['scan'], ROWS[0]['scan'][[2, 3]])


def test_windows_become_datapoints_of_a_copy(dataset, tmp_path):
    bags.copy(dataset.windows(every='scan', scan=bags.steps(0, 2), padding='drop'), tmp_path / 'copy')
    with bags.open(tmp_path / 'copy') as copied:
        assert np.array_equal(copied[4]['scan'], ROWS[0]['scan'][4:6])


@pytest.mark.parametrize('writer', [bags.DatasetWriter, bags.ShardedDatasetWriter])
def test_frames_of_a_sequence_of_values(tmp_path, decode, writer):
    parts = [sweeps(4, 1), sweeps(2, 2), sweeps(3, 3)]
    with writer(tmp_path / 'd', {'scans': 'cloud[]?'}, ENCODERS) as opened:
        opened.append({'scans': parts})
        opened.append({'scans': None})
        opened.append({'scans': []})
    dataset = bags.open(tmp_path / 'd', {**bags.decoders, 'cloud': decode})
    assert dataset.lengths('scans').tolist() == [3, 0, 0]  # Values, as of mp4[].
    whole = np.concatenate(parts)
    assert np.array_equal(dataset[0, {'scans': bags.frames(3, 8)}]['scans'], whole[3:8])
    assert decode.asked == [[3], [0, 1], [0, 1]]
    assert dataset[1, {'scans': bags.frames(0, 2)}]['scans'] is None
    assert len(dataset[2, {'scans': bags.frames(0, 2)}]['scans']) == 0
    assert np.array_equal(
        dataset.windows(every='scans', scans=bags.steps(0, 4), padding='drop')[5]['scans'], whole[5:]
    )
    assert np.array_equal(dataset[0, {'scans': range(1, 2)}]['scans'][0][np.array([1])], parts[1][1:])


def test_frames_that_do_not_exist(dataset):
    with pytest.raises(IndexError, match=r'cloud\(5\): frame 6 out of range \[-6, 6\)'):
        dataset[0, {'scan': bags.frames([6])}]


def test_a_type_without_frames(path):
    dataset = bags.open(path, {**bags.decoders, 'cloud': lambda data, *_: np.frombuffer(data)})
    with pytest.raises(TypeError, match=r"field 'scan' of type cloud\(5\) has no frames"):
        dataset[0, {'scan': bags.frames(2)}]
    with pytest.raises(TypeError, match=r'field .scan. of type cloud\(5\): expected a sequence, a video'):
        dataset.windows(every='scan', scan=bags.steps(0, 2), padding='drop')
    with pytest.raises(TypeError, match='expected a sequence field'):
        dataset.lengths('scan')


@pytest.mark.parametrize(
    ('frames', 'message'),
    [
        (lambda record, *_: [1, 2, 3], 'TypeError: '),
        (lambda record, *_: np.arange(6.0)[:, None].tolist(), 'TypeError: '),
        (lambda record, *_: 1 // 0, 'ZeroDivisionError: '),
        (lambda record, *_: Short(record), 'expected an array of 2 frames, got ndarray'),
    ],
)
def test_errors_name_the_record(path, frames, message):
    decode = DecodeCloud()
    decode.frames = frames
    dataset = bags.open(path, {**bags.decoders, 'cloud': decode})
    with pytest.raises(bags.DecodeError, match='record 2') as error:
        dataset[2, {'scan': bags.frames(0, 2)}]
    assert message in str(error.value)
    assert "field 'scan' of type cloud(5)" in str(error.value)


class Short(Cloud):
    def __init__(self, record):
        super().__init__(record, [])

    def __getitem__(self, numbers):
        return super().__getitem__(numbers)[1:]


def test_missing_frames_are_an_error_when_they_are_needed(path):
    class Cut(Cloud):
        truncation = ValueError('the scanner lost its power')

    decode = DecodeCloud()
    decode.frames = lambda record, *_: Cut(record, [])
    dataset = bags.open(path, {**bags.decoders, 'cloud': decode})
    assert np.array_equal(dataset[0, {'scan': bags.frames(4, 6)}]['scan'], ROWS[0]['scan'][4:])
    for frames in (bags.frames(4, 7), bags.frames(-1, None)):
        with pytest.raises(bags.DecodeError, match='record 0: the scanner lost its power'):
            dataset[0, {'scan': frames}]
