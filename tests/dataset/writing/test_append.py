"""A datapoint is appended as a whole or not at all, whatever fails."""

import io
import math
import random

import numpy as np
import pytest

import bags
from tests.dataset.writing.killed import leave_open
from tests.interrupts import InterruptedAt

SPEC = {
    'blob': 'bytes',
    'flag': 'bool',
    'id': 'int(2)',
    'note': 'utf8?',
    'score': 'float(4)',
    'size': 'uint(1)',
    'text': 'utf8',
    'tree': 'msgpack',
    'vec': 'array(float32,3)',
    'words': 'utf8[]',
}


def row(index):
    return {
        'blob': bytes([index % 256]) * 10,
        'flag': bool(index % 2),
        'id': index,
        'note': None,
        'score': float(index),
        'size': index % 256,
        'text': f'text {index}',
        'tree': {'index': index},
        'vec': [index, 0.5, 1],
        'words': [f'word {index}'] * (index % 4),
    }


def simple(row):
    return {**row, 'vec': row['vec'].tolist()}


def expected(index):
    return {**row(index), 'vec': [float(index), 0.5, 1.0]}


def check(path, indices):
    with bags.open(path) as reader:
        assert [simple(r) for r in reader] == [expected(index) for index in indices]


def failing(count, error):
    """Yields words, then raises."""
    for number in range(count):
        yield f'word {number}'
    raise error


WRONG = [
    ('id', 'x', TypeError),
    ('id', None, TypeError),
    ('id', 1.5, TypeError),
    ('id', True, TypeError),
    ('id', 2**15, ValueError),
    ('id', -(2**15) - 1, ValueError),
    ('id', 10**5000, ValueError),
    ('size', 256, ValueError),
    ('size', -1, ValueError),
    ('text', b'bytes', TypeError),
    ('text', 3, TypeError),
    ('text', None, TypeError),
    ('text', 'half \ud800', ValueError),
    ('note', 3, TypeError),
    ('note', '\udfff', ValueError),
    ('blob', 'text', TypeError),
    ('blob', 7, TypeError),
    ('flag', 1, TypeError),
    ('flag', 'yes', TypeError),
    ('score', 'x', TypeError),
    ('score', 1e39, ValueError),
    ('tree', object(), None),
    ('tree', {'a': object()}, None),
    ('tree', 2**70, None),
    ('vec', [1, 2], ValueError),
    ('vec', np.zeros(3), TypeError),
    ('vec', 'x', None),
    ('vec', None, None),
    ('words', None, None),
    ('words', 3, None),
    ('words', 'text', None),
    ('words', b'text', None),
    ('words', {'a': 'b'}, None),
    ('words', np.array(3), None),
    ('words', ['a', 'b', 3], TypeError),
    ('words', ['a', None], TypeError),
    ('words', ['a', 'b\ud800'], ValueError),
    ('words', [['a']], TypeError),
]


@pytest.mark.parametrize('flush', [None, True, False])
@pytest.mark.parametrize('compression', [(), tuple(SPEC)])
def test_values_that_do_not_fit(tmp_path, flush, compression):
    done = 0
    with bags.DatasetWriter(tmp_path / 'a', SPEC, compression=compression) as writer:
        for field, value, cause in WRONG:
            writer.append(row(done), flush)
            done += 1
            before = (len(writer), writer.size)
            with pytest.raises(bags.EncodeError) as caught:
                writer.append({**row(9), field: value}, flush)
            assert caught.value.field == field
            assert caught.value.type == SPEC[field]
            assert repr(field) in str(caught.value)
            if cause is not None:
                assert isinstance(caught.value.__cause__, cause)
            assert (len(writer), writer.size) == before
        writer.flush()
        check(tmp_path / 'a', range(done))
    check(tmp_path / 'a', range(done))


@pytest.mark.slow('compression1')
@pytest.mark.parametrize('compression', [(), tuple(SPEC)])
def test_failures_after_much_was_written(tmp_path, compression):
    """Items so large that buffers are written to disk before the item that fails."""
    chance = np.random.default_rng(0)
    large = [chance.bytes(1 << 20).hex() for _ in range(3)]
    with bags.DatasetWriter(tmp_path / 'a', SPEC, compression=compression) as writer:
        for index in range(4):
            writer.append(row(index))
            for count in (1, 11):
                with pytest.raises(bags.EncodeError, match="'words'"):
                    writer.append({**row(9), 'words': [*(large * 4)[:count], 3]})
                with pytest.raises(ZeroDivisionError):
                    writer.append({**row(9), 'words': failing(5, ZeroDivisionError())})
            assert len(writer) == index + 1
    check(tmp_path / 'a', range(4))
    with bags.DatasetWriter(tmp_path / 'a', SPEC, resume=True) as writer:
        writer.append(row(4))
    check(tmp_path / 'a', range(5))


