"""Links to objects of object stores and web servers: the requests they take, and what they must not reach."""

import contextlib
import functools
import json
import os
import re
import shutil
import unicodedata
import urllib.parse
import uuid

import msgpack
import numpy as np
import pytest

import bags
from bags.storage import store_for
from tests.media.samples import film, x264
from tests.servers import WebServer

SIZES = (10, 9_000, 300_000)


def put(url, options, data):
    store, path = store_for(url, None, options)
    store.replace(path, data)


@pytest.fixture
def objects(s3_storage):
    """Objects to link to, and their bytes by URL."""
    found = {f'{s3_storage.root}/links/{size}': os.urandom(size) for size in SIZES}
    for url, data in found.items():
        put(url, s3_storage.options, data)
    return found


def write(path, objects, options, **more):
    with bags.DatasetWriter(
        path, {'x': 'bytes', 'id': 'int(4)'}, linked_fields=['x'], storage_options=options, **more
    ) as writer:
        for number, url in enumerate(objects):
            writer.append({'x': bags.Link(url), 'id': number})
            writer.append({'x': bags.Link(url, 2, 5), 'id': number})
        writer.append({'x': b'own', 'id': 7})


def expected(objects):
    return [part for data in objects.values() for part in (data, data[2:7])] + [b'own']


def gets(requests):
    return [path.rpartition('/')[2] for method, path, _ in requests if method == 'GET']


def test_a_local_dataset_of_objects(tmp_path, objects, s3_storage, proxy):
    options = {'s3://bucket/': s3_storage.through(proxy)}
    write(tmp_path / 'data', objects, options)
    with (
        bags.open(tmp_path / 'data') as reader,
        pytest.raises(PermissionError, match=r"trust_links=\['s3://bucket"),
    ):
        reader[0]
    with proxy.counted() as opening:
        reader = bags.open(tmp_path / 'data', trust_links='s3://bucket/', storage_options=options)
        assert reader[6]['x'] == b'own'
    assert opening == []
    # One request for an object: its answer tells the size, and it has the bytes of the sample.
    with proxy.counted() as reading:
        assert [reader[index]['x'] for index in (0, 2, 4)] == list(objects.values())
    assert gets(reading) == [str(size) for size in SIZES]
    assert [row['x'] for row in reader] == expected(objects)
    assert reader.batch([5, 0, 6, 3])['x'] == [expected(objects)[index] for index in (5, 0, 6, 3)]
    with reader.file(4, 'x') as file:
        assert file.read() == expected(objects)[4]
    assert bags.verify(tmp_path / 'data', trust_links=True, storage_options=options) == []


def test_a_remote_dataset(objects, s3_storage):
    root = f'{s3_storage.root}/links/data'
    options = {s3_storage.root: s3_storage.options}
    write(root, objects, options)
    with bags.open(root, storage_options=options) as reader, pytest.raises(PermissionError):
        reader[0]
    # The options of the bucket of the dataset serve its links.
    for given in (options, s3_storage.options):
        with bags.open(root, storage_options=given, trust_links=f'{s3_storage.root}/links') as reader:
            assert [row['x'] for row in reader] == expected(objects)
            assert reader.batch(range(7))['x'] == expected(objects)
    with bags.DatasetWriter(
        root, {'x': 'bytes', 'id': 'int(4)'}, resume=True, storage_options=options
    ) as writer:
        writer.append({'x': bags.Link(list(objects)[1]), 'id': 8})
        writer.append({'x': b'more', 'id': 9})
    with bags.open(root, storage_options=options, trust_links=f'{s3_storage.root}/links') as reader:
        assert [row['x'] for row in reader] == [*expected(objects), list(objects.values())[1], b'more']


