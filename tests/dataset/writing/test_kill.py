"""A killed writer loses no flushed datapoint, and leaves no partial one."""

import itertools
import os
import random
import select
import signal
import struct
import time

import pytest

import bags
from tests.dataset.writing.killed import leave_open

pytestmark = pytest.mark.skipif(not hasattr(os, 'fork'), reason='children are forked')

SPEC = {
    'blob': 'bytes',
    'id': 'int(8)',
    'note': 'utf8?',
    'nums': 'int(2)[]',
    'tags': 'utf8[]?',
    'words': 'utf8[]',
}
COMPRESSED = ('blob', 'id', 'words')
SHARED = 5  # Every fifth datapoint shares the records of the datapoint before it.


def make(index):
    chance = random.Random(index)
    return {
        'blob': chance.choice([b'', bytes(8), bytes(chance.randrange(9000)), chance.randbytes(40_000)]),
        'id': index * chance.choice([0, 1, 8]),
        'note': chance.choice([None, '', f'note {index}']),
        'nums': [0] * chance.choice([0, 1, 20]),
        'tags': chance.choice([None, [], [f'tag {index}', '']]),
        'words': [f'word {index}'] * chance.choice([0, 1, 7]),
    }


def expected(index):
    return make(index - 1 if index % SHARED == SHARED - 1 else index)


def append(writer, index, flush):
    """Appends the datapoint of an index; some refer to the records of the one before."""
    inner = getattr(writer, '_writer', writer)
    full = inner is not writer and inner is not None and writer.is_full(*writer.totals)
    if index % SHARED < SHARED - 1 or inner is None or full or not len(inner):
        return writer.append(expected(index), flush)
    writer.flush()
    last = bags.bag.Reader(os.path.join(inner.path, 'refs.bag'))[-1]
    inner._refs.write_row(inner._format.unpack(last))
    if flush:
        writer.flush()
    return index


def open_writer(path, sharded, compression):
    if sharded:
        return bags.ShardedDatasetWriter(path, SPEC, shard_length=17, compression=compression, resume=True)
    return bags.DatasetWriter(path, SPEC, compression=compression, resume=True)


def work(path, sharded, compression, seed, report):
    """Writes without end; reports the number of datapoints after each flush."""
    chance = random.Random(seed)
    while True:
        writer = open_writer(path, sharded, compression)
        report(len(writer))
        for _ in range(chance.choice([0, 1, 5, 60])):
            flush = chance.choice([None, None, False, True])
            append(writer, len(writer), flush)
            if flush or chance.random() < 0.2:
                writer.flush()
                report(len(writer))
        if chance.random() < 0.5:
            writer.close()
            report(len(writer))
        leave_open(writer)
        del writer


def start(target, *args):
    """Forks a child that runs a function; returns its id and the pipe that it reports numbers to."""
    source, sink = os.pipe()
    child = os.fork()
    if child:
        os.close(sink)
        return child, source
    status = 70
    try:
        os.close(source)
        target(*args, lambda number: os.write(sink, struct.pack('<q', number)))
        status = 0
    except BaseException as exc:
        os.write(2, f'child: {type(exc).__name__}: {exc}\n'.encode())
    finally:
        os._exit(status)


def reported(source, least=0, patience=30.0):
    """Returns the last number reported, after at least so many reports."""
    last, count, until = 0, 0, time.monotonic() + patience
    while count < least and time.monotonic() < until:
        if select.select([source], [], [], 0.5)[0]:
            data = os.read(source, 8)
            if not data:
                break
            last, count = struct.unpack('<q', data)[0], count + 1
    return last


def drain(source):
    data = b''
    while part := os.read(source, 1 << 16):
        data += part
    os.close(source)
    return struct.unpack('<q', data[-8:])[0] if data else 0


def as_lists(row):
    return {**row, 'nums': row['nums'].tolist()}


def check(path, least):
    """Reads the dataset in every way, and returns its length."""
    try:
        reader = bags.open(path)
    except FileNotFoundError:
        assert least == 0
        return 0
    except bags.CorruptError as exc:
        assert least == 0
        assert 'neither refs.bag' in str(exc)  # noqa: PT017 - a lone folder that is being made
        return 0
    with reader:
        count = len(reader)
        assert count >= least
        wanted = [expected(index) for index in range(count)]
        for index in range(count):
            assert as_lists(reader[index]) == wanted[index]
        assert list(map(as_lists, reader.__getitems__(range(count)))) == wanted
        batch = reader.batch(range(count))
        assert batch['id'].tolist() == [row['id'] for row in wanted]
        assert [nums.tolist() for nums in batch['nums']] == [row['nums'] for row in wanted]
        for name in ('blob', 'note', 'tags', 'words'):
            assert batch[name] == [row[name] for row in wanted]
    return count


@pytest.mark.slow(all_but='plain-folder')
@pytest.mark.parametrize('sharded', [False, True], ids=['folder', 'shards'])
@pytest.mark.parametrize('compression', [(), COMPRESSED], ids=['plain', 'zstd'])
def test_sigkill_at_random_moments(tmp_path, sharded, compression):
    kill_often(tmp_path / 'a', sharded, compression, 16)


