"""The protocol of samplers: an order of datapoints for each epoch."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from bags.indexing import Int64s

__all__ = ['Int64s', 'Sampler']


@runtime_checkable
class Sampler(Protocol):
    """An order of datapoints for each epoch."""

    def __len__(self) -> int:
        """Returns the number of positions in an epoch."""
        ...

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        """Returns the indices at some positions of an epoch, int64 of the same shape."""
        ...
