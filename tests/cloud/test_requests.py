"""How many requests an operation takes, counted at the server, as docs/cloud.md says."""

import random
from collections import Counter

import numpy as np
import pytest

import bags
from bags.storage import store_for
from bags.streams.joined_video import join_videos

SPEC = {'blob': 'bytes', 'id': 'int(8)', 'text': 'utf8', 'words': 'utf8[]?'}
SMALL = {'id': 'int(8)', 'text': 'utf8'}
COUNT = 20_000  # Enough that the request for a file's size does not return all limits.


def make_row(index):
    size = random.Random(index).randrange(30)
    return {
        'blob': bytes([index % 251]) * size,
        'id': index,
        'text': f'text {index}' * (index % 3),
        'words': None if index % 5 == 0 else [str(index)] * (index % 4),
    }


@pytest.fixture(scope='module')
def folder(s3_storage, tmp_path_factory):
    """Writes a dataset locally and uploads its files to S3."""
    local = tmp_path_factory.mktemp('local') / 'a'
    with bags.DatasetWriter(local, SPEC) as writer:
        for index in range(COUNT):
            writer.append(make_row(index), flush=False)
    store, root = store_for(f'{s3_storage.root}/folder', None, s3_storage.options)
    for path in local.iterdir():
        store.replace(store.join(root, path.name), path.read_bytes())
    return root


@pytest.fixture(scope='session')
def shards(s3, tmp_path_factory):
    """Uploads a hundred small shards, once for all clients."""
    local = tmp_path_factory.mktemp('local') / 'shards'
    with bags.ShardedDatasetWriter(local, SMALL, shard_length=2) as writer:
        for index in range(200):
            writer.append({'id': index, 'text': f'text {index}'})
    store, root = store_for('s3://bucket/shards', None, {'key': 'a', 'secret': 'b', 'endpoint_url': s3})
    for path in local.glob('*/*'):
        store.replace(store.join(root, path.relative_to(local).as_posix()), path.read_bytes())
    return root


def kinds(requests):
    return Counter('list' if 'list-type' in path else path.rpartition('/')[2] for _, path, _ in requests)


def test_a_folder(folder, s3_storage, proxy):
    with proxy.counted() as opening:
        dataset = bags.open(folder, storage_options=s3_storage.through(proxy))
    assert len(dataset) == COUNT
    assert len(opening) <= 5
    with proxy.counted() as cold:
        assert dataset[12_345] == make_row(12_345)
    assert max(kinds(cold).values()) <= 3  # Rounds: the end of each file, the rest of its limits, the record.
    for index in (12_346, 3, -1):
        with proxy.counted() as warm:
            assert dataset[index] == make_row(range(COUNT)[index])
        assert max(kinds(warm).values(), default=0) <= 1
    with proxy.counted() as one:
        assert dataset[77, 'id'] == {'id': 77}
    assert len(one) == 1


def test_a_batch(folder, s3_storage, proxy):
    dataset = bags.open(folder, storage_options=s3_storage.through(proxy))
    dataset[0]
    indices = np.random.default_rng(0).integers(0, COUNT, 256)
    with proxy.counted() as requests:
        batch = dataset.batch(indices)
    assert (batch['id'] == indices).all()
    assert batch['text'] == [make_row(index)['text'] for index in indices.tolist()]
    assert len(requests) == 4  # Small records are adjacent: one request a field.
    with proxy.counted() as requests:
        assert dataset.__getitems__(indices) == [make_row(index) for index in indices.tolist()]
    assert len(requests) == 4


def test_limits_in_blocks_come_once(folder, s3_storage, proxy):
    dataset = bags.open(folder, cache_index=False, storage_options=s3_storage.through(proxy))
    with proxy.counted() as cold:
        assert dataset[6] == make_row(6)
    assert max(kinds(cold).values()) <= 3
    with proxy.counted() as warm:
        assert dataset[7] == make_row(7)
    assert max(kinds(warm).values()) == 1
    dataset.batch(range(0, COUNT, 100))
    with proxy.counted() as requests:
        assert dataset.batch(range(0, COUNT, 100))['id'].tolist() == list(range(0, COUNT, 100))
    assert len(requests) <= 5


def test_opening_a_hundred_shards(shards, s3_storage, proxy):
    with proxy.counted() as requests:
        dataset = bags.open(shards, storage_options=s3_storage.through(proxy))
    assert (len(dataset), dataset.shards) == (200, 100)
    assert kinds(requests)['list'] == 1
    assert len(requests) <= 105
    assert dataset.batch([199, 0, 77])['id'].tolist() == [199, 0, 77]
    with proxy.counted() as requests:
        assert dataset.batch([0, 199, 77])['id'].tolist() == [0, 199, 77]
    assert not requests  # Files this small are read whole by the request for their size.


