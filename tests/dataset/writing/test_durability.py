"""What `durability` promises: what is closed or flushed is on disk, and only certain records are kept."""

import contextlib
import errno
import gc
import os
import random
import shutil
import signal
import subprocess
import sys
import threading

import pytest

import bags
from bags.storage import local
from tests.dataset.writing.killed import leave_open
from tests.durability.file_system import FileSystem
from tests.durability.recorder import record

SPEC = {'id': 'int(4)', 'text': 'utf8'}
KINDS = {'folder': (bags.DatasetWriter, {}), 'shards': (bags.ShardedDatasetWriter, {'shard_length': 10})}


def row(number):
    return {'id': number, 'text': f'text {number}'}


def write(path, numbers, kind='folder', **options):
    writer_type, more = KINDS[kind]
    with writer_type(path, SPEC, **more, **options) as writer:
        for number in numbers:
            writer.append(row(number))


def numbers_in(path, **options):
    with bags.open(path, **options) as reader:
        return [row['id'] for row in reader]


# What is on disk, by the calls of the process.


def lost_files(code, folder):
    """Runs code with `path`; returns the files that a power cut at the end takes away or damages."""
    file_system = FileSystem(str(folder), record(['-c', code, str(folder)], folder))
    left = file_system.snapshot(file_system.count, random.Random(0), 'none', 'none').files
    return [path for path, data in file_system.contents().items() if left.get(path, b'missing') != data]


RUN = """
import os, sys, bags
os.makedirs(sys.argv[1], exist_ok=True)
path = os.path.join(sys.argv[1], 'deep', 'data')
spec = {{'id': 'int(4)', 'text': 'utf8'}}
{}
"""
CLOSED = """
with bags.ShardedDatasetWriter(path, spec, shard_length=3, checksum=True, durability={!r}) as writer:
    for number in range(8):
        writer.append({{'id': number, 'text': 'x' * number}})
"""
FLUSHED = """
writer = bags.DatasetWriter(path, spec, durability={!r})
writer.append({{'id': 1, 'text': 'x'}}, flush=True)
os._exit(0)
"""
LONE = """
with bags.bag.Writer(sys.argv[1] + '/x.bag', durability={!r}) as writer:
    writer.write(b'record')
"""
on_linux = pytest.mark.skipif(sys.platform != 'linux', reason='strace is for Linux')


@pytest.mark.slow(all_but='flushed, flush')
@on_linux
@pytest.mark.parametrize(
    ('code', 'durability', 'survives'),
    [
        pytest.param(CLOSED, 'close', True, id='closed, close'),
        pytest.param(CLOSED, 'none', False, id='closed, none'),
        pytest.param(FLUSHED, 'flush', True, id='flushed, flush'),
        pytest.param(FLUSHED, 'close', False, id='flushed, close'),
        pytest.param(LONE, 'close', True, id='lone, close'),
        pytest.param(LONE, 'none', False, id='lone, none'),
    ],
)
def test_what_is_on_disk(tmp_path, code, durability, survives):
    lost = lost_files(RUN.format(code.format(durability)), tmp_path / 'run')
    assert (lost == []) == survives, lost


@on_linux
def test_overwriting_exchanges_the_folders(tmp_path):
    write(tmp_path / 'run' / 'data', range(5))
    code = (
        'import sys, bags\n'
        "with bags.DatasetWriter(sys.argv[1] + '/data', {'id': 'int(4)', 'text': 'utf8'}, mode='overwrite')"
        " as writer: writer.append({'id': 7, 'text': ''})"
    )
    found = [each.call for each in record(['-c', code, str(tmp_path / 'run')], tmp_path / 'run')]
    assert 'exchange' in found
    assert numbers_in(tmp_path / 'run' / 'data') == [7]


def test_overwriting_where_folders_cannot_be_exchanged(tmp_path, monkeypatch):
    write(tmp_path / 'data', range(5))
    monkeypatch.setattr(local.LocalStore, 'exchange', staticmethod(lambda *_: False))
    write(tmp_path / 'data', range(7, 9), mode='overwrite')
    assert numbers_in(tmp_path / 'data') == [7, 8]
    assert os.listdir(tmp_path) == ['data']


# Disks and file systems.


