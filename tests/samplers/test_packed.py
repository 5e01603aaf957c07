"""Bins that fill a budget."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bags.samplers import Packed, Sampler


def whole(sampler, epoch):
    """Returns the datapoints of each bin of an epoch."""
    return [found.tolist() for found in sampler.take(epoch, np.arange(len(sampler)))]


def check(sampler, budgets, lengths):
    """Checks that each datapoint is in one bin, and no bin is empty or exceeds a budget."""
    order = sampler.take(0, np.arange(len(sampler)))
    count = len(lengths[0])
    assert np.sort(order.values).tolist() == list(range(count))
    assert (order.lengths > 0).all()
    for budget, values in zip(budgets, lengths, strict=True):
        assert np.add.reduceat(values[order.values], order.offsets[:-1]).max() <= budget


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_each_datapoint_is_in_one_bin_and_no_bin_exceeds_a_budget(data):
    count, seed = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 9))
    size = data.draw(st.sampled_from([1, 2, 7, 40, 3000]))
    budgets = [data.draw(st.sampled_from([1, 2, 10, 97, 4096, 10**12])) for _ in range(count)]
    tops = [data.draw(st.integers(0, budget)) for budget in budgets]
    chance = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    lengths = [chance.integers(0, top, size, endpoint=True) for top in tops]
    if count == 1:
        sampler = Packed(budgets[0], lengths[0], seed)
    else:
        sampler = Packed(dict(zip('abc', budgets)), dict(zip('abc', lengths)), seed)  # noqa: B905
    check(sampler, budgets, lengths)
    # With one budget, at most one bin is less than half full.
    if count == 1 and len(sampler) > 1:
        assert len(sampler) <= 2 * lengths[0].sum() / budgets[0] + 1


def test_orders_depend_on_nothing_but_seed_epoch_and_position():
    lengths = np.random.default_rng(0).integers(0, 60, 500)

    def make(seed=5):
        return Packed({'tokens': 256, 'images': 9}, {'tokens': lengths, 'images': lengths % 3}, seed)

    sampler = make()
    assert isinstance(sampler, Sampler)
    assert (sampler.datapoints, sampler.seed, sampler.budget) == (500, 5, {'tokens': 256, 'images': 9})
    orders = {epoch: whole(sampler, epoch) for epoch in (0, 1, 7)}
    chance = np.random.default_rng(1)
    for _ in range(20):
        epoch = int(chance.choice([0, 1, 7]))
        positions = chance.integers(0, len(sampler), 6)
        for each in (sampler, make()):
            found = each.take(epoch, positions)
            assert [part.tolist() for part in found] == [orders[epoch][place] for place in positions]
    assert len(sampler.take(0, np.arange(0))) == 0
    assert orders[0] != orders[1]
    assert whole(make(6), 0) != orders[0]
    assert repr(make(6)) != repr(sampler) == repr(make())
    assert repr(sampler).startswith("Packed({'tokens': 256, 'images': 9}, 500 lengths #")
    # The bins of another epoch hold other datapoints, not only in another order.
    sets = [set(map(frozenset, orders[epoch])) for epoch in (0, 1)]
    assert len(sets[0] & sets[1]) < len(sampler) / 4


def test_bins_are_full():
    assert sorted(map(len, whole(Packed(8, [2] * 15), 0))) == [3, 4, 4, 4]
    assert Packed(8, [2] * 16).fill == 1
    assert Packed({'a': 8, 'b': 4}, {'a': [2] * 16, 'b': [0] * 15 + [2]}).fill == {'a': 1, 'b': 0.125}
    assert len(Packed(10, [6, 6, 4, 4, 3, 3, 2, 2])) == 3
    # Datapoints of length 0 are distributed over the bins.
    assert max(map(len, whole(Packed(10, [10] * 50 + [0] * 100), 0))) == 3
    assert len(Packed(10, [0] * 5)) == 1
    assert len(Packed(10, [])) == 0
    assert len(Packed(10**30, [3, 4])) == 1
    # Datapoints that are large in one budget are combined with those large in the other.
    halves = Packed({'a': 10, 'b': 10}, {'a': [9, 1] * 50, 'b': [1, 9] * 50})
    assert halves.fill == {'a': 1, 'b': 1}
    # The lengths in a bin are unordered.
    falls = [np.diff(np.arange(100)[part]) for part in whole(Packed(1000, np.arange(100)), 0)]
    assert 0.3 < np.mean(np.concatenate(falls) < 0) < 0.7


@pytest.mark.parametrize('count', [30_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_million_log_normal_lengths(count):
    chance = np.random.default_rng(0)
    for sigma, budget in [(0.5, 2048), (0.5, 8192), (1, 2048), (1, 4096), (1, 32_768), (1.5, 8192)]:
        lengths = np.minimum(chance.lognormal(6, sigma, count).astype(int) + 1, budget)
        sampler = Packed(budget, lengths)
        check(sampler, [budget], [lengths])
        assert sampler.fill >= 0.99, (sigma, budget)
    tokens = np.minimum(chance.lognormal(6, 1, count).astype(int) + 1, 8192)
    others = chance.lognormal(4, 1, count).astype(int) + 1
    images = np.minimum(chance.geometric(0.5, count) - 1, 12)
    for budget, limit, first, second in [
        (8192, 12, tokens, images),
        (8192, 100, tokens, images),
        (8192, 4, tokens, np.minimum(images, 1)),
        (8192, 12, np.minimum(tokens + 256 * images, 8192), images),
        (40 * int(tokens.mean()), 40 * int(others.mean()), tokens, np.minimum(others, 1500)),
    ]:
        sampler = Packed({'a': budget, 'b': limit}, {'a': first, 'b': second})
        check(sampler, [budget, limit], [first, second])
        assert max(sampler.fill.values()) >= 0.97, (budget, limit)


def test_few_bins_of_very_many():
    lengths = np.random.default_rng(0).lognormal(6, 1, 30_000).astype(int) + 1
    for bins in (1, 2, 7):
        budget = int(lengths.sum() / bins * 1.1)
        sampler = Packed({'a': budget, 'b': budget}, {'a': lengths, 'b': lengths[::-1]})
        check(sampler, [budget] * 2, [lengths, lengths[::-1]])
        assert len(sampler) == bins


def test_what_cannot_be_packed():
    for budget, lengths, match in [
        (10, [3, 11, 12], 'lengths: expected at most the budget of 10, got 11 for datapoint 1'),
        (10, [3, -1], 'lengths: expected at least 0, got -1 for datapoint 1'),
        (10, [1.5, 2], 'lengths: expected one dimension of integers, got 1 dimensions of float64'),
        (10, [[1], [2]], 'lengths: expected one dimension of integers, got 2 dimensions of int64'),
        (0, [1], 'budget: expected at least 1, got 0'),
        ('8k', [1], "budget: expected an integer, got '8k'"),
        ({'a': 9, 'b': -1}, {'a': [1], 'b': [1]}, r"budget\['b'\]: expected at least 1, got -1"),
        ({'a': 9, 'b': 3}, {'a': [1], 'b': [4]}, r"lengths\['b'\]: expected at most the budget of 3, got 4"),
        ({'a': 9, 'b': 3}, {'a': [1], 'b': [1, 2]}, r"lengths\['b'\]: expected one for each of 1 .*, got 2"),
        ({'a': 9, 'b': 3}, {'a': [1]}, r"got {'a': 9, 'b': 3} and {'a': \[1\]}"),
        ({'a': 9}, [1], r"got {'a': 9} and \[1\]"),
        (9, {'a': [1]}, 'got 9 and {'),
        ({}, {}, 'budget, lengths: expected one of each'),
    ]:
        with pytest.raises((ValueError, TypeError), match=match):
            Packed(budget, lengths)
    with pytest.raises(TypeError, match='seed'):
        Packed(10, [1], 'x')
    same = np.array([1, 20])
    with pytest.raises(ValueError, match=r"\['a'\]: datapoint 1 of length 20 .* lengths\['b'\] of 0, got 20"):
        Packed({'a': 8, 'b': 8}, {'a': same, 'b': same}, longer='cut')


@pytest.mark.slow(all_but='2048')
@pytest.mark.parametrize('budget', [2048, 8192, 32768])
def test_two_budgets_are_nearly_full(budget):
    random = np.random.default_rng(0)
    tokens = np.minimum(random.lognormal(6, 1, 1_000_000).astype(int) + 1, budget)
    pictures = np.minimum(random.geometric(0.4, 1_000_000) - 1, 16)
    limit = max(16, int(pictures.sum() * budget / tokens.sum()))
    packed = Packed({'tokens': budget, 'pictures': limit}, {'tokens': tokens, 'pictures': pictures})
    assert max(packed.fill.values()) >= 0.97
