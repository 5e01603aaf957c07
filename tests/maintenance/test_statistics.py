"""Statistics compared with those of numpy, stored beside the data, and normalization with them."""

import json
import pickle
import re
import shutil

import numpy as np
import pytest
from fsspec.implementations.zip import ZipFileSystem

import bags

SPEC = {
    'flag': 'bool',
    'id': 'int(8)',
    'maybe': 'float(4)?',
    'offset': 'array(float32,3)',
    'state': 'array(float32,2,3)[]',
    'text': 'utf8',
    'wide': 'array(float64,600)',
}
COUNT = 700


def make(index):
    chance = np.random.default_rng(index)
    return {
        'flag': index % 3 == 0,
        'id': index * index - 5000,
        'maybe': None if index % 4 else index / 7,
        'offset': (1e6 + chance.standard_normal(3) * [0.5, 2, 30]).astype('f4'),
        'state': chance.exponential(2, (index % 5, 2, 3)).astype('f4'),
        'text': 'x',
        'wide': chance.standard_normal(600),
    }


@pytest.fixture(scope='module', params=[False, True])
def path(request, tmp_path_factory):
    path = tmp_path_factory.mktemp('statistics') / 'x'
    kind = bags.ShardedDatasetWriter if request.param else bags.DatasetWriter
    options = {'shard_length': 200} if request.param else {}
    with kind(path, SPEC, **options) as writer:
        for index in range(COUNT):
            writer.append(make(index))
    return path


def columns():
    rows = [make(index) for index in range(COUNT)]
    found = {name: np.stack([row[name] for row in rows]) for name in ('flag', 'id', 'offset', 'wide')}
    found['maybe'] = np.array([row['maybe'] for row in rows if row['maybe'] is not None], 'f4')
    found['state'] = np.concatenate([row['state'] for row in rows])
    return found


def check(found, values):
    wide = values.astype(np.float64)
    assert np.array_equal(found.count, np.full(values.shape[1:], len(values)))
    assert np.array_equal(found.min, wide.min(0))
    assert np.array_equal(found.max, wide.max(0))
    np.testing.assert_allclose(found.mean, wide.mean(0), rtol=1e-12, atol=1e-13)
    # With a large offset, numpy itself is only as exact as its own mean.
    exact = np.sqrt(((wide - wide.mean(0, dtype=np.longdouble)) ** 2).mean(0, dtype=np.longdouble))
    np.testing.assert_allclose(found.std, exact.astype(np.float64), rtol=1e-12)
    for wanted, got in found.quantiles.items():
        low = np.quantile(wide, wanted, axis=0, method='lower')
        high = np.quantile(wide, wanted, axis=0, method='higher')
        slack = found.quantile_error * np.maximum(abs(low - found.pivot), abs(high - found.pivot)) + 1e-9
        assert ((got >= low - slack) & (got <= high + slack)).all()
    if found.quantiles:
        assert np.array_equal(found.histogram.sum(-1), found.count)


@pytest.mark.slow(all_but='True-3')
@pytest.mark.parametrize('workers', [1, 3])
def test_statistics_are_those_of_numpy(path, workers, monkeypatch):
    monkeypatch.setattr('bags.maintenance.numeric_fields.VALUE_CHUNK_BYTES', 1 << 12)
    found = bags.statistics(bags.open(path), workers=workers)
    assert list(found) == [name for name in SPEC if name != 'text']
    for name, values in columns().items():
        check(found[name], values)
    assert found['wide'].quantiles == {}
    once = bags.statistics(bags.open(path), 'state', workers=2)['state']
    assert np.array_equal(once.std, found['state'].std)


def test_statistics_are_kept(path):
    before = {file: file.stat().st_mtime_ns for file in path.rglob('*')}
    first = bags.statistics(path, ['id', 'state'])
    assert {file: file.stat().st_mtime_ns for file in path.rglob('*')} == before
    assert bags.statistics(path, ['id', 'state'], keep=True)['id'].mean == first['id'].mean
    files = list(path.rglob('statistics.json'))
    assert len(files) == 1
    before = files[0].stat().st_mtime_ns
    again = bags.statistics(path, 'state')
    assert bags.statistics(path, 'state', keep=True)['state'].min.tolist() == again['state'].min.tolist()
    assert files[0].stat().st_mtime_ns == before
    assert np.array_equal(again['state'].quantiles[0.5], first['state'].quantiles[0.5])
    assert np.array_equal(again['state'].histogram, first['state'].histogram)
    assert again['state'].mean.shape == (2, 3)
    with bags.open(path) as reader:
        assert len(reader) == COUNT
    assert list(bags.verify(path)) == []


