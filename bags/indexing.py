"""Indices given by callers, converted to integers in range. No I/O."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Iterable
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

__all__ = ['Int64s', 'as_indices', 'check_index', 'offsets_of']

Int64s = npt.NDArray[np.int64]

_BOOLS = frozenset((bool, np.bool_))
_MASK = 'indices: expected integers, got a mask of bools; numpy.flatnonzero makes indices of it'


def check_index(index: Any, count: int) -> int:
    """Returns an index as an int in `range(count)`; negative ones count from the end.

    Raises:
        TypeError: The index is not an integer.
        IndexError: It is out of range.
    """
    try:
        number = operator.index(index)
    except TypeError:  # Raised by arrays, too, unless their shape is ().
        raise TypeError(f'index: expected an integer, got {type(index).__name__}') from None
    if not -count <= number < count:
        raise IndexError(f'index {number} out of range [{-count}, {count})')
    return number + count if number < 0 else number


def as_indices(indices: Iterable[SupportsIndex], count: int) -> Int64s:
    """Returns indices as an int64 array in `range(count)`; negative ones count from the end.

    Raises:
        TypeError: An index is not an integer; a mask of bools is refused too.
        IndexError: An index is out of range; names the first.
    """
    if isinstance(indices, range):
        if indices and not all(-count <= end < count for end in (indices[0], indices[-1])):
            place = next(place for place, index in enumerate(indices) if not -count <= index < count)
            raise IndexError(f'indices[{place}] = {indices[place]} out of range [{-count}, {count})')
        chosen = np.arange(indices.start, indices.stop, indices.step, dtype=np.int64)
    elif isinstance(indices, np.ndarray):
        if indices.dtype == bool and indices.ndim == 1 and len(indices):
            raise TypeError(_MASK)
        if indices.ndim != 1 or (indices.dtype.kind not in 'iu' and len(indices)):
            raise TypeError(
                f'indices: expected one dimension of integers, '
                f'got {indices.ndim} dimensions of {indices.dtype}'
            )
        if indices.dtype == np.uint64:
            _check_range(indices, 0, count)  # Before large numbers become negative ones.
        chosen = indices.astype(np.int64, copy=False)
    else:
        if isinstance(indices, str | bytes | bytearray | memoryview | slice):
            raise TypeError(f'indices: expected integers, got {type(indices).__name__}')
        try:
            # 12 ns an index of a list; numpy's own conversion takes 40.
            chosen = np.frombuffer(array('q', indices), np.int64)  # type: ignore[type-var]
        except OverflowError:
            raise IndexError(f'indices: one of more than 64 bits, out of range [{-count}, {count})') from None
        except TypeError as exc:
            raise TypeError(f'indices: expected integers ({exc})') from None
        if isinstance(indices, list) and any(map(_BOOLS.__contains__, map(type, indices[:2]))):
            raise TypeError(_MASK)
    # Seen as unsigned, negative numbers are larger than any count: one comparison is mostly enough.
    if len(chosen) and int(np.maximum.reduce(chosen.view(np.uint64))) >= count:
        _check_range(chosen, -count, count)
        chosen = np.where(chosen < 0, chosen + count, chosen)
    return chosen


def _check_range(indices: npt.NDArray[Any], start: int, stop: int) -> None:
    bad = (indices < start) | (indices >= stop)
    if np.count_nonzero(bad):
        place = int(bad.argmax())
        raise IndexError(f'indices[{place}] = {indices[place]} out of range [{-stop}, {stop})')


def offsets_of(counts: Int64s) -> Int64s:
    """Returns the starts of ranges that lie one after the other, and the end of the last.

    Args:
        counts: Lengths of the ranges, shape (n,).

    Returns:
        int64 (n + 1,), from 0.
    """
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets
