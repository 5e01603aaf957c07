"""Reading datasets in repositories of a Hugging Face hub."""

import os
import pickle
import time

import numpy as np
import pytest

import bags
from bags import bag
from bags.cli.app import build_app
from bags.storage import store_for
from tests.storage.hub import Hub

SPEC = {'id': 'int(8)', 'blob': 'bytes', 'nothing': 'bytes?'}
URL = 'hf://datasets/u/d'


def write(path, first=0, count=50, **options):
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=20, **options) as writer:
        for index in range(first, first + count):
            writer.append({'id': index, 'blob': bytes([index]) * 9000, 'nothing': None})


@pytest.fixture
def hub(tmp_path, monkeypatch):
    pytest.importorskip('aiohttp')
    root = tmp_path / 'first'
    write(root / 'listed')
    bags.consolidate(root / 'listed')
    write(root / 'shards')
    with bags.DatasetWriter(root / 'one ü', SPEC) as writer:
        writer.append({'id': 1, 'blob': b'x', 'nothing': None})
    monkeypatch.setenv('HF_HOME', str(tmp_path / 'home'))
    for name in ('HF_TOKEN', 'HUGGING_FACE_HUB_TOKEN', 'HF_TOKEN_PATH'):
        monkeypatch.delenv(name, raising=False)
    with Hub(root) as hub:
        monkeypatch.setenv('HF_ENDPOINT', hub.url)
        yield hub


def test_requests(hub):
    """One request of the API, and then a range is a request."""
    dataset = bags.open(f'{URL}/listed')
    assert len(dataset) == 50
    assert sum(hub.count()) <= 3
    dataset[33]
    api, files, other = hub.count()
    assert api == 1
    for index in (21, 22, 25):
        assert dataset[index, 'blob'] == {'blob': bytes([index]) * 9000}
    assert hub.count() == (1, files, other + 3)
    ids = [batch['id'] for batch in bags.Loader(dataset, 10, fields='id')]
    assert sorted(np.concatenate(ids).tolist()) == list(range(50))
    assert hub.count()[0] == 1


@pytest.mark.parametrize('name', ['shards', 'one ü', 'one%20ü'])
def test_without_shards_json(hub, name):
    if '%' in name:
        with pytest.raises(FileNotFoundError):
            bags.open(f'{URL}/{name}')
        return
    with bags.open(f'{URL}/{name}') as dataset, bags.open(hub.commits['a' * 40] / name) as local:
        assert dataset.batch(range(len(dataset)))['blob'] == local.batch(range(len(local)))['blob']
        assert (dataset.size, dataset.spec) == (local.size, local.spec)


def test_addresses_that_expire(hub):
    """An address is used as often as it is valid, and then requested again."""
    dataset = bags.open(f'{URL}/listed')
    for index in range(10):
        assert dataset[index, 'blob']['blob'] == bytes([index]) * 9000
    before = hub.count()
    for _ in range(6):
        for index in range(10):
            assert dataset[index, 'blob']['blob'] == bytes([index]) * 9000
    api, files, other = (after - old for after, old in zip(hub.count(), before, strict=True))
    assert api == 0
    assert (files, other) == (3, 60 + 3)


def test_a_branch_that_moves(hub, tmp_path):
    """A dataset stays at the commit that it was opened at, also in other processes."""
    dataset = bags.open(f'{URL}/listed')
    reader = bag.Reader(f'{URL}/listed/000000/blob.bag')
    hub.commits['b' * 40] = tmp_path / 'second'
    write(tmp_path / 'second/listed', first=100, count=60)
    bags.consolidate(tmp_path / 'second/listed')
    hub.branches |= {'main': 'b' * 40, 'old/er': 'a' * 40}
    assert dataset[45, 'id'] == pickle.loads(pickle.dumps(dataset))[45, 'id'] == {'id': 45}
    assert 'a' * 40 in repr(dataset)
    newer = bags.open(f'{URL}/listed')
    assert (len(newer), newer[45, 'id']) == (60, {'id': 145})
    for revision in ('a' * 40, 'old%2Fer'):
        assert bags.open(f'{URL}@{revision}/listed')[45, 'id'] == {'id': 45}
    assert reader[19] == bytes([19]) * 9000
    hub.other.left = dict.fromkeys(hub.other.left, 0)
    with pytest.raises(bags.CorruptError, match='was replaced since it was opened'):
        reader[3]
    assert bag.Reader(f'{URL}/listed/000000/blob.bag')[0] == bytes([100]) * 9000


