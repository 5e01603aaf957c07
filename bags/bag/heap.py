"""Memory for large results, which the system would else be asked for each time anew."""

from __future__ import annotations

import numpy as np

__all__ = ['MOST', 'retain']

LEAST = 1 << 20
MOST = (1 << 25) - (1 << 13)  # What glibc learns from: 32 MiB with what it adds.


def retain(size: int) -> None:
    """Has the C library keep memory of about so many bytes when that is free again.

    glibc gives back what is free at the end of its heap, from 128 KiB on, and takes it again with a page
    fault every 4 KiB: for 30 MB as 1,024 `bytes` 15 ms, where to copy them takes 3 ms. It keeps twice as much
    as the largest piece that it had mapped and freed. So one is: it is not touched, and takes microseconds.
    """
    if size >= LEAST:
        np.empty(min(size, MOST), np.uint8)
