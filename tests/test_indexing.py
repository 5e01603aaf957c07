"""Indices of any kind become integers in range; errors name the invalid index."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bags.indexing import (
    as_indices,
    as_integers,
    check_index,
    chunk_length,
    group_equal,
    offsets_of,
    split_by_bytes,
)

COUNT = 5
KINDS = {
    'list': list,
    'tuple': tuple,
    'generator': iter,
    'int64': lambda values: np.array(values, np.int64),
    'int8': lambda values: np.array(values, np.int8),
    'numpy scalars': lambda values: [np.int16(value) for value in values],
}


@pytest.mark.parametrize('kind', KINDS)
@given(st.lists(st.integers(-8, 8), max_size=5))
def test_indices_are_those_of_a_list(kind, values):
    wrong = [place for place, value in enumerate(values) if not -COUNT <= value < COUNT]
    given = KINDS[kind](values)
    if wrong:
        place = wrong[0]
        with pytest.raises(
            IndexError, match=rf'^indices\[{place}\] = {values[place]} out of range \[-5, 5\)$'
        ):
            as_indices(given, COUNT)
    else:
        found = as_indices(given, COUNT)
        assert found.dtype == np.int64
        assert found.tolist() == [range(COUNT)[value] for value in values]


@given(st.integers(-8, 8), st.integers(-8, 8), st.integers(-3, 3).filter(bool))
def test_ranges(start, stop, step):
    values = range(start, stop, step)
    wrong = [place for place, value in enumerate(values) if not -COUNT <= value < COUNT]
    if wrong:
        with pytest.raises(IndexError, match=rf'indices\[{wrong[0]}\] = '):
            as_indices(values, COUNT)
    else:
        assert as_indices(values, COUNT).tolist() == [range(COUNT)[value] for value in values]


def test_large_numbers():
    for wrong in (np.array([1, 2**64 - 1], np.uint64), range(2**70, 2**71), [0, 2**64], range(10**15)):
        with pytest.raises(IndexError, match='out of range'):
            as_indices(wrong, COUNT)
    assert as_indices(np.array([4], np.uint64), COUNT).tolist() == [4]


@pytest.mark.parametrize(
    'wrong',
    [
        3,
        np.int64(3),
        None,
        '12',
        b'12',
        slice(1),
        [1.0],
        ['1'],
        [True, False],
        np.ones(3, bool),
        np.ones((2, 2), int),
    ],
    ids=repr,
)
def test_what_is_no_integer(wrong):
    with pytest.raises(TypeError, match='indices: expected'):
        as_indices(wrong, COUNT)


def test_one_index():
    assert [check_index(index, COUNT) for index in (0, -1, np.int8(4), np.array(3))] == [0, 4, 4, 3]
    for wrong in (5, -6, 2**70):
        with pytest.raises(IndexError, match=f'index {wrong} out of range'):
            check_index(wrong, COUNT)
    for wrong in (1.0, '1', None, np.array([1, 2])):
        with pytest.raises(TypeError, match='index: expected an integer'):
            check_index(wrong, COUNT)


def test_offsets():
    assert offsets_of(np.array([2, 0, 3])).tolist() == [0, 2, 2, 5]
    assert offsets_of(np.array([], np.int64)).tolist() == [0]


KEYS = st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 1)), max_size=12)


@given(KEYS)
def test_groups_have_equal_keys(pairs):
    first, second = np.array(pairs, np.int64).reshape(-1, 2).T
    order, offsets = group_equal(first, second)
    groups = [order[start:stop].tolist() for start, stop in itertools.pairwise(offsets.tolist())]
    expected = [[place for place, pair in enumerate(pairs) if pair == key] for key in sorted(set(pairs))]
    assert groups == expected


def test_parts_cover_every_range():
    for start, stop, size in itertools.product((0, 3), (3, 4, 50), (1, 7, 1000)):
        found = list(split_by_bytes(start, stop, size, lambda index: index * index))
        assert [index for a, b, _ in found for index in range(a, b)] == list(range(start, stop))
        assert all(a < b for a, b, _ in found)


def test_lengths_of_chunks():
    assert chunk_length(10, 1000, target=5000, most=1000) == 20  # At most twice as many.
    assert chunk_length(10, 1000, target=5000, most=1000, growth=8) == 50
    assert chunk_length(10, 1000, target=5000, most=7) == 7
    assert chunk_length(10, 1000, target=300, most=1000) == 3
    assert chunk_length(10, 1000, target=1, most=1000) == 1
    assert chunk_length(10, 0, target=5000, most=1000) == 20
    assert chunk_length(0, 0, target=5000, most=1000) == 1


class Mask:
    """Iterates over elements with a dtype, as masks of PyTorch do."""

    def __iter__(self):
        return iter([np.array(True), np.array(False)])


@pytest.mark.parametrize(
    'mask', [[False, True], (False, True), (each for each in (False, True)), [np.False_, np.True_], Mask()]
)
def test_masks_are_refused_in_every_form(mask):
    with pytest.raises(TypeError, match='indices: expected integers, got a mask'):
        as_indices(mask, COUNT)


def test_integers():
    assert as_integers(iter([np.int8(3), -1]), 'items') == [3, -1]
    for wrong in ([1, True], np.array([True]), [1.0], ['1']):
        with pytest.raises(TypeError, match='items: expected integers'):
            as_integers(wrong, 'items')
