"""Shards that are appended to a dataset on a Hugging Face hub."""

import collections
import os
import re
import shutil
import signal
import subprocess
import sys
import threading

import pytest

import bags
from tests.interop.hub.conftest import TOKEN, URL

pytest.importorskip('huggingface_hub')
# huggingface_hub does, of the client that it uses.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

SPEC = {'id': 'int(8)', 'blob': 'bytes'}


def write(path, first=0, count=10, spec=SPEC, **options):
    with bags.ShardedDatasetWriter(path, spec, shard_length=20, **options) as writer:
        for index in range(first, first + count):
            writer.append({'id': index, 'blob': b'%d' % index * 200})
    return path


def ids(url=URL):
    with bags.open(url, storage_options=TOKEN) as reader:
        return reader.column('id').tolist()


def test_shards_follow_those_of_the_repository(hub, push, tmp_path):
    push(write(tmp_path / 'a', 0, 50))
    first = {name: file.read_bytes() for name, file in hub.files.items()}
    sent, before = hub.other.uploads, len(hub.requests)
    url = push(write(tmp_path / 'b', 50, 30), append=True)
    assert url == f'{URL}@{hub.branches["main"]}'
    requests = hub.requests[before:]
    assert ids() == [*range(80)]
    assert hub.titles == ['Push a with bags', 'Append b with bags']
    assert hub.other.uploads - sent <= 6  # Two shards of two fields and refs.
    read = {
        path.partition('/resolve/')[2].partition('/')[2] for _, path, *_ in requests if '/resolve/' in path
    }
    assert read == {'shards.json', '000000/metadata.json', 'README.md'}
    stayed = {name: file.read_bytes() for name, file in hub.files.items() if name in first}
    assert {name for name in first if stayed[name] != first[name]} == {'shards.json', 'README.md'}
    assert '80 datapoints in 5 shards' in hub.files['README.md'].read_text()
    assert hub.files['README.md'].read_text().count('\n') == first['README.md'].decode().count('\n')


def test_it_reads_as_the_whole_written_at_once(hub, push, tmp_path):
    push(write(tmp_path / 'a', 0, 40))
    push(write(tmp_path / 'b', 40, 30), append=True)
    for name, file in hub.files.items():
        (tmp_path / 'c' / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, tmp_path / 'c' / name)
    assert not bags.verify(tmp_path / 'c', decode=True)
    written = (tmp_path / 'c' / 'shards.json').read_bytes()
    bags.consolidate(tmp_path / 'c')
    assert (tmp_path / 'c' / 'shards.json').read_bytes() == written


def test_an_empty_repository_and_a_dataset_of_one_folder(hub, push, tmp_path):
    for number in range(3):
        with bags.DatasetWriter(tmp_path / f'{number}', SPEC) as writer:
            writer.append({'id': number, 'blob': b'x'})
        bags.create_index(tmp_path / f'{number}', 'id')
        push(tmp_path / f'{number}', f'{URL}/some', append=True)
    assert ids(f'{URL}/some') == [0, 1, 2]
    assert not [name for name in hub.files if name.endswith('.index')]


@pytest.mark.parametrize('kind', ['again', 'copied', 'another was appended', 'resharded'])
def test_shards_are_not_appended_twice(hub, push, tmp_path, kind):
    path = write(tmp_path / 'a', 0, 30)
    first = push(path, append=True)
    if kind == 'copied':
        path = shutil.copytree(path, tmp_path / 'copy')
    if kind == 'another was appended':
        first = push(write(tmp_path / 'b', 30, 10), append=True)
    if kind == 'resharded':
        with bags.ShardedDatasetWriter(path, SPEC, shard_length=20, resume=True) as writer:
            writer.end_shard()
            for index in range(30, 40):
                writer.append({'id': index, 'blob': b''})
        assert push(path, append=True) != first
        assert ids() == [*range(40)]
        return
    assert push(path, append=True) == first
    assert ids() == [*range(40 if kind.startswith('another') else 30)]


def test_shards_of_versions_without_ids_are_compared_by_their_bags(hub, push, tmp_path):
    path = write(tmp_path / 'a', 0, 30)
    for file in path.glob('0*/source.json*'):
        file.unlink()
    first = push(path, append=True)
    assert push(path, append=True) == first
    other = write(tmp_path / 'b', 60, 30)  # Records of the same sizes.
    for file in other.glob('0*/source.json*'):
        file.unlink()
    push(other, append=True)
    assert ids() == [*range(30), *range(60, 90)]


def test_what_is_computed_from_the_datapoints_is_removed(hub, push, tmp_path):
    path = write(tmp_path / 'a')
    bags.create_index(path, 'id')
    bags.statistics(path, 'id', keep=True)
    push(path)
    assert {'000000/id.index', '000000/statistics.json'} <= hub.files.keys()
    with pytest.warns(RuntimeWarning, match=r'removed 000000/id\.index, 000000/statistics\.json, which'):
        push(write(tmp_path / 'b', 10), append=True)
    assert not {'000000/id.index', '000000/statistics.json'} & hub.files.keys()


FACTS = {'fields': {'id': {'unit': 's'}}}


