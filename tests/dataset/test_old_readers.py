"""Open readers keep returning the same values while writers resume, truncate, close and are killed."""

import os
import random
import signal
import time
import traceback
from contextlib import ExitStack, contextmanager

import pytest

import bags
from bags import bag

SPEC = {'id': 'int(8)', 'note': 'utf8', 'blob': 'bytes'}
PAGE = 4096

pytestmark = pytest.mark.skipif(not hasattr(os, 'fork'), reason='readers are forked')


def row(index, seed=0):
    chance = random.Random(index * 1000 + seed)
    note, size = 'x' * chance.choice([0, 3, 40]), chance.choice([0, 9, 9000])
    return {'id': seed, 'note': note, 'blob': chance.randbytes(size)}


def check(reader, expected):
    assert len(reader) == len(expected)
    assert list(reader) == expected
    assert reader.__getitems__(range(len(expected))) == expected
    for start in range(0, len(expected), 50):
        assert reader.batch(range(start, min(start + 50, len(expected))), 'note')['note'] == [
            found['note'] for found in expected[start : start + 50]
        ]


@contextmanager
def child(work):
    """Runs `work(stop)` in a forked child beside the block; it must end without a signal or an error."""
    source, sink = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(sink)
        os.set_blocking(source, False)

        def stop():
            try:
                return bool(os.read(source, 1))
            except BlockingIOError:
                return False

        code = 1
        try:
            work(stop)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(source)
    try:
        yield
    finally:
        os.write(sink, b'.')  # Closing the pipe would not suffice: other children have it open.
        os.close(sink)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 0


def hold(path, ready, **options):
    """Opens and reads a dataset, and reads it again after the block: nothing has changed."""

    def work(stop):
        with ExitStack() as stack:
            try:
                reader = stack.enter_context(bags.open(path, **options))
                expected = list(reader)
            finally:
                os.write(ready, b'.')  # Also after an error: the parent waits for it.
            while not stop():
                time.sleep(0.001)
            check(reader, expected)

    return child(work)


@contextmanager
def held(path):
    """Keeps readers open on a dataset that other writers change in the block."""
    source, ready = os.pipe()
    with hold(path, ready), hold(path, ready, mapped=False):
        os.read(source, 1)
        os.read(source, 1)
        yield
    os.close(source)
    os.close(ready)


def abandon(path, rows, **options):
    """Writes and flushes datapoints, and is killed."""
    pid = os.fork()
    if not pid:
        writer = bags.DatasetWriter(path, SPEC, resume=True, **options)
        for index in rows:
            writer.append(row(index))
        writer.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.slow(all_but='1')
@pytest.mark.parametrize('keep', [0, 1, 700])
def test_a_reader_outlives_a_writer_that_keeps_fewer(tmp_path, keep):
    path = tmp_path / 'a'
    abandon(path, range(3000))
    with held(path), bags.DatasetWriter(path, SPEC, resume=True, truncate_to=keep) as writer:
        assert len(writer) == keep
        for index in range(1500):
            writer.append(row(index, 7))
    with bags.open(path) as reader:
        check(reader, [*map(row, range(keep)), *(row(index, 7) for index in range(1500))])


def test_a_reader_outlives_a_close_that_cuts_unfinished_bytes(tmp_path):
    path = tmp_path / 'a'
    abandon(path, range(300))
    for name in ('id', 'note', 'blob', 'refs'):
        with open(path / f'{name}.bag', 'ab') as file:
            file.write(bytes(200 * PAGE) + b'\xff')
    with held(path):
        bags.recover(path)
    with bags.open(path) as reader:
        check(reader, [*map(row, range(300))])


@pytest.mark.parametrize('placement', ['tail', 'starts', 'separate'])
def test_a_reader_outlives_a_bag_that_keeps_fewer(tmp_path, placement):
    path, options = tmp_path / 'a.bag', {'limits_placement': placement}
    writer = bag.Writer(path, **options)
    for index in range(5000):
        writer.write(b'%d' % index * 10)
    writer.flush()
    before = bag.Reader(path, **options)
    expected = before.read()
    writer.close()
    again = bag.Reader(path, **options)
    with bag.Writer(path, mode='append', truncate_to=600, **options) as writer:
        now = bag.Reader(path, **options)
        assert now.read() == expected[:600]
        for _ in range(4000):
            writer.write(b'another')
    assert before.read() == again.read() == expected
    assert now.read() == expected[:600]
    assert bag.Reader(path, **options).read() == expected[:600] + [b'another'] * 4000


def campaign(folder, seed, steps):
    """Writers that are killed at random moments, or close; readers of each state stay open for some steps."""
    chance = random.Random(seed)
    path = os.path.join(folder, str(seed))
    source, ready = os.pipe()
    readers, checksum = [], seed % 2 == 0
    for step in range(steps):
        options = {'checksum': checksum}
        if step and chance.random() < 0.4:
            with bags.open(path) as reader:
                options['truncate_to'] = chance.randrange(len(reader) + 1)
        pid = os.fork()
        if not pid:
            code = 1
            try:
                with bags.DatasetWriter(path, SPEC, resume=True, **options) as writer:
                    while chance.random() > 0.003:
                        writer.append(row(len(writer), step), flush=chance.choice([None, None, False, True]))
                code = 0
            finally:
                os._exit(code)
        if chance.random() < 0.7 and step:
            time.sleep(chance.random() * 0.05)
            os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code in (0, -signal.SIGKILL)
        if len(readers) > 3:
            readers.pop(chance.randrange(len(readers))).__exit__(None, None, None)
        reader = hold(path, ready, mapped=chance.random() < 0.8, checksum=checksum)
        reader.__enter__()
        readers.append(reader)
        os.read(source, 1)
    for reader in readers:
        reader.__exit__(None, None, None)
    os.close(source)
    os.close(ready)


@pytest.mark.slow
def test_readers_outlive_writers(tmp_path):
    campaign(tmp_path, 0, 12)


@pytest.mark.campaign
@pytest.mark.parametrize('seed', range(1, 7))
def test_readers_outlive_many_writers(tmp_path, seed):
    campaign(tmp_path, seed, 60)