def test_a_sync_that_failed_is_not_forgotten(tmp_path, monkeypatch):
    writer = bags.DatasetWriter(tmp_path / 'data', SPEC)
    writer.append(row(0))
    with monkeypatch.context() as patch:
        patch.setattr(os, 'fsync', lambda fd: exec('raise OSError(5, "as told")'))
        with pytest.raises(OSError, match='as told'):
            writer.close()
    with pytest.raises(OSError, match='as told'):
        writer.close()
    leave_open(writer)
    assert bags.open(tmp_path / 'data').unfinished


def test_file_systems_that_sync_no_folders(tmp_path, monkeypatch):
    fsync = os.fsync

    def refuse(fd):
        if os.path.isdir(f'/proc/self/fd/{fd}'):
            raise OSError(errno.EINVAL, 'as told')
        fsync(fd)

    monkeypatch.setattr(os, 'fsync', refuse)
    write(tmp_path / 'data', range(25), 'shards')
    assert numbers_in(tmp_path / 'data') == list(range(25))


@pytest.mark.parametrize('way', ['writer', 'copy', 'from_numpy'])
def test_a_disk_that_is_full_at_a_new_shard(tmp_path, monkeypatch, way):
    """The dataset is not finished, although all its shards are."""
    path = tmp_path / 'data'
    write(tmp_path / 'source', range(25), 'shards')
    create = local.LocalStore.create

    def full(store, file):
        if '000001' in file:
            raise OSError(errno.ENOSPC, 'as told', file)
        return create(store, file)

    def run(**options):
        if way == 'writer':
            write(path, range(25), 'shards', **options)
        elif way == 'copy':
            bags.copy(tmp_path / 'source', path, shard_length=10, **options)
        else:
            bags.from_numpy({'id': list(range(25))}, path, shard_length=10, **options)

    with monkeypatch.context() as patch:
        patch.setattr(local.LocalStore, 'create', full)
        with pytest.raises(OSError, match='as told'):
            run()
    assert bags.open(path).unfinished
    assert bags.info(path).unfinished
    assert numbers_in(path) == list(range(10))
    with pytest.raises(ValueError, match='expected a finished dataset'):
        bags.consolidate(path)
    bags.recover(path)
    assert not bags.open(path).unfinished


# Kills between two shards, and of parallel writers.


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='children are forked')
def test_a_kill_between_two_shards(tmp_path, monkeypatch):
    path = tmp_path / 'data'
    if not (child := os.fork()):
        unlink = os.unlink

        def kill(file, *, dir_fd=None):
            is_journal = file == 'unfinished' and os.path.samestat(os.fstat(dir_fd), os.stat(path / '000000'))
            unlink(file, dir_fd=dir_fd)
            if is_journal:
                os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(os, 'unlink', kill)
        write(path, range(25), 'shards')
        os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert not (path / '000000' / 'unfinished').exists()
    assert bags.open(path).unfinished
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=10, resume=True) as writer:
        for number in range(len(writer), 25):
            writer.append(row(number))
    assert not bags.open(path).unfinished
    assert numbers_in(path) == list(range(25))


def test_marks_that_an_earlier_version_left_in_two_shards(tmp_path):
    write(tmp_path / 'data', range(25), 'shards')
    for shard in ('000000', '000001'):
        (tmp_path / 'data' / shard / 'unfinished').write_bytes(b'This dataset is being written.\n')
    assert bags.open(tmp_path / 'data').unfinished
    write(tmp_path / 'data', (), 'shards', resume=True)
    assert not bags.open(tmp_path / 'data').unfinished


def test_parallel_writers_have_a_mark_each(tmp_path):
    writers = [
        bags.ShardedDatasetWriter(tmp_path / 'data', SPEC, shard_start=start, shard_step=2)
        for start in (0, 1)
    ]
    for number, writer in enumerate(writers):
        writer.append(row(number))
    for writer in writers:
        assert bags.open(tmp_path / 'data').unfinished
        writer.close()
    assert not bags.open(tmp_path / 'data').unfinished
    assert sorted(os.listdir(tmp_path / 'data')) == ['000000', '000001']


