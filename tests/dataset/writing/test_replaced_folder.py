"""Writers whose folder was removed, moved or replaced: they leave alone what is at their path now."""

import contextlib
import errno
import gc
import itertools
import os
import random
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


# Random old writers.

RANDOM_SPEC = {'id': 'int', 'data': 'bytes', 'words': 'utf8[]'}


def make_row(number):
    return {'id': number, 'data': b'%d' % number * 100, 'words': [f'word {number}'] * (number % 3)}


def open_random(chance, path, numbers, mode):
    """Returns a writer of a random kind, and the numbers of the datapoints that it continues."""
    kind = chance.choice(list(WRITERS))
    options = {'durability': chance.choice(['none', 'close', 'flush']), 'checksum': chance.random() < 0.3}
    if kind == 'shards':
        options['shard_length'] = chance.choice([1, 2, 5, 100])
    if chance.random() < 0.3:
        options['compression'] = ['data']
    rows = []
    if mode != 'create':
        with WRITERS[kind](path, RANDOM_SPEC, **options) as writer:
            for _ in range(chance.randint(1, 6)):
                rows.append(next(numbers))
                writer.append(make_row(rows[-1]))
    given = {'resume': True} if mode == 'resume' else {'mode': mode}
    writer = WRITERS[kind](path, RANDOM_SPEC, **options, **given)
    return writer, rows if mode == 'resume' else []


def act(chance, writer, numbers, rows, episodes):
    """Calls a random method of a writer; rows gets the numbers of what it has written."""
    call = chance.choice(
        ['append', 'append', 'append', 'flush', 'begin', 'item', 'commit', 'discard', 'collect']
    )
    episode = episodes[-1] if episodes else None
    if episode is None and call == 'append':
        number = next(numbers)
        writer.append(make_row(number), **chance.choice([{}, {'flush': True}]))
        rows.append(number)
    elif episode is None and call == 'begin' and chance.random() < 0.3:
        number = next(numbers)
        episodes.append(writer.begin({'id': number, 'data': make_row(number)['data']}))
        episodes[-1].number, episodes[-1].items = number, 0
    elif episode is not None and call in ('append', 'item'):
        episode.append({'words': f'word {episode.number}'})
    elif episode is not None and call in ('commit', 'discard'):
        episodes.clear()
        getattr(episode, call)()
        if call == 'commit':
            rows.append(episode.number)
    elif call == 'flush':
        (episode or writer).flush()
    else:
        gc.collect()


def outlive(tmp_path, chance):
    """Replaces the folder of a writer at a random moment; the writer goes on, and ends in a random way."""
    path, numbers = tmp_path / 'd', itertools.count(1)
    mode = chance.choice(['create', 'create', 'resume', 'overwrite'])
    old, written = open_random(chance, path, numbers, mode)
    episodes = []
    for _ in range(chance.randint(0, 12)):
        act(chance, old, numbers, written, episodes)
    how = chance.choice(['removed', 'moved'])
    if path.exists():
        replace_folder(path, how)
    is_moved = how == 'moved' and mode != 'overwrite'
    written = list(written)
    new, rows, own = None, [], []
    state = chance.choice(['nothing', 'empty', 'files', 'open', 'closed'])
    if state == 'empty':
        path.mkdir()
    elif state == 'files':
        path.mkdir()
        (path / 'refs.bag').write_bytes(b'of somebody')
        (path / 'unfinished').write_bytes(b'of somebody')
    elif state != 'nothing':
        new, _ = open_random(chance, path, numbers, 'create')
        for _ in range(chance.randint(0, 8)):
            act(chance, new, numbers, rows, own)
    if state == 'closed':
        while own:
            own.pop().discard()
        new.close()
    lost = []
    for _ in range(chance.randint(0, 8)):
        if state == 'open':
            new.flush()  # Waits until a full shard is closed.
        before = tree(path)
        with contextlib.suppress(OSError, ValueError):
            act(chance, old, numbers, lost, episodes)
        assert tree(path) == before
        if state == 'open' and chance.random() < 0.5:
            act(chance, new, numbers, rows, own)
    if state == 'open':
        new.flush()
    before, existed = tree(path), path.exists()
    end = chance.choice(['collected', 'close', 'abandon', 'error', 'interpreter exits'])
    if end in ('close', 'abandon'):
        for _ in range(2):
            with contextlib.suppress(OSError, ValueError):  # An episode is open.
                getattr(old, end)()
    elif end == 'error':
        with contextlib.suppress(KeyError, OSError), old:
            raise KeyError
    elif end == 'interpreter exits':
        old.__del__()
    if episodes:  # The thread of an open episode keeps its writer.
        with contextlib.suppress(OSError):
            old.abandon()
    episodes.clear()
    del old
    gc.collect()
    assert (tree(path), path.exists()) == (before, existed)
    if new is not None:
        while own:
            own.pop().discard()
        new.close()
        with bags.open(path) as dataset:
            assert not dataset.unfinished
            assert [row['id'] for row in dataset] == rows
            assert all(bytes(row['data']) == make_row(row['id'])['data'] for row in dataset)
        assert bags.verify(path) == []
    if is_moved and state != 'nothing':
        with contextlib.suppress(FileNotFoundError):  # Nothing was written.
            bags.recover(f'{path}-moved')
            with bags.open(f'{path}-moved') as dataset:
                ids = [row['id'] for row in dataset]
            assert bags.verify(f'{path}-moved') == []
            assert ids[: len(written)] == written[: len(ids)]
    return mode, end


def test_random_old_writers(tmp_path):
    gc.freeze()  # Each collection would pass all that earlier tests have left, a second each time.
    for seed in range(40):
        outlive(tmp_path / str(seed), random.Random(seed))


@pytest.mark.campaign
@pytest.mark.parametrize('part', range(10))
def test_many_random_old_writers(tmp_path, part, found):
    for seed in range(500 * part + 1000, 500 * part + 1500):
        try:
            outlive(tmp_path / str(seed), random.Random(seed))
        except BaseException as exc:
            exc.add_note(f'seed {seed}')
            raise
        shutil.rmtree(tmp_path / str(seed))
    found('500 writers whose folder was replaced: 0 files of other writers were changed')
