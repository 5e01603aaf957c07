"""Rows of links: every flipped byte is found, and ranges that cannot be are refused."""

import struct

import numpy as np
import pytest
import xxhash

from bags.links.rows import (
    ROW_BYTES,
    SEGMENT_BYTES,
    SEGMENT_ROW,
    check_rows,
    frames_of,
    make_rows,
    pack_rows,
    parse_rows,
    ranges_of,
)


def row_of(file, start, end):
    """Returns a row, packed by the description of the format."""
    numbers = struct.pack('<I', file), struct.pack('<QQ', start, end)
    digest = xxhash.xxh3_64_intdigest(numbers[0] + numbers[1]) & 0xFFFFFFFF
    return numbers[0] + struct.pack('<I', digest) + numbers[1]


def test_vectors():
    assert make_rows(3, 64, 74).tobytes().hex() == '03000000304d9c9440000000000000004a00000000000000'
    assert make_rows(3, 64, 74).tobytes() == row_of(3, 64, 74)
    assert make_rows(0, 0, 0).tobytes() == row_of(0, 0, 0)


def segment_of(file, start, end, first, stop):
    """Returns the row of a segment, packed by the description of the format."""
    numbers = struct.pack('<I', file), struct.pack('<QQQQ', start, end, first, stop)
    digest = xxhash.xxh3_64_intdigest(numbers[0] + numbers[1]) & 0xFFFFFFFF
    return numbers[0] + struct.pack('<I', digest) + numbers[1]


def test_rows_of_segments():
    chance = np.random.default_rng(0)
    files = chance.integers(0, 1 << 32, 3000, np.uint64)
    starts, ends, firsts, stops = np.sort(chance.integers(0, 1 << 63, (4, 3000), np.uint64), 0)[[0, 1, 0, 1]]
    frames = np.stack([firsts, stops], 1)
    expected = list(map(segment_of, *(each.tolist() for each in (files, starts, ends, firsts, stops))))
    data = make_rows(files, starts, ends, frames).tobytes()
    assert data == b''.join(expected)
    rows = parse_rows(data, SEGMENT_ROW)
    assert check_rows(rows) is None
    assert np.array_equal(frames_of(rows), frames)
    assert make_rows(3, 64, 74, np.array([[2, 6]])).tobytes() == segment_of(3, 64, 74, 2, 6)
    # Other records have rows without frames.
    frames[::3] = 0
    expected[::3] = map(row_of, *(each[::3].tolist() for each in (files, starts, ends)))
    data, sizes = pack_rows(files, starts, ends, frames)
    assert data == b''.join(expected)
    assert sizes.tolist() == list(map(len, expected))
    assert pack_rows(3, 64, 74)[0] == row_of(3, 64, 74)


@pytest.mark.parametrize('offset', range(SEGMENT_BYTES))
def test_a_flipped_byte_of_a_segment_is_found(offset):
    data = bytearray(segment_of(1, 0, 9, 3, 7) + segment_of(2, 9, 20, 0, 2))
    data[SEGMENT_BYTES + offset] ^= 0x80
    assert check_rows(parse_rows(data, SEGMENT_ROW)) == (1, 'the link differs from its digest')


@pytest.mark.parametrize(('first', 'stop'), [(5, 5), (6, 5), (0, 2**63), (2**64 - 1, 0)])
def test_impossible_frames_are_refused(first, stop):
    rows = parse_rows(segment_of(1, 0, 9, 3, 7) + segment_of(1, 0, 9, first, stop), SEGMENT_ROW)
    detail = f'the link leads to frames {first} to {stop}, expected first < end < 2**63'
    assert check_rows(rows) == (1, detail)


def test_rows_are_read_as_they_were_written():
    files, starts, ends = (
        np.array([1, 0, 2**32 - 1]),
        np.array([0, 7, 2**63 - 1]),
        np.array([5, 7, 2**63 - 1]),
    )
    data = make_rows(files, starts, ends).tobytes()
    assert data == b''.join(map(row_of, files.tolist(), starts.tolist(), ends.tolist()))
    rows = parse_rows(data)
    assert check_rows(rows) is None
    for found, expected in zip(ranges_of(rows), (files, starts, ends), strict=True):
        assert found.dtype == np.int64
        assert found.tolist() == expected.tolist()


def test_no_rows():
    rows = make_rows(np.empty(0, int), np.empty(0, int), np.empty(0, int))
    assert len(rows) == 0
    assert check_rows(rows) is None
    assert [part.tolist() for part in ranges_of(rows)] == [[], [], []]


@pytest.mark.parametrize('offset', range(ROW_BYTES))
def test_a_flipped_byte_is_found(offset):
    for mask in (1, 0x80, 0xFF):
        data = bytearray(make_rows(np.array([1, 2, 3]), np.array([0, 9, 9]), np.array([9, 9, 20])).tobytes())
        data[ROW_BYTES + offset] ^= mask
        assert check_rows(parse_rows(data)) == (1, 'the link differs from its digest')


@pytest.mark.parametrize(('start', 'end'), [(5, 4), (0, 2**63), (2**63, 2**63), (2**64 - 1, 2**64 - 1)])
def test_impossible_ranges_are_refused(start, end):
    rows = parse_rows(row_of(1, 0, 4) + row_of(1, start, end))
    assert check_rows(rows) == (1, f'the link leads to bytes {start} to {end}, expected start <= end < 2**63')


def test_digests_are_those_of_xxhash():
    chance = np.random.default_rng(0)
    files = chance.integers(0, 1 << 32, 3000, np.uint64)
    starts, ends = chance.integers(0, 1 << 63, (2, 3000), np.uint64)
    for edge, number in enumerate((0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**64 - 1)):
        starts[edge * 30 : edge * 30 + 20] = ends[edge * 30 + 10 : edge * 30 + 30] = number
    expected = b''.join(map(row_of, files.tolist(), starts.tolist(), ends.tolist()))
    assert make_rows(files, starts, ends).tobytes() == expected