def test_all_requests_of_a_batch_are_on_their_way_together(shards, s3_storage, proxy):
    dataset = bags.open(shards, shard_step=3, storage_options=s3_storage.through(proxy))
    assert len(dataset) == 68
    proxy.delay = 0.02
    proxy.most, proxy.awaited = 0, 16
    dataset.batch(range(0, 68, 2))
    assert 16 <= proxy.most <= 64
    proxy.awaited = 0
    few = bags.open(shards, storage_options={**s3_storage.through(proxy), 'concurrency': 4})
    proxy.most = 0
    few.batch(range(0, 200, 20))
    assert proxy.most <= 4


def test_the_storage_loses_an_object_meanwhile(s3_storage):
    root = f'{s3_storage.root}/lost'
    options = {'storage_options': s3_storage.options}
    with bags.ShardedDatasetWriter(root, SPEC, shard_length=5, **options) as writer:
        for index in range(20):
            writer.append(make_row(index))
    dataset = bags.open(root, **options)
    store, path = store_for(f'{root}/000002/blob.bag', None, s3_storage.options)
    store.remove(path)
    with pytest.raises((bags.CorruptError, FileNotFoundError), match=r'lost/000002.*blob\.bag'):
        dataset.batch(range(20))
    assert dataset[3] == make_row(3)


@pytest.mark.slow('s3-obstore')
def test_writing_and_going_on(storage, kit):
    root = f'{storage.root}/written'
    fields = ('frames', 'id', 'meta', 'note', 'tags', 'text', 'words')
    rows = [{name: kit.make_row(index)[name] for name in fields} for index in range(20)]
    spec = {name: kit.SPEC[name] for name in fields}
    packed = [name for name in fields if name in kit.COMPRESSED]
    options = {'storage_options': storage.options}
    with bags.ShardedDatasetWriter(root, spec, shard_length=10, compression=packed, **options) as writer:
        for row in rows[:13]:
            writer.append(row)
    with pytest.raises(FileExistsError):
        bags.ShardedDatasetWriter(root, spec, **options)
    with bags.ShardedDatasetWriter(root, spec, shard_length=10, resume=True, **options) as writer:
        assert len(writer) == 13
        for row in rows[13:]:
            writer.append(row)
    dataset = bags.open(root, **options)
    assert kit.equal(list(dataset), rows)
    assert kit.equal(dataset.__getitems__(range(19, -1, -1)), rows[::-1])
    batch = dataset.batch([7, 3], ('id', 'words'))
    assert batch['id'].tolist() == [4, 0]
    assert batch['words'] == [rows[7]['words'], rows[3]['words']]
    assert dataset.file(2, 'text').read().decode() == rows[2]['text']
    with bags.DatasetWriter(f'{root}/one', spec, **options) as writer:
        writer.append(rows[0])
    with bags.DatasetWriter(f'{root}/one', spec, resume=True, **options) as writer:
        writer.append(rows[1])
    assert kit.equal(list(bags.open(f'{root}/one', **options)), rows[:2])


def test_a_folder_that_a_killed_writer_left(storage):
    root = f'{storage.root}/killed'
    options = {'storage_options': storage.options}
    with bags.DatasetWriter(f'{root}/000000', SPEC, **options) as writer:
        for index in range(5):
            writer.append(make_row(index))
    store, path = store_for(f'{root}/000000/refs.bag', None, storage.options)
    with bags.DatasetWriter(f'{root}/000001', SPEC, **options) as writer:
        writer.append(make_row(77))
    store.remove(path.replace('000000', '000001'))  # As if killed before writing the refs.
    assert len(bags.open(root, **options)) == 5
    with bags.DatasetWriter(f'{root}/000001', SPEC, resume=True, **options) as writer:
        assert not len(writer)
        writer.append(make_row(5))
    assert list(bags.open(root, **options)) == [make_row(index) for index in range(6)]


