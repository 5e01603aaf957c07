"""The protocol of samplers, and the plain ones: in order, in windows, shuffled, drawn at random."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from bags.indexing import Int64s
from bags.samplers.permutation import Permutation, hashed
from bags.validation import at_least, integer

__all__ = ['Random', 'Sampler', 'Sequential', 'Shuffled', 'Sliding']


@runtime_checkable
class Sampler(Protocol):
    """An order of datapoints for each epoch."""

    def __len__(self) -> int:
        """Returns the number of positions in an epoch."""
        ...

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        """Returns the indices at some positions of an epoch, int64 of the same shape."""
        ...


class Sequential:
    """Each datapoint once, in order."""

    def __init__(self, length: int) -> None:
        self.length = self.datapoints = at_least('length', length, 0)

    def __len__(self) -> int:
        return self.length

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        return positions

    def __repr__(self) -> str:
        return f'Sequential({self.length})'


class Sliding:
    """Windows over consecutive datapoints, each beginning `stride` after the one before.

    The last windows of an epoch wrap around to the beginning: every window is full.

    Args:
        length: Number of datapoints.
        window: Positions of a window.
        stride: From one window to the next. `window` unless given: then each datapoint comes once, except
            those that fill the last window.
    """

    def __init__(self, length: int, window: int, stride: int | None = None) -> None:
        self.length = self.datapoints = at_least('length', length, 1)
        self.window = at_least('window', window, 1)
        self.stride = self.window if stride is None else at_least('stride', stride, 1)

    def __len__(self) -> int:
        return -(-self.length // self.stride) * self.window

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        number, within = np.divmod(positions, self.window)
        return (number * self.stride + within) % self.length

    def __repr__(self) -> str:
        return f'Sliding({self.length}, {self.window}, {self.stride})'


class Shuffled:
    """Each datapoint once, in an order that depends on the seed and the epoch; needs no memory."""

    def __init__(self, length: int, seed: int = 0) -> None:
        self.length = self.datapoints = at_least('length', length, 0)
        self.seed = integer('seed', seed)
        self._last = (-1, Permutation(0))

    def __len__(self) -> int:
        return self.length

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        known, permutation = self._last
        if known != epoch:
            permutation = Permutation(self.length, self.seed, epoch)
            self._last = (epoch, permutation)
        return permutation(positions)

    def __repr__(self) -> str:
        return f'Shuffled({self.length}, seed={self.seed})'


class Random:
    """Datapoints drawn with replacement.

    Args:
        length: Number of datapoints.
        seed: Of the draw, with the epoch.
        samples: Positions of an epoch; `length` unless given.
    """

    def __init__(self, length: int, seed: int = 0, samples: int | None = None) -> None:
        self.length = self.datapoints = at_least('length', length, 1)
        self.seed = integer('seed', seed)
        self.samples = self.length if samples is None else at_least('samples', samples, 1)

    def __len__(self) -> int:
        return self.samples

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        return hashed(positions, self.length, self.seed, epoch)

    def __repr__(self) -> str:
        return f'Random({self.length}, seed={self.seed}, samples={self.samples})'
