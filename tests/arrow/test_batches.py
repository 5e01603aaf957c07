"""Datasets as Arrow: what pyarrow, DuckDB, polars and pandas read, compared with `batch`."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

import bags

pa = pytest.importorskip('pyarrow')
duckdb = pytest.importorskip('duckdb')
pl = pytest.importorskip('polars')
pytest.importorskip('pandas')

ROOT = Path(__file__).parents[2]
CAT = (ROOT / 'examples' / 'data' / 'cat.jpg').read_bytes()
TIMES = {
    'day': 'array(datetime64[D])',
    'hour': 'array(datetime64[h])',
    'span': 'array(timedelta64[ms])',
    'when': 'array(datetime64[us])',
    'whens': 'array(datetime64[ns])[]',
}
ARRAYS = {
    'bare': 'array(float16)',
    'big': 'int(16)',
    'complex': 'array(complex64,2)',
    'doc': 'json',
    'empty': 'array(int8,0,2)',
    'flags': 'array(bool,3)',
    'huge': 'uint(8)',
    'maybe_grid': 'array(int16,2,2)?',
    'names': 'array(U5,2)',
    'ragged': 'array(float32,2,?,3)',
    'raggeds': 'array(int16,?)[]?',
    'reverse': 'array(>i4,2)',
    'tree': 'tree',
    'words': 'array(S3)',
}
SPEC = TIMES | ARRAYS


def row(index):
    return {
        'bare': np.float16(index / 4),
        'big': 2**100 + index,
        'complex': np.array([index, 1j * index], 'c8'),
        'day': np.datetime64(index, 'D'),
        'doc': {'a': [index, None]},
        'empty': np.zeros((0, 2), 'i1'),
        'flags': np.arange(3) < index % 4,
        'hour': np.datetime64(index, 'h'),
        'huge': 2**64 - 1 - index,
        'maybe_grid': np.full((2, 2), index, 'i2') if index % 3 else None,
        'names': np.array(['é', f'{index}'], 'U5'),
        'ragged': np.arange(6 * (index % 4), dtype='f4').reshape(2, -1, 3),
        'raggeds': [np.arange(item, dtype='i2') for item in range(index % 5)] if index % 5 != 4 else None,
        'reverse': np.array([index, -index], '>i4'),
        'span': np.timedelta64(index, 'ms'),
        'tree': {'x': np.arange(index % 3)},
        'when': np.datetime64(index, 'us'),
        'whens': np.arange(index % 3).astype('M8[ns]'),
        'words': np.array(b'a' * (index % 4), 'S3'),
    }


def plain(value, kind):
    """Returns a value of a dataset as Arrow's `to_pylist` returns it."""
    format, _, rest = kind.partition('(')
    dtype = rest.split(',')[0].split(')')[0]
    if value is None:
        return None
    if kind.rstrip('?').endswith('[]'):
        return [plain(item, kind.rstrip('?')[:-2]) for item in value]
    if format.rstrip('?') == 'array' and not rest:
        return {'dtype': value.dtype.str, 'shape': list(value.shape), 'data': value.tobytes()}
    if dtype == 'complex64':
        return np.stack([value.real, value.imag], -1).tolist()
    if dtype == 'datetime64[h]':
        return value.tobytes()
    if dtype.startswith('datetime64[n'):
        return int(value.astype('i8'))
    if format in ('msgpack', 'tree', 'bytes'):
        encoded = bags.encoders[format](value)
        return bytes(encoded)
    if format == 'json':
        return json.dumps(value, separators=(',', ':'))
    if format == 'int' and rest == '16)':
        return str(value)
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def normal(value):
    """Converts values of all libraries to lists, bytes and Python scalars."""
    if isinstance(value, dict):
        return {key: normal(part) for key, part in value.items()}
    if isinstance(value, np.ndarray | list | tuple) or type(value).__name__ == 'Series':
        return [normal(part) for part in value]
    if isinstance(value, np.generic):
        return value.item()
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def expected(dataset, indices=None):
    columns = dataset.batch(range(len(dataset)) if indices is None else indices)
    return {
        name: normal([plain(value, dataset.spec[name]) for value in column])
        for name, column in columns.items()
    }


