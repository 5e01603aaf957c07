"""What a sampler is: an order of datapoints for each epoch, that a loader asks for some positions of."""

from __future__ import annotations

import operator
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

__all__ = ['Int64s', 'Sampler', 'integer']

Int64s = npt.NDArray[np.int64]


@runtime_checkable
class Sampler(Protocol):
    """An order of datapoints for each epoch."""

    def __len__(self) -> int:
        """Returns the number of positions in an epoch."""
        ...

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        """Returns the indices at some positions of an epoch, int64 of the same shape."""
        ...


def integer(name: str, value: Any, least: int | None = None) -> int:
    """Returns an option as an integer.

    Raises:
        TypeError: It is none.
        ValueError: It is too small.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f'{name}: expected an integer, got {value!r:.200}') from None
    if least is not None and number < least:
        raise ValueError(f'{name}: expected at least {least}, got {number}')
    return number
