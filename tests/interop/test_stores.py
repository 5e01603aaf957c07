"""Finding and reading the files of a source, on web servers and by patterns; buckets: tests/cloud."""

import contextlib
import functools
import http.server
import os
import threading

import pytest

import bags
from bags.interop.open_source import open_source
from bags.interop.stores import list_paths


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextlib.contextmanager
def served(folder):
    """Python's own web server: it lists folders in pages, and ignores Range."""
    handler = functools.partial(Handler, directory=folder)
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={'poll_interval': 0.02})
        thread.start()
        try:
            yield f'http://127.0.0.1:{server.server_port}'
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def source(tmp_path):
    (tmp_path / 'texts').mkdir()
    for number in range(3):
        (tmp_path / 'texts' / f'{number}.txt').write_text(f'text {number}')
    (tmp_path / 'table.csv').write_text('id\n7\n8\n')
    bags.from_numpy({'id': range(4)}, tmp_path / 'numbers')
    bags.export(tmp_path / 'numbers', tmp_path / 'parquet', format='parquet')
    return tmp_path


def test_a_web_server_that_ignores_ranges(source, tmp_path):
    with served(source) as url:
        for name in ('texts', 'table.csv', 'parquet/000000.parquet'):
            out = tmp_path / 'out' / name.replace('/', '-')
            bags.convert(f'{url}/{name}', out)
            bags.convert(source / name, f'{out}-local')
            assert list(bags.open(out)) == list(bags.open(f'{out}-local'))
            assert bags.convert(f'{url}/{name}', out, resume=True).datapoints == len(bags.open(out))
        for name in ('none', 'none.csv'):
            with pytest.raises(FileNotFoundError):
                open_source(f'{url}/{name}')


def test_local_patterns(source, monkeypatch):
    monkeypatch.chdir(source)
    monkeypatch.setenv('HOME', str(source))
    expected = [str(source / 'texts' / f'{number}.txt') for number in range(3)]
    for pattern in (
        'texts/*.txt',
        './*/?.txt',
        '**/[0-2].txt',
        '~/texts/*.txt',
        source.as_uri() + '/texts/*',
    ):
        assert list_paths([pattern]) == expected
    assert list_paths(['texts/*.jpg', 'none/*']) == []
    os.rename('texts/0.txt', 'texts/[0].txt')
    assert list_paths(['texts/[0].txt']) == [str(source / 'texts' / '[0].txt')]
    assert open_source('~/texts').count == 3
