"""A random order for remote datasets, of a few shards at a time."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from bags.indexing import Int64s, offsets_of
from bags.samplers.permutation import Permutation
from bags.validation import at_least, integer

__all__ = ['ShardShuffled', 'shard_lengths']


class ShardShuffled:
    """Each datapoint once, a few shards at a time, so that a cache holds what is read next.

    Shards are put in random order and divided into windows; within a window, datapoints come in random order.
    More shards in a window mix better and need a larger cache.

    Args:
        lengths: Datapoints of each shard, as `shard_lengths(dataset)` returns them.
        seed: Of the order, with the epoch.
        window: Shards of a window.
    """

    def __init__(self, lengths: Sequence[int] | Int64s, seed: int = 0, window: int = 8) -> None:
        self.lengths = np.array(lengths, np.int64).reshape(-1)
        if len(self.lengths) and int(self.lengths.min()) < 0:
            raise ValueError(f'lengths: expected at least 0, got {int(self.lengths.min())}')
        self.seed = integer('seed', seed)
        self.window = at_least('window', window, 1)
        self._starts = offsets_of(self.lengths)
        self.datapoints = int(self._starts[-1])
        self._last: tuple[int, Any] = (-1, None)

    def __len__(self) -> int:
        return self.datapoints

    def _epoch(self, epoch: int) -> Any:
        """Returns the order of the shards, and the positions at which shards and windows begin and end."""
        known, found = self._last
        if known != epoch:
            order = Permutation(len(self.lengths), self.seed, epoch)(np.arange(len(self.lengths)))
            ends = offsets_of(self.lengths[order])
            found = order, ends, ends[np.append(np.arange(0, len(order), self.window), len(order))]
            self._last = (epoch, found)
        return found

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        order, starts, windows = self._epoch(epoch)
        flat = np.reshape(positions, -1)
        numbers = np.searchsorted(windows, flat, 'right') - 1
        found = np.empty(len(flat), np.int64)
        for number in np.unique(numbers).tolist():
            chosen = numbers == number
            start, stop = int(windows[number]), int(windows[number + 1])
            place = start + Permutation(stop - start, self.seed, epoch, number)(flat[chosen] - start)
            shard = np.searchsorted(starts, place, 'right') - 1
            found[chosen] = self._starts[order[shard]] + place - starts[shard]
        return found.reshape(np.shape(positions))

    def __repr__(self) -> str:
        # Shards of other lengths give another order.
        shards = f'{len(self.lengths)} shards #{zlib.crc32(self.lengths.tobytes()):08x}'
        return f'ShardShuffled({shards}, {len(self)}, seed={self.seed}, window={self.window})'


def shard_lengths(dataset: Any) -> Int64s:
    """Returns the number of datapoints of each shard of a reader, or of each dataset of a `concat`."""
    lengths = dataset._part_lengths() if hasattr(dataset, '_part_lengths') else [len(dataset)]
    return np.array(lengths, np.int64)
