"""Writers whose folder was removed, moved or replaced: they leave alone what is at their path now."""

import errno
import gc
import os
import shutil

import numpy as np
import pytest

import bags
from bags.storage.local import LocalStore
from bags.storage.object_store import NoLock

SPEC = {'id': 'int', 'data': 'bytes'}
WRITERS = {'folder': bags.DatasetWriter, 'shards': bags.ShardedDatasetWriter}


def fill(writer, numbers):
    for number in numbers:
        writer.append({'id': number, 'data': b'%d' % number * 100})


def tree(path):
    """Returns the bytes of all files below a folder."""
    return {
        os.path.relpath(os.path.join(top, name), path): (path / top / name).read_bytes()
        for top, _, names in os.walk(path)
        for name in names
    }


def replace_folder(path, how):
    """Removes or moves a folder; for 'shard', only the first folder of shards in it."""
    if how == 'shard':
        path = path / '000000'
    if how == 'moved':
        os.rename(path, f'{path}-moved')
    else:
        shutil.rmtree(path)


@pytest.mark.parametrize('kind', WRITERS)
@pytest.mark.parametrize('how', ['removed', 'moved'])
@pytest.mark.parametrize('end', ['collected', 'close', 'abandon', 'error'])
def test_an_old_writer_leaves_the_new_dataset_alone(tmp_path, kind, how, end):
    path = tmp_path / 'd'
    old = WRITERS[kind](path, SPEC)
    fill(old, range(20))
    replace_folder(path, how)
    new = WRITERS[kind](path, SPEC)
    fill(new, range(100, 110))
    new.flush()
    before = tree(path)
    if end == 'close':
        for _ in range(2):  # Also when it is called again.
            with pytest.raises(OSError, match='was removed, moved or replaced') as raised:
                old.close()
            assert raised.value.errno == errno.ESTALE
            assert str(path) in raised.value.filename
    elif end == 'abandon':
        with pytest.raises(OSError, match='was removed, moved or replaced'):
            old.abandon()
    elif end == 'error':
        with pytest.raises(KeyError), old:
            raise KeyError
    del old
    gc.collect()
    assert tree(path) == before
    new.close()
    assert bags.open(path).column('id').tolist() == list(range(100, 110))
    assert not bags.open(path).unfinished
    if how == 'moved':  # Ended as a killed writer does, and unlocked.
        with WRITERS[kind](f'{path}-moved', SPEC, resume=True) as resumed:
            fill(resumed, [1000])
        assert bags.verify(f'{path}-moved') == []


@pytest.mark.parametrize('kind', WRITERS)
def test_flush_says_that_the_folder_was_removed(tmp_path, kind):
    writer = WRITERS[kind](tmp_path / 'd', SPEC)
    fill(writer, range(3))
    shutil.rmtree(tmp_path / 'd')
    with pytest.raises(OSError, match='was removed, moved or replaced'):
        writer.flush()
    with pytest.raises(OSError, match='was removed, moved or replaced'), writer:
        pass
    assert writer.closed
    assert os.listdir(tmp_path) == []


def test_a_folder_that_came_back_is_not_written(tmp_path):
    """Another writer may have changed it meanwhile."""
    writer = bags.DatasetWriter(tmp_path / 'd', SPEC)
    fill(writer, range(3))
    writer.flush()
    os.rename(tmp_path / 'd', tmp_path / 'e')
    with pytest.raises(OSError, match='was removed, moved or replaced'):
        writer.close()
    with bags.DatasetWriter(tmp_path / 'e', SPEC, resume=True) as other:
        fill(other, [3])
    os.rename(tmp_path / 'e', tmp_path / 'd')
    with pytest.raises(OSError, match='was removed, moved or replaced'):
        writer.close()
    assert bags.open(tmp_path / 'd').column('id').tolist() == [0, 1, 2, 3]


def test_a_shard_that_was_removed_is_not_passed_over(tmp_path):
    """The dataset is not finished without it, however often the writer is closed."""
    writer = bags.ShardedDatasetWriter(tmp_path / 'd', SPEC, shard_length=10)
    fill(writer, range(5))
    replace_folder(tmp_path / 'd', 'shard')
    for _ in range(2):
        with pytest.raises(OSError, match='was removed, moved or replaced'):
            writer.close()
    assert (tmp_path / 'd' / 'unfinished').exists()


def test_the_next_shard_is_not_begun_in_another_dataset(tmp_path):
    path = tmp_path / 'd'
    old = bags.ShardedDatasetWriter(path, SPEC, shard_length=2)
    fill(old, range(2))
    shutil.rmtree(path)
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=2) as new:
        fill(new, range(100, 105))
    before = tree(path)
    with pytest.raises(OSError, match='was removed, moved or replaced'):
        fill(old, range(2, 9))
    del old
    gc.collect()
    assert tree(path) == before


