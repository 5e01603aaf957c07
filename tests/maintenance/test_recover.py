"""`bags.recover` closes what a killed writer left open."""

import os
import subprocess
import sys

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


@pytest.mark.parametrize('files', [[], ['spec.json.7.new']])
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
