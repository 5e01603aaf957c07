"""The rows of `FIELD.links`: the file of each record, and its byte range. No I/O.

    03 00 00 00   30 4d 9c 94   40 00 00 00 00 00 00 00   4a 00 00 00 00 00 00 00
    file 3        digest        start 64                  end 74

The digest is the low half of the XXH3-64 of the other 20 bytes.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.indexing import Int64s

ROW = np.dtype([('file', '<u4'), ('digest', '<u4'), ('start', '<u8'), ('end', '<u8')])
ROW_BYTES = ROW.itemsize
NUMBERS = struct.Struct('<IIQQ')
"""The numbers of a row."""
MAX_OFFSET = (1 << 63) - 1
VALUES_FILE = 0
"""The file of records that are no links: `FIELD.values`. Entry i of `FIELD.files` is file i + 1."""

_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_SECRET = np.frombuffer(
    bytes.fromhex('b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f'), '<u8'
)
_INITIAL = np.uint64((ROW_BYTES - 4) * 0x9E3779B185EBCA87 & (1 << 64) - 1)
_FACTOR = np.uint64(0x165667919E3779F9)
"""The beginning of XXH3's secret, the length times its first prime, and the factor of its last step."""

Uint64s = npt.NDArray[np.uint64]
Rows = npt.NDArray[Any]
"""Rows of links, an array of `ROW`."""


def make_rows(files: Any, starts: Any, ends: Any) -> Rows:
    """Returns rows with their digests, shape (n,).

    Args:
        files, starts, ends: Integers, or arrays of them of one shape (n,).
    """
    rows = np.empty(np.shape(starts) or 1, ROW)
    rows['file'], rows['start'], rows['end'] = files, starts, ends
    rows['digest'] = _digests(rows)
    return rows


def parse_rows(data: Any) -> Rows:
    """Returns rows over concatenated records. `check_rows` finds damage."""
    return np.frombuffer(data, ROW)


def check_rows(rows: Rows) -> tuple[int, str] | None:
    """Returns the position of the first damaged row, and a description; None if all are intact."""
    damaged = rows['digest'] != _digests(rows)
    if damaged.any():
        return int(damaged.argmax()), 'the link differs from its digest'
    ends = rows['end']
    impossible = (rows['start'] > ends) | (ends > MAX_OFFSET)
    if impossible.any():
        position = int(impossible.argmax())
        start, end = int(rows['start'][position]), int(ends[position])
        return position, f'the link leads to bytes {start} to {end}, expected start <= end < 2**63'
    return None


def ranges_of(rows: Rows) -> tuple[Int64s, Int64s, Int64s]:
    """Returns files, starts and ends of checked rows as int64, shape (n,) each."""
    return rows['file'].astype(np.int64), rows['start'].astype(np.int64), rows['end'].astype(np.int64)


def _digests(rows: Rows) -> npt.NDArray[np.uint32]:
    """Returns the digests of all rows at once, in a fraction of the time of a call for each.

    This is XXH3-64 of 17 to 32 bytes, of its specification: two overlapping halves of 16 bytes, each combined
    with a part of the secret and multiplied.
    """
    starts, ends = rows['start'], rows['end']
    first = rows['file'] | (starts << _HALF)
    second = (starts >> _HALF) | (ends << _HALF)
    found = _INITIAL + _folded_product(first ^ _SECRET[0], second ^ _SECRET[1])
    found += _folded_product(starts ^ _SECRET[2], ends ^ _SECRET[3])
    found ^= found >> np.uint64(37)
    found *= _FACTOR
    found ^= found >> _HALF
    return found.astype(np.uint32)


def _folded_product(left: Uint64s, right: Uint64s) -> Uint64s:
    """Returns the low half of the products of 128 bits, combined with the high half by exclusive or."""
    left_low, left_high, right_low, right_high = (
        left & _LOW_HALF,
        left >> _HALF,
        right & _LOW_HALF,
        right >> _HALF,
    )
    middle = left_high * right_low
    cross = (left_low * right_low >> _HALF) + (middle & _LOW_HALF) + left_low * right_high
    high: Uint64s = (middle >> _HALF) + (cross >> _HALF) + left_high * right_high
    return high ^ left * right
