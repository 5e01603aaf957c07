"""The server of `bags view`: ranges of the dataset and the page, and nothing else."""

import http.client
import json
import os
import shutil
import sys

import msgpack
import numpy as np
import pytest

import bags
from bags.viewer import page
from bags.viewer.server import ViewServer

SPEC = {'id': 'int(8)', 'text': 'utf8'}


@pytest.fixture(autouse=True)
def built(tmp_path, monkeypatch):
    """A page, as `make viewer` builds it."""
    folder = tmp_path / 'page'
    (folder / 'assets').mkdir(parents=True)
    (folder / 'index.html').write_text('<head><title>page</title></head>')
    (folder / 'assets' / 'index-x.js').write_text('1')
    monkeypatch.setattr(page, 'PAGE', str(folder))
    return folder


@pytest.fixture
def dataset(tmp_path):
    path = tmp_path / 'data' / 'two words'
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=2, compression=['text']) as writer:
        for index in range(5):
            writer.append({'id': index, 'text': f'text {index}'})
    (tmp_path / 'data' / 'secret.bag').write_text('secret')
    return path


@pytest.fixture
def server(dataset):
    with ViewServer(dataset) as server:
        yield server


def ask(server, path, method='GET', **headers):
    connection = http.client.HTTPConnection('127.0.0.1', server.port, timeout=10)
    connection.putrequest(method, path, skip_host='Host' in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response, data


def test_ranges_of_the_files_of_the_dataset(server, dataset):
    data = (dataset / '000001' / 'refs.bag').read_bytes()
    path = '/data/two%20words/000001/refs.bag'
    assert server.url.endswith('/?data=data/two%2520words')
    for text, part in [('bytes=0-9', data[:10]), ('bytes=5-', data[5:]), ('bytes=-8', data[-8:]),
                       ('bytes=3-99999', data[3:])]:  # fmt: skip
        response, found = ask(server, path, Range=text)
        assert (response.status, found) == (206, part)
        assert response.headers['Content-Range'].endswith(f'/{len(data)}')
    response, found = ask(server, path, Range=f'bytes={len(data)}-')
    assert (response.status, response.headers['Content-Range']) == (416, f'bytes */{len(data)}')
    response, found = ask(server, path)
    assert (response.status, found) == (200, data)
    response, found = ask(server, path, 'HEAD')
    assert (response.headers['Content-Length'], found) == (str(len(data)), b'')


def test_the_page(server, dataset):
    named = (
        '<meta name="bags-data" content="data/two%20words">\n'
        f'<meta name="bags-source" data-url="data/two%20words" content="{dataset}">\n'
    )
    for path in ('/?data=data', '/', '/index.html'):
        assert ask(server, path)[1].decode() == f'<head><title>page</title>{named}</head>'
    response, _ = ask(server, '/assets/index-x.js')
    assert response.headers['Content-Type'] in ('text/javascript', 'application/javascript')
    assert ask(server, '/assets/none.js')[0].status == 404


def test_shards_without_an_index_have_one_here(server, dataset):
    assert not (dataset / 'shards.json').exists()
    found = json.loads(ask(server, '/data/two%20words/shards.json', Range='bytes=0-99999')[1])
    assert [shard['length'] for shard in found['shards']] == [2, 2, 1]
    assert not (dataset / 'shards.json').exists()


@pytest.mark.parametrize('path', [
    '/data/two%20words/../secret.bag', '/data/two%20words/%2e%2e/secret.bag',
    '/data/two%20words/..%2fsecret.bag',
    '/data/secret.bag', '/data/two%20words/000000/../../secret.bag', '/data/two%20words//etc/passwd.bag',
    '/../data/secret.bag', '/%2e%2e/index.html', '/assets/../../secret.bag', '/data/two%20words/000000',
    '/data/two%20words/000000/link.bag', '/data/two%20words/000000/notes.txt', '/data/two%20words/',
    '/data/two%20words/000000/refs.bag%00', '/data/two%20words/000009/refs.bag',
    '/data/two%20words/000008/refs.bag', '//etc/passwd', '/data/two%20words/%2fetc%2fpasswd.bag',
])  # fmt: skip
def test_nothing_outside_the_dataset(server, dataset, path):
    os.symlink(dataset.parent / 'secret.bag', dataset / '000000' / 'link.bag')
    (dataset.parent / 'other').mkdir()
    (dataset.parent / 'other' / 'refs.bag').write_text('secret')
    os.symlink(dataset.parent / 'other', dataset / '000008')
    (dataset / '000000' / 'notes.txt').write_text('secret')
    response, data = ask(server, path)
    assert response.status == 404
    assert b'secret' not in data


@pytest.mark.parametrize('is_reversed', [False, True])
@pytest.mark.parametrize('exchanged', ['000000/refs.bag', '000000', '', '..'])
def test_a_file_that_is_exchanged_with_a_link_to_another(dataset, exchanged, is_reversed):
    """What was opened is checked: not only the path before it is opened."""
    path = (dataset / exchanged).resolve()
    other, kept = dataset.parent.parent / 'other', dataset.parent.parent / 'kept'
    shutil.copytree(path, other) if path.is_dir() else shutil.copy(path, other)
    secret = other / os.path.relpath(dataset / '000000' / 'refs.bag', path) if path.is_dir() else other
    secret.write_bytes(b'secret')

    def profile(frame, event, function):
        if function is not os.open or not os.path.lexists(path):
            return
        if event == 'c_call' and not kept.exists():
            os.rename(path, kept)
            os.symlink(other, path)
        elif event == 'c_return' and is_reversed and path.is_symlink():
            os.unlink(path)
            os.rename(kept, path)

    with ViewServer(dataset) as server:
        sys.setprofile(profile)
        try:
            found = server.find(f'/data/{server.folder}/000000/refs.bag')
        finally:
            sys.setprofile(None)
        assert found is None or bytes(found[0].read(0, 6)) != b'secret'
        assert kept.exists() != is_reversed


def test_a_dictionary_is_served(server, dataset):
    (dataset / '000000' / 'text.zdict').write_bytes(b'dictionary')
    assert ask(server, '/data/two%20words/000000/text.zdict', Range='bytes=0-3')[1] == b'dict'


@pytest.fixture
def linked(tmp_path):
    """A dataset with links to a file in its folder, and to one beside it."""
    path = tmp_path / 'data' / 'linked'
    path.parent.mkdir()
    (path.parent / 'outside.bin').write_bytes(b'outside of the folder')
    with bags.ShardedDatasetWriter(
        path, {'clip': 'bytes', 'id': 'int(8)'}, shard_length=2, linked_fields=['clip']
    ) as writer:
        (path / 'raw').mkdir(parents=True)
        (path / 'raw' / 'inside.bin').write_bytes(b'inside of the folder')
        writer.append({'clip': bags.Link(path / 'raw' / 'inside.bin', offset=3, length=4), 'id': 0})
        writer.append({'clip': b'own', 'id': 1})
        writer.append({'clip': bags.Link(path.parent / 'outside.bin'), 'id': 2})
        writer.append({'clip': bags.Link(path / 'raw' / 'inside.bin'), 'id': 3})
    return path


def test_linked_files_are_served_by_number(linked):
    with ViewServer(linked) as server:
        response, found = ask(server, '/data/linked/000000/clip.files/1', Range='bytes=7-8')
        assert (response.status, found, response.headers['Content-Range']) == (206, b'of', 'bytes 7-8/20')
        assert response.headers['Content-Type'] == 'application/octet-stream'
        assert ask(server, '/data/linked/000001/clip.files/2')[1] == b'inside of the folder'
        response, found = ask(server, '/data/linked/000001/clip.files/2', 'HEAD')
        assert (response.headers['Content-Length'], found) == ('20', b'')
        assert ask(server, '/data/linked/000000/clip.files/1', Range='bytes=20-')[0].status == 416
        assert ask(server, '/data/linked/000000/clip.values')[1].startswith(b'own')
        for name in ('links', 'files'):
            data = (linked / '000001' / f'clip.{name}').read_bytes()
            assert ask(server, f'/data/linked/000001/clip.{name}')[1] == data


def test_linked_files_outside_of_the_dataset_need_permission(linked, monkeypatch):
    outside, path = linked.parent / 'outside.bin', '/data/linked/000001/clip.files/1'
    with ViewServer(linked) as server:
        response, found = ask(server, path, Range='bytes=0-9')
        assert response.status == 502
        assert f'links to {outside} are not permitted' in found.decode()
        assert b'outside of' not in found
        monkeypatch.setenv('BAGS_TRUST_LINKS', str(outside))
        assert ask(server, path)[1] == b'outside of the folder'
        monkeypatch.delenv('BAGS_TRUST_LINKS')
    with ViewServer(linked, trust_links=[linked / 'raw']) as server:
        assert ask(server, path)[0].status == 502
    with ViewServer(linked, trust_links=[linked.parent]) as server:
        assert ask(server, path, Range='bytes=0-6')[1] == b'outside'
    (linked / 'raw' / 'inside.bin').unlink()
    os.symlink(outside, linked / 'raw' / 'inside.bin')
    with ViewServer(linked) as server:
        response, found = ask(server, '/data/linked/000000/clip.files/1')
        assert (response.status, b'outside of' in found) == (502, False)
    with bags.open(linked, trust_links=True) as reader, bags.view(reader) as shown:
        assert ask(shown._server, path)[1] == b'outside of the folder'
    with bags.open(linked) as reader, bags.view(reader) as shown:
        assert ask(shown._server, path)[0].status == 502
    with bags.view(linked, trust_links=outside) as shown:
        assert ask(shown._server, path)[1] == b'outside of the folder'


@pytest.mark.parametrize('path', [
    '000000/clip.files/0', '000000/clip.files/2', '000000/clip.files/4294967296', '000000/clip.files/-1',
    '000000/clip.files/99999999999999999999999', '000000/clip.files/1e0', '000000/clip.files/1.5',
    '000000/clip.files/%D9%A1', '000000/clip.files/%C2%B9', '000000/clip.files/', '000000/clip.files/1/',
    '000000/clip.files/1/1', '000000/clip.files/../../../outside.bin', '000000/clip.files/%2e%2e',
    '000000/clip.files/1%00', '000000/clip.files/1.zdict', '000000/clip.files/%201',
    '000000/clip.files/../../raw/inside.bin', '000000/id.files/1', '000000/clip.links/1',
    '000000/clip.values/1', 'clip.files/1', '000009/clip.files/1', '000000/.files/1', '000000/linked.files/1',
    '000008/clip.files/1', 'raw/inside.bin', '000000/..%2f000001%2fclip.files/1',
])  # fmt: skip
def test_other_numbers_and_paths_are_not_linked_files(linked, path):
    os.symlink(linked.parent, linked / '000008')
    shutil.copy(linked / '000001' / 'clip.files', linked.parent)
    os.symlink(linked.parent / 'clip.files', linked / '000000' / 'linked.files')
    with ViewServer(linked, trust_links=True) as server:
        response, data = ask(server, f'/data/linked/{path}')
        assert response.status == 404
        assert b'side of' not in data


@pytest.mark.parametrize('stored', [
    ['file:///etc/passwd', 1, 0, None], ['a/../../outside.bin', 21, 0, None], [None, 1, 0, None], 'text',
    ['../' * 40 + 'etc/passwd', 1, 0, None], ['raw', 0, 0, None], ['clip.files', -1, 0, None],
])  # fmt: skip
def test_hostile_entries_are_refused(tmp_path, stored):
    path = tmp_path / 'hostile'
    with bags.DatasetWriter(path, {'clip': 'bytes'}, linked_fields=['clip']) as writer:
        writer.append({'clip': b'own'})
    (path / 'raw').mkdir()
    with bags.bag.Writer(path / 'clip.files.bag') as writer:
        writer.write(msgpack.packb(stored))
    (path / 'clip.files.bag').rename(path / 'clip.files')
    with ViewServer(path, trust_links=True) as server:
        response, data = ask(server, '/data/hostile/clip.files/1')
        assert response.status == 502
        assert b'root:' not in data


def test_linked_files_that_have_changed_are_named(linked):
    inside, path = linked / 'raw' / 'inside.bin', '/data/linked/000000/clip.files/1'
    with ViewServer(linked) as server:
        assert ask(server, path)[1] == b'inside of the folder'
        os.truncate(inside, 9)
        response, found = ask(server, path, Range='bytes=0-19')
        assert response.status == 502
        assert f"field 'clip': link to {inside}: expected 20 bytes" in found.decode()
    for content, what in [(b'inside OF the folder', b'sample'), (b'longer than it was before', b'got 25')]:
        inside.write_bytes(content)
        with ViewServer(linked) as server:
            response, found = ask(server, path)
            assert (response.status, what in found) == (502, True)
    inside.unlink()
    with ViewServer(linked) as server:
        assert b'expected a file of 20 bytes, got none' in ask(server, path)[1]


def test_linked_bags_and_their_dictionaries(tmp_path):
    whole = tmp_path / 'whole'
    with bags.DatasetWriter(whole, {'text': 'utf8'}, compression={'text': 'dictionary'}) as writer:
        for index in range(300):
            writer.append({'text': f'a short text about the number {index * 7919 % 1000}, {index}'})
    bags.open(whole).save(tmp_path / 'view', link=('text',))
    path = '/data/view/000000/text.files/1'
    with ViewServer(tmp_path / 'view') as server:
        assert ask(server, path, Range='bytes=0-99')[1] == (whole / 'text.bagz').read_bytes()[:100]
        assert ask(server, f'{path}.zdict')[1] == (whole / 'text.zdict').read_bytes()
        (whole / 'spec.json').unlink()
    with ViewServer(tmp_path / 'view') as server:
        assert ask(server, f'{path}.zdict')[0].status == 502


@pytest.mark.parametrize('host', ['evil.example', 'evil.example:80', '127.0.0.1', ''])
def test_other_hosts_are_refused(server, host):
    response, _ = ask(server, '/data/two%20words/000000/spec.json', Host=host)
    assert response.status == 421


@pytest.mark.parametrize('method', ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])
def test_it_only_reads(server, method):
    assert ask(server, '/data/two%20words/000000/spec.json', method)[0].status == 501


