"""One class of tests for every kind of file, and tests of the differences between them.

A further backend is one more subclass of `FileTests`, with its own `place` and `open`.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bags
from bags.storage import Hints, positioned, store_for
from bags.storage.base import AccessPattern, CachePolicy
from bags.storage.descriptors import descriptors as opened
from bags.storage.direct_file import DirectFile
from bags.storage.local import LocalStore
from bags.storage.mmap_file import MappedFile
from bags.storage.pread_file import PreadFile
from tests.bag.samples import descriptors, few, forked

SIZES = [0, 1, 511, 512, 513, 4095, 4096, 4097, 70_000, (1 << 20) + 13]
DATA = random.Random(0).randbytes(SIZES[-1])


def arrays(ranges):
    pairs = np.array(ranges, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


class FileTests:
    """Tests of any `File`. Subclasses say where a file is put and how it is opened."""

    @pytest.fixture(scope='class')
    @classmethod
    def folder(cls, tmp_path_factory):
        return tmp_path_factory.mktemp('files')

    @pytest.fixture(scope='class')
    @classmethod
    def place(cls, folder):
        """Returns a function that stores data and returns its path."""
        numbers = iter(range(10_000))

        def place(data):
            path = folder / f'file-{next(numbers)}'
            path.write_bytes(data)
            return os.fspath(path)

        return place

    @staticmethod
    def open(path):
        raise NotImplementedError

    @pytest.fixture(scope='class')
    @classmethod
    def file(cls, place):
        return cls.open(place(DATA))

    @pytest.mark.parametrize('size', SIZES)
    def test_whole_files_and_their_edges(self, place, size):
        data = DATA[:size]
        file = self.open(place(data))
        assert file.size == size
        assert bytes(file.read(0, size)) == data
        for start, stop in [(0, 0), (size, size), (0, 1), (size - 1, size), (size // 2, size), (1, size)]:
            start, stop = max(0, min(start, stop)), min(stop, size)
            assert bytes(file.read(start, stop)) == data[start:stop]
            assert [bytes(part) for part in file.read_many(*arrays([(start, stop)]))] == [data[start:stop]]

    READS = 1500
    ROUNDS = 60

    @few
    @given(data=st.data())
    def test_any_ranges(self, file, data):
        self.check_ranges(file, data)

    @staticmethod
    def check_ranges(file, data):
        edges = st.one_of(
            st.integers(0, len(DATA)),
            st.integers(0, len(DATA) // 512).map(lambda block: block * 512),
            st.integers(len(DATA) - 600, len(DATA)),
        )
        ranges = st.lists(st.tuples(edges, edges).map(sorted), max_size=8)
        short = st.lists(st.tuples(edges, st.integers(0, 100)).map(lambda pair: [pair[0], sum(pair)]))
        chosen = data.draw(st.one_of(ranges, short))
        chosen = [[min(start, len(DATA)), min(stop, len(DATA))] for start, stop in chosen]
        starts, stops = arrays(chosen)
        file.will_need(starts, stops)
        expected = [DATA[start:stop] for start, stop in chosen]
        assert [bytes(part) for part in file.read_many(starts, stops)] == expected
        assert [bytes(file.read(start, stop)) for start, stop in chosen] == expected

    def test_batches_of_records_of_one_size(self, file):
        for length in (1, 100, 8192, 9000):
            starts = np.random.default_rng(0).integers(0, len(DATA) - length, 300)
            found = file.read_many(starts, starts + length)
            assert [type(part) for part in found[:3]] == [bytes] * 3
            assert found == [DATA[start : start + length] for start in starts.tolist()]

    def test_batches_of_large_ranges(self, file):
        starts = np.random.default_rng(0).integers(0, len(DATA) - 300_000, 40)
        expected = [DATA[start : start + 300_000] for start in starts.tolist()]
        assert file.read_many(starts, starts + 300_000) == expected

    def test_no_ranges(self, file):
        assert file.read_many(*arrays([])) == []
        file.will_need(*arrays([]))

    @pytest.mark.freethreaded
    def test_threads_share_it(self, file):
        wrong = []

        def work(seed):
            rng = np.random.default_rng(seed)
            for _ in range(self.ROUNDS):
                starts = rng.integers(0, len(DATA) - 5000, 20)
                stops = starts + rng.integers(0, 5000, 20)
                expected = [DATA[a:b] for a, b in zip(starts, stops, strict=True)]
                if file.read_many(starts, stops) != expected:
                    wrong.append(seed)
                if bytes(file.read(int(starts[0]), int(stops[0]))) != expected[0]:
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    @pytest.mark.skipif(not hasattr(os, 'fork'), reason='needs fork')
    def test_a_parent_and_its_forked_child_read_at_the_same_time(self, file):
        def work(seed):
            rng = random.Random(seed)
            for _ in range(self.READS):
                start = rng.randrange(len(DATA) - 3000)
                stop = start + rng.randrange(3000)
                if bytes(file.read(start, stop)) != DATA[start:stop]:
                    return False
            return True

        assert work(0)
        with forked(lambda: work(1)):
            assert work(2)


class TestMapped(FileTests):
    @staticmethod
    def open(path):
        file = LocalStore().open(path, Hints())
        assert type(file) is MappedFile
        return file

    @pytest.mark.parametrize('pattern', list(AccessPattern))
    def test_access_patterns(self, place, pattern):
        file = LocalStore().open(place(DATA), Hints(pattern))
        assert bytes(file.read(5, 5000)) == DATA[5:5000]

    @pytest.mark.parametrize('size', [0, 1, 5000])
    def test_a_file_that_becomes_shorter_while_it_is_opened(self, place, monkeypatch, size):
        path = place(DATA[:9000])
        fstat, cut = os.fstat, []

        def late(fd):
            result = fstat(fd)
            if not cut:
                cut.append(os.truncate(path, size))
            return result

        monkeypatch.setattr(os, 'fstat', late)
        file = self.open(path)
        assert file.size == size
        assert bytes(file.read(0, size)) == DATA[:size]

    def test_slices_of_its_buffer_are_the_file(self, file):
        assert file.buffer[10:20] == DATA[10:20]


class TestPread(FileTests):
    @staticmethod
    def open(path):
        file = LocalStore().open(path, Hints(mapped=False))
        assert type(file) is PreadFile
        assert file.buffer is None
        return file

    def test_a_file_that_became_shorter_is_told(self, place):
        path = place(DATA[:9000])
        file = self.open(path)
        os.truncate(path, 5000)
        assert bytes(file.read(0, 5000)) == DATA[:5000]
        for start, stop in [(0, 9000), (4000, 6000), (8000, 9000)]:
            with pytest.raises(EOFError, match='expected'):
                file.read(start, stop)
            with pytest.raises(EOFError, match='expected'):
                file.read_many(*arrays([(start, stop)] * 5))


class TestDropAfterRead(FileTests):
    @staticmethod
    def open(path):
        file = LocalStore().open(path, Hints(cache_policy=CachePolicy.DROP_AFTER_READ))
        assert type(file) is PreadFile
        assert file.buffer is None
        return file


class TestDirect(FileTests):
    @pytest.fixture(scope='class')
    @classmethod
    def folder(cls, disk):
        return Path(tempfile.mkdtemp(dir=disk))

    @staticmethod
    def open(path):
        file = LocalStore().open(path, Hints(cache_policy=CachePolicy.DIRECT_IO))
        assert type(file) is DirectFile
        assert file.buffer is None
        return file


class TestDirectRefused(FileTests):
    """A file system without `O_DIRECT`."""

    @pytest.fixture(autouse=True, scope='class')
    @classmethod
    def refuse(cls):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DirectFile, '_open_direct', lambda self: None)
            yield

    @staticmethod
    def open(path):
        return LocalStore().open(path, Hints(cache_policy=CachePolicy.DIRECT_IO))


class TestDirectRefusedLater(FileTests):
    """A device that refuses reads with the alignment."""

    @pytest.fixture(autouse=True, scope='class')
    @classmethod
    def refuse(cls):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr('bags.storage.direct_file.DIRECT_ALIGNMENT', 1)
            yield

    @staticmethod
    def open(path):
        return LocalStore().open(path, Hints(cache_policy=CachePolicy.DIRECT_IO))


class TestDirectRefusedNowAndThen(TestDirect):
    @pytest.fixture(autouse=True, scope='class')
    @classmethod
    def refuse(cls):
        fill, turns = DirectFile._fill, itertools.count()

        def refusing(self, buffer, first, stop):
            return next(turns) % 3 != 0 and fill(self, buffer, first, stop)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DirectFile, '_fill', refusing)
            yield


def test_an_error_in_a_thread_of_direct_reads_is_raised(disk_path, monkeypatch):
    path = disk_path / 'file'
    path.write_bytes(DATA)
    file = DirectFile(os.fspath(path), Hints(cache_policy=CachePolicy.DIRECT_IO))
    fill = DirectFile._fill

    def failing(self, buffer, first, stop):
        if first <= 500_000 < stop:
            raise IndexError('in a thread')
        return fill(self, buffer, first, stop)

    monkeypatch.setattr(DirectFile, '_fill', failing)
    ranges = [(start, start + 100) for start in range(0, 1_000_000, 50_000)]
    if file.alignment:
        with pytest.raises(IndexError, match='in a thread'):
            file.read_many(*arrays(ranges))
    del ranges[10]
    assert file.read_many(*arrays(ranges)) == [DATA[start:stop] for start, stop in ranges]


def test_direct_reads_are_aligned(disk_path, monkeypatch):
    path = disk_path / 'file'
    path.write_bytes(DATA)
    file = DirectFile(os.fspath(path), Hints(cache_policy=CachePolicy.DIRECT_IO))
    if not file.alignment:
        pytest.skip('the file system of the temporary folder takes no O_DIRECT')
    seen = []
    preadv = os.preadv

    def watched(fd, buffers, offset, *flags):
        if fd == opened[file.direct]:
            seen.append((offset, len(buffers[0])))
        return preadv(fd, buffers, offset, *flags)

    monkeypatch.setattr(os, 'preadv', watched)
    for start, stop in [(0, 1), (511, 513), (5000, 90_000), (len(DATA) - 600, len(DATA))]:
        assert file.read(start, stop) == DATA[start:stop]
    assert seen
    assert all(number % file.alignment == 0 for pair in seen for number in pair)
    seen.clear()
    assert file.read(len(DATA) - 5, len(DATA)) == DATA[-5:]
    assert not seen, 'the tail that fills no block is read once, at open'


@pytest.mark.parametrize(
    'hints', [Hints(), Hints(mapped=False), Hints(cache_policy=CachePolicy.DIRECT_IO)], ids=str
)
def test_descriptors_close_with_the_last_reference(tmp_path, hints):
    path = tmp_path / 'file'
    path.write_bytes(DATA)
    gc.disable()
    try:
        before = descriptors()
        file = LocalStore().open(os.fspath(path), hints)
        file.read(0, 5000)
        assert descriptors() > before
        del file
        assert descriptors() == before
    finally:
        gc.enable()


def test_no_file():
    for hints in (Hints(), Hints(mapped=False), Hints(cache_policy=CachePolicy.DIRECT_IO)):
        with pytest.raises(FileNotFoundError):
            LocalStore().open('/nowhere/at/all', hints)


# Paths and URLs.


@pytest.mark.parametrize('form', ['{}', 'file://{}', '/posix:{}', 'posix:{}'])
def test_forms_of_a_local_path(tmp_path, form):
    store, path = store_for(form.format(tmp_path / 'x'))
    assert isinstance(store, LocalStore)
    assert path == os.fspath(tmp_path / 'x')


@pytest.mark.parametrize('name', ['a:b.bag', 'time 12:30.bag', 'data:x/a.bag', 'C:/x.bag'])
def test_a_colon_alone_makes_no_url(name):
    store, path = store_for(name)
    assert isinstance(store, LocalStore)
    assert path == os.path.abspath(name)


def test_options_that_tune_fsspec():
    store, path = store_for(
        'memory://tuned/x', None, {'skip_instance_cache': False, 'use_listings_cache': False}
    )
    store.replace(path, b'abc')
    assert store.read(path) == b'abc'


@pytest.mark.parametrize('url', ['s3://', 'S3:/', 'gs:///', 'https://', 'hf://', '/s3:/'])
def test_a_url_without_a_bucket(url):
    with pytest.raises(ValueError, match='with a bucket or host, got '):
        store_for(url)


@pytest.mark.parametrize(
    'url', ['zip://::a.zip', 'zip://x::s3://bucket/a.zip', 'ZIP://a.zip', 'tar://x::a.tar']
)
def test_urls_of_files_in_an_archive_are_refused(url):
    with pytest.raises(ValueError, match=r'(zip|tar):// is not supported: unpack the archive, or .* got '):
        store_for(url)


def test_storage_that_is_not_supported():
    with pytest.raises(ValueError, match='not supported'):
        store_for('unheard://bucket/x.bag')


# Writing.


@pytest.fixture
def store():
    return LocalStore()


def test_what_is_written_can_be_read_and_continued(store, tmp_path):
    path = os.fspath(tmp_path / 'x')
    output = store.create(path)
    output.write([b'ab', bytearray(b'cd'), memoryview(b'ef')])
    output.write([b'x'] * 3000)
    assert output.size == 3006
    assert output.read(0, 7) == b'abcdefx'
    output.close()
    with pytest.raises(FileExistsError):
        store.create(path)
    output = store.resume(path, 4)
    output.write([b'!'])
    output.close()
    assert store.read(path) == b'abcd!'
    assert store.stat(path).size == 5
    output = store.resume(path, 0)
    output.discard()
    assert not store.exists(path)


def test_a_size_set_back_drops_what_is_behind_it(store, tmp_path):
    output = store.create(os.fspath(tmp_path / 'x'))
    output.write([b'abcdef'])
    output.size = 2
    assert output.stored() == 6
    output.write([b'12345'])
    output.size = 3
    output.close()
    assert (tmp_path / 'x').read_bytes() == b'ab1'


def test_copies_of_files_and_of_what_only_reads(store, tmp_path):
    import io

    source = tmp_path / 'source'
    source.write_bytes(DATA)
    output = store.create(os.fspath(tmp_path / 'x'))
    with source.open('rb') as file:
        file.seek(10)
        output.copy(file, 1000)
        assert file.tell() == 1010
    output.copy(io.BytesIO(DATA), len(DATA))
    with pytest.raises(EOFError, match='expected 7 more bytes'):
        output.copy(io.BytesIO(b'abc'), 10)
    output.close()
    assert (tmp_path / 'x').read_bytes() == DATA[10:1010] + DATA


def test_clone_and_replace(store, tmp_path):
    source, target = os.fspath(tmp_path / 'source'), os.fspath(tmp_path / 'target')
    store.replace(source, DATA)
    os.chmod(source, 0o640)
    store.clone(source, target, 5000)
    assert store.read(target) == DATA[:5000]
    assert os.stat(target).st_mode & 0o777 == 0o640
    with pytest.raises(FileExistsError):
        store.clone(source, target, 1)
    store.replace(source, b'new')
    assert store.read(source) == b'new'
    assert sorted(store.names(os.fspath(tmp_path))) == ['source', 'target']


def test_locks(store, tmp_path):
    path = os.fspath(tmp_path)
    lock = store.lock(path)
    with pytest.raises(BlockingIOError):
        store.lock(path)
    lock.release()
    lock.release()
    again = store.lock(path)
    del again
    store.lock(path).release()


def test_a_lock_is_not_held_by_a_child_that_outlives_its_parents_lock(store, tmp_path):
    lock = store.lock(os.fspath(tmp_path))
    ready, go = os.pipe(), os.pipe()

    def work():
        os.write(ready[1], b'.')
        os.read(go[0], 1)
        return True

    with forked(work):
        os.read(ready[0], 1)
        with pytest.raises(BlockingIOError):
            store.lock(os.fspath(tmp_path))
        lock.release()
        store.lock(os.fspath(tmp_path)).release()
        os.write(go[1], b'.')
    for fd in (*ready, *go):
        os.close(fd)


def test_a_lock_on_a_file_that_was_removed_since_is_refused(store, tmp_path, monkeypatch):
    path = tmp_path / 'limits.x.bag'
    path.write_bytes(b'')
    fcntl = pytest.importorskip('fcntl')
    flock = fcntl.flock

    def slow(fd, how):
        path.unlink()
        path.write_bytes(b'')
        return flock(fd, how)

    monkeypatch.setattr('fcntl.flock', slow)
    with pytest.raises(BlockingIOError):
        store.lock(os.fspath(path))


@few
@given(data=st.data())
def test_what_is_written_in_few_or_many_calls(tmp_path_factory, data):
    """Buffers of any size and number, also if the system writes a part of them."""
    path = os.fspath(tmp_path_factory.mktemp('written') / 'x')
    most, vectors = data.draw(st.integers(1, 100)), data.draw(st.integers(1, 8))
    pwritev = positioned.calls.pwritev

    def write(fd, buffers, offset):
        total = sum(map(len, buffers))
        assert len(buffers) <= vectors
        assert total <= most
        taken = data.draw(st.integers(min(total, 1), total))
        return pwritev(fd, [b''.join(buffers)[:taken]], offset)

    expected = b''
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('bags.storage.local.MAX_WRITE', most)
        patch.setattr('bags.storage.local.MAX_VECTORS', vectors)
        patch.setattr(positioned.calls, 'pwritev', write)
        output = LocalStore().create(path)
        for buffers in data.draw(st.lists(st.lists(st.binary(max_size=200), max_size=9), max_size=3)):
            output.write([memoryview(buffer) if len(buffer) % 2 else buffer for buffer in buffers])
            expected += b''.join(buffers)
            assert output.size == len(expected)
        output.close()
    with open(path, 'rb') as file:
        assert file.read() == expected


@pytest.mark.skipif(not hasattr(os, 'mkfifo'), reason='needs named pipes')
@pytest.mark.parametrize('name', ['spec.json', 'refs.bag', 't.bag', 'metadata.json'])
@pytest.mark.parametrize('target', ['a pipe', '/dev/zero'])
@pytest.mark.parametrize('mapped', [True, False])
def test_a_pipe_or_a_device_in_place_of_a_file(tmp_path, name, target, mapped):
    with bags.DatasetWriter(tmp_path / 'd', {'id': 'int(8)', 't': 'utf8'}, metadata={'a': 1}) as writer:
        writer.append({'id': 1, 't': 'x'})
    path = tmp_path / 'd' / name
    path.unlink()
    if target == 'a pipe':
        os.mkfifo(path)
    else:
        path.symlink_to(target)
    found = 'a pipe' if target == 'a pipe' else 'a device'

    def read():
        dataset = bags.open(tmp_path / 'd', mapped=mapped)
        return dataset[0], dataset.metadata

    with pytest.raises(OSError, match=f'expected a regular file, got {found}') as caught:
        read()
    assert str(path) in str(caught.value)
    assert any(found in str(finding) for finding in bags.verify(tmp_path / 'd'))
