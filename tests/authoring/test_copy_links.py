"""Views that are saved as links: equal to the view, small, and whole again when they are copied."""

import os
import shutil

import numpy as np
import pytest

import bags
from bags.bag import Reader

SPEC = {
    'id': 'int(8)', 'text': 'utf8', 'vector': 'array(float32,100)', 'blob': 'bytes?', 'parts': 'bytes[]',
    'packed': 'bytes', 'trained': 'utf8',
}  # fmt: skip
HEAVY = ('vector', 'blob', 'parts', 'packed', 'trained')
COUNT = 150


def row(index):
    chance = np.random.default_rng(index)
    return {
        'id': index,
        'text': f'text {index}',
        'vector': chance.standard_normal(100, np.float32),
        'blob': None if index % 7 == 3 else chance.bytes(1000 * (index % 4)),
        'parts': [chance.bytes(400) for _ in range(index % 4)],
        'packed': f'number {index}, '.encode() * 300 + chance.bytes(2000),
        'trained': f'a text like others, number {index}, with {chance.bytes(600).hex()}',
    }


def plain(found):
    return [
        {name: value.tolist() if hasattr(value, 'tolist') else value for name, value in each.items()}
        for each in found
    ]


@pytest.fixture(params=[{}, {'checksum': True}], ids=['plain', 'checksums'])
def base(tmp_path, request):
    """A dataset of several shards, with compressed fields."""
    with bags.ShardedDatasetWriter(
        tmp_path / 'base',
        SPEC,
        shard_length=70,
        compression={'packed': 3, 'trained': 'dictionary'},
        **request.param,
    ) as writer:
        for index in range(COUNT):
            writer.append(row(index))
    return tmp_path


VIEWS = {
    'all': lambda found: found,
    'some': lambda found: found.select(np.random.default_rng(0).permutation(COUNT)[:40]),
    'repeated': lambda found: found.select([5, 5, 6, 7, 5, 40, 41, 41]),
    'filtered': lambda found: found.filter(lambda each: each['id'] % 3 == 0, fields=['id']),
    'concat': lambda found: bags.concat([found.select(range(30, 40)), found]),
    'none': lambda found: found.select([]),
}


def check(path, view, **options):
    """Compares a dataset with a view, by rows, batches and files."""
    with bags.open(path, **options) as reader:
        expected = plain(view)
        assert plain(reader) == expected
        assert plain(reader[index] for index in range(len(reader))) == expected
        if expected:
            batch, other = reader.batch(range(len(view))), view.batch(range(len(view)))
            assert batch['vector'].tolist() == other['vector'].tolist()
            assert batch['trained'] == other['trained']
            assert [list(each) for each in batch['parts']] == [list(each) for each in other['parts']]
        for index in range(len(expected)):
            assert reader.file(index, 'packed').read() == expected[index]['packed']


def linked_fields(path):
    return {name.partition('.')[0] for name in os.listdir(path / '000000') if name.endswith('.links')}


@pytest.mark.parametrize('name', VIEWS)
def test_a_saved_view_equals_the_view(base, name):
    with bags.open(base / 'base') as dataset:
        view = VIEWS[name](dataset)
        done = view.save(base / 'view', link=HEAVY)
        assert done.datapoints == len(view)
        assert linked_fields(base / 'view') == set(HEAVY)
        check(base / 'view', view)
        # A link never leads to a link: a view of the view does not need it.
        with bags.open(base / 'view') as saved:
            saved.save(base / 'again', link=HEAVY)
            bags.copy(saved, base / 'whole')
        shutil.rmtree(base / 'view')
        check(base / 'again', view)
        assert bags.verify(base / 'again', decode=True) == []
        shutil.rmtree(base / 'again')
        assert not linked_fields(base / 'whole')
        check(base / 'whole', view)
    folders = [str(base / 'base' / f'{number:06}') for number in range(3)]
    assert set(done.parents) <= set(folders)
    assert done.parents == folders or name != 'all'


