"""Pads arrays of different shapes to one shape, with a mask of their elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.errors import StackError
from bags.validation import item_count

Array = npt.NDArray[Any]
ZERO = np.asarray(0)
NUMBER_KINDS = 'biufc'
Length = int | Sequence[int | None] | None
"""The length of the first dimension, or of all dimensions; None for the length of the largest array."""


class Masked(NamedTuple):
    """The arrays of a batch, padded to one shape; in a batch, the mask is a column `NAME_mask`.

    Examples:
        >>> bags.pad([np.ones(1), np.ones(2)], mask=True).mask.tolist()
        [[True, False], [True, True]]
    """

    values: Array
    """Shape (B, *shape)."""
    mask: npt.NDArray[np.bool_]
    """True for values, False for padding, shape (B, *shape)."""


def pad_to_shape(column: Any, length: Length, value: Any, multiple: int) -> Masked:
    """Pads the arrays of a column to one shape; the arguments are as in `bags.pad`.

    Raises:
        StackError, TypeError, ValueError: As `bags.pad`.
    """
    if length is None and isinstance(column, list):
        padded = _pad_vectors(column, value, multiple)
        if padded is not None:
            return padded
    groups = _by_shape(column)
    shapes = [shape for shape in groups if 0 not in shape] or [*groups]
    if len({*map(len, shapes)}) > 1:
        raise StackError([None if value is None else np.shape(value) for value in column])
    if () in groups:
        raise TypeError('expected arrays, got single values')
    limits = [length] if length is None or isinstance(length, int | np.integer) else [*length]
    limits = [None if limit is None else item_count('length', limit, 0) for limit in limits]
    depth = len(shapes[0]) if shapes else len(limits)
    if len(limits) > depth:
        raise ValueError(f'pad: length: expected at most {depth} numbers for these arrays, got {len(limits)}')
    limits += [None] * (depth - len(limits))
    filled = {shape: groups[shape] for shape in shapes if 0 not in shape}
    largest = tuple(map(max, zip(*filled, strict=True))) if filled else (0,) * depth
    if any(limit is not None and size > limit for size, limit in zip(largest, limits, strict=True)):
        text = f'({", ".join(str(limit or "…") for limit in limits)}{"," * (depth == 1)})'
        raise ValueError(f'pad: expected arrays of at most {text}, got some of {largest}')
    shape = [size if limit is None else limit for size, limit in zip(largest, limits, strict=True)]
    shape[0] = -(-shape[0] // multiple) * multiple
    dtypes = {array.dtype for _, array in (filled or groups).values()}
    dtype = np.result_type(*dtypes) if dtypes else np.dtype(float)
    values = np.full((len(column), *shape), *fill_of(dtype, value))
    mask = np.zeros(values.shape, np.bool_)
    for array_shape, (rows, array) in filled.items():
        region: Any = (rows, *map(slice, array_shape))
        values[region] = array
        mask[region] = True
    return Masked(values, mask)


def _pad_vectors(column: list[Any], value: Any, multiple: int) -> Masked | None:
    """Pads vectors of one dtype with a single call; returns None for other values."""
    vectors = [vector for vector in column if vector is not None]
    if not vectors or {*map(type, vectors)} != {np.ndarray} or {vector.ndim for vector in vectors} != {1}:
        return None
    dtypes = {vector.dtype for vector in vectors}
    if len(dtypes) > 1:
        return None
    lengths = np.array([0 if vector is None else len(vector) for vector in column], np.int64)
    width = -(-int(lengths.max()) // multiple) * multiple
    mask = np.arange(width) < lengths[:, None]
    values = np.full(mask.shape, *fill_of(dtypes.pop(), value))
    values[mask] = np.concatenate(vectors)
    return Masked(values, mask)


def _by_shape(column: Any) -> dict[tuple[int, ...], tuple[Any, Array]]:
    """Returns, by shape, the rows whose arrays have this shape, and the arrays as one array."""
    if isinstance(column, np.ndarray):
        return {column.shape[1:]: (slice(None), column)}
    groups: dict[tuple[int, ...], tuple[list[int], list[Array]]] = {}
    for row, row_value in enumerate(column):
        if row_value is not None:
            array = row_value if type(row_value) is np.ndarray else np.asarray(row_value)
            rows, arrays = groups.setdefault(array.shape, ([], []))
            rows.append(row)
            arrays.append(array)
    # `concatenate` is faster than `stack`.
    return {
        shape: (rows, np.concatenate(arrays).reshape(len(rows), *shape) if shape else np.stack(arrays))
        for shape, (rows, arrays) in groups.items()
    }


def fill_of(dtype: np.dtype[Any], value: Any) -> tuple[Array, np.dtype[Any]]:
    """Returns a padding value, and the dtype of the array to fill.

    Raises:
        ValueError: The dtype cannot hold the value.
    """
    if type(value) is int and not value and dtype.kind in NUMBER_KINDS:
        return ZERO, dtype  # Without the checks, which take 10 us.
    fill = np.asarray('' if dtype.kind in 'SU' and value == 0 else value)
    try:
        with np.errstate(invalid='ignore'):
            converted = fill.astype(dtype)
    except (TypeError, ValueError):  # A text or None where numbers are expected.
        converted = None
    if converted is None or (dtype.kind in 'biuSU' and not np.array_equal(converted, fill)):
        raise ValueError(f'pad: expected a value that {dtype} can hold, got {value!r:.80}')
    return fill, dtype