@pytest.fixture(params=['folder', 'shards', 'compressed', 'view', 'concat', 'raw'])
def dataset(request, kit, tmp_path):
    spec = SPEC | kit.SPEC
    rows = [row(index) | kit.make_row(index) for index in range(40)]
    options = {
        'shards': {'shard_length': 7},
        'compressed': {'compression': kit.COMPRESSED},
    }
    path = kit.fill(tmp_path / 'x', rows, spec, **options.get(request.param, {}))
    with bags.open(path) as opened:
        if request.param == 'view':
            yield opened.select([5, 3, 3, 39, 0])
        elif request.param == 'concat':
            yield bags.concat([opened[30:], opened[::-3]])
        elif request.param == 'raw':
            with bags.open(path, raw=True) as raw:
                raw.values = opened
                yield raw
        else:
            yield opened


@pytest.mark.slow('shards')
def test_every_type_has_the_values_of_batch(dataset):
    table = pa.table(dataset)
    table.validate(full=True)
    values = expected(getattr(dataset, 'values', dataset))
    assert table.column_names == list(dataset.spec)
    for name, column in values.items():
        found = table[name]
        if name == 'whens':
            found = found.cast(pa.list_(pa.int64()))
        assert normal(found.to_pylist()) == column, name
        may_be_null = dataset.spec[name].endswith('?') or name in ('day', 'span', 'when')  # NaT is null.
        assert table.schema.field(name).nullable == may_be_null


def test_types_of_arrow(dataset):
    schema = dataset.to_arrow().schema
    assert schema.field('grid').type == pa.list_(pa.list_(pa.float32(), 3), 2)
    assert schema.field('nums').type == pa.list_(pa.int16())
    assert schema.field('points').type == pa.list_(pa.float64())
    assert schema.field('when').type == pa.timestamp('us')
    assert schema.field('day').type == pa.date32()
    assert schema.field('ragged').type == pa.list_(pa.list_(pa.list_(pa.float32(), 3)), 2)
    assert schema.field('small').type == pa.uint16()
    assert schema.field('text').type == pa.string()
    assert json.loads(schema.metadata[b'bags'])['spec'] == dataset.spec


LIBRARIES = {
    'duckdb': lambda dataset: dict(
        zip(dataset.spec, zip(*duckdb.sql('from dataset').fetchall(), strict=True), strict=True)
    ),
    'pandas': lambda dataset: dict(pa.table(dataset).to_pandas()),
    'polars': lambda dataset: pl.DataFrame(dataset).to_dict(as_series=False),
}


@pytest.mark.parametrize('library', LIBRARIES)
@pytest.mark.filterwarnings('ignore:Discarding nonzero nanoseconds')
def test_other_libraries_have_the_values_of_batch(library, kit, tmp_path):
    spec = ARRAYS | kit.SPEC
    rows = [{name: value for name, value in row(index).items() if name in ARRAYS} for index in range(20)]
    path = kit.fill(tmp_path / 'x', [each | kit.make_row(i) for i, each in enumerate(rows)], spec)
    with bags.open(path) as dataset:
        values = expected(dataset)
        found = LIBRARIES[library](dataset)
    for name, column in values.items():
        got = [None if each is None or is_nan(each) else each for each in normal(list(found[name]))]
        if name == 'maybe':
            got = [None if each is None else int(each) for each in got]
        assert got == column, name


def is_nan(value):
    return isinstance(value, float) and math.isnan(value)


def test_fields_and_items(dataset):
    assert dataset.to_arrow('id').schema.names == ['id']
    table = dataset.to_arrow({'nums': range(2), 'text': True, 'id': False}).read_all()
    assert table.column_names == ['nums', 'text']
    values = getattr(dataset, 'values', dataset)
    assert table['nums'].to_pylist() == [list(each[:2]) for each in values.column('nums')]
    with pytest.raises(KeyError, match='no field'):
        dataset.to_arrow('other')
    with pytest.raises(ValueError, match='media'):
        dataset.to_arrow('id', media=3)
    assert [len(batch) for batch in dataset.to_arrow('id', batch_size=4)][:-1] == [4] * (
        (len(dataset) - 1) // 4
    )


