"""A dataset whose writer ended early is reported as unfinished, until a writer finishes it."""

import contextlib
import errno
import os
import random
import signal
import subprocess

import pytest

import bags
from bags.storage import local

SPEC = {'id': 'int(4)', 'text': 'utf8', 'words': 'utf8[]'}
KINDS = {'folder': {}, 'shards': {'shard_length': 100}}


def row(number):
    return {'id': number, 'text': f'text {number}', 'words': ['a', 'b'][: number % 3]}


def writer_of(path, options, **more):
    kind = bags.ShardedDatasetWriter if options else bags.DatasetWriter
    return kind(path, SPEC, **options, **more)


def write_until(path, options, stop, fail_at, **more):
    with writer_of(path, options, **more) as writer:
        for number in range(len(writer), stop):
            if number == fail_at:
                raise ZeroDivisionError
            writer.append(row(number))


def is_said(path):
    """Returns whether the dataset is reported as unfinished, by all that report it."""
    dataset = bags.open(path)
    said = {
        dataset.unfinished,
        ', unfinished' in repr(dataset),
        ', unfinished' in str(dataset),
        ', unfinished' in repr(bags.concat([dataset])[:1]),
        bags.concat([dataset])[:1].unfinished,
        bags.info(path).unfinished,
        any('unfinished' in note.detail for note in bags.verify(path, notes=True)),
    }
    assert len(said) == 1, said
    assert bags.verify(path) == []
    return said.pop()


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('fail_at', [1, 100, 101, 200, 301])
def test_a_block_that_ends_by_an_exception(tmp_path, kind, fail_at):
    path, options = tmp_path / 'd', KINDS[kind]
    with pytest.raises(ZeroDivisionError):
        write_until(path, options, 400, fail_at)
    assert is_said(path)
    assert list(bags.open(path)) == [row(number) for number in range(fail_at)]
    with pytest.raises(ZeroDivisionError):
        write_until(path, options, 400, fail_at + 50, resume=True)
    assert is_said(path)
    write_until(path, options, 400, None, resume=True)
    assert not is_said(path)
    assert list(bags.open(path)) == [row(number) for number in range(400)]
    assert not any(name.endswith('unfinished') for _, _, names in os.walk(path) for name in names)


@pytest.mark.parametrize('kind', KINDS)
def test_it_is_unfinished_while_it_is_written(tmp_path, kind):
    with writer_of(tmp_path / 'd', KINDS[kind]) as writer:
        for number in range(200):
            writer.append(row(number), flush=True)
            assert number % 99 or is_said(tmp_path / 'd')
    assert not is_said(tmp_path / 'd')
    with writer_of(tmp_path / 'd', KINDS[kind], resume=True) as writer:
        writer.append(row(200), flush=True)
        assert is_said(tmp_path / 'd')
    assert not is_said(tmp_path / 'd')


@pytest.mark.parametrize('kind', KINDS)
def test_an_exception_before_the_first_datapoint_leaves_nothing(tmp_path, kind):
    with pytest.raises(ZeroDivisionError):
        write_until(tmp_path / 'd', KINDS[kind], 1, 0)
    assert not (tmp_path / 'd').exists()
    (tmp_path / 'there').mkdir()
    with pytest.raises(ZeroDivisionError):
        write_until(tmp_path / 'there', KINDS[kind], 1, 0)
    assert list((tmp_path / 'there').iterdir()) == []
    write_until(tmp_path / 'there', KINDS[kind], 0, None)
    with pytest.raises(ZeroDivisionError):
        write_until(tmp_path / 'there', KINDS[kind], 1, 0, resume=True)
    assert len(bags.open(tmp_path / 'there')) == 0


@pytest.mark.parametrize('way', ['write', 'copy'])
def test_a_run_that_fails_at_once_can_be_started_again(tmp_path, way):
    def run(fails):
        def function(value):
            if fails:
                raise ZeroDivisionError
            return {'n': value} if way == 'write' else [0] * len(value['id'])

        if way == 'write':
            return bags.write(range(9), tmp_path / 'd', {'n': 'int'}, transform=function, workers=2)
        return bags.copy(tmp_path / 'source', tmp_path / 'd', add={'n': ('int', function)})

    write_until(tmp_path / 'source', {}, 9, None)
    with pytest.raises(ZeroDivisionError):
        run(True)
    assert not (tmp_path / 'd').exists()
    assert run(False).datapoints == 9


