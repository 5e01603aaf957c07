"""Many files with few descriptors: one budget for the process; a file is opened again if it is the same."""

import gc
import mmap
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import bags
from bags.storage import Hints
from bags.storage.descriptors import descriptors, opened_path
from bags.storage.local import LocalStore
from bags.storage.pread_file import PreadFile

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='counts descriptors in /proc')

LIMITS = """
import os, resource, sys
soft, hard = map(int, sys.argv[1:3])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
os.chdir(sys.argv[3])
import bags
"""
MIXTURE = """
datasets = [bags.open(name) for name in sorted(os.listdir('.'))]
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
loader = bags.Loader(bags.concat(datasets), 7, seed=0, workers=2)
ids = [id for batch in loader for id in batch['id'].tolist()]
assert sorted(ids) == sorted(id for dataset in datasets for id in dataset.column('id').tolist())
for dataset in datasets:
    for index in range(0, len(dataset), 7):
        assert dataset[index] == {'id': index, **{f'f{j}': b'%d' % (index + j) for j in range(11)}}, index
with open(os.devnull), open(os.devnull):  # The program can open files, too.
    print(len(os.listdir('/proc/self/fd')), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def write(path, count=20, fields=11, shard_length=None):
    spec = {'id': 'int(8)', **{f'f{j}': 'bytes' for j in range(fields)}}
    kind = bags.DatasetWriter if shard_length is None else bags.ShardedDatasetWriter
    options = {} if shard_length is None else {'shard_length': shard_length}
    with kind(path, spec, durability='none', **options) as writer:
        for index in range(count):
            writer.append({'id': index, **{f'f{j}': b'%d' % (index + j) for j in range(fields)}})
    return path


@pytest.fixture(scope='module')
def mixture(tmp_path_factory):
    folder = tmp_path_factory.mktemp('mixture')
    for number in range(12):
        write(folder / f'one{number:02}')
    for number in range(2):
        write(folder / f'many{number}', 30, shard_length=3)
    return folder


@pytest.mark.parametrize(('soft', 'hard'), [(96, 96), (96, 4096)])
def test_datasets_with_more_files_than_descriptors(mixture, kit, soft, hard):
    count, limit = map(int, kit.python(LIMITS + MIXTURE, soft, hard, mixture).split())
    if soft == hard:
        assert count < limit == soft
    else:
        assert count > soft
        assert limit > soft


def test_the_limit_is_raised_only_when_it_is_needed(mixture, kit, monkeypatch):
    few = "bags.open('one00')[:]\nprint(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    assert int(kit.python(LIMITS + few, 96, 4096, mixture)) == 96
    monkeypatch.setenv('BAGS_RAISE_FILE_LIMIT', '0')
    many = "datasets = [bags.open(name) for name in os.listdir('.')]\nfor dataset in datasets: dataset[:]\n"
    assert int(kit.python(LIMITS + many + few, 96, 4096, mixture)) == 96


OPTIONS = "dict(mapped=False) if sys.argv[4] == 'pread' else dict(cache_policy=sys.argv[4])"
FEW = """
dataset = bags.open('data', **(OPTIONS if sys.argv[4] else {}))
other = bags.open('other', mapped=False)
assert dataset[0]['f0'][:1] == b'0' and len(dataset[0]['f0']) == 1_000_000
def close_descriptors():
    assert [other[index]['id'] for index in range(len(other))] == list(range(len(other)))
    assert not any('/data/' in os.path.realpath(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd'))
""".replace('OPTIONS', OPTIONS)
READ = """
try:
    print(*(value[:1].decode() + str(len(value)) for value in dataset.batch([0, 1, 2], 'f0')['f0']))
except bags.CorruptError as exc:
    print(exc)
"""


@pytest.fixture
def large(tmp_path):
    """A dataset of large records, and one with enough files to take all descriptors of a small limit."""
    rewrite(tmp_path / 'data', '012')
    write(tmp_path / 'other', 40, 1, shard_length=1)
    return tmp_path


def rewrite(path, digits, **options):
    with bags.DatasetWriter(path, {'f0': 'bytes'}, durability='none', **options) as writer:
        for digit in digits:
            writer.append({'f0': digit.encode() * 1_000_000})


ACCESS = pytest.mark.parametrize('access', ['', 'pread', 'direct_io'])


def read_after(kit, folder, change, access):
    code = f'{LIMITS}{FEW}close_descriptors()\n{change}\n{READ}'
    return kit.python(code, 64, 64, folder, access).decode().strip()


@pytest.mark.slow('direct_io')
@ACCESS
def test_a_file_is_opened_again(large, kit, access):
    moved = "os.mkdir('elsewhere'), os.chdir('elsewhere')"
    assert read_after(kit, large, moved, access) == '01000000 11000000 21000000'


@pytest.mark.slow('direct_io')
@ACCESS
def test_a_replaced_file_is_not_opened_again(large, kit, access):
    rewrite(large / 'new', 'abc')
    replace = "os.rename('data', 'old'); os.rename('new', 'data')"
    text = read_after(kit, large, replace, access)
    if access:
        assert text.startswith(str(large / 'data'))
        assert 'was replaced or changed since it was opened' in text
        assert 'open the dataset again' in text
    else:
        assert text == '01000000 11000000 21000000'  # The map has the bytes.


@pytest.mark.slow('direct_io')
@ACCESS
def test_a_removed_file(large, kit, access):
    text = read_after(kit, large, "import shutil; shutil.rmtree('data')", access)
    if access:
        assert 'No such file' in text
    else:
        assert text == '01000000 11000000 21000000'


def test_a_cut_file_raises(large, kit):
    text = read_after(kit, large, "os.truncate('data/f0.bag', 2_500_000)", 'pread')
    assert 'expected the same file of 3000024 bytes, got 2500000 bytes' in text


@pytest.mark.slow('direct_io')
@ACCESS
def test_a_dataset_that_grows(large, kit, access):
    grow = """
writer.append({'f0': b'3' * 1_000_000}, flush=True)
"""
    begin = """
writer = bags.DatasetWriter('data', {'f0': 'bytes'}, durability='none', resume=True)
writer.append({'f0': b'2' * 1_000_000}, flush=True)
"""
    code = f'{LIMITS}{begin}{FEW}{READ}'.replace('assert not any', '0 and any')
    code = f'{code}close_descriptors()\n{grow}{READ}'
    lines = kit.python(code, 64, 64, large, access).decode().splitlines()
    assert lines == ['01000000 11000000 21000000'] * 2


def test_more_linked_files_than_descriptors(tmp_path, kit):
    for number in range(150):
        (tmp_path / f'{number}').write_bytes(b'%d' % number)
    with bags.DatasetWriter(tmp_path / 'data', {'x': 'bytes'}, linked_fields=['x']) as writer:
        for number in range(150):
            writer.append({'x': bags.Link(tmp_path / f'{number}')})
    code = """
dataset = bags.open('data', trust_links='.')
for order in (range(150), range(149, -1, -1)):
    assert dataset.batch(order)['x'] == [b'%d' % number for number in order]
    assert [dataset[number]['x'] for number in order] == [b'%d' % number for number in order]
print(len(os.listdir('/proc/self/fd')))
"""
    assert int(kit.python(LIMITS + code, 64, 64, tmp_path)) < 60


def test_a_writer_raises_the_limit(tmp_path, kit):
    code = """
with bags.DatasetWriter('data', {f'f{j}': 'int(8)' for j in range(60)}) as writer:
    writer.append({f'f{j}': j for j in range(60)})
print(bags.open('data')[0]['f59'])
"""
    assert int(kit.python(LIMITS + code, 64, 4096, tmp_path)) == 59


def test_threads_share_few_descriptors(large, kit):
    code = """
from concurrent.futures import ThreadPoolExecutor
import random
dataset, small = bags.open('data', mapped=False), bags.open('other', mapped=False)
def read(seed):
    chance = random.Random(seed)
    for _ in range(40):
        index = chance.randrange(len(small))
        assert small[index] == {'id': index, 'f0': b'%d' % index}
        index = chance.randrange(3)
        value = dataset[index]['f0']
        assert value == b'%d' % index * 1_000_000
with ThreadPoolExecutor(8) as threads:
    list(threads.map(read, range(16)))
pid = os.fork()
if not pid:
    read(100)
    os._exit(0)
read(101)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert int(kit.python(LIMITS + code, 48, 48, large)) == 0


def test_descriptors_are_closed_with_their_readers(large):
    gc.collect()
    before = len(os.listdir('/proc/self/fd'))
    for options in ({}, {'mapped': False}, {'cache_policy': 'direct_io'}):
        with bags.open(large / 'other', **options) as dataset:
            assert len(list(dataset)) == 40
            assert len(os.listdir('/proc/self/fd')) > before
        del dataset
        assert len(os.listdir('/proc/self/fd')) == before


@pytest.mark.skipif(not hasattr(mmap, 'MAP_ANONYMOUS'), reason='needs maps at given addresses')
def test_a_map_takes_no_descriptor(large):
    before = len(os.listdir('/proc/self/fd'))
    file = LocalStore().open(os.fspath(large / 'data' / 'f0.bag'), Hints())
    assert len(os.listdir('/proc/self/fd')) == before + 1
    assert memoryview(file.buffer).readonly
    assert file.buffer[999_998:1_000_002] == b'0011'


def test_a_mapped_file_that_changes_without_a_descriptor(large):
    path = large / 'data' / 'f0.bag'
    data = path.read_bytes()
    files = [LocalStore().open(os.fspath(path), Hints(mapped=mapped)) for mapped in (True, False)]
    starts, stops = np.array([0, 1_500_000]), np.array([1_000_000, 3_000_000])
    whole = [data[:1_000_000], data[1_500_000:3_000_000]]
    for change in (lambda: None, lambda: os.utime(path, (0, 0))):
        change()
        descriptors.clear()
        assert files[0].read_many(starts, stops) == whole
    with pytest.raises(EOFError, match='changed since it was opened'):
        files[1].read_many(starts, stops)
    os.truncate(path, 2_000_000)
    for file in files:
        with pytest.raises(EOFError, match='same file of 3000024 bytes, got 2000000 bytes'):
            file.read_many(starts, stops)


def test_a_shard_that_is_opened_again_is_the_same(tmp_path, monkeypatch):
    path = write(tmp_path / 'data', 12, 1, shard_length=3)
    monkeypatch.setattr('bags.bag.shards.MAX_OPEN_BAGS', 1)
    monkeypatch.setattr('bags.dataset.sharded_reader.MAX_OPEN_BAGS', 1)
    reader = bags.open(path)
    records = bags.bag.Reader([path / f'{shard:06}' / 'f0.bag' for shard in range(4)])
    for index in (3, 6, 3):
        assert reader[index] == {'id': index, 'f0': b'%d' % index}
        assert records[index] == b'%d' % index
    assert records[0] == b'0'
    shutil.rmtree(path / '000001')
    write(path / '000001', 3, 1)
    for read in (reader.__getitem__, records.__getitem__):
        assert read(0)
        with pytest.raises(bags.CorruptError, match=r'000001.*was replaced'):
            read(3)


@pytest.mark.skipif(os.name == 'nt', reason='needs symbolic links')
@pytest.mark.parametrize('has_proc', [True, False])
def test_the_path_of_an_open_file(tmp_path, monkeypatch, has_proc):
    if not has_proc:  # As in some containers, and on other systems.
        readlink = os.readlink

        def readlink_without_proc(path):
            if str(path).startswith('/proc/'):
                raise FileNotFoundError(path)
            return readlink(path)

        monkeypatch.setattr(os, 'readlink', readlink_without_proc)
    root = Path(os.path.realpath(tmp_path))
    (root / 'folder').mkdir()
    (root / 'folder' / 'file').write_bytes(b'1')
    os.symlink(root / 'folder', root / 'link')
    for path in (root / 'folder' / 'file', root / 'link' / 'file'):
        file = PreadFile(str(path), Hints())
        assert opened_path(file.descriptor(), str(path)) == str(root / 'folder' / 'file')
    (root / 'folder' / 'file').rename(root / 'moved')
    (root / 'folder' / 'file').write_bytes(b'2')
    if has_proc and sys.platform == 'linux':
        assert opened_path(file.descriptor(), str(path)) == str(root / 'moved')
    elif sys.platform == 'linux':
        with pytest.raises(EOFError, match='was replaced while it was opened'):
            opened_path(file.descriptor(), str(path))
