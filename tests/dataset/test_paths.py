"""A path keeps its meaning after the working directory changes."""

import os
import pickle

import pytest

import bags


@pytest.fixture
def here_and_there(kit, tmp_path, monkeypatch):
    for number, name in enumerate(('here', 'there')):
        rows = [{'id': 100 * number + index} for index in range(9)]
        kit.fill(tmp_path / name / 'data', rows, {'id': 'int(8)'}, shard_length=2)
        with bags.bag.Writer(tmp_path / name / 'x.bag') as writer:
            writer.write(name)
    monkeypatch.chdir(tmp_path / 'here')
    return tmp_path


def test_a_relative_path_stays_where_it_was_opened(here_and_there, monkeypatch):
    reader = bags.open('data')
    assert reader[0] == {'id': 0}
    held = pickle.dumps(reader)
    monkeypatch.chdir(here_and_there / 'there')
    assert reader[8] == {'id': 8}
    assert pickle.loads(held)[8] == {'id': 8}


def test_one_dataset_has_one_repr(here_and_there):
    names = ['data', './data/', here_and_there / 'here' / 'data', f'file://{here_and_there}/here/data']
    assert len({repr(bags.open(name)) for name in names}) == 1
    assert repr(bags.open('../there/data')) != repr(bags.open('data'))


def test_writers_stay_where_they_were_opened(here_and_there, monkeypatch):
    spec = {'id': 'int(8)'}
    with bags.ShardedDatasetWriter('new', spec, shard_length=2) as writer, bags.bag.Writer('y.bag') as other:
        writer.append({'id': 0})
        other.write(b'record')
        monkeypatch.chdir(here_and_there / 'there')
        for index in range(1, 5):
            writer.append({'id': index})
    assert not os.path.exists('new')
    assert [row['id'] for row in bags.open(here_and_there / 'here' / 'new')] == list(range(5))
    assert not list(here_and_there.glob('*/limits.*'))


def test_bags_stay_where_they_were_opened(here_and_there, monkeypatch):
    reader = bags.bag.Reader('x.bag')
    held = pickle.dumps(reader)
    monkeypatch.chdir(here_and_there / 'there')
    assert reader.file_spec == 'x.bag'
    assert reader.read() == pickle.loads(held).read() == [b'here']
    assert bags.bag.Reader('x.bag').read() == [b'there']
