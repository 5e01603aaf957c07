"""A bag's ends where they are: in a map, in memory, or read in blocks when they are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from bags.bag.limits import ENTRY
from bags.indexing import Int64s
from bags.storage import File

__all__ = ['BlockTable', 'open_table']

BLOCK = 1 << 13  # Limits read at a time where they are not mapped: 64 KiB.


def open_table(file: File, offset: int, count: int, memory: bool) -> Any:
    """Returns the ends that a file has at an offset, as a `Table`; with `memory`, as an array of its own."""
    if file.buffer is not None:
        table = np.frombuffer(file.buffer, '<i8', count, offset)
        return table.copy() if memory else table
    if memory:
        return np.frombuffer(bytes(file.read(offset, offset + count * ENTRY)), '<i8')
    return BlockTable(file, offset, count)


class BlockTable:
    """The ends of a bag whose limits are not mapped: read in aligned blocks, each when first needed.

    Threads that need the same block at the same time each read it: there is no lock that a fork could
    leave held, or that has the reads of different blocks wait for each other.
    """

    def __init__(self, file: File, offset: int, count: int) -> None:
        self.file = file
        self.offset = offset
        self.values = np.empty(count, '<i8')  # Memory is taken where blocks are filled in, not here.
        self.missing = np.ones(-(-count // BLOCK), bool)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self.values))
            blocks = np.arange(start // BLOCK, -(-stop // BLOCK)) if start < stop else np.empty(0, np.int64)
        else:
            blocks = np.unique(np.asarray(index) % max(1, len(self.values)) // BLOCK)
        missing = blocks[self.missing[blocks]]
        if len(missing):
            self._load(missing)
        return self.values[index]

    def _load(self, blocks: Int64s) -> None:
        starts = self.offset + blocks * (BLOCK * ENTRY)
        stops = np.minimum(starts + BLOCK * ENTRY, self.offset + len(self.values) * ENTRY)
        for block, data in zip(blocks.tolist(), self.file.read_many(starts, stops), strict=True):
            self.values[block * BLOCK : (block + 1) * BLOCK] = np.frombuffer(data, '<i8')
        self.missing[blocks] = False