def test_recover_accepts_what_is_there(tmp_path):
    for kind, options in KINDS.items():
        path = tmp_path / kind
        with pytest.raises(ZeroDivisionError):
            write_until(path, options, 400, 301)
        before = {file: file.read_bytes() for file in path.rglob('*.bag')}
        done = bags.recover(path)
        assert [recovery.action for recovery in done].count('closed') == 1
        assert 'accepted as it is' in str(done[-1])
        assert not is_said(path)
        assert {file: file.read_bytes() for file in path.rglob('*.bag')} == before
        assert {recovery.action for recovery in bags.recover(path)} == {'nothing'}


class Failing:
    """Makes the n-th call of `create` and all later ones fail, until `heal`."""

    def __init__(self, monkeypatch, number, heal):
        self.left, self.heal = number, heal
        create = local.LocalStore.create

        def failing(store, path):
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.EIO, 'as told', path)
            return create(store, path)

        monkeypatch.setattr(local.LocalStore, 'create', failing)


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('removes', [True, False])
@pytest.mark.parametrize('number', range(8))
def test_a_folder_whose_making_failed_half_way(tmp_path, monkeypatch, kind, removes, number):
    path, options = tmp_path / 'd', KINDS[kind]
    if options:
        write_until(path, options, 100, None)
    with monkeypatch.context() as patch:
        Failing(patch, number, heal=False)
        if not removes:
            patch.setattr(os, 'unlink', lambda *_, **__: exec('raise OSError(5, "as told")'))
        with pytest.raises(OSError, match='as told'):
            write_until(path, options, 101, None, resume=bool(options))
    if path.exists() and options:
        assert bags.verify(path) == []
        assert len(bags.open(path)) == 100
    elif path.exists() and (path / 'refs.bag').exists():
        assert bags.verify(path) == []
        assert bags.open(path).unfinished
    write_until(path, options, 101, None, resume=True)
    assert list(bags.open(path)) == [row(number) for number in range(101)]
    assert not is_said(path)


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='a child is forked')
@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('last', ['metadata.json', 'spec.json'])
def test_the_order_of_fields_of_a_folder_that_was_only_begun(tmp_path, kind, last):
    """The order is in metadata.json."""
    path, spec = tmp_path / 'd', {'words': 'utf8[]', 'id': 'int(4)', 'text': 'utf8'}
    make = bags.ShardedDatasetWriter if KINDS[kind] else bags.DatasetWriter
    replace = local.LocalStore.replace

    def replace_until(store, file, *args):
        if os.path.basename(file) == last:
            os._exit(9)
        replace(store, file, *args)

    if not (child := os.fork()):
        try:
            local.LocalStore.replace = replace_until
            make(path, spec)
        finally:
            os._exit(1)  # The rest of the test is the parent's.
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert bool([*path.rglob('metadata.json')]) == (last == 'spec.json')
    with contextlib.suppress(FileNotFoundError):
        bags.recover(path)
    with make(path, spec, resume=True) as writer:
        writer.append(row(0))
    assert list(bags.open(path).spec) == list(spec)
    with make(path, dict(sorted(spec.items())), resume=True) as writer:
        writer.append(row(1))
    assert list(bags.open(path).spec) == list(spec)


LEFT = ['spec.json.123.new', 'unfinished.7.new', '.refs.bag.0123abcd.new', 'limits..text.bag.0123abcd.new']


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('way', ['resume', 'recover'])
def test_temporary_files_of_killed_writers(tmp_path, kind, way):
    path, options = tmp_path / 'd', KINDS[kind]
    write_until(path, options, 50, None)
    folder = path / '000000' if options else path
    files = [folder / name for name in LEFT] + [path / 'progress.json.3.new'] * bool(options)
    for file in files:
        file.write_bytes(b'x')
    found = bags.verify(path, notes=True)
    assert {note.path for note in found} == set(map(str, files))
    assert all('left by a writer that was killed' in note.detail for note in found)
    if way == 'recover':
        bags.recover(path)
    else:
        for start in (0, 1) if options else (0,):  # Closed shards are left as they are.
            (folder if start == 0 else path) and write_until(path, options, 51 + start, None, resume=True)
        if options:
            bags.recover(path)
    assert bags.verify(path, notes=True) == []