def test_errors(dataset, tmp_path, server, built):
    with pytest.raises(OSError, match=f'port {server.port} is in use'):
        ViewServer(dataset, server.port)
    with pytest.raises(ValueError, match='got a bag'):
        ViewServer(dataset / '000000' / 'id.bag')
    with pytest.raises(FileNotFoundError):
        ViewServer(tmp_path / 'nothing')
    (built / 'index.html').unlink()
    with pytest.raises(FileNotFoundError, match='make viewer'):
        ViewServer(dataset)


def test_a_dataset_on_a_web_server(dataset):
    """A plain web server lists no files; here a second viewer serves them."""
    dataset.rename(dataset.parent / 'plain')
    with (
        ViewServer(dataset.parent / 'plain') as web,
        ViewServer(f'http://127.0.0.1:{web.port}/data/plain') as other,
    ):
        path = f'/data/{other.folder}/000001/spec.json'
        assert json.loads(ask(other, path, Range='bytes=0-999')[1]) == SPEC
        assert ask(other, f'/data/{other.folder}/spec.json')[0].status == 404
        with pytest.raises(FileNotFoundError, match='no such dataset'):
            ViewServer(f'http://127.0.0.1:{web.port}/data/absent')


def test_export(tmp_path, built):
    files = page.export_page(tmp_path / 'site')
    assert [os.path.relpath(path, tmp_path / 'site') for path in files] == ['assets/index-x.js', 'index.html']
    with pytest.raises(FileExistsError):
        page.export_page(tmp_path / 'site')