def test_keys(tmp_path):
    with bags.DatasetWriter(tmp_path / 'a', SPEC) as writer:
        for name in SPEC:
            part = {key: value for key, value in row(0).items() if key != name}
            if name == 'note':
                writer.append(part)
                continue
            with pytest.raises(bags.EncodeError, match=f"'{name}'.*missing") as caught:
                writer.append(part)
            assert caught.value.field == name
        with pytest.raises(bags.EncodeError, match=r"'more'.*not in the spec") as caught:
            writer.append({**row(0), 'more': 1})
        assert caught.value.field == 'more'
        for wrong in (None, 3, 'text', [('id', 1)], {3: 4}):
            with pytest.raises((TypeError, bags.EncodeError)):
                writer.append(wrong)
        assert len(writer) == 1
    check(tmp_path / 'a', [0])


@pytest.mark.parametrize('place', [0, 1, 5, 200])
def test_a_users_encoder_that_fails(tmp_path, place):
    seen = []

    def encode(value):
        seen.append(value)
        if value == place:
            raise RuntimeError('no more')
        return str(value)[:1].encode() * 50_000

    with bags.DatasetWriter(tmp_path / 'a', {'x': 'mine[]', 'y': 'mine'}, {'mine': encode}) as writer:
        writer.append({'x': [-1], 'y': -2})
        with pytest.raises(bags.EncodeError, match=r"'x'.*RuntimeError: no more") as caught:
            writer.append({'x': iter(range(1000)), 'y': -2})
        assert isinstance(caught.value.__cause__, RuntimeError)
        with pytest.raises(bags.EncodeError, match="'y'"):
            writer.append({'x': [-3], 'y': place})
        writer.append({'x': [-4], 'y': -5})
    assert max(seen) == place  # Values after the one that fails are never read.
    with bags.open(tmp_path / 'a', {'mine': len}) as reader:
        assert list(reader) == [{'x': [50_000], 'y': 50_000}] * 2


@pytest.mark.parametrize('result', [None, 3, 'text', [1], object], ids=repr)
def test_encoders_that_return_no_bytes(tmp_path, result):
    with bags.DatasetWriter(tmp_path / 'a', {'x': 'mine'}, {'mine': lambda value: result}) as writer:
        with pytest.raises(bags.EncodeError, match="'x'"):
            writer.append({'x': 1})
        assert len(writer) == 0


class Broken(io.BytesIO):
    """A file that is shorter than its announced size, or cannot be read."""

    def __init__(self, error):
        super().__init__(b'x' * 100)
        self.error = error

    def read(self, size=-1):
        if self.error is not None:
            raise self.error
        return b''


@pytest.mark.parametrize('compression', [(), ('x', 'y')])
@pytest.mark.parametrize('error', [None, OSError(5, 'broken disk')], ids=repr)
def test_files_that_fail(tmp_path, compression, error):
    made = []

    def encode(value):
        made.append(Broken(error) if value == 'bad' else io.BytesIO(value.encode()))
        return made[-1]

    spec = {'x': 'mine', 'y': 'mine[]'}
    with bags.DatasetWriter(tmp_path / 'a', spec, {'mine': encode}, compression=compression) as writer:
        writer.append({'x': 'one', 'y': ['two', 'three']})
        for bad in ({'x': 'bad', 'y': []}, {'x': 'one', 'y': ['two', 'bad', 'three']}):
            with pytest.raises((bags.EncodeError, OSError)):
                writer.append(bad)
            assert len(writer) == 1
        writer.append({'x': 'four', 'y': []})
    with bags.open(tmp_path / 'a', {'mine': bytes.decode}) as reader:
        assert list(reader) == [{'x': 'one', 'y': ['two', 'three']}, {'x': 'four', 'y': []}]
    assert all(file.closed for file in made)


def test_special_floats_are_kept(tmp_path):
    with bags.DatasetWriter(tmp_path / 'a', {'x': 'float(8)'}) as writer:
        for value in (math.inf, -math.inf, math.nan, -0.0):
            writer.append({'x': value})
    with bags.open(tmp_path / 'a') as reader:
        assert [str(r['x']) for r in reader] == ['inf', '-inf', 'nan', '-0.0']


