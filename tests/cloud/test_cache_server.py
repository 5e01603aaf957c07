"""The nginx of docs/recipes/cache-server.md between several processes and an S3 server."""

import contextlib
import http.client
import os
import subprocess
import sys
from collections import Counter

import boto3
import pytest

import bags
from benchmarks.server import cache_server, nginx_path
from tests.cloud.conftest import CLIENTS
from tests.servers import Proxy

MIB = 1 << 20
ROWS = 24
SPEC = {'id': 'int(8)', 'blob': 'bytes'}
READER = """
import sys, bags
readers = [bags.open(url) for url in sys.argv[1:]]
print('open', flush=True)
sys.stdin.readline()
for reader in readers:
    blobs = reader.batch(range(len(reader)), 'blob')['blob']
    assert [bytes(blob) for blob in blobs] == [bytes([1, row]) * 50_000 for row in range(len(reader))]
"""

pytestmark = pytest.mark.skipif(nginx_path() is None, reason='nginx is not installed')


@pytest.fixture
def bucket(s3):
    """A public bucket, and a proxy in front of it that records requests."""
    client = boto3.client(
        's3', endpoint_url=s3, region_name='us-east-1', aws_access_key_id='a', aws_secret_access_key='b'
    )
    client.create_bucket(Bucket='public', ACL='public-read')
    with contextlib.closing(client), Proxy(s3) as proxy:
        yield client, proxy
        for item in client.list_objects_v2(Bucket='public').get('Contents', ()):
            client.delete_object(Bucket='public', Key=item['Key'])
        client.delete_bucket(Bucket='public')


@pytest.fixture
def head(bucket, tmp_path):
    """The address of nginx."""
    with cache_server(tmp_path / 'nginx', bucket[1].url, 'public.s3.amazonaws.com') as url:
        yield url


def write(path, version, rows=range(ROWS)):
    """Writes datapoints of 100 KB, a folder or two shards, with files of equal sizes for each version."""
    more = {'shard_length': ROWS - 1} if path.name == 'sharded' else {}
    with (bags.ShardedDatasetWriter if more else bags.DatasetWriter)(path, SPEC, **more) as writer:
        for row in rows:
            writer.append({'id': row, 'blob': bytes([version, row]) * 50_000})
    if more:
        bags.consolidate(path)


def upload(bucket, path):
    for file in sorted(path.rglob('*')):
        if file.is_file():
            name = file.relative_to(path.parent).as_posix()
            bucket[0].put_object(Bucket='public', Key=name, Body=file.read_bytes(), ACL='public-read')


def blocks(bucket):
    """Counts the blocks of bags that were requested from the bucket."""
    return Counter((path, block) for _, path, block in bucket[1].requests if path.endswith('.bag'))


@pytest.mark.slow
def test_each_block_is_requested_once_by_many_processes(bucket, head, tmp_path):
    for name in ('folder', 'sharded'):
        write(tmp_path / name, 1)
        upload(bucket, tmp_path / name)
    command = [sys.executable, '-c', READER, f'{head}/folder', f'{head}/sharded']
    pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True}
    bucket[1].delay = 0.1  # So that the processes request the same blocks before the first one arrives.
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(subprocess.Popen(command, **pipes)) for _ in range(3)]
        for process in processes:
            assert process.stdout.readline() == 'open\n'
        for process in processes:
            process.stdin.write('\n')
            process.stdin.close()
        assert [process.wait() for process in processes] == [0, 0, 0]
    counts = blocks(bucket)
    for file in (tmp_path / name for name in ('folder/blob.bag', 'sharded/000000/blob.bag')):
        starts = range(0, file.stat().st_size, MIB)
        wanted = {f'bytes={start}-{start + MIB - 1}' for start in starts}
        assert {block for path, block in counts if file.match(path.lstrip('/'))} == wanted
    assert set(counts.values()) == {1}
    assert {method for method, *_ in bucket[1].requests} == {'GET'}

    with bucket[1].counted() as more, bags.open(f'{head}/sharded') as reader:
        assert reader[ROWS - 1, 'blob']['blob'][1] == ROWS - 1
    assert all(path.endswith(('/shards.json', '/source.json')) for _, path, _ in more)


