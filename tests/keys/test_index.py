"""Finding datapoints by key: every hit is a datapoint with the key, whatever the index file says."""

import contextlib
import os
import pickle
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
import xxhash

import bags
from bags.keys.index import INDEX_FOOTER, INDEX_MAGIC, KEYS_PER_BLOCK

# xxh3_64 multiplies the halves of a key's first 16 bytes, each xor a part of its secret. If the first half
# equals this part, the product is 0, and the second half has no effect.
NO_EFFECT = bytes.fromhex('b8fe6c3923a44bbe')


def colliding(number):
    """Returns keys that differ and have the same hash."""
    return NO_EFFECT + number.to_bytes(8, 'big') + b'the same in all.'


def write(path, rows, spec, **options):
    with bags.ShardedDatasetWriter(path, spec, **options) as writer:
        for row in rows:
            writer.append(row, flush=False)
    return path


def make_rows(count):
    order = np.random.default_rng(0).permutation(count).tolist()
    return [
        {'id': f'épisode {n}', 'blob': b'\0' * (n % 3) + n.to_bytes(4, 'big'), 'n': -n, 'u': n << 40}
        for n in order
    ]


SPEC = {'id': 'utf8', 'blob': 'bytes', 'n': 'int(8)', 'u': 'uint(16)'}
FIELDS = list(SPEC)


@pytest.fixture(scope='module', params=['folder', 'shards', 'compressed'])
def made(request, tmp_path_factory):
    path = tmp_path_factory.mktemp('keys') / 'x'
    rows = make_rows(3000)
    length, compression = (300, None) if request.param == 'shards' else (None, None)
    if request.param == 'compressed':
        compression = FIELDS
    if request.param == 'shards':
        write(path, rows, SPEC, shard_length=length)
    else:
        with bags.DatasetWriter(path, SPEC, compression=compression) as writer:
            for row in rows:
                writer.append(row, flush=False)
    for field in SPEC:
        assert bags.create_index(path, field) == len(rows)
    return path, rows


@pytest.mark.slow('compressed-*')
@pytest.mark.parametrize('options', [{}, {'raw': True}, {'mapped': False}])
def test_every_key_is_found(made, options):
    path, rows = made
    with bags.open(path, **options) as dataset:
        for field in SPEC:
            keys = [row[field] for row in rows]
            step = 20 if options else 1
            assert [dataset.find(field, key) for key in keys[::step]] == list(range(0, len(rows), step))
            found = dataset.find_many(field, keys[::-1])
            assert found.dtype == np.int64
            assert found.tolist() == list(range(len(rows)))[::-1]
    assert bags.open(path).find_many('id', []).tolist() == []


def test_absent_keys(made):
    path, rows = made
    dataset = bags.open(path)
    with pytest.raises(KeyError, match=r"x'.*field 'id': no datapoint has the key 'nothing'"):
        dataset.find('id', 'nothing')
    with pytest.raises(KeyError, match=r"field 'n': no datapoint has the key 7 and 1 others"):
        dataset.find_many('n', [rows[0]['n'], 7, 8])
    for n in range(1, 500):
        with pytest.raises(KeyError):
            dataset.find('n', n)
    with pytest.raises(KeyError, match="no field 'name'"):
        dataset.find('name', 'a')


def test_keys_of_other_types(made):
    dataset = bags.open(made[0])
    for field, key in [
        ('id', 3),
        ('id', b'3'),
        ('id', None),
        ('blob', '3'),
        ('n', '3'),
        ('n', 3.0),
        ('n', True),
    ]:
        with pytest.raises(TypeError, match=f"field '{field}' of type .*: expected a key of this type"):
            dataset.find(field, key)
    for keys in ('abc', b'abc', 3):
        with pytest.raises(TypeError, match='find_many: expected several keys'):
            dataset.find_many('id', keys)
    row = make_rows(3000)[5]
    assert dataset.find('n', np.int32(row['n'])) == dataset.find('blob', bytearray(row['blob'])) == 5


def test_other_decoders(made):
    path, rows = made
    with bags.open(path, decoders={**bags.decoders, 'utf8': len}) as dataset:
        assert dataset.find('id', rows[8]['id']) == 8
        assert dataset.find_many('id', [rows[8]['id']]).tolist() == [8]