def test_only_heavy_fields_are_linked(base):
    with bags.open(base / 'base') as dataset:
        done = dataset.save(base / 'view')
        assert linked_fields(base / 'view') == set(HEAVY)
        assert done.size < 300 * COUNT
        assert not done.notes
        other = dataset.save(base / 'other', fields=['id', 'text'])
        assert not linked_fields(base / 'other')
        assert not other.parents
        assert other.notes == [
            'all records were copied: links are for fields with records of over 256 bytes on average'
        ]
    with bags.open(base / 'view') as view, bags.open(base / 'base') as dataset:
        ratio = view.size / dataset.size
        assert 0.9 < ratio < 1.2


@pytest.mark.parametrize('order', [('small', 'large'), ('large', 'small')])
@pytest.mark.parametrize(('sizes', 'is_linked'), [((20, 600), True), ((20, 440), False)])
def test_the_mean_is_that_of_all_bags(tmp_path, order, sizes, is_linked):
    spec = {'a': 'bytes', 'b': 'bytes'}
    for name, size in zip(('small', 'large'), sizes, strict=True):
        with bags.ShardedDatasetWriter(tmp_path / name, spec, shard_length=5) as writer:
            for _ in range(20):
                writer.append({'a': bytes(size), 'b': bytes(1000)})
    view = bags.concat([bags.open(tmp_path / name) for name in order])
    view.save(tmp_path / 'view')
    assert linked_fields(tmp_path / 'view') == ({'a', 'b'} if is_linked else {'b'})
    with bags.open(tmp_path / 'view') as saved:
        assert [*saved] == [*view]


def test_checksums_are_those_of_the_records(base):
    has_checksums = (base / 'base' / '000000' / 'refs.bag.xxh3').exists()
    with bags.open(base / 'base') as dataset:
        view = dataset.select(range(149, 3, -1))
        view.save(base / 'view')
        assert (base / 'view' / '000000' / 'packed.links.xxh3').exists() == has_checksums
        view.save(base / 'asked', checksum=True)
        check(base / 'asked', view, checksum=True)
        if has_checksums:
            check(base / 'view', view, checksum=True)
    path = base / 'base' / '000001' / 'packed.bagz'
    data = bytearray(path.read_bytes())
    data[30_000] ^= 1
    path.write_bytes(data)
    damage = bags.verify(base / 'asked')
    assert [(each.field, 'checksum' in each.detail) for each in damage] == [('packed', True)]


def test_resume_and_shards(base):
    with bags.open(base / 'base') as dataset:
        dataset.save(base / 'view', shard_length=13)
        dataset.save(base / 'part', shard_length=13)
        with pytest.raises(ValueError, match='made from another source: expected links'):
            dataset.save(base / 'part', link=['blob'], resume=True, shard_length=13)
        with bags.ShardedDatasetWriter(base / 'part', SPEC, resume=True) as writer:
            assert len(writer) == COUNT
        shutil.rmtree(base / 'part' / '000011')
        shutil.rmtree(base / 'part' / '000010')
        done = dataset.save(base / 'part', resume=True, shard_length=13)
        assert done.datapoints == COUNT
        check(base / 'view', dataset)
        check(base / 'part', dataset)


@pytest.mark.parametrize('overwrites', [0, 1])
def test_a_source_is_not_overwritten_by_links_to_it(tmp_path, overwrites):
    for name, size in (('first', 5), ('second', 5)):
        with bags.DatasetWriter(tmp_path / name, {'x': 'bytes'}) as writer:
            for index in range(size):
                writer.append({'x': f'{name} {index}'.encode() * 200})
    names = ['first', 'second']
    target = tmp_path / names[overwrites]
    with bags.concat([bags.open(tmp_path / name) for name in names]) as both:
        with pytest.raises(ValueError, match="cannot lead into the dataset that mode='overwrite' replaces"):
            both.save(target, mode='overwrite')
        both.save(tmp_path / 'view')
        with bags.open(tmp_path / 'view') as view:
            with pytest.raises(ValueError, match='cannot lead into'):
                view.save(target, mode='overwrite')
            view.save(tmp_path / 'view', mode='overwrite')
        expected = [each['x'] for each in both]
    assert [each['x'] for each in bags.open(tmp_path / 'view')] == expected
    assert sorted(os.listdir(tmp_path)) == ['first', 'second', 'view']


