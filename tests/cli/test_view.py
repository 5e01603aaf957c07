"""`bags view` as a process, and `--export`."""

import http.client
import json
import socket
import subprocess
import sys

import pytest

from bags.viewer import page


@pytest.fixture
def built(tmp_path, monkeypatch):
    (tmp_path / 'page').mkdir()
    (tmp_path / 'page' / 'index.html').write_text('page')
    monkeypatch.setattr(page, 'PAGE', str(tmp_path / 'page'))
    return tmp_path / 'page'


def test_it_serves_until_it_is_interrupted(made, built):
    code = (
        'import sys; from bags.viewer import page; page.PAGE = sys.argv.pop(1); '
        'from bags.cli import main; main()'
    )
    command = [
        sys.executable,
        '-c',
        code,
        str(built),
        'view',
        str(made / 'episodes'),
        '--no-browser',
        '--json',
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        found = json.loads(process.stdout.readline())
        assert found['url'].startswith(f'http://127.0.0.1:{found["port"]}/?data=')
        connection = http.client.HTTPConnection('127.0.0.1', found['port'], timeout=10)
        connection.request('GET', '/data/episodes/000000/spec.json', headers={'Range': 'bytes=0-999'})
        assert 'image' in json.loads(connection.getresponse().read())
        connection.close()
        process.send_signal(2)
        assert process.wait(10) == 130


def test_what_is_no_dataset(made, built, tmp_path, run):
    assert 'got a bag' in run('view', made / 'texts.bagz', code=1).stderr
    assert 'got a bag' in run('view', made / 'texts.bagz', '--export', tmp_path / 'site', code=2).stderr
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
