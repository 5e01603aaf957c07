"""Datasets of many folders on an S3 server that counts requests; writers fail and resume."""

from __future__ import annotations

import os

import pytest

import bags
from tests.servers import Proxy, s3_server

pytest.importorskip('obstore')
pytest.importorskip('moto')

SPEC = {'id': 'int(8)', 'text': 'utf8', 'words': 'utf8[]'}


def row(index):
    return {'id': index, 'text': f'text {index} ' * 20, 'words': [str(index)] * (index % 3)}


@pytest.fixture(scope='module')
def server():
    with s3_server() as url, Proxy(url) as proxy:
        yield proxy


@pytest.fixture
def storage(server):
    options = {'endpoint_url': server.url, 'key': 'a', 'secret': 'b', 'client': 'obstore', 'timeout': 20}
    return {'storage_options': options}


def write(path, rows, **options):
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=4, **options) as writer:
        for index in rows:
            writer.append(row(index))


@pytest.mark.slow
def test_requests_and_what_they_bring(server, storage, tmp_path):
    path = 's3://bucket/counted'
    write(path, range(80), **storage)
    with server.counted() as requests:
        reader = bags.open(path, **storage)
        assert (len(reader), reader.shards) == (80, 20)
    # A request for the index, the listing, spec and refs of the first shard: lengths come from sizes.
    assert len(requests) <= 4
    assert [reader[index] for index in range(80)] == [row(index) for index in range(80)]
    assert bags.consolidate(path, **storage) == 20
    with server.counted() as requests:
        reader = bags.open(path, **storage)
        assert (len(reader), reader.shards, reader.size > 0) == (80, 20, True)
    assert len(requests) == 1
    assert reader.batch(range(80), 'id')['id'].tolist() == list(range(80))
    cache = os.fspath(tmp_path / 'cache')
    assert bags.prefetch(bags.open(path, **storage, cache=cache)) > 0
    with server.counted() as requests:
        reader = bags.open(path, **storage, cache=cache)
        assert [reader[index] for index in range(80)] == [row(index) for index in range(80)]
    # The index, a listing of each shard, and a request for one more shard; no data.
    assert len(requests) <= 1 + 20 + 1
    assert all('list-type' in url or method == 'HEAD' for method, url, _ in requests[1:])


def test_going_on_after_the_last_whole_shard(server, storage):
    path = 's3://bucket/resumed'
    write(path, range(8), **storage)
    # As left by a writer that is killed while one shard is uploaded and the next is filled.
    from bags.storage import store_for

    store, folder = store_for(path, storage_options=storage['storage_options'])
    for name in ('000002/spec.json', '000002/id.bag', '000003/spec.json'):
        store.replace(store.join(folder, name), store.read(store.join(folder, f'000000/{name[7:]}')))
    assert len(bags.open(path, **storage)) == 8
    write(path, range(8, 18), resume=True, **storage)
    reader = bags.open(path, **storage)
    assert reader.shards == 5
    assert [reader[index] for index in range(18)] == [row(index) for index in range(18)]


def test_an_upload_that_fails_is_told_and_tried_again(server, storage):
    path = 's3://bucket/failing'
    options = {**storage['storage_options'], 'retries': 0}
    writer = bags.ShardedDatasetWriter(path, SPEC, shard_length=2, storage_options=options)
    errors = 0
    while len(writer) < 9:
        # Requests for shards after the first are refused at first.
        server.faults = {'refuse': 1.0} if len(writer) == 2 and errors < 3 else {}
        try:
            writer.append(row(len(writer)))
        except OSError:
            errors += 1
    server.faults = {}
    writer.close()
    assert errors >= 3
    reader = bags.open(path, **storage)
    assert [reader[index] for index in range(len(reader))] == [row(index) for index in range(9)]
