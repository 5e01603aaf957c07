"""Ray Data reads and writes datasets, in worker processes, some of which are killed."""

import itertools
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

ray = pytest.importorskip('ray')
pytest.importorskip('ray.data')

import pyarrow as pa  # noqa: E402

import bags  # noqa: E402
from bags.ray.reading import BagsDatasource  # noqa: E402

pytestmark = pytest.mark.filterwarnings('ignore')


@pytest.fixture(scope='module', autouse=True)
def cluster():
    """Starts two worker processes, with the folder of the tests as their working directory."""
    for tries in (2, 1, 0):
        try:
            ray.init(num_cpus=2, include_dashboard=False, object_store_memory=1 << 28, log_to_driver=False)
            break
        except RuntimeError as exc:  # Ray's own server has not said its port after 30 s.
            if not tries or 'Timed out waiting for file' not in str(exc):
                raise
            ray.shutdown()
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


def fill(directory, spec, rows, **options):
    with bags.ShardedDatasetWriter(directory, spec, **options) as writer:
        for row in rows:
            writer.append(row)
    return str(directory)


def by_id(directory, **options):
    with bags.open(directory, **options) as dataset:
        return sorted(dataset, key=lambda row: row['id'])


def files_of(root):
    return {str(path.relative_to(root)) for path in Path(root).rglob('*') if path.is_file()}


# Types.

MORE = {
    'cube': 'array(int16,2,0,3)',
    'complex': 'array(complex64,2)',
    'half': 'array(float16,3)?',
    'big': 'array(>u2,2)',
    'huge': 'int(16)',
    'path': 'array(float32,?,3)',
    'paths': 'array(float32,?,3)[]',
    'maybe_path': 'array(float32,?,3)?',
    'many': 'array(uint8,2,2)[]?',
    'number': 'array(int32)',
    'numbers': 'array(int32)[]',
    'scores': 'float(2)[]',
    'odds': 'int(3)[]',
    'metas': 'json[]',
    'maybe_meta': 'msgpack?',
    'legs': 'bool?',
    'blobs': 'bytes[]?',
    'unsigned': 'uint(8)',
}


def more(index):
    path = np.arange(index % 3 * 3, dtype=np.float32).reshape(-1, 3)
    missing = index % 2 == 0
    return {
        'cube': np.zeros((2, 0, 3), np.int16),
        'complex': np.array([index, 1j], np.complex64),
        'half': None if missing else np.full(3, index, np.float16),
        'big': np.array([index, 1], '>u2'),
        'huge': -(2**100) - index,
        'path': path,
        'paths': [path, path[:1]] * (index % 3),
        'maybe_path': None if index % 4 == 0 else path,
        'many': None if missing else np.full((index % 3, 2, 2), index, np.uint8),
        'number': np.array(index, np.int32),
        'numbers': np.arange(index % 3, dtype=np.int32),
        'scores': np.arange(index % 3, dtype=np.float16),
        'odds': list(range(-1, index % 3)),
        'metas': [{'a': [index, None]}, 'b', None][: index % 4],
        'maybe_meta': None if missing else {'a': (1, {2: b'c'})},
        'legs': None if missing else index % 3 == 0,
        'blobs': None if missing else [b'', b'%d' % index],
        'unsigned': 2**64 - 1 - index,
    }


def test_values_of_every_type_there_and_back(kit, tmp_path):
    spec = {**kit.SPEC, **MORE}
    fill(tmp_path / 'in', spec, ({**kit.make_row(i), **more(i)} for i in range(60)), shard_length=25)
    data = bags.ray.read(tmp_path / 'in')
    data.write_datasink(bags.ray.write(tmp_path / 'out', spec))
    expected, found = by_id(tmp_path / 'in'), by_id(tmp_path / 'out')
    assert all(map(kit.equal, found, expected))
    assert len(found) == len(expected) == 60
    rows = sorted(data.take_all(), key=lambda row: row['id'])
    for row, wanted in zip(rows, expected, strict=True):
        for name in (
            'blob', 'meta', 'note', 'tags', 'text', 'words', 'maybe', 'grid', 'any', 'frames', 'path', 'huge',
            'odd', 'flag', 'unsigned', 'complex', 'metas', 'legs', 'blobs',
        ):  # fmt: skip
            assert kit.equal(row[name], wanted[name]), name
        for name in ('nums', 'points', 'numbers', 'many', 'half'):  # Lists.
            assert (row[name] is None) == (wanted[name] is None)
            assert wanted[name] is None or row[name] == wanted[name].tolist()
    batch = data.sort('id').take_batch(60)
    assert batch['grid'].dtype == np.float32
    assert batch['grid'].shape == (60, 2, 3)