def test_an_empty_dataset(kit, tmp_path):
    with bags.open(kit.fill(tmp_path / 'x', [], SPEC)) as dataset:
        assert pa.table(dataset).num_rows == 0
        assert pl.DataFrame(dataset).columns == list(SPEC)


def test_media_are_locations_or_bytes(tmp_path):
    film = next(ROOT.glob('examples/data/*.mp4')).read_bytes()
    spec = {'clips': 'video[]', 'film': 'video?', 'photo': 'jpeg', 'photos': 'image[]?'}
    with bags.ShardedDatasetWriter(tmp_path / 'x', spec, shard_length=2) as writer:
        for index in range(5):
            writer.append({
                'clips': [film] * (index % 3), 'film': film if index % 2 else None, 'photo': CAT,
                'photos': [CAT] * index if index else None,
            })  # fmt: skip

    def content(place):
        with open(place['path'], 'rb') as file:
            file.seek(place['offset'])
            return file.read(place['length'])

    with bags.open(tmp_path / 'x') as dataset:
        rows = pa.table(dataset).to_pylist()
        for index, found in enumerate(rows):
            assert [content(place) for place in found['clips']] == [film] * (index % 3)
            assert (found['film'] and content(found['film'])) == (film if index % 2 else None)
            assert found['photo'] == CAT
            assert found['photos'] == ([CAT] * index if index else None)
        assert dataset.to_arrow('film', media='bytes').read_all()['film'].to_pylist()[1] == film
        places = dataset.to_arrow('photo', media='location').read_all()['photo'].to_pylist()
        assert [content(place) for place in places] == [CAT] * 5
        with pytest.raises(TypeError, match='frames'):
            dataset.to_arrow({'film': bags.frames(0, 2)})


def test_locations_in_compressed_bags_are_refused(tmp_path):
    film = next(ROOT.glob('examples/data/*.mp4')).read_bytes()
    with bags.DatasetWriter(tmp_path / 'x', {'film': 'video'}, compression=['film']) as writer:
        writer.append({'film': film})
    with bags.open(tmp_path / 'x') as dataset:
        with pytest.raises(ValueError, match=r"compressed records .* pass media='bytes'"):
            dataset.to_arrow().read_all()
        assert dataset.to_arrow(media='bytes').read_all()['film'][0].as_py() == film


def test_locations_of_links_to_compressed_and_other_bags(tmp_path):
    film = next(ROOT.glob('examples/data/*.mp4')).read_bytes()
    for name, compression in (('plain', None), ('packed', ['film'])):
        with bags.DatasetWriter(tmp_path / name, {'film': 'video'}, compression=compression) as writer:
            writer.append({'film': film})
    both = bags.concat([bags.open(tmp_path / 'plain'), bags.open(tmp_path / 'packed')])
    both.save(tmp_path / 'linked')
    with bags.open(tmp_path / 'linked') as dataset:
        (place,) = dataset[:1].to_arrow().read_all()['film'].to_pylist()
        assert place['path'] == str(tmp_path / 'plain/film.bag')
        with pytest.raises(ValueError, match=r"film\.bagz: compressed records .* pass media='bytes'"):
            dataset.to_arrow().read_all()


def test_windows(tmp_path):
    with bags.DatasetWriter(
        tmp_path / 'x', {'id': 'int', 'state': 'array(float32,2)[]', 'tag': 'utf8[]'}
    ) as writer:
        for index in range(3):
            state = np.arange(12, dtype='f4').reshape(6, 2) + index
            writer.append({'id': index, 'state': state, 'tag': [f'{item}' for item in range(6)]})
    with bags.open(tmp_path / 'x') as dataset:
        windows = dataset.windows(
            every='state', state=bags.steps(0, 4), tag=bags.steps(0, 4), stride=2, padding='drop'
        )
        assert pa.table(windows).to_pylist() == [
            {
                'id': each['id'],
                'state': each['state'].tolist(),
                'state_is_pad': [False] * 4,
                'tag': list(each['tag']),
                'tag_is_pad': [False] * 4,
            }
            for each in windows
        ]
        timed = dataset.windows(every='state', state=bags.steps(-1, 2), tag=bags.steps(0, 2))
        table = pa.table(timed)
        assert table['state'].to_pylist() == [each['state'].tolist() for each in timed]
        assert table['state_is_pad'].to_pylist() == [each['state_is_pad'].tolist() for each in timed]
        assert table['tag'].to_pylist() == [list(each['tag']) for each in timed]


