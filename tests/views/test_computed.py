"""`bags.computed`: values are computed once, stored with their datapoint, and read as any other field."""

import gc
import itertools
import json
import os
import pickle
import random
import select
import signal
import sys
import threading
import time

import numpy as np
import pytest

import bags

ROWS = 60
ADD = {
    'z': ('array(float32,2,3)', lambda batch: batch['grid'] * 2),
    'letters': ('utf8[]?', lambda batch: [list(text) or None for text in batch['text']]),
    'jpg': ('jpeg', lambda batch: [np.full((8, 8, 3), row % 250, np.uint8) for row in batch['id']]),
    'score': ('float(8)', lambda batch: batch['score'] + 1),
}
"""The last one replaces a field."""


@pytest.fixture(scope='module')
def source(tmp_path_factory, kit):
    """A dataset, and a copy of it with the added fields."""
    path = tmp_path_factory.mktemp('computed')
    kit.fill(path / 'source', map(kit.make_row, range(ROWS)), shard_length=23)
    bags.copy(path / 'source', path / 'copy', add=ADD)
    return str(path / 'source')


def counted(computed, add=ADD):
    """Returns the functions such that they add the `id` of each datapoint to a list, by field."""

    def counting(name, function):
        def count(batch):
            computed.setdefault(name, []).extend(batch['id'].tolist())
            return function(batch)

        return count

    return {name: (field_type, counting(name, function)) for name, (field_type, function) in add.items()}


def stored_rows(path):
    """Returns the datapoints that each rank has stored."""
    return {rank: bags.open(path / rank).column('datapoint').tolist() for rank in sorted(os.listdir(path))}


def double(batch):
    return batch['id'] * 2


def expect_equal(view, expected, kit):
    """Compares all ways to read, in an order in which stored rows and new ones are read together."""
    order = np.random.default_rng(0).permutation(ROWS)
    indices = [*order[:9].tolist(), *order[:5].tolist(), *order.tolist()]
    assert view.spec == expected.spec
    assert kit.equal(view[5], expected[5])
    assert kit.equal(view[indices[:9], ('z', 'text')], expected[indices[:9], ('z', 'text')])
    items = {'letters': slice(0, 2), 'jpg': True, 'id': True}
    columns, expected_columns = view.batch(indices, items), expected.batch(indices, items)
    assert list(columns) == list(expected_columns)
    for name, column in columns.items():
        assert kit.equal(list(column), list(expected_columns[name])), name
    for name in view.schema:
        assert kit.equal(list(view.column(name)), list(expected.column(name))), name
        assert list(view.records(name)) == list(expected.records(name))
    assert view.lengths('letters').tolist() == expected.lengths('letters').tolist()
    assert view.file(7, 'z').read() == expected.file(7, 'z').read()
    assert view.batch([])['z'].shape == (0, 2, 3)


def test_a_view_reads_as_a_copy_with_the_fields(source, tmp_path, kit):
    computed = {}
    expected = bags.open(f'{os.path.dirname(source)}/copy')
    with bags.computed(bags.open(source), tmp_path / 'z', add=counted(computed), batch_size=8) as view:
        expect_equal(view, expected, kit)
        assert view.stored.all()
        assert pickle.loads(pickle.dumps(view)).stored.all()
    ids = bags.open(source).column('id')
    assert {name: sorted(rows) for name, rows in computed.items()} == dict.fromkeys(ADD, sorted(ids.tolist()))
    assert sorted(stored_rows(tmp_path / 'z')['0']) == list(range(ROWS))
    with bags.computed(bags.open(source), tmp_path / 'z', add=counted(computed)) as view:
        expect_equal(view, expected, kit)
        bags.copy(view, tmp_path / 'whole')
        assert expected.diff(bags.open(tmp_path / 'whole')).is_empty
    assert sum(map(len, computed.values())) == len(ADD) * ROWS


def test_views_of_a_view(source, tmp_path, kit):
    dataset = bags.open(source)
    view = bags.computed(dataset, tmp_path / 'z', add={'twice': ('int(8)', double)}, batch_size=8)
    assert view.filter('twice > 40').column('id').tolist() == [
        row for row in dataset.column('id') if row > 20
    ]
    assert view.stored.all()
    windows = dataset.windows(every='nums', nums=bags.steps(0, 2))
    sums = {'sum': ('int(8)', lambda batch: batch['nums'].sum(1))}
    of_windows = bags.computed(windows, tmp_path / 'sums', add=sums)
    assert of_windows.column('sum').tolist() == windows.column('nums').sum(1).tolist()
    cut = view.windows(every='nums', nums=bags.steps(0, 2))
    assert cut[3]['twice'] == 2 * cut[3]['id']
    joined = bags.concat([view[:5], view[7:9]])
    assert joined.column('twice').tolist() == (dataset.column('id')[[0, 1, 2, 3, 4, 7, 8]] * 2).tolist()
    assert [origin.datapoint for origin in map(view.origin, (3, 4), ('id', 'twice'))] == [3, 4]