def test_types_of_columns_are_those_of_the_fields(kit, tmp_path):
    spec = {**kit.SPEC, 'photo': 'jpeg'}
    fill(tmp_path / 'in', spec, [])
    schema = bags.ray.read(tmp_path / 'in').schema().base_schema
    assert schema.field('id').type == pa.int64()
    assert schema.field('small').type == pa.uint16()
    assert schema.field('odd').type == pa.int32()
    assert schema.field('text').type == pa.large_string()
    assert schema.field('photo').type == pa.large_binary()
    assert schema.field('points').type == pa.large_list(pa.float64())
    assert schema.field('grid').type.shape == (2, 3)
    assert schema.field('frames').type.ndim == 2


def test_media_cross_as_the_bytes_of_their_files(kit, tmp_path):
    spec = {
        'id': 'int',
        'photo': 'jpeg',
        'film': 'video?',
        'clips': 'mp4[]',
        'sound': 'audio',
        'note': 'flac',
    }
    rng = np.random.default_rng(0)
    samples = rng.integers(-99, 99, (800, 1)).astype(np.int16), 8000

    def row(index):
        frames = rng.integers(0, 255, (3, 32, 48, 3)).astype(np.uint8)
        return {
            'id': index, 'photo': frames[0], 'film': frames if index % 2 else None,
            'clips': [frames] * (index % 3), 'sound': samples, 'note': samples,
        }  # fmt: skip

    fill(tmp_path / 'in', spec, map(row, range(8)), shard_length=3)
    data = bags.ray.read(tmp_path / 'in')
    data.write_datasink(bags.ray.write(tmp_path / 'out', spec))

    def stored(name):
        with bags.open(tmp_path / name, raw=True) as dataset:
            rows = [{field: row[field] for field in spec} for row in dataset]
            return sorted(map(kit.to_bytes, rows), key=lambda row: row['id'])

    assert stored('in') == stored('out')
    assert len(stored('in')) == 8

    def decode(row):
        return {
            'id': row['id'],
            'photo': bags.decoders['jpeg'](row['photo']),
            'frames': [len(bags.Video(clip)) for clip in row['clips']],
        }

    for decoded in data.map(decode).take_all():
        assert decoded['photo'].shape == (32, 48, 3)
        assert decoded['frames'] == [3] * (decoded['id'] % 3)


def test_values_of_other_types_than_the_spec_says_are_refused(tmp_path):
    fill(tmp_path / 'in', {'id': 'int', 'text': 'utf8'}, [{'id': 1, 'text': 'a'}])
    with pytest.raises(TypeError, match=r"field 'id' of type int: .* without raw"):
        bags.ray.read(bags.open(tmp_path / 'in', raw=True))
    data = bags.ray.read(tmp_path / 'in').map(lambda row: {'id': 'no number', 'text': 'a'})
    with pytest.raises(Exception, match="field 'id'"):
        data.write_datasink(bags.ray.write(tmp_path / 'out', {'id': 'int', 'text': 'utf8'}))
    with pytest.raises(Exception, match=r"'text'.* is not in the spec"):
        bags.ray.read(tmp_path / 'in').write_datasink(bags.ray.write(tmp_path / 'out', {'id': 'int'}))


def test_types_of_the_users_own(tmp_path):
    def encode(value):
        return repr(value).encode()

    def decode(record):
        return complex(bytes(record).decode())

    encoders, decoders = {**bags.encoders, 'c': encode}, {**bags.decoders, 'c': decode}
    fill(tmp_path / 'in', {'id': 'int', 'c': 'c'}, [{'id': 1, 'c': 1j}], encoders=encoders)
    data = bags.ray.read(tmp_path / 'in', decoders=decoders)
    assert data.take_all() == [{'c': 1j, 'id': 1}]
    data.write_datasink(bags.ray.write(tmp_path / 'out', {'id': 'int', 'c': 'c'}, encoders))
    assert by_id(tmp_path / 'out', decoders=decoders) == [{'c': 1j, 'id': 1}]