class Killing:
    """`os.open` that kills the process before it creates the n-th file."""

    def __init__(self, left, original=os.open):
        self.left, self.original = left, original

    def __call__(self, file, flags, *mode, **options):
        self.left -= bool(flags & os.O_CREAT)
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.original(file, flags, *mode, **options)


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='children are forked')
def test_a_kill_before_the_checksums(tmp_path, monkeypatch):
    """Whenever refs or a field can be opened, its checksums are there."""
    step, killed = 0, True
    while killed:
        step += 1
        path = tmp_path / str(step)
        if not (child := os.fork()):
            monkeypatch.setattr(os, 'open', Killing(step))
            leave_open(bags.DatasetWriter(path, SPEC, checksum=True))
            os._exit(0)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        if (path / 'refs.bag').exists():
            assert numbers_in(path, checksum=True) == []
            assert bags.verify(path) == []
    assert step > 3


class KillingCall:
    """A function of `os` that kills the process before its n-th call."""

    def __init__(self, left, original):
        self.left, self.original = left, original

    def __call__(self, *args, **options):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.original(*args, **options)


@pytest.mark.slow(all_but='True-replace')
@pytest.mark.skipif(not hasattr(os, 'fork'), reason='children are forked')
@pytest.mark.parametrize('call', ['replace', 'pwritev'])
@pytest.mark.parametrize('ended_early', [False, True])
def test_a_kill_while_checksums_are_added(tmp_path, monkeypatch, call, ended_early):
    """Readers take checksums that are there, and a later writer adds the others."""
    step, killed = 0, True
    while killed:
        step += 1
        path = tmp_path / str(step)
        writer = bags.DatasetWriter(path, SPEC)
        for number in range(3):
            writer.append(row(number), flush=True)
        leave_open(writer) if ended_early else writer.close()
        del writer
        if not (child := os.fork()):
            monkeypatch.setattr(os, call, KillingCall(step, getattr(os, call)))
            leave_open(bags.DatasetWriter(path, SPEC, resume=True, checksum=True))
            os._exit(0)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        assert bags.verify(path) == []
        assert numbers_in(path, checksum=(path / 'refs.bag.xxh3').exists()) == [0, 1, 2]
        begun = any(path.glob('*.bag.xxh3'))
        write(path, [3], resume=True)
        assert numbers_in(path, checksum=begun) == [0, 1, 2, 3]
        assert bags.verify(path, notes=True) == []
    assert step > 3


# Records that did not reach the disk.


def begin(path, **options):
    """Leaves a dataset with 3 closed and 4 flushed datapoints, as a killed writer does."""
    write(path, range(3))
    writer = bags.DatasetWriter(path, SPEC, resume=True, **options)
    for number in range(3, 7):
        writer.append(row(number), flush=True)
    leave_open(writer)


def lose(file, start, size):
    """Overwrites bytes by zeros, as in a file whose size reached the disk, but not its content."""
    with open(file, 'r+b') as target:
        target.seek(start)
        target.write(bytes(size))


@pytest.mark.parametrize(
    ('file', 'start'), [('id.bag', 12), ('text.bag', 19), ('limits.text.bag', 24), ('refs.bag', 36)]
)
@pytest.mark.parametrize('way', ['resume', 'recover'])
def test_only_certain_records_are_kept(tmp_path, file, start, way):
    path = tmp_path / 'data'
    begin(path)
    assert numbers_in(path) == list(range(7))
    lose(path / file, start, 3)
    with pytest.raises(bags.CorruptError, match=r'power cut.*keeps 3 records'):
        bags.open(path)
    assert 'power cut' in str(bags.verify(path))
    if way == 'recover':
        assert bags.recover(path)[0].kept == 3
    else:
        write(path, (), resume=True)
    assert numbers_in(path) == [0, 1, 2]
    assert bags.verify(path, notes=True) == []


@pytest.mark.parametrize('with_limits', [False, True])
@pytest.mark.parametrize('way', ['resume', 'recover'])
def test_a_bag_without_records_whose_name_is_lost(tmp_path, with_limits, way):
    path, spec = tmp_path / 'data', {'id': 'int(4)', 'text': 'utf8?'}
    writer = bags.DatasetWriter(path, spec)
    writer.append({'id': 7, 'text': None}, flush=True)
    leave_open(writer)
    del writer
    for name in ('limits.text.bag', 'text.bag')[with_limits:]:
        (path / name).unlink()
    if way == 'recover':
        bags.recover(path)
    else:
        bags.DatasetWriter(path, spec, resume=True).close()
    assert bags.open(path)[0] == {'id': 7, 'text': None}
    assert bags.verify(path, notes=True) == []


