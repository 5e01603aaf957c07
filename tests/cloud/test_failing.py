"""Requests that fail, and what object stores refuse: retried, or raised with path and cause, in time."""

import errno
import functools
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import bags
from bags import bag
from bags.errors import CorruptError
from bags.storage import Hints, store_for
from tests.cloud.conftest import CLIENTS, GCS, S3, make_storage
from tests.servers import Proxy
from tests.storage.test_files import DATA, arrays

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope='module', params=[*S3, *GCS])
def far_storage(request):
    """S3 and GCS, each through both clients."""
    return make_storage(request, request.param)


@pytest.mark.parametrize('reads', [300, pytest.param(10_000, marks=pytest.mark.campaign)])
def test_a_network_that_fails_now_and_then(s3_storage, proxy, reads):
    path = f'{s3_storage.root}/faulty.bin'
    data = DATA[:200_000]
    store, path = store_for(path, None, {**s3_storage.through(proxy), 'timeout': 30})
    store.replace(path, data)
    file = store.open(path, Hints())
    proxy.faults = {'refuse': 0.02, 'reset': 0.02, 'truncate': 0.02}
    rng = np.random.default_rng(0)
    done = 0
    while done < reads:
        starts = rng.integers(0, file.cached_from - 700, 50)
        stops = starts + rng.integers(1, 700, 50)
        file.clients.reader().merge_gap = -1000  # No merging: one request a range.
        expected = [data[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        assert file.read_many(starts, stops) == expected
        done += 50
    assert proxy.spoiled > reads / 50


RANGES = [(start, start + 700) for start in range(0, 600_000, 3000)]


@pytest.fixture
def many_ranges(s3):
    """A file, its store through a proxy, and a function that replaces the object."""
    options = {'key': 'a', 'secret': 'b', 'client': 'obstore', 'endpoint_url': s3}
    direct, path = store_for('s3://bucket/many_ranges.bin', None, options)
    direct.replace(path, DATA)
    with Proxy(s3) as proxy:
        store, _ = store_for(path, None, {**options, 'endpoint_url': proxy.url, 'concurrency': 24})
        file = store.open(path, Hints())
        file.clients.reader().merge_gap = -1000  # No merging: one request a range.
        yield file, proxy, lambda: direct.replace(path, DATA[::-1])


@pytest.mark.slow
def test_many_ranges_at_a_time(many_ranges):
    file, proxy, _ = many_ranges
    expected = [DATA[start:stop] for start, stop in RANGES]
    with proxy.counted() as requests:
        assert file.read_many(*arrays(RANGES)) == expected
    wanted = {f'bytes={start}-{stop - 1}' for start, stop in RANGES}
    assert (len(requests), {asked for _, _, asked in requests}) == (len(RANGES), wanted)
    proxy.most, proxy.delay, proxy.awaited = 0, 0.02, 11
    assert file.read_many(*arrays(RANGES)) == expected
    assert 10 < proxy.most <= 24
    proxy.delay = proxy.awaited = 0
    proxy.faults = {'refuse': 0.02, 'reset': 0.02, 'truncate': 0.02}
    for _ in range(3):
        assert file.read_many(*arrays(RANGES)) == expected


@pytest.mark.slow('100', '199')
@pytest.mark.parametrize('when', [0, 1, 100, len(RANGES) - 1])
def test_an_object_that_changes_while_many_ranges_are_read(many_ranges, when):
    file, proxy, change = many_ranges
    first = len(proxy.requests)
    proxy.before = lambda count: change() if count == first + when else None
    with pytest.raises(CorruptError, match='was replaced since it was opened'):
        file.read_many(*arrays(RANGES))


def test_a_network_that_only_fails_is_told_in_time(s3_storage, proxy):
    options = {**s3_storage.through(proxy), 'retries': 2}
    store, path = store_for(f'{s3_storage.root}/x.bin', None, options)
    store.replace(path, b'x' * 100_000)
    file = store.open(path, Hints())
    for fault in ('refuse', 'reset', 'truncate'):
        proxy.faults = {fault: 1.0}
        with pytest.raises(OSError, match='3 tries') as caught:
            file.read(0, 100)
        assert path in str(caught.value)


def test_a_server_that_does_not_answer(s3_storage, proxy):
    options = {**s3_storage.through(proxy), 'timeout': 0.6, 'retries': 5}
    store, path = store_for(f'{s3_storage.root}/x.bin', None, options)
    proxy.delay = 30
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match=r'x\.bin'):
        store.open(path, Hints())
    assert time.monotonic() - begun < 25


@pytest.mark.slow(all_but='s3-obstore')
def test_sending_has_all_the_time(far_storage):
    with Proxy(far_storage.server) as proxy:
        store, path = store_for(
            f'{far_storage.root}/slow.bin', None, {**far_storage.through(proxy), 'timeout': 6}
        )
        proxy.delay = 2.5  # Longer than the timeout of one attempt of a request without a body.
        store.replace(path, b'data')
    assert store_for(path, None, far_storage.options)[0].read(path) == b'data'


def test_an_upload_of_which_the_last_answer_gets_lost(s3_storage, proxy):
    options = {**s3_storage.through(proxy), 'retries': 2}
    store, path = store_for(f'{s3_storage.root}/answered.bin', None, options)
    data = np.random.default_rng(0).bytes(9 << 20)

    def lose(_):
        method, asked, _ = proxy.requests[-1]
        proxy.faults = {'truncate': 1.0} if method == 'POST' and 'uploadId=' in asked else {}

    proxy.before = lose
    output = store.create(path)
    output.write([data])
    output.close()
    assert store.read(path) == data
    proxy.before = int
    again = store.create(path)
    with pytest.raises(FileExistsError, match='answered'):
        again.write([data[::-1]])


def test_an_object_that_appears_while_a_large_one_is_sent(far_storage):
    store, path = store_for(f'{far_storage.root}/appears.bin', None, far_storage.options)
    output = store.create(path)
    output.write([bytes(9 << 20)])
    store.replace(path, b'of another writer')
    with pytest.raises(FileExistsError, match='appears'):
        output.close()
    assert store.read(path) == b'of another writer'


@pytest.mark.slow(all_but='obstore-PUT')
@pytest.mark.parametrize('method', ['POST', 'PUT'])
@pytest.mark.parametrize('client', CLIENTS)
def test_an_upload_that_fails(s3, client, method):
    with Proxy(s3) as proxy:
        options = {'key': 'a', 'secret': 'b', 'client': client, 'endpoint_url': proxy.url}
        store, path = store_for(f's3://bucket/{client}-{method}.bin', None, options)

        def deny(_):
            found, asked, _ = proxy.requests[-1]
            proxy.faults = {'deny': 1.0} if found == method and 'uploadId=' in asked else {}

        proxy.before = deny
        output = store.create(path)

        def run():
            output.write([bytes(80 << 20)])
            output.close()

        with pytest.raises(PermissionError, match=rf'access denied.*{client}-{method}\.bin'):
            run()
        output.discard()
        proxy.before, proxy.faults = int, {}
        given_up = store.create(path)
        given_up.write([bytes(50 << 20)])
        given_up.discard()
        assert not store.exists(path)
        output = store.create(path)
        output.write([bytes(9 << 20)])
        output.close()
        assert store.stat(path).size == 9 << 20


@pytest.mark.slow(all_but='s3-obstore-last')
@pytest.mark.parametrize('lost', ['first', 'last'])
def test_an_upload_whose_completion_loses_a_part(s3_storage, proxy, lost):
    store, path = store_for(f'{s3_storage.root}/incomplete-{lost}.bin', None, s3_storage.through(proxy))
    size = 40 << 20

    def without_a_part(method, asked, body):
        if method != 'POST' or 'uploadId=' not in asked:
            return body
        parts = re.findall(rb'<Part>.*?</Part>', body, re.DOTALL)
        assert len(parts) > 1
        return body.replace(parts[0 if lost == 'first' else -1], b'')

    proxy.altered = without_a_part
    output = store.create(path)
    output.write([bytes(size)])
    with pytest.raises(OSError, match=rf'expected {size} bytes after the upload, got.*incomplete-{lost}'):
        output.close()


def replace_parts(proxy, change):
    """Stores other bytes for the first part of an upload, which is not the last if there are several."""

    def replaced(method, asked, body):
        is_first = method == 'PUT' and 'partNumber=1&' in f'{asked}&'
        return change(bytearray(body)) if is_first else body

    proxy.altered = replaced


def flip_middle(body):
    body[len(body) // 2] ^= 1
    return bytes(body)


def flip_start(body):
    # s3fs sends parts in pieces with a line of text before each.
    body[100] ^= 1
    return bytes(body)


def upload(storage, proxy, name, size):
    """Uploads random bytes in parts; returns the store, the path and the bytes."""
    store, path = store_for(f'{storage.root}/{name}.bin', None, storage.through(proxy))
    data = np.random.default_rng(0).bytes(size)
    output = store.create(path)
    output.write([data])
    output.close()
    return store, path, data


def test_an_upload_of_which_a_part_is_another(s3_storage, proxy):
    replace_parts(proxy, flip_middle)
    with pytest.raises(OSError, match=r'not what was sent: bytes 0 to \d+ differ.*ETag.*another\.bin'):
        upload(s3_storage, proxy, 'another', 40 << 20)


def test_uploads_to_a_store_whose_checksums_are_others(s3_storage, proxy):
    proxy.encrypted = True
    sizes = []
    for number in range(2):
        with proxy.counted() as requests:
            store, path, data = upload(s3_storage, proxy, f'encrypted{number}', 17 << 20)
        ranges = [asked[6:].split('-') for method, _, asked in requests if method == 'GET' and asked]
        sizes.append(sum(int(stop) - int(start) + 1 for start, stop in ranges if start))
        assert store.read(path) == data
    # Read again once, to find out.
    assert sizes == [17 << 20, 3 << 16]
    replace_parts(proxy, flip_start)
    with pytest.raises(OSError, match=r'not what was sent: bytes 0 to 65536 differ.*encrypted2'):
        upload(s3_storage, proxy, 'encrypted2', 17 << 20)


def test_an_upload_that_is_damaged_in_a_store_whose_checksums_are_others(s3_storage, proxy):
    proxy.encrypted = True
    replace_parts(proxy, flip_middle)
    with pytest.raises(OSError, match='not what was sent: bytes 0 to'):
        upload(s3_storage, proxy, 'encrypted', 9 << 20)


def test_an_object_that_is_not_what_was_sent(far_storage):
    """Another object of the same size and with the same end, as a store shows it after the upload."""
    with Proxy(far_storage.server) as proxy:
        path = f'{far_storage.root}/not-sent.bin'
        other = bytearray(np.random.default_rng(0).bytes(9 << 20))
        other[5 << 20] ^= 1
        direct, _ = store_for(path, None, far_storage.options)

        def replace(_):
            method, _, asked = proxy.requests[-1]
            if method == 'GET' and asked == 'bytes=-65536':
                direct.replace(path, bytes(other))

        proxy.before = replace
        with pytest.raises(OSError, match=r'not what was sent: bytes 0 to \d+ differ.*not-sent\.bin'):
            upload(far_storage, proxy, 'not-sent', 9 << 20)


@pytest.mark.slow(all_but='s3-obstore-part-reset')
@pytest.mark.parametrize('fault', ['refuse', 'fail', 'reset'])
@pytest.mark.parametrize('step', ['create', 'part', 'complete'])
def test_an_upload_of_which_a_request_fails_at_first(s3_storage, proxy, step, fault):
    store, path = store_for(f'{s3_storage.root}/{fault}-{step}.bin', None, s3_storage.through(proxy))
    failed = []

    def fail_first(_):
        method, asked, _ = proxy.requests[-1]
        found = (
            'create' if asked.endswith('uploads') or 'uploads&' in asked or 'uploads=' in asked else 'part'
        )
        if method == 'POST' and 'uploadId=' in asked:
            found = 'complete'
        is_upload = method in ('POST', 'PUT') and found == step and len(failed) < 2
        failed.extend([asked] * is_upload)
        proxy.faults = {fault: 1.0} if is_upload else {}

    proxy.before = fail_first
    data = np.random.default_rng(0).bytes(40 << 20)
    output = store.create(path)
    output.write([data])
    output.close()
    assert len(failed) == 2
    assert store.read(path) == data


# Requests that object stores refuse.


def test_no_bucket(far_storage):
    root = f'{far_storage.root.partition("://")[0]}://no-such-bucket'
    store, path = store_for(f'{root}/x.bag', None, far_storage.options)
    reads = [lambda: store.open(path, Hints())]
    if not root.startswith('gs') or far_storage.options['client'] != 'obstore':  # The server fails at it.
        reads.append(lambda: store.names(f'{root}/folder'))
        reads.append(lambda: bags.open(f'{root}/a', storage_options=far_storage.options))
    for read in reads:
        with pytest.raises(FileNotFoundError, match='no-such-bucket'):
            read()
    with pytest.raises(FileNotFoundError, match='no-such-bucket'):
        store.replace(path, b'x')


@pytest.mark.parametrize('path', ['a//b', '/a', 'a//b//c.bag'])
def test_keys_with_two_slashes(s3_storage, proxy, path):
    options = s3_storage.through(proxy)
    path = f's3://bucket/{path}'
    if options['client'] == 'obstore':
        for use in (bags.open, bag.Reader, bag.Writer):
            with pytest.raises(OSError, match=r"'//' in a key: set the storage option client='fsspec'"):
                use(path, storage_options=options)
        assert not proxy.requests
    elif not path.endswith('/a'):  # s3fs lists no folder of this name.
        with bags.DatasetWriter(path, {'id': 'utf8'}, storage_options=options, mode='create') as writer:
            writer.append({'id': 'x'})
        assert bags.open(path, storage_options=options)[0] == {'id': 'x'}


def test_no_key(far_storage):
    path = f'{far_storage.root}/no-such/x.bag'
    for read in (bag.Reader, bags.open):
        with pytest.raises(FileNotFoundError, match='no-such'):
            read(path, storage_options=far_storage.options)


def test_access_denied(far_storage):
    with Proxy(far_storage.server) as proxy:
        proxy.faults = {'deny': 1.0}
        store, path = store_for(f'{far_storage.root}/x.bag', None, far_storage.through(proxy))
        for work in (lambda: store.open(path, Hints()), lambda: store.replace(path, b'x')):
            with pytest.raises(PermissionError, match=r'access denied.*x\.bag'):
                work()
        assert len(proxy.requests) == 2  # Not retried.


@pytest.mark.parametrize('answer', ['elsewhere', 'malformed'])
def test_another_region(s3_storage, proxy, answer):
    proxy.faults = {answer: 1.0}
    options = {**s3_storage.through(proxy), 'region': 'us-east-1'}
    store, path = store_for(f'{s3_storage.root}/x.bag', None, options)
    for work in (
        lambda: store.open(path, Hints()),
        lambda: store.names(path),
        lambda: store.replace(path, b'x'),
        lambda: bags.open(path, storage_options=options),
    ):
        with pytest.raises(
            OSError, match=r'the bucket is in .*region.*storage option region.*x\.bag'
        ) as caught:
            work()
        if answer == 'malformed':
            assert 'region eu-west-1' in str(caught.value)
    assert len(proxy.requests) <= 8  # Not retried; s3fs also looks at the bucket.


def test_a_server_that_knows_neither_ranges_nor_writing(tmp_path):
    requests = []

    class Handler(SimpleHTTPRequestHandler):
        def log_request(self, *_):
            requests.append(self.command)

        def log_message(self, *_):
            pass

    with bag.Writer(tmp_path / 'x.bag') as writer:
        writer.write('record')
    handler = functools.partial(Handler, directory=os.fspath(tmp_path))
    with ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            url = f'http://127.0.0.1:{server.server_port}/x.bag'
            with pytest.raises(OSError, match='ignores Range') as caught:
                bag.Reader(url)
            assert (caught.value.errno, caught.value.filename) == (errno.EOPNOTSUPP, url)
            with pytest.raises(OSError, match='read-only') as caught:
                store_for(url)[0].replace(url, b'x')
            assert (caught.value.errno, caught.value.filename) == (errno.EOPNOTSUPP, url)
            error = pickle.loads(pickle.dumps(caught.value))
            assert (type(error), str(error)) == (type(caught.value), str(caught.value))
        finally:
            server.shutdown()
    assert 'PUT' not in requests


def test_no_credentials(s3_storage, monkeypatch, tmp_path):
    for name in ('AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_PROFILE', 'AWS_SESSION_TOKEN'):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv('AWS_CONFIG_FILE', os.fspath(tmp_path / 'config'))
    monkeypatch.setenv('AWS_SHARED_CREDENTIALS_FILE', os.fspath(tmp_path / 'credentials'))
    monkeypatch.setenv('AWS_EC2_METADATA_DISABLED', 'true')
    options = {name: value for name, value in s3_storage.options.items() if name not in ('key', 'secret')}
    store, path = store_for(f'{s3_storage.root}/x.bag', None, options)
    with pytest.raises(PermissionError, match=r'no credentials.*x\.bag'):
        store.open(path, Hints())


def test_an_epoch_in_which_an_object_gets_lost(far_storage):
    root, options = f'{far_storage.root}/epoch', {'storage_options': far_storage.options}
    with bags.ShardedDatasetWriter(
        root, {'id': 'int(8)', 'blob': 'bytes'}, shard_length=20, **options
    ) as writer:
        for index in range(100):
            writer.append({'id': index, 'blob': bytes([index]) * 10_000})
    dataset = bags.open(root, **options)
    store, path = store_for(f'{root}/000003/blob.bag', None, far_storage.options)
    loader = bags.Loader(dataset, 5, shuffle=False, epochs=1, workers=1, prefetch=2)
    found = []

    def run():
        for batch in loader:
            found.extend(batch['id'].tolist())
            store.remove(path)

    with pytest.raises((FileNotFoundError, CorruptError), match=r'epoch/000003/blob\.bag'):
        run()
    assert found == list(range(len(found)))
    assert len(found) <= 60


def test_options_that_make_no_sense():
    for options in ({'timeout': 0}, {'retries': -1}, {'concurrency': 'many'}, {'client': 'boto'}):
        with pytest.raises(ValueError, match=next(iter(options))):
            store_for('s3://bucket/x.bag', None, options)


MISSING = """
import sys

for name in {hidden}:
    sys.modules[name] = None
import bags

try:
    bags.open({url!r}, storage_options={options})
except bags.MissingDependencyError as exc:
    print(exc)
"""


@pytest.mark.slow(all_but='*-options1-*')
@pytest.mark.parametrize(
    ('url', 'options', 'hidden', 'line'),
    [
        (
            's3://bucket/a',
            {},
            ('obstore', 's3fs'),
            "obstore (or s3fs) is needed for this: pip install 'bags[s3]'",
        ),
        (
            's3://bucket/a',
            {'x': 1, 'retries': 0, 'use_ssl': True},
            ('s3fs',),
            "s3fs is needed for this: pip install 'bags[s3fs]'; obstore does not support storage option 'x'",
        ),
        (
            's3://bucket/a',
            {'client': 'obstore'},
            ('obstore',),
            "obstore is needed for this: pip install 'bags[s3]'",
        ),
        (
            's3://bucket/a',
            {'client': 'fsspec'},
            ('s3fs',),
            "s3fs is needed for this: pip install 'bags[s3fs]'",
        ),
        (
            'gs://bucket/a',
            {},
            ('obstore', 'gcsfs'),
            "obstore (or gcsfs) is needed for this: pip install 'bags[gcs]'",
        ),
        (
            'az://bucket/a',
            {},
            ('obstore', 'adlfs'),
            "obstore (or adlfs) is needed for this: pip install 'bags[s3]'",
        ),
        (
            'https://host/a',
            {},
            ('obstore', 'aiohttp'),
            "obstore (or aiohttp) is needed for this: pip install 'bags[s3]'",
        ),
        ('sftp://host/a', {}, ('paramiko',), 'paramiko is needed for this: pip install paramiko'),
    ],
)
def test_packages_that_are_not_installed(url, options, hidden, line):
    done = subprocess.run(
        [sys.executable, '-W', 'error', '-c', MISSING.format(url=url, options=options, hidden=hidden)],
        env={**os.environ, 'PYTHONPATH': str(ROOT)}, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout.decode().strip() == line, done.stderr.decode()
