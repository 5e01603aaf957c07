"""`drop`, `rename` and `update`: what they refuse, what they keep, and what a saved edit writes."""

import hashlib
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

import bags

SPEC = {
    'id': 'int(8)', 'text': 'utf8', 'note': 'utf8?', 'vector': 'array(float32,100)', 'image': 'jpeg',
    'sound': 'flac', 'clip': 'mp4', 'state': 'float(4)[]', 'stamps': 'float(8)[]',
}  # fmt: skip
METADATA = {'robot': 'arm', 'fields': {'state': {'times': 'stamps', 'unit': 'rad'}, 'clip': {'rate': 5}}}
COUNT = 8


def row(index):
    chance = np.random.default_rng(index)
    frames = chance.integers(0, 255, (3, 32, 32, 3), np.uint8)
    return {
        'id': index,
        'text': f'text {index}',
        'note': None,
        'vector': np.full(100, index, np.float32),
        'image': frames[0],
        'sound': (chance.integers(-99, 99, (800, 1)).astype(np.int16), 8000),
        'clip': frames,
        'state': np.arange(index, dtype=np.float32),
        'stamps': np.arange(index) / 10,
    }


def hashes(root):
    paths = [path for path in sorted(Path(root).rglob('*')) if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.fixture(scope='module')
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp('edited') / 'source'
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=3, metadata=METADATA) as writer:
        for index in range(COUNT):
            writer.append(row(index))
    before = hashes(path)
    yield path
    assert hashes(path) == before


@pytest.fixture
def source(path):
    with bags.open(path) as source:
        yield source


REFUSED = {
    'no index': (lambda d: d.drop([COUNT]), IndexError, 'out of range'),
    'not an index': (lambda d: d.drop(['3']), TypeError, 'integers'),
    'short mask': (lambda d: d.drop([True, False]), IndexError, 'drop: expected a mask'),
    'no such field': (lambda d: d.drop(fields='images'), KeyError, "no field 'images'"),
    'all fields': (lambda d: d.drop(fields=list(SPEC)), ValueError, 'at least one field to stay'),
    'nothing': (lambda d: d.drop(), TypeError, 'indices or fields'),
    'times of another': (lambda d: d.drop(fields='stamps'), ValueError, "has the times of 'state'"),
    'rename nothing': (lambda d: d.rename({'images': 'x'}), KeyError, "no field 'images'"),
    'rename to another': (lambda d: d.rename({'id': 'text'}), ValueError, "'text' .*both|both be 'text'"),
    'rename to two': (lambda d: d.rename({'id': 'x', 'text': 'x'}), ValueError, "both be 'x'"),
    'case only': (lambda d: d.rename({'id': 'Text'}), bags.SpecError, 'in more than case'),
    'no name': (lambda d: d.rename({'id': '../id'}), bags.SpecError, 'a letter or _'),
    'name of refs': (lambda d: d.rename({'id': 'refs'}), bags.SpecError, 'other than refs'),
    'no text': (lambda d: d.rename({'id': 3}), TypeError, "new name for field 'id'"),
    'no mapping': (lambda d: d.rename('id'), TypeError, 'expected a mapping'),
    'update no row': (lambda d: d.update({COUNT: {'id': 3}}), IndexError, 'out of range'),
    'update no field': (lambda d: d.update({1: {'idd': 3}}), KeyError, "no field 'idd'"),
    'wrong type': (lambda d: d.update({1: {'id': 'three'}}), bags.EncodeError, "field 'id'"),
    'missing value': (lambda d: d.update({1: {'text': None}}), bags.EncodeError, "field 'text'"),
    'wrong shape': (lambda d: d.update({1: {'vector': [1.0]}}), bags.EncodeError, "field 'vector'"),
    'no sequence': (lambda d: d.update({1: {'state': 3}}), bags.EncodeError, "field 'state'"),
    'no values': (lambda d: d.update({1: 3}), TypeError, 'mapping of fields for datapoint 1'),
    'no row': (lambda d: d.update([3]), TypeError, 'mapping of datapoints'),
    'a link': (
        lambda d: d.update({1: {'image': bags.Link('x.jpg')}}),
        TypeError,
        'only writers take links',
    ),
    'window': (
        lambda d: d.windows(every='state', state=bags.steps(0, 2), padding='drop').update(
            {0: {'state': [1]}}
        ),
        TypeError,
        'computed from windows',
    ),
}


@pytest.mark.parametrize('name', REFUSED)
def test_wrong_edits_are_refused(source, name):
    edit, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        edit(source)


