"""Readers beside a writer: the datapoints they see are whole, become more, and never change."""

import inspect
import itertools
import os
import random
import signal
import struct
import threading
import time

import pytest

import bags
from bags.bag.open import open_bag
from bags.bag.options import ReaderOptions
from bags.dataset.format.folder import Folder
from bags.storage import store_for
from tests.dataset.writing.killed import leave_open

SPEC = {'blob': 'bytes', 'id': 'int(8)', 'note': 'utf8?', 'words': 'utf8[]'}


def row(index):
    chance = random.Random(index)
    return {
        'blob': bytes(chance.choice([0, 8, 3000])),
        'id': index,
        'note': chance.choice([None, f'note {index}']),
        'words': [f'word {index}'] * chance.choice([0, 1, 5]),
    }


WRITER = (
    f'spec = {SPEC}\n{inspect.getsource(row)}'
    """
import random, sys, time, bags
path, sharded, compressed, count, seed = sys.argv[1], *map(int, sys.argv[2:])
chance = random.Random(seed)
options = {'compression': ['blob', 'words'] if compressed else ()}
if sharded:
    options['shard_length'] = 40
make = bags.ShardedDatasetWriter if sharded else bags.DatasetWriter
writer = make(path, spec, **options)
for index in range(count):
    writer.append(row(index), flush=chance.choice([None, False, True]))
    if chance.random() < 0.03:
        writer.close()
        writer = make(path, spec, resume=True, **options)
    if chance.random() < 0.1:
        time.sleep(0.002)
    if index % 100 == 99:
        writer.flush()
        sys.stdin.readline()
print('flushed', flush=True)
writer.flush()
if chance.random() < 0.8:
    writer.close()
print('done', flush=True)
"""
)


def see(path, seen):
    """Opens the dataset, compares everything, and returns its length."""
    try:
        reader = bags.open(path)
    except FileNotFoundError:
        assert not seen
        return 0
    except bags.CorruptError as exc:
        if seen or 'neither refs.bag' not in str(exc):
            raise
        return 0  # Between creating spec.json and refs.bag, in a single folder.
    with reader:
        count = len(reader)
        assert count >= seen
        for index in (0, count - 1, seen - 1, *random.choices(range(max(count, 1)), k=5)):
            if 0 <= index < count:
                assert reader[index] == row(index)
        assert reader.batch(range(count), 'id')['id'].tolist() == list(range(count))
        latest = range(max(0, count - 30), count)
        assert reader.__getitems__(latest) == list(map(row, latest))
        assert reader.size > 0 or not count
    return count


@pytest.mark.slow(all_but='plain-folder')
@pytest.mark.parametrize('sharded', [0, 1], ids=['folder', 'shards'])
@pytest.mark.parametrize('compressed', [0, 1], ids=['plain', 'zstd'])
def test_a_reader_polls(tmp_path, kit, sharded, compressed):
    path, count, seen, answered = tmp_path / 'a', 500, 0, 0
    writer = kit.python(WRITER, path, sharded, compressed, count, sharded + compressed, wait=False)
    while writer.poll() is None:
        seen = see(path, seen)
        if seen >= answered + 100:  # The writer waits every 100 rows until they have been read.
            answered += 100
            writer.stdin.write(b'\n')
            writer.stdin.flush()
    assert writer.wait() == 0, writer.stdout.read()
    writer.communicate()
    assert see(path, seen) == count
    assert answered == count


def test_a_snapshot_stays_what_it_was(tmp_path):
    path = tmp_path / 'a'
    writer = bags.ShardedDatasetWriter(path, SPEC, shard_length=20)
    done, readers = 0, []
    for _ in range(12):
        for _ in range(7):
            writer.append(row(done), flush=True)
            done += 1
        readers.append((done, bags.open(path)))
        for count, reader in readers:
            assert len(reader) == count
            assert reader[count - 1] == row(count - 1)
            assert reader.__getitems__(range(count)) == list(map(row, range(count)))
            with pytest.raises(IndexError):
                reader[count]
    writer.close()
    for count, reader in readers:
        assert list(reader) == list(map(row, range(count)))
        reader.close()


def test_a_snapshot_outlives_close_and_resume(tmp_path):
    path = tmp_path / 'a'
    writer = bags.DatasetWriter(path, SPEC)
    for index in range(5):
        writer.append(row(index), flush=True)
    before = bags.open(path)  # Its fields are not open yet.
    text = repr(before)
    writer.append(row(5))
    writer.close()  # Moves the limits to another place.
    with bags.DatasetWriter(path, SPEC, resume=True) as writer:
        writer.append(row(6))
        assert list(before) == list(map(row, range(5)))
    assert list(before) == list(map(row, range(5)))
    assert repr(before) == text
    with bags.open(path) as now:
        assert list(now) == list(map(row, range(7)))


def test_threads_read_while_one_writes(tmp_path):
    path = tmp_path / 'a'
    writer = bags.ShardedDatasetWriter(path, SPEC, shard_length=25, compression=['blob'])
    writer.append(row(0), flush=True)
    failed, end = [], threading.Event()

    def poll():
        seen = 0
        try:
            while not end.is_set():
                seen = see(path, seen)
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=poll) for _ in range(2)]
    for thread in threads:
        thread.start()
    for index in range(1, 200):
        writer.append(row(index), flush=True)
    writer.close()
    end.set()
    for thread in threads:
        thread.join()
    assert not failed
    assert see(path, 200) == 200


HOLDER = """
import sys, time, bags
writer = bags.DatasetWriter(sys.argv[1], {'id': 'int(8)'}, resume=True)
writer.append({'id': 1}, flush=True)
print('ready', flush=True)
time.sleep(600)
"""


