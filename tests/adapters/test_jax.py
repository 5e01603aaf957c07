"""Columns are copied to JAX devices while the next batches are read."""

import json
import socket
import subprocess
import sys

import grain
import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import bags
import bags.jax


@pytest.fixture
def batch(make):
    dataset, _ = make('views')
    return dataset.batch(range(6), ('id', 'grid', 'nums', 'text', 'score'))


def test_values_arrive(batch, kit):
    found = bags.jax.device_put(batch)
    assert list(found) == list(batch)
    assert isinstance(found['grid'], jax.Array)
    for name in ('id', 'grid'):
        assert kit.equal(np.asarray(found[name]).astype(batch[name].dtype), batch[name])
    assert found['text'] == batch['text']
    assert [part.tolist() for part in found['nums']] == [part.tolist() for part in batch['nums']]
    assert found['nums'].lengths.tolist() == batch['nums'].lengths.tolist()


def test_aligned_arrays_are_not_copied_on_the_cpu():
    room = np.zeros(4096 + 64, np.uint8)
    start = -room.ctypes.data % 64
    array = room[start : start + 4096].view(np.float32)
    assert bags.jax.device_put({'x': array})['x'].unsafe_buffer_pointer() == array.ctypes.data


@pytest.mark.parametrize('workers', [0, 2])
def test_batches_of_a_loader_on_the_device(tmp_path, workers):
    rng = np.random.default_rng(0)
    with bags.DatasetWriter(tmp_path / 'x', {'image': 'jpeg(90)', 'row': 'array(float32,1024)'}) as writer:
        for index in range(20):
            picture = rng.integers(0, 255, (32, 48, 3), np.uint8)
            writer.append({'image': picture, 'row': np.full(1024, index, np.float32)})
    dataset = bags.open(tmp_path / 'x')
    options = {'shuffle': False, 'epochs': 1, 'workers': workers, 'collate': bags.stack}
    for step, batch in enumerate(bags.Loader(dataset, 5, to_device=bags.jax.device_put, **options)):
        expected = dataset.batch(range(5 * step, 5 * step + 5))
        assert np.array_equal(batch['image'], np.stack(expected['image']))
        assert np.array_equal(batch['row'], expected['row'])


def test_a_jitted_function_takes_the_batch(batch):
    found = bags.jax.device_put({name: batch[name] for name in ('grid', 'nums')})
    total = jax.jit(lambda columns: columns['nums'].values.sum() + columns['grid'].sum())(found)
    assert float(total) == pytest.approx(batch['nums'].values.sum() + batch['grid'].sum(), rel=1e-5)
    doubled = jax.tree.map(lambda array: array * 2, found)
    assert doubled['nums'].values.tolist() == (2 * batch['nums'].values).tolist()


def test_sharded_over_devices(batch):
    assert len(jax.devices()) == 2  # conftest.py sets their number.
    devices = NamedSharding(Mesh(np.array(jax.devices()), ('data',)), PartitionSpec('data'))
    found = bags.jax.device_put({'grid': batch['grid']}, devices)['grid']
    assert found.sharding == devices
    assert [shard.data.shape[0] for shard in found.addressable_shards] == [3, 3]
    assert np.array_equal(found, batch['grid'])
    with pytest.raises(TypeError, match="field 'nums'"):
        bags.jax.device_put(batch, devices)


@pytest.mark.parametrize(('dtype', 'value'), [('i8', 2**40), ('i8', -(2**31) - 1), ('u8', 2**32)])
def test_integers_that_would_be_cut_are_refused(dtype, value):
    batch = {'id': np.array([1, value], dtype)}
    with pytest.raises(OverflowError, match=rf"'id': {value} does not fit"):
        bags.jax.device_put(batch)
    with jax.enable_x64(True):
        assert bags.jax.device_put(batch)['id'].tolist() == [1, value]