def test_collisions(tmp_path):
    assert xxhash.xxh3_64_intdigest(colliding(0)) == xxhash.xxh3_64_intdigest(colliding(1))
    keys = [colliding(number) for number in range(3 * KEYS_PER_BLOCK)] + [
        b'%d' % number for number in range(2 * KEYS_PER_BLOCK)
    ]
    order = np.random.default_rng(1).permutation(len(keys)).tolist()
    write(tmp_path / 'x', [{'k': keys[place]} for place in order], {'k': 'bytes'}, shard_length=500)
    bags.create_index(tmp_path / 'x', 'k')
    dataset = bags.open(tmp_path / 'x')
    for index, place in enumerate(order):
        assert dataset.find('k', keys[place]) == index
    assert dataset.find_many('k', [keys[place] for place in order]).tolist() == list(range(len(keys)))
    with pytest.raises(KeyError):
        dataset.find('k', colliding(5000))


def test_duplicates_and_missing_keys(tmp_path):
    keys = ['b', None, 'a', 'b', None, *['many'] * (3 * KEYS_PER_BLOCK), 'a']
    write(tmp_path / 'x', [{'id': key} for key in keys], {'id': 'utf8?'}, shard_length=100)
    assert bags.create_index(tmp_path / 'x', 'id') == len(keys) - 2
    dataset = bags.open(tmp_path / 'x')
    assert [dataset.find('id', key) for key in ('a', 'b', 'many')] == [2, 0, 5]
    assert dataset.find_many('id', ['many', 'a', 'b']).tolist() == [5, 2, 0]
    assert dataset[10:].find('id', 'many') == 0
    assert dataset[3:].find('id', 'a') == len(keys) - 4


def test_empty(tmp_path):
    write(tmp_path / 'x', [], {'id': 'utf8'})
    assert bags.create_index(tmp_path / 'x', 'id') == 0
    with pytest.raises(KeyError):
        bags.open(tmp_path / 'x').find('id', '')


@pytest.mark.slow(all_but='shards')
def test_other_processes_find_the_same(made, kit):
    path, rows = made
    code = f"""import bags
dataset = bags.open({str(path)!r})
print([dataset.find('id', f'épisode {{n}}') for n in range(50)])"""
    expected = [next(i for i, row in enumerate(rows) if row['id'] == f'épisode {n}') for n in range(50)]
    assert kit.python(code).decode().strip() == str(expected)
    dataset = bags.open(path)
    dataset.find('id', 'épisode 1')
    again = pickle.loads(pickle.dumps(dataset))
    assert [again.find('id', f'épisode {n}') for n in range(50)] == expected
    index = next(path.rglob('id.index'))
    before = index.read_bytes()
    bags.create_index(path, 'id')
    assert index.read_bytes() == before


def test_threads(made):
    path, rows = made
    dataset = bags.open(path)
    found = {}

    def work(start):
        found[start] = [dataset.find('id', row['id']) for row in rows[start::4]]

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[start] == list(range(len(rows)))[start::4] for start in range(4))


def test_closed(made):
    dataset = bags.open(made[0])
    dataset.find('n', 0)
    dataset.close()
    with pytest.raises(ValueError, match='is closed'):
        dataset.find('n', 0)


# Views.


def test_views(made):
    path, rows = made
    dataset = bags.open(path)
    chosen = np.random.default_rng(2).integers(0, len(rows), 900)
    one = bags.join([dataset[:, ('id', 'n')], dataset[:, ('blob', 'u')]])
    for view in (
        dataset[100:2000:7],
        dataset[2000:100:-7],
        dataset[::-1][50:60, 'id'],
        dataset.select(chosen),
        dataset.select(chosen).select(range(899, -1, -2)),
        bags.concat([dataset[500:], dataset[:500], dataset[:10]]),
        one[100:200],
        pickle.loads(pickle.dumps(dataset.select(chosen))),
    ):
        ids = view.column('id')
        for key in set(ids[:60]):
            assert view.find('id', key) == ids.index(key)
        assert view.find_many('id', ids).tolist() == [ids.index(key) for key in ids]
        absent = {row['id'] for row in rows} - set(ids)
        if absent:
            with pytest.raises(KeyError):
                view.find('id', absent.pop())


def test_views_that_have_no_keys(tmp_path):
    write(tmp_path / 'x', [{'id': 'a', 'x': [1, 2, 3]}], {'id': 'utf8', 'x': 'int(8)[]'})
    bags.create_index(tmp_path / 'x', 'id')
    dataset = bags.open(tmp_path / 'x')
    with pytest.raises(TypeError, match='call find on the dataset that it is computed from'):
        dataset.windows(every='x', x=bags.steps(0, 1)).find('id', 'a')
    with pytest.raises(TypeError, match='expected all shards'):
        bags.open(tmp_path / 'x', shard_step=2).find('id', 'a')