def test_an_open_episode_leaves_the_new_dataset_alone(tmp_path):
    path, spec = tmp_path / 'd', {'id': 'int', 'words': 'utf8[]'}
    old = bags.DatasetWriter(path, spec)
    episode = old.begin({'id': 1})
    episode.append({'words': 'a'})
    episode.flush()
    shutil.rmtree(path)
    with bags.DatasetWriter(path, spec) as new:
        new.append({'id': 2, 'words': ['b']})
    before = tree(path)
    with pytest.raises(OSError, match='was removed, moved or replaced'):
        episode.commit()
    with pytest.raises(OSError, match='was removed, moved or replaced'):
        old.close()
    del old, episode
    gc.collect()
    assert tree(path) == before


@pytest.mark.parametrize('kind', WRITERS)
@pytest.mark.parametrize('existed', [True, False])
def test_overwriting_replaces_only_the_dataset_that_it_found(tmp_path, kind, existed):
    path = tmp_path / 'd'
    if existed:
        with WRITERS[kind](path, SPEC) as first:
            fill(first, range(3))
    old = WRITERS[kind](path, SPEC, mode='overwrite')
    fill(old, range(10, 15))
    if existed:
        shutil.rmtree(path)
    with WRITERS[kind](path, SPEC) as new:
        fill(new, range(100, 103))
    before = tree(path)
    with pytest.raises(OSError, match='was removed, moved or replaced' if existed else 'was created after'):
        old.close()
    old.abandon()
    assert tree(path) == before
    assert os.listdir(tmp_path) == ['d']


@pytest.mark.parametrize('kind', WRITERS)
@pytest.mark.parametrize('can_exchange', [True, False])
def test_a_dataset_that_is_replaced_at_the_moment_of_the_swap(tmp_path, monkeypatch, kind, can_exchange):
    path = tmp_path / 'd'
    with WRITERS[kind](path, SPEC) as first:
        fill(first, range(3))
    old = WRITERS[kind](path, SPEC, mode='overwrite')
    fill(old, range(10, 15))
    exchange, before = LocalStore.exchange, {}

    def exchange_late(new, target):
        if not before:
            shutil.rmtree(path)
            with WRITERS[kind](path, SPEC) as other:
                fill(other, range(100, 103))
            before.update(tree(path))
        return can_exchange and exchange(new, target)

    monkeypatch.setattr(LocalStore, 'exchange', staticmethod(exchange_late))
    with pytest.raises(OSError, match='was removed, moved or replaced') as raised:
        old.close()
    assert raised.value.filename == str(path)
    assert tree(path) == before
    old.abandon()
    assert os.listdir(tmp_path) == ['d']
    assert bags.open(path).column('id').tolist() == [100, 101, 102]


def test_an_end_without_locks(tmp_path, monkeypatch):
    """File systems without locks, and a close that failed: the folder is known by what is open."""
    path = tmp_path / 'd'
    monkeypatch.setattr('bags.storage.local.LocalStore.lock', lambda *_: NoLock())
    old = bags.DatasetWriter(path, SPEC)
    fill(old, range(3))
    with monkeypatch.context() as patch:
        patch.setattr(os, 'fsync', lambda fd: exec('raise OSError(28, "full")'))
        with pytest.raises(OSError, match='full'):
            old.close()
    for _ in range(20):  # Numbers of inodes are used again at once.
        shutil.rmtree(path)
        new = bags.DatasetWriter(path, SPEC)
        fill(new, range(2))
        new.flush()
    before = tree(path)
    with pytest.raises(OSError, match='was removed, moved or replaced'):
        old.close()
    del old
    gc.collect()
    assert tree(path) == before


@pytest.mark.parametrize('mode', ['create', 'append', 'overwrite'])
@pytest.mark.parametrize('folder', [True, False])
def test_a_bag_that_was_begun_again(tmp_path, mode, folder):
    """The folder of the bag, or only its files, were removed."""
    path = tmp_path / 'd' / 'x.bag'
    path.parent.mkdir()
    old = bags.bag.Writer(path, mode=mode)
    old.write(b'old')
    old.flush()
    if folder:
        shutil.rmtree(path.parent)
        path.parent.mkdir()
    else:
        for name in os.listdir(path.parent):
            os.unlink(path.parent / name)
    new = bags.bag.Writer(path)
    new.write(b'new')
    new.flush()
    before = tree(path.parent)
    with pytest.raises(OSError, match='was removed, moved or replaced'):
        old.close()
    old.discard()
    assert tree(path.parent) == before
    new.close()
    assert bags.bag.Reader(path).read() == [b'new']


def test_links_of_an_old_writer(tmp_path):
    """A linked field has three bags."""
    np.save(tmp_path / 'a.npy', np.arange(3))
    path, spec = tmp_path / 'd', {'id': 'int', 'file': 'bytes'}
    old = bags.DatasetWriter(path, spec, linked_fields=['file'])
    old.append({'id': 1, 'file': bags.Link(tmp_path / 'a.npy')})
    shutil.rmtree(path)
    new = bags.DatasetWriter(path, spec, linked_fields=['file'])
    new.append({'id': 2, 'file': bags.Link(tmp_path / 'a.npy')}, flush=True)
    before = tree(path)
    del old
    gc.collect()
    assert tree(path) == before
    new.close()
    assert bags.verify(path, trust_links=tmp_path) == []