def test_a_lock_holds_between_processes_and_dies_with_its_own(tmp_path, kit):
    path = tmp_path / 'a'
    holder = kit.python(HOLDER, path, wait=False)
    assert holder.stdout.readline() == b'ready\n'
    for make in (bags.DatasetWriter, lambda *args, **keywords: bags.DatasetWriter(*args, resume=True)):
        with pytest.raises((BlockingIOError, FileExistsError)):
            make(path, {'id': 'int(8)'})
    with pytest.raises(BlockingIOError, match='another writer'):
        bags.DatasetWriter(path, {'id': 'int(8)'}, resume=True)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with bags.DatasetWriter(path, {'id': 'int(8)'}, resume=True) as writer:
        assert len(writer) == 1
        writer.append({'id': 2})
    with bags.open(path) as reader:
        assert reader.batch([0, 1])['id'].tolist() == [1, 2]


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='children are forked')
def test_a_forked_child_holds_no_lock(tmp_path):
    """A data loader forked while a dataset is written must not block the next writer."""
    writer = bags.DatasetWriter(tmp_path / 'a', {'id': 'int(8)'})
    source, sink = os.pipe()
    child = os.fork()
    if not child:
        os.close(sink)
        os.read(source, 1)
        os._exit(0)
    writer.append({'id': 1})
    writer.close()
    with bags.DatasetWriter(tmp_path / 'a', {'id': 'int(8)'}, resume=True) as writer:
        assert len(writer) == 1
    os.write(sink, b'x')
    os.waitpid(child, 0)
    os.close(source)
    os.close(sink)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, 'fork'), reason='a child is forked')
def test_writers_that_end_early_and_resume_beside_a_reader(tmp_path):
    path, spec = tmp_path / 'a', {'id': 'int(8)'}
    bags.DatasetWriter(path, spec).close()
    child = os.fork()
    if not child:
        try:
            for index in itertools.count(step=3):
                writer = bags.DatasetWriter(path, spec, resume=True)
                for each in range(index, index + 3):
                    writer.append({'id': each}, flush=True)
                leave_open(writer)
                del writer
        finally:
            os._exit(1)
    try:
        length = 0
        for _ in range(3000):
            with bags.open(path) as reader:
                assert len(reader) >= length
                length = len(reader)
        assert length
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize('is_closed', [False, True])
def test_a_writer_that_begins_while_an_empty_dataset_is_opened(tmp_path, is_closed):
    path, store = str(tmp_path / 'a'), store_for(tmp_path)[0]
    bags.DatasetWriter(path, {'id': 'int(8)'}).close()
    folder = Folder(store, path, ReaderOptions())
    folder.refs, names = open_bag(store, f'{path}/refs.bag', ReaderOptions()), folder.names
    writer = bags.DatasetWriter(path, {'id': 'int(8)'}, resume=True)
    writer.append({'id': 1}, flush=True)
    if is_closed:
        writer.close()
    refs = folder.open_refs()
    assert (refs.count, 'id.bag' in names) == (0, True)
    writer.close()
    # Without a writer, the same files are damage.
    (tmp_path / 'a/refs.bag').write_bytes(b'')
    with pytest.raises(bags.CorruptError, match=r'refs\.bag: is empty, but id\.bag is not'):
        bags.open(path)


def test_a_large_record_is_not_taken_for_limits_while_it_is_written(tmp_path):
    """Zeros or rising numbers at the end of an unfinished record look like the limits of a bag."""
    path = tmp_path / 'a'
    seen = []

    class Film:
        """A file; readers check the dataset while it is copied."""

        def __init__(self, pattern):
            self.data, self.position = pattern, 0

        def seek(self, offset, whence=0):
            self.position = offset + (len(self.data) if whence == 2 else 0)
            return self.position

        def tell(self):
            return self.position

        def read(self, size=-1):
            part = self.data[self.position :][: min(size, 1 << 16)]
            self.position += len(part)
            with bags.open(path, {'film': len, 'int': bags.decoders['int']}) as reader:
                seen.append((len(reader), [r['id'] for r in reader]))
            return part

        def close(self):
            pass

    zeros = bytes(1 << 18)
    rising = b''.join(struct.pack('<Q', 8 * n) for n in range(1 << 14))
    encoders = {**bags.encoders, 'film': Film}
    writer = bags.DatasetWriter(path, {'film': 'film', 'id': 'int(8)'}, encoders)
    for index, film in enumerate([zeros, zeros, rising, rising, zeros]):
        writer.append({'film': film, 'id': index}, flush=True)
        assert len(seen) > 0
        assert all(found == (index, list(range(index))) for found in seen)
        seen.clear()
    leave_open(writer)
    del writer
    with bags.DatasetWriter(path, {'film': 'film', 'id': 'int(8)'}, encoders, resume=True) as writer:
        assert len(writer) == 5
        writer.append({'film': zeros, 'id': 5})
    with bags.open(path, {**bags.decoders, 'film': bytes}) as reader:
        assert [r['film'] for r in reader] == [zeros, zeros, rising, rising, zeros, zeros]


def test_an_empty_dataset_is_readable_at_once(tmp_path):
    writers = {}
    for make in (bags.DatasetWriter, bags.ShardedDatasetWriter):
        path = tmp_path / make.__name__
        writers[path] = make(path, SPEC)
        with bags.open(path) as reader:
            assert (len(reader), list(reader)) == (0, [])
            assert reader.batch([])['id'].tolist() == []
        writers[path].append(row(0))
    time.sleep(1.05)
    for path, writer in writers.items():
        writer.append(row(1))  # More than a second has passed, so this flushes both.
        with bags.open(path) as reader:
            assert list(reader) == [row(0), row(1)]
        writer.close()
