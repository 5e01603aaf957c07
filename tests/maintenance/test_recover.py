"""`bags.recover` closes what a killed writer left open."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest

import bags

KILLED = """
import os, sys, bags
path = sys.argv[1]
writer = bags.ShardedDatasetWriter(f'{path}/dataset', {'id': 'int(8)'}, shard_length=10)
for index in range(25):
    writer.append({'id': index})
writer.flush()
bag = bags.bag.Writer(f'{path}/texts.bag')
for index in range(7):
    bag.write('x' * index)
bag.flush()
os._exit(0)
"""


@pytest.fixture
def killed(kit, tmp_path):
    kit.python(KILLED, str(tmp_path))
    return tmp_path


def test_statement_closes_a_dataset(killed):
    bags.recover(killed / 'dataset')
    assert not any(
        name.startswith('limits.') for _, _, names in os.walk(killed / 'dataset') for name in names
    )
    with bags.open(killed / 'dataset') as dataset:
        assert [row['id'] for row in dataset] == list(range(25))


def test_result(killed):
    with open(killed / 'dataset' / '000002' / 'id.bag', 'ab') as file:
        file.write(b'half a record')
    done = bags.recover(killed / 'dataset')
    kept = [('nothing', 10), ('nothing', 10), ('closed', 5), ('closed', 25)]
    assert [(each.action, each.kept) for each in done] == kept
    assert (done[3].path, done[3].dropped) == (str(killed / 'dataset'), 0)
    assert (done[2].dropped, done[2].bytes_dropped) == (0, 13)
    assert (
        str(done[2])
        == f'{killed}/dataset/000002: closed, with 5 datapoints; dropped 13 bytes of what was being written'
    )
    assert {each.action for each in bags.recover(killed / 'dataset')} == {'nothing'}


def test_bag(killed):
    (done,) = bags.recover(killed / 'texts.bag')
    assert (done.action, done.kept) == ('closed', 7)
    assert not (killed / 'limits.texts.bag').exists()
    assert list(bags.bag.Reader(killed / 'texts.bag')) == [b'x' * index for index in range(7)]


def test_separate_limits_stay(kit):
    (done,) = bags.recover(kit.GOLDEN / 'bagz-separate.bagz')
    assert done.action == 'left'


def test_writer_at_work(tmp_path):
    writer = bags.DatasetWriter(tmp_path / 'd', {'id': 'int(8)'})
    writer.append({'id': 1}, flush=True)
    with pytest.raises(BlockingIOError):
        bags.recover(tmp_path / 'd')
    writer.close()


def test_a_writer_that_was_killed_before_it_made_the_refs(tmp_path):
    path = tmp_path / 'x'
    code = f'import bags, os; writer = bags.DatasetWriter({str(path)!r}, {{"id": "int"}}); os._exit(0)'
    subprocess.run([sys.executable, '-c', code], check=True)
    for name in ('refs.bag', 'id.bag', 'limits.id.bag'):  # Created after the limits of the refs.
        (path / name).unlink()
    (done,) = bags.recover(path)
    assert done.action == 'closed'
    assert not bags.verify(path)
    with bags.open(path) as dataset:
        assert len(dataset) == 0


@pytest.mark.parametrize(
    'files',
    [
        [],
        ['spec.json.7.new'],
        ['metadata.json'],  # It is written before the spec.
        ['metadata.json', 'metadata.json.xxh3.7.new'],
        ['metadata.json', 'metadata.json.xxh3', 'spec.json.7.new'],
    ],
)
def test_a_shard_that_was_begun_without_a_spec_is_removed(tmp_path, files):
    path, shard = tmp_path / 'x', tmp_path / 'x/000002'
    with bags.ShardedDatasetWriter(path, {'id': 'int(8)'}, shard_length=2) as writer:
        for index in range(4):
            writer.append({'id': index})
    shard.mkdir()
    for name in files:
        (shard / name).write_bytes(b'{')
    assert bags.open(path).unfinished
    assert [(done.path, done.action) for done in bags.recover(path)][-1] == (str(shard), 'removed')
    assert not shard.exists()
    dataset = bags.open(path)
    assert not dataset.unfinished
    assert not bags.info(path).unfinished
    assert [row['id'] for row in dataset] == [0, 1, 2, 3]


ENCODERS = {**bags.encoders, 'code': lambda value, size: value.zfill(int(size)).encode()}


def leave_open(path, **spec):
    """Leaves an episode open in which no plain field is set."""
    with (
        contextlib.suppress(RuntimeError),
        bags.ShardedDatasetWriter(path, {**spec, 'w': 'utf8[]'}, ENCODERS) as writer,
        writer.begin() as episode,
    ):
        episode.append({'w': 'x'})
        raise RuntimeError


@pytest.mark.parametrize(
    ('field_type', 'value'),
    [
        ('int', 5),
        ('int(8)', 5),
        ('uint(2)', 5),
        ('float(4)', 1.5),
        ('array(float32,7)', np.arange(7, dtype=np.float32)),
        ('array(uint8,2,2)', np.ones((2, 2), np.uint8)),
        ('image(rgb)', np.zeros((2, 2, 3), np.uint8)),
        ('jpeg(95)', np.zeros((8, 8, 3), np.uint8)),
        ('png', np.ones((2, 2, 3), np.uint8)),
        ('json', {'a': [1]}),
        ('utf8', 'x'),
        ('int(8)?', 5),
        ('int(8)?', None),
        ('array(float32,7)?', None),
    ],
)
def test_values_for_an_open_episode_have_the_type_of_their_field(field_type, value, tmp_path):
    leave_open(tmp_path / 'd', value=field_type)
    done = bags.recover(tmp_path / 'd', partial_values={'value': value})[0]
    assert (done.partial, done.unset) == (0, [])
    with bags.open(tmp_path / 'd') as dataset:
        row = dataset[0]
    assert row['w'] == ['x']
    if isinstance(value, np.ndarray):
        assert row['value'].dtype == value.dtype
        np.testing.assert_array_equal(row['value'], value)
    else:
        assert row['value'] == value
    assert bags.verify(tmp_path / 'd', decode=True) == []


def test_the_value_of_an_open_episode_is_a_file(tmp_path):
    pytest.importorskip('av')
    leave_open(tmp_path / 'd', clip='mp4(10)', film='video')
    frames = np.zeros((5, 32, 32, 3), np.uint8)
    with bags.DatasetWriter(tmp_path / 'made', {'film': 'mp4(10)'}) as writer:
        writer.append({'film': frames})
    (tmp_path / 'film.mp4').write_bytes(bags.open(tmp_path / 'made', raw=True)[0]['film'])
    bags.recover(tmp_path / 'd', partial_values={'clip': frames, 'film': tmp_path / 'film.mp4'})
    with bags.open(tmp_path / 'd') as dataset:
        row = dataset[0]
        assert len(row['clip']) == len(row['film']) == 5


def test_a_wrong_value_for_an_open_episode_does_not_keep_another_value(tmp_path):
    path = tmp_path / 'd'
    leave_open(path, blob='bytes', number='int(8)')
    large = bytes(20 << 20)  # Written without buffering.
    with pytest.raises(bags.EncodeError, match=r"field 'number' of type int\(8\): .*expected an integer"):
        bags.recover(path, partial_values={'blob': large, 'number': 'four'})
    bags.recover(path, partial_values={'blob': b'right', 'number': 4})
    with bags.open(path) as dataset:
        assert (len(dataset), dataset[0]) == (1, {'blob': b'right', 'number': 4, 'w': ['x']})


def test_values_of_a_type_without_encoder_are_encoded_by_a_writer(tmp_path):
    path, spec = tmp_path / 'd', {'code': 'code(4)', 'w': 'utf8[]'}
    leave_open(path, code='code(4)')
    with pytest.raises(
        bags.EncodeError, match=r"field 'code' of type code\(4\): .*encoders= and partial_values="
    ):
        bags.recover(path, partial_values={'code': '7'})
    # The first shard is closed with the value, as the second has another field.
    with bags.ShardedDatasetWriter(
        path, {**spec, 'added': 'utf8?'}, ENCODERS, resume=True, partial_values={'code': '7'}
    ):
        pass
    assert [bytes(row['code']) for row in bags.open(path, raw=True)] == [b'0007']