CODE = """
import sys, bags
from tests.dataset.writing.test_unfinished import row, writer_of, KINDS
with writer_of(sys.argv[1], KINDS[sys.argv[2]], resume=True) as writer:
    print('open', flush=True)
    for number in range(len(writer), 10**9):
        writer.append(row(number), flush=number % 10 == 0)
"""


def kill_writers(kit, path, kind, times, seed):
    chance = random.Random(seed)
    for _ in range(times):
        process = kit.python(CODE, path, kind, wait=False)
        process.stdout.readline()
        with process:
            try:
                process.wait(chance.random() * 0.1)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
        assert is_said(path)
    bags.recover(path)
    assert not is_said(path)


@pytest.mark.slow(all_but='folder')
@pytest.mark.parametrize('kind', KINDS)
def test_killed_writers(tmp_path, kit, kind):
    kill_writers(kit, tmp_path / 'd', kind, 3, 0)


@pytest.mark.campaign
@pytest.mark.parametrize('kind', KINDS)
def test_many_killed_writers(tmp_path, kit, found, kind):
    kill_writers(kit, tmp_path / 'd', kind, 40, 1)
    found('40 writers killed at random moments: each left a dataset that is unfinished')


# Parallel writers.


def write_share(path, worker, workers, count=3, fails=False, **options):
    with bags.ShardedDatasetWriter(
        path, SPEC, shard_length=2, shard_start=worker, shard_step=workers, **options
    ) as writer:
        for number in range(count):
            writer.append(row(number))
        if fails:
            raise ZeroDivisionError


def names_of(path):
    return sorted(os.listdir(path))


def test_writers_that_have_not_begun(tmp_path):
    path = tmp_path / 'd'
    for worker in (2, 0):
        write_share(path, worker, 4)
        assert is_said(path)
    not_begun = '2 writers have not begun (no shard 000001, 000003)'
    assert bags.info(path).not_begun == ['000001', '000003']
    assert [note for note in bags.verify(path, notes=True) if not_begun in note.detail]
    with pytest.raises(ValueError, match=r'2 writers have not begun \(no shard 000001, 000003\)$'):
        bags.consolidate(path)
    write_share(path, 3, 4)
    assert bags.info(path).not_begun == ['000001']
    write_share(path, 1, 4, count=0)
    assert not is_said(path)
    assert bags.info(path).not_begun == []
    assert names_of(path) == [f'{number:06}' for number in (0, 1, 2, 3, 4, 6, 7)]
    assert len(bags.open(path)) == 9
    bags.consolidate(path)


def test_recover_names_writers_that_have_not_begun(tmp_path):
    write_share(tmp_path / 'd', 1, 3)
    *_, last = bags.recover(tmp_path / 'd')
    assert last.detail.endswith('with 3 datapoints; 2 writers have not begun (no shard 000000, 000002)')
    assert not is_said(tmp_path / 'd')
    assert names_of(tmp_path / 'd') == ['000001', '000004']
    for worker in (2, 0):  # They may still begin.
        write_share(tmp_path / 'd', worker, 3)
    assert not is_said(tmp_path / 'd')


def test_a_writer_that_fails_has_begun(tmp_path):
    path = tmp_path / 'd'
    with pytest.raises(ZeroDivisionError):
        write_share(path, 0, 2, fails=True)
    assert bags.info(path).not_begun == ['000001']
    write_share(path, 1, 2)
    assert bags.info(path).not_begun == []
    assert is_said(path)
    write_share(path, 0, 2, resume=True)
    assert not is_said(path)


def test_writers_that_all_fail_before_the_first_datapoint_leave_nothing(tmp_path):
    for worker in range(2):
        with pytest.raises(ZeroDivisionError):
            write_share(tmp_path / 'd', worker, 2, count=0, fails=True)
    assert not [path for path in (tmp_path / 'd').rglob('*') if path.is_file()]


def test_one_writer_that_resumes_finishes_for_all(tmp_path):
    write_share(tmp_path / 'd', 0, 3)
    with bags.ShardedDatasetWriter(tmp_path / 'd', SPEC, resume=True) as writer:
        writer.append(row(9))
    assert not is_said(tmp_path / 'd')


def test_later_writers_whose_numbers_do_not_say_how_many(tmp_path):
    write_share(tmp_path / 'd', 10, 4)
    assert not is_said(tmp_path / 'd')
    assert names_of(tmp_path / 'd') == ['000010', '000014']