@pytest.mark.parametrize('way', ['resume', 'recover'])
def test_records_whose_name_is_lost(tmp_path, way):
    """What was not on disk is dropped, without an error: an earlier shard may have to be recovered too."""
    path = tmp_path / 'data'
    writer = bags.DatasetWriter(path, SPEC)
    writer.append(row(0), flush=True)
    leave_open(writer)
    del writer
    for name in ('refs.bag', 'limits.refs.bag', 'id.bag', 'limits.id.bag'):
        os.truncate(path / name, 0)
    (path / 'text.bag').unlink()
    bags.recover(path) if way == 'recover' else write(path, (), resume=True)
    assert numbers_in(path) == []
    write(path, [1], resume=True)
    assert numbers_in(path) == [1]


def test_a_flush_without_new_records_leaves_the_entry_that_is_on_disk(tmp_path):
    """A power cut while the next entry is written damages that entry only."""
    writer = bags.DatasetWriter(tmp_path / 'data', SPEC, durability='flush')
    for number in range(2):
        writer.append(row(number), flush=True)
    writer.flush()
    shutil.copytree(tmp_path / 'data', tmp_path / 'cut')
    writer.append(row(2), flush=True)
    before, after = ((tmp_path / name / 'unfinished').read_bytes() for name in ('cut', 'data'))
    leave_open(writer)
    torn = bytes(new if new == old else new ^ 0xFF for old, new in zip(before, after, strict=True))
    assert torn not in (before, after)
    (tmp_path / 'cut' / 'unfinished').write_bytes(torn)
    write(tmp_path / 'cut', (), resume=True)
    assert numbers_in(tmp_path / 'cut') == [0, 1]


def test_records_on_disk_whose_name_is_lost(tmp_path):
    """No power cut does that: the dataset is damaged, and stays as it is."""
    path = tmp_path / 'data'
    begin(path)
    for name in ('limits.text.bag', 'text.bag'):
        (path / name).unlink()
    for call in (bags.open, bags.recover):
        with pytest.raises(bags.CorruptError, match=r'has neither text\.bag'):
            call(path)[0]
    assert len(bags.bag.Reader(path / 'id.bag')) == 7


def test_a_bag_keeps_only_certain_records(tmp_path):
    path = tmp_path / 'x.bag'
    with bags.bag.Writer(path) as writer:
        writer.write(b'one')
    writer = bags.bag.Writer(path, mode='append')
    writer.write(b'two')
    writer.flush()
    assert list(bags.bag.Reader(path)) == [b'one', b'two']
    del writer
    assert list(bags.bag.Reader(path)) == [b'one', b'two']
    lose(path, 3, 3)
    with pytest.raises(bags.CorruptError, match='power cut'):
        bags.bag.Reader(path)
    (done,) = bags.recover(path)
    assert (done.kept, done.dropped) == (1, 1)
    assert list(bags.bag.Reader(path)) == [b'one']
    assert os.listdir(tmp_path) == ['x.bag']


@pytest.mark.parametrize('placement', ['tail', 'separate', 'starts'])
def test_recover_closes_a_bag_as_its_writer_would(tmp_path, placement):
    path = tmp_path / 'x.bag'
    writer = bags.bag.Writer(path, limits_placement=placement)
    writer.write(b'one')
    writer.flush()
    del writer
    assert [each.action for each in bags.recover(path)] == ['closed']
    assert list(bags.bag.Reader(path, limits_placement=placement)) == [b'one']


def test_a_bag_with_separate_limits_that_was_being_replaced(tmp_path):
    """Between its two renames `recover` completes the replacement."""
    path = tmp_path / 'x.bag'
    for name, record_ in (('x.bag', b'old'), ('.x.bag.0123abcd.new', b'newer')):
        with bags.bag.Writer(tmp_path / name, limits_placement='separate') as writer:
            writer.write(record_)
    os.rename(tmp_path / 'limits..x.bag.0123abcd.new', tmp_path / 'limits..x.bag.0123abcd.swap')
    os.unlink(tmp_path / 'limits.x.bag')
    bags.recover(path)
    assert list(bags.bag.Reader(path, limits_placement='separate')) == [b'newer']
    assert sorted(os.listdir(tmp_path)) == ['limits.x.bag', 'x.bag']