@pytest.fixture
def parent(tmp_path, s3_storage):
    """The URL of a dataset in a bucket, and the options to open it."""
    spec, chance = {'id': 'int(8)', 'blob': 'bytes', 'packed': 'utf8'}, np.random.default_rng(0)
    with bags.ShardedDatasetWriter(
        tmp_path / 'parent', spec, shard_length=3_000, compression=['packed']
    ) as writer:
        for index in range(6_000):
            row = {'id': index, 'blob': chance.bytes(300), 'packed': f'text {index} ' * 10}
            writer.append(row, flush=False)
    root = f'{s3_storage.root}/views/{uuid.uuid4().hex}/parent'
    for path in (tmp_path / 'parent').glob('*/*'):
        put(f'{root}/{path.parent.name}/{path.name}', s3_storage.options, path.read_bytes())
    return root, {s3_storage.root: s3_storage.options}


@pytest.mark.parametrize('is_local', [True, False])
def test_a_saved_view_of_a_dataset_in_a_bucket(tmp_path, parent, proxy, s3_storage, is_local):
    root, options = parent
    path = tmp_path / 'view' if is_local else root.replace('parent', 'view')
    order = np.random.default_rng(1).permutation(6_000)
    with bags.open(root, storage_options=options) as dataset:
        view = dataset.select(order)
        link = is_local or ['blob', 'packed']  # True: only `blob`, whose records are large.
        done = view.save(path, link=link, storage_options=options)
    assert done.parents == [f'{root}/000000', f'{root}/000001']
    expected = bags.open(tmp_path / 'parent').select(order)
    through = {s3_storage.root: s3_storage.through(proxy)}
    with bags.open(path, trust_links=root, storage_options=through) as saved:
        for name in expected.schema:
            assert list(saved.records(name)) == list(expected.records(name))
        # Where records are is known then: a row waits for one request at a time.
        with proxy.counted() as requests:
            assert saved[4_000] == expected[4_000]
        assert {'blob.bag'} <= {*gets(requests)} <= {'blob.bag', 'packed.bagz', 'id.bag'}