def test_missing_values_of_pandas(tmp_path):
    spec = {'id': 'int', 'note': 'utf8?', 'score': 'float?'}
    rows = [
        {'id': i, 'note': None if i % 2 else 'a', 'score': None if i % 3 else float('nan')} for i in range(9)
    ]
    fill(tmp_path / 'in', spec, rows)
    data = bags.ray.read(tmp_path / 'in').map_batches(lambda frame: frame, batch_format='pandas')
    data.write_datasink(bags.ray.write(tmp_path / 'out', spec))
    assert [row['note'] for row in by_id(tmp_path / 'out')] == [row['note'] for row in rows]


# Reading.

SPEC = {'id': 'int(8)', 'text': 'utf8', 'vector': 'array(float32,8)', 'words': 'utf8[]', 'blob': 'bytes'}


def datapoint(i):
    return {
        'id': i,
        'text': f'text {i}' * (i % 7),
        'vector': np.full(8, i, np.float32),
        'words': [f'{i}', 'x'][: i % 3],
        'blob': bytes(i % 100),
    }


def test_only_bags_of_the_fields_asked_for_are_touched(tmp_path):
    fill(tmp_path / 'in', SPEC, map(datapoint, range(1000)), shard_length=300)
    for path in (tmp_path / 'in').rglob('*'):
        if path.name.endswith('.bag') and path.name not in ('refs.bag', 'id.bag', 'words.bag'):
            path.unlink()
    with pytest.raises(bags.CorruptError, match='neither'):
        bags.ray.read(tmp_path / 'in')
    wanted = [{name: datapoint(i)[name] for name in ('id', 'words')} for i in range(1000)]
    for data in (
        bags.ray.read(tmp_path / 'in', ('id', 'words'), override_num_blocks=3),
        bags.ray.read(tmp_path / 'in', ('id', 'words')).filter(lambda row: row['id'] >= 0),
    ):
        assert sorted(data.take_all(), key=lambda row: row['id']) == wanted
    assert bags.ray.read(tmp_path / 'in', ('id', 'words')).sum('id') == 499500


def test_select_columns_reads_only_those(tmp_path):
    fill(tmp_path / 'in', SPEC, map(datapoint, range(100)), shard_length=30)
    data = bags.ray.read(tmp_path / 'in').select_columns(['id', 'text'])
    for path in (tmp_path / 'in').rglob('*'):
        if path.name in ('blob.bag', 'vector.bag', 'words.bag'):
            path.unlink()
    assert data.sort('id').take(2) == [{'id': 0, 'text': ''}, {'id': 1, 'text': 'text 1'}]


