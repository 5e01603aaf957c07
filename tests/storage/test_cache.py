"""The cache of a remote store: what it keeps, which requests it makes, and what happens after crashes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bags
from bags.bag.options import ReaderOptions
from bags.errors import CorruptError
from bags.storage import Hints
from bags.storage.cache.download import CACHE_CHUNK_SIZE, NotACopyError, PartialCopy
from bags.storage.cache.store import CachedStore
from bags.storage.locks import PathLock
from bags.storage.mmap_file import MappedFile
from tests.storage.far import Far, FarFile, cached
from tests.storage.test_files import FileTests

ROOT = Path(__file__).parents[2]


@pytest.fixture
def far():
    return Far()


def put(tmp_path, name, size, seed=0):
    path = tmp_path / name
    path.write_bytes(random.Random(seed).randbytes(size))
    return os.fspath(path)


def held(tmp_path):
    """Returns the size in bytes of all whole copies."""
    return sum(path.stat().st_size for path in copies(tmp_path / 'cache'))


def copies(folder):
    """Returns the files of a cache, without its mark."""
    return [path for path in folder.iterdir() if path.name != 'CACHEDIR.TAG']


class TestWhole(FileTests):
    @staticmethod
    def open(path):
        return CachedStore(Far(), f'{path}.cache', None).open(path, Hints())


# Copies.


def test_a_whole_copy_is_a_mapped_file_and_asks_for_nothing_again(far, tmp_path):
    path = put(tmp_path, 'a', 3 * CACHE_CHUNK_SIZE + 5)
    first = cached(far, tmp_path).open(path, Hints())
    assert isinstance(first, MappedFile)
    assert first.path == path
    assert len(far.asked) == 4  # Chunks.
    assert sum(stop - start for _, start, stop in far.asked) == first.size
    del far.asked[:], far.opened[:]
    second = cached(far, tmp_path).open(path, Hints())
    assert second.read(0, second.size) == Path(path).read_bytes()
    assert not far.asked
    assert not far.opened


def test_chunks_come_side_by_side(tmp_path):
    path = put(tmp_path, 'a', 3 * CACHE_CHUNK_SIZE)
    far = Far()
    barrier = threading.Barrier(3, timeout=30)
    read = FarFile.read

    def together(file, start, stop):
        barrier.wait()
        return read(file, start, stop)

    FarFile.read = together
    try:
        cached(far, tmp_path).open(path, Hints())
    finally:
        FarFile.read = read
    assert len(far.asked) == 3


def test_a_changed_file_is_another_one(far, tmp_path):
    path = put(tmp_path, 'a', 1000, seed=1)
    old = cached(far, tmp_path).open(path, Hints())
    assert old.read(0, 1000) == random.Random(1).randbytes(1000)
    os.utime(put(tmp_path, 'a', 1000, seed=2), (1, 1))
    assert old.read(0, 1000) == random.Random(1).randbytes(1000)
    new = cached(far, tmp_path).open(path, Hints())
    assert new.read(0, 1000) == random.Random(2).randbytes(1000)


def test_a_file_that_changes_after_it_was_listed_is_refused(far, tmp_path):
    path = put(tmp_path, 'a', 1000)
    store = cached(far, tmp_path)
    store.stat(path)
    put(tmp_path, 'a', 999)
    with pytest.raises(CorruptError, match='was replaced'):
        store.open(path, Hints()).read(0, 10)


@pytest.mark.parametrize('content', [b'', b'other', bytes(5000)])
def test_what_is_no_copy_is_made_anew(far, tmp_path, content):
    path = put(tmp_path, 'a', 3000)
    cached(far, tmp_path).open(path, Hints()).read(0, 3000)
    (copy,) = copies(tmp_path / 'cache')
    copy.write_bytes(content)
    assert cached(far, tmp_path).open(path, Hints()).read(0, 3000) == Path(path).read_bytes()


def test_a_partial_copy_of_another_form_is_refused(tmp_path):
    (tmp_path / 'x').write_bytes(b'abc')
    with pytest.raises(NotACopyError):
        PartialCopy(os.fspath(tmp_path / 'x'), 100)


# Eviction.


def test_what_was_used_longest_ago_goes(far, tmp_path):
    paths = [put(tmp_path, f'f{number}', 1000, seed=number) for number in range(6)]
    store = cached(far, tmp_path, limit=3000)
    for path in paths[:3]:
        store.open(path, Hints())
        time.sleep(0.01)
    store.open(paths[0], Hints())  # Used again.
    store.open(paths[3], Hints())
    assert held(tmp_path) <= 3000
    del far.opened[:]
    for path in (paths[0], paths[2], paths[3]):
        store.open(path, Hints())
    assert not far.opened
    store.open(paths[1], Hints())
    assert far.opened == [paths[1]]


def test_files_in_use_stay_and_others_are_read_where_they_are(far, tmp_path):
    paths = [put(tmp_path, f'f{number}', 1000, seed=number) for number in range(4)]
    store = cached(far, tmp_path, limit=2000)
    files = [store.open(path, Hints()) for path in paths]
    assert [isinstance(file, MappedFile) for file in files] == [True, True, False, False]
    for path, file in zip(paths, files, strict=True):
        assert file.read(0, 1000) == Path(path).read_bytes()
    assert held(tmp_path) == 2000
    del files, file
    assert isinstance(store.open(paths[3], Hints()), MappedFile)
    assert held(tmp_path) == 2000


def test_a_file_larger_than_the_cache_is_read_where_it_is(far, tmp_path):
    path = put(tmp_path, 'a', 5000)
    file = cached(far, tmp_path, limit=4000).open(path, Hints())
    assert file.read(10, 20) == Path(path).read_bytes()[10:20]
    assert not held(tmp_path)


def test_stores_that_share_a_cache_count_what_the_other_adds(tmp_path, monkeypatch):
    monkeypatch.setattr('bags.storage.cache.eviction.MIN_LISTING_INTERVAL', 1e9)
    paths = [put(tmp_path, f'f{number}', 1000, seed=number) for number in range(9)]
    stores = [cached(Far(), tmp_path, limit=limit) for limit in (3000, 3000, 5000, None)]
    for number, path in enumerate(paths * 2):
        stores[number % 3].open(path, Hints())
        assert held(tmp_path) <= (5000 if number % 3 == 2 else 3000)
    stores[3].open(paths[0], Hints())
    stores[3].open(paths[1], Hints())
    for path in paths[2:6]:
        stores[0].open(path, Hints())
        assert held(tmp_path) <= 3000


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40),
    st.integers(500, 6000),
    st.booleans(),
)
def test_any_order_of_use_stays_within_the_limit(tmp_path_factory, uses, limit, is_shared):
    folder = tmp_path_factory.mktemp('room')
    sizes = [100 + 150 * number for number in range(10)]
    paths = [put(folder, f'f{number}', size, seed=number) for number, size in enumerate(sizes)]
    store = cached(Far(), folder, limit=limit)
    others = cached(Far(), folder, limit=limit) if is_shared else store
    kept = []
    for number, keep in uses:
        file = (store if number % 2 else others).open(paths[number], Hints())
        assert file.read(0, sizes[number]) == random.Random(number).randbytes(sizes[number])
        if keep and len(kept) < 3:
            kept.append((number, file))
        assert held(folder) <= limit
    for number, file in kept:
        assert file.read(0, sizes[number]) == random.Random(number).randbytes(sizes[number])


def test_a_full_disk_is_told_and_read_past(far, tmp_path, monkeypatch):
    path = put(tmp_path, 'a', 200_000)
    store = cached(far, tmp_path)

    def full(*args):
        raise OSError(28, 'No space left on device')

    with monkeypatch.context() as patch:
        patch.setattr(os, 'pwrite', full)
        with pytest.warns(RuntimeWarning, match='No space left'):
            data = store.open(path, Hints()).read(5, 150_000)
        assert data == Path(path).read_bytes()[5:150_000]
        with pytest.raises(OSError, match='No space left'):
            store.fetch(path, lambda size: None)
    assert store.fetch(path, lambda size: None)


def test_a_network_that_fails_is_an_error_and_what_came_is_kept(far, tmp_path):
    path = put(tmp_path, 'a', 4 * CACHE_CHUNK_SIZE)
    store = cached(far, tmp_path)
    read = FarFile.read

    def once(file, start, stop):
        if start >= 2 * CACHE_CHUNK_SIZE:
            raise OSError(5, 'the network is gone', path)
        return read(file, start, stop)

    FarFile.read = once
    try:
        with pytest.raises(OSError, match='the network is gone'):
            store.open(path, Hints())
    finally:
        FarFile.read = read
    del far.asked[:]
    file = store.open(path, Hints())
    assert file.read(0, file.size) == Path(path).read_bytes()
    assert sorted(start // CACHE_CHUNK_SIZE for _, start, _ in far.asked) == [2, 3]


# Folders.


def listing(folder):
    """Returns the files in a folder, with mode, time of change and content."""
    return {
        os.fspath(path.relative_to(folder)): (
            path.lstat().st_mode, path.lstat().st_mtime, path.read_bytes() if path.is_file() else None
        )
        for path in folder.rglob('*')
    }  # fmt: skip


@pytest.mark.parametrize(
    'name', ['thesis.tex', '.hidden', 'folder/x', 'a' * 39, 'A' * 40, 'a' * 40 + '.new', 'a' * 41,
             'CACHEDIR.TAG']
)  # fmt: skip
@pytest.mark.parametrize('limit', [None, 1, 7000])
def test_a_folder_with_other_files_is_not_used(far, tmp_path, name, limit):
    path, folder = put(tmp_path, 'a', 3000), tmp_path / 'cache'
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_bytes(b'Signature: 8a477f597d28d172789f06886806bc55\n# This is a cache of others.')
    (folder / ('0' * 40)).write_bytes(bytes(3000))
    for found in folder.rglob('*'):
        os.utime(found, (1e9, 1e9))
    before = listing(folder)
    store = cached(far, tmp_path, limit)
    with pytest.warns(RuntimeWarning, match=r'expected an empty folder, or a cache of bags, got one with'):
        assert store.open(path, Hints()).read(0, 3000) == Path(path).read_bytes()
    with pytest.raises(ValueError, match=r'cache: expected an empty folder.*such as .*cache/cache'):
        store.fetch(path, lambda _: None)
    assert listing(folder) == before


@pytest.mark.parametrize(
    'cache', ['s3://bucket/cache', 'gs:/bucket/cache', 'hf://datasets/a/b', 'https://x.org/c']
)
def test_a_url_as_cache_is_an_error(cache, tmp_path, monkeypatch):
    """It would become a local folder of that name."""
    monkeypatch.chdir(tmp_path)
    match = f'cache: expected a local folder for copies of files of object stores, .*{cache}'
    for value in (cache, Path(cache)):
        with pytest.raises(ValueError, match=match if value == cache else 'cache: expected a local folder'):
            bags.open('memory://files/none', cache=value)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize('form', ['{}', 'file://{}'])
def test_the_cache_is_a_local_folder(form, tmp_path):
    url = f'memory://{tmp_path.name}/x'
    with bags.DatasetWriter(url, {'id': 'int'}) as writer:
        writer.append({'id': 1})
    with bags.open(url, cache=form.format(tmp_path / 'a:b')) as reader:
        assert reader.column('id').tolist() == [1]
    assert copies(tmp_path / 'a:b')


def test_a_file_in_place_of_the_folder(far, tmp_path):
    (tmp_path / 'cache').write_bytes(b'thesis')
    with pytest.raises(NotADirectoryError, match='cache: expected a folder, got a file'):
        cached(far, tmp_path, None)
    assert (tmp_path / 'cache').read_bytes() == b'thesis'


def test_other_files_in_a_cache_stay_and_are_not_counted(far, tmp_path):
    paths = [put(tmp_path, f'f{number}', 1000, seed=number) for number in range(6)]
    cached(far, tmp_path, limit=3000).open(paths[0], Hints())
    folder = tmp_path / 'cache'
    names = ['thesis.tex', 'a' * 39, 'b' * 40 + '.txt', 'folder/' + 'c' * 40, 'd' * 40 + '/x']
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(bytes(9000))
        os.utime(folder / name, (1e9, 1e9))
    (tmp_path / 'target').write_bytes(bytes(9000))
    os.symlink(tmp_path / 'target', folder / ('e' * 40))
    store = cached(far, tmp_path, limit=3000)
    for path in paths * 2:
        assert isinstance(store.open(path, Hints()), MappedFile)
    assert [len((folder / name).read_bytes()) for name in names] == [9000] * 5
    assert (tmp_path / 'target').stat().st_size == (folder / ('e' * 40)).stat().st_size == 9000
    assert sum(path.stat().st_size == 1000 for path in copies(folder)) == 3


@pytest.mark.parametrize('extra', ['', '.total', 'lost+found', 'CACHEDIR.TAG', 'f' * 40 + '.part'])
def test_a_cache_of_an_earlier_version_is_used(far, tmp_path, extra):
    path, folder = put(tmp_path, 'a', 3000), tmp_path / 'cache'
    cached(far, tmp_path).open(path, Hints())
    (folder / 'CACHEDIR.TAG').unlink()
    if extra:
        (folder / extra).touch()
    del far.opened[:]
    assert cached(far, tmp_path, limit=4000).open(path, Hints()).read(0, 3000) == Path(path).read_bytes()
    assert not far.opened
    assert (folder / 'CACHEDIR.TAG').read_bytes().startswith(b'Signature: 8a477f597d28d172789f06886806bc55\n')
    (folder / 'other').touch()
    assert isinstance(cached(far, tmp_path).open(path, Hints()), MappedFile)


@pytest.mark.skipif(os.name == 'nt', reason='needs modes')
def test_the_folder_is_made_for_its_user_only(far, tmp_path):
    cached(far, tmp_path)
    assert (tmp_path / 'cache').stat().st_mode & 0o777 == 0o700


def plant(kind, path, target):
    """Puts a link, a pipe or a folder at a path, as another user could in a shared folder."""
    path.unlink(missing_ok=True)
    if kind == 'symbolic link':
        os.symlink(target, path)
    elif kind == 'link to nothing':
        os.symlink(f'{target}.missing', path)
    elif kind == 'hard link':
        os.link(target, path)
    elif kind == 'pipe':
        os.mkfifo(path)
    else:
        path.mkdir()


@pytest.mark.skipif(not hasattr(os, 'O_NOFOLLOW'), reason='needs links that are not followed, and pipes')
@pytest.mark.parametrize('kind', ['symbolic link', 'link to nothing', 'hard link', 'pipe', 'folder'])
@pytest.mark.parametrize('suffix', ['', '.part', '.total', 'CACHEDIR.TAG'])
@pytest.mark.parametrize('content', ['', 'other', 'same size'])
@pytest.mark.filterwarnings('ignore:cache .* reading without it:RuntimeWarning')
def test_links_in_the_folder_are_not_written_through(far, tmp_path, kind, suffix, content):
    path, other = put(tmp_path, 'a', 3000), put(tmp_path, 'b', 3000, seed=1)
    cached(far, tmp_path, limit=7000).open(path, Hints())
    (name,) = [found.name for found in copies(tmp_path / 'cache') if found.name != '.total']
    planted = tmp_path / 'cache' / (suffix if suffix in ('.total', 'CACHEDIR.TAG') else name + suffix)
    target = tmp_path / 'target'
    target.write_bytes({'': b'', 'other': b'my keys', 'same size': bytes(3000)}[content])
    os.utime(target, (1e9, 1e9))
    (tmp_path / 'cache' / name).unlink()
    plant(kind, planted, target)
    before = target.read_bytes(), target.stat().st_mtime, sorted(os.listdir(tmp_path))
    for store in (cached(far, tmp_path, limit=7000), cached(far, tmp_path, limit=4000)):
        for wanted in (path, other, path):
            file = store.open(wanted, Hints())
            if (kind, suffix, content) != ('hard link', '', 'same size'):  # A copy of another's making.
                assert file.read(0, 3000) == Path(wanted).read_bytes()
            del file
    assert (target.read_bytes(), target.stat().st_mtime, sorted(os.listdir(tmp_path))) == before


@pytest.mark.skipif(not hasattr(os, 'geteuid') or os.geteuid() != 0, reason='needs to be root')
@pytest.mark.parametrize('part', [False, True])
def test_copies_of_another_user_that_cannot_be_read_are_read_past(part):
    with tempfile.TemporaryDirectory() as folder:  # Others cannot enter the folders of pytest.
        read_as_another_user(Path(folder), part)


def read_as_another_user(tmp_path, part):
    path = put(tmp_path, 'f0', 3000)
    cached(Far(), tmp_path).open(path, Hints())
    (copy,) = copies(tmp_path / 'cache')
    if part:
        copy = copy.rename(f'{copy}.part')
    copy.chmod(0o600)
    (tmp_path / 'cache').chmod(0o777)
    tmp_path.chmod(0o755)
    code = f"""