def test_stale_statistics(tmp_path):
    for length in (3, 5):
        with bags.DatasetWriter(tmp_path / 'x', {'a': 'float(8)'}, resume=True) as writer:
            for index in range(len(writer), length):
                writer.append({'a': index})
        assert bags.statistics(tmp_path / 'x', keep=True)['a'].mean == (length - 1) / 2


def test_statistics_and_index_after_one_shard_is_replaced(tmp_path):
    spec = {'a': 'float(8)', 'key': 'int(8)'}
    with bags.ShardedDatasetWriter(tmp_path / 'x', spec, shard_length=10) as writer:
        for index in range(100):
            writer.append({'a': index % 10, 'key': index})
    assert bags.statistics(tmp_path / 'x', keep=True)['a'].mean == 4.5
    bags.create_index(tmp_path / 'x', 'key')
    with bags.DatasetWriter(tmp_path / 'x/000003', spec, mode='overwrite') as writer:
        for index in range(10):
            writer.append({'a': 104.5, 'key': 1000 + index})
    assert bags.statistics(tmp_path / 'x')['a'].mean == 14.5
    with pytest.raises(FileNotFoundError, match=r'no index .*create_index writes it'):
        bags.open(tmp_path / 'x').find('key', 1004)
    bags.create_index(tmp_path / 'x', 'key')
    assert bags.open(tmp_path / 'x').find('key', 1004) == 34


def test_values_that_are_no_numbers(tmp_path):
    with bags.DatasetWriter(tmp_path / 'x', {'a': 'float(4)', 'b': 'float(4)[]'}) as writer:
        for value in [1.0, float('nan'), 3.0, float('inf'), -2.0]:
            writer.append({'a': value, 'b': []})
    found = bags.statistics(tmp_path / 'x')
    assert (found['a'].count, found['a'].nans, found['a'].min, found['a'].max) == (4, 1, -2.0, np.inf)
    assert found['a'].infinities == 1
    heading, a, b = str(found).splitlines()
    assert heading.split()[:5] == ['field', 'values', 'NaN', 'inf', 'min']
    assert a.split()[:5] == ['a', '4', '1', '1', '-2']
    assert b.split()[:4] == ['b', '0', '0', '0']
    assert found['b'].count == 0
    assert np.isnan(found['b'].mean)
    with pytest.raises(ValueError, match="'b': expected values, got none"):
        bags.normalize(found, 'b')
    with pytest.raises(ValueError, match="'a': expected finite statistics"):
        bags.normalize(found, 'a')
    with bags.DatasetWriter(tmp_path / 'y', {'text': 'utf8'}) as writer:
        writer.append({'text': 'x'})
    with pytest.raises(TypeError, match='text'):
        bags.statistics(tmp_path / 'y', 'text')
    with pytest.raises(KeyError):
        bags.statistics(tmp_path / 'x', 'nothing')


def test_pictures(tmp_path):
    pytest.importorskip('PIL')
    chance = np.random.default_rng(0)
    pictures = [chance.integers(0, 256, (20 + index, 30, 3), np.uint8) for index in range(10)]
    with bags.DatasetWriter(tmp_path / 'x', {'image': 'png', 'more': 'png[]'}) as writer:
        for index, picture in enumerate(pictures):
            writer.append({'image': picture, 'more': pictures[:index]})
    found = bags.statistics(tmp_path / 'x')
    pixels = np.concatenate([picture.reshape(-1, 3) for picture in pictures]).astype(float)
    np.testing.assert_allclose(found['image'].mean, pixels.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found['image'].std, pixels.std(0), rtol=1e-12)
    assert found['image'].sampled == 10
    assert bags.statistics(tmp_path / 'x', 'image', samples=3)['image'].sampled == 3


