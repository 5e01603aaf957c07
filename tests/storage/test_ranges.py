from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bags.storage.ranges import merge
from tests.bag.samples import few

ranges = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 40)).map(lambda pair: (pair[0], sum(pair))), min_size=1
)


@few
@given(ranges, st.integers(0, 30), st.sampled_from([1, 16, 1 << 23]))
def test_runs_hold_their_ranges_in_order_and_apart(ranges, gap, most):
    starts, stops = np.array(ranges).T
    runs = merge(starts, stops, gap, most)
    assert (runs.starts[runs.owner] <= starts).all()
    assert (runs.stops[runs.owner] >= stops).all()
    assert (np.diff(runs.starts) >= 0).all()
    assert (runs.starts[1:] >= runs.stops[:-1]).all()
    assert sorted(set(runs.owner.tolist())) == list(range(len(runs.starts)))


@few
@given(ranges, st.integers(0, 30))
def test_no_byte_is_read_twice_and_none_but_in_gaps_for_nothing(ranges, gap):
    starts, stops = np.array(ranges).T
    runs = merge(starts, stops, gap)
    wanted = {byte for start, stop in ranges for byte in range(start, stop)}
    read = [byte for run in zip(runs.starts, runs.stops, strict=True) for byte in range(*run)]
    assert len(read) == len(set(read))
    assert wanted <= set(read)
    assert len(read) - len(wanted) <= gap * (len(ranges) - 1)


def test_near_ranges_become_one_run_and_far_ones_do_not():
    starts, stops = np.array([100, 0, 10, 100]), np.array([110, 10, 20, 105])
    runs = merge(starts, stops, 5)
    assert runs.starts.tolist() == [0, 100]
    assert runs.stops.tolist() == [20, 110]
    assert runs.owner.tolist() == [1, 0, 0, 1]


def test_a_long_run_of_ranges_that_touch_is_divided():
    edges = np.arange(0, 1001, 10)
    runs = merge(edges[:-1], edges[1:], 0, max_size=100)
    assert len(runs.starts) == 10
    assert (runs.stops - runs.starts == 100).all()
