"""A path keeps its meaning after the working directory changes."""

import os
import pickle
import shutil

import fsspec
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


class OtherPath:
    """A path object of another library: with `open` and a str, and without `__fspath__`."""

    def __init__(self, path):
        self.path = os.fspath(path)

    def __str__(self):
        return self.path

    def open(self, mode='r'):
        return open(self.path, mode)


def test_path_objects_of_other_libraries(here_and_there):
    path, out = (lambda name: OtherPath(here_and_there / 'here' / name)), here_and_there / 'out'
    assert bags.bag.Reader(path('x.bag'))[0] == b'here'
    assert len(bags.bag.Reader([path('x.bag'), path('x.bag')])) == 2
    with bags.bag.Writer(OtherPath(here_and_there / 'y.bag')) as writer:
        writer.write(b'y')
    for opens in (bags.open, bags.ShardedDatasetReader, lambda path: bags.join([path])):
        assert len(opens(path('data'))) == 9
    for number, write in enumerate([
        lambda target: bags.copy(path('data'), target),
        lambda target: bags.write([{'id': 1}], target, {'id': 'int(8)'}, workers=1),
        lambda target: bags.export(path('data'), target, format='webdataset', progress=False),
        lambda target: bags.convert(OtherPath(out / '2'), target, progress=False),
    ]):  # fmt: skip
        write(OtherPath(out / str(number)))
        assert os.listdir(out / str(number))
    assert bags.verify(path('data')) == [] == bags.verify(path('x.bag'))
    assert bags.info(path('data')).datapoints == 9
    assert bags.statistics(path('data'), progress=False)['id'].max == 8


def test_a_dataset_in_a_zip_is_read_through_a_file_system(tmp_path):
    bags.write([{'x': number} for number in range(3)], tmp_path / 'in/set', {'x': 'int'}, progress=False)
    path = shutil.make_archive(str(tmp_path / 'a'), 'zip', tmp_path / 'in')
    with pytest.raises(ValueError, match=r"or open a dataset in it with filesystem=.*'zip'"):
        bags.open(f'zip://set::{path}')
    with bags.open('set', filesystem=fsspec.filesystem('zip', fo=path)) as dataset:
        assert dataset.column('x').tolist() == [0, 1, 2]
        assert pickle.loads(pickle.dumps(dataset))[2] == {'x': 2}
