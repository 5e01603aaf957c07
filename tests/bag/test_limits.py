from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bags.bag.limits import ENTRY, first_bad, locate, parse_tail, prefix_agrees
from tests.bag.samples import few

sizes = st.lists(st.integers(0, 50), max_size=30)


@few
@given(sizes, st.booleans())
def test_the_table_at_the_end_is_found(sizes, starts):
    assume(sizes or not starts)
    total, count = sum(sizes), len(sizes)
    length = total + (count + starts) * ENTRY
    if count:
        assert parse_tail(length, total, starts) == (total, count)


def test_the_worked_example():
    assert parse_tail(15 + 3 * 8, 15) == (15, 3)
    assert parse_tail(15 + 4 * 8, 15, starts=True) == (15, 3)
    starts, stops = locate(np.array([6, 9, 15]), np.array([2, 0, 1, 2]))
    assert starts.tolist() == [9, 0, 6, 9]
    assert stops.tolist() == [15, 6, 9, 15]


@pytest.mark.parametrize('last', [9, 16, 1 << 62, 1 << 63, (1 << 64) - 1])
def test_a_last_limit_beyond_the_records(last):
    with pytest.raises(ValueError, match=f'last limit is {last}, but the records can take at most 8'):
        parse_tail(16, last)


def test_limits_fill_whole_entries():
    with pytest.raises(ValueError, match='13 bytes, not a multiple of 8'):
        parse_tail(16, 3)


@few
@given(sizes.filter(bool), st.data())
def test_ranges_are_those_between_neighbours(sizes, data):
    ends = np.cumsum(sizes)
    indices = np.array(data.draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1)))
    starts, stops = locate(ends, indices)
    edges = [0, *ends.tolist()]
    assert starts.tolist() == [edges[index] for index in indices]
    assert stops.tolist() == [edges[index + 1] for index in indices]
    assert first_bad(starts, stops, int(ends[-1])) == -1


@few
@given(sizes.filter(bool))
def test_locate_works_on_a_view_that_is_not_aligned(sizes):
    data = b'xyz' + np.cumsum(sizes, dtype='<u8').tobytes()
    ends = np.frombuffer(data, '<i8', len(sizes), 3)
    starts, stops = locate(ends, np.arange(len(sizes)))
    assert (stops - starts).tolist() == sizes


@pytest.mark.parametrize(
    ('starts', 'stops', 'bad'),
    [
        ([0, 5], [5, 10], -1),
        ([0, 5], [5, 11], 1),
        ([0, 6], [5, 5], 1),
        ([0, -1], [5, 5], 1),
        ([0, 5], [-1, 10], 0),
        ([-8, 5], [-4, 10], 0),
        ([], [], -1),
        ([10, 10], [10, 10], -1),
    ],
)
def test_the_first_range_out_of_bounds(starts, stops, bad):
    assert first_bad(np.array(starts, np.int64), np.array(stops, np.int64), 10) == bad


@few
@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)))
def test_prefix(one, other):
    shorter = min(len(one), len(other))
    agrees = prefix_agrees(np.array(one, np.int64), np.array(other, np.int64))
    assert agrees == (one[:shorter] == other[:shorter])
