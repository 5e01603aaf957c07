"""Datasets on a web server that supports only GET with Range."""

import collections
import errno
import json
import os
import shutil
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

import bags
from bags import bag
from bags.storage import retry, store_for
from tests.cloud.conftest import CLIENTS
from tests.servers import WebServer

GOLDEN = Path(__file__).parent.parent / 'golden'
SPEC = {'id': 'int', 'words': 'utf8[]', 'point': 'array(float32,3)?', 'blob': 'bytes', 'nothing': 'bytes?'}


def datapoint(index):
    point = None if index % 2 else np.full(3, index, 'f4')
    blob = bytes([index]) * (9000 if index % 3 else 0)
    return {'id': index, 'words': ['a', 'b' * index], 'point': point, 'blob': blob, 'nothing': None}


def write_folder(path, count=20, **options):
    with bags.DatasetWriter(path, SPEC, **options) as writer:
        for index in range(count):
            writer.append(datapoint(index))


def write_shards(path, shards, **options):
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=3, **options) as writer:
        for index in range(3 * shards):
            writer.append(datapoint(index))


@pytest.fixture(params=CLIENTS)
def options(request):
    """Opens a dataset through either client."""
    return {'storage_options': {'client': request.param}}


@pytest.fixture
def web(tmp_path):
    with WebServer(tmp_path) as web:
        yield web


def assert_same(remote, local):
    """Asserts that two readers have the same records, one by one and in batches."""
    assert (len(remote), remote.spec, remote.size) == (len(local), local.spec, local.size)
    assert (remote.metadata, remote.unfinished) == (local.metadata, local.unfinished)
    for index in range(len(local)):
        assert plain(remote[index]) == plain(local[index])
    indices = list(range(len(local)))[::-2]
    assert plain(remote.batch(indices)) == plain(local.batch(indices))


