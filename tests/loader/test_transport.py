"""Batches through shared memory: equal, with arrays of their own, and nothing stays open."""

import gc
import os
import pickle

import numpy as np
import pytest

import bags
from bags.loader.batches import Made
from bags.loader.shared_memory import Arena
from bags.loader.transport import failed, put, taken
from bags.memory import ALIGNMENT, Pool


def test_an_arena_grows_and_aligns():
    arena = Arena()
    for sizes in ([3, 0, 100], [], [5_000_000, 7]):
        parts = [memoryview(os.urandom(size)) for size in sizes]
        offsets = arena.write(parts)
        assert all(offset % ALIGNMENT == 0 for offset in offsets)
        for offset, part in zip(offsets, parts, strict=True):
            assert arena.view(offset + len(part))[offset:] == part
    before = len(os.listdir('/proc/self/fd')) if os.path.isdir('/proc/self/fd') else 0
    arena.close()
    arena.close()
    del arena
    gc.collect()
    if before:
        assert len(os.listdir('/proc/self/fd')) < before


@pytest.mark.parametrize('arrays', [0, 1, 2, 3000])
def test_batches_are_equal_and_own_their_arrays(arrays):
    chance = np.random.default_rng(arrays)
    columns = {f'{number}': chance.integers(0, 99, chance.integers(0, 40)) for number in range(arrays)}
    columns |= {'text': ['x' * 100_000], 'ragged': bags.Ragged(np.zeros((0, 3)), np.zeros(1, np.int64))}
    slot = Arena()
    for number in (7, 8):  # The second time there are the first's bytes.
        count = put(slot, [Made(columns, number, 5), Made({}, number + 1)])
        first, second = taken(slot, count, Pool(4))
        slot.write([memoryview(bytes(1 << 20))])
        assert (first.number, first.size, second.batch) == (number, 5, {})
        assert first.batch['text'] == columns['text']
        assert first.batch['ragged'].values.shape == (0, 3)
        for name in map(str, range(arrays)):
            assert first.batch[name].tolist() == columns[name].tolist()
            assert first.batch[name].flags.writeable
            assert first.batch[name].ctypes.data % ALIGNMENT == 0 or not len(columns[name])
    slot.close()


def test_what_cannot_be_handed_over_is_told():
    slot = Arena()
    with pytest.raises(TypeError) as caught:
        put(slot, [Made({'x': (name for name in 'ab')}, 3)])
    (made,) = pickle.loads(failed(3, caught.value))
    assert made.number == 3
    assert 'generator' in str(made.error)
    slot.close()