def test_metadata_follows_names(source):
    view = source.rename({'state': 'observation.state', 'stamps': 'time'})
    facts = {'observation.state': {'times': 'time', 'unit': 'rad'}, 'clip': {'rate': 5}}
    assert view.metadata == {'robot': 'arm', 'fields': facts}
    windows = {'observation.state': bags.times(-0.1, 0.0)}
    expected = source.windows({'state': bags.times(-0.1, 0.0)}, every=0.1)
    found = view.windows(windows, every=0.1)
    assert len(found) == len(expected) > 0
    assert found.column('observation.state').tolist() == expected.column('state').tolist()
    assert found.rename({'observation.state': 's'})[3]['s'].tolist() == expected[3]['state'].tolist()
    assert list(view.schema) == [
        'id',
        'text',
        'note',
        'vector',
        'image',
        'sound',
        'clip',
        'observation.state',
        'time',
    ]
    assert source.drop(fields=['state', 'stamps']).metadata['fields'] == {'clip': {'rate': 5}}


def test_edits_of_windows(source):
    windows = source.windows(every='state', state=bags.steps(0, 2), padding='drop')
    edited = windows.rename({'text': 'label', 'state': 's'}).update({1: {'label': 'fixed'}}).drop([0])
    assert [each['label'] for each in edited] == ['fixed', *(each['text'] for each in windows)][0:1] + [
        each['text'] for each in windows
    ][2:]
    assert edited.column('s').tolist() == windows.column('state')[1:].tolist()


MEDIA = ('image', 'sound', 'clip')


@pytest.mark.parametrize('link', [False, MEDIA])
def test_media_keep_their_bytes(source, tmp_path, link):
    names = {'image': 'jpg', 'sound': 'flac', 'clip': 'video.front'}
    view = bags.join([source.drop(fields=MEDIA), source.select(fields=MEDIA).rename(names)])
    link = link and [names[name] for name in link]
    view.drop([2]).save(tmp_path / 'copy', link=link)
    with bags.open(tmp_path / 'copy', trust_links=True) as saved:
        for old, new in names.items():
            records = list(source.records(old))
            assert list(saved.records(new)) == records[:2] + records[3:]
            assert saved.file(3, new).read() == records[4]


def test_new_values_are_written_once(source, tmp_path):
    view = source.update(
        {0: {'vector': np.ones(100, np.float32)}, -1: {'image': row(3)['image'], 'note': 'dark'}}
    )
    done = view.save(tmp_path / 'view', link=('vector', *MEDIA))
    values = {
        name: os.path.getsize(tmp_path / 'view/000000' / f'{name}.values') for name in ('vector', *MEDIA)
    }
    assert values == {'vector': 408, 'image': len(view.records('image')[7]) + 8, 'sound': 0, 'clip': 0}
    assert len(done.parents) == 3
    with bags.open(tmp_path / 'view', trust_links=True) as saved:
        assert saved[0]['vector'].tolist() == [1.0] * 100
        assert saved[7]['note'] == 'dark'
        assert saved.records('image')[7] == source.records('image')[3]
        # An edit of the saved edit needs both.
        changed = saved.update({1: {'vector': np.zeros(100, np.float32)}})
        changed.save(tmp_path / 'again', link=['vector'])
    with bags.open(tmp_path / 'again', trust_links=True) as again:
        assert [again[index]['vector'][0] for index in range(3)] == [1, 0, 2]
    assert bags.verify(tmp_path / 'again', decode=True, trust_links=True) == []


def test_names_of_other_libraries_can_be_changed_one_by_one(tmp_path):
    with bags.DatasetWriter(tmp_path / 'd', {'a': 'int', 'b': 'int'}) as writer:
        writer.append({'a': 1, 'b': 2})
    (tmp_path / 'd/spec.json').write_text('{"a": "int", "A": "int"}')
    os.rename(tmp_path / 'd/b.bag', tmp_path / 'd/A.bag')
    with bags.open(tmp_path / 'd') as source:
        assert source.rename({'A': 'c'})[0] == {'a': 1, 'c': 2}
        with pytest.raises(bags.SpecError, match='in more than case'):
            source.rename({'A': 'x', 'a': 'X'})


def test_a_key_index_finds_new_names_and_values(tmp_path, path):
    shutil.copytree(path, tmp_path / 'd')
    bags.create_index(tmp_path / 'd', 'id')
    with bags.open(tmp_path / 'd') as source:
        view = source.drop([0]).rename({'id': 'key'}).update({1: {'key': 70}, 4: {'key': 7}})
        assert view.find_many('key', [1, 70, 7]).tolist() == [0, 1, 4]
        with pytest.raises(KeyError):
            view.find('key', 2)


