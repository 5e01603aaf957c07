"""Mixtures of samplers: each source in turn over its own epochs."""

import numpy as np
import pytest

import bags
from bags.samplers import Mixture, Packed, Pieces, Shuffled, Weighted


def packed(count, seed, budget=64):
    lengths = np.random.default_rng(seed).integers(1, 20 + 6 * seed, count)
    return Packed(budget, lengths, seed), lengths


def test_bins_of_each_source_come_in_the_order_of_its_own_epochs():
    (web, _), (code, _) = packed(100, 0), packed(60, 1)
    sampler = Mixture([web, 7, code], weights={0: [3, 1, 1], 50: [1, 0, 2]}, seed=4, samples=40)
    assert (sampler.datapoints, len(sampler)) == (167, 40)
    seen = [[], [], []]
    for epoch in range(6):
        for bin_, owner in zip(
            sampler.take(epoch, np.arange(40)), sampler.locate(epoch, np.arange(40))[0].tolist(), strict=True
        ):
            seen[owner].append((bin_ - [0, 100, 107][owner]).tolist())
    for source, mine in ((web, seen[0]), (code, seen[2])):
        order = [
            bin_.tolist()
            for epoch in range(-(-len(mine) // len(source)))
            for bin_ in source.take(epoch, np.arange(len(source)))
        ]
        assert mine == order[: len(mine)]
    assert sorted(seen[1][:7]) == [[number] for number in range(7)]


def test_any_positions_give_the_same_and_one_type():
    (web, _), (code, _) = packed(100, 0), packed(60, 1)
    sampler = Mixture([web, code, 5], weights=[1, 1, 8], samples=50)
    whole = [bin_.tolist() for bin_ in sampler.take(3, np.arange(50))]
    for positions in ([[4, 40], [3, 3]], [[2]]):
        found = sampler.take(3, np.array(positions))
        assert isinstance(found, bags.Ragged)
        assert [bin_.tolist() for bin_ in found] == [whole[at] for at in np.ravel(positions)]
    # Only positions of the source that is not a sampler of bins.
    owners = sampler.locate(3, np.arange(50))[0]
    assert isinstance(sampler.take(3, np.flatnonzero(owners == 2)), bags.Ragged)
    assert len(sampler.take(3, np.arange(0))) == 0


def test_samplers_with_one_datapoint_a_position():
    sampler = Mixture([Shuffled(10, 3), Weighted([0, 1, 0])], weights=[1, 1], samples=20)
    order = sampler.take(0, np.arange(20))
    assert order.dtype == np.int64
    assert sorted(order[order < 10].tolist()) == list(range(10))
    assert (order[order >= 10] == 11).all()
    nested = Mixture([sampler, 4], weights=[1, 1], samples=8)
    assert set(nested.take(0, np.arange(8)).tolist()) <= set(range(17))
    assert 'Shuffled(10, seed=3), Weighted(3 weights' in repr(sampler)


@pytest.mark.parametrize('sources', [2, 100])
def test_shares_of_tokens(sources):
    made = [packed(300, number % 7) for number in range(sources)]
    samplers = [sampler for sampler, _ in made]
    weights = [3, *[1] * (sources - 1)]
    sampler = Mixture(samplers, weights=weights, weigh='tokens', samples=20_000)
    lengths = np.concatenate([lengths for _, lengths in made])
    taken = sampler.take(0, np.arange(20_000))
    owners = sampler.locate(0, np.arange(20_000))[0]
    tokens = np.add.reduceat(lengths[taken.values], taken.offsets[:-1])
    found = np.bincount(owners, tokens, sources) / tokens.sum()
    np.testing.assert_allclose(found, np.array(weights) / sum(weights), rtol=0.3 if sources > 2 else 0.001)
    # Within a bin of its share of bins, at any thousand positions.
    shares = np.array([weight / each.mean for weight, each in zip(weights, samplers, strict=True)])
    for position in range(1000, 20_001, 1000):
        ahead = np.bincount(owners[:position], minlength=sources) - position * shares / shares.sum()
        assert np.abs(ahead).max() <= 1.25


def test_pieces_of_a_source_stay_pieces():
    class Halves:
        datapoints = 4

        def __len__(self):
            return 8

        def take(self, epoch, positions):
            starts = positions % 2 * 5
            stops = np.where(starts == 0, 5, -1)
            return Pieces(positions // 2, np.arange(len(positions) + 1), starts=starts, stops=stops)

    taken = Mixture([3, Halves()], weights=[1, 2], shuffle=False).take(0, np.arange(6))
    assert isinstance(taken, Pieces)
    rows = zip(taken.values.tolist(), taken.starts.tolist(), taken.stops.tolist(), strict=True)
    assert sorted(rows) == [(0, 0, -1), (1, 0, -1), (3, 0, 5), (3, 5, -1), (4, 0, 5), (4, 5, -1)]
    assert taken.are_cut.sum() == 4


class Short:
    """Ends before its length says."""

    datapoints = 4

    def __init__(self, wrong):
        self.wrong = wrong

    def __len__(self):
        return 4

    def __repr__(self):
        return 'Short()'

    def take(self, epoch, positions):
        if self.wrong == 'error':
            raise OSError('gone')
        return positions[:1] if self.wrong == 'count' else positions + 3


def test_sources_that_are_wrong_are_named():
    bins = Packed(9, [3, 3])
    for make, match in [
        (lambda: Mixture([3, 'web'], [1, 1]), "source 1: expected a number of .* got 'web'"),
        (lambda: Mixture([3, -1], [1, 1]), 'source 1: expected at least 0, got -1'),
        (lambda: Mixture([3, Packed], [1, 1]), 'source 1: expected a number of datapoints or one of'),
        (lambda: Mixture([bins, Packed(9, [])], [1, 1]), 'source 1: expected datapoints for a weight of 1'),
        (lambda: Mixture([bins, 5], [1, 1], weigh='tokens'), "weigh='tokens': .* got 5 for source 1"),
        (
            lambda: Mixture([bins, Packed({'a': 9}, {'a': [3]})], [1, 1], weigh='b'),
            "weigh='b': expected bins with this budget, .* for source 1",
        ),
        (lambda: Mixture([bins, bins], [1, float('nan')]), 'got nan for source 1'),
        (lambda: Mixture([bins, bins], {0: [1, 0], 9: [0, 0]}), r'weights\[9\]: expected one above 0'),
    ]:
        with pytest.raises((ValueError, TypeError), match=match):
            make()
    for wrong, match in [
        ('count', r'source 1 of the mixture, Short\(\): expected datapoints for each of 3 positions, got 1'),
        ('beyond', r'source 1 of the mixture, Short\(\): expected datapoints below 4, got 4'),
    ]:
        with pytest.raises(ValueError, match=match):
            Mixture([3, Short(wrong)], [1, 1]).take(0, np.arange(6))
    with pytest.raises(OSError, match='gone') as caught:
        Mixture([3, Short('error')], [1, 1]).take(0, np.arange(6))
    assert caught.value.__notes__ == ['in source 1 of the mixture']