def plain(value):
    """Returns records, of which some are views, as bytes."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if value is None or isinstance(value, bytes | memoryview | bytearray | np.ndarray):
        return value if value is None else bytes(value)
    return [plain(item) for item in value]


def check(web, path, options):
    """Compares what is read from a server with what is read from its folder; returns the requests."""
    with (
        bags.open(web.root / path, raw=True) as local,
        bags.open(f'{web.url}/{path}', raw=True, **options) as remote,
    ):
        assert_same(remote, local)
    assert {method for method, *_ in web.requests} == {'GET'}
    assert all(byte_range for *_, byte_range in web.requests) or 'no 416' in web.behaviour
    assert {headers['Accept-Encoding'] for headers in web.sent_headers} == {'identity'}
    return web.requests


# Forms of datasets.


def test_a_folder(web, options):
    write_folder(web.root / 'one', metadata={'licence': 'CC0'})
    check(web, 'one', options)


def test_shards_with_an_index(web, options):
    write_shards(web.root / 'listed', 4)
    bags.consolidate(web.root / 'listed')
    bags.open(f'{web.url}/listed', **options)
    assert len(web.requests) == 2
    check(web, 'listed', options)


def test_shards_that_are_appended_before_the_first_read(web, options):
    write_shards(web.root / 'listed', 2)
    bags.consolidate(web.root / 'listed')
    write_shards(web.root / 'more', 1)
    with bags.open(f'{web.url}/listed', **options) as reader:
        bags.append(web.root / 'more', web.root / 'listed', progress=False)
        assert (len(reader), reader[5, 'id']['id']) == (6, 5)
        with reader.reopen() as again:
            assert (len(again), again[8, 'id']['id']) == (9, 2)


@pytest.mark.parametrize('count', [1, 2, 8, 30])
def test_shards_without_an_index(web, options, count):
    write_shards(web.root / 'many', count)
    reader = bags.open(f'{web.url}/many', **options)
    assert len(web.requests) < 6 * count + 50
    assert (reader.shards, len(reader)) == (count, 3 * count)
    assert reader[3 * count - 1, 'id']['id'] == 3 * count - 1
    if count < 5:
        check(web, 'many', options)


@pytest.mark.parametrize('name', ['bags05-dataset', 'bags05-sharded', 'granular-dataset', 'granular-sharded'])
@pytest.mark.filterwarnings('ignore::UserWarning')
def test_old_datasets(options, name):
    with WebServer(GOLDEN) as web:
        check(web, name, options)


def test_requests_of_opening_a_folder(web, options):
    write_folder(web.root / 'one')
    with bags.open(f'{web.url}/one', **options) as reader:
        assert len(web.requests) <= 2 + 6 + 2 * len(SPEC) + 2 + 2
        counts = collections.Counter(path for _, path, _ in web.requests)
        del web.requests[:]
        assert reader[3, 'id']['id'] == 3
        assert [path for _, path, _ in web.requests] == ['/one/id.bag']
    assert max(counts.values()) <= 3


def test_compressed_fields(web, options):
    compression = {'caption': 'dictionary', 'plain': 3}
    with bags.DatasetWriter(
        web.root / 'zstd', {'caption': 'utf8', 'plain': 'utf8'}, compression=compression
    ) as writer:
        for index in range(2000):
            text = f'A photo of {index % 17} people beside a house number {index * 7919}'
            writer.append({'caption': text, 'plain': text})
    assert {'caption.zdict', 'caption.bagz', 'plain.bagz'} <= set(os.listdir(web.root / 'zstd'))
    with bags.open(f'{web.url}/zstd', **options) as reader:
        assert reader[17] == bags.open(web.root / 'zstd')[17]
        assert reader.batch(range(0, 2000, 100)) == bags.open(web.root / 'zstd').batch(range(0, 2000, 100))
    assert {method for method, *_ in web.requests} == {'GET'}


def test_checksums(web, options):
    write_folder(web.root / 'one', checksum=True)
    with bags.open(f'{web.url}/one', checksum=True, **options) as reader:
        assert reader[7, 'words']['words'] == ['a', 'bbbbbbb']
    with open(web.root / 'one' / 'words.bag', 'r+b') as file:
        file.seek(2)
        file.write(b'?')
    reader = bags.open(f'{web.url}/one', checksum=True, **options)
    with pytest.raises(bags.CorruptError, match=r'words\.bag'):
        reader.batch(range(20), 'words')


def test_no_datapoints(web, options):
    write_folder(web.root / 'empty', 0)
    check(web, 'empty', options)


@pytest.mark.parametrize('behaviour', ['no suffix', 'no 416'])
def test_servers_of_other_habits(tmp_path, options, behaviour):
    write_folder(tmp_path / 'one')
    with WebServer(tmp_path, behaviour) as web, bags.open(f'{web.url}/one', **options) as reader:
        assert reader[6]['blob'] == b''
        assert reader[7, 'nothing']['nothing'] is None
        assert {method for method, *_ in web.requests} == {'GET'}


def test_unfinished(web, options):
    write_folder(web.root / 'one')
    (web.root / 'one/unfinished').write_text('')
    with bags.open(f'{web.url}/one', **options) as reader:
        assert reader.unfinished == bags.open(web.root / 'one').unfinished is True


def test_the_last_shard_is_incomplete(web, options):
    write_shards(web.root / 'many', 3)
    os.remove(web.root / 'many/000002/refs.bag')
    with bags.open(f'{web.url}/many', **options) as reader:
        assert (len(reader), reader.shards, reader.unfinished) == (6, 2, True)


def test_a_shard_in_between_is_missing(web, options):
    write_shards(web.root / 'many', 5)
    shutil.rmtree(web.root / 'many/000002')
    with pytest.raises(
        bags.CorruptError, match=r'shard 000003, but not the one before.*run bags\.consolidate'
    ):
        bags.open(f'{web.url}/many', **options)
    bags.consolidate(web.root / 'many')
    assert len(bags.open(f'{web.url}/many', **options)) == 12


@pytest.mark.parametrize('path', ['', 'nothing', 'nothing/here', 'x.bag'])
def test_nothing_there(web, options, path):
    with pytest.raises(FileNotFoundError, match=r'no dataset here.*run bags\.consolidate') as caught:
        bags.open(f'{web.url}/{path}', **options)
    assert caught.value.filename == f'{web.url}/{path}'.rstrip('/')
    assert ('bags.bag.Reader' in str(caught.value)) == (path == 'x.bag')
    assert {method for method, *_ in web.requests} == {'GET'}


def test_a_field_is_missing(web, options):
    write_folder(web.root / 'one')
    os.remove(web.root / 'one/words.bag')
    with bags.open(f'{web.url}/one', **options) as reader:
        with pytest.raises(bags.CorruptError, match=r"'words': has neither words\.bag nor words\.bagz"):
            reader[0]
        assert reader[1, 'id']['id'] == 1


def test_a_spec_that_is_none(web, options):
    write_folder(web.root / 'one')
    (web.root / 'one/spec.json').write_text('<html>')
    with pytest.raises(bags.SpecError, match=r'one/spec\.json'):
        bags.open(f'{web.url}/one', **options)


def test_readers_by_their_own_names(web, options):
    write_folder(web.root / 'one')
    write_shards(web.root / 'many', 3)
    assert bags.DatasetReader(f'{web.url}/one', **options)[3, 'id']['id'] == 3
    assert bags.ShardedDatasetReader(f'{web.url}/many', **options)[3, 'id']['id'] == 3
    with pytest.raises(FileNotFoundError, match='opens either'):
        bags.ShardedDatasetReader(f'{web.url}/one', **options)
    with pytest.raises(FileNotFoundError):
        bags.DatasetReader(f'{web.url}/many', **options)


def test_bags_alone(web, options):
    with bag.Writer(web.root / 'x.bag') as writer:
        writer.write(b'record')
    assert list(bag.Reader(f'{web.url}/x.bag', **options)) == [b'record']
    with pytest.raises(OSError, match='does not list its files'):
        bag.Reader(f'{web.url}/x@*.bag', **options)


def test_writing_is_refused(web, options):
    with bags.DatasetWriter(web.root / 'texts', {'text': 'utf8'}) as writer:
        writer.append({'text': 'a'})
    url = f'{web.url}/texts'
    for write in (
        lambda: bags.DatasetWriter(f'{web.url}/new', {'id': 'int'}, **options),
        lambda: bag.Writer(f'{web.url}/new.bag', **options),
        lambda: bags.copy(web.root / 'texts', f'{web.url}/new', **options),
        lambda: bags.create_index(url, 'text', **options),
        lambda: bags.set_metadata(url, {'licence': 'CC0'}, **options),
    ):
        with pytest.raises(OSError, match='a web server is read-only'):
            write()
    assert not any(path.endswith('text.bag') and 'bytes=-65536' in rest for _, path, *rest in web.requests)
    assert {method for method, *_ in web.requests} <= {'GET'}


def test_names_with_spaces(web, options):
    write_folder(web.root / 'my data ü')
    for path in ('my data ü', 'my%20data%20%C3%BC'):
        assert bags.open(f'{web.url}/{path}', **options)[3, 'id']['id'] == 3


@pytest.mark.parametrize('name', ['one', 'many', 'listed'])
def test_tools(web, options, tmp_path, name):
    write_folder(web.root / 'one', compression={'words': 'dictionary'}, metadata={'a': 1})
    write_shards(web.root / 'many', 2, metadata={'a': 1})
    write_shards(web.root / 'listed', 2)
    bags.consolidate(web.root / 'listed')
    url, local = f'{web.url}/{name}', web.root / name
    remote = bags.info(url, **options)
    assert {**vars(remote), 'path': ''} == {**vars(bags.info(local)), 'path': ''}
    bags.create_index(local, 'id', progress=False)
    assert bags.verify(url, decode=True, **options) == []
    reader = bags.open(url, **options, cache=tmp_path / 'cache')
    bags.prefetch(reader, progress=False)
    count = len(web.requests)
    reader.batch(range(len(reader)))
    for _, asked, _ in web.requests[count:]:  # Files that are missing, or empty.
        file = web.root / asked[1:]
        assert not file.exists() or not file.stat().st_size
    bags.copy(reader, tmp_path / 'copy', progress=False)
    with bags.open(tmp_path / 'copy') as copy, bags.open(local) as expected:
        assert copy.batch([1, 2], 'id')['id'].tolist() == expected.batch([1, 2], 'id')['id'].tolist()


# Servers.


@pytest.mark.parametrize('name', ['one', 'many', 'listed', 'one/blob.bag'])
def test_a_server_that_ignores_ranges(tmp_path, options, name):
    with bags.DatasetWriter(tmp_path / 'one', {'blob': 'bytes'}) as writer:
        writer.append({'blob': bytes(64 << 20)})
    write_shards(tmp_path / 'many', 2)
    write_shards(tmp_path / 'listed', 2)
    bags.consolidate(tmp_path / 'listed')
    with WebServer(tmp_path, 'ignore') as web:
        work = bag.Reader if name.endswith('.bag') else bags.open
        with pytest.raises(OSError, match='the server ignores Range') as caught:
            work(f'{web.url}/{name}', **options)
        assert caught.value.errno == errno.EOPNOTSUPP
        assert caught.value.filename.startswith(f'{web.url}/{name}')
        assert web.sent < 32 << 20  # The size of the socket's buffers, of 64 MiB.


@pytest.mark.parametrize('status', [301, 302, 303, 307, 308])
def test_redirects(web, options, tmp_path, status):
    write_folder(web.root / 'one')
    with WebServer(tmp_path / 'other') as other:
        other.redirect = status, web.url
        with bags.open(f'{other.url}/one', **options) as reader:
            assert reader[5, 'words']['words'] == ['a', 'bbbbb']
        assert {method for method, *_ in web.requests + other.requests} == {'GET'}
        assert {byte_range for *_, byte_range in web.requests} >= {
            byte_range for *_, byte_range in other.requests
        }


def test_a_redirect_in_a_circle(web, options):
    web.redirect = 302, web.url
    with pytest.raises(OSError, match='redirect') as caught:
        bags.open(f'{web.url}/one', **options)
    assert caught.value.filename.startswith(f'{web.url}/one')
    assert len(web.requests) < 100


@pytest.mark.parametrize('validators', [set(), {'ETag'}, {'Last-Modified'}])
def test_files_that_are_replaced(web, options, validators):
    web.validators = validators
    write_folder(web.root / 'one')
    with bags.open(f'{web.url}/one', **options) as reader:
        assert reader[1, 'id']['id'] == 1
        with bags.DatasetWriter(web.root / 'new', SPEC) as writer:
            for index in range(20):
                writer.append({**datapoint(index), 'blob': bytes(20_000 + (not validators))})
        shutil.move(web.root / 'new/blob.bag', web.root / 'one/blob.bag')
        os.utime(web.root / 'one/blob.bag', (1e9, 1e9))
    with bags.open(f'{web.url}/one', **options) as reader:
        size = len(reader[0, 'blob']['blob'])
        path = web.root / 'one/blob.bag'
        data = path.read_bytes()
        path.write_bytes(data[:1] + b'?' + data[2:] + bytes(8 * (not validators)))
        os.utime(path, (2e9, 2e9))
        with pytest.raises(bags.CorruptError, match='was replaced since it was opened'):
            reader[1, 'blob']
        assert size == 20_000 + (not validators)


@pytest.mark.parametrize('header', ['no-store', 'max-age=31536000, immutable', 'no-cache'])
def test_cache_control(web, options, header):
    web.headers = {'Cache-Control': header, 'Vary': 'Range', 'Age': '7'}
    web.validators = {'ETag'}
    write_folder(web.root / 'one')
    check(web, 'one', options)


def test_a_server_that_compresses(tmp_path, options):
    write_folder(tmp_path / 'one')
    with WebServer(tmp_path, 'gzip') as web:
        with pytest.raises(OSError, match=r'Content-Encoding gzip.*spec\.json') as caught:
            bags.open(f'{web.url}/one', **options)
        assert caught.value.errno == errno.EOPNOTSUPP


def test_ranges_without_the_size(tmp_path, options):
    write_folder(tmp_path / 'one')
    with WebServer(tmp_path, 'no size') as web:
        with pytest.raises(OSError, match=r'(?i)content.range.*\*') as caught:
            bags.open(f'{web.url}/one', **options)
        assert caught.value.errno == errno.EOPNOTSUPP


def test_ranges_without_content_length(tmp_path, options):
    write_folder(tmp_path / 'one')
    with WebServer(tmp_path, 'chunked') as web:
        if options['storage_options']['client'] == 'obstore':
            with pytest.raises(OSError, match=r"Content-Length.*client='fsspec'") as caught:
                bags.open(f'{web.url}/one', **options)
            assert caught.value.errno == errno.EOPNOTSUPP
        else:
            assert bags.open(f'{web.url}/one', **options)[2]['id'] == 2


def test_error_pages_of_other_encodings(web, options):
    web.page = 'nicht verfügbar'.encode('latin-1')
    write_folder(web.root / 'one')
    if options['storage_options']['client'] == 'obstore':
        with pytest.raises(OSError, match="client='fsspec'"):
            bags.open(f'{web.url}/one', **options)
        assert len(web.requests) < 10
    else:
        assert bags.open(f'{web.url}/one', **options)[2]['id'] == 2


def test_cut_bodies(tmp_path, options):
    write_folder(tmp_path / 'one')
    options = {**options['storage_options'], 'retries': 1}
    with WebServer(tmp_path, 'cut') as web, pytest.raises(OSError, match='after 2 tries'):
        bags.open(f'{web.url}/one', storage_options=options)


def test_a_response_that_is_cut_is_continued(web, options):
    """As nginx with `slice` cuts a response where its cache begins to have another version of the file."""
    blob = os.urandom(400_000)
    for name in ('one', 'two'):
        with bags.DatasetWriter(web.root / name, {'blob': 'bytes'}) as writer:
            writer.append({'blob': blob if name == 'one' else blob[::-1]})
            writer.append({'blob': bytes(200_000)})
    with bags.open(f'{web.url}/one', **options) as reader:
        reader[1]
        web.cut_at = 150_000
        del web.requests[:]
        assert reader[0]['blob'] == blob
        assert [byte_range for *_, byte_range in web.requests] == ['bytes=0-399999', 'bytes=150000-399999']
        assert reader.retries == 1
        web.cut_at = 250_000
        web.on_cut = lambda: shutil.copy(web.root / 'two/blob.bag', web.root / 'one/blob.bag')
        with pytest.raises(bags.CorruptError, match=r'blob\.bag: was replaced since it was opened'):
            reader[0]
        assert reader.retries == 2


def test_bodies_that_are_too_long(tmp_path, options):
    """A server cannot make a reader allocate more memory than the size it requested."""
    write_folder(tmp_path / 'one')
    options = {**options['storage_options'], 'retries': 1}
    with WebServer(tmp_path, 'more') as web:
        if options['client'] == 'obstore':
            with pytest.raises(OSError, match=r'got more \(after 2 tries\)'):
                bags.open(f'{web.url}/one', storage_options=options)
        else:
            assert bags.open(f'{web.url}/one', storage_options=options)[5]['words'] == ['a', 'bbbbb']
        assert web.sent < len(web.requests) * (16 << 20)


def test_headers_of_the_user(web):
    write_folder(web.root / 'one')
    options = {'headers': {'Authorization': 'Bearer secret'}}
    bags.open(f'{web.url}/one', storage_options=options)
    assert {sent['Authorization'] for sent in web.sent_headers} == {'Bearer secret'}


class RedirectingServer(WebServer):
    """Redirects some paths, by their prefixes, without their queries."""

    def __init__(self, root):
        self.locations = {}
        super().__init__(root)

    def serve(self, handler):
        for prefix, location in self.locations.items():
            if handler.path.startswith(prefix):
                with self.lock:
                    self.sent_headers.append(handler.headers)
                path = handler.path[len(prefix) :].partition('?')[0]
                return self.answer(handler, 302, b'', {'Location': location + path})
        return super().serve(handler)


def sent_by(server):
    """Returns all that a server was sent, as text."""
    return '\n'.join([*map(str, server.sent_headers), *(path for _, path, _ in server.requests)])


SECRETS = {
    'headers': {'headers': {'X-Api-Key': 'secret', 'Private-Token': 'secret', 'Authorization': 'secret'}},
    'session headers': {'client_kwargs': {'headers': {'X-Api-Key': 'secret'}}},
    'cookies': {'cookies': {'session': 'secret'}},
    'session cookies': {'client_kwargs': {'cookies': {'session': 'secret'}}},
    'parameters': {'params': {'token': 'secret'}},
}


@pytest.mark.parametrize('name', SECRETS)
@pytest.mark.parametrize('form', ['port', 'host', 'and back'])
def test_secrets_are_sent_only_to_the_host_they_were_given_for(web, tmp_path, name, form):
    (web.root / 'copy').mkdir()
    write_folder(web.root / 'copy/one')
    with RedirectingServer(tmp_path) as given:
        other = given.url.replace('127.0.0.1', 'localhost') if form == 'host' else web.url
        given.locations = {'/moved/': '/data/', '/data/': f'{other}/copy/'}
        if form == 'and back':
            (tmp_path / 'last').mkdir()
            write_folder(tmp_path / 'last/one')
        url = f'{given.url}/moved/one'
        if form == 'and back':
            with RedirectingServer(tmp_path) as between:
                between.locations = {'/copy/': f'{given.url}/last/'}
                given.locations['/data/'] = f'{between.url}/copy/'
                assert bags.open(url, storage_options=SECRETS[name])[3, 'id']['id'] == 3
                assert 'secret' not in sent_by(between)
        else:
            assert bags.open(url, storage_options=SECRETS[name])[3, 'id']['id'] == 3
        at_given = [str(headers) for headers in given.sent_headers]
        if name != 'parameters':
            # A redirect to the same host gets them.
            assert sum('secret' in headers for headers in at_given) >= 6
        assert 'secret' not in sent_by(web)
        if form == 'host':
            assert not any('secret' in headers for headers in at_given if 'localhost' in headers)
        if form == 'and back':  # From the other host, which chooses the path.
            assert any('secret' not in headers for headers in at_given)


@pytest.mark.filterwarnings('ignore::DeprecationWarning')  # Of `auth`, in new versions of aiohttp.
def test_passwords_are_sent_only_to_the_host_they_were_given_for(web, options, tmp_path):
    aiohttp = pytest.importorskip('aiohttp')
    write_folder(web.root / 'one')
    with RedirectingServer(tmp_path / 'none') as given:
        given.locations = {'/data/': f'{web.url}/', '/moved/': '/data/'}
        address = given.url.partition('://')[2]
        bags.open(f'http://name:password@{address}/moved/one', **options)
        if options['storage_options']['client'] == 'fsspec':
            assert {'Authorization' in headers for headers in given.sent_headers} == {True}
        del given.sent_headers[:]
        options['storage_options'] = {'client_kwargs': {'auth': aiohttp.BasicAuth('name', 'password')}}
        bags.open(f'{given.url}/moved/one', **options)
        assert {'Authorization' in headers for headers in given.sent_headers} == {True}
    assert not any('Authorization' in headers for headers in web.sent_headers)


@pytest.mark.parametrize('name', SECRETS)
@pytest.mark.filterwarnings('ignore::DeprecationWarning')  # Of `auth`, in new versions of aiohttp.
def test_imports_send_secrets_only_to_the_host_they_were_given_for(web, tmp_path, name):
    options = SECRETS[name]
    if name == 'session headers':
        auth = pytest.importorskip('aiohttp').BasicAuth('secret', 'secret')
        options = {'client_kwargs': {'headers': {'X-Api-Key': 'secret'}, 'auth': auth}}
    (web.root / 'table.csv').write_text('id,text\n1,a\n2,b\n')
    with RedirectingServer(tmp_path / 'none') as given:
        given.locations = {'/moved/': '/data/', '/data/': f'{web.url}/'}
        url = f'{given.url}/moved/table.csv'
        bags.convert(url, tmp_path / 'out', source_options=options, progress=False)
        if name != 'parameters':
            assert 'secret' in sent_by(given)
    assert bags.open(tmp_path / 'out')[1]['text'] == 'b'
    assert 'secret' not in sent_by(web)
    assert 'Authorization' not in sent_by(web)


def test_a_file_system_of_the_user_sends_headers_only_to_its_host(web, tmp_path):
    fsspec = pytest.importorskip('fsspec')
    pytest.importorskip('aiohttp')
    write_folder(web.root / 'one')
    files = fsspec.filesystem('http', headers={'X-Api-Key': 'secret'}, skip_instance_cache=True)
    with RedirectingServer(tmp_path / 'none') as given:
        given.locations = {'/': f'{web.url}/'}
        assert bags.open(f'{given.url}/one', filesystem=files)[3, 'id']['id'] == 3
        assert 'secret' in sent_by(given)
    assert 'secret' not in sent_by(web)


def test_a_redirect_to_a_host_that_needs_a_header(web, tmp_path):
    write_folder(web.root / 'one')
    web.statuses = [403] * 1000
    with RedirectingServer(tmp_path / 'none') as given:
        given.locations = {'/': f'{web.url}/'}
        with pytest.raises(PermissionError, match=r'at 127\.0\.0\.1: a redirect gets no headers of'):
            bags.open(f'{given.url}/one', storage_options={'headers': {'X-Api-Key': 'secret'}})


@pytest.mark.parametrize(
    'location', ['ftp://127.0.0.1/x', 'file:///etc/passwd', 'http://', 'http://[', '://']
)
def test_redirects_to_other_addresses_are_refused(web, location):
    class Server(WebServer):
        def serve(self, handler):
            self.answer(handler, 302, b'', {'Location': location})

    with Server(web.root) as server, pytest.raises(OSError, match=r'redirect|no such|Location'):
        bags.open(f'{server.url}/one', storage_options={'client': 'fsspec', 'retries': 0})


def test_errors_that_pass(web, options):
    write_folder(web.root / 'one')
    web.statuses = [500, 503, 429, 502, 500]
    with bags.open(f'{web.url}/one', **options) as reader:
        web.statuses = [500, 503]
        assert reader[5, 'words']['words'] == ['a', 'bbbbb']


def test_errors_that_stay(web, options):
    write_folder(web.root / 'one')
    web.statuses = [500] * 1000
    with pytest.raises(OSError, match=r'status 500.*after 2 tries') as caught:
        bags.open(f'{web.url}/one', storage_options={**options['storage_options'], 'retries': 1})
    assert caught.value.filename.startswith(f'{web.url}/one/')


@pytest.mark.parametrize('status', [401, 403])
def test_access_denied(web, options, status):
    write_folder(web.root / 'one')
    web.statuses = [status] * 1000
    with pytest.raises(PermissionError, match='access denied') as caught:
        bags.open(f'{web.url}/one', **options)
    assert caught.value.filename.startswith(f'{web.url}/one/')


@pytest.mark.parametrize('name', ['one', 'many', 'listed'])
def test_403_for_a_missing_file(tmp_path, options, name):
    write_folder(tmp_path / 'one')
    write_shards(tmp_path / 'many', 2)
    write_shards(tmp_path / 'listed', 2)
    bags.consolidate(tmp_path / 'listed')
    with WebServer(tmp_path, '403') as web:
        check(web, name, options)


def test_a_page_for_every_path(tmp_path, options):
    with WebServer(tmp_path, 'page') as web, pytest.raises(bags.CorruptError, match='json: is not JSON'):
        bags.open(f'{web.url}/one', **options)


def test_a_forked_or_pickled_reader(web, options):
    import pickle

    write_folder(web.root / 'one')
    write_shards(web.root / 'many', 2)
    for name in ('one', 'many'):
        with bags.open(f'{web.url}/{name}', **options) as reader:
            assert pickle.loads(pickle.dumps(reader))[4, 'id']['id'] == 4


def test_no_more_bytes_than_asked(web):
    (web.root / 'x').write_bytes(json.dumps(list(range(10000))).encode())
    store, path = store_for(f'{web.url}/x')
    assert store.stat(path).size == (web.root / 'x').stat().st_size
    assert web.sent == 1


@pytest.mark.parametrize(
    'workers', [{'workers': 0}, {'workers': 2}, {'workers': 1, 'processes': True}], ids=str
)
def test_retries_are_counted_and_logged(web, tmp_path, workers, caplog):
    with bags.DatasetWriter(web.root / 'counted', {'id': 'int(4)', 'x': 'bytes'}) as writer:
        for index in range(40):
            writer.append({'id': index, 'x': bytes(100_000)})
    dataset = bags.open(f'{web.url}/counted')
    before = dataset.retries  # Datasets with equal options share a client, also those of other tests.
    assert bags.concat([dataset, dataset[3:]]).retries == before
    loader = bags.Loader(dataset, 10, **workers)
    web.statuses = [503, 500, 503]
    assert sum(len(batch['id']) for batch in loader) == 40
    assert loader.retries == 3
    assert loader.on_rank(0, 1).retries == 0
    if not workers.get('processes'):
        assert dataset.retries == dataset[:, 'id'].retries == before + 3
        texts = [record.getMessage() for record in caplog.records if record.name == 'bags.storage']
        assert len(texts) == 3
        assert all(web.url in text and 'the next in' in text for text in texts)
        assert sum('status 503' in text for text in texts) == 2
    assert bags.open(web.root / 'counted').retries == 0


class SleepClock(threading.local):
    """A clock of which only sleeping takes time; each thread has its own."""

    now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_a_server_that_accepts_no_connection(options, monkeypatch):
    monkeypatch.setattr(retry, 'time', SleepClock())
    with socket.socket() as taken:  # No other process gets the port, and none listens.
        taken.bind(('127.0.0.1', 0))
        url = f'http://127.0.0.1:{taken.getsockname()[1]}'
        with pytest.raises(
            OSError, match=r'(?i)cannot connect to 127.*(refused|connect call failed).* \(after [45] tries\)'
        ) as caught:
            bags.open(f'{url}/nothing', **options)
    assert url in str(caught.value)
    assert caught.value.__suppress_context__, 'without the errors of the client'


def test_a_server_that_is_away_for_a_while(tmp_path, options):
    write_folder(tmp_path / 'folder')
    with WebServer(tmp_path) as web:
        dataset = bags.open(f'{web.url}/folder', **options)

    def serve_again():
        with WebServer(tmp_path, port=web.server.server_address[1]):
            done.wait()

    done = threading.Event()
    later = threading.Timer(3, serve_again)  # Longer than a first connection is waited for.
    later.start()
    try:
        assert dataset[6, ('id', 'words')] == {'id': 6, 'words': ['a', 'bbbbbb']}
    finally:
        done.set()
        later.join()


@pytest.mark.parametrize('validators', [{'ETag', 'Last-Modified'}, set()])
@pytest.mark.parametrize('name', ['one', 'many', 'listed'])
def test_offline(web, options, tmp_path, name, validators):
    web.validators = validators
    url, local = f'{web.url}/{name}', web.root / name
    if name == 'one':
        write_folder(local, compression={'words': 'dictionary'}, metadata={'a': 1})
    else:
        write_shards(local, 3, metadata={'a': 1})
    if name == 'listed':
        bags.consolidate(local)
    never = {**options, 'cache': tmp_path / 'cache', 'cache_check': 'never', 'raw': True}
    with bags.open(url, **never) as reader:
        bags.prefetch(reader, progress=False)
        count = len(web.requests)
        assert_same(reader, bags.open(local, raw=True))
        assert reader.fingerprint == bags.open(local).fingerprint
        assert len(web.requests) == count
    web.__exit__()
    with bags.open(url, **never) as reader:
        assert_same(reader, bags.open(local, raw=True))
    with pytest.raises(ValueError, match='cache_check: has no effect without cache'):
        bags.open(url, cache_check='never')