@pytest.mark.slow('append', 'append and flush')
@pytest.mark.parametrize('call', ['append', 'append and flush', 'flush', 'close'])
def test_ctrl_c_at_any_line_leaves_whole_datapoints(tmp_path, call):
    spec = {'id': 'int(8)', 'text': 'utf8', 'words': 'utf8[]'}

    def make(index):
        return {'id': index, 'text': f'text {index}', 'words': ['x' * index] * (index % 4)}

    for line in range(1, 2000):
        writer = bags.DatasetWriter(tmp_path / str(line), spec, compression=['text'])
        for index in range(2):
            writer.append(make(index), False)
        with InterruptedAt(line, '/bags/dataset/') as interrupted:  # tests/bag does the same for bags.
            if call.startswith('append'):
                writer.append(make(2), call == 'append and flush')
            else:
                getattr(writer, call)()
        if not interrupted.happened:
            break
        if not writer.closed:
            try:
                assert len(writer) in (2, 3)
                assert writer.append(make(3)) == len(writer) - 1
                writer.close()
            except (OSError, ValueError):  # `close` was interrupted.
                assert call == 'close'
                leave_open(writer)
                del writer
        with bags.DatasetWriter(tmp_path / str(line), spec, resume=True) as writer:
            writer.append(make(4))
        with bags.open(tmp_path / str(line)) as reader:
            found = list(reader)
        numbers = [row['id'] for row in found]
        assert found == [make(number) for number in numbers]
        assert numbers[-1] == 4
        if call != 'close':
            assert numbers in ([0, 1, 3, 4], [0, 1, 2, 3, 4])
    else:
        pytest.fail('the call did not come to its end')


# Full disks.


DISK = {'id': 'int(8)', 'text': 'utf8', 'words': 'utf8[]'}


def disk_row(index):
    chance = random.Random(index)
    return {
        'id': index,
        'text': chance.randbytes(700).hex(),
        'words': [chance.randbytes(99).hex()] * (index % 4),
    }


@pytest.mark.slow(all_but='4096-*')
@pytest.mark.parametrize('kind', ['single', 'sharded'])
@pytest.mark.parametrize('flush', [None, True, False])
@pytest.mark.parametrize('compression', [(), ('text', 'words')])
@pytest.mark.parametrize('leave', [0, 4096, 20_000])
def test_a_full_disk(small_disk, kit, kind, flush, compression, leave):
    options = {'compression': compression}
    make = bags.DatasetWriter
    if kind == 'sharded':
        make, options = bags.ShardedDatasetWriter, {**options, 'shard_length': 5}
    path, ballast = small_disk / 'a', small_disk / 'ballast'
    writer = make(path, DISK, **options)
    done = 0
    for _ in range(3):
        writer.append(disk_row(done), True)
        done += 1
    for _ in range(2):
        kit.fill_up(ballast, leave)
        with pytest.raises(OSError) as caught:  # noqa: PT012 - which append fails is not known
            for _ in range(300):
                assert writer.append(disk_row(done), flush) == done
                done += 1
            writer.flush()
        assert caught.value.errno == 28
        assert len(writer) == done
        with bags.open(path) as reader:  # All flushed datapoints are there, and perhaps more, each whole.
            assert list(reader) == [disk_row(index) for index in range(len(reader))]
            assert len(reader) >= 3
        ballast.unlink()
        for _ in range(3):  # After space is freed, the writer continues.
            assert writer.append(disk_row(done), flush) == done
            done += 1
        writer.flush()
        with bags.open(path) as reader:
            assert list(reader) == [disk_row(index) for index in range(done)]
    writer.close()
    with make(path, DISK, resume=True, **options) as writer:
        assert writer.append(disk_row(done)) == done
    with bags.open(path) as reader:
        assert list(reader) == [disk_row(index) for index in range(done + 1)]


@pytest.mark.parametrize('kind', ['single', 'sharded'])
@pytest.mark.parametrize('how', ['retry', 'resume', 'with'])
def test_a_disk_that_is_full_at_close(small_disk, kit, kind, how):
    make = bags.DatasetWriter if kind == 'single' else bags.ShardedDatasetWriter
    path, ballast = small_disk / 'a', small_disk / 'ballast'
    rows = [{'id': index, 'words': ['x'] * 3} for index in range(3000)]
    spec = {'id': 'int(8)', 'words': 'utf8[]'}
    writer = make(path, spec)
    for row in rows:
        writer.append(row)
    writer.flush()
    kit.fill_up(ballast)
    if how == 'with':
        with pytest.raises(OSError, match='space'), writer:
            pass
    else:
        with pytest.raises(OSError, match='space'):
            writer.close()
        with pytest.raises(OSError, match='space'):
            writer.close()
    with bags.open(path) as reader:
        assert list(reader) == rows
    ballast.unlink()
    if how == 'retry':
        writer.close()
    else:
        leave_open(writer)
        del writer
        with make(path, spec, resume=True) as writer:
            assert len(writer) == len(rows)
            writer.append(rows[0])
            rows.append(rows[0])
    with bags.open(path) as reader:
        assert list(reader) == rows
    assert not list(small_disk.rglob('limits.*'))
    assert not list(small_disk.rglob('*.new'))


def test_a_disk_that_is_full_at_the_start(small_disk, kit):
    kit.fill_up(small_disk / 'ballast')
    with pytest.raises(OSError, match='space'):
        bags.DatasetWriter(small_disk / 'a', DISK)
    (small_disk / 'ballast').unlink()
    with bags.DatasetWriter(small_disk / 'a', DISK, resume=True) as writer:
        writer.append(disk_row(1))
    with bags.open(small_disk / 'a') as reader:
        assert list(reader) == [disk_row(1)]
