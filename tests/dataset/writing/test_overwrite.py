"""Mode 'overwrite': the old or the new dataset is there, whole, whenever its writer is killed."""

import itertools
import os
import pickle
import random
import shutil
import signal

import pytest

import bags
from bags.dataset import sharded_reader

SPEC = {'id': 'int(4)', 'text': 'utf8'}
WAYS = {'folder': {}, 'shards': {'shard_length': 10}}


def write(path, way, first, count=30, fail_at=None, **options):
    kind = bags.ShardedDatasetWriter if WAYS[way] else bags.DatasetWriter
    with kind(path, SPEC, **WAYS[way], **options) as writer:
        for number in range(first, first + count):
            if number == fail_at:
                raise ZeroDivisionError
            writer.append({'id': number, 'text': f'text {number}'})


def first_of(path):
    """Returns the first number of a dataset, and checks that the dataset is whole."""
    rows = list(bags.open(path))
    first = rows[0]['id']
    assert rows == [{'id': number, 'text': f'text {number}'} for number in range(first, first + 30)]
    assert bags.verify(path) == []
    assert not bags.open(path).unfinished
    return first


@pytest.mark.parametrize(('old', 'new'), list(itertools.product(WAYS, WAYS)))
def test_overwrite(tmp_path, old, new):
    path = tmp_path / 'd'
    write(path, new, 0, mode='overwrite')  # Nothing to overwrite.
    assert first_of(path) == 0
    shutil.rmtree(path)
    write(path, old, 0)
    kind = bags.ShardedDatasetWriter if WAYS[new] else bags.DatasetWriter
    with kind(path, SPEC, **WAYS[new], mode='overwrite') as writer:
        for number in range(100, 130):
            writer.append({'id': number, 'text': f'text {number}'})
        assert first_of(path) == 0
    assert writer.path == str(path)
    assert first_of(path) == 100
    with pytest.raises(ZeroDivisionError):
        write(path, new, 200, fail_at=215, mode='overwrite')
    assert first_of(path) == 100
    assert os.listdir(tmp_path) == ['d']


def test_copy_convert_and_write(tmp_path):
    path = tmp_path / 'd'
    write(path, 'shards', 0)
    bags.copy(path, path, compression=['text'], mode='overwrite')
    assert first_of(path) == 0
    assert (path / '000000' / 'text.bagz').exists()
    rows = [{'id': number, 'text': f'text {number}'} for number in range(50, 80)]
    bags.write(rows, path, SPEC, mode='overwrite')
    assert first_of(path) == 50
    (tmp_path / 'files').mkdir()
    (tmp_path / 'files' / 'a.txt').write_text('hello')
    bags.convert(tmp_path / 'files', path, mode='overwrite')
    assert bags.open(path)[0]['txt'] == 'hello'


def test_what_is_not_overwritten(tmp_path):
    path = tmp_path / 'd'
    with pytest.raises(ValueError, match="mode: expected 'create' or 'overwrite', got 'w'"):
        write(path, 'folder', 0, mode='w')
    with pytest.raises(ValueError, match='resume'):
        write(path, 'folder', 0, mode='overwrite', resume=True)
    write(path, 'shards', 0)
    for place in ('notes.txt', '000001/notes.txt'):
        (path / place).write_text('mine')
        with pytest.raises(FileExistsError, match=r'notes\.txt.* is not part of a dataset'):
            write(path, 'shards', 100, mode='overwrite')
        assert (path / place).read_text() == 'mine'
        (path / place).unlink()
    with bags.ShardedDatasetWriter(path, SPEC, resume=True) as writer:
        writer.append({'id': 30, 'text': ''})
        with pytest.raises(BlockingIOError):
            write(path, 'folder', 100, mode='overwrite')
    (tmp_path / 'link').symlink_to(path)
    write(tmp_path / 'link', 'folder', 100, mode='overwrite')
    assert first_of(path) == 100
    assert (tmp_path / 'link').is_symlink()


