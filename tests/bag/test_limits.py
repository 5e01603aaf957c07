from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import bags
from bags import bag
from bags.bag.limits import BlockTable, invalid_ranges
from bags.bag.open import parse_tail
from bags.errors import CorruptError
from bags.storage.memory_file import MemoryFile
from tests.bag.samples import few

sizes = st.lists(st.integers(0, 50), max_size=30)


def file_of(data):
    return MemoryFile('x.bag', data)


def table_of(sizes, *, starts=False):
    return np.cumsum([0, *sizes] if starts else sizes, dtype='<u8').tobytes()


@few
@given(sizes, st.booleans())
def test_the_table_at_the_end_is_found(sizes, starts):
    assume(sizes or not starts)
    data = bytes(sum(sizes)) + table_of(sizes, starts=starts)
    assert parse_tail(file_of(data), starts) == (sum(sizes), len(sizes))


def test_the_worked_example():
    assert parse_tail(file_of(b'abcdef123catcat' + table_of([6, 3, 6])), starts=False) == (15, 3)
    assert parse_tail(file_of(b'abcdef123catcat' + table_of([6, 3, 6], starts=True)), starts=True) == (15, 3)


@pytest.mark.parametrize('last', [9, 16, 1 << 62, 1 << 63, (1 << 64) - 1])
def test_a_last_limit_beyond_the_records(last):
    wanted = (
        f'last limit is {last}, but the records can take at most 8'
        if last < 1 << 48
        else 'cut off, or not a bag'
    )
    with pytest.raises(CorruptError, match=wanted):
        parse_tail(file_of(bytes(8) + last.to_bytes(8, 'little')), starts=False)


def test_limits_fill_whole_entries():
    with pytest.raises(CorruptError, match='13 bytes, not a multiple of 8'):
        parse_tail(file_of(bytes(8) + (3).to_bytes(8, 'little')), starts=False)


@few
@given(st.integers(1, 40_000), st.integers(0, 20), st.data())
def test_a_table_read_in_blocks(count, offset, data):
    ends = np.arange(5, 5 + count)
    table = BlockTable(file_of(bytes(offset) + ends.astype('<i8').tobytes() + b'more'), offset, count)
    assert len(table) == count
    indices = np.array(data.draw(st.lists(st.integers(-1, count - 1), min_size=1)))
    assert table[indices].tolist() == ends[indices].tolist()
    start, stop = data.draw(st.integers(0, count)), data.draw(st.integers(0, count))
    assert table[start:stop].tolist() == ends[start:stop].tolist()


@pytest.mark.parametrize(
    ('starts', 'stops', 'bad'),
    [
        ([0, 5], [5, 10], []),
        ([0, 5], [5, 11], [1]),
        ([0, 6], [5, 5], [1]),
        ([0, -1], [5, 5], [1]),
        ([0, 5], [-1, 10], [0]),
        ([-8, 5], [-4, 10], [0]),
        ([6, 5], [5, 11], [0, 1]),
        ([], [], []),
        ([10, 10], [10, 10], []),
    ],
)
def test_ranges_out_of_bounds(starts, stops, bad):
    found = invalid_ranges(np.array(starts, np.int64), np.array(stops, np.int64), 10)
    assert np.flatnonzero(found).tolist() == bad


@pytest.mark.parametrize('name', ['cat.jpg', 'notes.txt', 'a.tar', 'x.npy', 'image.bag', 'image.bagz'])
def test_other_files_are_no_bags(tmp_path, name):
    """Also with the file name of a field; the error gives no number from such a file as a limit."""
    contents = {
        'cat.jpg': (Path(__file__).parents[2] / 'examples' / 'data' / 'cat.jpg').read_bytes(),
        'notes.txt': b'some notes about something',
        'a.tar': b'folder/name' + bytes(10240 - 11),
        'x.npy': b'\x93NUMPY' + bytes(800),
    }
    for data in [contents[name]] if name in contents else contents.values():
        (tmp_path / name).write_bytes(data)
        if 'bag' in name and not any(data[-7:]):
            continue  # Valid as the end of a bag of empty records with damaged limits.
        wanted = 'cut off, or not a bag' if 'bag' in name else f'{name}: not a bag: it has no valid limits'
        with pytest.raises(CorruptError, match=wanted):
            bag.Reader(tmp_path / name)
    if 'bag' in name:
        (tmp_path / name).unlink()
        with bags.DatasetWriter(tmp_path / 'd', {'image': 'bytes'}) as writer:
            writer.append({'image': b'1'})
        (tmp_path / 'd' / 'image.bag').unlink()
        (tmp_path / 'd' / name).write_bytes(contents['cat.jpg'])
        dataset = bags.open(tmp_path / 'd')
        with pytest.raises(CorruptError, match=rf'{name}: .*or not a bag'):
            dataset[0]