def test_only_what_is_read_is_computed(source, tmp_path):
    computed = {}
    add = counted(computed, {'twice': ('int(8)', double)})
    with bags.computed(bags.open(source), tmp_path / 'z', add=add, batch_size=8) as view:
        assert (len(view), view.column('text')[:0], view.folders(['twice'])) == (ROWS, [], [])
        assert not computed
        assert not (tmp_path / 'z').exists()
        before = view.fingerprint
        assert view.select([4, 2, 4]).column('twice').tolist() == [2, -2, 2]
        assert np.flatnonzero(view.stored).tolist() == [2, 4]
        assert view.fingerprint == before
        assert view.batch([4, 9])['twice'].tolist() == [2, 12]
    assert computed == {'twice': [-1, 1, 6]}


def failing(batch):
    if 34 in batch['id']:
        raise ArithmeticError('no such number')
    return batch['id']


def with_value(value):
    """Returns a function of which one value is wrong."""
    return lambda batch: [value if row == 34 else 0 for row in batch['id']]


WRONG = {
    'fails': ('int(8)', failing, ArithmeticError, 'no such number'),
    'is short': ('int(8)', lambda batch: batch['id'][:-1], ValueError, "field 'w': expected 8 values"),
    'is no number': ('int(8)', with_value('a'), bags.EncodeError, "'w'"),
    'is too large': ('int(8)', with_value(2**70), bags.EncodeError, "'w'"),
    'has a shape': ('int(8)', with_value([0, 0]), bags.EncodeError, "'w'"),
    'has another shape': ('array(float32)', with_value(np.zeros(2, 'f4')), bags.EncodeError, "'w'"),
    'has another dtype': ('array(int64)', with_value(np.zeros((), 'f4')), bags.EncodeError, "'w'"),
}


@pytest.mark.parametrize('what', WRONG)
def test_nothing_of_a_batch_with_an_error_is_stored(source, tmp_path, what):
    field_type, function, error, message = WRONG[what]
    add = {'a': ('int(8)', double), 'w': (field_type, function)}
    view = bags.computed(bags.open(source), tmp_path / 'z', add=add, batch_size=8)
    with pytest.raises(error, match=message) as raised:
        view.column('a')
    if what == 'is short':
        assert not view.stored.any()
    else:
        assert "field 'w'" in raised.value.__notes__[0]
        assert 'datapoint 37' in raised.value.__notes__[0]
        assert np.flatnonzero(view.stored).tolist() == list(range(32))
        assert len(view.batch(range(32), 'w')['w']) == 32
    view.close()
    correct = {'a': ('int(8)', double), 'w': (field_type, lambda batch: [0] * len(batch['id']))}
    with bags.computed(bags.open(source), tmp_path / 'z', add=correct, batch_size=8) as view:
        assert view.batch(range(32, ROWS), 'w')['w'].tolist() == [0] * 28
    rows = stored_rows(tmp_path / 'z')['0']
    assert len(rows) == len(set(rows))


def test_a_loader_computes_each_datapoint_once(source, tmp_path):
    computed = {}
    add = counted(computed, {'twice': ('int(8)', double)})
    view = bags.computed(bags.open(source), tmp_path / 'z', add=add)
    loader = bags.Loader(view, 7, fields=('id', 'twice'), seed=1, epochs=2, workers=4)
    batches = list(itertools.islice(loader, 5))
    state = loader.state_dict()
    view.close()
    with bags.computed(bags.open(source), tmp_path / 'z', add=add) as view:
        loaders = [
            bags.Loader(view, 3, fields=('id', 'twice'), seed=1, epochs=2, rank=rank, world_size=2, workers=2)
            for rank in range(2)
        ]
        for loader in loaders:
            loader.load_state_dict(state)
            batches += loader
    assert all((batch['twice'] == 2 * batch['id']).all() for batch in batches)
    ids = bags.open(source).column('id').tolist()
    assert sorted(computed['twice']) == sorted(ids)
    assert sorted(stored_rows(tmp_path / 'z')['0']) == list(range(ROWS))


def test_threads_that_ask_for_the_same_datapoints(source, tmp_path):
    computed, barrier, results = {}, threading.Barrier(4), []
    add = counted(computed, {'twice': ('int(8)', double)})
    view = bags.computed(bags.open(source), tmp_path / 'z', add=add, batch_size=5)

    def read():
        barrier.wait()
        results.append(view.column('twice').tolist())

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(view.column('id') * 2).tolist()] * 4
    assert len(computed['twice']) == ROWS


