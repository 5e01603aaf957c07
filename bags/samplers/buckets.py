"""Batches of similar length, so that little of them is padding."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from bags.indexing import Int64s
from bags.samplers.permutation import Permutation
from bags.validation import at_least, integer

__all__ = ['Bucketed']

POOL_BATCHES = 64


class Bucketed:
    """Each datapoint once, in batches of similar length, so that little of them is padding.

    Random datapoints for 64 batches are sorted by length and cut into batches, whose order is then random.

    Args:
        lengths: Of each datapoint, as `dataset.lengths(field)` returns them without reading any payload.
        batch_size: Of all ranks together.
        seed: Of the order, with the epoch.
        pool: Batches that are sorted together: the larger, the more similar their lengths, and the less
            random the batches.
    """

    per_datapoint = 'lengths'

    def __init__(self, lengths: Any, batch_size: int, seed: int = 0, *, pool: int = POOL_BATCHES) -> None:
        self.lengths = np.array(lengths, np.int64).reshape(-1)
        self.datapoints = len(self.lengths)
        self.batch_size = at_least('batch_size', batch_size, 1)
        self.seed = integer('seed', seed)
        self.pool = at_least('pool', pool, 1)
        self._last: tuple[tuple[int, int], Int64s] = ((-1, -1), self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def _pool(self, epoch: int, number: int) -> Int64s:
        known, found = self._last
        if known != (epoch, number):
            size = self.batch_size * self.pool
            start, stop = number * size, min(len(self.lengths), (number + 1) * size)
            chosen = Permutation(len(self.lengths), self.seed, epoch)(np.arange(start, stop))
            chosen = chosen[np.argsort(self.lengths[chosen], kind='stable')]
            # A batch that is not full stays at the end.
            count = len(chosen) // self.batch_size
            whole = chosen[: count * self.batch_size].reshape(count, self.batch_size)
            order = Permutation(count, self.seed, epoch, number)(np.arange(count))
            found = np.concatenate([whole[order].reshape(-1), chosen[count * self.batch_size :]])
            self._last = ((epoch, number), found)
        return found

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        numbers, within = np.divmod(positions, self.batch_size * self.pool)
        found = np.empty(np.shape(positions), np.int64)
        for number in np.unique(numbers).tolist():
            chosen = numbers == number
            found[chosen] = self._pool(epoch, number)[within[chosen]]
        return found

    def __repr__(self) -> str:
        mark = zlib.crc32(self.lengths.tobytes())
        lengths = f'{len(self)} lengths #{mark:08x}'
        return f'Bucketed({lengths}, {self.batch_size}, seed={self.seed}, pool={self.pool})'
