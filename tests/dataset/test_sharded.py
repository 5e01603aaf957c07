"""Datasets of many folders: numbers, sizes, shares of workers, and folders that do not exist yet."""

import json
import os
import shutil

import numpy as np
import pytest

import bags
from tests.dataset.writing.killed import leave_open

SPEC = {'id': 'int(8)', 'text': 'utf8', 'words': 'utf8[]'}


def row(index):
    return {'id': index, 'text': f'text {index}', 'words': [f'word {index}'] * (index % 3)}


def ids(path, **options):
    with bags.open(path, **options) as reader:
        found = [r['id'] for r in reader]
        assert reader.batch(range(len(reader)), 'id')['id'].tolist() == found
        assert len(reader) == len(found)
        return found


def folders(path):
    return sorted(p.name for p in path.iterdir())


def test_shards_by_length(tmp_path, kit):
    path = kit.fill(tmp_path / 'a', map(row, range(10)), SPEC, shard_length=4)
    assert folders(tmp_path / 'a') == ['000000', '000001', '000002']
    with bags.open(path) as reader:
        assert isinstance(reader, bags.ShardedDatasetReader)
        assert reader.shards == 3
        assert list(reader) == [row(index) for index in range(10)]
    assert [ids(tmp_path / 'a' / name) for name in folders(tmp_path / 'a')] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]


def test_shards_by_size(tmp_path):
    with bags.ShardedDatasetWriter(tmp_path / 'a', {'x': 'bytes'}, shard_size=10_000) as writer:
        for index in range(10):
            assert writer.append({'x': bytes(3000)}) == index
        assert (len(writer), writer.shards) == (10, 3)
        size = writer.size
    with bags.open(tmp_path / 'a') as reader:
        assert (len(reader), reader.shards) == (10, 3)
        assert reader.size == size
    with pytest.raises(ValueError, match='shard_size'):
        bags.ShardedDatasetWriter(tmp_path / 'b', SPEC, shard_size=0)
    with pytest.raises(ValueError, match='shard_length'):
        bags.ShardedDatasetWriter(tmp_path / 'b', SPEC, shard_length=0)


def test_an_exact_number_of_shards(tmp_path, kit):
    kit.fill(tmp_path / 'a', map(row, range(8)), SPEC, shard_length=4)
    assert folders(tmp_path / 'a') == ['000000', '000001']


def test_few_records_are_left_of_a_shard(tmp_path, monkeypatch):
    monkeypatch.setattr('bags.dataset.writing.sharded_writer.MAX_BAG_RECORDS', 20)
    monkeypatch.setattr('bags.dataset.writing.sharded_writer.MAX_DATAPOINT_RECORDS', 5)
    with bags.ShardedDatasetWriter(tmp_path / 'a', {'x': 'utf8[]'}) as writer:
        for _ in range(10):
            writer.append({'x': ['y'] * 4})
    with bags.open(tmp_path / 'a') as reader:
        assert (len(reader), reader.shards) == (10, 3)
        assert list(reader) == [{'x': ['y'] * 4}] * 10


@pytest.mark.parametrize('workers', [1, 2, 3, 7])
def test_workers_read_shares(tmp_path, kit, workers):
    path = kit.fill(tmp_path / 'a', map(row, range(10)), SPEC, shard_length=2)
    shares = []
    for worker in range(workers):
        with bags.open(path, shard_start=worker, shard_step=workers) as reader:
            shares.append([r['id'] for r in reader])
            assert reader.shards == len(range(5)[worker::workers])
            assert reader.spec == SPEC
            assert reader.batch([], 'id')['id'].dtype == np.int64
            assert reader.lengths('words').tolist() == [index % 3 for index in shares[-1]]
            assert len(reader.records('words')) == sum(index % 3 for index in shares[-1])
            assert reader.size == sum(
                f.stat().st_size
                for n in range(5)[worker::workers]
                for f in (tmp_path / 'a' / f'{n:06}').glob('*.bag')
            )
            assert reader.__getitems__([]) == []
            assert list(reader[:]) == list(reader)
    assert sorted(index for share in shares for index in share) == list(range(10))
    for start, step in ((-1, 1), (0, 0), (0, -1)):
        with pytest.raises(ValueError, match='shard_st'):
            bags.ShardedDatasetReader(path, shard_start=start, shard_step=step)
        with pytest.raises(ValueError, match='shard_st'):
            bags.ShardedDatasetWriter(tmp_path / 'b', SPEC, shard_start=start, shard_step=step)