def test_objects_that_differ(tmp_path, objects, s3_storage):
    options = {'s3://bucket/': s3_storage.options}
    write(tmp_path / 'data', objects, options)
    small, medium, large = objects
    put(small, s3_storage.options, b'other size')
    put(small, s3_storage.options, b'another size')
    put(medium, s3_storage.options, bytes(9_000))
    store, path = store_for(large, None, s3_storage.options)
    store.remove(path)
    with bags.open(tmp_path / 'data', trust_links=True, storage_options=options) as reader:
        for index in range(6):
            url, found = ((small, 'got'), (medium, 'has changed'), (large, 'none'))[index // 2]
            for read in (
                lambda index=index: reader[index],
                lambda index=index: reader.batch([index, 6]),
                lambda index=index: reader.file(index, 'x').read(),
            ):
                with pytest.raises(bags.LinkError, match=found) as caught:
                    read()
                assert (caught.value.record, caught.value.file) == (index, url)
        assert reader[6]['x'] == b'own'
    damage = bags.verify(tmp_path / 'data', trust_links=True, storage_options=options)
    assert [(each.record, each.count) for each in damage] == [(0, 2), (2, 2), (4, 2)]


def test_redirects_of_links_are_not_followed(tmp_path, caplog):
    (tmp_path / 'a').mkdir()
    (tmp_path / 'a' / 'file').write_bytes(b'a secret')
    with WebServer(tmp_path / 'a') as inner, WebServer(tmp_path / 'a') as outer:
        write(tmp_path / 'data', {f'{outer.url}/file': b''}, None)
        with bags.open(tmp_path / 'data', trust_links=outer.url) as reader:
            assert reader[0]['x'] == b'a secret'
        outer.redirect = 302, inner.url
        with bags.open(tmp_path / 'data', trust_links=outer.url) as reader:
            for index in (0, 1):
                with pytest.raises(OSError, match='redirected'):
                    reader[index]
        assert inner.requests == []
        assert not caplog.records  # A redirect is not retried.
        with bags.open(tmp_path / 'data', trust_links=inner.url) as reader, pytest.raises(PermissionError):
            reader[0]


def test_nothing_follows_local_paths_from_a_bucket(tmp_path, s3_storage):
    (tmp_path / 'key').write_bytes(b'a secret')
    root = f'{s3_storage.root}/stranger'
    write(root, {str(tmp_path / 'key'): b''}, {s3_storage.root: s3_storage.options})
    for links in ((), 's3://bucket', '/nowhere'):
        with bags.open(root, storage_options=s3_storage.options, trust_links=links) as reader:
            with pytest.raises(PermissionError):
                reader[0]
            with pytest.raises(PermissionError):
                reader.batch([1])


def test_a_cached_dataset(tmp_path, objects, s3_storage):
    root, options = f'{s3_storage.root}/cached', {s3_storage.root: s3_storage.options}
    write(root, objects, options)
    cache = {'cache': tmp_path / 'cache', 'storage_options': options, 'trust_links': True}
    with bags.open(root, **cache) as reader:
        assert bags.prefetch(reader) > sum(SIZES)
    for _ in range(2):
        with bags.open(root, **cache) as reader:
            assert [row['x'] for row in reader] == expected(objects)
    put(next(iter(objects)), s3_storage.options, b'changed')
    with bags.open(root, **cache) as reader, pytest.raises(bags.LinkError, match='10 bytes, got 7'):
        reader[0]


def test_parts_of_a_video_in_a_bucket(tmp_path, s3_storage, proxy):
    url, options = f'{s3_storage.root}/links/session.mp4', {'s3://bucket/': s3_storage.through(proxy)}
    data = film(count=240, options=x264())
    frames = bags.Video(data)[:]
    put(url, s3_storage.options, data)
    with bags.DatasetWriter(
        tmp_path / 'data', {'clip': 'video'}, linked_fields=['clip'], storage_options=options
    ) as writer:
        writer.append({'clip': bags.Link(url, times=(1.0, 2.0))})
        writer.append({'clip': bags.Link(url, frames=(96, 120))})
        writer.append({'clip': bags.Link(url, frames=(200, 240))})
    with bags.open(tmp_path / 'data', trust_links='s3://bucket/', storage_options=options) as reader:
        with proxy.counted() as counting:
            assert [len(row['clip']) for row in reader] == [25, 24, 40]
        assert counting == []
        assert np.array_equal(reader[0]['clip'][:], frames[25:50])
        with proxy.counted() as later:
            assert np.array_equal(reader[2]['clip'][5:9], frames[205:209])
        assert 1 <= len(gets(later)) <= 2  # Only packets: the header was read for another part.
        assert np.array_equal(bags.Video(reader.file(1, 'clip').read())[:], frames[96:120])
        bags.copy(reader.select([1]), tmp_path / 'whole')
    with bags.open(tmp_path / 'whole') as whole:
        assert np.array_equal(whole[0]['clip'][:], frames[96:120])


# Links of datasets on web servers.

SECRET = b'a secret of the host'


def link_to(folder, stored, content=SECRET):
    """Writes a dataset with one link to a file of `content`, and the path `stored` in its entry."""
    shutil.rmtree(folder, ignore_errors=True)
    source = folder.parent / 'source'
    folder.parent.mkdir(parents=True, exist_ok=True)
    source.write_bytes(content)
    with bags.DatasetWriter(folder, {'x': 'bytes'}, linked_fields=['x']) as writer:
        writer.append({'x': bags.Link(source)})
    source.unlink()
    with bags.bag.Reader(folder / 'x.files') as reader:
        entry = msgpack.unpackb(reader[0])
    with bags.bag.Writer(folder / 'x.new.bag') as writer:
        writer.write(msgpack.packb([stored, *entry[1:]]))
    os.replace(folder / 'x.new.bag', folder / 'x.files')


class DecodingServer(WebServer):
    """Decodes escapes several times, cuts names at semicolons, and reads backslashes as slashes."""

    def serve(self, handler):
        path = handler.path
        for _ in range(3):
            path = urllib.parse.unquote(path, 'latin-1')
        data = path.encode('latin-1').replace(b'\xc0\xae', b'.').replace(b'\xc0\xaf', b'/')
        path = unicodedata.normalize('NFKC', re.sub('[\0-\x1f]', '', data.decode()))
        names = [re.split('[;?#]', name)[0].strip() for name in re.split(r'[/\\]', path)]
        handler.path = urllib.parse.quote(os.path.normpath('/'.join(names)))
        return super().serve(handler)


@pytest.fixture(scope='module')
def start(tmp_path_factory):
    """Starts a server of each class once; returns it and an empty folder of its files."""
    with contextlib.ExitStack() as stack:
        servers = functools.cache(lambda kind: stack.enter_context(kind(tmp_path_factory.mktemp('web'))))

        def start(kind):
            web = servers(kind)
            web.requests.clear()
            folder = web.root / str(len(os.listdir(web.root)))
            folder.mkdir()
            return web, folder

        yield start


ESCAPING = [
    '%2e%2e/', '%2E./', '.%2e/', '..%2f', '..%2F', '%2e%2e%2f', '.\t./', '.\n./', '\r../', '\x01../',
    '..\x02/', '.%09./', '%0a../', '%252e%252e/', '..%252f', '%25252e%25252e/', '..%5c', '..;/', '..;x=y/',
    '..%3b/', '..%3Bx/', '\u2025/', '\uff0e\uff0e/', '%E2%80%A5/', '\u2024\u2024/', '..\uff0f',
    '%c0%ae%c0%ae/', '..%c0%af', '..%00/', '..%3f/', '..%23/', '..?/', '..#/', '%u002e%u002e/', '..%20/',
    '.. /', '%' + '25' * 40 + '2e./', 'a/%2e%2e/%2e./',
]  # fmt: skip
"""Names that some client or server reads as `../`."""


@pytest.mark.parametrize('server', [WebServer, DecodingServer])
@pytest.mark.parametrize('name', ESCAPING, ids=ascii)
@pytest.mark.parametrize('form', ['relative', 'url'])
def test_escaped_paths_do_not_leave_the_folder(start, server, name, form):
    web, folder = start(server)
    (folder / 'secret').mkdir()
    (folder / 'secret' / 'key').write_bytes(SECRET)
    root, stored = f'{web.url}/{folder.name}/data/view', f'{name}{name}secret/key'
    link_to(folder / 'data' / 'view', f'{root}/{stored}' if form == 'url' else stored)
    for trust in ((), root, web.url):
        with bags.open(root, trust_links=trust) as reader:
            with pytest.raises((bags.CorruptError, PermissionError)):
                reader[0]
            with pytest.raises((bags.CorruptError, PermissionError)):
                reader.file(0, 'x').read()
    assert web.requests
    assert not any('secret' in path for _, path, _ in web.requests)


BESIDE = [
    'secret#.bag', 'secret?.bag', 'secret?x.bag', 'secret%23.bag', 'secret%3F.bag', 'secret%00.bag',
    'secret;.bag', 'secret%3B.bag', 'sub%2Fx.bag', 'sub%5Cx.bag', 'sub%252Fx.bag', 'secret\t#.bag',
    'secret%0a.bag',
]  # fmt: skip
"""Names that end as those of bags, with which some client or server reads another file."""


@pytest.mark.parametrize('server', [WebServer, DecodingServer])
@pytest.mark.parametrize('name', BESIDE, ids=ascii)
@pytest.mark.parametrize('form', ['relative', 'url'])
def test_only_bags_of_a_dataset_beside(start, server, name, form):
    web, folder = start(server)
    with bags.DatasetWriter(folder / 'base', {'x': 'bytes'}) as writer:
        writer.append({'x': b''})
    (folder / 'base' / 'sub').mkdir()
    for path in ('secret', 'sub/x.bag', 'sub\\x.bag'):
        (folder / 'base' / path).write_bytes(SECRET)
    root = f'{web.url}/{folder.name}'
    link_to(folder / 'view', f'../base/{name}' if form == 'relative' else f'{root}/base/{name}')
    with bags.open(f'{root}/view') as reader, pytest.raises((bags.CorruptError, OSError)):
        reader[0]
    assert web.requests
    assert not any(re.search(r'base/(secret|sub/x\.bag)$', path) for _, path, _ in web.requests)


def test_names_that_have_another_meaning_in_urls(tmp_path):
    """Names in a relative path are names of files, also on a web server."""
    names = ['what?.bin', '100%.bin', 'a#b.bin', 'a%20b.bin', 'a b.bin', 'ü;x.bin', 'tab\tin.bin', 'a+b.bin']
    folder = tmp_path / 'data' / 'view'
    (tmp_path / 'data' / 'raw').mkdir(parents=True)
    for name in names:
        (tmp_path / 'data' / 'raw' / name).write_bytes(name.encode())
    with bags.DatasetWriter(folder, {'x': 'bytes'}, linked_fields=['x']) as writer:
        for name in names:
            writer.append({'x': bags.Link(tmp_path / 'data' / 'raw' / name)})
    with WebServer(tmp_path) as web:
        reader = bags.open(f'{web.url}/data/view', trust_links=f'{web.url}/data/raw')
        assert [row['x'].decode() for row in reader] == names


def test_permitted_urls_are_compared_as_the_server_reads_them(tmp_path):
    (tmp_path / 'my data').mkdir()
    (tmp_path / 'my data' / 'a file').write_bytes(SECRET)
    with WebServer(tmp_path) as web:
        host = web.url.removeprefix('http://')
        link_to(tmp_path / 'view', f'{web.url}/my%20data/a%20file')
        for trust in ('my data', 'my%20data/', '%6dy data/a file', ''):
            for url in (web.url, f'HTTP://{host}'):
                with bags.open(tmp_path / 'view', trust_links=f'{url}/{trust}') as reader:
                    assert reader[0]['x'] == SECRET
        others = [f'http://x@{host}', f'https://{host}', 'http://127.0.0.1', f'{web.url}?/my data']
        others += [f'{web.url}/{path}' for path in ('my', 'my%2520data', 'my%2Fdata', 'my data/a')]
        for trust in others:
            with bags.open(tmp_path / 'view', trust_links=trust) as reader, pytest.raises(PermissionError):
                reader[0]


def test_names_of_fields_do_not_leave_the_folder(tmp_path):
    with bags.DatasetWriter(tmp_path / 'other', {'x': 'bytes'}) as writer:
        writer.append({'x': SECRET})
    (tmp_path / 'other' / 'key').write_bytes((tmp_path / 'other' / 'x.bag').read_bytes())
    with bags.DatasetWriter(tmp_path / 'view', {'x': 'bytes'}) as writer:
        writer.append({'x': b''})
    names = [
        '%2e%2e%2fother%2fx',
        '..%2Fother%2Fx',
        '..%2fother%2fkey#',
        '..%2fother%2fkey?',
        '.\t.%2fother%2fx',
    ]
    with WebServer(tmp_path) as web:
        for name in names:
            (tmp_path / 'view' / 'spec.json').write_text(json.dumps({name: 'bytes'}))
            for client in ('fsspec', 'obstore'):
                options = {'client': client, 'retries': 0}
                with pytest.raises((bags.CorruptError, OSError)):
                    bags.open(f'{web.url}/view', storage_options=options)[0]
        read = [os.path.normpath(urllib.parse.unquote(path)) for _, path, _ in web.requests]
        assert not any(path.startswith('/other') for path in read)


def test_headers_by_prefix_stay_at_their_host(tmp_path):
    """Neither other hosts nor redirects get the headers that were given for a prefix."""
    for name in ('a', 'b'):
        (tmp_path / name).write_bytes(SECRET)
    with WebServer(tmp_path) as first, WebServer(tmp_path) as second:
        links = [f'{first.url}/a', f'{second.url}/b', f'{first.url.replace("127.0.0.1", "localhost")}/a']
        write(tmp_path / 'data', dict.fromkeys(links, b''), None)
        del first.sent_headers[:], second.sent_headers[:]
        options = {f'{first.url}/': {'headers': {'X-Api-Key': 'secret'}}}
        with bags.open(tmp_path / 'data', trust_links=True, storage_options=options) as reader:
            assert [reader[index]['x'] for index in (0, 2, 4)] == [SECRET] * 3
        for headers in first.sent_headers:
            assert ('X-Api-Key' in headers) == headers['Host'].startswith('127.')
        first.redirect = 302, second.url
        reader = bags.open(tmp_path / 'data', trust_links=True, storage_options=options)
        with pytest.raises(OSError, match='redirected'):
            reader[0]
        assert 'secret' not in ''.join(map(str, second.sent_headers))


ADVICE = "; options for linked files are given by prefix: storage_options={'s3://bucket/': {…}}"


def test_options_that_are_missing_are_advised_by_prefix(tmp_path, objects, s3_storage, monkeypatch):
    for name in ('AWS_ACCESS_KEY_ID', 'AWS_PROFILE', 'AWS_ENDPOINT_URL', 'AWS_ENDPOINT_URL_S3'):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv('AWS_EC2_METADATA_DISABLED', 'true')
    for name in ('AWS_CONFIG_FILE', 'AWS_SHARED_CREDENTIALS_FILE'):
        monkeypatch.setenv(name, str(tmp_path / 'none'))
    path, others = tmp_path / 'data', {'s3://other/': s3_storage.options}
    write(path, objects, {'s3://bucket/': s3_storage.options})
    for given in (None, others):
        with bags.open(path, trust_links=True, storage_options=given) as reader:
            for read in (lambda reader=reader: reader[0], lambda reader=reader: reader.batch([0, 2])):
                with pytest.raises(PermissionError, match=re.escape(ADVICE)):
                    read()
    (damage, *_) = bags.verify(path, trust_links=True, storage_options=others)
    assert ADVICE in damage.detail
    # Options without a prefix would be sent to any host that the links name.
    with pytest.raises(ValueError, match='has no effect on a local path.*' + re.escape(ADVICE)):
        bags.open(path, trust_links=True, storage_options=s3_storage.options)
    root, (first, *_) = f'{s3_storage.root}/links/{uuid.uuid4().hex}', objects
    with bags.DatasetWriter(
        root, {'x': 'bytes'}, linked_fields=['x'], storage_options=s3_storage.options
    ) as writer:
        with pytest.raises(PermissionError, match=re.escape(ADVICE)):
            writer.append({'x': bags.Link(first)})
        writer.append({'x': b'own'})


def test_endpoints_of_the_environment(tmp_path, objects, s3_storage, kit):
    write(tmp_path / 'data', objects, {'s3://bucket/': s3_storage.options})
    first, *_, last = objects
    store, path = store_for(first, None, s3_storage.options)
    store.remove(path)
    code = """
import os, sys
os.environ.update(AWS_ENDPOINT_URL=sys.argv[2], AWS_ACCESS_KEY_ID='a', AWS_SECRET_ACCESS_KEY='b')
os.environ.update(BAGS_TRUST_LINKS='s3://bucket')
import bags
dataset = bags.open(sys.argv[1])
print(len(dataset[4]['x']))
try:
    dataset[0]
except bags.LinkError as exc:
    print(exc)
"""
    size, error = kit.python(code, tmp_path / 'data', s3_storage.server).decode().splitlines()
    assert size == str(len(objects[last]))
    assert 'got none' in error
    assert ADVICE in error