def test_damage_is_an_error_that_names_the_field(kit, tmp_path):
    path = kit.fill(
        tmp_path / 'x', [{'id': i, 'text': 'x' * 100} for i in range(100)], {'id': 'int', 'text': 'utf8'}
    )
    with open(f'{path}/text.bag', 'r+b') as file:
        file.write(b'\xff' * 100)
    with bags.open(path) as dataset:
        assert dataset.to_arrow('id').read_all().num_rows == 100
        with pytest.raises(ValueError, match="field 'text' of type utf8, datapoints"):
            dataset.to_arrow('text').read_all()
        with pytest.raises(ValueError, match="field 'text'"):
            pa.table(dataset)


OPENED = """
import sys
opened = set()
sys.addaudithook(lambda event, args: event == 'open' and opened.add(str(args[0]).rpartition('/')[2]))
import bags, {library}
dataset = bags.open(sys.argv[1])
t = dataset.to_arrow_dataset()
opened.clear()
{query}
print(*sorted(name for name in opened if name.endswith('.bag')))
"""


@pytest.mark.slow(all_but='*fields0')
@pytest.mark.parametrize(('query', 'fields'), [
    ("dataset.to_arrow('score').read_all()", ['score']),
    ("polars.DataFrame(dataset.to_arrow('score'))", ['score']),
    ("assert duckdb.sql('select max(score) from t').fetchall() == [(4.5,)]", ['score']),
    ("assert duckdb.sql('select score from t where id > 8').fetchall() == [(4.5,)]", ['id', 'score']),
    ("polars.scan_pyarrow_dataset(t).select('score').collect()", ['score']),
])  # fmt: skip
def test_a_query_of_one_field_opens_only_its_files(query, fields, kit, tmp_path):
    spec = {'id': 'int', 'score': 'float(4)', 'text': 'utf8'}
    path = kit.fill(tmp_path / 'x', [{'id': i, 'score': i / 2, 'text': ''} for i in range(10)], spec)
    library = next(name for name in ('duckdb', 'polars', 'pyarrow') if name in f'{query} pyarrow')
    found = kit.python(OPENED.format(query=query, library=library), path).decode().split()
    assert {name.removeprefix('limits.') for name in found} - {'refs.bag'} == {
        f'{name}.bag' for name in fields
    }


def test_to_arrow_dataset_has_the_same_values(dataset):
    import pickle

    table = dataset.to_arrow_dataset()
    assert table.count_rows() == len(dataset)
    assert table.to_table() == pa.table(dataset)
    assert table.to_table(columns=['text', 'id']).column_names == ['text', 'id']
    import pyarrow.compute as pc

    values = getattr(dataset, 'values', dataset).column('id')
    some = table.to_table(columns=['text'], filter=pc.field('id') > 2)
    assert (some.num_rows, some.column_names) == ((values > 2).sum(), ['text'])
    assert table.count_rows(filter=pc.field('id') > 2) == (values > 2).sum()
    assert table.head(3, columns=['id'])['id'].to_pylist() == values[:3].tolist()
    if not hasattr(dataset, 'values'):
        again = pickle.loads(pickle.dumps(table))
        assert again.schema == table.schema
        assert repr(again) == repr(table)


MEMORY = """
import sys, bags
dataset = bags.open(sys.argv[1])
def anonymous():
    with open('/proc/self/status') as status:
        return int(next(line for line in status if line.startswith('RssAnon')).split()[1]) << 10
rows = peak = 0
for batch in bags.concat([dataset] * int(sys.argv[2])).to_arrow():
    if not rows:
        before = anonymous()
    rows += len(batch)
    peak = max(peak, anonymous())
print(rows, peak - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists('/proc/self/status'), reason='needs /proc')
def test_a_million_rows_in_constant_memory(kit, tmp_path):
    count = 10_000
    spec = {'blob': 'bytes', 'id': 'int', 'maybe': 'int(4)?', 'text': 'utf8'}
    rows = (
        {'blob': bytes(150), 'id': i, 'maybe': None if i % 2 else i, 'text': f'text {i}'}
        for i in range(count)
    )
    path = kit.fill(tmp_path / 'x', rows, spec)
    (few, small), (many, large) = (map(int, kit.python(MEMORY, path, times).split()) for times in (20, 100))
    assert (few, many) == (200_000, 1_000_000)  # 40 and 200 MB
    assert large < small + 30e6


def test_without_pyarrow(kit, tmp_path):
    path = kit.fill(tmp_path / 'x', [{'id': 1}], {'id': 'int'})
    code = """