@pytest.mark.campaign
@pytest.mark.parametrize('sharded', [False, True], ids=['folder', 'shards'])
@pytest.mark.parametrize('compression', [(), COMPRESSED], ids=['plain', 'zstd'])
@pytest.mark.parametrize('seed', range(5))
def test_sigkill_many_more_times(tmp_path, found, sharded, compression, seed):
    kill_often(tmp_path / 'a', sharded, compression, 100, 1000 * seed)
    found('100 writers killed at random moments: 0 lost or wrong')


def kill_often(path, sharded, compression, times, seed=0):
    chance = random.Random(seed)
    safe = done = 0
    for number in range(times):
        child, source = start(work, path, sharded, compression, seed + number)
        try:
            safe = max(safe, reported(source, chance.choice([0, 0, 1, 3, 9])))
            if chance.random() < 0.3:
                check(path, safe)  # While it writes.
            time.sleep(chance.choice([0, 0.0005, 0.002, 0.02]) * chance.random())
        finally:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f'the child ended by itself: {status}'
        safe = max(safe, drain(source))
        done = check(path, max(safe, done))
    assert done > 0
    with open_writer(path, sharded, compression) as writer:
        assert len(writer) == done
        for _ in range(3):
            append(writer, len(writer), None)
    assert check(path, done + 3) == done + 3
    assert not list(path.rglob('limits.*'))


# A process that ends at each call that changes a file, and in the middle of it.

CALLS = ['pwritev', 'pwrite', 'replace', 'rename', 'unlink', 'ftruncate', 'copy_file_range', 'close', 'open']


def do_half(name, original, args, keywords):
    """Does half of a call; calls that are atomic for the system are done as a whole."""
    if name == 'pwritev':
        data = b''.join(args[1])
        original(args[0], [data[: len(data) // 2]], args[2])
    elif name == 'pwrite':
        original(args[0], bytes(args[1])[: len(args[1]) // 2], args[2])
    elif name == 'copy_file_range':
        original(args[0], args[1], max(1, args[2] // 2), *args[3:])
    else:
        original(*args, **keywords)


def die_at(step, halfway):
    """Ends this process at its n-th call that can change a file: before it, or after half of it."""
    numbers = itertools.count(1)  # `count` is atomic: threads and finalizers call too.

    def wrap(name):
        original = getattr(os, name)

        def call(*args, **keywords):
            if name == 'open' and not args[1] & (os.O_CREAT | os.O_TRUNC):
                return original(*args, **keywords)
            if next(numbers) == step:
                try:
                    if halfway:
                        do_half(name, original, args, keywords)
                finally:
                    os._exit(9)  # Even if the call itself fails, as optional fast paths may.
            return original(*args, **keywords)

        return call

    for name in CALLS:
        if hasattr(os, name):
            setattr(os, name, wrap(name))


def scenario(path, sharded, compression, step, halfway, report):
    """Begins, flushes, closes, resumes a closed and an unclosed dataset, in few calls."""
    die_at(step, halfway)
    for closes in (True, False, True):
        writer = (
            bags.ShardedDatasetWriter(path, SPEC, shard_length=5, compression=compression, resume=True)
            if sharded
            else bags.DatasetWriter(path, SPEC, compression=compression, resume=True)
        )
        report(len(writer))
        for _ in range(2):
            append(writer, len(writer), False)
            append(writer, len(writer), True)
            report(len(writer))
        if closes:
            writer.close()
        report(len(writer))
        leave_open(writer)
        del writer


@pytest.mark.slow
@pytest.mark.parametrize('sharded', [False, True], ids=['folder', 'shards'])
@pytest.mark.parametrize('compression', [(), COMPRESSED], ids=['plain', 'zstd'])
@pytest.mark.parametrize('halfway', [False, True], ids=['before', 'within'])
def test_death_at_every_call(tmp_path, sharded, compression, halfway):
    step = 1 + sharded + 2 * bool(compression) + 4 * halfway  # The campaign takes all steps.
    while die_and_check(tmp_path, sharded, compression, step, halfway):
        step += 9
    assert step > 100


@pytest.mark.campaign
@pytest.mark.parametrize('sharded', [False, True], ids=['folder', 'shards'])
@pytest.mark.parametrize('compression', [(), COMPRESSED], ids=['plain', 'zstd'])
@pytest.mark.parametrize('halfway', [False, True], ids=['before', 'within'])
def test_death_at_every_call_and_once_more(tmp_path, found, sharded, compression, halfway):
    step = 1
    while die_and_check(tmp_path, sharded, compression, step, halfway, again=7):
        step += 1
    found(f'{2 * step - 1} writers ended at a call that changes a file: 0 lost or wrong')


def die_and_check(tmp_path, sharded, compression, step, halfway, again=None):
    """Returns whether the child was killed before its end."""
    path = tmp_path / str(step)
    safe = done = 0
    for at in (step, again):
        if at is None:
            continue
        child, source = start(scenario, path, sharded, compression, at, halfway)
        safe = max(safe, drain(source))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, 9), f'step {step}'
        if at == step:
            first = status
        done = check(path, max(safe, done))
    # Another writer resumes.
    with open_writer(path, sharded, compression) as writer:
        assert len(writer) == done
        append(writer, len(writer), None)
    assert check(path, done + 1) == done + 1
    return first == 9