@pytest.mark.parametrize('shape', ['even', 'growing', 'one large'])
def test_tasks_read_about_equal_bytes_of_the_fields(shape, tmp_path):
    sizes = {
        'even': [100] * 3000,
        'growing': [i // 10 for i in range(3000)],
        'one large': [100] * 1500 + [9000] + [100] * 1499,
    }[shape]
    # The field that is not read, whose sizes are reversed, does not count.
    rows = ({'data': bytes(size), 'other': bytes(sizes[-1 - i])} for i, size in enumerate(sizes))
    fill(tmp_path / 'in', {'data': 'bytes', 'other': 'bytes'}, rows, shard_length=1000)
    with bags.open(tmp_path / 'in') as dataset:
        tasks = BagsDatasource(dataset, ('data',)).get_read_tasks(10)
        counts = [task.metadata.num_rows for task in tasks]
    assert sum(counts) == 3000
    ends = np.cumsum([0, *counts])
    taken = [sum(sizes[a:b]) + 32 * (b - a) for a, b in itertools.pairwise(ends)]
    assert len(taken) == 10
    assert max(taken) < 1.3 * sum(taken) / 10
    assert min(taken) > 0.7 * sum(taken) / 10
    estimates = [task.metadata.size_bytes for task in tasks]
    assert max(estimates) < 1.3 * min(estimates)


def test_frames_of_windows_are_tensors(tmp_path):
    frames = np.arange(6, dtype=np.uint8).repeat(16 * 16 * 3).reshape(6, 16, 16, 3) * 40
    fill(tmp_path / 'in', {'film': 'mp4'}, [{'film': frames}])
    with bags.open(tmp_path / 'in') as dataset:
        windows = dataset.windows(every='film', film=bags.steps(0, 2), stride=2, padding='drop')
        found = bags.ray.read(windows).take_all()
        assert sorted(row['film'].tobytes() for row in found) == sorted(
            row['film'].tobytes() for row in windows
        )
        assert [row['film'].shape for row in found] == [(2, 16, 16, 3)] * 3


def test_views_and_relative_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fill('in', SPEC, map(datapoint, range(100)), shard_length=30)
    assert bags.ray.read('in', 'id').sum('id') == 4950
    with bags.open('in') as dataset:
        view = bags.concat([dataset[10:20], dataset.select([3, 3])])
        found = bags.ray.read(view, ('id', 'words')).take_all()
    assert sorted(row['id'] for row in found) == [3, 3, *range(10, 20)]
    bags.ray.read('in', 'id').write_datasink(bags.ray.write('out', {'id': 'int'}))
    assert len(bags.open('out')) == 100


def test_what_cannot_be_read_is_said_before_anything_runs(tmp_path):
    with pytest.raises(FileNotFoundError):
        bags.ray.read(tmp_path / 'none')
    fill(tmp_path / 'in', SPEC, map(datapoint, range(10)))
    with pytest.raises(KeyError, match='no field'):
        bags.ray.read(tmp_path / 'in', 'id2')
    with pytest.raises(TypeError, match='expected fields as a whole'):
        bags.ray.read(tmp_path / 'in', {'words': [0]})
    with pytest.raises(TypeError, match="unexpected option 'raw': columns have values"):
        bags.ray.read(tmp_path / 'in', raw=True)
    with pytest.raises(TypeError, match='has no effect'):
        bags.ray.read(bags.open(tmp_path / 'in'), cache_index=False)
    with pytest.raises(TypeError, match='expected a dataset'):
        bags.ray.read(['in'])
    with pytest.raises(bags.SpecError):
        bags.ray.write(tmp_path / 'out', {'id': 'number'})
    with pytest.raises(ValueError, match='shard_size'):
        bags.ray.write(tmp_path / 'out', {'id': 'int'}, shard_size=0)
    assert sorted(os.listdir(tmp_path)) == ['in']


# Writing.


def same(directory, count):
    found = by_id(directory)
    assert [row['id'] for row in found] == list(range(count))
    for row in found:
        wanted = datapoint(row['id'])
        np.testing.assert_array_equal(row.pop('vector'), wanted.pop('vector'))
        assert row == wanted
    names = sorted(os.listdir(directory))
    assert names == [f'{number:06}' for number in range(len(names))]
    assert not bags.verify(directory)
    return names


def test_20000_datapoints_of_several_workers_one_of_which_is_killed(tmp_path):
    fill(tmp_path / 'in', SPEC, map(datapoint, range(20_000)), shard_length=4000)
    marks = tmp_path / 'marks'
    marks.mkdir()

    def kill_once(row):
        (marks / f'worker {os.getpid()}').touch()
        if row['id'] == 12_345:
            try:
                (marks / 'killed').touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)  # While earlier rows are in an unfinished shard.
        return row

    data = bags.ray.read(tmp_path / 'in', override_num_blocks=8).map(kill_once)
    data.write_datasink(bags.ray.write(tmp_path / 'out', SPEC, shard_size=200_000))
    assert (marks / 'killed').exists()
    assert len(os.listdir(marks)) >= 3  # At least two workers, and the mark.
    assert len(same(tmp_path / 'out', 20_000)) >= 8
    again = bags.ray.read(tmp_path / 'out', ('id', 'text')).take_all()
    assert sorted((row['id'], row['text']) for row in again) == [
        (i, datapoint(i)['text']) for i in range(20_000)
    ]


def test_a_job_that_fails_leaves_no_part_of_a_dataset(tmp_path):
    fill(tmp_path / 'in', SPEC, map(datapoint, range(300)))

    def fail(row):
        if row['id'] == 200:
            raise RuntimeError('fails at 200')
        return row

    sink = bags.ray.write(tmp_path / 'out', SPEC)
    with pytest.raises(Exception, match='fails at 200'):
        bags.ray.read(tmp_path / 'in', override_num_blocks=4).map(fail).write_datasink(sink)
    assert not files_of(tmp_path / 'out')
    # A sink can be used again.
    bags.ray.read(tmp_path / 'in').write_datasink(sink)
    same(tmp_path / 'out', 300)


