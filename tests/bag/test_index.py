from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bags import bag
from tests.bag.samples import few, many, run_child, write

lists = st.lists(st.sampled_from([b'', b'a', b'b', b'ab', b'c' * 40, 'ü'.encode()]), max_size=25)


def check(records, reader):
    index, multi = bag.Index(reader), bag.MultiIndex(reader)
    places: dict[bytes, list[int]] = {}
    for place, record in enumerate(records):
        places.setdefault(record, []).append(place)
    assert len(index) == len(multi) == len(places)
    for record, expected in places.items():
        assert multi[record] == multi.get(record) == expected
        assert index[record] == index.get(record) == expected[0]
        assert record in index
        assert record in multi
    for table in (index, multi):
        assert b'missing' not in table
        assert table.get(b'missing') is None
        assert table.get(b'missing', 'default') == 'default'
        with pytest.raises(KeyError, match='missing'):
            table[b'missing']


@few
@given(lists)
def test_any_sequence_of_records(records):
    check(records, records)


@pytest.mark.campaign
@many
@given(st.lists(st.binary(max_size=2)))
def test_any_sequence_of_records_thoroughly(records):
    check(records, records)


@pytest.mark.parametrize('name', ['x.bag', 'x.bagz'])
def test_bags(tmp_path, records, name):
    reader = bag.Reader(write(tmp_path / name, records * 2))
    check(records * 2, reader)
    check(records[::3], reader[: len(records) : 3])
    check([], reader[5:5])


def test_str_and_buffers_are_keys(tmp_path):
    reader = bag.Reader(write(tmp_path / 'x.bag', ['über', b'abc', 'über']))
    index, multi = bag.Index(reader), bag.MultiIndex(reader)
    assert index['über'] == 0
    assert multi['über'] == [0, 2]
    assert 'über' in index
    assert index[bytearray(b'abc')] == index[memoryview(b'abc')] == 1
    for key in (5, None, ['abc']):
        assert key not in index
        assert index.get(key) is None
        with pytest.raises(KeyError):
            multi[key]


def test_the_lists_are_the_callers_own():
    multi = bag.MultiIndex([b'a', b'a'])
    multi[b'a'].append(7)
    assert multi[b'a'] == [0, 1]


def test_records_with_equal_hashes_are_distinguished(monkeypatch):
    import builtins

    # 64-bit hashes practically never collide.
    monkeypatch.setattr('bags.bag.index.hash', lambda record: builtins.hash(record) % 3, raising=False)
    check([b'%d' % (place % 17) for place in range(60)], [b'%d' % (place % 17) for place in range(60)])


@pytest.mark.parametrize('kind', [bag.Index, bag.MultiIndex])
def test_an_index_is_pickled_to_a_process_where_hashes_differ(tmp_path, kind):
    path = write(tmp_path / 'x.bag', [b'one', b'two', b'one'])
    index = kind(bag.Reader(path))
    assert pickle.loads(pickle.dumps(index))[b'one'] == index[b'one']
    (tmp_path / 'pickle').write_bytes(pickle.dumps(index))
    child = run_child(
        """
        import pickle, sys
        with open(sys.argv[1], "rb") as file:
            index = pickle.load(file)
        print(index[b"one"], index["two"])
        """,
        tmp_path / 'pickle',
    )
    assert child.stdout == f'{index[b"one"]} {index[b"two"]}\n', child.stderr


def test_repr(tmp_path):
    reader = bag.Reader(write(tmp_path / 'x.bag', [b'one']))
    assert repr(bag.Index(reader)) == f'bags.bag.Index({reader!r})'
    assert repr(bag.MultiIndex(reader)) == f'bags.bag.MultiIndex({reader!r})'


def test_a_million_keys_stay_compact(tmp_path):
    count = 1_000_000
    reader = bag.Reader(write(tmp_path / 'x.bag', [b'%d' % place for place in range(count)]))
    # Measuring with tracemalloc would take long.
    index = bag.MultiIndex(reader)
    held = sum(value.nbytes for value in vars(index).values() if isinstance(value, np.ndarray))
    assert held == 12 * count
    others = [value for value in vars(index).values() if not isinstance(value, np.ndarray)]
    assert all(isinstance(value, bag.Reader | memoryview | int | None) for value in others)
    for place in (0, 1, 123_456, count - 1):
        assert index[b'%d' % place] == [place]
    assert b'key number x' not in index