@pytest.mark.parametrize('dtype', ['datetime64[ns]', 'U3', 'S3', 'O', 'longdouble'])
def test_dtypes_that_it_lacks_name_the_field(dtype):
    with pytest.raises(TypeError, match=r"field 'when'.*no dtype for"):
        bags.jax.device_put({'when': np.zeros(3, dtype)})


def test_foreign_byte_order():
    assert bags.jax.device_put({'x': np.arange(3, dtype='>f4')})['x'].tolist() == [0, 1, 2]


def batches(dataset):
    indices = grain.MapDataset.range(len(dataset)).shuffle(seed=1).batch(5)
    options = grain.ReadOptions(num_threads=2, prefetch_buffer_size=2)
    return indices.map(lambda chosen: dataset.batch(chosen, 'id')).to_iter_dataset(options)


@pytest.mark.parametrize('size', [0, 1, 3, 100])
def test_prefetch_goes_on_where_it_was(make, size):
    dataset, _ = make('views')
    whole = [batch['id'].tolist() for batch in batches(dataset)]
    ahead = bags.jax.prefetch(batches(dataset), size)
    for count, expected in enumerate(whole):
        state = ahead.get_state()
        resumed = bags.jax.prefetch(batches(dataset), size)
        resumed.set_state(state)
        assert [batch['id'].tolist() for batch in resumed] == whole[count:]
        assert next(ahead)['id'].tolist() == expected
    with pytest.raises(StopIteration):
        next(ahead)
    ahead.set_state(state)
    assert [batch['id'].tolist() for batch in ahead] == whole[-1:]


def test_prefetch_of_what_has_no_state():
    ahead = bags.jax.prefetch([{'x': np.arange(2)}, {'x': np.arange(3)}])
    assert [len(batch['x']) for batch in ahead] == [2, 3]
    with pytest.raises(TypeError, match='get_state'):
        ahead.get_state()
    with pytest.raises(ValueError, match='size'):
        bags.jax.prefetch([], -1)
    with pytest.raises(TypeError, match='expected a Loader or another iterable, got 5'):
        bags.jax.prefetch(5)


PROCESS = """
import json, sys
import jax
import numpy as np

jax.config.update('jax_cpu_collectives_implementation', 'gloo')
jax.distributed.initialize(f'127.0.0.1:{sys.argv[2]}', 2, int(sys.argv[1]))
import bags, bags.jax

mesh = jax.sharding.Mesh(np.array(jax.devices()), ('data',))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('data'))
loader = bags.Loader(
    bags.open(sys.argv[3]), 4, seed=0, rank=jax.process_index(), world_size=jax.process_count()
)
sums = jax.jit(lambda batch: (batch['id'].sum(), batch['x'].sum(axis=0)))
for batch in bags.jax.prefetch(loader, sharding=sharding):
    total, vector = sums(batch)
    own = [int(each) for shard in batch['id'].addressable_shards for each in np.asarray(shard.data)]
    found = {'shape': batch['id'].shape, 'own': own, 'total': int(total), 'vector': vector.tolist()}
    print(json.dumps(found), flush=True)
"""


def test_two_processes_read_the_parts_of_one_global_batch(tmp_path):
    """As on two hosts: each reads its part, and a jitted function sums the whole batch."""
    x = np.arange(64, dtype=np.float32).reshape(32, 2)
    bags.from_numpy({'id': np.arange(32), 'x': x}, tmp_path / 'rows')
    with socket.create_server(('127.0.0.1', 0)) as server:
        port = server.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, '-c', PROCESS, str(rank), str(port), str(tmp_path / 'rows')],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    texts = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    found = [[json.loads(line) for line in text.splitlines() if line.startswith('{')] for text in texts]
    seen = []
    for one, other in zip(*found, strict=True):
        ids = one['own'] + other['own']
        assert one['shape'] == other['shape'] == [8]
        assert one['total'] == other['total'] == sum(ids)
        assert one['vector'] == other['vector'] == x[ids].sum(0).tolist()
        seen += ids
    assert sorted(seen) == list(range(32))