def test_a_dataset_that_exists_is_left_alone(tmp_path):
    fill(tmp_path / 'in', SPEC, map(datapoint, range(30)))
    shutil.copytree(tmp_path / 'in', tmp_path / 'out')
    before = files_of(tmp_path / 'out')
    with pytest.raises(FileExistsError, match='a dataset exists already'):
        bags.ray.read(tmp_path / 'in').write_datasink(bags.ray.write(tmp_path / 'out', SPEC))
    assert files_of(tmp_path / 'out') == before


def test_no_rows_make_an_empty_dataset(tmp_path):
    fill(tmp_path / 'in', SPEC, [])
    fill(tmp_path / 'some', SPEC, map(datapoint, range(30)))
    bags.ray.read(tmp_path / 'in').write_datasink(bags.ray.write(tmp_path / 'a', SPEC))
    none = bags.ray.read(tmp_path / 'some').filter(lambda row: False)
    none.write_datasink(bags.ray.write(tmp_path / 'b', SPEC))
    ray.data.from_items([]).write_datasink(bags.ray.write(tmp_path / 'c', SPEC))
    for name in 'abc':
        with bags.open(tmp_path / name) as dataset:
            assert len(dataset) == 0
            assert dataset.spec == dict(sorted(SPEC.items()))


def test_options_reach_the_writer(tmp_path):
    fill(tmp_path / 'in', SPEC, map(datapoint, range(1000)))
    data = bags.ray.read(tmp_path / 'in', override_num_blocks=4)
    sink = bags.ray.write(tmp_path / 'out', SPEC, min_rows_per_shard=1000, compression=['text'])
    data.write_datasink(sink)
    assert same(tmp_path / 'out', 1000) == ['000000']
    assert (tmp_path / 'out/000000/text.bagz').exists()
    options = {'checksum': True, 'metadata': {'made': 'here'}, 'shard_length': 100}
    data.write_datasink(bags.ray.write(tmp_path / 'more', SPEC, **options))
    with bags.open(tmp_path / 'more', checksum=True) as dataset:
        assert (len(dataset), dataset.metadata) == (1000, {'made': 'here'})
        assert dataset.shards >= 10
    for options, expected in [
        ({'resume': True}, 'resume: expected False: tasks write whole shards'),
        ({'mode': 'overwrite'}, "mode: expected 'create', got 'overwrite': tasks on several machines"),
        ({'shard_lenght': 3}, "did you mean 'shard_length'"),
        ({'linked_fields': ['nope']}, 'nope'),
    ]:
        with pytest.raises((TypeError, ValueError), match=expected):
            bags.ray.write(tmp_path / 'none', SPEC, **options)


def test_links(tmp_path):
    (tmp_path / 'all').write_bytes(bytes(range(200)))
    rows = [{'id': n, 'blob': bags.Link(tmp_path / 'all', n, 3) if n % 3 else b'own'} for n in range(100)]
    sink = bags.ray.write(tmp_path / 'out', {'id': 'int(8)', 'blob': 'bytes'}, linked_fields=('blob',))
    ray.data.from_items(rows, override_num_blocks=3).write_datasink(sink)
    assert (tmp_path / 'out/000000/blob.links').exists()
    found = [bytes(row['blob']) for row in by_id(tmp_path / 'out', trust_links=tmp_path / 'all')]
    assert found == [bytes(range(n, n + 3)) if n % 3 else b'own' for n in range(100)]


def test_on_an_object_store(tmp_path):
    pytest.importorskip('moto')
    from tests.servers import s3_server

    with s3_server() as url:
        options = {'key': 'a', 'secret': 'b', 'endpoint_url': url}
        fill('s3://bucket/in', SPEC, map(datapoint, range(300)), shard_length=100, storage_options=options)
        data = bags.ray.read('s3://bucket/in', storage_options=options)
        data.write_datasink(bags.ray.write('s3://bucket/out', SPEC, storage_options=options))
        found = by_id('s3://bucket/out', storage_options=options)
        assert [row['id'] for row in found] == list(range(300))
        with pytest.raises(FileExistsError, match='a dataset exists already'):
            data.write_datasink(bags.ray.write('s3://bucket/out', SPEC, storage_options=options))