import os, sys, warnings
os.chdir({str(ROOT)!r}); sys.path.insert(0, {str(ROOT)!r})
from tests.storage.far import Far, Hints, cached
from pathlib import Path
os.setuid(65534)
warnings.simplefilter('always')
store = cached(Far(), Path({str(tmp_path)!r}))
assert bytes(store.open({path!r}, Hints()).read(0, 3000)) == Path({path!r}).read_bytes()
try:
    print(store.fetch({path!r}, lambda _: None))
except PermissionError as exc:
    print(exc)
"""
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 'Permission denied' in done.stderr
    assert 'Permission denied' in done.stdout


def test_a_damaged_copy_is_found_by_checksums(tmp_path):
    url = f'memory://cache/{tmp_path.name}'
    with bags.DatasetWriter(url, {'x': 'bytes'}, checksum=True) as writer:
        for number in range(10):
            writer.append({'x': bytes([number]) * 100})
    with bags.open(url, cache=tmp_path / 'cache') as reader:
        bags.prefetch(reader, progress=False)
    for copy in copies(tmp_path / 'cache'):
        if copy.stat().st_size == 10 * 108:
            data = copy.read_bytes()
            copy.write_bytes(data[:250] + b'?' + data[251:])
    with bags.open(url, cache=tmp_path / 'cache', checksum=True) as reader:
        assert reader[3]['x'] == bytes([3]) * 100
        with pytest.raises(bags.CorruptError, match=r'x\.bag, record 2: differs from its checksum'):
            reader[2]
    with bags.open(url, cache=tmp_path / 'cache') as reader:  # As the docs say.
        assert reader[2]['x'] != bytes([2]) * 100


# Several at once.


def test_threads_fetch_a_whole_file_once(tmp_path):
    far = Far(delay=0.01)
    path = put(tmp_path, 'a', CACHE_CHUNK_SIZE + 7)
    content, found = Path(path).read_bytes(), []

    def work():
        file = cached(far, tmp_path).open(path, Hints())
        found.append(bytes(file.read(0, file.size)) == content)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 6
    assert len(far.asked) == 2


CHILD = """
import os, sys
sys.path.insert(0, os.getcwd())
from tests.storage.far import Far, Hints, cached
from pathlib import Path
folder = Path(sys.argv[1])
far = Far(*map(float, sys.argv[2:]))
print('begun', flush=True)
for path in sorted(folder.glob('f*')):
    file = cached(far, folder).open(str(path), Hints())
    step = max(1, file.size // 40)
    for start in range(0, file.size, step):
        file.read(start, min(start + step, file.size))
print('done', flush=True)
"""


def child(folder, delay, end=float('inf')):
    command = [sys.executable, '-c', CHILD, os.fspath(folder), str(delay), str(end)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


def check_after_kill(tmp_path, seed):
    """Two processes share a cache and one is killed: the other, and a later one, read correct bytes."""
    chance = random.Random(seed)
    paths = [
        put(tmp_path, f'f{number}', chance.randrange(1, 2 * CACHE_CHUNK_SIZE), seed=number)
        for number in range(2)
    ]
    with child(tmp_path, 0.02) as victim, child(tmp_path, 0.01) as other:
        victim.stdout.readline()
        time.sleep(chance.random() * 0.4)
        victim.send_signal(signal.SIGKILL)
        assert other.stdout.read().endswith(b'done\n')
        assert other.wait() == 0
    for path in paths:
        file = cached(Far(), tmp_path).open(path, Hints())
        assert file.read(0, file.size) == Path(path).read_bytes()


def test_one_of_two_processes_is_killed(tmp_path):
    check_after_kill(tmp_path, seed=0)


@pytest.mark.campaign
@pytest.mark.parametrize('seed', range(1, 25))
def test_one_of_two_processes_is_killed_many_times(tmp_path, seed):
    check_after_kill(tmp_path, seed)


READER = """
import os, sys
sys.path.insert(0, os.getcwd())
from bags.errors import CorruptError
from tests.storage.far import Far, Hints, cached
from pathlib import Path
folder, size = Path(sys.argv[1]), int(sys.argv[2])
while True:
    try:
        file = cached(Far(0.001), folder, 4 * size).open(str(folder / 'object'), Hints())
        data = bytes(file.read(0, size))
        assert len(data) == size and len(set(data)) == 1, (len(data), set(data))
    except CorruptError as exc:
        assert 'was replaced' in str(exc), exc
    print('read', flush=True)
"""


def replace_while_readers_are_killed(tmp_path, seed, kills):
    """Processes share a cache and are killed while the object is replaced by others of the same size."""
    chance, size = random.Random(seed), 2 * CACHE_CHUNK_SIZE + 5
    path, command = tmp_path / 'object', [sys.executable, '-c', READER, os.fspath(tmp_path)]
    readers, outputs = [], []
    for version in range(kills):
        (tmp_path / 'new').write_bytes(bytes([version % 256]) * size)
        os.replace(tmp_path / 'new', path)
        while len(readers) < 3:
            output = (tmp_path / f'output{len(outputs)}').open('w+b')
            outputs.append(output)
            readers.append(subprocess.Popen([*command, str(size)], cwd=ROOT, stdout=output, stderr=output))
        time.sleep(chance.random())
        victim = readers.pop(chance.randrange(len(readers)))
        victim.kill()
        victim.wait()
    deadline = time.monotonic() + 60
    while not any(os.path.getsize(output.name) for output in outputs) and time.monotonic() < deadline:
        time.sleep(0.01)  # On a busy machine, wait until one has begun to read.
    for reader in readers:
        reader.kill()
        reader.wait()
    found = b''
    for output in outputs:
        output.seek(0)
        found += output.read()
        output.close()
    assert b'Error' not in found, found.decode()
    assert b'read' in found


@pytest.mark.slow
def test_no_reader_mixes_versions(tmp_path):
    replace_while_readers_are_killed(tmp_path, 0, 5)


@pytest.mark.campaign
@pytest.mark.parametrize('seed', range(1, 5))
def test_no_reader_mixes_versions_many_times(tmp_path, seed):
    replace_while_readers_are_killed(tmp_path, seed, 60)


SHARER = """
import os, random, sys
sys.path.insert(0, os.getcwd())
from bags.storage.cache import eviction
from tests.storage.far import Far, Hints, cached
from pathlib import Path
eviction.MIN_LISTING_INTERVAL = 1e9
folder, seed = Path(sys.argv[1]), int(sys.argv[2])
store, chance = cached(Far(), folder, 1500), random.Random(seed)
paths = sorted(map(str, folder.glob('f*')))
store.open(paths[0], Hints())
print('begun', flush=True)
sys.stdin.read()
for _ in range(100):
    file = store.open(chance.choice(paths), Hints())
    assert bytes(file.read(0, file.size)) == Path(file.path).read_bytes()
"""


def test_processes_that_share_a_cache_stay_within_the_limit(tmp_path):
    for number in range(10):
        put(tmp_path, f'f{number}', 100 + 150 * number, seed=number)
    (tmp_path / 'cache').mkdir()
    command = [sys.executable, '-c', SHARER, os.fspath(tmp_path)]
    pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE}
    sharers = [subprocess.Popen([*command, str(seed)], cwd=ROOT, **pipes) for seed in range(2)]
    for sharer in sharers:
        assert sharer.stdout.readline() == b'begun\n'
    for sharer in sharers:
        sharer.stdin.close()
    largest, are_alive = 0, True
    while are_alive:
        are_alive = any(sharer.poll() is None for sharer in sharers)
        with contextlib.suppress(BlockingIOError):
            lock = PathLock(os.fspath(tmp_path / 'cache'))  # Nothing is added meanwhile.
            sizes = {}
            for entry in copies(tmp_path / 'cache'):
                with contextlib.suppress(FileNotFoundError):
                    stat = entry.stat()
                    # A mark of 8 bytes follows the only chunk until the copy is complete.
                    sizes[stat.st_ino] = stat.st_size // 50 * 50
            lock.release()
            largest = max(largest, sum(sizes.values()))
        time.sleep(0.005)
    for sharer in sharers:
        sharer.stdout.close()
        assert sharer.wait() == 0
    assert 100 <= largest <= 1500


def test_a_killed_download_is_gone_on_with(tmp_path):
    size = 12 * CACHE_CHUNK_SIZE
    path, copies = put(tmp_path, 'f0', size), tmp_path / 'cache'
    with child(tmp_path, delay=0, end=9 * CACHE_CHUNK_SIZE) as victim:
        until, missing = time.monotonic() + 30, []
        while missing != [[9, 10, 11]] and time.monotonic() < until:
            missing = [PartialCopy(os.fspath(part), size).missing() for part in copies.glob('*.part')]
            time.sleep(0.01)
        victim.send_signal(signal.SIGKILL)
    far = Far()
    file = cached(far, tmp_path).open(path, Hints())
    assert file.read(0, file.size) == Path(path).read_bytes()
    assert sorted(start // CACHE_CHUNK_SIZE for _, start, _ in far.asked) == [9, 10, 11]
    assert [entry.name for entry in copies.iterdir() if entry.name.endswith('.part')] == []


# Readers with a cache.


def test_options_take_names(tmp_path):
    options = ReaderOptions(cache=tmp_path, cache_size=np.int64(5))
    assert options.cache == os.fspath(tmp_path)
    with pytest.raises(ValueError, match='at least 1'):
        ReaderOptions(cache_size=0)


def test_nothing_is_written_through_a_cache(far, tmp_path):
    with pytest.raises(ValueError, match='read-only'):
        cached(far, tmp_path).create('x')


# Answers of the store that are kept: cache_check='never'.


def never(far, tmp_path):
    return CachedStore(far, os.fspath(tmp_path / 'cache'), None, 'never')


def test_a_store_that_is_never_asked_again(far, tmp_path):
    (tmp_path / 'data').mkdir()
    path, missing = put(tmp_path, 'data/a', 1000), os.fspath(tmp_path / 'data/b')
    put(tmp_path, 'data/empty', 0)

    def answers(store):
        with pytest.raises(FileNotFoundError):
            store.read(missing)
        with pytest.raises(FileNotFoundError):
            store.stat(missing)
        small, stat, names = store.read(path), store.stat(path), sorted(store.names(f'{tmp_path}/data'))
        whole = store.open(path, Hints()).read(0, 1000), store.open(f'{path[:-1]}empty', Hints()).size
        return small, stat, names, whole, store.exists(missing), store.walk(f'{tmp_path}/data').keys()

    first = answers(never(far, tmp_path))
    shutil.rmtree(tmp_path / 'data')
    del far.opened[:]
    assert answers(never(far, tmp_path)) == first
    assert not far.opened
    with pytest.raises(FileNotFoundError):
        cached(far, tmp_path).stat(path)  # By default, it is asked.
    with pytest.raises(FileNotFoundError, match="cache_check='never'"):
        never(far, tmp_path).stat(path)  # The new answer is kept in place of the earlier one.


def test_a_version_that_is_not_in_the_cache_any_more(far, tmp_path):
    path = put(tmp_path, 'a', 1000)
    never(far, tmp_path).stat(path)
    put(tmp_path, 'a', 999)
    with pytest.raises(CorruptError, match=r"was replaced .* without cache_check='never'"):
        never(far, tmp_path).open(path, Hints())
    assert cached(far, tmp_path).open(path, Hints()).size == 999
    assert never(far, tmp_path).open(path, Hints()).size == 999


@pytest.mark.parametrize('content', [b'', b'+[]', bytes(5), b'\0' * 1000])
def test_a_damaged_answer_is_asked_for_again(far, tmp_path, content):
    path = put(tmp_path, 'a', 1000)
    stat = never(far, tmp_path).stat(path)
    for file in (tmp_path / 'cache').iterdir():
        file.write_bytes(content)
    assert never(far, tmp_path).stat(path) == stat


def test_answers_are_kept_only_if_there_is_space(far, tmp_path):
    path = put(tmp_path, 'a', 1000)
    store = CachedStore(far, os.fspath(tmp_path / 'cache'), 10, 'never')
    assert store.stat(path).size == 1000
    assert not held(tmp_path)