@pytest.mark.parametrize('client', CLIENTS)
@pytest.mark.parametrize('name', ['folder', 'sharded'])
def test_a_dataset_that_is_replaced(bucket, head, tmp_path, name, client):
    write(tmp_path / '1' / name, 1)
    write(tmp_path / '2' / name, 2)
    upload(bucket, tmp_path / '1' / name)
    with bags.open(f'{head}/{name}', storage_options={'client': client}) as reader:
        assert {value[0] for value in reader.batch([0, ROWS - 1], 'blob')['blob']} == {1}
        upload(bucket, tmp_path / '2' / name)
        with pytest.raises(bags.CorruptError, match=r'blob\.bag: was replaced since it was opened'):
            reader[11, 'blob']
        # Here nginx cuts the response before the first block of the other version.
        with pytest.raises(bags.CorruptError, match=r'blob\.bag: was replaced since it was opened'):
            reader.batch(range(ROWS), 'blob')
        assert reader[0, 'blob']['blob'][0] == 1


def test_a_field_that_is_first_read_after_a_replacement(bucket, head, tmp_path):
    """Its file has the expected size, so that only the id of the shard tells the version."""
    for version in (1, 2):
        write(tmp_path / str(version) / 'sharded', version)
    upload(bucket, tmp_path / '1/sharded')
    with bags.open(f'{head}/sharded') as reader:
        assert reader[0, 'id'] == {'id': 0}
        upload(bucket, tmp_path / '2/sharded')
        with pytest.raises(bags.CorruptError, match=r'was replaced'):
            reader[0, 'blob']


def test_datapoints_are_appended(bucket, head, tmp_path):
    write(tmp_path / 'sharded', 1)
    upload(bucket, tmp_path / 'sharded')
    with bags.open(f'{head}/sharded') as reader:
        write(tmp_path / 'more', 1, range(ROWS, ROWS + 5))
        bags.append(tmp_path / 'more', tmp_path / 'sharded', progress=False)
        upload(bucket, tmp_path / 'sharded')
        assert reader[7, 'id'] == {'id': 7}
        with reader.reopen() as again:
            assert len(again) == ROWS + 5
            assert again[ROWS + 4] == {'id': ROWS + 4, 'blob': bytes([1, ROWS + 4]) * 50_000}


def test_responses(bucket, head):
    data = os.urandom(2 * MIB + 5000)
    for name, body in (('x.bag', data), ('empty.bag', b'')):
        bucket[0].put_object(Bucket='public', Key=name, Body=body, ACL='public-read')
    etag = bucket[0].head_object(Bucket='public', Key='x.bag')['ETag']

    def ask(method, name, byte_range=''):
        headers = {'Range': byte_range, 'Authorization': 'Bearer secret'} if byte_range else {}
        connection = http.client.HTTPConnection(head.partition('://')[2], timeout=60)
        with contextlib.closing(connection):
            connection.request(method, f'/{name}', headers=headers)
            response = connection.getresponse()
            return response.status, dict(response.headers), response.read()

    for byte_range, start, stop in (
        ('bytes=0-9', 0, 10),
        ('bytes=-70000', len(data) - 70_000, len(data)),
        (f'bytes={MIB - 3}-{2 * MIB + 3}', MIB - 3, 2 * MIB + 4),
        (f'bytes={2 * MIB}-{9 * MIB}', 2 * MIB, len(data)),
    ):
        status, headers, body = ask('GET', 'x.bag', byte_range)
        assert (status, headers['ETag'], body) == (206, etag, data[start:stop])
        assert headers['Content-Range'] == f'bytes {start}-{stop - 1}/{len(data)}'
    status, headers, body = ask('HEAD', 'x.bag')
    assert (status, headers['ETag'], headers['Content-Length'], body) == (200, etag, str(len(data)), b'')
    assert ask('GET', 'x.bag')[2] == data
    assert ask('GET', 'x.bag', f'bytes={9 * MIB}-')[0] == 416
    assert ask('GET', 'empty.bag', 'bytes=-9')[0] == 416
    assert len(bags.bag.Reader(f'{head}/empty.bag')) == 0
    assert ask('GET', 'nothing.bag')[0] == 404
    assert ask('PUT', 'x.bag')[0] == ask('DELETE', 'x.bag')[0] == 403
    assert {method for method, *_ in bucket[1].requests} == {'GET'}