@pytest.mark.parametrize('way', WAYS)
def test_open_readers_never_mix_old_and_new(tmp_path, way):
    """Files they have open stay readable; opening others raises an error."""
    path = tmp_path / 'd'
    write(path, way, 0)
    reader, other = bags.open(path), bags.open(path)
    assert reader[3] == {'id': 3, 'text': 'text 3'}
    assert other[3, 'id'] == {'id': 3}
    write(path, way, 100, mode='overwrite')
    assert reader[4] == {'id': 4, 'text': 'text 4'}
    with pytest.raises(bags.CorruptError, match='was replaced by another since the dataset was opened'):
        other[3, 'text']
    if way == 'shards':
        with pytest.raises(bags.CorruptError, match='was replaced by another since'):
            reader.batch([15])
    assert pickle.loads(pickle.dumps(reader))[3]['id'] == 103


CODE = """
import sys
from tests.dataset.writing.test_overwrite import write
print('open', flush=True)
for first in range(0, 10**9, 1000):
    write(sys.argv[1], sys.argv[2], first, mode='overwrite')
"""


def kill_while_overwriting(kit, folder, times, seed, way):
    chance = random.Random(seed)
    path = folder / 'd'
    seen = set()
    for _ in range(times):
        process = kit.python(CODE, path, way, wait=False)
        with process:
            process.stdout.readline()
            until = chance.random() * 0.2
            try:
                process.wait(until)
            except Exception:
                process.send_signal(signal.SIGKILL)
        if seen and not path.exists():
            bags.recover(path)
        if path.exists():
            seen.add(first_of(path))
        else:
            assert not seen
    write(path, way, 7, mode='overwrite')
    assert first_of(path) == 7
    assert os.listdir(folder) == ['d']


@pytest.mark.slow(all_but='folder')
@pytest.mark.parametrize('way', WAYS)
def test_killed_while_overwriting(tmp_path, kit, way):
    kill_while_overwriting(kit, tmp_path, 3, 0, way)


@pytest.mark.campaign
@pytest.mark.parametrize('way', WAYS)
def test_killed_at_many_moments_while_overwriting(tmp_path, kit, found, way):
    kill_while_overwriting(kit, tmp_path, 60, 1, way)
    found('60 writers killed while they overwrite: 0 datasets lost')


def test_leftovers_of_a_killed_overwrite(tmp_path):
    path = tmp_path / 'd'
    write(path, 'shards', 0)
    for name in ('.d.0123abcd.new', '.d.4567cdef.old'):
        write(tmp_path / name, 'shards', 500)
    (tmp_path / '.e.0123abcd.new').mkdir()  # A temporary folder of another dataset.
    found = bags.verify(path, notes=True)
    assert [os.path.basename(note.path) for note in found] == ['.d.0123abcd.new', '.d.4567cdef.old']
    with bags.DatasetWriter(tmp_path / 'd', SPEC, mode='overwrite') as writer:
        assert {'d', os.path.basename(writer.path), '.e.0123abcd.new'} == set(os.listdir(tmp_path))
        (at_work,) = bags.verify(path, notes=True)
        assert at_work.path == writer.path
        assert [recovery.action for recovery in bags.recover(path)] == ['nothing'] * 3
        writer.append({'id': 0, 'text': ''})
    shutil.move(path, tmp_path / '.d.0123abcd.old')
    bags.recover(path)
    assert len(bags.open(path)) == 1


def test_leftovers_of_a_bag(tmp_path):
    path = tmp_path / 'x.bag'
    with bags.bag.Writer(path) as writer:
        writer.write(b'1')
    for name in ('.x.bag.0123abcd.new', 'limits..x.bag.0123abcd.new'):
        (tmp_path / name).write_bytes(b'')
    assert len(bags.verify(path, notes=True)) == 2
    with bags.bag.Writer(path, mode='overwrite') as writer:
        assert not (tmp_path / '.x.bag.0123abcd.new').exists()
        writer.write(b'2')
        writer.flush()
        bags.recover(path)
    assert list(bags.bag.Reader(path)) == [b'2']
    assert os.listdir(tmp_path) == ['x.bag']