WRITER = """
import sys, bags
path, worker, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
spec = {'id': 'int(8)', 'text': 'utf8', 'words': 'utf8[]'}
with bags.ShardedDatasetWriter(path, spec, shard_length=3, shard_start=worker, shard_step=workers) as writer:
    for index in range(worker, 40, workers):
        writer.append({'id': index, 'text': f'text {index}', 'words': [f'word {index}'] * (index % 3)})
"""


def test_several_processes_write_at_once(tmp_path, kit):
    workers = [kit.python(WRITER, tmp_path / 'a', worker, 3, wait=False) for worker in range(3)]
    assert [worker.communicate(timeout=120) and worker.returncode for worker in workers] == [0, 0, 0]
    with bags.open(tmp_path / 'a') as reader:
        rows = sorted(reader, key=lambda r: r['id'])
        assert rows == [row(index) for index in range(40)]
        # In the order of the folders' numbers: three of the first worker, three of the second ...
        assert [r['id'] for r in reader][:9] == [0, 3, 6, 1, 4, 7, 2, 5, 8]
    # 14, 13 and 13 datapoints: five folders each.
    assert folders(tmp_path / 'a') == [f'{number:06}' for number in range(15)]


def test_a_worker_may_come_later(tmp_path):
    for worker in (2, 0, 1):
        with bags.ShardedDatasetWriter(tmp_path / 'a', SPEC, shard_start=worker, shard_step=3) as writer:
            writer.append(row(worker))
    assert ids(tmp_path / 'a') == [0, 1, 2]
    with pytest.raises(FileExistsError):
        bags.ShardedDatasetWriter(tmp_path / 'a', SPEC, shard_start=1, shard_step=3)
    with pytest.raises(FileExistsError):
        bags.ShardedDatasetWriter(tmp_path / 'a', SPEC)


def test_gaps_are_legal_and_the_order_is_that_of_numbers(tmp_path, kit):
    kit.fill(tmp_path / 'a', map(row, range(6)), SPEC, shard_length=1)
    for old, new in (('000005', '1000000'), ('000004', '000012'), ('000003', '7')):
        os.rename(tmp_path / 'a' / old, tmp_path / 'a' / new)
    shutil.rmtree(tmp_path / 'a' / '000001')
    assert ids(tmp_path / 'a') == [0, 2, 3, 4, 5]
    (tmp_path / 'a' / 'notes').mkdir()
    (tmp_path / 'a' / 'README.md').write_text('What this is.')
    assert ids(tmp_path / 'a') == [0, 2, 3, 4, 5]


def test_two_folders_of_one_number(tmp_path, kit):
    kit.fill(tmp_path / 'a', map(row, range(4)), SPEC, shard_length=1)
    os.rename(tmp_path / 'a' / '000003', tmp_path / 'a' / '02')
    with pytest.raises(bags.CorruptError, match='shard 2 is both 000002 and 02'):
        bags.open(tmp_path / 'a')
    with pytest.raises(bags.CorruptError, match='shard 2'):
        bags.ShardedDatasetWriter(tmp_path / 'a', SPEC, resume=True)


MADE = [[], ['spec.json'], ['spec.json', 'limits.refs.bag'], ['spec.json.99.new']]


