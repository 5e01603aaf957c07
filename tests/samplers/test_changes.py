"""Weights that change from a position on, beside the sampler before the change."""

import pickle
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bags.samplers import Mixture, Packed, Shuffled, Weighted
from bags.samplers.changes import ChangesWeights

SAMPLES = 37
LENGTHS = [9, 4, 20]


def make(kind):
    if kind == 'weighted':
        return Weighted([1, 2, 3], seed=4, samples=SAMPLES)
    if kind == 'bins':
        sources = [Packed(8, np.arange(1, 1 + length) % 8) for length in LENGTHS]
        return Mixture(sources, {0: [1, 1, 1], 50: [3, 1, 0]}, samples=SAMPLES, weigh='tokens')
    return Mixture(LENGTHS, {0: [1, 1, 1], 50: [3, 1, 0]}, seed=4, samples=SAMPLES)


def order(sampler, start, stop):
    """Returns the datapoints at positions of a run, one position at a time and together."""
    found = []
    for epoch in range(start // SAMPLES, -(-stop // SAMPLES)):
        first = max(0, start - epoch * SAMPLES)
        taken = sampler.take(epoch, np.arange(first, min(SAMPLES, stop - epoch * SAMPLES)))
        found += [np.ravel(datapoints).tolist() for datapoints in taken]
    return found


WEIGHTS = st.lists(st.sampled_from([0, 1, 0.5, 7]), min_size=3, max_size=3).filter(any)


@settings(deadline=None, max_examples=12)
@given(
    st.sampled_from(['weighted', 'mixture', 'bins']),
    st.lists(st.tuples(st.integers(0, 200), WEIGHTS), min_size=1, max_size=6),
)
def test_earlier_positions_stay_the_same(kind, changes):
    sampler = initial = make(kind)
    assert isinstance(sampler, ChangesWeights)
    made = {}
    for position, weights in changes:
        before = order(sampler, 0, 222)
        changed = sampler.with_weights(position, weights)
        later = [at for at in made if at > position]
        found = order(changed, 0, 222)
        assert found[:position] == before[:position]
        assert order(sampler, 0, 222) == before
        if kind == 'weighted':
            fresh = Weighted(weights, seed=4, samples=SAMPLES)
            stop = min(later, default=222)
            assert found[position:stop] == order(fresh, position, stop)
        made[position] = weights
        sampler = pickle.loads(pickle.dumps(changed)) if len(made) == 2 else changed
    assert list(sampler.changes) == sorted(made)
    assert [change.weights.tolist() for change in sampler.changes.values()] == [
        made[at] for at in sorted(made)
    ]
    assert repr(sampler.initial) == repr(initial)
    assert order(sampler.initial, 0, 222) == order(initial, 0, 222)
    # In any order of the calls, the same weights make the same run.
    again = initial
    for position in sorted(made, reverse=True):
        again = again.with_weights(position, made[position])
    assert order(again, 0, 222) == order(sampler, 0, 222)


def test_a_mixture_has_the_order_of_a_schedule_with_the_change():
    sampler = Mixture(LENGTHS, {0: [1, 1, 1], 50: [3, 1, 0]}, seed=4, samples=SAMPLES)
    for position in (0, 20, 50, 70):
        changed = sampler.with_weights(position, [2, 5, 1])
        schedule = {0: [1, 1, 1], 50: [3, 1, 0], position: [2, 5, 1]}
        expected = Mixture(LENGTHS, schedule, seed=4, samples=SAMPLES)
        assert changed.counts == expected.counts
        assert order(changed, 0, 222) == order(expected, 0, 222)
    # Also before the first position of a schedule, whose weights then hold from that position on.
    sampler = Mixture(LENGTHS, {30: [1, 1, 1], 50: [3, 1, 0]}, seed=4, samples=SAMPLES)
    for changes in ({10: [2, 5, 1]}, {10: [2, 5, 1], 20: [0, 0, 1]}, {10: [2, 5, 1], 30: [5, 1, 1]}):
        schedule = {0: [1, 1, 1], 30: [1, 1, 1], 50: [3, 1, 0], **changes}
        expected = Mixture(LENGTHS, schedule, seed=4, samples=SAMPLES)
        for positions in (sorted(changes), sorted(changes, reverse=True)):
            changed = sampler
            for position in positions:
                changed = changed.with_weights(position, changes[position])
            assert changed.counts == expected.counts
            assert order(changed, 0, 222) == order(expected, 0, 222)


@pytest.mark.parametrize('kind', ['weighted', 'mixture'])
def test_a_thousand_changes(kind):
    rng = np.random.default_rng(0)
    sampler = make(kind)
    whole = []
    for number in range(1000):
        whole += order(sampler, 5 * number, 5 * number + 5)
        sampler = sampler.with_weights(5 * number + 5, rng.random(3))
    assert len(sampler.changes) == 1000
    assert order(sampler, 0, 5000) == whole
    if kind == 'mixture':
        # Every datapoint of a source once before any comes again, across all changes.
        found = np.array(whole).ravel()
        for length, first in zip(LENGTHS, np.cumsum([0, *LENGTHS]), strict=False):
            mine = found[(found >= first) & (found < first + length)]
            rounds = mine[: len(mine) // length * length].reshape(-1, length)
            assert (np.sort(rounds, 1) == first + np.arange(length)).all()


def test_shares_after_a_change_are_exact():
    sampler = Mixture([50, 50], [1, 1], samples=1000).with_weights(1234, [3, 1]).with_weights(5234, [0, 1])
    owners = np.concatenate([sampler.take(epoch, np.arange(1000)) for epoch in range(6)]) // 50
    assert np.bincount(owners[:1234]).tolist() == [617, 617]
    assert np.bincount(owners[1234:5234]).tolist() == [3000, 1000]
    assert owners[5234:].all()


def test_weights_that_are_wrong_name_the_source_or_the_datapoint():
    mixture, weighted = Mixture([3, 0], [1, 0]), Weighted([1, 2])
    for make_one, match in [
        (lambda: mixture.with_weights(8, [1, -1]), 'weights from position 8 on: .*, got -1.0 for source 1'),
        (
            lambda: mixture.with_weights(8, [1, np.nan]),
            'weights from position 8 on: .*, got nan for source 1',
        ),
        (
            lambda: mixture.with_weights(8, [np.inf, 1]),
            'weights from position 8 on: .*, got inf for source 0',
        ),
        (lambda: mixture.with_weights(8, [0, 0]), 'weights from position 8 on: expected one above 0'),
        (lambda: mixture.with_weights(8, [1, 1, 1]), 'expected one for each of 2 sources, got 3'),
        (lambda: mixture.with_weights(8, [1, 1]), 'source 1: expected datapoints for a weight of 1'),
        (lambda: mixture.with_weights(8, ['a', 'b']), 'expected one dimension of numbers'),
        (lambda: mixture.with_weights(-1, [1, 0]), 'position: expected at least 0, got -1'),
        (lambda: mixture.with_weights(1 << 62, [1, 0]), 'position'),
        (lambda: weighted.with_weights(8, [1, np.nan]), 'at least 0, got nan for datapoint 1'),
        (lambda: weighted.with_weights(8, [0, 0]), 'expected one above 0, got 2 zeros'),
        (lambda: weighted.with_weights(8, [1]), 'one for each of 2 datapoints, got 1'),
        (lambda: weighted.with_weights(8, 3), 'expected one dimension of numbers, got 0 dimensions'),
    ]:
        with pytest.raises((ValueError, TypeError), match=match):
            make_one()
    assert mixture.take(0, np.arange(3)).max() < 3
    assert not isinstance(Shuffled(3), ChangesWeights)


def test_no_reference_to_itself():
    sampler = Weighted([1, 2]).with_weights(3, [2, 1])
    assert sys.getrefcount(sampler) == 2