@pytest.mark.parametrize('way', WAYS)
def test_a_disk_that_is_full_leaves_the_old_one(tmp_path, monkeypatch, way):
    path = tmp_path / 'd'
    write(path, way, 0)

    def full(*_):
        raise OSError(28, 'as told')

    def overwrite(patch):
        kind = bags.ShardedDatasetWriter if WAYS[way] else bags.DatasetWriter
        with kind(path, SPEC, **WAYS[way], mode='overwrite') as writer:
            for number in range(100, 115):
                writer.append({'id': number, 'text': ''})
            patch.setattr(os, 'pwritev', full)
            writer.append({'id': 115, 'text': ''}, flush=True)

    with monkeypatch.context() as patch, pytest.raises(OSError, match='as told'):
        overwrite(patch)
    assert first_of(path) == 0
    assert os.listdir(tmp_path) == ['d']


@pytest.mark.parametrize('name', ['000000', '000001', '000003'])
def test_a_sharded_dataset_in_place_of_a_shard_is_refused(tmp_path, name):
    spec = {'id': 'int(8)', 'text': 'utf8'}
    with bags.ShardedDatasetWriter(tmp_path / 'a', spec, shard_length=4) as writer:
        for i in range(10):
            writer.append({'id': i, 'text': str(i)})
    for mode in ('create', 'overwrite'):
        with pytest.raises(FileExistsError, match='the folder would be a shard of the dataset'):
            bags.copy(tmp_path / 'a', tmp_path / 'a' / name, mode=mode)
    assert bags.open(tmp_path / 'a').column('id').tolist() == list(range(10))
    assert len(list((tmp_path / 'a').iterdir())) == 3
    for number in range(2):  # Names of datasets may be numbers.
        bags.copy(tmp_path / 'a', tmp_path / 'many' / str(number))
    assert len(bags.open(tmp_path / 'many/1')) == 10


def test_a_dataset_that_is_replaced_while_it_is_opened(tmp_path, monkeypatch):
    path = tmp_path / 'd'
    write(path, 'shards', 0)
    listing = sharded_reader.list_local_shards

    def listed_before_the_swap(store, directory):
        found = listing(store, directory)
        write(path, 'shards', 100, mode='overwrite')
        return found

    with monkeypatch.context() as patch:
        patch.setattr(sharded_reader, 'list_local_shards', listed_before_the_swap)
        with pytest.raises(bags.CorruptError, match='was replaced by another while it was opened'):
            bags.open(path)
    assert first_of(path) == 100


def test_the_longest_name_of_a_field(tmp_path):
    name = 'f' * 200
    for mode in ('create', 'overwrite'):
        with bags.DatasetWriter(tmp_path / 'new', {name: 'utf8'}, checksum=True, mode=mode) as writer:
            writer.append({name: mode})
    with bags.open(tmp_path / 'new', checksum=True) as dataset:
        assert dataset[0] == {name: 'overwrite'}


@pytest.mark.parametrize('name', ['n' * 255, 'é' * 127])
def test_the_longest_name_of_a_folder(tmp_path, name):
    path = tmp_path / name
    for first in (0, 100):
        write(path, 'shards', first, mode='overwrite')
        assert first_of(path) == first
    for _ in range(2):
        bags.export(path, tmp_path / name[:-1], mode='overwrite')
    with bags.DatasetWriter(path, SPEC, mode='overwrite') as writer:
        shutil.copytree(writer.path, f'{writer.path}'.replace('.new', '.old'))
        assert len(bags.verify(path, notes=True)) == 2
    bags.recover(path)
    assert sorted(os.listdir(tmp_path)) == sorted([name, name[:-1]])
