"""Many shards with few descriptors and maps, and many rows without copies of whole tables."""

import os
import pickle
import random
import shutil
import sys
import tracemalloc

import numpy as np
import pytest

import bags

SPEC = {'a': 'int(8)', 'b': 'utf8', 'c': 'float(4)[]', 'd': 'bytes?', 'e': 'array(uint8,4)', 'f': 'msgpack'}
LINUX = pytest.mark.skipif(not os.path.exists('/proc/self/maps'), reason='counts in /proc')


def row(index):
    return {
        'a': index,
        'b': f'text {index}',
        'c': np.full(index, 0.5, np.float32),
        'd': None if index % 2 else b'bytes',
        'e': np.full(4, index, 'uint8'),
        'f': {'index': index},
    }


def many_shards(path, kit, shards):
    """Writes shards of three datapoints, each a hard-linked copy of the first."""
    kit.fill(path / '000000', map(row, range(3)), SPEC)
    names = os.listdir(path / '000000')
    for shard in range(1, shards):
        os.mkdir(path / f'{shard:06}')
        for name in names:
            os.link(path / '000000' / name, path / f'{shard:06}' / name)


def usage():
    with open('/proc/self/maps') as maps:
        return len(os.listdir('/proc/self/fd')), sum(1 for _ in maps)


def read_all_over(reader, shards, kit, times):
    chance = random.Random(0)
    for _ in range(times):
        index = chance.randrange(3 * shards)
        assert kit.equal(reader[index], row(index % 3))
        order = [chance.randrange(3 * shards) for _ in range(20)]
        batch = reader.batch(order, ('a', 'c', 'e'))
        assert batch['a'].tolist() == [index % 3 for index in order]
        assert batch['e'].tolist() == [[index % 3] * 4 for index in order]
        assert batch['c'].lengths.tolist() == [index % 3 for index in order]


CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import os, bags
path, shards = sys.argv[1], int(sys.argv[2])
with bags.open(path) as reader:
    order = [index * 7919 % (3 * shards) for index in range(2000)]
    for index in order[:300]:
        assert reader[index]['a'] == index % 3
        assert len(os.listdir('/proc/self/fd')) < 200
    assert reader.batch(order)['a'].tolist() == [index % 3 for index in order]
    assert reader.lengths('c').sum() == 3 * shards
    assert len(reader.records('c')) == 3 * shards
    print(len(os.listdir('/proc/self/fd')))