def test_joins_and_optional_fields(base):
    with bags.DatasetWriter(base / 'labels', {'label': 'utf8', 'mask': 'bytes?'}) as writer:
        for index in range(COUNT):
            writer.append({'label': f'label {index}', 'mask': None if index % 2 else bytes(500 + index)})
    view = bags.join([base / 'base', base / 'labels']).select(range(COUNT - 1, -1, -2))
    view.save(base / 'view')
    assert plain(bags.open(base / 'view')) == plain(view)


def test_windows_and_computed_fields_are_not_linked(base):
    with bags.open(base / 'base') as dataset:
        windows = dataset.windows(every='parts', parts=bags.steps(0, 2))
        with pytest.raises(ValueError, match=r"field 'parts' is computed when it is read"):
            windows.save(base / 'view', link=['parts'])
        with pytest.raises(KeyError, match="no field 'other' to link"):
            dataset.save(base / 'view', link=['other'])
        with pytest.raises(TypeError, match='link: expected True, or names of fields'):
            dataset.save(base / 'view', link='blob')
        with pytest.raises(ValueError, match='a field that is not linked'):
            dataset.save(base / 'view', link=['blob'], compression=['blob'])
    assert not (base / 'view').exists()


def test_what_cannot_be_linked_is_copied(base):
    with bags.open(base / 'base') as dataset:
        windows = dataset.windows(every='parts', parts=bags.steps(0, 2))
        windows.save(base / 'windows')
        assert linked_fields(base / 'windows') == {*HEAVY} - {'parts'}
        assert plain(bags.open(base / 'windows')) == plain(windows)
        dataset.save(base / 'compressed', compression=['blob'])
        assert linked_fields(base / 'compressed') == {*HEAVY} - {'blob'}
        assert (base / 'compressed' / '000000' / 'blob.bagz').exists()
        check(base / 'compressed', dataset)
        whole = dataset.save(base / 'whole', link=False)
        assert not linked_fields(base / 'whole')
        assert whole.parents == whole.notes == whole.trust_links == []
        done = dataset.select([]).save(base / 'empty')
        assert (done.datapoints, done.notes) == (0, [])
    shutil.rmtree(base / 'base')
    assert len(bags.open(base / 'whole')[3]['packed']) == len(row(3)['packed'])


def test_the_result_prints_the_folders_that_the_dataset_needs(base):
    with bags.open(base / 'base') as dataset:
        view = dataset[:100]
        beside = view.save(base / 'beside')
        (base / 'other').mkdir()
        away = view.save(base / 'other' / 'away')
        folders = [str(base / 'base' / name) for name in ('000000', '000001')]
        assert beside.parents == away.parents == folders
        assert (beside.trust_links, away.trust_links) == ([], [str(base / 'base')])
        assert str(beside).splitlines()[1:] == [f'needs {", ".join(folders)}']
        needs, trusted = f'needs {", ".join(folders)}', f"open with trust_links=['{base}/base']"
        assert str(away).splitlines()[1:] == [needs, trusted]
        check(base / 'beside', view)
        with (
            bags.open(base / 'other' / 'away') as saved,
            pytest.raises(PermissionError, match='trust_links='),
        ):
            saved[0]
        check(base / 'other' / 'away', view, trust_links=away.trust_links)