def test_datasets_that_are_joined_are_asked_at_the_same_time(s3_storage, proxy):
    options = {'storage_options': s3_storage.options}
    for name in 'abcd':
        with bags.DatasetWriter(f'{s3_storage.root}/joined/{name}', {name: 'bytes'}, **options) as writer:
            for index in range(3):
                writer.append({name: bytes([index]) * 100_000})
        with bags.DatasetWriter(f'{s3_storage.root}/parts/{name}', {'x': 'bytes'}, **options) as writer:
            writer.append({'x': name.encode() * 100_000})
    options = {'storage_options': s3_storage.through(proxy)}
    joined = bags.join([bags.open(f'{s3_storage.root}/joined/{name}', **options) for name in 'abcd'])
    parts = bags.concat([bags.open(f'{s3_storage.root}/parts/{name}', **options) for name in 'abcd'])
    expected = dict.fromkeys('abcd', b'\1' * 100_000)
    whole = [name.encode() * 100_000 for name in 'abcd']
    assert joined[1] == expected
    proxy.awaited = 4
    for read, values in [
        (lambda: joined[1], expected),
        (lambda: joined[:].__getitems__([1]), [expected]),
        (lambda: joined.batch([1]), {name: [value] for name, value in expected.items()}),
        (lambda: parts.batch(range(4))['x'], whole),
        (lambda: parts.records('x')[:], whole),
    ]:
        proxy.most = 0
        assert read() == values
        assert proxy.most >= 4