def test_in_notebooks(dataset):
    with bags.view(dataset, 3) as shown:
        assert shown.url.endswith('#view=datapoint&at=3')
        assert f'<iframe src="{shown.url.replace("&", "&amp;")}"' in shown._repr_html_()
    with bags.open(dataset) as reader:
        with bags.view(reader) as shown:
            assert ask(shown._server, '/data/two%20words/000002/spec.json')[0].status == 200
        table = bags.view(reader[1:3])
        assert 'text 2' in table._repr_html_()
        assert 'text 4' not in table._repr_html_()
        with pytest.raises(IndexError):
            bags.view(reader, 9)


def test_datasets_show_thumbnails(tmp_path):
    spec = {
        'clip': 'mp4',
        'depth': 'png',
        'image': 'jpeg?',
        'text': 'utf8',
        'views': 'png[]',
        'x': 'array(float32,9)',
    }
    image = np.full((40, 60, 3), 200, np.uint8)
    with bags.DatasetWriter(tmp_path / 'x', spec) as writer:
        for index in range(2):
            writer.append({
                'clip': np.zeros((2, 32, 32, 3), np.uint8),
                'depth': np.arange(64, dtype=np.uint16).reshape(8, 8),
                'image': image if index else None, 'text': '<script>', 'views': [image] * index,
                'x': np.zeros(9, np.float32),
            })  # fmt: skip
    (tmp_path / 'x' / 'text.bag').unlink()
    with bags.open(tmp_path / 'x') as dataset:
        html = dataset._repr_html_()
    assert html.count('<img src="data:image/jpeg;base64,') == 2 + 2 + 1 + 1
    assert '1 × <img' in html
    assert 'None' in html
    assert '9 items, 0 to 0' in html  # Of the curve of an array.
    assert 'CorruptError' in html