def test_edits_of_an_empty_dataset_and_of_one_that_is_written(tmp_path):
    writer = bags.DatasetWriter(tmp_path / 'd', {'id': 'int(8)', 'x': 'bytes'})
    with bags.open(tmp_path / 'd') as empty:
        view = empty.drop([]).rename({'id': 'key'}).update({})
        assert list(view) == []
        assert view.unfinished
        assert list(view.unique('key')) == []
        assert list(view.split({'a': 1.0})['a']) == []
        assert view.diff(view).is_empty
        with pytest.raises(IndexError):
            view.update({0: {'key': 3}})
        view.save(tmp_path / 'copy')
    writer.append({'id': 3, 'x': bytes(300)}, flush=True)
    with bags.open(tmp_path / 'd') as growing:
        view = growing.update({0: {'id': 4}}).rename({'id': 'key'})
        writer.append({'id': 5, 'x': bytes(300)}, flush=True)
        assert view.column('key').tolist() == [4]
        view.save(tmp_path / 'linked', link=['x'])
    writer.close()
    with bags.open(tmp_path / 'linked') as saved:
        assert [each['key'] for each in saved] == [4]


def test_arrow_and_pickles_of_edits(source):
    pyarrow = pytest.importorskip('pyarrow')
    view = source.rename({'text': 'label', 'image': 'jpg'}).update(
        {2: {'label': 'fixed', 'jpg': row(0)['image']}}
    )
    table = pyarrow.table(pickle.loads(pickle.dumps(view)))
    assert table.column('label').to_pylist()[1:4] == ['text 1', 'fixed', 'text 3']
    assert table.column('jpg').to_pylist() == list(view.records('jpg'))
    paths = view.select([1]).to_arrow('jpg', media='location').read_all().column('jpg').to_pylist()
    assert paths[0]['path'].endswith('image.bag')
    with pytest.raises(
        ValueError, match="records in memory cannot be read by their location: pass media='bytes'"
    ):
        view.to_arrow('jpg', media='location').read_all()


def test_windows_and_frames_of_new_values(source):
    states = np.arange(9, dtype=np.float32)
    frames = row(30)['clip'][::-1]
    view = source.update({2: {'state': states, 'stamps': np.arange(9) / 10, 'clip': frames}})
    windows = view.windows(every='state', state=bags.steps(0, 3), padding='drop')
    rows = windows.origins().datapoint
    assert (rows == 2).sum() == 7
    assert windows[int(np.flatnonzero(rows == 2)[4])]['state'].tolist() == [4, 5, 6]
    assert view.lengths('state').tolist() == [0, 1, 9, 3, 4, 5, 6, 7]
    assert view[2, {'state': [0, 8]}]['state'].tolist() == [0, 8]
    shown = view[2, {'clip': bags.frames(1, 3)}]['clip']
    assert np.abs(shown.astype(int) - view[2]['clip'][1:3]).max() == 0
    assert view.file(2, 'clip').read() == view.records('clip')[2]
    batch = view.batch([2, 3], {'state': range(1, 3)})['state']
    assert [each.tolist() for each in batch] == [[1, 2], [1, 2]]


def test_an_epoch_in_processes(source):
    view = source.rename({'text': 'label'}).update({2: {'label': 'fixed'}}).drop([0])
    found = [
        label
        for batch in bags.Loader(view, 2, fields='label', shuffle=False, workers=1, processes=True)
        for label in batch['label']
    ]
    assert found == ['text 1', 'fixed', *(f'text {index}' for index in range(3, COUNT))]


def test_a_new_value_may_be_first(source, tmp_path):
    """A copy stores a field as the dataset below does, also if its first record is a new one."""
    with bags.DatasetWriter(tmp_path / 'd', {'x': 'bytes'}, compression={'x': 'dictionary'}) as writer:
        for index in range(200):
            writer.append({'x': b'a text like others, number %d' % index})
    with bags.open(tmp_path / 'd') as compressed:
        bags.copy(compressed.update({0: {'x': b'new'}}), tmp_path / 'copy')
    assert (tmp_path / 'copy/000000/x.bagz').exists()
    with bags.open(tmp_path / 'copy') as copy:
        assert [each['x'] for each in copy[:2]] == [b'new', b'a text like others, number 1']


def test_edits_are_told_apart(source):
    views = [
        source, source.rename({'text': 'label'}), source.update({2: {'text': 'a'}}), source.drop([1]),
        source.update({2: {'text': 'b'}}), source.update({3: {'text': 'a'}}), source.drop(fields='text'),
    ]  # fmt: skip
    assert len({view.fingerprint for view in views}) == len({repr(view) for view in views}) == len(views)
    for view in views:
        assert pickle.loads(pickle.dumps(view)).fingerprint == view.fingerprint
    again = source.update({2: {'text': 'c'}}).update({2: {'text': 'b'}})
    assert again.fingerprint == views[4].fingerprint
