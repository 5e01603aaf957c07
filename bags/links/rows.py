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

from bags.bag.checksums import digest_function
from bags.indexing import Int64s

ROW = np.dtype([('file', '<u4'), ('digest', '<u4'), ('start', '<u8'), ('end', '<u8')])
ROW_BYTES = ROW.itemsize
NUMBERS = struct.Struct('<IIQQ')
"""The numbers of a row."""
MAX_OFFSET = (1 << 63) - 1
VALUES_FILE = 0
"""The file of records that are no links: `FIELD.values`. Entry i of `FIELD.files` is file i + 1."""

_LOW_HALF = 0xFFFFFFFF
_HASHED_BYTES = ROW_BYTES - 4

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
    table = np.ascontiguousarray(rows).view(np.uint8).reshape(-1, ROW_BYTES)
    hashed = np.concatenate([table[:, :4], table[:, 8:]], 1).tobytes()
    digest = digest_function()
    offsets = range(0, len(hashed), _HASHED_BYTES)
    digests = (digest(hashed[offset : offset + _HASHED_BYTES]) & _LOW_HALF for offset in offsets)
    return np.fromiter(digests, np.uint32, len(rows))