def snapshot(server):
    response, data = ask(server, f'/data/{server.folder}/live.json')
    assert (response.status, response.getheader('Content-Type')) == (200, 'application/json')
    return json.loads(data)


@pytest.mark.parametrize('is_sharded', [True, False])
def test_snapshots_of_an_episode_that_is_recorded(tmp_path, is_sharded):
    """The refs of a snapshot have the partial datapoint, and the files of the bags have its records."""
    make = bags.ShardedDatasetWriter if is_sharded else bags.DatasetWriter
    path, folder = tmp_path / 'live', '000000/' if is_sharded else ''
    with make(path, {'id': 'int(8)', 'word': 'utf8[]'}) as writer, ViewServer(path, follow=True) as server:
        data = f'/data/{server.folder}/'
        assert f'<meta name="bags-follow" content="data/{server.folder}">' in ask(server, '/')[1].decode()
        writer.append({'id': 7, 'word': ['before']}, flush=True)
        first = snapshot(server)
        assert (first['length'], first['partial'], snapshot(server)) == (1, [], first)
        with writer.begin({'id': 8}) as episode:
            for word in ('one', 'two'):
                episode.append({'word': word})
            episode.flush()
            seen = snapshot(server)
            assert (seen['length'], seen['partial']) == (2, [1])
            assert seen['version'] > first['version']
            episode.append({'word': 'three'})
            episode.flush()
            assert snapshot(server)['version'] > seen['version']
            files = f'{data}live/{seen["version"]}/{folder}'
            refs, limits = (ask(server, files + name)[1] for name in ('refs.bag', 'limits.refs.bag'))
            ends = np.frombuffer(limits, '<i8')
            assert msgpack.unpackb(refs[ends[0] : ends[1]]) == [1, [1, 2]]
            words, limits = (ask(server, files + name)[1] for name in ('word.bag', 'limits.word.bag'))
            ends = np.frombuffer(limits, '<i8')
            assert words[ends[0] : ends[2]] == b'onetwo'
            committed = ask(server, f'{data}{folder}limits.refs.bag')[1]
            assert len(committed) == 8
            assert ask(server, f'{data}live/{seen["version"]}/shards.json')[0].status == 404
            assert ask(server, f'{data}live/{seen["version"] + 9}/{folder}refs.bag')[0].status == 404
            for escape in ('../../secret', '..%2F..%2Fsecret.bag', 'unfinished', '/etc/passwd'):
                assert ask(server, f'{data}live/{seen["version"]}/{escape}')[0].status == 404
        assert snapshot(server)['partial'] == []
        files = f'{data}live/{snapshot(server)["version"]}/{folder}'
        assert len(ask(server, f'{files}limits.refs.bag')[1]) == 16


def test_what_cannot_be_followed(server, dataset):
    assert ask(server, f'/data/{server.folder}/live.json')[0].status == 404
    assert b'bags-follow' not in ask(server, '/')[1]
    with bags.DatasetWriter('memory://follow/x', SPEC) as writer:
        writer.append({'id': 1, 'text': 'x'})
    with pytest.raises(ValueError, match=r'follow: expected a local dataset'):
        ViewServer('memory://follow/x', follow=True)
