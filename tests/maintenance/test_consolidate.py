"""Consolidating writes the spec, sizes and counts of all shards into shards.json."""

from __future__ import annotations

import json

import pytest

import bags
from tests.dataset.remote_dataset import SPEC, row
from tests.servers import WebServer


def test_shards_json_holds_the_spec_sizes_and_counts(dataset):
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


def test_only_closed_shards_are_consolidated(tmp_path):
    with bags.ShardedDatasetWriter(tmp_path / 'd', SPEC) as writer:
        writer.append(row(0), flush=True)
        with pytest.raises(ValueError, match='closed'):
            bags.consolidate(tmp_path / 'd')
    assert bags.consolidate(tmp_path / 'd') == 1
    with pytest.raises(FileNotFoundError):
        bags.consolidate(tmp_path)


def test_shards_that_differ_by_optional_fields(tmp_path):
    for spec in ({'id': 'int(8)'}, {'id': 'int(8)', 'note': 'utf8?'}):
        with bags.ShardedDatasetWriter(tmp_path / 'd', spec, resume=True, shard_length=1) as writer:
            writer.append({'id': 0})
    assert bags.consolidate(tmp_path / 'd') == 2
    assert bags.verify(tmp_path / 'd', notes=True) == []
    assert bags.open(tmp_path / 'd').spec == {'id': 'int(8)', 'note': 'utf8?'}


@pytest.mark.parametrize('checksum', [False, True])
def test_metadata_and_statistics_may_come_later(tmp_path, checksum):
    """They are no damage, whether shards.json has their sizes or not."""
    path = tmp_path / 'd'
    with bags.ShardedDatasetWriter(
        path, SPEC, shard_length=2, checksum=checksum, metadata={'a': 1}
    ) as writer:
        for index in range(5):
            writer.append(row(index))
    bags.consolidate(path)
    for metadata in ({'a': 'a longer text'}, {}, {'b': 2}):
        bags.set_metadata(path, metadata)
        assert bags.verify(path, notes=True) == []
        assert bags.open(path).metadata == metadata
    bags.statistics(path, 'id')
    assert bags.verify(path, notes=True) == []


def test_what_needs_no_shards_json(tmp_path):
    with bags.DatasetWriter(tmp_path / 'single', {'a': 'int'}) as writer:
        writer.append({'a': 1})
    with pytest.raises(FileNotFoundError, match='a dataset of one folder opens with as few requests without'):
        bags.consolidate(tmp_path / 'single')


def test_a_web_server_refuses_before_shards_are_read(dataset):
    with WebServer(dataset.parent) as server:
        with pytest.raises(OSError, match='a web server is read-only'):
            bags.consolidate(f'{server.url}/{dataset.name}')
        assert not [path for _, path, *_ in server.requests if path.endswith('/id.bag')]