def test_normalize(path):
    reader = bags.open(path)
    found = bags.statistics(reader)
    for mode in ('std', 'range'):
        change = pickle.loads(
            pickle.dumps(bags.normalize(found, ['offset', 'state', 'id', 'maybe'], mode=mode))
        )
        batch = reader.batch(range(COUNT), ('offset', 'state', 'text', 'maybe'))
        scaled = change(batch)
        assert scaled['offset'].dtype == np.float32
        if mode == 'std':
            np.testing.assert_allclose(scaled['offset'].std(0), 1, rtol=1e-4)
            np.testing.assert_allclose(scaled['state'].values.mean(0), 0, atol=1e-5)
        else:
            np.testing.assert_allclose(scaled['state'].values.min(0), -1, atol=1e-6)
        assert scaled['text'] == batch['text']
        assert scaled['maybe'][1] is None
        back = change.inverse(scaled)
        np.testing.assert_allclose(back['state'].values, batch['state'].values, rtol=1e-4, atol=1e-5)
    assert bags.Loader(reader, 8, fields='offset', transform=change, seed=0, epochs=1)
    with pytest.raises(KeyError, match='nothing'):
        bags.normalize(found, 'nothing')
    with pytest.raises(ValueError, match='mode'):
        bags.normalize(found, mode='x')
    with pytest.raises(ValueError, match='quantiles'):
        bags.normalize(found, 'wide', mode='quantiles')


@pytest.mark.parametrize('shape', [(4, 1), (4, 3), (1,), ()], ids=str)
def test_values_of_another_shape_are_not_normalized(tmp_path, shape):
    """NumPy would broadcast some of them."""
    with bags.DatasetWriter(tmp_path / 'a', {'state': 'array(float32,2)'}) as writer:
        writer.append({'state': np.zeros(2, 'f4')})
    normalize = bags.normalize(bags.statistics(tmp_path / 'a'))
    for change in (normalize, normalize.inverse):
        with pytest.raises(
            ValueError, match=rf"field 'state': expected values of shape \(2,\), got {re.escape(str(shape))}"
        ):
            change({'state': np.zeros(shape, 'f4')})


def test_grey_pictures_among_others(tmp_path):
    pytest.importorskip('PIL')
    chance = np.random.default_rng(0)
    grey = chance.integers(0, 256, (20, 30), np.uint8)
    colour = chance.integers(0, 256, (10, 30, 3), np.uint8)
    with bags.DatasetWriter(tmp_path / 'x', {'image': 'png'}) as writer:
        for picture in (grey, colour, grey):
            writer.append({'image': picture})
    found = bags.statistics(tmp_path / 'x')['image']
    alike = np.repeat(grey.reshape(-1, 1), 3, 1)
    check(found, np.concatenate([alike, colour.reshape(-1, 3), alike]))


def test_statistics_that_cannot_be_kept(tmp_path):
    with bags.DatasetWriter(tmp_path / 'x', {'a': 'float(8)'}) as writer:
        writer.append({'a': 3})
    archive = shutil.make_archive(tmp_path / 'y', 'zip', tmp_path, 'x')
    assert bags.statistics('x', filesystem=ZipFileSystem(archive))['a'].mean == 3
    with pytest.raises(OSError):
        bags.statistics('x', keep=True, filesystem=ZipFileSystem(archive))
    with (
        bags.open(tmp_path / 'x') as dataset,
        pytest.raises(ValueError, match='keep: expected the path of a'),
    ):
        bags.statistics(dataset, keep=True)
    with pytest.raises(ValueError, match='keep: expected the path of a'):
        bags.statistics(tmp_path / 'x', by='a', keep=True)
    assert not (tmp_path / 'x' / 'statistics.json').exists()


def test_statistics_without_infinities_are_computed_again(tmp_path):
    with bags.DatasetWriter(tmp_path / 'x', {'a': 'float(8)'}) as writer:
        writer.append({'a': 3})
    bags.statistics(tmp_path / 'x', keep=True)
    file = tmp_path / 'x' / 'statistics.json'
    content = json.loads(file.read_text())
    del content['fields']['a']['infinities']
    file.write_text(json.dumps(content))
    assert bags.statistics(tmp_path / 'x')['a'].infinities == 0


@pytest.mark.parametrize('format', ['jpeg', 'jpg'])
def test_all_formats_of_pictures_have_statistics(tmp_path, format):
    pytest.importorskip('PIL')
    with bags.DatasetWriter(tmp_path / 'x', {'image': format, 'name': 'utf8'}) as writer:
        writer.append({'image': np.full((16, 16, 3), 128, np.uint8), 'name': 'grey'})
    found = bags.statistics(tmp_path / 'x')
    assert list(found) == ['image']
    assert found['image'].mean.tolist() == [128] * 3
