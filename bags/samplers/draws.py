"""Orders that draw datapoints with replacement."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from bags.indexing import Int64s
from bags.samplers.changes import Change, Weights, as_weights, positions_of_run, with_change
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
        values = as_weights(weights)
        self._sums = [_sums_of(values)]
        """The sums of the weights up to each datapoint, for the positions from each of `_starts` on."""
        self._starts = np.zeros(1, np.int64)
        self._initial: Self | None = None
        self.changes: Mapping[int, Change] = {}
        self.datapoints = len(values)
        self.seed = integer('seed', seed)
        self.samples = self.datapoints if samples is None else item_count('samples', samples, 1)
        self._mark = zlib.crc32(values.tobytes())

    def __len__(self) -> int:
        return self.samples

    @property
    def initial(self) -> Self:
        """The order without changes of weights."""
        return self if self._initial is None else self._initial

    def with_weights(self, position: int, weights: Any) -> Self:
        """Returns this order with other weights from a position on, counted over all epochs."""
        position, values = item_count('position', position, 0), as_weights(weights)
        if len(values) != self.datapoints:
            raise ValueError(
                f'weights: expected one for each of {self.datapoints} datapoints, got {len(values)}'
            )
        sums = _sums_of(values)
        changed = copy.copy(self)
        changed._initial = self.initial
        changed.changes = with_change(self.changes, position, values)
        number = int(np.searchsorted(self._starts, position))
        rest = number + (number < len(self._starts) and self._starts[number] == position)
        changed._sums = [*self._sums[:number], sums, *self._sums[rest:]]
        changed._starts = np.concatenate([self._starts[:number], [position], self._starts[rest:]])
        return changed

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        shares = hashed(positions, 1 << 53, self.seed, epoch)
        if len(self._sums) == 1:
            return _drawn(self._sums[0], shares)
        indices = np.empty_like(shares)
        numbers = self._starts.searchsorted(positions_of_run(epoch, positions, self.samples), 'right') - 1
        for number in np.unique(numbers).tolist():
            chosen = np.nonzero(numbers == number)
            indices[chosen] = _drawn(self._sums[number], shares[chosen])
        return indices

    def __repr__(self) -> str:
        weights = f'{self.datapoints} weights #{self._mark:08x}'
        changes = f', {len(self.changes)} changes' if self.changes else ''
        return f'Weighted({weights}, seed={self.seed}, samples={self.samples}{changes})'


def _sums_of(weights: Weights) -> Weights:
    """Returns the sums of weights up to each datapoint, after checking them."""
    wrong = ~((weights >= 0) & (weights < np.inf))
    if wrong.any():
        index = int(wrong.argmax())
        raise ValueError(
            f'weights: expected finite numbers of at least 0, got {weights[index]:g} for datapoint {index}'
        )
    if not weights.any():
        raise ValueError(f'weights: expected one above 0, got {len(weights)} zeros')
    return np.cumsum(weights / weights.max())  # Divided by the maximum, so that the sum is finite.


def _drawn(sums: Weights, shares: Int64s) -> Int64s:
    """Returns the datapoints at shares of the sum of weights, as integers of 53 bits."""
    total = sums[-1]
    drawn = np.minimum(shares * (total / (1 << 53)), np.nextafter(total, 0))
    # 'right' skips datapoints of weight 0, whose sum equals that of the previous datapoint.
    indices: Int64s = np.searchsorted(sums, drawn, 'right')
    return indices