@pytest.mark.parametrize('names', MADE, ids=repr)
def test_the_last_folder_may_be_one_that_is_being_made(tmp_path, kit, names):
    path = kit.fill(tmp_path / 'a', map(row, range(4)), SPEC, shard_length=2)
    new = tmp_path / 'a' / '000002'
    new.mkdir()
    for name in names:
        (new / name).write_bytes(json.dumps(SPEC).encode() if name == 'spec.json' else b'')
    assert ids(path) == [0, 1, 2, 3]
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=2, resume=True) as writer:
        assert len(writer) == 4
        writer.append(row(4))
    assert ids(path) == [0, 1, 2, 3, 4]
    assert folders(tmp_path / 'a') == ['000000', '000001', '000002']


@pytest.mark.parametrize('names', MADE, ids=repr)
def test_any_other_folder_without_spec_or_refs_is_damage(tmp_path, kit, names):
    path = kit.fill(tmp_path / 'a', map(row, range(6)), SPEC, shard_length=2)
    for old in (tmp_path / 'a' / '000001').iterdir():
        if old.name not in names:
            old.unlink()
    with pytest.raises(bags.CorruptError, match='000001'):
        bags.open(path)


@pytest.mark.parametrize('gone', ['spec.json', 'refs.bag'])
@pytest.mark.parametrize('shard', [0, 1, 2])
def test_a_folder_that_lost_its_spec_or_refs_is_damage(tmp_path, kit, gone, shard):
    path = kit.fill(tmp_path / 'a', map(row, range(6)), SPEC, shard_length=2)
    (tmp_path / 'a' / f'{shard:06}' / gone).unlink()
    with pytest.raises(bags.CorruptError, match=f'{shard:06}'):
        list(bags.open(path))
    with pytest.raises(bags.CorruptError, match=f'{shard:06}'):
        bags.ShardedDatasetWriter(path, SPEC, resume=True)


def test_shards_have_one_spec(tmp_path, kit):
    path = kit.fill(tmp_path / 'a', map(row, range(4)), SPEC, shard_length=2)
    shutil.rmtree(tmp_path / 'a' / '000001')
    kit.fill(tmp_path / 'a' / '000001', [{'id': 1}, {'id': 2}], {'id': 'int(8)'})
    reader = bags.open(path)
    assert reader[0]['id'] == 0
    for use in (lambda: reader[2], lambda: reader.batch([0, 3], 'id'), lambda: reader.__getitems__([3])):
        with pytest.raises(bags.SpecError, match='000001'):
            use()


def test_resuming_counts_on(tmp_path):
    rows = [row(index) for index in range(20)]
    done = 0
    for step, closes in enumerate([True, False, True, True, False, False, True]):
        writer = bags.ShardedDatasetWriter(tmp_path / 'a', SPEC, shard_length=4, resume=True)
        assert len(writer) == done
        for index in range(done, min(20, done + step)):
            assert writer.append(rows[index], flush=True) == index
        done = min(20, done + step)
        assert ids(tmp_path / 'a') == list(range(done))
        if closes:
            writer.close()
            assert writer.closed
        leave_open(writer)
        del writer
    with bags.open(tmp_path / 'a') as reader:
        assert list(reader) == rows


def test_resuming_leaves_closed_shards_alone(tmp_path, kit):
    path = kit.fill(tmp_path / 'a', map(row, range(5)), SPEC, shard_length=3)
    before = {p: (p.stat().st_ino, p.read_bytes()) for p in (tmp_path / 'a').glob('*/*')}
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=3, resume=True) as writer:
        assert (len(writer), writer.shards) == (5, 2)
        assert writer.append(row(5)) == 5
    assert {p: (p.stat().st_ino, p.read_bytes()) for p in before} == before
    assert folders(tmp_path / 'a') == ['000000', '000001', '000002']
    assert ids(path) == list(range(6))