def with_pauses(run, pause):
    """Runs a function, and another one before each change of a name."""
    is_paused = False

    def watched(call):
        def before(*args, **options):
            nonlocal is_paused
            if not is_paused:
                is_paused = True
                pause()
                is_paused = False
            return call(*args, **options)

        return before

    with pytest.MonkeyPatch.context() as patch:
        for name in ('replace', 'unlink'):
            patch.setattr(os, name, watched(getattr(os, name)))
        run()


def start_bag(path, placement, is_closed):
    writer = bags.bag.Writer(path, limits_placement=placement, checksum=True)
    writer.write(b'old')
    writer.close() if is_closed else writer.flush()


def replace_bag(path, placement):
    with bags.bag.Writer(path, mode='overwrite', limits_placement=placement, checksum=True) as writer:
        writer.write(b'newer')
        writer.write(b'newest')


@pytest.mark.parametrize('old', ['tail', 'separate', 'starts'])
@pytest.mark.parametrize('new', ['tail', 'separate', 'starts'])
@pytest.mark.parametrize('is_closed', [True, False])
def test_a_kill_while_a_bag_is_replaced(tmp_path, old, new, is_closed):
    """The limits, checksums and journal of the old bag are never taken for those of the new one, nor lost."""
    path, images = tmp_path / 'run' / 'x.bag', []
    path.parent.mkdir()
    start_bag(path, old, is_closed)

    def keep():
        images.append(tmp_path / str(len(images)))
        shutil.copytree(path.parent, images[-1])

    def read(image, placement):
        try:
            return list(bags.bag.Reader(image / 'x.bag', limits_placement=placement, checksum=True))
        except (bags.CorruptError, FileNotFoundError):
            return []

    with_pauses(lambda: replace_bag(path, new), keep)
    keep()
    for image in images:
        bags.recover(image / 'x.bag')
        is_new = read(image, new) == [b'newer', b'newest']
        assert is_new or read(image, old) == [b'old']
        assert not [name for name in os.listdir(image) if name.endswith(('.new', '.swap', '.unfinished'))]
    assert is_new
    assert len(images) > 4


@pytest.mark.parametrize('old', ['tail', 'separate'])
@pytest.mark.parametrize('new', ['tail', 'separate'])
@pytest.mark.parametrize('is_closed', [True, False])
def test_recover_leaves_a_bag_that_is_being_replaced(tmp_path, old, new, is_closed):
    path = tmp_path / 'x.bag'
    start_bag(path, old, is_closed)

    def recover():
        with contextlib.suppress(bags.CorruptError, FileNotFoundError):  # Between two steps.
            bags.recover(path)

    with_pauses(lambda: replace_bag(path, new), recover)
    assert list(bags.bag.Reader(path, limits_placement=new, checksum=True)) == [b'newer', b'newest']
    assert bags.verify(path) == []


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='children are forked')
@pytest.mark.parametrize(
    ('mode', 'suffix'),
    [
        ('create', 'xxh3'),
        ('create', 'unfinished'),
        ('append', 'xxh3'),
        ('append', 'unfinished'),
        ('overwrite', 'xxh3'),
    ],
)
def test_a_kill_before_a_file_beside_a_bag_is_renamed(tmp_path, monkeypatch, mode, suffix):
    path = tmp_path / 'x.bag'
    if mode != 'create':
        with bags.bag.Writer(path, checksum=True) as writer:
            writer.write(b'one')
    if not (child := os.fork()):
        replace = os.replace

        def kill(source, target, **options):
            if target.endswith(suffix):
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target, **options)

        monkeypatch.setattr(os, 'replace', kill)
        bags.bag.Writer(path, mode=mode, checksum=True)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    if mode == 'create':
        with bags.bag.Writer(path, mode='append', checksum=True) as writer:
            writer.write(b'one')
    assert bags.verify(path) == []
    notes = map(str, bags.verify(path, notes=True))
    assert any('.new: was left by a writer that was killed' in note for note in notes)
    bags.recover(path)
    assert sorted(os.listdir(tmp_path)) == ['x.bag', 'x.bag.xxh3']
    assert list(bags.bag.Reader(path, checksum=True)) == [b'one']
    assert bags.verify(path, notes=True) == []


