"""Datasets that are uploaded to a Hugging Face hub."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

import bags
from tests.interop.hub.conftest import TOKEN, URL

pytest.importorskip('huggingface_hub')
# huggingface_hub does, of the client that it uses.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

SPEC = {'id': 'int(8)', 'blob': 'bytes'}


def write(path, first=0, count=50, **options):
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=20, **options) as writer:
        for index in range(first, first + count):
            writer.append({'id': index, 'blob': bytes([index]) * (2000 if index % 2 else 10)})
    return path


def rows(path):
    with bags.open(path, storage_options=TOKEN if str(path).startswith('hf://') else None) as reader:
        return list(reader)


def test_one_commit_with_all_files(hub, push, tmp_path):
    path = write(tmp_path / 'episodes', metadata={'licence': 'mit'})
    url = push(path, message='First')
    assert url == f'{URL}@{hub.branches["main"]}'
    assert rows(url) == rows(path)
    assert hub.titles == ['First']
    assert set(hub.files) == {
        'README.md',
        'shards.json',
        *(file.relative_to(path).as_posix() for file in path.glob('0*/*')),
    }
    assert all(file.read_bytes() == (path / name).read_bytes() for name, file in hub.files.items()
               if name != 'README.md')  # fmt: skip
    assert hub.files['README.md'].read_text() == bags.card(path, url=URL)
    with bags.open(url, storage_options=TOKEN) as reader:
        before = sum(hub.count())
        assert reader[33] == rows(path)[33]
        assert hub.count()[0] <= before


@pytest.mark.parametrize('target', [f'{URL}/some/where', f'{URL}@dev', f'{URL}@refs/pr/1/some'])
def test_folders_and_branches(hub, push, tmp_path, target):
    hub.branches |= {'dev': 'a' * 40, 'refs/pr/1': 'a' * 40}
    path = write(tmp_path / 'episodes')
    url = push(path, target)
    assert rows(url) == rows(target) == rows(path)
    if '@' in target:
        assert hub.branches['main'] == 'a' * 40
    else:
        assert all(name.startswith('some/where/') for name in hub.files)


def test_a_folder_without_shards(hub, push, tmp_path):
    with bags.DatasetWriter(tmp_path / 'one', SPEC) as writer:
        writer.append({'id': 1, 'blob': b'x'})
    assert rows(push(tmp_path / 'one')) == [{'id': 1, 'blob': b'x'}]
    assert 'source.json' in hub.files


def test_logs_beside_shards_are_not_sent(hub, push, tmp_path):
    path = write(tmp_path / 'episodes')
    for name in ('progress.json', 'source.json'):  # Of this version and of earlier ones.
        (path / name).write_text('{"kind": "copy"}')
    push(path)
    assert {name for name in hub.files if '/' not in name} == {'README.md', 'shards.json'}


def test_nothing_is_sent_twice(hub, push, tmp_path):
    path = write(tmp_path / 'episodes')
    first = push(path)
    sent = hub.other.uploads
    assert push(path) == first
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=20, resume=True) as writer:
        for index in range(60, 75):
            writer.append({'id': index, 'blob': b'new'})
    assert len(rows(push(path))) == 65
    assert 0 < hub.other.uploads - sent <= 6
    assert len(hub.titles) == 2


def test_files_of_an_earlier_dataset_are_removed_and_others_stay(hub, push, tmp_path):
    push(write(tmp_path / 'more', count=70))
    root = hub.commits[hub.branches['main']]
    (root / 'notes.txt').write_text('mine')
    (root / 'other').mkdir()
    (root / 'other/id.bag').write_bytes(b'of another dataset')
    path = write(tmp_path / 'fewer', first=100, count=30)
    assert rows(push(path)) == rows(path)
    assert {name.split('/')[0] for name in hub.files} == {
        '000000', '000001', 'README.md', 'notes.txt', 'other', 'shards.json',
    }  # fmt: skip


def test_cards_that_are_kept(hub, push, tmp_path):
    path = write(tmp_path / 'episodes')
    root = hub.commits['a' * 40]
    (root / 'README.md').write_text('---\nlicense: mit\n---\nMine.\n')
    push(path)
    assert hub.files['README.md'].read_text().endswith('Mine.\n')
    push(path, f'{URL}/sub', viewer='https://page.example/index.html')
    assert 'https://page.example/index.html?data=' in hub.files['sub/README.md'].read_text()
    bags.set_metadata(path, {'robot': 'arm 7'})
    push(path, f'{URL}/sub')
    assert '| robot | arm 7 |' in hub.files['sub/README.md'].read_text()
    (path / 'README.md').write_text('Local.')
    (path / 'LICENSE').write_text('All rights.')
    push(path)
    assert (hub.files['README.md'].read_text(), hub.files['LICENSE'].read_text()) == ('Local.', 'All rights.')


PUSHES = """
import os, sys
import bags
from huggingface_hub import CommitOperationAdd, HfApi
for _ in sys.stdin:
    child = os.fork()
    if not child:
        sys.stdin.readline()  # Until it is known whom to kill.
        bags.push(sys.argv[1], 'hf://datasets/u/d', progress=False)
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Pushes as often as it is asked to, each time in another process."""


@pytest.mark.slow
def test_a_push_that_is_killed_20_times(hub, tmp_path):
    """Each file is sent whole once; the repository has no commit before the last push."""
    path = tmp_path / 'episodes'
    with bags.DatasetWriter(path, {f'blob{number}': 'bytes' for number in range(60)}) as writer:
        writer.append({name: os.urandom(5000 if name[-1] != '7' else 40_000) for name in writer.spec})
    environment = {**os.environ, 'HF_TOKEN': 'hf_secret', 'HF_HUB_DISABLE_XET': '1'}
    child = []
    hub.other.on_upload = lambda number: number % 4 or os.kill(child[-1], signal.SIGKILL)
    command = [sys.executable, '-c', PUSHES, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as pushes:

        def push():
            print(file=pushes.stdin, flush=True)
            child.append(int(pushes.stdout.readline()))
            print(file=pushes.stdin, flush=True)
            return int(pushes.stdout.readline())

        killed = [push() for _ in range(20)]
        assert killed == [-signal.SIGKILL] * 20
        assert hub.branches['main'] == 'a' * 40
        hub.other.on_upload = None
        assert push() == 0
        pushes.stdin.close()
    assert rows(URL) == rows(path)
    large = {version for version, count in hub.other.stored.items() if len(hub.other.objects[version]) > 4000}
    assert len(large) == 60
    assert {hub.other.stored[version] for version in large} == {1}


@pytest.mark.slow
def test_rate_limits(hub, push, tmp_path):
    """Requests that upload and commit wait as long as the hub says."""
    wait = (429, {'Retry-After': '0', 'X-Error-Message': 'too many'})
    policy = (429, {'RateLimit': '"api";r=0;t=1'})
    hub.refused = {
        name: [wait, policy, wait] for name in ('revision', 'tree', 'preupload', 'batch', 'commit')
    }
    path = write(tmp_path / 'episodes')
    assert rows(push(path)) == rows(path)
    assert not any(hub.refused.values())


def test_a_rate_limit_that_lasts_too_long(hub, tmp_path):
    hub.refused['commit'] = [(429, {'Retry-After': '3600', 'X-Error-Message': '128 commits per hour'})] * 9
    path = write(tmp_path / 'episodes')
    with pytest.raises(OSError, match=r'429: 128 commits per hour .*asks to wait 3600 s') as caught:
        bags.push(path, URL, storage_options=TOKEN)
    assert caught.value.filename.startswith(URL)
    sent = hub.other.uploads
    hub.refused = {}
    assert rows(bags.push(path, URL, storage_options=TOKEN)) == rows(path)
    assert hub.other.uploads == sent


def test_the_response_of_a_commit_that_is_lost(hub, push, tmp_path):
    hub.lost = 1
    path = write(tmp_path / 'episodes')
    assert rows(push(path)) == rows(path)
    assert len(hub.titles) == 1


def test_a_branch_that_moves_meanwhile(hub, push, tmp_path):
    def move(number):
        if number == 1:
            root = tmp_path / 'b'
            root.mkdir()
            hub.commits['b' * 40], hub.branches['main'] = root, 'b' * 40

    hub.other.on_upload = move
    path = write(tmp_path / 'episodes')
    with pytest.raises(OSError, match='the branch has changed since the push began: push again'):
        push(path)
    assert rows(push(path)) == rows(path)


@pytest.mark.parametrize(
    ('options', 'error', 'reason'),
    [
        (
            {'token': 'hf_old'},
            PermissionError,
            r'not valid, or has expired: create a new one at http.*/settings/tokens',
        ),
        ({'token': False}, PermissionError, r'a push needs a token that may write to u/d'),
    ],
)
def test_tokens(hub, tmp_path, options, error, reason):
    path = write(tmp_path / 'episodes')
    with pytest.raises(error, match=reason) as caught:
        bags.push(path, URL, storage_options=options)
    assert 'hf auth login, HF_TOKEN or' in str(caught.value).replace('`', '')
    assert caught.value.filename == f'{URL}@main'


@pytest.mark.parametrize(
    ('method', 'status', 'headers', 'error', 'reason'),
    [
        ('preupload', 403, {'X-Error-Message': 'Forbidden'}, PermissionError, 'may not write to u/d'),
        (
            'batch', 403, {'X-Error-Message': 'Private repository storage limit reached'}, OSError,
            'no more storage: Private repository storage limit reached; http.*/settings/billing',
        ),
        ('commit', 402, {'X-Error-Message': 'Pay first'}, OSError, 'no more storage: Pay first'),
        ('commit', 422, {'X-Error-Message': 'strange'}, OSError, 'status 422: strange'),
        (
            'revision', 404, {'X-Error-Code': 'RepoNotFound'}, FileNotFoundError,
            r"huggingface_hub.create_repo\('u/d', repo_type='dataset'\)",
        ),
    ],
)  # fmt: skip
def test_what_the_hub_refuses(hub, push, tmp_path, method, status, headers, error, reason):
    hub.refused[method] = [(status, headers)] * 2
    with pytest.raises(error, match=reason) as caught:
        push(write(tmp_path / 'episodes'))
    assert caught.value.filename == f'{URL}@main'
    assert len(str(caught.value).splitlines()) == 1


def test_a_branch_that_does_not_exist(hub, push, tmp_path):
    make = r"huggingface_hub.create_branch\('u/d', branch='new', repo_type='dataset'\)"
    with pytest.raises(FileNotFoundError, match=make):
        push(write(tmp_path / 'episodes'), f'{URL}@new')


def test_a_hub_that_does_not_answer(hub, tmp_path):
    options = {**TOKEN, 'endpoint': 'http://127.0.0.1:9', 'retries': 0}
    with pytest.raises(OSError, match=r'cannot connect to 127.0.0.1:9: Connection refused \(after one try\)'):
        bags.push(write(tmp_path / 'episodes'), URL, storage_options=options)


def test_files_that_the_repository_ignores(hub, push, tmp_path):
    hub.ignored = {'000000/blob.bag'}
    with pytest.raises(ValueError, match=r'\.gitignore of the repository leaves out 000000/blob\.bag'):
        push(write(tmp_path / 'episodes'))


@pytest.mark.parametrize(
    'target', ['hf://datasets/u', 's3://bucket/x', f'{URL}/path@dev', f'{URL}@{"a" * 40}', 'hf://spaces/u/d']
)
def test_targets_that_are_no_branches(hub, push, tmp_path, target):
    with pytest.raises(ValueError, match=r'expected hf://datasets/OWNER/NAME'):
        push(write(tmp_path / 'episodes'), target)
    assert not hub.requests


def test_datasets_that_cannot_be_pushed(hub, push, tmp_path):
    with pytest.raises(FileNotFoundError):
        push(tmp_path / 'nothing')
    with pytest.raises(ValueError, match='expected a local dataset, got one at a URL'):
        push(write('memory://push/episodes'))
    with bags.ShardedDatasetWriter(tmp_path / 'begun', SPEC) as writer:
        writer.append({'id': 1, 'blob': b''})
        writer.flush()
        with pytest.raises(ValueError, match='expected a finished dataset'):
            push(tmp_path / 'begun')
    path = write(tmp_path / 'episodes')
    with bags.open(path) as reader:
        reader.save(tmp_path / 'view', link=['blob'], progress=False)
    with pytest.raises(ValueError, match=r"field 'blob' has links to .*bags\.copy makes a dataset without"):
        push(tmp_path / 'view')
    assert not hub.requests


@pytest.mark.slow
def test_the_command(hub, tmp_path, monkeypatch):
    monkeypatch.setenv('HF_TOKEN', 'hf_secret')
    monkeypatch.setenv('HF_HUB_DISABLE_XET', '1')
    path = write(tmp_path / 'episodes')
    command = [sys.executable, '-m', 'bags', 'push', str(path), URL, '--json', '-m', 'Title']
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {'path': str(path), 'url': f'{URL}@{hub.branches["main"]}'}
    assert (done.stderr, hub.titles) == ('', ['Title'])
    monkeypatch.setenv('HF_TOKEN', 'hf_old')
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count('\n')) == (1, 1)
    assert 'the token is not valid, or has expired' in done.stderr


def test_a_hub_that_accepts_no_connection(hub, push, tmp_path, monkeypatch):
    import huggingface_hub.constants

    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        url = f'http://127.0.0.1:{taken.getsockname()[1]}'
        monkeypatch.setenv('HF_ENDPOINT', url)
        monkeypatch.setattr(huggingface_hub.constants, 'ENDPOINT', url)
        with pytest.raises(OSError, match=r'(?i)connect.*\(after (one try|[2-5] tries)\)'):
            push(write(tmp_path / 'episodes'))


@pytest.mark.parametrize('address', ['', 'https://hub.example'])
def test_the_endpoint_is_an_option(hub, tmp_path, monkeypatch, address):
    import huggingface_hub.constants

    monkeypatch.delenv('HF_ENDPOINT')
    monkeypatch.setattr(huggingface_hub.constants, 'ENDPOINT', 'https://huggingface.co')
    hub.address = address  # Behind a proxy, a hub has another address for its clients.
    path, options = write(tmp_path / 'episodes'), {**TOKEN, 'endpoint': hub.url}
    for message in ('First', 'Second'):
        url = bags.push(path, URL, message=message, storage_options=options, progress=False)
        assert url == f'{URL}@{hub.branches["main"]}'
        with bags.open(url, storage_options=options) as dataset:
            assert list(dataset) == rows(path)
        write(path, 50, 10, resume=True)
    assert hub.titles == ['First', 'Second']
