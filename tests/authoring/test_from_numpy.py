"""Arrays as datasets."""

import numpy as np
import pytest

import bags


def arrays_of(count):
    chance = np.random.default_rng(0)
    return {
        'image': chance.integers(0, 255, (count, 4, 5, 3), np.uint8),
        'label': np.arange(count) - 3,
        'small': np.arange(count).astype('uint16'),
        'score': chance.random(count, np.float32),
        'half': chance.random(count).astype('float16'),
        'big': np.arange(2 * count, dtype='>i4').reshape(count, 2),
        'flag': chance.random(count) < 0.5,
        'name': np.array([f'näme {index}' for index in range(count)], 'U10'),
        'tag': np.array([b'tag'] * count, 'S4'),
        'wave': (chance.random((count, 2)) + 1j).astype('complex64'),
        'none': np.zeros((count, 0)),
        'columns': np.asfortranarray(chance.random((count, 3))),
        'every': np.arange(3 * count)[::3],
    }


@pytest.mark.parametrize(
    'options', [{}, {'shard_length': 7}, {'shard_size': 2000}, {'compression': ['image']}]
)
def test_arrays_are_read_back(tmp_path, options):
    arrays = arrays_of(50)
    assert bags.from_numpy(arrays, tmp_path / 'x', **options).datapoints == 50
    dataset = bags.open(tmp_path / 'x')
    batch = dataset.batch(range(50))
    for name, array in arrays.items():
        assert batch[name].shape == array.shape
        assert (batch[name] == array).all()
        assert batch[name].dtype == array.dtype.newbyteorder('<')
    assert dataset[49, 'label'] == {'label': 46}
    assert dataset.spec['score'] == 'float(4)'
    assert dataset.spec['image'] == 'array(uint8,4,5,3)'
    if 'shard_length' in options:
        assert dataset.shards == 8
        assert len(bags.open(tmp_path / 'x' / '000000')) == 7
    if 'shard_size' in options:
        assert dataset.shards > 1


def test_times(tmp_path):
    times = np.array(['2020-01-01', 'NaT', '1969-12-31T23:59:59.5'], 'datetime64[ms]')
    bags.from_numpy({'time': times, 'pairs': np.array([[1, 2]] * 3, '>m8[ns]')}, tmp_path / 'x')
    dataset = bags.open(tmp_path / 'x')
    assert dataset.spec == {'pairs': 'array(timedelta64[ns],2)', 'time': 'array(datetime64[ms])'}
    np.testing.assert_array_equal(dataset.column('time'), times)
    assert dataset[2]['pairs'].tolist() == [1, 2]
    with bags.DatasetWriter(tmp_path / 'y', {'time': 'array(datetime64[ms])'}) as writer:
        for time in times:
            writer.append({'time': time})
    assert (tmp_path / 'x/000000/time.bag').read_bytes() == (tmp_path / 'y/time.bag').read_bytes()


def test_columns_of_tables(tmp_path):
    pd, pl = pytest.importorskip('pandas'), pytest.importorskip('polars')
    with pytest.raises(bags.SpecError, match=r"field 'a': .*without missing values as in row 1, got 'None'"):
        bags.from_numpy({'a': pd.Series(['x', None], dtype=object)}, tmp_path / 'y')
    table = {'pandas': pd.Series([1, 2, 3], dtype='Int64'), 'polars': pl.Series([1.5, 2.5, 3.5])}
    bags.from_numpy({**table, 'id': np.arange(3)}, tmp_path / 'x')
    batch = bags.open(tmp_path / 'x').batch(range(3))
    assert batch['polars'].tolist() == [1.5, 2.5, 3.5]
    assert batch['pandas'].tolist() == [1, 2, 3]


def test_columns_of_texts(tmp_path):
    pa, pd, pl = map(pytest.importorskip, ('pyarrow', 'pandas', 'polars'))
    texts = [f'text {number} ä' * (number % 5) for number in range(50)]
    for number, table in enumerate(
        [
            pd.DataFrame({'text': texts, 'id': range(50)}),
            pl.DataFrame({'text': texts, 'id': range(50)}),
            pa.table({'text': texts, 'id': range(50)}),
            {'text': np.array(texts, object), 'id': np.arange(50)},
        ]
    ):
        path = tmp_path / str(number)
        done = bags.from_numpy(table, path, shard_length=20)
        assert done.spec == {'text': 'utf8', 'id': 'int(8)'}
        assert bags.open(path).column('text') == texts
        bags.from_numpy(table, path, shard_length=20, resume=True)
    texts[7] = 'other'
    with pytest.raises(ValueError, match=r'text: resume: the array has changed .* at datapoint 7'):
        bags.from_numpy({'text': np.array(texts, object), 'id': np.arange(50)}, path, resume=True)


