"""The rows of `FIELD.links`: the file of each record, and its byte range. No I/O.

    03 00 00 00   30 4d 9c 94   40 00 00 00 00 00 00 00   4a 00 00 00 00 00 00 00
    file 3        digest        start 64                  end 74

The digest is the low half of the XXH3-64 of the other 20 bytes. The row of a segment has 16 more bytes: the
first frame and the end (exclusive) in the video at that range, each a u64; samples for audio.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.indexing import MAX_INT64, Int64s

ROW = np.dtype([('file', '<u4'), ('digest', '<u4'), ('start', '<u8'), ('end', '<u8')])
ROW_BYTES = ROW.itemsize
SEGMENT_ROW = np.dtype([*ROW.descr, ('first', '<u8'), ('stop', '<u8')])
SEGMENT_BYTES = SEGMENT_ROW.itemsize
ROW_NUMBERS = struct.Struct('<IIQQ')
"""File, digest, start and end of a row."""
MAX_OFFSET = MAX_INT64
VALUES_FILE = 0
"""Number of the file `FIELD.values`, with the records that are not links. Entry i of `FIELD.files` is file
i + 1."""

_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_SECRET = np.frombuffer(
    bytes.fromhex(
        'b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f'
        'cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c'
    ),
    '<u8',
)
_PRIME = 0x9E3779B185EBCA87
_FACTOR = np.uint64(0x165667919E3779F9)
"""`_SECRET`, `_PRIME` and `_FACTOR` are the start of XXH3's secret, its first prime, and its final factor."""

Uint64s = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.integer[Any]] | int
Rows = npt.NDArray[Any]
"""Rows of links: an array with dtype `ROW` or `SEGMENT_ROW`. In a `SEGMENT_ROW`, `stop` is 0 for records that
are not segments."""


def make_rows(
    files: Integers, starts: Integers, ends: Integers, frames: npt.NDArray[np.integer[Any]] | None = None
) -> Rows:
    """Returns rows with their digests, shape (n,).

    Args:
        files, starts, ends: Integers, or integer arrays of shape (n,).
        frames: First frame and end of each segment, shape (n, 2).
    """
    rows = np.empty(np.shape(starts) or 1, ROW if frames is None else SEGMENT_ROW)
    rows['file'], rows['start'], rows['end'] = files, starts, ends
    if frames is not None:
        rows['first'], rows['stop'] = frames[:, 0], frames[:, 1]
    rows['digest'] = _digests(rows)
    return rows


def pack_rows(
    files: Integers, starts: Integers, ends: Integers, frames: npt.NDArray[np.integer[Any]] | None = None
) -> tuple[bytes, Int64s]:
    """Returns the rows of records as bytes, and the size of each row, shape (n,).

    Args:
        files, starts, ends: As in `make_rows`.
        frames: First frame and end of each segment, shape (n, 2); zeros for other records.
    """
    plain = make_rows(files, starts, ends)
    if frames is None or not frames.any():
        return plain.tobytes(), np.full(len(plain), ROW_BYTES)
    data = make_rows(files, starts, ends, frames).view(np.uint8).reshape(-1, SEGMENT_BYTES)
    is_plain = frames[:, 1] == 0
    data[is_plain, :ROW_BYTES] = plain.view(np.uint8).reshape(-1, ROW_BYTES)[is_plain]
    sizes = np.where(is_plain, ROW_BYTES, SEGMENT_BYTES)
    return data[np.arange(SEGMENT_BYTES) < sizes[:, None]].tobytes(), sizes


def parse_rows(data: Any, dtype: np.dtype[Any] = ROW) -> Rows:
    """Returns an array view of concatenated rows of equal size. `check_rows` detects damage."""
    return np.frombuffer(data, dtype)


def check_rows(rows: Rows) -> tuple[int, str] | None:
    """Returns the position and a description of the first damaged row; None if all rows are intact."""
    damaged = rows['digest'] != _digests(rows)
    if damaged.any():
        return int(damaged.argmax()), 'the link differs from its digest'
    ends = rows['end']
    impossible = (rows['start'] > ends) | (ends > MAX_OFFSET)
    if impossible.any():
        position = int(impossible.argmax())
        start, end = int(rows['start'][position]), int(ends[position])
        return position, f'the link leads to bytes {start} to {end}, expected start <= end < 2**63'
    if rows.dtype == SEGMENT_ROW:
        impossible = (rows['first'] >= rows['stop']) | (rows['stop'] > MAX_OFFSET)
        if impossible.any():
            position = int(impossible.argmax())
            first, stop = int(rows['first'][position]), int(rows['stop'][position])
            return position, f'the link leads to frames {first} to {stop}, expected first < end < 2**63'
    return None


def ranges_of(rows: Rows) -> tuple[Int64s, Int64s, Int64s]:
    """Returns file numbers, starts and ends of checked rows, each int64 of shape (n,)."""
    return rows['file'].astype(np.int64), rows['start'].astype(np.int64), rows['end'].astype(np.int64)


def frames_of(rows: Rows) -> Int64s | None:
    """Returns the first frame and the end of each segment, int64 of shape (n, 2); zeros for other records.

    Returns None for rows without segments.
    """
    if rows.dtype == ROW:
        return None
    return np.stack([rows['first'], rows['stop']], 1).astype(np.int64)


def _digests(rows: Rows) -> npt.NDArray[np.uint32]:
    """Returns the digests of all rows, vectorized: a fraction of the time of one call for each row.

    Implements XXH3-64 for 17 to 64 bytes as specified: overlapping parts of 16 bytes are each combined with a
    part of the secret and multiplied.
    """
    starts, ends = rows['start'], rows['end']
    digests = np.full(len(rows), (rows.itemsize - 4) * _PRIME & (1 << 64) - 1, np.uint64)
    digests += _folded_product(
        (rows['file'] | starts << _HALF) ^ _SECRET[0], (starts >> _HALF | ends << _HALF) ^ _SECRET[1]
    )
    if rows.dtype == ROW:
        digests += _folded_product(starts ^ _SECRET[2], ends ^ _SECRET[3])
    else:
        firsts, stops = rows['first'], rows['stop']
        digests += _folded_product(firsts ^ _SECRET[2], stops ^ _SECRET[3])
        digests += _folded_product(
            (ends >> _HALF | firsts << _HALF) ^ _SECRET[4], (firsts >> _HALF | stops << _HALF) ^ _SECRET[5]
        )
        digests += _folded_product(starts ^ _SECRET[6], ends ^ _SECRET[7])
    digests ^= digests >> np.uint64(37)
    digests *= _FACTOR
    digests ^= digests >> _HALF
    return digests.astype(np.uint32)


def _folded_product(left: Uint64s, right: Uint64s) -> Uint64s:
    """Returns the low half of each 128-bit product XOR its high half."""
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
