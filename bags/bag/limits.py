"""Tables of limits: where each record of a bag starts and ends. Pure numbers, no I/O.

The three ways to store the limits of a bag with the records `abcdef`, `123` and `catcat`:

    tail      abcdef123catcat | 6 9 15              n ends, after the records
    starts    abcdef123catcat | 0 6 9 15            n starts and the final end, after the records
    separate  abcdef123catcat   limits.NAME: 6 9 15 (also: STEM.idx)

All are little-endian u64. In all three the last entry is the end of the last record, and the entry
before a record's end is its start (0 for the first). So every table is read as its n *ends*.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from bags.indexing import Int64s

__all__ = ['ENTRY', 'Int64s', 'Table', 'first_bad', 'locate', 'parse_tail', 'prefix_agrees']

ENTRY = 8
"""Bytes of one limit."""


class Table(Protocol):
    """The ends of a bag's records: an int64 array, or an object that reads parts of it on demand."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> Any: ...


def parse_tail(size: int, last: int, starts: bool = False) -> tuple[int, int]:
    """Locates the limits in a file that ends with them.

    Args:
        size: Bytes of the file, at least 8.
        last: The number in the last 8 bytes.
        starts: Whether the table begins with the first record's start.

    Returns:
        The end of the records and their number; the table of ends is the last `8 * number` bytes.

    Raises:
        ValueError: The file cannot end with a table; the message says why.
    """
    if last > size - ENTRY:
        raise ValueError(f'the last limit is {last}, but the records can take at most {size - ENTRY} bytes')
    if (size - last) % ENTRY:
        raise ValueError(f'the limits take {size - last} bytes, not a multiple of {ENTRY}')
    return last, (size - last) // ENTRY - starts


def locate(ends: Table, indices: Int64s) -> tuple[Int64s, Int64s]:
    """Returns starts and ends of records by their indices (each in `range(len(ends))`), unchecked.

    Two gathers, whatever the number of records. The table is indexed and never passed to `take`, which
    first copies an unaligned table as a whole, and limits after records are usually unaligned.
    """
    stops = ends[indices]
    starts = ends[indices - 1]  # For index 0 this reads the last end.
    starts[indices == 0] = 0
    return starts, stops


def first_bad(starts: Int64s, stops: Int64s, size: int) -> int:
    """Returns the position of the first range that is not inside `size` bytes, or -1."""
    # Compared as unsigned integers: negative numbers are larger than any size.
    bad = stops.view('<u8') > size
    bad |= starts.view('<u8') > stops.view('<u8')
    return int(bad.argmax()) if np.count_nonzero(bad) else -1


def prefix_agrees(ends: Int64s, other: Int64s) -> bool:
    """Returns whether the shorter of two tables is a prefix of the longer one."""
    count = min(len(ends), len(other))
    return bool((ends[:count] == other[:count]).all())
