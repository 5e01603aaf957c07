"""The cache of a remote store: what it keeps, which requests it makes, and what it survives."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bags.bag.options import CacheMode, ReaderOptions
from bags.errors import CorruptError
from bags.storage import Hints
from bags.storage.cache.block_file import BLOCK_SIZE, NotACopyError, SparseFile, blocks_of
from bags.storage.cache.store import CHUNK_SIZE, CachedStore
from bags.storage.mmap_file import MappedFile
from tests.storage.far import Far, FarFile, cached
from tests.storage.test_files import FileTests, arrays

MODES = [CacheMode.FILES, CacheMode.BLOCKS]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def far():
    return Far()


def put(tmp_path, name, size, seed=0):
    path = tmp_path / name
    path.write_bytes(random.Random(seed).randbytes(size))
    return os.fspath(path)


def held(tmp_path):
    """The bytes of the whole copies there are."""
    return sum(entry.stat().st_size for entry in os.scandir(tmp_path / 'cache'))


class TestWhole(FileTests):
    @staticmethod
    def open(path):
        return CachedStore(Far(), f'{path}.cache', None, CacheMode.FILES).open(path, Hints())


class TestBlocks(FileTests):
    @staticmethod
    def open(path):
        return CachedStore(Far(), f'{path}.cache', None, CacheMode.BLOCKS).open(path, Hints())


# What is kept.


def test_a_whole_copy_is_a_mapped_file_and_asks_for_nothing_again(far, tmp_path):
    path = put(tmp_path, 'a', 3 * CHUNK_SIZE + 5)
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
    path = put(tmp_path, 'a', 3 * CHUNK_SIZE)
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


def test_blocks_are_fetched_once_and_only_those_needed(far, tmp_path):
    path = put(tmp_path, 'a', 50 * BLOCK_SIZE + 1)
    data = Path(path).read_bytes()
    file = cached(far, tmp_path, CacheMode.BLOCKS).open(path, Hints())
    assert file.read(BLOCK_SIZE - 3, BLOCK_SIZE + 3) == data[BLOCK_SIZE - 3 : BLOCK_SIZE + 3]
    assert file.read(5, 9) == data[5:9]
    starts, stops = arrays([(0, 5), (7 * BLOCK_SIZE, 9 * BLOCK_SIZE), (50 * BLOCK_SIZE, 50 * BLOCK_SIZE + 1)])
    assert file.read_many(starts, stops) == [data[a:b] for a, b in zip(starts, stops, strict=True)]
    assert [(a // BLOCK_SIZE, -(-b // BLOCK_SIZE)) for _, a, b in far.asked] == [(0, 2), (7, 9), (50, 51)]
    del far.asked[:], far.opened[:]
    other = cached(far, tmp_path, CacheMode.BLOCKS).open(path, Hints())
    assert other.read_many(starts, stops) == [data[a:b] for a, b in zip(starts, stops, strict=True)]
    assert not far.asked
    assert not far.opened


@given(st.lists(st.tuples(st.integers(0, 40 * BLOCK_SIZE), st.integers(0, 3 * BLOCK_SIZE)), max_size=8))
def test_blocks_of_ranges(pairs):
    ranges = [(start, min(start + size, 40 * BLOCK_SIZE)) for start, size in pairs]
    expected = sorted(
        {block for a, b in ranges for block in range(a // BLOCK_SIZE, -(-b // BLOCK_SIZE)) if a < b}
    )
    assert blocks_of(*arrays(ranges), 40).tolist() == expected


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_reads_of_blocks_by_several(tmp_path_factory, data):
    """Readers that come and go, in one folder: each read is right, and nothing is asked for twice."""
    folder = tmp_path_factory.mktemp('model')
    size = data.draw(st.integers(1, 6 * BLOCK_SIZE))
    path = put(folder, 'a', size, seed=size)
    content, far = Path(path).read_bytes(), Far()
    files = [cached(far, folder, CacheMode.BLOCKS).open(path, Hints())]
    for _ in range(data.draw(st.integers(1, 8))):
        if data.draw(st.booleans()):
            files.append(cached(far, folder, CacheMode.BLOCKS).open(path, Hints()))
        file = data.draw(st.sampled_from(files))
        places = st.integers(0, size)
        ranges = [sorted(pair) for pair in data.draw(st.lists(st.tuples(places, places), max_size=4))]
        starts, stops = arrays(ranges)
        assert file.read_many(starts, stops) == [content[a:b] for a, b in ranges]
    blocks = [block for _, a, b in far.asked for block in range(a // BLOCK_SIZE, -(-b // BLOCK_SIZE))]
    assert len(blocks) == len(set(blocks))


def test_a_changed_file_is_another_one(far, tmp_path):
    for mode in MODES:
        path = put(tmp_path, 'a', 1000, seed=1)
        before = cached(far, tmp_path, mode)
        old = before.open(path, Hints())
        assert old.read(0, 1000) == random.Random(1).randbytes(1000)
        os.utime(put(tmp_path, 'a', 1000, seed=2), (1, 1))
        assert old.read(0, 1000) == random.Random(1).randbytes(1000)
        new = cached(far, tmp_path, mode).open(path, Hints())
        assert new.read(0, 1000) == random.Random(2).randbytes(1000)


@pytest.mark.parametrize('mode', MODES)
def test_a_file_that_changes_after_it_was_listed_is_refused(far, tmp_path, mode):
    path = put(tmp_path, 'a', 1000)
    store = cached(far, tmp_path, mode)
    store.stat(path)
    put(tmp_path, 'a', 999)
    with pytest.raises(CorruptError, match='has changed'):
        store.open(path, Hints()).read(0, 10)


def test_a_damaged_block_is_fetched_again(far, tmp_path):
    path = put(tmp_path, 'a', 3 * BLOCK_SIZE)
    cached(far, tmp_path, CacheMode.BLOCKS).open(path, Hints()).read(0, 3 * BLOCK_SIZE)
    (copy,) = (tmp_path / 'cache').iterdir()
    with open(copy, 'r+b') as file:
        file.seek(BLOCK_SIZE + 10)
        file.write(b'xxxx')
    del far.asked[:]
    file = cached(far, tmp_path, CacheMode.BLOCKS).open(path, Hints())
    assert file.read(0, 3 * BLOCK_SIZE) == Path(path).read_bytes()
    assert [(start, stop) for _, start, stop in far.asked] == [(BLOCK_SIZE, 2 * BLOCK_SIZE)]


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('content', [b'', b'other', bytes(5000)])
def test_what_is_no_copy_is_made_anew(far, tmp_path, mode, content):
    path = put(tmp_path, 'a', 3000)
    cached(far, tmp_path, mode).open(path, Hints()).read(0, 3000)
    (copy,) = (tmp_path / 'cache').iterdir()
    copy.write_bytes(content)
    assert cached(far, tmp_path, mode).open(path, Hints()).read(0, 3000) == Path(path).read_bytes()


def test_a_sparse_copy_of_another_form_is_refused(tmp_path):
    (tmp_path / 'x').write_bytes(b'abc')
    with pytest.raises(NotACopyError):
        SparseFile(os.fspath(tmp_path / 'x'), 100, 10)


# Room.


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


def test_blocks_stay_within_the_limit(far, tmp_path):
    limit = 10 * BLOCK_SIZE
    store = cached(far, tmp_path, CacheMode.BLOCKS, limit)
    for number in range(8):
        path = put(tmp_path, f'f{number}', 6 * BLOCK_SIZE, seed=number)
        file = store.open(path, Hints())
        for start in range(0, 6 * BLOCK_SIZE, BLOCK_SIZE):
            assert file.read(start, start + 9) == Path(path).read_bytes()[start : start + 9]
        del file
        taken = sum(entry.stat().st_blocks * 512 for entry in os.scandir(tmp_path / 'cache'))
        assert taken <= limit + 2 * BLOCK_SIZE


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40), st.integers(500, 6000))
def test_any_order_of_use_stays_within_the_limit(tmp_path_factory, uses, limit):
    folder = tmp_path_factory.mktemp('room')
    sizes = [100 + 150 * number for number in range(10)]
    paths = [put(folder, f'f{number}', size, seed=number) for number, size in enumerate(sizes)]
    store, others = cached(Far(), folder, limit=limit), cached(Far(), folder, limit=limit)
    kept = []
    for number, keep in uses:
        file = (store if number % 2 else others).open(paths[number], Hints())
        assert file.read(0, sizes[number]) == random.Random(number).randbytes(sizes[number])
        if keep and len(kept) < 3:
            kept.append((number, file))
        assert held(folder) <= limit
    for number, file in kept:
        assert file.read(0, sizes[number]) == random.Random(number).randbytes(sizes[number])


@pytest.mark.parametrize('mode', MODES)
def test_a_full_disk_is_told_and_read_past(far, tmp_path, mode, monkeypatch):
    path = put(tmp_path, 'a', 3 * BLOCK_SIZE)
    store = cached(far, tmp_path, mode)

    def full(*args):
        raise OSError(28, 'No space left on device')

    with monkeypatch.context() as patch:
        patch.setattr(os, 'pwrite', full)
        with pytest.warns(RuntimeWarning, match='No space left'):
            data = store.open(path, Hints()).read(5, 2 * BLOCK_SIZE)
        assert data == Path(path).read_bytes()[5 : 2 * BLOCK_SIZE]
        with pytest.raises(OSError, match='No space left'):
            store.fetch(path, lambda size: None)
    assert store.fetch(path, lambda size: None)


def test_a_network_that_fails_is_an_error_and_what_came_is_kept(far, tmp_path):
    path = put(tmp_path, 'a', 4 * CHUNK_SIZE)
    store = cached(far, tmp_path)
    read = FarFile.read

    def once(file, start, stop):
        if start >= 2 * CHUNK_SIZE:
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
    assert sorted(start // CHUNK_SIZE for _, start, _ in far.asked) == [2, 3]


# Several at once.


@pytest.mark.parametrize('mode', MODES)
def test_threads_fetch_a_whole_file_once(tmp_path, mode):
    far = Far(delay=0.01)
    path = put(tmp_path, 'a', CHUNK_SIZE + 7)
    content, found = Path(path).read_bytes(), []

    def work():
        file = cached(far, tmp_path, mode).open(path, Hints())
        found.append(bytes(file.read(0, file.size)) == content)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 6
    if mode is CacheMode.FILES:
        assert len(far.asked) == 2


CHILD = """
import os, sys
sys.path.insert(0, os.getcwd())
from tests.storage.far import CacheMode, Far, Hints, cached
from pathlib import Path
folder, mode, delay = Path(sys.argv[1]), CacheMode(sys.argv[2]), float(sys.argv[3])
far = Far(delay)
print('begun', flush=True)
for path in sorted(folder.glob('f*')):
    file = cached(far, folder, mode).open(str(path), Hints())
    step = max(1, file.size // 40)
    for start in range(0, file.size, step):
        file.read(start, min(start + step, file.size))
print('done', flush=True)
"""


def child(folder, mode, delay):
    command = [sys.executable, '-c', CHILD, os.fspath(folder), mode.name, str(delay)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


def check_after_kill(tmp_path, mode, seed):
    """Two processes share a cache; one is killed: the other, and one that comes after, read all rightly."""
    chance = random.Random(seed)
    most = 2 * CHUNK_SIZE if mode is CacheMode.FILES else 40 * BLOCK_SIZE
    paths = [put(tmp_path, f'f{number}', chance.randrange(1, most), seed=number) for number in range(2)]
    with child(tmp_path, mode, 0.02) as victim, child(tmp_path, mode, 0.01) as other:
        victim.stdout.readline()
        time.sleep(chance.random() * 0.4)
        victim.send_signal(signal.SIGKILL)
        assert other.stdout.read().endswith(b'done\n')
        assert other.wait() == 0
    for path in paths:
        file = cached(Far(), tmp_path, mode).open(path, Hints())
        assert file.read(0, file.size) == Path(path).read_bytes()


@pytest.mark.parametrize('mode', MODES)
def test_one_of_two_processes_is_killed(tmp_path, mode):
    check_after_kill(tmp_path, mode, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize('seed', range(1, 25))
def test_one_of_two_processes_is_killed_many_times(tmp_path, mode, seed):
    check_after_kill(tmp_path, mode, seed)


def test_a_killed_download_is_gone_on_with(tmp_path):
    path = put(tmp_path, 'f0', 12 * CHUNK_SIZE)
    with child(tmp_path, CacheMode.FILES, 0.3) as victim:
        victim.stdout.readline()
        copies = tmp_path / 'cache'
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if any(entry.stat().st_blocks * 512 > 9 * CHUNK_SIZE for entry in copies.glob('*.part')):
                break
            time.sleep(0.01)
        victim.send_signal(signal.SIGKILL)
    far = Far()
    file = cached(far, tmp_path).open(path, Hints())
    assert file.read(0, file.size) == Path(path).read_bytes()
    assert 0 < len(far.asked) < 12
    assert [entry.name for entry in copies.iterdir() if entry.name.endswith('.part')] == []


# What readers make of it.


def test_options_take_names(tmp_path):
    options = ReaderOptions(cache=tmp_path, cache_mode='blocks', cache_size=np.int64(5))
    assert options.cache == os.fspath(tmp_path)
    assert options.cache_mode is CacheMode.BLOCKS
    with pytest.raises(ValueError, match='at least 1'):
        ReaderOptions(cache_size=0)
    with pytest.raises(ValueError, match="cache_mode: expected 'files' or 'blocks'"):
        ReaderOptions(cache_mode='all')


def test_nothing_is_written_through_a_cache(far, tmp_path):
    with pytest.raises(ValueError, match='for reading'):
        cached(far, tmp_path).create('x')