@pytest.mark.parametrize('source', ['option', 'prefix', 'HF_TOKEN', 'file'])
def test_private_repositories(hub, monkeypatch, tmp_path, source):
    hub.token = 'hf_secret'
    options = {}
    with pytest.raises(PermissionError, match='HF_TOKEN, or the storage option token') as caught:
        bags.open(f'{URL}/listed')
    assert caught.value.filename.startswith(URL)
    if source == 'option':
        options = {'storage_options': {'token': 'hf_secret'}}
    elif source == 'prefix':
        options = {'storage_options': {URL: {'token': 'hf_secret'}}}
    elif source == 'file':
        (tmp_path / 'home').mkdir()
        (tmp_path / 'home/token').write_text('hf_secret\n')
    else:
        monkeypatch.setenv('HF_TOKEN', 'hf_secret')
    dataset = pickle.loads(pickle.dumps(bags.open(f'{URL}/listed', **options)))
    assert dataset[33, 'blob']['blob'] == bytes([33]) * 9000
    assert hub.other.requests
    with pytest.raises(PermissionError):
        bags.open(f'{URL}/listed', storage_options={'token': False})


def test_a_token_that_expires(hub, monkeypatch):
    hub.token = 'hf_secret'
    monkeypatch.setenv('HF_TOKEN', 'hf_secret')
    dataset = bags.open(f'{URL}/listed')
    hub.token = 'hf_next'
    with pytest.raises(PermissionError, match='Invalid username or password') as caught:
        dataset[3]
    assert 'listed/00000' in str(caught.value)


def test_errors_have_no_signed_address(hub):
    dataset = bags.open(f'{URL}/listed')
    assert dataset[3]['id'] == 3
    hub.other.reads = -1
    hub.other.left = dict.fromkeys(hub.other.left, 0)
    with pytest.raises(PermissionError, match='access denied') as caught:
        dataset[5]
    assert 'secret' not in str(caught.value)


@pytest.mark.slow
def test_rate_limits(hub):
    """Requests wait as long as Retry-After says."""
    hub.statuses = [(429, {'Retry-After': '1'})]
    before = time.monotonic()
    dataset = bags.open(f'{URL}/listed')
    assert time.monotonic() - before >= 1
    assert dataset.retries == 1
    # Some of the files are requested ahead, and again if that fails.
    hub.statuses = [(429, {'Retry-After': '300'})] * 4
    with pytest.raises(OSError, match=r'status 429.*the server asks to wait 300 s'):
        dataset[3]


@pytest.mark.parametrize(
    ('path', 'said'),
    [
        ('u/d', 'got a folder with other files (bags.convert imports them) in it'),
        ('u/d/nothing', 'no such dataset or bag\n'),
        ('u/d@nothing/listed', 'no such dataset or bag: Invalid rev id'),
        ('u/nothing/listed', 'no such dataset or bag: Repository not found'),
    ],
)
def test_what_the_command_says(hub, path, said, capsys):
    with pytest.raises(SystemExit):
        build_app()(['info', f'hf://datasets/{path}'])
    printed = capsys.readouterr().err
    assert printed.startswith(f'bags: hf://datasets/{path}'[:24])
    assert said in printed
    assert printed.count('\n') == 1


@pytest.mark.parametrize(
    ('path', 'error', 'reason'),
    [
        ('u/d/nothing', FileNotFoundError, 'no such folder'),
        ('u/d@nothing/listed', FileNotFoundError, 'Invalid rev id'),
        ('u/nothing/listed', FileNotFoundError, 'Repository not found'),
        ('u', ValueError, 'expected hf://datasets/OWNER/NAME'),
    ],
)
def test_what_is_missing(hub, path, error, reason):
    with pytest.raises(error, match=reason) as caught:
        bags.open(f'hf://datasets/{path}')
    assert f'hf://datasets/{path.partition("@")[0]}'[:16] in str(caught.value)
    assert sum(hub.count()) < 10


def test_lists_of_several_pages(hub):
    store, path = store_for(f'{URL}/listed')
    assert sorted(store.names(path)) == ['000000', '000001', '000002', 'shards.json']
    root = hub.commits['a' * 40] / 'listed'
    found = {name: stat.size for name, stat in store.walk(path).items()}
    assert found == {
        file.relative_to(root).as_posix(): file.stat().st_size for file in root.rglob('*') if file.is_file()
    }
    assert store.exists(f'{path}/000000/spec.json')
    assert not store.exists(f'{path}/000000/nothing')
    assert store.stat(f'{path}/000000/id.bag') == store.walk(path)['000000/id.bag']


def test_a_cache(hub, tmp_path):
    for _ in range(2):
        dataset = bags.open(f'{URL}/listed', cache=tmp_path / 'cache')
        assert dataset.batch([1, 44], 'id')['id'].tolist() == [1, 44]
    assert hub.count()[0] == 2


@pytest.mark.slow
def test_workers(hub):
    dataset = bags.open(f'{URL}/listed')
    loader = bags.Loader(dataset, 10, fields='id', workers=2, processes=True)
    assert sorted(np.concatenate([batch['id'] for batch in loader]).tolist()) == list(range(50))
    assert hub.count()[0] == 1


def test_tools(hub, tmp_path):
    assert bags.info(f'{URL}/shards').datapoints == 50
    assert bags.verify(f'{URL}/listed', decode=True) == []
    bags.copy(f'{URL}/shards', tmp_path / 'copy', progress=False)
    with bags.open(tmp_path / 'copy') as copy:
        assert copy[44, 'id'] == {'id': 44}
    assert os.listdir(tmp_path / 'copy')
