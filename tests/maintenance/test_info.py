"""`bags.info` of datasets and bags."""

import dataclasses

import numpy as np
import pytest

import bags

SPEC = {'id': 'int(8)', 'note': 'utf8?', 'words': 'utf8[]'}
COUNT = 30


def row(index):
    return {'id': index, 'note': None if index % 3 else 'x' * 100, 'words': ['word'] * (index % 4)}


@pytest.fixture(params=[{}, {'shard_length': 7}], ids=['folder', 'sharded'])
def dataset(request, kit, tmp_path):
    path = tmp_path / 'dataset'
    kit.fill(path, map(row, range(COUNT)), SPEC, compression=['note'], **request.param)
    return path


def test_dataset(dataset):
    found = bags.info(dataset)
    assert isinstance(found, bags.types.DatasetInfo)
    with bags.open(dataset) as reader:
        assert (found.datapoints, found.shards, found.bytes) == (COUNT, reader.shards, reader.size)
        assert {name: field.type for name, field in found.fields.items()} == reader.spec
    assert found.refs_bytes + sum(field.bytes for field in found.fields.values()) == found.bytes
    assert (found.sampled_shards, found.unclosed) == (found.shards, [])
    assert all(isinstance(field, bags.types.FieldInfo) for field in found.fields.values())
    note, words = found.fields['note'], found.fields['words']
    assert (note.compressed, note.missing, note.items) == (True, 20, None)
    assert note.ratio > 2
    assert (words.compressed, words.ratio, words.missing) == (False, None, 0)
    assert (words.items.min, words.items.max, words.items.count) == (0, 3, COUNT)
    assert words.items.mean == round(np.mean([index % 4 for index in range(COUNT)]), 3)
    assert sum(words.items.counts) == COUNT
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.shards = 3


def test_unclosed_dataset(tmp_path):
    writer = bags.DatasetWriter(tmp_path / 'd', SPEC)
    writer.append(row(0), flush=True)
    found = bags.info(tmp_path / 'd')
    assert (found.datapoints, found.unclosed) == (1, [str(tmp_path / 'd')])
    writer.close()
    assert bags.info(tmp_path / 'd').unclosed == []


def test_shard_that_is_being_created(kit, tmp_path):
    path = tmp_path / 'd'
    kit.fill(path, map(row, range(4)), SPEC, shard_length=2)
    (path / '000002').mkdir()
    (path / '000002' / 'spec.json').write_text('{}')
    assert (bags.info(path).shards, bags.info(path).datapoints) == (2, 4)


def test_bags(tmp_path):
    for shard in range(2):
        with bags.bag.Writer(tmp_path / f'x-0000{shard}-of-00002.bagz') as writer:
            for index in range(10):
                writer.write(b'text' * 10 * index)
    found = bags.info(tmp_path / 'x@2.bagz')
    assert isinstance(found, bags.types.BagInfo)
    assert (found.records, found.bags, found.sampled_bags, found.compressed) == (20, 2, 2, True)
    assert found.bytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert found.ratio > 3
    assert (found.record_bytes.count, found.record_bytes.min) == (20, 0)
    assert isinstance(found.record_bytes, bags.types.Distribution)


def test_missing_paths(tmp_path):
    with pytest.raises(FileNotFoundError, match='no such dataset or bag'):
        bags.info(tmp_path / 'nowhere')
    with pytest.raises(FileNotFoundError, match='expected a dataset'):
        bags.info(tmp_path)
