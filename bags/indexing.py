"""Converts indices of callers to integers in range; splits ranges of indices. No I/O."""

from __future__ import annotations

import operator
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

MAX_INT64 = (1 << 63) - 1

_GOT_MASK = 'expected integers, got a mask of bools; dataset.select(mask) takes one'


def check_index(index: Any, count: int) -> int:
    """Returns an index as an int in `range(count)`. Negative indices count from the end.

    Raises:
        TypeError: The index is not an integer.
        IndexError: The index is out of range.
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
        TypeError: A value is not an integer, or is a bool. The message names the argument, `name`.
    """
    items = list(values)
    if any(map(_is_bool, items)):
        raise TypeError(f'{name}: {_GOT_MASK}')
    try:
        return list(map(operator.index, items))
    except TypeError as exc:
        raise TypeError(f'{name}: expected integers ({exc})') from None


def _is_bool(value: Any) -> bool:
    # `operator.index` accepts bools, including elements of PyTorch masks.
    return type(value) is bool or 'bool' in str(getattr(value, 'dtype', ''))


def as_indices(indices: Iterable[SupportsIndex], count: int, name: str = 'indices') -> Int64s:
    """Returns indices as an int64 array in `range(count)`. Negative indices count from the end.

    Args:
        indices: The indices.
        count: Number of items.
        name: Name of the argument, for errors.

    Raises:
        TypeError: An index is not an integer. Masks of bools are rejected, too.
        IndexError: An index is out of range. The message names the first one.
    """
    if isinstance(indices, range):
        if indices and not all(-count <= end < count for end in (indices[0], indices[-1])):
            position = next(position for position, index in enumerate(indices) if not -count <= index < count)
            raise IndexError(f'{name}[{position}] = {indices[position]} out of range [{-count}, {count})')
        result = np.arange(indices.start, indices.stop, indices.step, dtype=np.int64)
    elif isinstance(indices, np.ndarray):
        if indices.dtype == bool and indices.ndim == 1 and len(indices):
            raise TypeError(f'{name}: {_GOT_MASK}')
        if indices.ndim != 1 or (indices.dtype.kind not in 'iu' and len(indices)):
            raise TypeError(
                f'{name}: expected one dimension of integers, '
                f'got {indices.ndim} dimensions of {indices.dtype}'
            )
        if indices.dtype == np.uint64:
            _check_range(indices, 0, count, name)  # Large numbers would become negative below.
        result = indices.astype(np.int64, copy=False)
    else:
        if isinstance(indices, str | bytes | bytearray | memoryview) or not np.iterable(indices):
            raise TypeError(f'{name}: expected integers, got {type(indices).__name__}')
        if not isinstance(indices, list):
            indices = list(indices)
        if any(map(_is_bool, indices[:2])):
            raise TypeError(f'{name}: {_GOT_MASK}')
        try:
            # Takes 12 ns per index of a list; the conversion by NumPy takes 40 ns.
            result = np.frombuffer(array('q', indices), np.int64)
        except OverflowError:
            detail = f'an index of more than 64 bits is out of range [{-count}, {count})'
            raise IndexError(f'{name}: {detail}') from None
        except TypeError as exc:
            raise TypeError(f'{name}: expected integers ({exc})') from None
    # As unsigned integers, negative numbers are larger than any count, so one comparison usually suffices.
    if len(result) and int(np.maximum.reduce(result.view(np.uint64))) >= count:
        _check_range(result, -count, count, name)
        result = np.where(result < 0, result + count, result)
    return result


def _check_range(indices: npt.NDArray[Any], start: int, stop: int, name: str) -> None:
    bad = (indices < start) | (indices >= stop)
    if np.count_nonzero(bad):
        position = int(bad.argmax())
        raise IndexError(f'{name}[{position}] = {indices[position]} out of range [{-stop}, {stop})')


def offsets_of(counts: Int64s) -> Int64s:
    """Returns the starts of consecutive ranges, and the end of the last range.

    Args:
        counts: Lengths of the ranges, shape (n,).

    Returns:
        int64 array of shape (n + 1,), starting with 0.
    """
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def group_equal(*keys: Int64s) -> tuple[Int64s, Int64s]:
    """Groups positions with equal keys.

    Args:
        *keys: One or several keys of each position, each of shape (n,).

    Returns:
        The positions in the order of their keys, shape (n,); and the start of each group in this order,
        followed by the end of the last, shape (groups + 1,).
    """
    order: Int64s = np.lexsort(keys[::-1])
    are_bounds = np.zeros(len(order) + 1, np.bool_)
    are_bounds[0] = are_bounds[-1] = True
    for key in keys:
        ordered = key[order]
        are_bounds[1:-1] |= ordered[1:] != ordered[:-1]
    return order, np.flatnonzero(are_bounds)


def chunk_length(count: int, size: int, target: int, most: int, growth: int = 2) -> int:
    """Returns the length of the next chunk of items, such that it has about `target` bytes.

    Args:
        count: Number of items in the previous chunk, or in any set with the same mean size.
        size: Bytes of these items.
        target: Desired bytes of a chunk.
        most: Maximum length of a chunk.
        growth: Maximum ratio of the length of the next chunk to `count`.
    """
    return max(1, min(most, growth * count, count * target // max(1, size)))


def split_by_bytes(
    start: int, stop: int, part_size: int, bytes_before: Callable[[int], int]
) -> Iterator[tuple[int, int, int]]:
    """Splits a range of indices into parts of about equal bytes, even if records differ in length.

    Args:
        start, stop: The range.
        part_size: Approximate bytes of a part. The bytes of the range are divided evenly.
        bytes_before: Returns the number of bytes before an index, which increases with the index. Called a
            few times for each part.

    Yields:
        Start, stop and bytes of each part. Parts are not empty.
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
    """Returns the end of the elements that a slice needs, or None if it depends on the length."""
    reverse = (key.step or 1) < 0
    first, last = (key.stop, key.start) if reverse else (key.start, key.stop)
    if last is None or last < 0 or (first or 0) < 0:
        return None
    return operator.index(last) + reverse