def test_videos_are_asked_at_the_same_time(s3_storage, proxy):
    frames = np.random.default_rng(0).integers(0, 255, (40, 32, 32, 3), np.uint8)
    root, options = f'{s3_storage.root}/films', {'storage_options': s3_storage.options}
    with bags.DatasetWriter(root, {'clips': 'mkv[]', 'film': 'mkv'}, **options) as writer:
        for _ in range(4):
            writer.append(
                {'clips': [frames[first : first + 10] for first in range(0, 40, 10)], 'film': frames}
            )
    dataset = bags.open(root, storage_options=s3_storage.through(proxy))
    assert (dataset[0]['film'] == frames).all()
    windows = dataset.windows(every='film', film=bags.steps(0, 10), stride=10, padding='drop')
    clips = join_videos(dataset, 0, 'clips')
    proxy.awaited = 4
    for read, expected in [
        (lambda: windows.batch([0, 5, 10, 15])['film'], frames.reshape(4, 10, 32, 32, 3)),
        (lambda: clips[:], frames),
    ]:
        proxy.most = 0
        assert (read() == expected).all()
        assert proxy.most >= 4
    some = join_videos(dataset, 0, 'clips')
    with proxy.counted() as requests:
        assert (some[3:18] == frames[3:18]).all()
    assert {int(asked.partition('=')[2].partition('-')[0]) // 30_000 for _, _, asked in requests} == {0, 1}


@pytest.fixture(scope='module')
def recordings(s3_storage, tmp_path_factory):
    """Recordings with events at random times and a state at a constant rate, on S3."""
    pytest.importorskip('av')
    local = tmp_path_factory.mktemp('local') / 'recordings'
    spec = {'audio': 'audio', 'event': 'int(4)[]', 'time': 'float(8)[]', 'state': 'array(float32,7)[]'}
    facts = {'fields': {'event': {'times': 'time'}, 'state': {'rate': 100}}}
    with bags.DatasetWriter(local, spec, metadata=facts) as writer:
        for index in range(6):
            random = np.random.default_rng(index)
            sound = random.uniform(-1, 1, (20 * 48_000, 1)).astype('f4')
            time = np.sort(random.uniform(0, 20, 500))
            state = random.standard_normal((2000, 7)).astype('f4')
            writer.append({'audio': (sound, 48_000), 'event': range(500), 'time': time, 'state': state})
    store, root = store_for(f'{s3_storage.root}/recordings', None, s3_storage.options)
    for path in local.iterdir():
        store.replace(store.join(root, path.name), path.read_bytes())
    return root, bags.open(local)


@pytest.mark.slow
def test_windows_take_a_round_for_each_field(recordings, s3_storage, proxy):
    root, local = recordings
    spans = {
        'audio': bags.between(-0.05, 0.05),
        'state': bags.times(-0.1, 0.0, rate=50),
        'event': bags.steps(0, 2),
    }
    with proxy.counted() as making:
        dataset = bags.open(root, storage_options=s3_storage.through(proxy))
        view = dataset.windows(every='event', **spans)
        assert len(view) == 3000
    assert kinds(making)['metadata.json'] == 1
    assert not {'audio.bag', 'event.bag', 'time.bag', 'state.bag'} & kinds(making).keys()
    random = np.random.default_rng(0)
    view.batch(random.integers(0, 3000, 64))
    sounds = view.select(fields='audio')
    for _ in range(2):
        indices = random.integers(0, 3000, 64)
        with proxy.counted() as requests:
            batch = view.batch(indices)
        found = kinds(requests)
        assert found['time.bag'] == found['metadata.json'] == found['refs.bag'] == 0
        assert max(found[name] for name in ('state.bag', 'event.bag')) <= 1
        expected = local.windows(every='event', **spans).batch(indices)
        assert all(np.array_equal(batch[name], expected[name]) for name in expected)
        wanted = int(0.6 * found['audio.bag']) + 1
        proxy.most, proxy.awaited = 0, wanted
        with proxy.counted() as requests:
            sounds.batch(indices)
        proxy.awaited = 0
        assert kinds(requests)['audio.bag'] == found['audio.bag']
        assert proxy.most >= wanted  # All at once, not one after the other.


def test_finding_a_key(folder, s3_storage, proxy):
    """A warm look-up takes a request for a block of the index, and one for the record."""
    options = {'storage_options': s3_storage.options}
    assert bags.create_index(folder, 'text', **options) == COUNT
    assert bags.create_index(folder, 'id', **options) == COUNT
    dataset = bags.open(folder, storage_options=s3_storage.through(proxy))
    assert dataset.find('id', 5) == 5
    with proxy.counted() as opening:
        assert bags.open(folder, storage_options=s3_storage.through(proxy)).find('id', 5) == 5
    assert kinds(opening)['id.index'] <= 2
    for number in (19_999, 7_777, 12):
        with proxy.counted() as requests:
            assert dataset.find('id', number) == number
        assert kinds(requests)['id.index'] <= 1
        assert len(requests) <= 2
    with proxy.counted() as requests, pytest.raises(KeyError):
        dataset.find('id', -1)
    assert len(requests) <= 1
    keys = np.random.default_rng(0).integers(0, COUNT, 300)
    with proxy.counted() as requests:
        assert dataset.find_many('id', keys).tolist() == keys.tolist()
    assert len(requests) <= 4
    assert dataset.find('text', make_row(11)['text']) == 11


@pytest.mark.slow('s3-obstore')
def test_keys_on_every_storage(storage, tmp_path):
    root, options = f'{storage.root}/keys', {'storage_options': storage.options}
    films = [{'id': f'film {n}', 'title': f'title {n}'} for n in range(30)]
    labels = [{'id': f'film {n}', 'label': n} for n in range(40, 0, -3)]
    for name, rows in (('films', films), ('labels', labels)):
        spec = {'id': 'utf8', **({'title': 'utf8'} if name == 'films' else {'label': 'int(8)'})}
        with bags.ShardedDatasetWriter(f'{root}/{name}', spec, shard_length=12, **options) as writer:
            for row in rows:
                writer.append(row)
    assert bags.create_index(f'{root}/labels', 'id', **options) == len(labels)
    for more in ({}, {'cache': tmp_path / 'cache'}, {'cache_index': False}):
        opened = [bags.open(f'{root}/{name}', **options, **more) for name in ('films', 'labels')]
        assert opened[1].find('id', 'film 7') == 11
        assert opened[1].find_many('id', ['film 7', 'film 40']).tolist() == [11, 0]
        numbers = {row['id']: row['label'] for row in labels}
        expected = [
            {'id': row['id'], 'label': numbers.get(row['id']), 'title': row['title']} for row in films
        ]
        view = bags.join(opened, on='id', how='left')
        assert list(view) == expected
        assert view.batch(range(30))['label'] == [row['label'] for row in expected]
        pairs = bags.join(opened, on='id')
        assert pairs.__getitems__(range(len(pairs))) == [row for row in expected if row['label'] is not None]


def test_stores_with_other_endpoints_share_no_copies(s3_storage, proxy, tmp_path):
    url, cache = f'{s3_storage.root}/endpoints', {'cache': tmp_path / 'cache', 'cache_check': 'never'}
    with bags.DatasetWriter(url, {'id': 'int'}, storage_options=s3_storage.options) as writer:
        for number in range(100):
            writer.append({'id': number})
    with bags.open(url, storage_options=s3_storage.options, **cache) as reader:
        assert reader.column('id').tolist() == [*range(100)]
    for is_cached in (False, True):
        with (
            proxy.counted() as requests,
            bags.open(url, storage_options=s3_storage.through(proxy), **cache) as reader,
        ):
            assert reader.column('id').tolist() == [*range(100)]
        assert (not requests) == is_cached
