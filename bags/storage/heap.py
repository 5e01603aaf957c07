"""Memory for large results, which the system would else be asked for each time anew."""

from __future__ import annotations

import numpy as np

__all__ = ['HELD', 'MOST', 'hold', 'retain']

LEAST = 1 << 17  # What glibc gives back at least, until it has learned better.
MOST = (1 << 25) - (1 << 13)  # What glibc learns from: 32 MiB with what it adds.
HELD = 1 << 30  # Most bytes that are held.


def retain(size: int) -> None:
    """Has the C library keep memory of about so many bytes when that is free again.

    glibc gives back what is free at the end of its heap, from 128 KiB on, and takes it again with a page
    fault every 4 KiB: for 30 MB as 1,024 `bytes` 15 ms, where to copy them takes 3 ms. It keeps twice as much
    as the largest piece that it had mapped and freed. So one is, in microseconds: it is not written to.
    """
    if size >= LEAST:
        np.empty(min(size, MOST), np.uint8)


def hold(size: int, largest: int) -> np.ndarray | None:
    """Returns what, while it lives, has the C library keep the memory of a result when that is free again.

    For results of more than `retain` can do: glibc gives back only what is free at the end of its heap, and
    this lies behind them. (256 records of 1 MB: 63 µs each, where 360 are page faults otherwise.) It is not
    written to, so that new memory is none of the process's yet.

    Args:
        size: Bytes of the result, which was just made in pieces.
        largest: Of those, the bytes of the largest. If any of them lies at the end of the heap, nothing
            before has room for this one.

    Returns:
        None for results that `retain` is enough for, or that are too large to be held, or in pieces that do
        not come from the heap.
    """
    if not 2 * MOST < size <= HELD or largest > MOST:
        return None
    try:
        return np.empty(largest, np.uint8)
    except MemoryError:
        return None
