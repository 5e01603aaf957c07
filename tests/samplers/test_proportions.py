"""Positions divided over sources in exact shares."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bags.samplers.proportions import Proportions


@given(
    st.lists(st.integers(0, 50) | st.sampled_from([1000, 1 << 20]), min_size=1, max_size=60).filter(any),
    st.integers(0, 1 << 62),
)
@settings(deadline=None, max_examples=60)
def test_each_source_is_spread_evenly(counts, start):
    proportions, cycle = Proportions(counts), sum(counts)
    start = min(start, (1 << 62) - 3000)
    sources, earlier = proportions.locate(start + np.arange(3000))
    before = proportions.before(start)
    for number, count in enumerate(counts):
        mine = sources == number
        assert (earlier[mine] == before[number] + np.arange(mine.sum())).all()
        # Exactly: differences of integers, over the length of a cycle.
        so_far = int(before[number]) - start // cycle * count
        ahead = (so_far + np.cumsum(mine)) * cycle - (start % cycle + 1 + np.arange(3000)) * count
        assert np.abs(ahead).max() < 1.25 * cycle
    assert int(before.sum()) == start


@pytest.mark.parametrize('counts', [[3, 1], [1, 1, 1], [5, 0, 2, 1], [1] * 100, [99, *[1] * 99]])
def test_a_cycle_has_exactly_the_counts(counts):
    proportions, cycle = Proportions(counts), sum(counts)
    for start in (0, 7 * cycle):
        sources, _ = proportions.locate(start + np.arange(cycle))
        assert np.bincount(sources, minlength=len(counts)).tolist() == counts
    # Of equal sources, each comes once in each round.
    if len(set(counts)) == 1:
        assert sorted(proportions.locate(np.arange(len(counts)))[0].tolist()) == list(range(len(counts)))