# Index files that are missing, stale, damaged or crafted.


def test_no_index(tmp_path):
    path = write(tmp_path / 'x', [{'id': 'a'}], {'id': 'utf8'})
    with pytest.raises(
        FileNotFoundError, match=r"no index of field 'id': bags.create_index writes it.*id.index"
    ):
        bags.open(path).find('id', 'a')


@pytest.fixture
def small(tmp_path):
    path = tmp_path / 'x'
    with bags.DatasetWriter(path, {'id': 'utf8', 'n': 'int'}) as writer:
        for number in range(700):
            writer.append({'id': f'ep-{number}', 'n': number})
    bags.create_index(path, 'id')
    return path


def test_a_damaged_dataset_is_not_a_stale_index(tmp_path):
    with bags.DatasetWriter(tmp_path / 'x', {'key': 'utf8'}) as writer:
        for index in range(100):
            writer.append({'key': f'key {index}'})
    bags.create_index(tmp_path / 'x', 'key')
    with (tmp_path / 'x/refs.bag').open('r+b') as file:
        file.write(b'\xff' * 50)
    with pytest.raises(bags.CorruptError, match=r'refs\.bag, record 0: '):
        bags.open(tmp_path / 'x').find('key', 'key 99')


def test_stale(small):
    with bags.DatasetWriter(small, {'id': 'utf8', 'n': 'int'}, resume=True) as writer:
        writer.append({'id': 'ep-700', 'n': 700})
    with pytest.raises(
        bags.CorruptError, match=r'id\.index: is stale: .*700 .* 701.*: run bags.create_index again'
    ):
        bags.open(small).find('id', 'ep-3')
    bags.create_index(small, 'id')
    assert bags.open(small).find('id', 'ep-700') == 700


def test_of_other_data(small, tmp_path):
    with bags.DatasetWriter(tmp_path / 'y', {'id': 'utf8'}) as writer:
        for number in range(700):
            writer.append({'id': f'EP-{number}'})
    (tmp_path / 'y/id.index').write_bytes((small / 'id.index').read_bytes())
    with pytest.raises(
        bags.CorruptError, match=r'is stale: it was made from other data .*: run bags.create_index'
    ):
        bags.open(tmp_path / 'y').find('id', 'EP-3')


def test_removed_where_datapoints_are(small):
    spec = {'id': 'utf8', 'n': 'int'}
    with bags.DatasetWriter(small, spec, resume=True):
        pass
    assert bags.open(small).find('id', 'ep-3') == 3
    with bags.DatasetWriter(small, spec, resume=True, truncate_to=300) as writer:
        for number in range(300, 700):
            writer.append({'id': f'new-{number}', 'n': number})
    with pytest.raises(FileNotFoundError, match=r'bags.create_index'):
        bags.open(small).find('id', 'new-301')


@pytest.mark.parametrize('size', [0, 1, 63, 64, 100, 5000])
def test_cut_off(small, size):
    index = small / 'id.index'
    index.write_bytes(index.read_bytes()[:size])
    with pytest.raises(bags.CorruptError, match=r'id\.index: .*run bags.create_index again'):
        bags.open(small).find('id', 'ep-3')


def test_every_changed_byte_is_noticed(small):
    """A changed byte is an error, or is in a block that the look-up does not read."""
    index = small / 'id.index'
    data = index.read_bytes()
    for place in [*range(0, len(data), 397), *range(len(data) - 120, len(data), 3)]:
        index.write_bytes(data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :])
        assert [finding.path for finding in bags.verify(small, notes=False)] == [str(index)]
        with bags.open(small) as dataset:
            with pytest.raises(bags.CorruptError, match=r'id\.index: .*run bags.create_index again'):
                dataset.find_many('id', [f'ep-{number}' for number in range(700)])
            for number in (0, 350):
                with contextlib.suppress(bags.CorruptError):
                    assert dataset.find('id', f'ep-{number}') == number


