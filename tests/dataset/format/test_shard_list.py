"""Sharded datasets in a remote store: shards.json or a listing, and the cache."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import bags
import bags.bag.reader
import bags.storage
from bags.errors import CorruptError, SpecError
from bags.storage.cache.store import CachedStore
from tests.dataset.remote_dataset import SPEC, cached, check, row

# The index.


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
    assert kinds.count('read') <= 3  # shards.json, spec.json, and the order of fields in metadata.json.
    assert len(far.requests) <= 6  # Whatever the number of shards.
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
    assert len(bags.open(dataset)) == 40  # Local folders are listed, and the index is not read.


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


@pytest.mark.parametrize('indexed', [False, True])
def test_a_cached_dataset_reads_the_same_and_asks_for_nothing_twice(dataset, far, tmp_path, indexed):
    if indexed:
        bags.consolidate(dataset)
    check(cached(far, dataset, tmp_path))
    del far.asked[:], far.opened[:], far.requests[:]
    check(cached(far, dataset, tmp_path))
    assert not far.asked
    assert not far.opened
    # With an index: a listing of each shard that is read, and a request for one more shard.
    assert len(far.requests) <= (8 if indexed else 3)


def test_only_the_fields_that_are_read_are_fetched(dataset, far, tmp_path):
    reader = cached(far, dataset, tmp_path)
    assert reader.batch(range(40), 'id')['id'].tolist() == list(range(40))
    names = {'spec.json', 'metadata.json', 'refs.bag', 'id.bag'}
    assert {os.path.basename(path) for path in far.opened} <= names
    assert sum(path.endswith('metadata.json') for path in far.opened) == 1


def test_a_single_folder_and_a_bag(dataset, far, tmp_path):
    reader = cached(far, dataset / '000001', tmp_path)
    assert [datapoint['id'] for datapoint in reader] == list(range(7, 14))
    far.everything = True  # Readers of bags open other paths of the store.
    records = bags.bag.Reader(f'far:{dataset}/000001/text.bag', cache=tmp_path / 'cache')
    assert records[0] == row(7)['text'].encode()
    opened = len(far.opened)
    assert bags.bag.Reader(f'far:{dataset}/000001/text.bag', cache=tmp_path / 'cache')[-1] == b'text 13' * 3
    assert len(far.opened) == opened


def test_options_of_object_stores_are_refused_for_local_paths(dataset, tmp_path):
    for options in ({'cache': tmp_path / 'cache'}, {'storage_options': {'anon': True}}):
        (name,) = options
        for opened in (bags.open, bags.ShardedDatasetReader):
            with pytest.raises(ValueError, match=rf"{name}: has no effect on a local path, got '.*data'"):
                opened(dataset, **options)
        with pytest.raises(ValueError, match=f'{name}: has no effect on a local path'):
            bags.bag.Reader(dataset / '000001/text.bag', **options)
    assert not (tmp_path / 'cache').exists()


def test_readers_with_a_cache_are_pickled(dataset, far, tmp_path):
    import pickle

    reader = cached(far, dataset, tmp_path)
    data = pickle.dumps(reader)
    far.everything = True  # Its paths are those of the store.
    check(pickle.loads(data))
    assert isinstance(pickle.loads(data).store, CachedStore)


def test_a_pointer_of_git_lfs_is_named(dataset, far):
    bags.consolidate(dataset)
    pointer = f'version https://git-lfs.github.com/spec/v1\noid sha256:{"a" * 64}\nsize 12345\n'
    Path(dataset, 'shards.json').write_text(pointer)
    match = r'shards\.json: expected JSON, got a Git LFS pointer, which `git lfs pull` replaces by the file'
    with pytest.raises(CorruptError, match=match):
        bags.open(f'far:{dataset}')