def test_a_parent_that_is_missing_or_changed(base):
    with bags.open(base / 'base') as dataset:
        dataset.save(base / 'view')
    os.rename(base / 'base', base / 'moved')
    with bags.open(base / 'view') as view:
        assert view[3, 'text']['text'] == 'text 3'
        with pytest.raises(bags.LinkError, match='got none'):
            view[3]
    os.rename(base / 'moved', base / 'base')
    with bags.open(base / 'view') as view:
        assert view[3]['id'] == 3
    # A bag that was appended to is longer, and is what it was.
    with bags.ShardedDatasetWriter(base / 'base', SPEC, resume=True, shard_length=200) as writer:
        writer.append(row(COUNT))
    with bags.open(base / 'view') as view:
        assert plain(view) == plain(row(index) for index in range(COUNT))
    # Another dataset in its place.
    shutil.rmtree(base / 'base')
    with bags.ShardedDatasetWriter(base / 'base', SPEC, shard_length=70) as writer:
        for index in range(COUNT):
            writer.append(row(index + 1))
    with bags.open(base / 'view') as view:
        for index in range(COUNT):
            with pytest.raises(bags.LinkError, match=r'base/00000\d/'):
                view[index]


def test_a_dictionary_that_is_missing_or_another(base):
    with bags.open(base / 'base') as dataset:
        dataset.save(base / 'view', link=['trained'])
    path = base / 'base' / '000000' / 'trained.zdict'
    data = path.read_bytes()
    for other in (None, data[:-1] + b'?'):
        path.unlink()
        if other is not None:
            path.write_bytes(other)
        with bags.open(base / 'view') as view, pytest.raises(bags.LinkError, match=r'trained\.zdict'):
            view[3]
        path.write_bytes(data)


def test_info_counts_linked_bytes_once(tmp_path):
    with bags.DatasetWriter(tmp_path / 'base', {'x': 'bytes', 'y': 'bytes'}) as writer:
        for index in range(10):
            writer.append({'x': bytes(1000 + index), 'y': b'1'})
    with bags.open(tmp_path / 'base') as dataset:
        dataset.select([3, 4, 3, 3, 9]).save(tmp_path / 'view', shard_length=2)
    found = bags.info(tmp_path / 'view')
    assert found.linked_bytes == found.fields['x'].linked_bytes == 1003 + 1004 + 1009
    assert found.fields['y'].linked_bytes == 0
    assert found.bytes < 1000
    assert found.bytes == sum(
        file.stat().st_size for file in (tmp_path / 'view').glob('*/*.*') if file.suffix not in ('.json', '')
    )
    assert found.fields['x'].record_bytes.max == 1009


def test_a_dataset_that_is_being_written(tmp_path):
    writer = bags.DatasetWriter(tmp_path / 'base', {'x': 'bytes'})
    for index in range(20):
        writer.append({'x': b'%d' % index * 300}, flush=True)
    with bags.open(tmp_path / 'base') as dataset:
        dataset.save(tmp_path / 'view')
    expected = [b'%d' % index * 300 for index in range(20)]
    assert [each['x'] for each in bags.open(tmp_path / 'view')] == expected
    writer.append({'x': b'more' * 300})
    writer.close()
    assert [each['x'] for each in bags.open(tmp_path / 'view')] == expected
    with Reader(tmp_path / 'view' / '000000' / 'x.files') as files:
        assert len(files) == 1


def test_unreadable_datapoints_can_be_skipped(tmp_path):
    with bags.DatasetWriter(tmp_path / 'base', {'x': 'bytes'}, compression=['x']) as writer:
        for index in range(20):
            writer.append({'x': np.random.default_rng(index).bytes(500)})
    path = tmp_path / 'base' / 'x.bagz'
    data = bytearray(path.read_bytes())
    data[5 * 520 + 100] ^= 1
    path.write_bytes(data)
    with bags.open(tmp_path / 'base') as dataset:
        done = dataset.save(tmp_path / 'view', link=['x'], on_error='skip')
    assert len(done.skipped) == 1
    assert len(list(bags.open(tmp_path / 'view'))) == 19
