"""Reading a table of limits: where each record of a bag starts and ends. Numbers only, no I/O.

A bag of the records `abcdef`, `123` and `catcat`, in the three places its limits can be:

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
"""Bytes of a limit."""


class Table(Protocol):
    """The ends of a bag's records: an int64 array, or what reads parts of one when they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> Any: ...


def parse_tail(size: int, last: int, starts: bool = False) -> tuple[int, int]:
    """Finds the limits in a file that ends with them.

    Args:
        size: Bytes of the file, at least 8.
        last: The number in the last 8 bytes.
        starts: Whether the table begins with the first record's start.

    Returns:
        The end of the records and their number; the table of ends is the last `8 * number` bytes.

    Raises:
        ValueError: No table can be there; says why.
    """
    if last > size - ENTRY:
        raise ValueError(f'the last limit is {last}, but the records can take at most {size - ENTRY} bytes')
    if (size - last) % ENTRY:
        raise ValueError(f'the limits take {size - last} bytes, not a multiple of {ENTRY}')
    return last, (size - last) // ENTRY - starts


def locate(ends: Table, indices: Int64s) -> tuple[Int64s, Int64s]:
    """Returns starts and ends of records by their indices (each in `range(len(ends))`), unchecked.

    Costs two gathers for any number of records. The table is indexed, never passed to `take`, which
    first copies the whole of a table that is unaligned, as limits behind records mostly are.
    """
    stops = ends[indices]
    starts = ends[indices - 1]  # For index 0 this reads the last end.
    starts[indices == 0] = 0
    return starts, stops


def first_bad(starts: Int64s, stops: Int64s, size: int) -> int:
    """Returns the position of the first range that is not inside `size` bytes, or -1."""
    # As unsigned numbers, a negative one is larger than any size.
    bad = stops.view('<u8') > size
    bad |= starts.view('<u8') > stops.view('<u8')
    return int(bad.argmax()) if np.count_nonzero(bad) else -1  # A third of what `any` takes.


def prefix_agrees(ends: Int64s, other: Int64s) -> bool:
    """Tells whether the shorter of two tables begins the longer one."""
    count = min(len(ends), len(other))
    return bool((ends[:count] == other[:count]).all())