"""


@LINUX
def test_some_hundred_shards_with_few_descriptors(tmp_path, kit):
    many_shards(tmp_path, kit, 300)
    assert int(kit.python(CHILD, tmp_path, 300)) < 200


@LINUX
@pytest.mark.slow
def test_ten_thousand_shards(tmp_path, kit):
    shards = 10_000
    many_shards(tmp_path, kit, shards)
    assert int(kit.python(CHILD, tmp_path, shards)) < 200
    before = usage()
    with bags.open(tmp_path) as reader:
        assert (len(reader), reader.shards) == (3 * shards, shards)
        opened = usage()
        assert opened[0] - before[0] < 50  # Files that were not read are not open.
        assert opened[1] - before[1] < 100
        read_all_over(reader, shards, kit, 400)
        descriptors, maps = usage()
        assert descriptors < 8192 + 100
        assert maps - before[1] < 30_000
        assert kit.equal(pickle.loads(pickle.dumps(reader))[29_999], row(2))
        assert reader.lengths('c').tolist() == [0, 1, 2] * shards
        assert reader.batch(range(len(reader)), 'a')['a'].sum() == 3 * shards
    after = usage()
    assert after[0] - before[0] < 50  # All files are closed at the end.


@LINUX
def test_readers_let_go_of_their_files(tmp_path, kit):
    path = kit.fill(tmp_path / 'a', map(row, range(6)), SPEC, shard_length=2)
    before = usage()
    for _ in range(20):
        with bags.open(path) as reader:
            list(reader)
            reader.batch([0, 5])
    for _ in range(20):
        reader = bags.open(path)
        reader[0]
        reader[1:][2]
    del reader
    assert usage()[0] - before[0] < 30
    assert usage()[1] - before[1] < 60


@LINUX
def test_writers_let_go_of_their_files(tmp_path, kit):
    before = usage()[0]
    writer = bags.ShardedDatasetWriter(tmp_path / 'a', SPEC, shard_length=1)
    for index in range(30):
        writer.append(row(index % 5))
    writer.flush()  # Waits for the shard before, which has its files open until it is on disk.
    assert usage()[0] - before < 40
    writer.close()
    assert usage()[0] == before


# Many rows.


def large_dataset(path, rows):
    """Writes the files of a dataset of two fields, without appending rows: id is the row, tag its half."""
    path.mkdir()
    (path / 'spec.json').write_text('{"id": "int(8)", "tag": "uint(2)[]"}')
    piece = 1 << 20
    with open(path / 'refs.bag', 'wb') as refs, open(path / 'id.bag', 'wb') as ids:
        table = np.zeros(
            piece, [('h', 'V2'), ('id', '>u4'), ('p', 'V2'), ('f', '>u4'), ('q', 'V1'), ('c', '>u4')]
        )
        table['h'], table['p'], table['q'] = b'\x92\xce', b'\x92\xce', b'\xce'
        table['c'] = 1
        assert table.itemsize == 17
        for start in range(0, rows, piece):
            numbers = np.arange(start, min(start + piece, rows))
            table['id'][: len(numbers)] = numbers
            table['f'][: len(numbers)] = numbers % 1000
            refs.write(table[: len(numbers)].tobytes())
            ids.write(numbers.astype('<i8').tobytes())
        for file, size in ((refs, 17), (ids, 8)):
            for start in range(0, rows, piece):
                ends = np.arange(start + 1, min(start + piece, rows) + 1) * size
                file.write(ends.astype('<u8').tobytes())
    with bags.bag.Writer(path / 'tag.bag') as writer:
        for number in range(1000):
            writer.write(number.to_bytes(2, 'little'))


def count_calls(work):
    """Counts calls of C functions during `work`: those of numpy, mmap, struct, zstandard ..."""
    count = 0

    def profile(frame, event, arg):
        nonlocal count
        count += event == 'c_call'

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def check_large(path, rows):
    chance = np.random.default_rng(0)
    with bags.open(path) as reader:
        assert len(reader) == rows
        reader.batch([0, rows - 1])
        for _ in range(12):  # Blocks of limits may be checked on their first reads.
            order = chance.integers(0, rows, 256)
            reader.batch(order)
        tracemalloc.start()
        try:
            for size in (1, 64, 1024):
                order = chance.integers(0, rows, size)
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                batch = reader.batch(order)
                assert tracemalloc.get_traced_memory()[1] - before < 1 << 20
                assert batch['id'].tolist() == order.tolist()
                assert batch['tag'].values.tolist() == (order % 1000).tolist()
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                index = int(order[0])
                assert reader[index] == {'id': index, 'tag': [index % 1000]}
                assert reader[-1] == {'id': rows - 1, 'tag': [(rows - 1) % 1000]}
                assert [r['id'] for r in reader.__getitems__(order[:8])] == order[:8].tolist()
                assert reader[: rows // 2][-1]['id'] == rows // 2 - 1
                assert tracemalloc.get_traced_memory()[1] - before < 1 << 20
        finally:
            tracemalloc.stop()


def calls_of_batches(path, sizes):
    with bags.open(path) as reader:
        rows = len(reader)
        chance = np.random.default_rng(0)
        orders = [chance.integers(0, rows, size) for size in sizes]
        for order in orders:
            reader.batch(order)
        return [count_calls(lambda order=order: reader.batch(order)) for order in orders]


def test_a_batch_copies_no_table(tmp_path):
    large_dataset(tmp_path / 'a', 2_000_000)
    check_large(tmp_path / 'a', 2_000_000)


@pytest.mark.slow
def test_a_batch_of_twenty_million_rows_copies_no_table(tmp_path):
    large_dataset(tmp_path / 'a', 20_000_000)
    check_large(tmp_path / 'a', 20_000_000)
    shutil.rmtree(tmp_path / 'a')


def test_a_batch_is_a_constant_number_of_calls(tmp_path):
    calls = []
    for rows in (20_000, 500_000):
        large_dataset(tmp_path / str(rows), rows)
        calls.append(calls_of_batches(tmp_path / str(rows), [32, 256, 2048, 20_000]))
    # Some more for checks of blocks of limits, but not one a row.
    assert max(map(max, calls)) < 500, calls
