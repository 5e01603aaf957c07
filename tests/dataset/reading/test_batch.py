import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bags
from bags.dataset.reading.batch import Ragged, concat_ranges, join_columns, offsets_of, split, take

COUNTS = st.lists(st.integers(0, 5), max_size=8)


def ragged(rows, dtype='<i4', optional=False):
    """Makes a Ragged of lists of numbers, some of which may be None."""
    there = [row or [] for row in rows]
    present = np.array([row is not None for row in rows], bool) if optional else None
    values = np.array([item for row in there for item in row], dtype)
    return Ragged(values, offsets_of(np.array(list(map(len, there)), np.int64)), present)


def listed(column):
    return [None if row is None else row.tolist() for row in column]


ROWS = st.lists(st.lists(st.integers(-99, 99), max_size=4), max_size=8)
OPTIONAL = st.lists(st.none() | st.lists(st.integers(-99, 99), max_size=4), max_size=8)


@given(OPTIONAL)
def test_a_ragged_is_a_sequence_of_arrays(rows):
    column = ragged(rows, optional=True)
    assert len(column) == len(rows)
    assert listed(column) == rows
    assert column.lengths.tolist() == [len(row or []) for row in rows]
    for index in range(-len(rows), len(rows)):
        found = column[index]
        assert (None if found is None else found.tolist()) == rows[index]
    for index in (len(rows), -len(rows) - 1):
        with pytest.raises(IndexError, match=f'{index} out of range'):
            column[index]
    assert listed(pickle.loads(pickle.dumps(column))) == rows
    assert f'{len(rows)} sequences' in repr(column)


def test_a_ragged_says_what_it_holds():
    assert repr(ragged([[1], [2, 3]])) == 'Ragged(2 sequences, 3 items of int32())'
    assert repr(ragged([[1], None], optional=True)) == 'Ragged(2 sequences, 1 items of int32(), 1 missing)'


def test_sequences_of_a_ragged_are_views():
    column = ragged([[1], [2, 3]])
    column[1][0] = 9
    assert column.values.tolist() == [1, 9, 3]


@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 5)), max_size=8))
def test_spread(ranges):
    firsts, counts = (np.array([r[part] for r in ranges], np.int64) for part in (0, 1))
    assert concat_ranges(firsts, counts).tolist() == [
        first + k for first, count in ranges for k in range(count)
    ]


@given(COUNTS)
def test_offsets(counts):
    found = offsets_of(np.array(counts, np.int64))
    assert found.tolist() == [sum(counts[:k]) for k in range(len(counts) + 1)]


@given(st.data(), OPTIONAL)
def test_taking_rows(data, rows):
    order = data.draw(st.lists(st.integers(0, len(rows) - 1))) if rows else []
    indices = np.array(order, np.int64)
    wanted = [rows[index] for index in order]
    assert take(rows, indices) == wanted
    assert listed(take(ragged(rows, optional=True), indices)) == wanted
    numbers = np.arange(len(rows) * 2).reshape(-1, 2)
    assert take(numbers, indices).tolist() == [numbers[index].tolist() for index in order]


@given(st.lists(OPTIONAL, min_size=1, max_size=4))
def test_joining(parts):
    wanted = [row for part in parts for row in part]
    assert join_columns(parts) == wanted
    found = join_columns([ragged(part, optional=True) for part in parts])
    assert listed(found) == wanted
    assert found.present.tolist() == [row is not None for row in wanted]
    arrays = [np.arange(len(part), dtype='<u2') for part in parts]
    assert join_columns(arrays).dtype == np.dtype('<u2')
    assert join_columns(arrays).tolist() == [number for part in parts for number in range(len(part))]


@given(st.data(), st.lists(OPTIONAL, min_size=1, max_size=4))
def test_joining_at_positions(data, parts):
    rows = [row for part in parts for row in part]
    positions = data.draw(st.permutations(range(len(rows))))
    wanted = [row for _, row in sorted(zip(positions, rows, strict=True), key=lambda pair: pair[0])]
    places = np.array(positions, np.int64)
    assert join_columns(parts, places) == wanted
    found = join_columns([ragged(part, optional=True) for part in parts], places)
    assert listed(found) == wanted
    assert found.present.tolist() == [row is not None for row in wanted]
    dtypes = ('<i4', '<i8', '>i2', '<i4')
    numbers = [
        np.array([[len(row or []), 7] for row in part], dtype).reshape(-1, 2)
        for part, dtype in zip(parts, dtypes, strict=False)
    ]
    joined = join_columns(numbers, places)
    assert joined.dtype == np.concatenate(numbers).dtype
    assert joined.tolist() == [[len(row or []), 7] for row in wanted]


@given(ROWS, ROWS)
def test_joining_without_optional(a, b):
    found = join_columns([ragged(a), ragged(b)])
    assert found.present is None
    assert listed(found) == a + b


@given(st.lists(OPTIONAL, min_size=1, max_size=4))
def test_splitting_is_the_inverse_of_joining(parts):
    counts = list(map(len, parts))
    columns = [ragged(part, optional=True) for part in parts]
    joined = join_columns(columns)
    for found, column in zip(split(joined, counts), columns, strict=True):
        assert listed(found) == listed(column)
        assert found.offsets.tolist() == column.offsets.tolist()
        assert found.present.tolist() == column.present.tolist()
        assert not len(found.values) or np.shares_memory(found.values, joined.values)
    assert split([row for part in parts for row in part], counts) == parts
    rows = np.arange(2 * sum(counts)).reshape(-1, 2)
    assert np.array_equal(np.concatenate(split(rows, counts)), rows)
    assert [len(part) for part in split(rows, counts)] == counts


def test_columns_of_two_kinds_lose_nothing():
    # The numbers of one shard fit in 8 bytes, and those of another do not.
    big = 2**63 + 1
    assert join_columns([np.array([1, 2]), [big]]) == [1, 2, big]
    assert join_columns([[big], np.array([1, 2])]) == [big, 1, 2]
    assert join_columns([ragged([[1], []]), [[big]]]) == [[1], [], [big]]
    assert join_columns([[[big]], ragged([None, [1]], optional=True)]) == [[big], None, [1]]
    assert all(type(value) is int for value in join_columns([np.array([1, 2]), [big]]))


@pytest.mark.parametrize('others', [['', 'ä', 'z' * 900], ['plain'], ['x' * 5000], ['\x7f', '\x00', 'a\x00']])
def test_texts_that_are_cut_out_of_one(tmp_path, others):
    texts = [f'text {index}' * (index % 5) for index in range(60)] + others
    with bags.DatasetWriter(tmp_path / 'a', {'text': 'utf8', 'some': 'utf8?', 'many': 'utf8[]'}) as writer:
        for index, text in enumerate(texts):
            writer.append({'text': text, 'some': text if index % 2 else None, 'many': [text, text]})
    reader = bags.open(tmp_path / 'a')
    order = [*range(len(texts)), *range(len(texts) - 1, -1, -1)]
    batch = reader.batch(order)
    assert batch['text'] == [texts[index] for index in order]
    assert batch['some'] == [texts[index] if index % 2 else None for index in order]
    assert batch['many'] == [[texts[index]] * 2 for index in order]
