"""Columns of sequences or arrays of different sizes as single arrays: padded, stacked or packed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.dataset.batch import Ragged
from bags.errors import StackError
from bags.indexing import offsets_of

__all__ = ['Packed', 'Padded', 'collator', 'pack', 'pad', 'stack']

Array = npt.NDArray[Any]


class Padded(NamedTuple):
    """Sequences of one batch, all made as long as the longest."""

    values: Array
    """Shape (B, length, *shape)."""
    lengths: npt.NDArray[np.int32]
    """Items of each sequence that are not padding, shape (B,)."""


class Packed(NamedTuple):
    """Sequences of one batch, one after the other: the form that attention over varying lengths takes."""

    values: Array
    """Shape (items, *shape)."""
    offsets: npt.NDArray[Any]
    """Where each sequence begins, and the end of the last, shape (B + 1,): `cu_seqlens`."""


def pad(column: Any, length: int | None = None, *, value: Any = 0, multiple: int = 1) -> Any:
    """Makes the sequences of a column equally long.

    Args:
        column: A `Ragged`, or a list of arrays or of lists of numbers; or a batch, for all of its columns
            that are such.
        length: To which length; that of the longest, unless given.
        value: What to fill up with.
        multiple: Of what the length is to be a multiple.

    Returns:
        A `Padded`: the array (B, length, *shape), and the lengths before. A missing sequence has length 0.

    Raises:
        StackError: Items of different shapes.
        ValueError: A sequence longer than `length`.
    """
    if isinstance(column, Mapping):
        return _each(functools.partial(pad, length=length, value=value, multiple=multiple), column)
    ragged = _as_ragged(column)
    lengths = ragged.lengths
    longest = int(lengths.max(initial=0))
    if length is not None and longest > length:
        where = f'at {int(lengths.argmax())} of the batch'
        raise ValueError(f'pad: expected sequences of at most {length} items, got {longest} {where}')
    width = -(-(longest if length is None else length) // multiple) * multiple
    values = np.full((len(ragged), width, *ragged.values.shape[1:]), value, ragged.values.dtype)
    values[np.arange(width) < lengths[:, None]] = ragged.values
    return Padded(values, lengths.astype(np.int32))


def stack(column: Any) -> Any:
    """Makes one array of the values of a column, which must have one shape.

    Args:
        column: A `Ragged`, or a list of arrays, numbers or lists of them; or a batch, for all such columns.

    Returns:
        The array, shape (B, *shape); over the memory of the values if they lie in it side by side, as JPEGs
        of one batch and size do.

    Raises:
        StackError: Values of different shapes, or one that is missing; says which.
    """
    if isinstance(column, Mapping):
        return _each(stack, column)
    if isinstance(column, np.ndarray):
        return column
    arrays = [None if value is None else np.asarray(value) for value in column]
    shapes = [None if array is None else array.shape for array in arrays]
    if len(set(shapes)) > 1 or None in shapes:
        raise StackError(shapes)
    if not arrays:
        return np.empty(0)
    found: list[Array] = arrays  # type: ignore[assignment]
    return _side_by_side(found) if _are_side_by_side(found) else np.stack(found)


def _are_side_by_side(arrays: list[Array]) -> bool:
    """Tells whether arrays lie in one block of memory with nothing between, as pictures of a batch may."""
    first, count = arrays[0], len(arrays)
    if count < 2 or not isinstance(first.base, np.ndarray) or not first.nbytes:
        return False
    start, size, dtype = first.__array_interface__['data'][0], first.nbytes, first.dtype
    return all(
        array.base is first.base
        and array.dtype == dtype
        and array.flags.c_contiguous
        and array.__array_interface__['data'][0] == place
        for array, place in zip(arrays, range(start, start + count * size, size), strict=True)
    )


def _side_by_side(arrays: list[Array]) -> Array:
    first = arrays[0]
    shape, strides = (len(arrays), *first.shape), (first.nbytes, *first.strides)
    return np.lib.stride_tricks.as_strided(first, shape, strides)


def pack(column: Any, *, dtype: npt.DTypeLike = np.int32) -> Any:
    """Lays the sequences of a column one after the other.

    Args:
        column: As for `pad`.
        dtype: Of the offsets.

    Returns:
        A `Packed`: the values (items, *shape), and the cumulative lengths (B + 1,). A missing sequence
        is empty.

    Raises:
        StackError: Items of different shapes.
        ValueError: More items than the dtype can count.
    """
    if isinstance(column, Mapping):
        return _each(functools.partial(pack, dtype=dtype), column)
    ragged = _as_ragged(column)
    most = np.iinfo(np.dtype(dtype)).max
    if int(ragged.offsets[-1]) > most:
        raise ValueError(f'pack: expected at most {most} items, got {ragged.offsets[-1]}')
    return Packed(ragged.values, ragged.offsets.astype(dtype))


def _each(work: Callable[[Any], Any], batch: Mapping[str, Any]) -> dict[str, Any]:
    """Does work on those columns of a batch that are not arrays, but could be."""
    done: dict[str, Any] = {}
    for name, column in batch.items():
        try:
            done[name] = work(column) if _is_arrays(column, work is stack) else column
        except StackError as exc:
            raise StackError(exc.shapes, name) from None
        except ValueError as exc:
            exc.add_note(f'field {name!r}')
            raise
    return done


def _is_arrays(column: Any, scalars: bool) -> bool:
    if isinstance(column, Ragged):
        return True
    if not isinstance(column, list):
        return False
    kinds: Any = (np.ndarray, list, int, float, complex, np.generic) if scalars else (np.ndarray, list)
    there = [value for value in column if value is not None]
    return bool(there) and all(
        isinstance(value, kinds) and not (isinstance(value, list) and not _is_numbers(value))
        for value in there
    )


def _is_numbers(values: list[Any]) -> bool:
    return all(isinstance(value, int | float | complex | np.ndarray | np.generic) for value in values)


def _as_ragged(column: Any) -> Ragged:
    if isinstance(column, Ragged):
        return column
    if isinstance(column, np.ndarray):
        column = list(column)
    arrays = [None if value is None else np.asarray(value) for value in column]
    shapes = [None if array is None else array.shape[1:] for array in arrays if array is None or array.size]
    if len(set(shapes) - {None}) > 1:
        raise StackError([None if array is None else array.shape for array in arrays])
    if any(array is not None and not array.ndim for array in arrays):
        raise TypeError('expected sequences, got single numbers')
    counts = np.array([0 if array is None else len(array) for array in arrays], np.int64)
    there = [array for array in arrays if array is not None and array.size]
    some = there or [array for array in arrays if array is not None]
    values = np.concatenate(some) if some else np.empty(0)
    return Ragged(values, offsets_of(counts))


def collator(collate: Any) -> Callable[[Any], Any] | None:
    """Returns what a loader is given as `collate` as a function of a batch.

    Raises:
        TypeError: Neither a function nor a mapping of fields to functions.
    """
    if collate is None or (callable(collate) and not isinstance(collate, Mapping)):
        return collate
    if not isinstance(collate, Mapping):
        raise TypeError(f'collate: expected a function or a mapping of fields to functions, got {collate!r}')
    named = {'pad': pad, 'stack': stack, 'pack': pack}
    functions = {}
    for name, function in collate.items():
        if isinstance(function, str):
            function = named.get(function, function)
        if not callable(function):
            raise TypeError(
                f"collate: expected a function, 'pad', 'stack' or 'pack' for {name!r}, got {function!r}"
            )
        functions[name] = function
    return functools.partial(_by_field, functions)


def _by_field(functions: Mapping[str, Callable[[Any], Any]], batch: Any) -> dict[str, Any]:
    done = dict(batch)
    for name, function in functions.items():
        if name not in done:
            raise KeyError(f'collate: no field {name!r}; those there are: {", ".join(map(repr, done))}')
        try:
            done[name] = function(done[name])
        except StackError as exc:
            raise StackError(exc.shapes, name) from None
        except Exception as exc:
            exc.add_note(f'field {name!r}')
            raise
    return done