def test_resuming_a_share(tmp_path):
    for _ in range(2):
        for worker in (0, 1):
            with bags.ShardedDatasetWriter(
                tmp_path / 'a', SPEC, shard_start=worker, shard_step=2, shard_length=2, resume=True
            ) as writer:
                for _ in range(2):
                    writer.append(row(len(writer) * 2 + worker))
    assert ids(tmp_path / 'a') == [0, 2, 1, 3, 4, 6, 5, 7]


def test_resuming_with_another_spec(tmp_path, kit):
    path = kit.fill(tmp_path / 'a', map(row, range(4)), SPEC, shard_length=2)
    for made in (False, True):
        if made:
            (tmp_path / 'a' / '000002').mkdir()
        with pytest.raises(bags.SpecError):
            bags.ShardedDatasetWriter(path, {**SPEC, 'id': 'int(4)'}, resume=True)
    assert ids(path) == [0, 1, 2, 3]


def test_nothing_is_overwritten(tmp_path, kit):
    path = kit.fill(tmp_path / 'a', map(row, range(4)), SPEC, shard_length=2)
    single = kit.fill(tmp_path / 'b', map(row, range(4)), SPEC)
    for wrong in (path, single):
        with pytest.raises(FileExistsError):
            bags.ShardedDatasetWriter(wrong, SPEC)
    with pytest.raises(FileExistsError):
        bags.ShardedDatasetWriter(single, SPEC, resume=True)


def test_a_failed_append_starts_no_shard_of_its_own(tmp_path):
    with bags.ShardedDatasetWriter(tmp_path / 'a', SPEC, shard_length=2) as writer:
        for index in range(4):
            writer.append(row(index))
            with pytest.raises(bags.EncodeError):
                writer.append({**row(9), 'text': 3})
            assert len(writer) == index + 1
    assert ids(tmp_path / 'a') == [0, 1, 2, 3]


def test_an_empty_shard_between_others(tmp_path, kit):
    for name, part in (('000000', [0]), ('000001', []), ('000002', []), ('000005', [1, 2]), ('000006', [])):
        kit.fill(tmp_path / 'a' / name, map(row, part), SPEC)
    assert ids(tmp_path / 'a') == [0, 1, 2]
    with bags.open(tmp_path / 'a') as reader:
        assert reader[-3]['id'] == 0
        assert reader.lengths('words').tolist() == [0, 1, 2]


def test_a_writer_knows_a_lock_per_share(tmp_path):
    a = bags.ShardedDatasetWriter(tmp_path / 'a', SPEC, shard_start=0, shard_step=2)
    b = bags.ShardedDatasetWriter(tmp_path / 'a', SPEC, shard_start=1, shard_step=2)
    a.append(row(0), flush=True)
    with pytest.raises(BlockingIOError):
        bags.ShardedDatasetWriter(tmp_path / 'a', SPEC, shard_start=0, shard_step=2, resume=True)
    b.append(row(1))
    a.close()
    b.close()
    assert ids(tmp_path / 'a') == [0, 1]


def test_numbers_beyond_int64_stay_numbers(tmp_path):
    """The type 'int' without a size: the integers of one shard fit int64, those of the other do not."""
    for number, value in enumerate([5, 2**63 + 1]):
        path = tmp_path / 'a' / f'{number:06}'
        with bags.DatasetWriter(
            path, {'n': 'int', 'm': 'int[]'}, {'int': lambda v: v.to_bytes(9, 'little')}
        ) as w:
            w.append({'n': value, 'm': [value]})
            w.append({'n': value, 'm': []})
    with bags.open(tmp_path / 'a') as reader:
        assert [r['n'] for r in reader] == [5, 5, 2**63 + 1, 2**63 + 1]
        batch = reader.batch([2, 0, 1, 3])
        assert list(batch['n']) == [2**63 + 1, 5, 5, 2**63 + 1]
        assert [list(value) for value in batch['m']] == [[2**63 + 1], [5], [], []]