def craft(path, entries, length=700, count=None):
    """Writes an index with valid checksums, whatever its content."""
    data = path.read_bytes()
    fingerprint = INDEX_FOOTER.unpack(data[-INDEX_FOOTER.size :])[1]
    blocks = [entries[start : start + KEYS_PER_BLOCK] for start in range(0, len(entries), KEYS_PER_BLOCK)]
    body = [
        b''.join(struct.pack('<Q', entry[part]) for part in (0, 1) for entry in block) for block in blocks
    ]
    head = b''.join(struct.pack('<Q', block[0][0]) for block in blocks)
    head += b''.join(struct.pack('<Q', xxhash.xxh3_64_intdigest(block)) for block in body)
    footer = INDEX_FOOTER.pack(INDEX_MAGIC, fingerprint, len(entries) if count is None else count, length, 0)[
        :-8
    ]
    checksum = struct.pack('<Q', xxhash.xxh3_64_intdigest(head + footer))
    path.write_bytes(b''.join(body) + head + footer + checksum)


def test_crafted(small):
    index = small / 'id.index'
    digest = {number: xxhash.xxh3_64_intdigest(b'ep-%d' % number) for number in range(700)}
    # All keys with the position of another one, then with several positions, unordered.
    for wrong in (
        [(digest[n], (n + 1) % 700) for n in range(700)],
        [(digest[n % 7], n) for n in range(699, -1, -1)],
        [(digest[3], 3)] * 700,
        [(0, n) for n in range(700)],
        [((1 << 64) - 1, n) for n in range(700)],
    ):
        for entries in (wrong, sorted(wrong)):
            craft(index, entries)
            refused = bags.CorruptError if entries is wrong else ()
            with contextlib.suppress(refused), bags.open(small) as dataset:
                for number in range(0, 700, 50):
                    with contextlib.suppress(KeyError):
                        assert dataset.find('id', f'ep-{number}') == number
                places, rows = dataset.match_keys('id', [b'ep-%d' % number for number in range(700)])
                assert places.tolist() == rows.tolist()
                assert len(set(rows.tolist())) == len(rows)


def test_crafted_numbers(small):
    index = small / 'id.index'
    before = index.read_bytes()
    craft(index, [(xxhash.xxh3_64_intdigest(b'ep-3'), 1 << 63)])
    with pytest.raises(
        bags.CorruptError, match=r'id\.index: expected datapoints below 700, got 9223372036854775808'
    ):
        bags.open(small).find('id', 'ep-3')
    for count in (1 << 60, (1 << 64) - 1, 1, 699):
        index.write_bytes(before)
        craft(index, [(1, 1)] * 700, count=count)
        with pytest.raises(bags.CorruptError, match=r'id\.index: '):
            bags.open(small).find('id', 'ep-3')


# Other readers, and changes of the file.


def test_other_readers_do_not_see_it(tmp_path):
    bagz, granular = pytest.importorskip('bagz'), pytest.importorskip('granular')

    spec = {'id': 'utf8', 'n': 'int'}
    with granular.ShardedDatasetWriter(tmp_path / 'g', spec, granular.encoders, shardlen=10) as writer:
        for number in range(20):
            writer.append({'id': f'ep-{number}', 'n': number << 50})
    for path in (tmp_path / 'g/000000', tmp_path / 'g'):
        bags.create_index(path, 'id')
        bags.create_index(path, 'n')
        dataset = bags.open(path)
        assert dataset.find('id', f'ep-{len(dataset) - 1}') == len(dataset) - 1
        assert dataset.find('n', 9 << 50) == 9
    assert sorted(os.listdir(tmp_path / 'g')) == ['000000', '000001']
    with granular.ShardedDatasetReader(tmp_path / 'g', granular.decoders) as reader:
        assert [reader[index]['id'] for index in range(20)] == [f'ep-{n}' for n in range(20)]
    with bags.DatasetWriter(tmp_path / 'b', {'id': 'utf8'}) as writer:
        writer.append({'id': 'a'})
    bags.create_index(tmp_path / 'b', 'id')
    assert list(bagz.Reader(str(tmp_path / 'b/id.bag'))) == [b'a']


@pytest.mark.parametrize('name', ['bags05-dataset', 'bags05-sharded', 'granular-dataset', 'granular-sharded'])
def test_datasets_of_older_libraries(name, tmp_path):
    import shutil

    path = tmp_path / 'x'
    shutil.copytree(Path(__file__).parents[1] / 'golden' / name, path)
    dataset = bags.open(path)
    fields = [field for field, kind in dataset.spec.items() if kind.split('(')[0] in ('utf8', 'bytes', 'int')]
    assert fields
    for field in fields:
        bags.create_index(path, field)
        values = list(dataset.column(field))
        for value in values:
            assert dataset.find(field, value) == values.index(value)
