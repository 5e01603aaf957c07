"""Tables of limits: the offsets at which the records of a bag start and end.

There are three ways to store the limits of a bag with the records `abcdef`, `123` and `catcat`:

    tail      abcdef123catcat | 6 9 15              n ends, after the records
    starts    abcdef123catcat | 0 6 9 15            n starts and the final end, after the records
    separate  abcdef123catcat   limits.NAME: 6 9 15 (also: STEM.idx)

All entries are little-endian u64. In all three, the last entry is the end of the last record, and the entry
before the end of a record is its start (0 for the first record). So each table is read as its n *ends*.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bags.indexing import Int64s
from bags.storage import File, Hints, Store

ENTRY = 8
"""Bytes of one limit."""
BLOCK_ENTRIES = 1 << 13
"""Number of entries read at a time from a table that is not memory-mapped: 64 KiB of limits."""
MAX_ENTRIES_IN_MEMORY = 1 << 27
"""Maximum number of entries of a table that is kept in memory: 1 GiB."""


def read_entries(store: Store, path: str, first: int, last: int) -> bytes:
    """Returns entries `first` to `last` of a table in a file of its own; fewer if the file is shorter."""
    file = store.open(path, Hints(mapped=False))
    stop = min(last * ENTRY, file.size)
    return bytes(file.fetch(first * ENTRY, stop)) if first * ENTRY < stop else b''


def invalid_ranges(starts: Int64s, stops: Int64s, end: int) -> npt.NDArray[np.bool_]:
    """Returns a mask of the ranges that extend beyond `end` bytes, or end before they start."""
    # Compared as unsigned integers: negative numbers are larger than any size.
    bad: npt.NDArray[np.bool_] = stops.view('<u8') > end
    bad |= starts.view('<u8') > stops.view('<u8')
    return bad


def valid_count(ends: Int64s, end: int) -> int:
    """Returns the number of leading ends that are valid for records within `end` bytes."""
    bad = invalid_ranges(np.concatenate([np.zeros(1, ends.dtype), ends[:-1]])[: len(ends)], ends, end)
    return int(bad.argmax()) if bad.any() else len(ends)


def describe_invalid(start: int, stop: int, end: int) -> str:
    """Describes why a range is invalid."""
    if 0 <= start <= stop:
        return f'limit {stop} lies beyond the records ({end} bytes)'
    return f'limits decrease, from {start} to {stop}'


class BlockTable:
    """A table that is not memory-mapped, such as the ends of a bag. Aligned blocks are read on first use.

    The entries of a table with more than `MAX_ENTRIES_IN_MEMORY` are read at every use.

    Threads that need the same block at the same time all read it. A lock could stay locked in a forked child,
    and would make reads of different blocks wait for each other.
    """

    def __init__(self, file: File, offset: int, count: int, dtype: npt.DTypeLike = '<i8') -> None:
        self.file = file
        self.offset = offset
        self.count = count
        self.dtype = np.dtype(dtype)
        kept = count if count <= MAX_ENTRIES_IN_MEMORY else 0
        self.values = np.empty(kept, dtype)  # The kernel allocates memory only when a block is filled.
        self.missing = np.ones(-(-kept // BLOCK_ENTRIES), bool)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Any) -> Any:
        if self.count > MAX_ENTRIES_IN_MEMORY:
            return self._read(index)
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self.values))
            blocks = np.arange(start // BLOCK_ENTRIES, -(-stop // BLOCK_ENTRIES) if start < stop else 0)
        else:
            blocks = np.unique(np.asarray(index) % max(1, len(self.values)) // BLOCK_ENTRIES)
        missing = blocks[self.missing[blocks]]
        if len(missing):
            self._load(missing)
        return self.values[index]

    def _read(self, index: Any) -> Any:
        """Returns entries without keeping them."""
        size = self.dtype.itemsize
        if isinstance(index, slice):
            start, stop, step = index.indices(self.count)
            data = self.file.read(self.offset + start * size, self.offset + max(start, stop) * size)
            return np.frombuffer(data, self.dtype)[::step].copy()
        entries = np.asarray(index)
        starts = self.offset + entries.ravel() % self.count * size
        data = b''.join(self.file.read_many(starts, starts + size))
        return np.frombuffer(data, self.dtype).copy().reshape(entries.shape)[()]

    def _load(self, blocks: Int64s) -> None:
        dtype, size = self.values.dtype, BLOCK_ENTRIES * self.values.itemsize
        starts = self.offset + blocks * size
        stops = np.minimum(starts + size, self.offset + self.values.nbytes)
        for block, data in zip(blocks.tolist(), self.file.read_many(starts, stops), strict=True):
            self.values[block * BLOCK_ENTRIES : (block + 1) * BLOCK_ENTRIES] = np.frombuffer(data, dtype)
        self.missing[blocks] = False
