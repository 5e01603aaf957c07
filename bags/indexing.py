"""Indices given by callers, converted to integers in range; ranges of indices. No I/O."""

from __future__ import annotations

import operator
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

_MASK = 'expected integers, got a mask of bools; numpy.flatnonzero makes indices of it'


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


def as_integers(values: Iterable[SupportsIndex], name: str) -> list[int]:
    """Returns integers as a list.

    Raises:
        TypeError: One is not an integer, or is a bool; names the argument, `name`.
    """
    found = list(values)
    if any(map(_is_bool, found)):
        raise TypeError(f'{name}: {_MASK}')
    try:
        return list(map(operator.index, found))
    except TypeError as exc:
        raise TypeError(f'{name}: expected integers ({exc})') from None


def _is_bool(value: Any) -> bool:
    # `operator.index` takes bools, also the elements of masks of PyTorch.
    return type(value) is bool or 'bool' in str(getattr(value, 'dtype', ''))


def as_indices(indices: Iterable[SupportsIndex], count: int, name: str = 'indices') -> Int64s:
    """Returns indices as an int64 array in `range(count)`; negative ones count from the end.

    Args:
        indices: The indices.
        count: Number of items.
        name: The argument, for errors.

    Raises:
        TypeError: An index is not an integer; a mask of bools is refused too.
        IndexError: An index is out of range; names the first.
    """
    if isinstance(indices, range):
        if indices and not all(-count <= end < count for end in (indices[0], indices[-1])):
            position = next(position for position, index in enumerate(indices) if not -count <= index < count)
            raise IndexError(f'{name}[{position}] = {indices[position]} out of range [{-count}, {count})')
        chosen = np.arange(indices.start, indices.stop, indices.step, dtype=np.int64)
    elif isinstance(indices, np.ndarray):
        if indices.dtype == bool and indices.ndim == 1 and len(indices):
            raise TypeError(f'{name}: {_MASK}')
        if indices.ndim != 1 or (indices.dtype.kind not in 'iu' and len(indices)):
            raise TypeError(
                f'{name}: expected one dimension of integers, '
                f'got {indices.ndim} dimensions of {indices.dtype}'
            )
        if indices.dtype == np.uint64:
            _check_range(indices, 0, count, name)  # Before large numbers become negative ones.
        chosen = indices.astype(np.int64, copy=False)
    else:
        if isinstance(indices, str | bytes | bytearray | memoryview) or not np.iterable(indices):
            raise TypeError(f'{name}: expected integers, got {type(indices).__name__}')
        if not isinstance(indices, list):
            indices = list(indices)
        if any(map(_is_bool, indices[:2])):
            raise TypeError(f'{name}: {_MASK}')
        try:
            # 12 ns an index of a list; numpy's own conversion takes 40.
            chosen = np.frombuffer(array('q', indices), np.int64)
        except OverflowError:
            raise IndexError(f'{name}: one of more than 64 bits, out of range [{-count}, {count})') from None
        except TypeError as exc:
            raise TypeError(f'{name}: expected integers ({exc})') from None
    # As unsigned integers, negative numbers are larger than any count: one comparison is usually enough.
    if len(chosen) and int(np.maximum.reduce(chosen.view(np.uint64))) >= count:
        _check_range(chosen, -count, count, name)
        chosen = np.where(chosen < 0, chosen + count, chosen)
    return chosen


def _check_range(indices: npt.NDArray[Any], start: int, stop: int, name: str) -> None:
    bad = (indices < start) | (indices >= stop)
    if np.count_nonzero(bad):
        position = int(bad.argmax())
        raise IndexError(f'{name}[{position}] = {indices[position]} out of range [{-stop}, {stop})')


def offsets_of(counts: Int64s) -> Int64s:
    """Returns the starts of consecutive ranges, and the end of the last.

    Args:
        counts: Lengths of the ranges, shape (n,).

    Returns:
        int64 (n + 1,), from 0.
    """
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def chunk_length(count: int, size: int, target: int, most: int, growth: int = 2) -> int:
    """Returns the length of the next chunk of items, so that it has about `target` bytes.

    Args:
        count: Length of the previous chunk, or of a whole whose mean is that of the chunks.
        size: Its bytes.
        target: Bytes that a chunk should have.
        most: Maximum length.
        growth: Maximum ratio of the lengths of the next chunk and the previous one.
    """
    return max(1, min(most, growth * count, count * target // max(1, size)))


def split_by_bytes(
    start: int, stop: int, part_size: int, bytes_before: Callable[[int], int]
) -> Iterator[tuple[int, int, int]]:
    """Splits a range of indices into parts of about equal bytes, also if records differ in length.

    Args:
        start, stop: The range.
        part_size: Approximate bytes of a part: the bytes of the range are divided evenly.
        bytes_before: Returns the bytes before an index, which grow with it; called a few times a part.

    Yields:
        Start, stop and bytes of each part, none of them empty.
    """
    if start >= stop:
        return
    first = bytes_before(start)
    total = bytes_before(stop) - first
    count = max(1, min(stop - start, round(total / max(1, part_size))))
    begin, size = start, first
    for number in range(1, count + 1):
        goal = first + total * number // count
        # The index nearest to the goal.
        end = stop if number == count else bisect_left(range(stop), goal, begin, stop, key=bytes_before)
        if begin < end < stop and goal - bytes_before(end - 1) < bytes_before(end) - goal:
            end -= 1
        if end > begin:
            reached = bytes_before(end)
            yield begin, end, reached - size
            begin, size = end, reached


def needed_stop(key: slice) -> int | None:
    """Returns the end of the elements that a slice needs if it does not depend on the length; else None."""
    reverse = (key.step or 1) < 0
    first, last = (key.stop, key.start) if reverse else (key.start, key.stop)
    if last is None or last < 0 or (first or 0) < 0:
        return None
    return operator.index(last) + reverse