def test_tables(tmp_path):
    pa, pd, pl = map(pytest.importorskip, ('pyarrow', 'pandas', 'polars'))
    columns = {'id': [1, 2, 3], 'score': [0.5, 1.5, 2.5]}
    by_label = pd.DataFrame(columns, index=[2.0, 1.0, 0.0])
    for number, table in enumerate((by_label, pl.DataFrame(columns), pa.table(columns))):
        bags.from_numpy(table, tmp_path / f'{number}')
        with bags.open(tmp_path / f'{number}') as dataset:
            assert dataset.spec == {'id': 'int(8)', 'score': 'float(8)'}
            assert {name: values.tolist() for name, values in dataset.batch(range(3)).items()} == columns
    bags.from_numpy(by_label['id'], tmp_path / 'series')
    assert bags.open(tmp_path / 'series').column('data').tolist() == [1, 2, 3]


def test_files_are_mapped(tmp_path):
    arrays = arrays_of(20)
    for name in ('image', 'columns', 'label'):
        np.save(tmp_path / f'{name}.npy', arrays[name])
    paths = {name: tmp_path / f'{name}.npy' for name in ('image', 'columns')}
    assert bags.from_numpy({**paths, 'label': str(tmp_path / 'label.npy')}, tmp_path / 'x').datapoints == 20
    batch = bags.open(tmp_path / 'x').batch([5, 3])
    assert all((batch[name] == arrays[name][[5, 3]]).all() for name in batch)
    mapped = np.load(tmp_path / 'image.npy', mmap_mode='c')
    mapped[:] = 7
    bags.from_numpy(mapped[5:], tmp_path / 'y')
    assert (mapped == 7).all()
    assert (bags.open(tmp_path / 'y').batch(range(15))['data'] == 7).all()


def test_the_bytes_are_those_of_append(tmp_path, kit):
    arrays = {name: array for name, array in arrays_of(10).items() if name in ('image', 'label', 'flag')}
    bags.from_numpy(arrays, tmp_path / 'x')
    rows = [{name: array[index] for name, array in arrays.items()} for index in range(10)]
    kit.fill(tmp_path / 'y', rows, bags.open(tmp_path / 'x').spec)
    for path in (tmp_path / 'y').glob('*.bag'):
        assert (tmp_path / 'x' / '000000' / path.name).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_memory_stays_the_same(tmp_path, kit):
    with (tmp_path / 'x.npy').open('wb') as file:
        header = {'descr': '<f4', 'fortran_order': False, 'shape': (60_000, 1024)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 60_000 * 4096)
    code = (
        'import resource, sys, bags; bags.from_numpy([[1]], sys.argv[3]); '
        'before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; '
        'bags.from_numpy(sys.argv[1], sys.argv[2]); '
        'print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)'
    )
    grown = int(kit.python(code, tmp_path / 'x.npy', tmp_path / 'x', tmp_path / 'y'))
    assert grown < 60_000  # KiB; the file has 240,000.


def test_arrays_without_elements(tmp_path):
    assert bags.from_numpy({'x': np.zeros((0, 3), 'f4')}, tmp_path / 'x').datapoints == 0
    dataset = bags.open(tmp_path / 'x')
    assert (len(dataset), dataset.spec) == (0, {'x': 'array(float32,3)'})


def test_arrays_that_are_refused(tmp_path):
    np.savez(tmp_path / 'x.npz', a=np.ones(3))
    for arrays, error, match in [
        ({'a': np.ones(3), 'b': np.ones(4)}, ValueError, "one length, got {'a': 3, 'b': 4}"),
        ({'a': np.float32(3)}, bags.SpecError, "field 'a': expected an array with at least one dimension"),
        (
            {'a': np.array([{}, 1])},
            bags.SpecError,
            "'a': expected an array of .*texts.* in row 0, got '{}'",
        ),
        ({'a': np.full((2, 2), 'x', object)}, bags.SpecError, "field 'a': .*object"),
        ({'a': np.zeros(3, [('x', 'f4')])}, bags.SpecError, "field 'a'"),
        ({'a b': np.ones(3)}, bags.SpecError, 'a b'),
        ({'a': np.ma.masked_greater(np.arange(3), 1)}, bags.SpecError, 'an array without masked elements'),
        (tmp_path / 'x.npz', ValueError, 'expected a .npy file'),
        (tmp_path / 'nope.npy', FileNotFoundError, 'nope'),
    ]:
        with pytest.raises(error, match=match):
            bags.from_numpy(arrays, tmp_path / 'y')
    bags.from_numpy(np.ones(3), tmp_path / 'z')
    with pytest.raises(FileExistsError):
        bags.from_numpy(np.ones(3), tmp_path / 'z')


def test_checksums(tmp_path):
    bags.from_numpy({'x': np.arange(100)}, tmp_path / 'x', checksum=True, shard_length=40)
    with bags.open(tmp_path / 'x', checksum=True) as dataset:
        assert dataset.batch(range(100))['x'].tolist() == list(range(100))
    flip(tmp_path / 'x' / '000001' / 'x.bag', 3)
    with (
        bags.open(tmp_path / 'x', checksum=True) as dataset,
        pytest.raises(bags.CorruptError, match='checksum'),
    ):
        dataset.batch(range(100))


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
