"""Orders that draw datapoints with replacement."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from bags.indexing import Int64s
from bags.samplers.permutation import hashed
from bags.validation import integer, item_count


class Random:
    """Datapoints drawn with replacement.

    Args:
        length: Number of datapoints.
        seed: Seed of the draws, combined with the epoch.
        samples: Number of positions in an epoch. Default: `length`.

    Examples:
        >>> bags.samplers.Random(8, samples=12).take(0, np.arange(12))
        array([2, 5, 3, 6, 5, 2, 6, 0, 1, 6, 6, 1])
    """

    def __init__(self, length: int, seed: int = 0, samples: int | None = None) -> None:
        self.length = self.datapoints = item_count('length', length, 1)
        self.seed = integer('seed', seed)
        self.samples = self.length if samples is None else item_count('samples', samples, 1)

    def __len__(self) -> int:
        return self.samples

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        return hashed(positions, self.length, self.seed, epoch)

    def __repr__(self) -> str:
        return f'Random({self.length}, seed={self.seed}, samples={self.samples})'


class Weighted:
    """Datapoints drawn with replacement, in proportion to their weights.

    Args:
        weights: Weight of each datapoint, of any sum. Datapoints of weight 0 are never drawn.
        seed: Seed of the draws, combined with the epoch.
        samples: Number of positions in an epoch. Default: the number of weights.

    Raises:
        ValueError: A weight is negative or not finite, or all weights are 0.
        TypeError: Weights are not numbers.

    Examples:
        >>> labels = dataset.column('label')
        >>> sampler = bags.samplers.Weighted(np.where(labels == 1, 3.0, 1.0), seed=0)
        >>> labels[sampler.take(0, np.arange(8))]
        array([0, 1, 1, 0, 0, 0, 0, 1], dtype=int8)
    """

    per_datapoint = 'weights'

    def __init__(self, weights: Any, seed: int = 0, *, samples: int | None = None) -> None:
        array = np.asarray(weights)
        if array.ndim != 1 or (array.dtype.kind not in 'biuf' and len(array)):
            raise TypeError(
                f'weights: expected one dimension of numbers, got {array.ndim} dimensions of {array.dtype}'
            )
        values = array.astype(np.float64)
        wrong = ~((values >= 0) & (values < np.inf))
        if wrong.any():
            index = int(wrong.argmax())
            raise ValueError(
                f'weights: expected finite numbers of at least 0, got {array[index]} for datapoint {index}'
            )
        if not values.any():
            raise ValueError(f'weights: expected one above 0, got {len(values)} zeros')
        self.datapoints = len(values)
        self.seed = integer('seed', seed)
        self.samples = self.datapoints if samples is None else item_count('samples', samples, 1)
        self._mark = zlib.crc32(values.tobytes())
        self._sums = np.cumsum(values / values.max())  # Divided by the maximum, so that the sum is finite.

    def __len__(self) -> int:
        return self.samples

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        total = self._sums[-1]
        drawn = hashed(positions, 1 << 53, self.seed, epoch) * (total / (1 << 53))
        # 'right' skips datapoints of weight 0, whose sum equals that of the previous datapoint.
        indices: Int64s = np.searchsorted(self._sums, np.minimum(drawn, np.nextafter(total, 0)), 'right')
        return indices

    def __repr__(self) -> str:
        weights = f'{self.datapoints} weights #{self._mark:08x}'
        return f'Weighted({weights}, seed={self.seed}, samples={self.samples})'