def test_limits_of_which_zeros_are_left(tmp_path):
    """The bag may be the one that a killed writer was writing: what there is of it is compared, too."""
    path = tmp_path / 'x.bag'
    writer = bags.bag.Writer(path, limits_placement='separate')
    for number in range(6):
        writer.write(b'record')
        if number % 3 == 2:
            writer.flush()
    del writer
    (tmp_path / 'limits.x.bag').write_bytes(bytes(3 * 8))
    with pytest.raises(bags.CorruptError, match='power cut'):
        bags.bag.Reader(path, limits_placement='separate')
    bags.recover(path)
    assert list(bags.bag.Reader(path, limits_placement='separate')) == []


def test_limits_of_a_field_of_which_zeros_are_left(tmp_path):
    """A field that was not being written last has all its limits, unless the power was cut."""
    path, spec = tmp_path / 'data', {'id': 'int(4)', 'text': 'utf8?'}
    writer = bags.DatasetWriter(path, spec)
    for number in range(4):
        writer.append({'id': number, 'text': None if number == 3 else 'text'}, flush=True)
    leave_open(writer)
    del writer
    (path / 'limits.text.bag').write_bytes(bytes(2 * 8))
    bags.recover(path)
    assert len(bags.open(path)) == 0
    assert bags.verify(path, notes=True) == []


# A full shard is closed in a thread.


def test_a_shard_is_synced_while_the_next_one_is_written(tmp_path, monkeypatch):
    """Meanwhile no datapoint of the next one is readable: a power cut could lose earlier ones."""
    fsync, goes_on = os.fsync, threading.Event()

    def wait(fd):
        if threading.current_thread() is not threading.main_thread():
            assert goes_on.wait(60)
        fsync(fd)

    monkeypatch.setattr(os, 'fsync', wait)
    path = tmp_path / 'data'
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=10) as writer:
        for number in range(15):
            writer.append(row(number), flush=False)
        assert numbers_in(path) == list(range(10))
        goes_on.set()
        writer.flush()
        assert numbers_in(path) == list(range(15))
    assert bags.verify(path) == []


@pytest.mark.parametrize('call', ['append', 'flush', 'close', 'copy'])
def test_a_sync_that_fails_in_a_thread(tmp_path, monkeypatch, call):
    fsync, path = os.fsync, tmp_path / 'data'

    def fail(fd):
        if threading.current_thread() is not threading.main_thread():
            raise OSError(errno.EIO, 'as told')
        fsync(fd)

    def write_all():
        if call == 'copy':
            bags.copy(tmp_path / 'source', path, shard_length=10)
            return
        with bags.ShardedDatasetWriter(path, SPEC, shard_length=10) as writer:
            for number in range(11):
                writer.append(row(number), flush=call == 'append')
            if call == 'flush':
                writer.flush()

    write(tmp_path / 'source', range(15))
    with monkeypatch.context() as patch:
        patch.setattr(os, 'fsync', fail)
        with pytest.raises(OSError, match='as told') as caught:
            write_all()
    assert '000000' in caught.value.filename
    del caught
    gc.collect()  # The writer, which is open unless a call in its `with` block raised.
    assert bags.open(path).unfinished
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=10, resume=True) as writer:
        for number in range(len(writer), 25):
            writer.append(row(number))
    assert numbers_in(path) == list(range(25))
    assert bags.verify(path) == []


@pytest.mark.parametrize('how', ['resume', 'recover'])
def test_a_kill_while_a_shard_is_closed_and_the_next_one_is_written(tmp_path, how):
    path = tmp_path / 'data'
    code = (
        'import os, sys, threading, time, bags\n'
        'fsync = os.fsync\n'
        'os.fsync = lambda fd: fsync(fd) if threading.current_thread() is threading.main_thread() '
        'else time.sleep(60)\n'
        "writer = bags.ShardedDatasetWriter(sys.argv[1], {'id': 'int(4)', 'text': 'utf8'}, shard_length=10)\n"
        "for number in range(15): writer.append({'id': number, 'text': f'text {number}'}, flush=False)\n"
        'os._exit(0)\n'
    )
    subprocess.run([sys.executable, '-c', code, str(path)], check=True)
    assert numbers_in(path) == list(range(10))
    if how == 'recover':
        bags.recover(path)
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=10, resume=True) as writer:
        assert len(writer) == 10
        for number in range(10, 25):
            writer.append(row(number))
    assert numbers_in(path) == list(range(25))
    assert bags.verify(path) == []