def test_other_processes_read_and_do_not_compute(source, tmp_path):
    view = bags.computed(bags.open(source), tmp_path / 'z', add={'twice': ('int(8)', double)})
    view.batch(range(30), 'twice')
    sent = pickle.loads(pickle.dumps(view))
    assert sent[29, 'twice'] == {'twice': 2 * sent[29]['id']}
    with pytest.raises(
        RuntimeError, match=r"z: field 'twice' of datapoint 31 is not stored.*processes=False"
    ):
        sent.batch([3, 31])
    view.batch([31], 'twice')
    assert sent.reopen().batch([3, 31])['twice'].tolist() == (sent.column('id')[[3, 31]] * 2).tolist()


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='needs fork')
def test_a_forked_process_reads_while_a_thread_computes(source, tmp_path):
    began, may_end = threading.Event(), threading.Event()

    def slow(batch):
        if 50 in batch['id']:
            began.set()
            may_end.wait(60)
        return double(batch)

    view = bags.computed(bags.open(source), tmp_path / 'z', add={'twice': ('int(8)', slow)})
    view.batch(range(10), 'twice')
    thread = threading.Thread(target=view.batch, args=([53],))
    thread.start()
    began.wait(60)
    child = os.fork()
    if not child:
        signal.alarm(60)
        try:
            assert view.reopen().batch(range(10), 'twice')['twice'].shape == (10,)
            view.batch([53])
        except RuntimeError as exc:
            os._exit(7 if 'datapoint 53 is not stored' in str(exc) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    may_end.set()
    thread.join()
    assert view.stored.sum() == 11


@pytest.mark.slow
def test_worker_processes_of_a_loader(source, tmp_path):
    with bags.computed(bags.open(source), tmp_path / 'z', add={'twice': ('int(8)', double)}) as view:
        loader = bags.Loader(view, 6, workers=2, processes=True, fields=('id', 'twice'))
        with pytest.raises(RuntimeError, match='processes=False'):
            next(iter(loader))
        view.column('twice')
        assert all((batch['twice'] == 2 * batch['id']).all() for batch in loader)


def test_a_view_that_is_not_closed_loses_nothing(source, tmp_path):
    computed = {}
    add = counted(computed, {'twice': ('int(8)', double)})
    view = bags.computed(bags.open(source), tmp_path / 'z', add=add)
    view.batch([3, 5], 'twice')
    with pytest.raises(BlockingIOError) as raised:
        bags.computed(bags.open(source), tmp_path / 'z', add=add).batch([9])
    assert 'pass rank=' in raised.value.__notes__[0]
    with bags.computed(bags.open(source), tmp_path / 'z', add=add, rank=1) as other:
        assert other.batch([3, 9])['twice'].tolist() == [0, 12]
    assert np.flatnonzero(view.reopen().stored).tolist() == [3, 5, 9]
    del view
    gc.collect()
    with bags.computed(bags.open(source), tmp_path / 'z', add=add) as view:
        view.column('twice')
    view.close()
    with pytest.raises(ValueError, match='closed'):
        view.batch([3], 'twice')
    assert len(computed['twice']) == ROWS


def test_a_full_disk(source, small_disk, kit):
    def big(batch):
        return [np.full(40_000, row % 250, np.uint8) for row in batch['id']]

    def expect_correct(view, rows):
        assert (view.column('id')[rows] % 250 == view.batch(rows, 'big')['big'].T).all()

    kit.fill_up(small_disk / 'other', leave=1_000_000)
    add = {'big': ('array(uint8,40000)', big)}
    view = bags.computed(bags.open(source), small_disk / 'z', add=add, batch_size=4)
    with pytest.raises(OSError, match='No space left'):
        view.column('big')
    assert 4 <= view.stored.sum() < ROWS
    expect_correct(view, np.flatnonzero(view.stored))
    (small_disk / 'other').unlink()
    view.batch([50], 'big')
    assert view.reopen().stored.sum() < ROWS
    expect_correct(view, range(ROWS))
    view.close()
    assert sorted(stored_rows(small_disk / 'z')['0']) == list(range(ROWS))


RANK = """
import sys
import bags
source, path, log, rank, blocks_at = sys.argv[1:]
computed = 0

def double(batch):
    global computed
    computed += 1
    with open(log, 'a') as file:
        file.write(f'{batch["id"].tolist()}\\n')
    if computed == int(blocks_at):
        print('computing', flush=True)
        sys.stdin.readline()
    return batch['id'] * 2

add = {'twice': ('int(8)', double)}
with bags.computed(bags.open(source), path, add=add, rank=int(rank)) as view:
    loader = bags.Loader(view, 4, seed=3, rank=int(rank), world_size=3, workers=2, fields=('id', 'twice'))
    for epoch in range(2):
        for batch in loader:
            assert (batch['twice'] == 2 * batch['id']).all()
        print('epoch', flush=True)
        sys.stdin.readline()
        view.reopen()
"""
BATCH = 4
"""Datapoints of a batch of each rank."""


@pytest.fixture
def start_rank(source, tmp_path, kit):
    """Returns a function that starts a rank, which stops in its batch `blocks_at`, counted from 1."""

    def start(rank, blocks_at=0):
        return kit.python(RANK, source, tmp_path / 'z', tmp_path / 'log', rank, blocks_at, wait=False)

    return start


def expect_two_epochs(ranks):
    """Lets all ranks run to the end; they wait for each other after each epoch."""
    for _ in range(2):
        for process in ranks:
            assert process.stdout.readline() == b'epoch\n'
        for process in ranks:
            process.stdin.write(b'\n')
    for process in ranks:
        with process:
            assert process.wait(60) == 0


def recomputed_rows(source, path):
    """Returns the number of datapoints that were computed again, after checking that all are stored once."""
    stored = stored_rows(path / 'z')
    assert list(stored) == ['0', '1', '2']
    # Each rank has stored its share of the first epoch, and nothing in the second.
    assert sorted(row for rows in stored.values() for row in rows) == list(range(ROWS))
    computed = [row for line in (path / 'log').read_text().splitlines() for row in json.loads(line)]
    assert set(computed) == set(bags.open(source).column('id').tolist())
    return len(computed) - ROWS


@pytest.mark.skipif(sys.platform == 'win32', reason='kills processes')
@pytest.mark.parametrize(
    'kills', [((2,), (), ()), pytest.param(((1, 2, 3), (2, 1, 1), (3, 2)), marks=pytest.mark.campaign)]
)
def test_three_ranks_are_killed_in_a_batch_and_continued(source, tmp_path, start_rank, kills):
    ranks = []
    for rank, batches in enumerate(kills):
        for number in batches:
            with start_rank(rank, number) as process:
                assert process.stdout.readline() == b'computing\n'
                process.kill()
        ranks.append(start_rank(rank))
    expect_two_epochs(ranks)
    assert recomputed_rows(source, tmp_path) == BATCH * sum(map(len, kills))


@pytest.mark.campaign
@pytest.mark.skipif(sys.platform == 'win32', reason='kills processes')
@pytest.mark.parametrize('seed', range(20))
def test_three_ranks_are_killed_at_any_time_and_continued(source, tmp_path, start_rank, seed):
    chance, kills = random.Random(seed), 6
    log = tmp_path / 'log'
    log.touch()
    for _ in range(kills):
        size = log.stat().st_size
        with start_rank(chance.randrange(3)) as process:
            # A rank that has all its datapoints computes nothing.
            while log.stat().st_size == size and not select.select([process.stdout], [], [], 0)[0]:
                pass
            time.sleep(chance.uniform(0, 0.01))
            process.kill()
    expect_two_epochs([start_rank(rank) for rank in range(3)])
    assert 0 <= recomputed_rows(source, tmp_path) <= BATCH * kills


WRITER = """
import sys
import bags
source, path, rows = sys.argv[1:]
texts = lambda batch: [[str(row)] * (row % 4) for row in batch['id'].tolist()]
add = {'twice': ('int(8)', lambda batch: batch['id'] * 2), 'texts': ('utf8[]', texts)}
row = 0
while row < int(rows):
    with bags.computed(bags.open(source), path, add=add, rank=1) as view:
        for _ in range(37):
            row += len(view.batch(range(row, min(row + 2, int(rows))), ('twice', 'texts'))['twice'])
"""


@pytest.mark.campaign
def test_a_view_is_reopened_while_another_rank_writes(tmp_path, kit):
    source, rows, before, reopened = str(tmp_path / 'source'), 6000, 0, 0
    bags.from_numpy({'id': np.arange(rows)}, source)
    add = {'twice': ('int(8)', failing), 'texts': ('utf8[]', failing)}
    with kit.python(WRITER, source, tmp_path / 'z', rows, wait=False) as process:
        view = bags.computed(bags.open(source), tmp_path / 'z', add=add)
        while before < rows:
            assert not process.poll()
            stored = np.flatnonzero(view.reopen().stored)
            assert len(stored) >= before
            before, reopened = len(stored), reopened + 1
            batch = view.batch(stored[-50:])
            assert (batch['twice'] == batch['id'] * 2).all()
            texts = [[str(row)] * (row % 4) for row in batch['id'].tolist()]
            assert [*map(list, batch['texts'])] == texts
    assert process.returncode == 0
    assert reopened > 10
