"""`bags.recover(…, keep_readable=True)`: folders whose files were cut off keep what can be read."""

import os
import shutil

import numpy as np
import pytest

import bags

SPEC = {'id': 'int(8)', 'x': 'array(float32,3)', 'words': 'utf8[]?', 'meta': 'json'}
COUNT = 200


def row(index):
    return {
        'id': index,
        'x': np.full(3, index, 'f4'),
        'words': None if index % 4 == 1 else [*['word', ''][: index % 3], str(index)],
        'meta': {'number': index, 'text': 'x' * (index % 7)},
    }


def write(path, sharded=True, **options):
    options = {'metadata': {'robot': 7}, **({'shard_length': COUNT // 2} if sharded else {}), **options}
    with (bags.ShardedDatasetWriter if sharded else bags.DatasetWriter)(path, SPEC, **options) as writer:
        for index in range(COUNT):
            writer.append(row(index))
    return path


def cut(file, share):
    """Cuts off the end of a file."""
    os.truncate(file, int(file.stat().st_size * share))


def equal(found, index):
    return found['id'] == index and all(
        (found[name] == value).all() if name == 'x' else found[name] == value
        for name, value in row(index).items()
    )


CASES = {
    'one size': ('x.bag', {}),
    'one size, checksums': ('x.bag', {'checksum': True}),
    'refs': ('refs.bag', {}),
    'refs, checksums': ('refs.bag', {'checksum': True}),
    'checksums': ('words.bag', {'checksum': True}),
    'checksums, zstd': ('words.bagz', {'checksum': True, 'compression': ['words']}),
    'frames': ('meta.bagz', {'compression': ['meta']}),
}


@pytest.mark.parametrize('share', [0.03, 0.4, 0.97, 0.999], ids=str)
@pytest.mark.parametrize('case', CASES)
def test_the_readable_datapoints_are_kept(tmp_path, case, share):
    name, options = CASES[case]
    path = write(tmp_path / 'd', **options)
    whole = (path / '000000' / name).stat().st_size
    records = bags.bag.Reader(path / '000000' / name, compression='none').read()
    cut(path / '000000' / name, share)
    if case != 'refs, checksums':
        with pytest.raises((bags.CorruptError, ValueError)):
            list(bags.open(path))
    (first, second) = bags.recover(path, keep_readable=True)
    assert (second.action, second.kept, second.lost) == ('nothing', 100, [])
    there = (path / '000000' / name).stat().st_size if first.action == 'left' else int(whole * share)
    readable = int(np.searchsorted(np.cumsum([len(record) for record in records]), there, 'right'))
    assert (first.action, first.kept + len(first.lost)) == ('kept', 100 if 'refs' not in case else first.kept)
    dataset = bags.open(path)
    kept = dataset.column('id').tolist()
    assert kept == [index for index in range(COUNT) if index not in first.lost and index in kept]
    assert all(equal(found, found['id']) for found in dataset)
    assert bags.verify(path, notes=False) == []
    assert dataset.metadata == {'robot': 7}
    assert bags.info(path).checksums == options.get('checksum', False)
    if name != 'words.bag' and name != 'words.bagz':
        assert first.kept == min(readable, 100)
    else:  # Datapoints without words do not need them.
        assert first.kept >= readable * 100 // len(records)
    if first.lost:
        assert f'lost {len(first.lost)}: ' in first.detail
    assert [each.action for each in bags.recover(path, keep_readable=True)] == ['nothing', 'nothing']


def test_a_whole_dataset_stays_as_it_is(tmp_path):
    for sharded in (True, False):
        path = write(tmp_path / str(sharded), sharded, compression=['words'])
        before = {file: (file.read_bytes(), file.stat().st_ino) for file in path.rglob('*.*')}
        assert {each.action for each in bags.recover(path, keep_readable=True)} == {'nothing'}
        assert {file: (file.read_bytes(), file.stat().st_ino) for file in path.rglob('*.*')} == before


@pytest.mark.parametrize('count', [1, 3, 8, 13, 400, 799])
@pytest.mark.parametrize('type', ['utf8', 'json', 'jpeg', 'array', 'zstd'])
def test_some_limits_may_be_cut_off(tmp_path, type, count):
    values = {
        'utf8': [f'text {index} ' * (index % 5) for index in range(1, 101)],
        'json': [{'x': 'y' * (index % 9), 'n': index} for index in range(100)],
        'jpeg': [np.full((8, 8 + index % 5, 3), index, np.uint8) for index in range(100)],
        'array': [np.full(index % 6, index) for index in range(100)],
        'zstd': [f'text {index} ' * (index % 5) for index in range(1, 101)],
    }[type]
    spec = {'id': 'int(8)', 'x': type.replace('zstd', 'utf8')}
    with bags.DatasetWriter(tmp_path / 'd', spec, compression=['x'] * (type == 'zstd')) as writer:
        for index, value in enumerate(values):
            writer.append({'id': index, 'x': value})
    expected = bags.open(tmp_path / 'd', raw=True).column('x')
    expected = list(map(bytes, expected))
    (file,) = (tmp_path / 'd').glob('x.bag*')
    os.truncate(file, file.stat().st_size - count)
    (done,) = bags.recover(tmp_path / 'd', keep_readable=True)
    known = (800 - count) // 8
    if not known:
        assert done.action == 'left'
        return
    assert (done.action, done.kept, done.lost) == ('kept', known, list(range(known, 100)))
    assert list(map(bytes, bags.open(tmp_path / 'd', raw=True).column('x'))) == expected[:known]


@pytest.mark.parametrize('compression', [(), ['x']], ids=['plain', 'zstd'])
@pytest.mark.parametrize('type', ['utf8', 'bytes'])
def test_the_first_records_may_be_empty(tmp_path, type, compression):
    """Limits of zero look like the end of a record, except behind a zstd frame."""
    values = ['', '', *(f'text {index} ' * (index % 4) for index in range(28))]
    values = values if type == 'utf8' else [value.encode() for value in values]
    with bags.DatasetWriter(tmp_path / 'whole', {'x': type}, compression=compression) as writer:
        for value in values:
            writer.append({'x': value})
    (file,) = (tmp_path / 'whole').glob('x.bag*')
    for count in (1, 7, 8, 100, 217, *range(224, 242), 255):
        path = tmp_path / str(count)
        shutil.copytree(tmp_path / 'whole', path)
        os.truncate(path / file.name, file.stat().st_size - count)
        (done,) = bags.recover(path, keep_readable=True)
        known = max(0, 240 - count) // 8
        if compression and known:
            assert (done.action, done.kept) == ('kept', known)
            assert bags.open(path).column('x') == values[:known]
        else:
            assert done.action == 'left'


def test_records_that_cannot_be_told_apart_are_left(tmp_path):
    for compression in ((), ['words']):
        path = write(tmp_path / str(len(compression)), sharded=False, compression=compression)
        (file,) = path.glob('words.bag*')
        cut(file, 0.1)  # Of the records too: their limits take more space.
        before = {file: file.read_bytes() for file in path.iterdir()}
        (done,) = bags.recover(path, keep_readable=True)
        # Those without words are readable, and are a quarter.
        assert (done.action, done.kept) == ('kept', COUNT // 4)
        assert [found['id'] for found in bags.open(path)] == list(range(1, COUNT, 4))
        assert before[path / 'spec.json'] == (path / 'spec.json').read_bytes()
    with bags.DatasetWriter(tmp_path / 'texts', {'text': 'utf8'}) as writer:
        writer.append({'text': 'one'})
        writer.append({'text': 'two'})
    cut(tmp_path / 'texts' / 'text.bag', 0.5)
    data = (tmp_path / 'texts' / 'text.bag').read_bytes()
    (done,) = bags.recover(tmp_path / 'texts', keep_readable=True)
    assert done.action == 'left'
    assert 'none of 2 datapoints can be read: text: ' in done.detail
    assert (tmp_path / 'texts' / 'text.bag').read_bytes() == data


def test_several_files_may_be_cut(tmp_path):
    path = write(tmp_path / 'd', sharded=False)
    cut(path / 'x.bag', 0.5)
    cut(path / 'id.bag', 0.3)
    os.truncate(path / 'refs.bag', 100 * 32 + 11)
    bags.recover(path, keep_readable=True)
    dataset = bags.open(path)
    assert 50 < len(dataset) < 140
    assert all(equal(found, index) for index, found in enumerate(dataset))


def test_without_the_option_a_cut_folder_is_refused(tmp_path):
    path = write(tmp_path / 'd', sharded=False)
    cut(path / 'refs.bag', 0.5)
    with pytest.raises(bags.CorruptError, match=r'refs\.bag'):
        bags.recover(path)


@pytest.mark.parametrize('name', ['blob.links', 'blob.files', 'blob.values', 'id.bag'])
def test_linked_fields_are_left_as_they_are(tmp_path, name):
    (tmp_path / 'raw').write_bytes(bytes(100))
    with bags.DatasetWriter(
        tmp_path / 'd', {'id': 'int(8)', 'blob': 'bytes'}, linked_fields=['blob']
    ) as writer:
        for index in range(9):
            writer.append({'id': index, 'blob': bags.Link(tmp_path / 'raw', index, 5) if index % 2 else b'x'})
    os.truncate(tmp_path / 'd' / name, (tmp_path / 'd' / name).stat().st_size // 2)
    before = {path.name: path.read_bytes() for path in (tmp_path / 'd').iterdir()}
    with pytest.raises(ValueError, match="field 'blob' is linked: keep_readable cannot write it"):
        bags.recover(tmp_path / 'd', keep_readable=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / 'd').iterdir()} == before


def test_checksums_of_metadata_alone_mean_that_all_have_them(tmp_path):
    path = tmp_path / 'x'
    with bags.DatasetWriter(path, {'a': 'int(8)'}, metadata={'robot': 7}, checksum=True) as writer:
        writer.append({'a': 1})
    for file in path.iterdir():
        if file.name not in ('spec.json', 'metadata.json', 'metadata.json.xxh3'):
            file.unlink()
    assert bags.recover(path)[0].kept == 0
    assert bags.verify(path) == []
    assert (path / 'refs.bag.xxh3').exists()