import sys
sys.modules['pyarrow'] = None
import bags
for read in (lambda: bags.open(sys.argv[1]).to_arrow(), lambda: bags.open(sys.argv[1]).to_arrow_dataset()):
    try:
        read()
    except bags.MissingDependencyError as exc:
        print(exc)
"""
    assert kit.python(code, path).decode().count("pip install 'bags[arrow]'") == 2


def test_texts_of_arrays_keep_nul(tmp_path):
    data = np.array([b'a\0b', b'\0c', b'd\0', b''], 'S3')
    for name, values in (('bytes', data), ('texts', data.astype('U3'))):
        bags.from_numpy({'x': values}, tmp_path / name, progress=False)
        with bags.open(tmp_path / name) as dataset:
            assert pa.table(dataset)['x'].to_pylist() == values.tolist()


@pytest.mark.parametrize('kind', ['array(datetime64[us])', 'array(timedelta64[s])', 'array(datetime64[D])'])
def test_not_a_time_is_null_and_read_back(kind, tmp_path):
    dtype = kind[6:-1]
    times = np.array([1, 'NaT', -2], dtype)
    spec = {'time': kind, 'times': f'{kind}[]', 'pair': f'{kind[:-1]},2)', 'optional': f'{kind}?'}
    with bags.DatasetWriter(tmp_path / 'a', spec) as writer:
        for time in times:
            writer.append({'time': time, 'times': times, 'pair': [time, time], 'optional': time})
        writer.append({'time': times[0], 'times': [], 'pair': times[:2], 'optional': None})
    dataset = bags.open(tmp_path / 'a')
    table = dataset.to_arrow().read_all()
    assert [column.null_count for column in (table['time'], table['optional'])] == [1, 2]
    bags.export(dataset, tmp_path / 'b', format='parquet')
    bags.convert(tmp_path / 'b', tmp_path / 'c')
    found = bags.open(tmp_path / 'c')
    assert found.spec == dataset.spec
    for row in range(4):
        for field in ('time', 'times', 'pair'):
            np.testing.assert_array_equal(found[row][field], dataset[row][field])
    assert [value is None for value in found.column('optional')] == [False, True, False, True]


def test_days_that_arrow_does_not_have_are_refused(tmp_path):
    with bags.DatasetWriter(tmp_path, {'day': 'array(datetime64[D])'}) as writer:
        writer.append({'day': np.datetime64(2**31, 'D')})
    with pytest.raises(
        ValueError, match=r"field 'day' of type .*datapoints 0 to 0: cannot be Arrow: .*2147483648"
    ):
        bags.open(tmp_path).to_arrow().read_all()


def test_windows_of_a_video_are_arrays(tmp_path):
    pytest.importorskip('av')
    facts = {'fields': {'state': {'rate': 10}}}
    spec = {'camera': 'video(10)', 'state': 'array(float32,2)[]'}
    with bags.DatasetWriter(tmp_path / 'a', spec, metadata=facts) as writer:
        writer.append({'camera': np.zeros((12, 32, 32, 3), np.uint8), 'state': np.zeros((12, 2), np.float32)})
    spans = {'camera': bags.times(-0.1, 0.0), 'state': bags.steps(0, 4)}
    view = bags.open(tmp_path / 'a').windows(every='camera', **spans)
    table = pa.table(view)
    assert table.num_rows == 12
    assert table['camera'][3].as_py()['shape'] == [2, 32, 32, 3]
    assert bags.export(view, tmp_path / 'parquet', format='parquet').shards == 1
