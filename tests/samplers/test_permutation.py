"""Permutations: bijections, each equally likely, for any length, vectorized."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bags.samplers.permutation import MAX_LENGTH, hashed, permuted

WORDS = st.lists(st.integers(-(2**70), 2**70), max_size=3)


@given(st.integers(0, 5000), WORDS)
def test_every_index_comes_once(length, words):
    found = permuted(np.arange(length), length, *words)
    assert found.dtype == np.int64
    assert sorted(found.tolist()) == list(range(length))


@given(st.integers(1, MAX_LENGTH), WORDS, st.data())
def test_of_any_length_no_index_comes_twice(length, words, data):
    start = data.draw(st.integers(0, length - 1))
    positions = np.arange(start, min(start + 100, length))
    found = permuted(positions, length, *words)
    assert len(np.unique(found)) == len(positions)
    assert 0 <= found.min() <= found.max() < length


@pytest.mark.parametrize('length', [10**6, 2**20 - 1, 1_000_003])
def test_long_ones(length):
    assert np.array_equal(np.sort(permuted(np.arange(length), length, 1)), np.arange(length))


@given(st.integers(1, 2000), st.integers(0, 50), st.data())
def test_positions_can_be_asked_for_in_any_order_and_shape(length, seed, data):
    positions = np.array(data.draw(st.lists(st.integers(0, length - 1), min_size=4, max_size=4)))
    whole = permuted(np.arange(length), length, seed)
    assert np.array_equal(permuted(positions, length, seed), whole[positions])
    assert np.array_equal(permuted(positions.reshape(2, 2), length, seed), whole[positions].reshape(2, 2))


TEN = [2, 4, 6, 1, 8, 0, 5, 9, 3, 7]
THOUSAND = [958, 628, 573, 922, 471]
LONG = [80520739525, 144116356095, 437064079618, 596773220142]
DRAWN = [227, 922, 166, 934, 192]


def test_the_same_on_any_machine_and_version():
    """States refer to these orders: they may never change."""
    assert permuted(np.arange(10), 10, 0, 0).tolist() == TEN
    assert permuted(np.arange(995, 1000), 1000, 3, 1).tolist() == THOUSAND
    assert permuted(np.arange(4), 10**12, 1, 2).tolist() == LONG
    assert hashed(np.arange(5), 1000, 7).tolist() == DRAWN


def test_no_length():
    for length in (-1, MAX_LENGTH + 1):
        with pytest.raises(ValueError, match='length'):
            permuted(np.arange(0), length)


# Statistics with fixed seeds, so that the results are always the same.


@pytest.mark.parametrize('length', [2, 3, 4])
def test_all_orders_are_equally_likely(length):
    each, orders = 100, math.factorial(length)
    found = Counter(tuple(permuted(np.arange(length), length, seed)) for seed in range(each * orders))
    assert len(found) == orders
    chi = sum((count - each) ** 2 / each for count in found.values())
    assert chi < orders + 5 * math.sqrt(2 * orders)


@pytest.mark.parametrize('length', [100, 5000, 10**6, 10**12])
def test_looks_random(length):
    count = min(length, 20_000)
    bound = 5 / math.sqrt(count)
    for seed in range(3):
        found = permuted(np.arange(count), length, seed, 0) / length
        assert abs(np.corrcoef(found, np.arange(count))[0, 1]) < bound
        for lag in (1, 2, math.isqrt(length) % count or 1):
            assert abs(np.corrcoef(found[lag:], found[:-lag])[0, 1]) < bound
        # Consecutive epochs and seeds are independent.
        other = permuted(np.arange(count), length, seed, 1) / length
        assert abs(np.corrcoef(found, other)[0, 1]) < bound
        third = permuted(np.arange(count), length, seed + 1, 0) / length
        assert abs(np.corrcoef(found, third)[0, 1]) < bound


@pytest.mark.parametrize('length', [50, 10**4, 10**9])
def test_any_index_is_equally_likely_at_any_position(length):
    cells = 10
    for position in (0, length - 1):
        found = [int(permuted(np.array([position]), length, seed)[0]) for seed in range(600)]
        counts = np.bincount(np.array(found) * cells // length, minlength=cells)
        assert ((counts - 60) ** 2 / 60).sum() < 35  # 9 degrees of freedom: exceeded once in 10,000.


@pytest.mark.parametrize('length', [1, 3, 1000, 10**12])
def test_draws(length):
    found = hashed(np.arange(20_000), length, 1, 2)
    assert 0 <= found.min() <= found.max() < length
    cells = min(length, 100)
    counts = np.bincount((found.astype(object) * cells // length).astype(int), minlength=cells)
    expected = 20_000 / cells
    assert ((counts - expected) ** 2 / expected).sum() < cells + 5 * math.sqrt(2 * cells)
    assert not np.array_equal(found, hashed(np.arange(20_000), length, 1, 3)) or length == 1
