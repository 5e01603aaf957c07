"""Orders of datapoints: pure functions of the epoch and the positions."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bags
from bags.samplers import (
    Bucketed,
    Mixture,
    Random,
    Sampler,
    ShardShuffled,
    Shuffled,
    Sliding,
    Weighted,
    shard_lengths,
)
from bags.samplers.orders import Sequential

SAMPLERS = {
    'sequential': lambda: Sequential(100),
    'sliding': lambda: Sliding(100, 10, 3),
    'shuffled': lambda: Shuffled(100, 5),
    'shards': lambda: ShardShuffled([10, 0, 40, 1, 9, 20, 20], 5, 3),
    'random': lambda: Random(100, 5, 130),
    'weighted': lambda: Weighted(np.arange(100) % 7, 5, samples=130),
    'mixture': lambda: Mixture([60, 10, 30], [1, 2, 0.5], 5),
    'mixture that changes': lambda: Mixture([60, 10, 30], {20: [1, 2, 0.5], 500: [0, 1, 5]}, 5),
    'bucketed': lambda: Bucketed([7 * i % 31 for i in range(100)], 4, 5, pool=3),
}


@pytest.mark.parametrize('kind', SAMPLERS)
def test_orders_depend_on_nothing_but_epoch_and_position(kind):
    sampler = SAMPLERS[kind]()
    assert isinstance(sampler, Sampler)
    whole = {epoch: sampler.take(epoch, np.arange(len(sampler))).tolist() for epoch in (0, 1, 7)}
    assert all(0 <= index < 100 for order in whole.values() for index in order)
    chance = np.random.default_rng(0)
    for _ in range(20):
        epoch = int(chance.choice([0, 1, 7]))
        positions = chance.integers(0, len(sampler), (3, 5))
        found = SAMPLERS[kind]().take(epoch, positions)
        assert found.tolist() == np.array(whole[epoch])[positions].tolist()
        assert sampler.take(epoch, positions).tolist() == found.tolist()
    assert sampler.take(0, np.arange(0)).tolist() == []
    if kind in ('sequential', 'sliding'):
        assert whole[0] == whole[1]
    else:
        assert whole[0] != whole[1]
    if kind in ('sequential', 'shuffled', 'shards', 'bucketed'):
        assert all(sorted(order) == list(range(100)) for order in whole.values())


@pytest.mark.parametrize('kind', [kind for kind in SAMPLERS if kind not in ('sequential', 'sliding')])
def test_the_seed_is_in_the_order_and_in_the_name(kind):
    first, second = SAMPLERS[kind](), SAMPLERS[kind]()
    assert repr(first) == repr(second)
    second.seed = 6
    positions = np.arange(50)
    assert first.take(0, positions).tolist() != second.take(0, positions).tolist()
    assert repr(first) != repr(second)


def test_windows_go_around_the_end():
    assert Sliding(5, 3).take(0, np.arange(6)).tolist() == [0, 1, 2, 3, 4, 0]
    sampler = Sliding(4, 3, 1)
    assert len(sampler) == 12
    assert sampler.take(0, np.arange(12)).reshape(4, 3).tolist() == [
        [0, 1, 2],
        [1, 2, 3],
        [2, 3, 0],
        [3, 0, 1],
    ]
    assert Sliding(3, 5).take(9, np.arange(5)).tolist() == [0, 1, 2, 0, 1]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.integers(1, 8), st.integers(0, 9))
@settings(deadline=None, max_examples=50)
def test_few_shards_at_a_time(lengths, window, seed):
    sampler = ShardShuffled(lengths, seed, window)
    order = sampler.take(3, np.arange(len(sampler)))
    assert sorted(order.tolist()) == list(range(sum(lengths)))
    shards = np.searchsorted(np.cumsum(lengths), order, 'right').tolist()
    first, last = {}, {}
    for place, shard in enumerate(shards):
        first.setdefault(shard, place)
        last[shard] = place
    for place in range(len(shards)):
        assert sum(first[shard] <= place <= last[shard] for shard in first) <= window


def test_shards_of_datasets(tmp_path, kit):
    kit.fill(tmp_path / 'x', [{'id': i} for i in range(10)], {'id': 'int(8)'}, shard_length=4)
    dataset = bags.open(tmp_path / 'x')
    assert shard_lengths(dataset).tolist() == [4, 4, 2]
    assert shard_lengths(bags.concat([dataset, dataset[:3]])).tolist() == [10, 3]
    assert shard_lengths(dataset[2:9]).tolist() == [7]


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.data(),
    st.booleans(),
)
@settings(deadline=None, max_examples=25)
def test_proportions_of_mixtures_are_exact(lengths, data, shuffle):
    weights = data.draw(st.lists(st.integers(0, 9), min_size=len(lengths), max_size=len(lengths)).filter(any))
    cycle = sum(weights) // np.gcd.reduce(weights)
    sampler = Mixture(lengths, weights, 3, shuffle=shuffle, samples=int(cycle) * 6)
    firsts = np.cumsum([0, *lengths])
    for epoch in range(2):
        order = sampler.take(epoch, np.arange(len(sampler)))
        owners = np.searchsorted(firsts, order, 'right') - 1
        for start in range(0, len(order), int(cycle)):
            counts = np.bincount(owners[start : start + int(cycle)], minlength=len(lengths))
            assert (counts * sum(weights) == np.array(weights) * cycle).all()
    # Every datapoint of each dataset comes once before any comes again, also across epochs.
    orders = [sampler.take(epoch, np.arange(len(sampler))) for epoch in range(2)]
    whole = np.concatenate(orders)
    for owner, length in enumerate(lengths):
        mine = whole[(whole >= firsts[owner]) & (whole < firsts[owner + 1])] - firsts[owner]
        for start in range(0, len(mine) - length + 1, length):
            part = mine[start : start + length].tolist()
            assert sorted(part) == list(range(length))
            assert shuffle or part == list(range(length))


def test_weights_of_mixtures():
    assert Mixture([5, 5], [0.7, 0.3]).counts == [7, 3]
    assert Mixture([5, 5], [2 / 3, 1 / 3]).counts == [2, 1]
    assert Mixture([5, 5], [np.float32(0.25), np.int64(1)]).counts == [1, 4]
    assert Mixture([5, 5, 5], [1, 0, 1]).counts == [1, 0, 1]
    assert Mixture([5, 5, 5], [1, 0, 1e-9]).counts == [(1 << 30) - 1, 0, 1]
    odd = Mixture([5, 5], [3.14159265358979, 1])
    assert abs(odd.counts[0] / odd.counts[1] - 3.14159265358979) < 1e-5
    assert Mixture([3, 5], [1, 1], shuffle=False).take(0, np.arange(8)).tolist() == [0, 3, 1, 4, 2, 5, 0, 6]


def test_draws_follow_the_weights():
    weights = np.array([0, 1, 2.5, 0, 1e-300, 6.5, 0])
    sampler = Weighted(weights, 3, samples=100_000)
    counts = np.bincount(sampler.take(0, np.arange(len(sampler))), minlength=7)
    assert counts[[0, 3, 4, 6]].tolist() == [0, 0, 0, 0]
    expected = weights / weights.sum() * len(sampler)
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected + 1)).all()
    # Weights of any scale, also with an infinite sum, and of any type.
    for same in (weights * 1e307, (weights * 2).astype('f4'), weights / 7):
        found = Weighted(same, 3, samples=1000).take(5, np.arange(1000))
        assert found.tolist() == sampler.take(5, np.arange(1000)).tolist()
    assert set(Weighted([False, True, True], 1).take(0, np.arange(3)).tolist()) <= {1, 2}
    assert repr(Weighted([1, 2])) != repr(Weighted([2, 1]))


@given(st.data())
@settings(deadline=None, max_examples=25)
def test_proportions_of_mixtures_change(data):
    datasets = data.draw(st.integers(1, 5))
    some = st.lists(st.sampled_from([0, 0.1, 1, 3]), min_size=datasets, max_size=datasets).filter(any)
    schedule = data.draw(st.dictionaries(st.integers(0, 12_000), some, min_size=1, max_size=5))
    lengths, total = [7, 11, 30, 1, 200][:datasets], 15_000
    sampler = Mixture(lengths, schedule, 3, shuffle=False, samples=1000)
    order = np.concatenate([sampler.take(epoch, np.arange(1000)) for epoch in range(total // 1000)])
    firsts = np.cumsum([0, *lengths])
    owners = np.searchsorted(firsts, order, 'right') - 1
    points = sorted(schedule)
    for number, start in enumerate(points):
        begin = start if number else 0
        stop = points[number + 1] if number + 1 < len(points) else total
        steps = np.arange(1, stop - begin + 1)
        for owner in range(datasets):
            share = schedule[start][owner] / sum(schedule[start])
            assert np.abs(np.cumsum(owners[begin:stop] == owner) - share * steps).max(initial=0) < 1.25
    for owner, length in enumerate(lengths):
        # In order, and every datapoint once before any comes again.
        found = owners == owner
        assert (order[found] == firsts[owner] + np.arange(found.sum()) % length).all()
    # The same positions, far apart and one by one.
    for position in data.draw(st.lists(st.integers(0, total - 1), max_size=8)):
        epoch, within = divmod(position, 1000)
        assert sampler.take(epoch, np.array([within])).tolist() == [order[position]]
    scattered = np.array([[900, 3], [0, 999]])
    assert sampler.take(4, scattered).tolist() == order[4000 + scattered].tolist()


def test_a_mixture_that_changes():
    sampler = Mixture([1000, 1000], {0: [1, 0], 100: [1, 1], 200: [0, 1]}, samples=300, shuffle=False)
    second = (sampler.take(0, np.arange(300)) >= 1000).astype(int)
    assert [second[start : start + 100].sum() for start in (0, 100, 200)] == [0, 50, 100]
    assert (sampler.take(10**9, np.arange(300)) >= 1000).all()
    constant = Mixture([1000, 1000], {5: [3, 1]}, samples=300, shuffle=False)
    assert np.bincount(constant.take(7, np.arange(300)) // 1000).tolist() == [225, 75]
    assert repr(constant) == 'Mixture([1000, 1000], weights={5: [3, 1]}, shuffle=False, samples=300)'
    # In many small parts.
    falling = Mixture([10, 10], {at: [1 - at / 3001, 1] for at in range(0, 3000, 10)}, samples=3000)
    assert 0.28 < (falling.take(0, np.arange(3000)) < 10).mean() < 0.33


def test_batches_of_similar_length():
    lengths = np.random.default_rng(0).integers(1, 1000, 10_007)
    sampler = Bucketed(lengths, 32, 1)
    order = sampler.take(0, np.arange(len(sampler)))
    batches = [lengths[order[start : start + 32]] for start in range(0, len(order), 32)]
    padding = 1 - lengths.sum() / sum(len(batch) * batch.max() for batch in batches)
    shuffled = lengths[Shuffled(len(lengths), 1).take(0, np.arange(len(lengths)))]
    before = 1 - lengths.sum() / sum(
        32 * shuffled[start : start + 32].max() for start in range(0, len(lengths), 32)
    )
    assert padding < before / 10
    # Short and long batches are unordered.
    means = [batch.mean() for batch in batches]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3
    assert Counter(len(batch) for batch in batches) == {32: 312, 23: 1}


def test_what_makes_no_order():
    for make, match in [
        (lambda: Sequential(-1), 'length: expected at least 0'),
        (lambda: Shuffled('x'), 'length: expected an integer'),
        (lambda: Random(0), 'length: expected at least 1'),
        (lambda: Sliding(5, 0), 'window'),
        (lambda: ShardShuffled([3, -1]), 'at least 0, got -1'),
        (lambda: ShardShuffled([3], window=0), 'window'),
        (lambda: Mixture([3, 4], [1]), 'one for each of 2 sources, got 1'),
        (lambda: Mixture([3, 4], [0, 0]), 'one above 0'),
        (lambda: Mixture([3, 4], [1, -1]), 'at least 0, got -1'),
        (lambda: Mixture([3, 4], [1, float('nan')]), 'finite'),
        (lambda: Mixture([3, 4], ['1', 1]), "expected numbers, got '1' for source 0"),
        (lambda: Mixture([3, 0], [1, 1]), 'source 1: expected datapoints'),
        (
            lambda: Mixture([3, 4], {0: [1, 1], 10: [1]}),
            r'weights\[10\]: expected one for each of 2 sources',
        ),
        (lambda: Mixture([3, 4], {10: [1, -1]}), r'weights\[10\]: .* at least 0, got -1 for source 1'),
        (lambda: Mixture([3, 4], {10: [0, 0]}), r'weights\[10\]: expected one above 0'),
        (lambda: Mixture([3, 0], {0: [1, 0], 10: [1, 1]}), 'source 1: expected datapoints'),
        (lambda: Mixture([3, 4], {-1: [1, 1]}), 'weights: position: expected at least 0, got -1'),
        (lambda: Mixture([3, 4], {'x': [1, 1]}), "weights: position: expected an integer, got 'x'"),
        (lambda: Mixture([3, 4], {}), 'weights: expected at least one position'),
        (lambda: Weighted([1, -2]), 'weights: expected finite numbers of at least 0, got -2 for datapoint 1'),
        (lambda: Weighted([1, np.nan]), 'got nan for datapoint 1'),
        (lambda: Weighted([np.inf, 1]), 'got inf for datapoint 0'),
        (lambda: Weighted([0, 0.0]), 'weights: expected one above 0, got 2 zeros'),
        (lambda: Weighted([]), 'weights: expected one above 0'),
        (lambda: Weighted(['1', '2']), 'weights: expected one dimension of numbers'),
        (lambda: Weighted([[1, 2]]), 'weights: expected one dimension of numbers, got 2'),
        (lambda: Shuffled(3, 'x'), "seed: expected an integer, got 'x'"),
        (lambda: Bucketed([1, 2], 2, 1.5), 'seed: expected an integer, got 1.5'),
        (lambda: Bucketed([1, 2], 0), 'batch_size'),
    ]:
        with pytest.raises((ValueError, TypeError), match=match):
            make()


def test_all_pairs_of_small_shards():
    for lengths in itertools.product([0, 1, 3], repeat=3):
        sampler = ShardShuffled(lengths, 0, 2)
        assert sorted(sampler.take(0, np.arange(len(sampler))).tolist()) == list(range(sum(lengths)))


@pytest.mark.parametrize('big', [1 << 62, 1 << 63, 1 << 70])
def test_numbers_that_would_overflow_name_the_argument(big, tmp_path):
    with bags.DatasetWriter(tmp_path / 'dataset', {'a': 'int[]'}) as writer:
        writer.append({'a': [1, 2]})
    dataset = bags.open(tmp_path / 'dataset')
    for name, make in (
        ('length', lambda: Shuffled(big)),
        ('samples', lambda: Weighted([1.0], samples=big)),
        ('batch_size', lambda: bags.Loader(dataset, big)),
        ('stride', lambda: dataset.windows(every='a', a=bags.steps(0, 1), stride=big)),
    ):
        with pytest.raises(ValueError, match=rf'^{name}: expected less than 2\^62, got {big}'):
            make()
    with pytest.raises(ValueError, match=f'^steps: expected 1 to .*, got start 0 and stop {big}'):
        dataset.windows(every='a', a=bags.steps(0, big))


def test_epochs_beyond_the_positions_of_a_mixture():
    sampler = Mixture([10, 5], [1, 1])
    assert len(sampler.take((1 << 62) // 15 - 1, np.arange(15))) == 15
    for epoch in (1 << 59, 1 << 70):
        with pytest.raises(ValueError, match=rf'epoch {epoch}: position: expected less than 2\^62, got '):
            sampler.take(epoch, np.arange(3))


def test_lengths_and_epochs_of_numpy_that_overflow_in_a_mixture():
    with pytest.raises(
        ValueError, match=r'^sources: total: expected less than 2\^62, got 4611686018427387904'
    ):
        Mixture([1 << 61, 1 << 61], [1, 1], samples=8)
    with pytest.raises(ValueError, match=r'position: expected less than 2\^62, got 36893488147419103232'):
        Mixture([5, 3], [1, 1]).take(np.int64(1 << 62), np.arange(3))
