"""Datasets of many folders on storage that is not local: an index or a listing, the cache, prefetching."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import bags
import bags.bag.reader
import bags.storage
from bags.bag.options import CacheMode
from bags.errors import CorruptError, SpecError
from bags.storage.cache.store import CachedStore
from bags.storage.local import LocalStore
from tests.storage.far import Far

SPEC = {'id': 'int(8)', 'text': 'utf8', 'words': 'utf8[]', 'meta': 'json'}


class Counting(Far):
    """Counts requests, as a storage would see them."""

    def __init__(self):
        super().__init__()
        self.requests = []

    def open(self, path, hints):
        self.requests.append(('open', os.path.basename(path)))
        return super().open(path, hints)

    def read(self, path):
        self.requests.append(('read', os.path.basename(path)))
        return super().read(path)

    def exists(self, path):
        self.requests.append(('exists', path))
        return super().exists(path)

    def size(self, path):
        self.requests.append(('size', path))
        return super().size(path)

    def names(self, folder):
        self.requests.append(('names', folder))
        return super().names(folder)

    def walk(self, folder):
        self.requests.append(('walk', folder))
        return LocalStore().walk(folder)


def row(index):
    return {
        'id': index,
        'text': f'text {index}' * (index % 5),
        'words': [f'{index}', 'x'] * (index % 3),
        'meta': {'n': index},
    }


@pytest.fixture
def dataset(tmp_path):
    path = tmp_path / 'data'
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=7, compression=['meta']) as writer:
        for index in range(40):
            writer.append(row(index))
    return path


@pytest.fixture
def far(monkeypatch):
    """Has paths behind `far:` be on a storage that is not local."""
    store, original = Counting(), bags.storage.store_for

    def store_for(path, *args):
        text = os.fspath(path)
        if text.startswith('far:'):
            return store, text[4:]
        return (store, text) if store.everything else original(path, *args)

    store.everything = False
    monkeypatch.setattr(bags.storage, 'store_for', store_for)
    monkeypatch.setattr(bags.bag.reader, 'store_for', store_for)
    return store


def check(reader, count=40):
    assert len(reader) == count
    assert [reader[index] for index in range(count)] == [row(index) for index in range(count)]
    chosen = np.random.default_rng(0).integers(0, count, 30)
    assert reader.batch(chosen, 'id')['id'].tolist() == chosen.tolist()


# The index.


def test_content_of_shards_json(dataset):
    assert bags.consolidate(dataset) == 6
    found = json.loads((dataset / 'shards.json').read_bytes())
    assert found['format'] == 'bags shards 1'
    assert found['spec'] == dict(sorted(SPEC.items()))
    assert [shard['name'] for shard in found['shards']] == [f'{number:06}' for number in range(6)]
    assert [shard['length'] for shard in found['shards']] == [7, 7, 7, 7, 7, 5]
    for shard in found['shards']:
        folder = dataset / shard['name']
        assert shard['sizes'] == {path.name: path.stat().st_size for path in folder.iterdir()}
        assert shard['counts'] == {
            path.name: len(bags.bag.Reader(path)) for path in folder.iterdir() if path.suffix != '.json'
        }


def test_one_request_opens_all_shards(dataset, far):
    bags.consolidate(dataset)
    reader = bags.open(f'far:{dataset}')
    assert far.requests == [('read', 'shards.json')]
    assert reader.spec == dict(sorted(SPEC.items()))
    assert reader.shards == 6
    assert reader.size == bags.open(dataset).size
    assert len(far.requests) == 1
    check(reader)


def test_without_an_index_one_listing_has_all_lengths(dataset, far):
    reader = bags.open(f'far:{dataset}')
    assert len(reader) == 40
    kinds = [kind for kind, _ in far.requests]
    assert kinds.count('walk') == 1
    assert 'names' not in kinds
    assert len(far.requests) <= 5  # Whatever the number of shards.
    check(reader)


def test_shards_of_a_part(dataset, far):
    for indexed in (False, True):
        reader = bags.open(f'far:{dataset}', shard_start=1, shard_step=2)
        expected = [*range(7, 14), *range(21, 28), *range(35, 40)]
        assert [datapoint['id'] for datapoint in reader] == expected
        assert len(bags.open(f'far:{dataset}', shard_start=9)) == 0
        if not indexed:
            bags.consolidate(dataset)


@pytest.mark.parametrize('remote', [False, True])
def test_an_added_shard_raises(dataset, far, remote):
    bags.consolidate(dataset)
    shutil.copytree(dataset / '000005', dataset / '000006')
    if not remote:
        assert len(bags.open(dataset)) == 45
        return
    with pytest.raises(CorruptError, match=r'shards.json: is stale.* 000006: run bags consolidate'):
        bags.open(f'far:{dataset}')[0]


@pytest.mark.parametrize('remote', [False, True])
def test_a_missing_shard_raises(dataset, far, remote):
    bags.consolidate(dataset)
    shutil.rmtree(dataset / '000003')
    if not remote:
        assert len(bags.open(dataset)) == 33
        return
    reader = bags.open(f'far:{dataset}')
    assert reader[0] == row(0)
    with pytest.raises(CorruptError, match='000003'):
        reader[22]


@pytest.mark.parametrize('remote', [False, True])
def test_a_replaced_shard_raises(dataset, far, remote):
    bags.consolidate(dataset)
    shutil.rmtree(dataset / '000003')
    with bags.DatasetWriter(dataset / '000003', SPEC) as writer:
        for index in range(3):
            writer.append(row(index))
    if not remote:
        assert len(bags.open(dataset)) == 36
        return
    with pytest.raises(CorruptError, match=r'000003: expected .* shards.json is stale: run bags consolidate'):
        bags.open(f'far:{dataset}')[22]


def test_a_replaced_field_raises(dataset, far):
    bags.consolidate(dataset)
    os.unlink(dataset / '000002' / 'text.bag')
    with bags.bag.Writer(dataset / '000002' / 'text.bag') as writer:
        for index in range(7):
            writer.write(f'another {index}')
    reader = bags.open(f'far:{dataset}')
    assert reader[15, 'id'] == {'id': 15}
    with pytest.raises(CorruptError, match=r'bytes of text.bag, got .*run bags consolidate'):
        reader[15]


def test_the_index_of_another_dataset_raises(dataset, far, tmp_path):
    with bags.ShardedDatasetWriter(tmp_path / 'other', {'id': 'int(4)'}, shard_length=7) as writer:
        for index in range(42):
            writer.append({'id': index})
    bags.consolidate(tmp_path / 'other')
    shutil.copy(tmp_path / 'other' / 'shards.json', dataset)
    with pytest.raises((CorruptError, SpecError)):
        bags.open(f'far:{dataset}')[0]


@pytest.mark.parametrize(
    'change',
    [
        lambda found: found.update(format='bags shards 2'),
        lambda found: found.update(shards=[]),
        lambda found: found['shards'][0].update(name='../000000'),
        lambda found: found['shards'][0].update(name='000001'),
        lambda found: found['shards'][0].update(name=0),
        lambda found: found['shards'][0].update(length=-1),
        lambda found: found['shards'][0].update(length=1 << 70),
        lambda found: found['shards'][0].update(sizes=[]),
        lambda found: found['shards'][0].update(counts={'id.bag': True}),
        lambda found: found.update(spec={'../id': 'int(8)'}),
        lambda found: found.update(spec=5),
    ],
)
def test_nothing_in_it_is_trusted(dataset, far, change):
    bags.consolidate(dataset)
    path = dataset / 'shards.json'
    found = json.loads(path.read_bytes())
    change(found)
    path.write_text(json.dumps(found))
    with pytest.raises((CorruptError, SpecError), match=r'shards\.json'):
        bags.open(f'far:{dataset}')
    assert len(bags.open(dataset)) == 40  # Where a listing costs nothing, it counts.


@pytest.mark.parametrize('data', [b'', b'{', b'[' * 100_000, b'null', b'\xff'])
def test_invalid_json(dataset, far, data):
    (dataset / 'shards.json').write_bytes(data)
    with pytest.raises(CorruptError, match=r'shards\.json'):
        bags.open(f'far:{dataset}')
    assert len(bags.open(dataset)) == 40


def test_writers_remove_it(dataset):
    bags.consolidate(dataset)
    with bags.ShardedDatasetWriter(dataset, SPEC, shard_length=7, resume=True) as writer:
        assert len(writer) == 40
        assert (dataset / 'shards.json').exists()  # Nothing was added.
        writer.append(row(40))
        assert not (dataset / 'shards.json').exists()
    check(bags.open(dataset), 41)


def test_only_closed_shards_are_indexed(tmp_path):
    with bags.ShardedDatasetWriter(tmp_path / 'd', SPEC) as writer:
        writer.append(row(0), flush=True)
        with pytest.raises(ValueError, match='closed'):
            bags.consolidate(tmp_path / 'd')
    assert bags.consolidate(tmp_path / 'd') == 1
    with pytest.raises(FileNotFoundError):
        bags.consolidate(tmp_path)


def test_an_empty_shard(tmp_path, far):
    with bags.ShardedDatasetWriter(tmp_path / 'd', SPEC) as writer:
        writer.append(row(0))
    with bags.DatasetWriter(tmp_path / 'd' / '000001', SPEC):
        pass
    assert len(bags.open(f'far:{tmp_path}/d')) == 1
    bags.consolidate(tmp_path / 'd')
    assert len(bags.open(f'far:{tmp_path}/d')) == 1


def test_incomplete_shards_at_the_end_are_left_out(dataset, far):
    (dataset / '000006').mkdir()
    shutil.copy(dataset / '000005' / 'spec.json', dataset / '000006')
    shutil.copy(dataset / '000005' / 'id.bag', dataset / '000006')
    (dataset / '000007').mkdir()
    shutil.copy(dataset / '000005' / 'spec.json', dataset / '000007')
    check(bags.open(f'far:{dataset}'))


# The cache.


def cached(far, dataset, tmp_path, **options):
    far.everything = False
    return bags.open(f'far:{dataset}', cache=tmp_path / 'cache', **options)


@pytest.mark.parametrize('mode', CacheMode)
@pytest.mark.parametrize('indexed', [False, True])
def test_a_cached_dataset_reads_the_same_and_asks_for_nothing_twice(dataset, far, tmp_path, mode, indexed):
    if indexed:
        bags.consolidate(dataset)
    check(cached(far, dataset, tmp_path, cache_mode=mode))
    del far.asked[:], far.opened[:], far.requests[:]
    check(cached(far, dataset, tmp_path, cache_mode=mode))
    assert not far.asked
    assert not far.opened
    # With an index, each shard that is touched is listed, and there is a look behind the last.
    assert len(far.requests) <= (8 if indexed else 3)


def test_only_the_fields_that_are_read_are_fetched(dataset, far, tmp_path):
    reader = cached(far, dataset, tmp_path)
    assert reader.batch(range(40), 'id')['id'].tolist() == list(range(40))
    assert {os.path.basename(path) for path in far.opened} <= {'spec.json', 'refs.bag', 'id.bag'}


def test_a_single_folder_and_a_bag(dataset, far, tmp_path):
    reader = cached(far, dataset / '000001', tmp_path)
    assert [datapoint['id'] for datapoint in reader] == list(range(7, 14))
    records = bags.bag.Reader(f'far:{dataset}/000001/text.bag', cache=tmp_path / 'cache')
    assert records[0] == row(7)['text'].encode()
    opened = len(far.opened)
    assert bags.bag.Reader(f'far:{dataset}/000001/text.bag', cache=tmp_path / 'cache')[-1] == b'text 13' * 3
    assert len(far.opened) == opened


def test_a_local_dataset_is_read_where_it_is(dataset, tmp_path):
    check(bags.open(dataset, cache=tmp_path / 'cache'))
    assert not (tmp_path / 'cache').exists()


# Prefetching.


def test_prefetched_datasets_are_read_without_the_storage(dataset, far, tmp_path):
    size = bags.prefetch(cached(far, dataset, tmp_path))
    assert size == bags.open(dataset).size + 6 * os.path.getsize(dataset / '000000' / 'spec.json')
    reader = cached(far, dataset, tmp_path)
    del far.asked[:], far.opened[:]
    check(reader)
    assert not far.asked
    assert not far.opened


def test_only_shards_and_fields_of_a_view_are_fetched(dataset, far, tmp_path):
    reader = cached(far, dataset, tmp_path)
    view = bags.concat([bags.select(reader, [8, 36])[1:], reader[21:23]])
    bags.prefetch(view, 'text')
    fetched = {str(Path(path).relative_to(dataset)) for path in far.opened}
    names = ('refs.bag', 'spec.json', 'text.bag')
    assert {f'{shard}/{name}' for shard in ('000003', '000005') for name in names} <= fetched
    assert not {name for name in fetched if name.endswith(('id.bag', 'meta.bagz', 'words.bag'))}
    assert not {name for name in fetched if name.startswith(('000001', '000002', '000004'))}


def test_only_blocks_of_a_view_are_fetched(tmp_path, far):
    path = tmp_path / 'blobs'
    with bags.ShardedDatasetWriter(path, {'blob': 'bytes', 'id': 'int(8)'}) as writer:
        for index in range(64):
            writer.append({'blob': bytes([index]) * 100_000, 'id': index})
    reader = cached(far, path, tmp_path, cache_mode='blocks')
    bags.prefetch(reader[5:7], 'blob')
    assert sum(stop - start for _, start, stop in far.asked) < 600_000
    again = cached(far, path, tmp_path, cache_mode='blocks')
    asked = len(far.asked)
    assert again[6, 'blob'] == {'blob': bytes([6]) * 100_000}
    assert len(far.asked) == asked


def test_joined_datasets(dataset, far, tmp_path):
    with bags.DatasetWriter(tmp_path / 'labels', {'label': 'int(1)'}) as writer:
        for index in range(40):
            writer.append({'label': index % 3})
    joined = bags.join(
        [cached(far, dataset, tmp_path), bags.open(f'far:{tmp_path}/labels', cache=tmp_path / 'cache')]
    )
    bags.prefetch(joined, ('id', 'label'))
    assert {os.path.basename(path) for path in far.opened} == {'spec.json', 'refs.bag', 'id.bag', 'label.bag'}


def test_prefetching_without_a_cache_or_room(dataset, far, tmp_path):
    with pytest.raises(ValueError, match='has no cache'):
        bags.prefetch(bags.open(dataset))
    with pytest.raises(ValueError, match='cache_size of at least'):
        bags.prefetch(cached(far, dataset, tmp_path, cache_size=100))
    with pytest.raises(KeyError, match='nothing'):
        bags.prefetch(cached(far, dataset, tmp_path), 'nothing')
    with pytest.raises(TypeError, match='dataset'):
        bags.prefetch('path')


def test_readers_with_a_cache_are_pickled(dataset, far, tmp_path):
    import pickle

    reader = cached(far, dataset, tmp_path)
    data = pickle.dumps(reader)
    far.everything = True  # Its paths are those of the storage.
    check(pickle.loads(data))
    assert isinstance(pickle.loads(data)._store, CachedStore)
