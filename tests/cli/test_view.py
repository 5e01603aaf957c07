"""`bags view` as a process, and `--export`."""

import contextlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import sys

import pytest

import bags
from bags.display.counts import byte_count
from bags.viewer import page


@pytest.fixture
def built(tmp_path, monkeypatch):
    (tmp_path / 'page').mkdir()
    (tmp_path / 'page' / 'index.html').write_text('page')
    monkeypatch.setattr(page, 'PAGE', str(tmp_path / 'page'))
    return tmp_path / 'page'


@pytest.fixture
def start(built):
    """Starts `bags view` in a process; returns the process, and a function that gets a path of its server."""

    @contextlib.contextmanager
    def start(*args):
        code = (
            'import sys; from bags.viewer import page; page.PAGE = sys.argv.pop(1); '
            'from bags.cli import main; main()'
        )
        command = [sys.executable, '-c', code, str(built), 'view', *map(str, args), '--no-browser', '--json']
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            found = json.loads(process.stdout.readline())
            assert found['url'].startswith(f'http://127.0.0.1:{found["port"]}/?data=')

            def get(path):
                connection = http.client.HTTPConnection('127.0.0.1', found['port'], timeout=10)
                connection.request('GET', path, headers={'Range': 'bytes=0-999'})
                with contextlib.closing(connection):
                    return connection.getresponse().read()

            yield get
            process.send_signal(2)
            assert process.wait(10) == 130

    return start


def test_it_serves_until_it_is_interrupted(made, start):
    with start(made / 'episodes') as get:
        assert 'image' in json.loads(get('/data/episodes/000000/spec.json'))


def test_it_serves_linked_files_that_are_permitted(tmp_path, start):
    (tmp_path / 'raw').mkdir()
    (tmp_path / 'raw' / 'a').write_bytes(b'clip')
    with bags.DatasetWriter(
        tmp_path / 'data' / 'linked', {'clip': 'bytes'}, linked_fields=['clip']
    ) as writer:
        writer.append({'clip': bags.Link(tmp_path / 'raw' / 'a')})
    for options, expected in [((), b'not permitted'), (('--trust-links', tmp_path / 'raw'), b'clip')]:
        with start(tmp_path / 'data' / 'linked', *options) as get:
            assert expected in get('/data/linked/clip.files/1')


def test_what_is_no_dataset(made, built, tmp_path, run):
    assert 'got a bag' in run('view', made / 'texts.bagz', code=1).stderr
    assert 'got a bag' in run('view', made / 'texts.bagz', '--export', tmp_path / 'site', code=2).stderr
    (tmp_path / 'text.py').write_text('a')
    for options, code in (((), 1), (('--export', tmp_path / 'site'), 2)):
        assert (
            'which is a folder, got a file' in run('view', tmp_path / 'text.py', *options, code=code).stderr
        )
    shutil.copytree(made / 'episodes', tmp_path / 'sets' / 'episodes')
    assert 'got a folder of datasets, such as episodes' in run('view', tmp_path / 'sets', code=1).stderr
    (built / 'index.html').unlink()
    assert 'make viewer' in run('view', made / 'episodes', code=1).stderr


def test_a_port_in_use(made, built, run):
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = taken.getsockname()[1]
        result = run('view', made / 'episodes', '--no-browser', '--port', port, code=1)
    assert f'port {port} is in use: choose another, or 0 for a free one' in result.stderr


def test_export(made, built, tmp_path, run):
    result = run('view', made / 'episodes', '--export', tmp_path / 'site')
    assert (tmp_path / 'site' / 'index.html').read_text() == 'page'
    assert 'index.html?data=' in result.stdout
    shown = run('view', made / 'episodes', '--export', tmp_path / 'other', '--json').stdout
    assert len(json.loads(shown)['files']) == 1


def test_the_exported_page_names_the_dataset(made, built, tmp_path, run):
    (built / 'index.html').write_text('<head></head>')
    run('view', made / 'episodes', '--export', tmp_path / 'site')
    text = (tmp_path / 'site' / 'index.html').read_text()
    name = re.search('<meta name="bags-data" content="([^"]+)">\n</head>', text)[1]
    assert (tmp_path / 'site' / name).resolve() == (made / 'episodes').resolve()
    run('view', 'https://host/a%20b?x=1&y=2', '--export', tmp_path / 'web')
    assert 'content="https://host/a%20b?x=1&amp;y=2"' in (tmp_path / 'web' / 'index.html').read_text()
    run('view', made / 'episodes', '--export', tmp_path / 'all', '--with-data')
    assert 'content="data/episodes"' in (tmp_path / 'all' / 'index.html').read_text()
    with bags.open(made / 'episodes') as source, bags.open(tmp_path / 'all' / 'data' / 'episodes') as copied:
        assert len(copied) == len(source)
        assert copied.spec == source.spec
    assert (tmp_path / 'all' / 'data' / 'episodes' / 'shards.json').exists()
    assert '--with-data needs --export' in run('view', made / 'episodes', '--with-data', code=2).stderr


def test_an_export_counts_the_files_of_the_dataset(made, built, tmp_path, run):
    shown = run('view', made / 'episodes', '--export', tmp_path / 'all', '--with-data').stdout
    files = [path for path in (tmp_path / 'all').rglob('*') if path.is_file()]
    assert f'{len(files):,} files, {byte_count(sum(path.stat().st_size for path in files))}, in ' in shown
    shown = run('view', made / 'episodes', '--export', tmp_path / 'json', '--with-data', '--json').stdout
    assert len(json.loads(shown)['files']) == len(files)


def test_an_export_that_fails_leaves_nothing(made, built, tmp_path, run):
    (tmp_path / 'raw').mkdir()
    (tmp_path / 'raw' / 'a').write_bytes(b'clip')
    with bags.DatasetWriter(
        tmp_path / 'data' / 'linked', {'clip': 'bytes'}, linked_fields=['clip']
    ) as writer:
        writer.append({'clip': bags.Link(tmp_path / 'raw' / 'a')})
    (tmp_path / 'empty').mkdir()
    for folder in ('new/site', 'empty'):
        result = run(
            'view', tmp_path / 'data' / 'linked', '--export', tmp_path / folder, '--with-data', code=1
        )
        assert (
            f"not permitted: if the dataset is trusted, bags.open(…, trust_links=['{tmp_path}/raw']), --"
            in result.stderr
        )
    assert not (tmp_path / 'new').exists()
    assert list((tmp_path / 'empty').iterdir()) == []


def test_an_exported_dataset_has_the_records_that_links_lead_to(made, built, tmp_path, run):
    with bags.open(made / 'episodes', raw=True) as source:
        source.save(tmp_path / 'here' / 'view', link=tuple(source.spec))
        rows = len(source)
    site = tmp_path / 'site'
    run('view', tmp_path / 'here' / 'view', '--export', site, '--with-data', '--trust-links', made)
    assert not list(site.rglob('*.links'))
    with bags.open(site / 'data' / 'view', raw=True) as copied:
        assert len(list(copied)) == rows
