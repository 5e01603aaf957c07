"""Batches in shared memory: equal, with arrays of their own, and all segments are closed."""

import gc
import os

import numpy as np
import pytest

import bags
from bags.loader.shared_memory import ARRAY_ALIGNMENT, SharedMemory, SharedMemoryTransport


def test_memory_grows():
    memory = SharedMemory()
    for sizes in ([3, 0, 100], [5_000_000, 7]):
        parts = [memoryview(os.urandom(size)) for size in sizes]
        memory.write(parts)
        offset = 0
        for part in parts:
            assert memory.view(offset + len(part))[offset:] == part
            offset += -(-len(part) // ARRAY_ALIGNMENT) * ARRAY_ALIGNMENT
    before = len(os.listdir('/proc/self/fd')) if os.path.isdir('/proc/self/fd') else 0
    memory.close()
    memory.close()
    del memory
    gc.collect()
    if before:
        assert len(os.listdir('/proc/self/fd')) < before


@pytest.mark.parametrize('arrays', [0, 1, 2, 3000])
def test_batches_are_equal_and_own_their_arrays(arrays):
    chance = np.random.default_rng(arrays)
    columns = {f'{number}': chance.integers(0, 99, chance.integers(0, 40)) for number in range(arrays)}
    columns |= {'text': ['x' * 100_000], 'ragged': bags.Ragged(np.zeros((0, 3)), np.zeros(1, np.int64))}
    transport = SharedMemoryTransport()
    found = [transport.decode(transport.encode(columns)) for _ in range(5)]  # Reuses the same memory.
    assert transport.decode(transport.encode({})) == {}
    for batch in found:
        assert batch['text'] == columns['text']
        assert batch['ragged'].values.shape == (0, 3)
        for name in map(str, range(arrays)):
            assert batch[name].tolist() == columns[name].tolist()
            assert batch[name].flags.writeable
            assert batch[name].flags.aligned
            batch[name][:] = -1
    transport.close()


def test_batches_that_cannot_be_pickled_raise():
    transport = SharedMemoryTransport()
    with pytest.raises(TypeError, match='generator'):
        transport.encode({'x': (name for name in 'ab')})
    transport.close()
