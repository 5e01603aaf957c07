"""Memory that comes back: never as long as anybody has it, and not more of it than told."""

import gc
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bags.memory import ALIGNMENT, LEAST, Pool, aligned

SIZE = LEAST + 1000


def place_of(array):
    return array.__array_interface__['data'][0]


@pytest.mark.parametrize('size', [1, 63, 64, 100_000, LEAST - 1, LEAST, SIZE])
def test_memory_is_aligned(size):
    for array in (aligned(size), Pool(2).take(size)):
        assert array.shape == (size,)
        assert array.dtype == np.uint8
        assert place_of(array) % ALIGNMENT == 0
        assert array.flags.writeable


def test_memory_is_used_again_when_the_last_array_is_gone():
    pool = Pool(2)
    first = pool.take(SIZE)
    place = place_of(first)
    view = first[10:].view(np.int8).reshape(2, -1)[1]
    buffer = memoryview(view)
    del first, view
    assert place_of(pool.take(SIZE)) != place  # Somebody has a buffer over it,
    del buffer
    places = {place_of(array) for array in [pool.take(SIZE), pool.take(SIZE)]}
    assert place in places  # and then nobody.


def test_memory_in_a_cycle_comes_back_with_it():
    pool = Pool(2)
    cycle = [pool.take(SIZE)]
    place = place_of(cycle[0])
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert place_of(pool.take(SIZE)) == place


def test_no_more_is_kept_than_told():
    pool = Pool(3)
    arrays = [pool.take(SIZE) for _ in range(10)]
    assert len({place_of(array) for array in arrays}) == 10
    del arrays
    assert len(pool._free) == 3


def test_small_memory_is_not_taken_of_large():
    pool = Pool(1)
    pool.take(8 * SIZE)
    assert len(pool._free) == 1
    small = pool.take(SIZE)
    assert len(pool._free) == 1
    assert small.base.nbytes < 2 * SIZE


def test_a_pool_is_lent_to_one_thread():
    pool, found = Pool(2), []
    with pool.lent():
        place = place_of(aligned(SIZE))
        assert place_of(aligned(SIZE)) == place
        thread = threading.Thread(target=lambda: found.append(aligned(SIZE)))
        thread.start()
        thread.join()
        with Pool(1).lent():
            assert place_of(aligned(SIZE)) != place
        assert place_of(aligned(SIZE)) == place
    held = aligned(SIZE)
    assert len(pool._free) == 1
    assert not any(np.shares_memory(held, piece) for piece in pool._free)


def test_a_pool_is_pickled_without_its_memory():
    pool = Pool(5)
    pool.take(SIZE)
    data = pickle.dumps(pool)
    assert len(data) < 200
    assert pickle.loads(data)._free.maxlen == 5


def test_memory_outlives_its_pool():
    pool = Pool(2)
    array = pool.take(SIZE)
    array[:] = 7
    del pool
    gc.collect()
    assert (array == 7).all()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), max_size=40))
def test_nobody_has_memory_of_another(steps):
    pool, held = Pool(3), {}
    for number, (slot, size) in enumerate(steps):
        held.pop(slot, None)
        array = pool.take(size * SIZE)
        array[:: 1 << 12] = array[-1] = number
        held[slot] = array, number
        for other, expected in held.values():
            assert (other[:: 1 << 12] == expected).all()
            assert other[-1] == expected


def test_threads_that_share_a_pool():
    pool, wrong = Pool(3), []

    def work(thread):
        for number in range(200):
            array = pool.take(SIZE)
            mark = (thread * 200 + number) % 251
            array[:: 1 << 12] = mark
            if not (array[:: 1 << 12] == mark).all():
                wrong.append((thread, number))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert not wrong