@pytest.mark.parametrize(
    ('spec', 'metadata', 'error', 'reason'),
    [
        (
            {'id': 'int(4)', 'blob': 'bytes'}, FACTS, bags.SpecError,
            r"field 'id': expected 'int\(8\)', as in hf://.*shards\.json, got 'int\(4\)'",
        ),
        (
            {**SPEC, 'new': 'utf8?'}, FACTS, bags.SpecError,
            r"field 'new': expected no such field, as in hf:.*got 'utf8\?'",
        ),
        (
            SPEC, {'fields': {'id': {'rate': 30}}}, ValueError,
            r"field 'id': expected {\"unit\": \"s\"}, as in hf://.*000000/metadata\.json, got {\"rate\": 30}",
        ),
        (SPEC, {**FACTS, 'robot': 'arm'}, ValueError, "metadata: 'robot': expected null, as in"),
    ],
)  # fmt: skip
def test_what_does_not_agree(hub, push, tmp_path, spec, metadata, error, reason):
    push(write(tmp_path / 'a', metadata=FACTS))
    sent = hub.other.uploads
    with bags.ShardedDatasetWriter(tmp_path / 'b', spec, metadata=metadata) as writer:
        writer.append({'id': 1, 'blob': b'', **dict.fromkeys(spec.keys() - SPEC.keys())})
    with pytest.raises(error, match=reason):
        push(tmp_path / 'b', append=True)
    assert (hub.other.uploads, len(hub.titles)) == (sent, 1)


def test_targets_without_a_list_of_shards(hub, push, tmp_path):
    with bags.DatasetWriter(tmp_path / 'one', SPEC) as writer:
        writer.append({'id': 1, 'blob': b'x'})
    push(tmp_path / 'one', f'{URL}/one')
    path = write(tmp_path / 'a')
    with pytest.raises(ValueError, match=r'/one: .* got a dataset of one folder: bags\.copy makes shards'):
        push(path, f'{URL}/one', append=True)
    push(path)
    (hub.commits[hub.branches['main']] / 'shards.json').unlink()
    with pytest.raises(ValueError, match=r'shards\.json: expected a list of the shards: bags\.push'):
        push(path, append=True)


def test_requests_of_a_push_stay_the_same(hub, push, tmp_path):
    counts = []
    for number in range(6):
        path = write(tmp_path / f'{number}', 10 * number)
        before = collections.Counter(_methods(hub))
        push(path, append=True)
        counts.append(_methods(hub) - before)
    assert ids() == [*range(60)]
    assert counts[-1] == counts[1]
    assert counts[1].total() < 20


def _methods(hub):
    """Counts the requests by what they ask for, except for pages of the list of files."""
    requests = [*hub.requests, *hub.other.requests]
    asked = [
        (method, re.sub(r'[0-9a-f]{40,64}|\d+', 'N', path.partition('?')[0])) for method, path, *_ in requests
    ]
    return collections.Counter(each for each in asked if '/tree/' not in each[1])


def append_at_once(push, paths):
    barrier, failed = threading.Barrier(len(paths)), []

    def run(path):
        barrier.wait()
        try:
            push(path, append=True)
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=run, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.parametrize('times', [3, pytest.param(50, marks=pytest.mark.campaign)])
def test_two_pushes_at_once(hub, push, tmp_path, times):
    for number in range(times):
        pair = [write(tmp_path / f'{number}{name}', 20 * number + 10 * name) for name in (0, 1)]
        append_at_once(push, pair)
    assert sorted(ids()) == [*range(20 * times)]


def test_the_same_push_at_once(hub, push, tmp_path):
    path = write(tmp_path / 'a')
    append_at_once(push, [path, path])
    assert ids() == [*range(10)]


def test_the_response_of_an_append_that_is_lost(hub, push, tmp_path):
    push(write(tmp_path / 'a'), append=True)
    hub.lost = 1
    push(write(tmp_path / 'b', 10), append=True)
    assert ids() == [*range(20)]
    assert len(hub.titles) == 2


APPENDS = """
import sys
import bags
bags.push(sys.argv[1], 'hf://datasets/u/d', append=True, progress=False)
"""


@pytest.mark.slow
def test_an_append_that_is_killed_at_each_request(hub, push, tmp_path):
    """Each datapoint is there once after the push was repeated."""
    push(write(tmp_path / 'a'))
    environment = {**os.environ, 'HF_TOKEN': 'hf_secret', 'HF_HUB_DISABLE_XET': '1'}
    child, count, kill_at = [], 0, 0
    lock = threading.Lock()

    def counted(respond):
        def answer(handler):
            nonlocal count
            with lock:
                count += 1
                is_last = count == kill_at
            done = None if is_last and kill_at % 2 else respond(handler)  # Before the answer, or after it.
            if is_last:
                child[-1].send_signal(signal.SIGKILL)
            return done

        return answer

    hub.respond, hub.other.serve = counted(hub.respond), counted(hub.other.serve)
    path, first, killed = write(tmp_path / 'b', 10), hub.branches['main'], 0
    while True:
        count, kill_at = 0, killed + 1
        with subprocess.Popen([sys.executable, '-c', APPENDS, str(path)], env=environment) as process:
            child.append(process)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        killed, kill_at = killed + 1, 0
        push(path, append=True)
        assert ids() == [*range(20)]
        hub.branches['main'] = first
    assert killed > 10
