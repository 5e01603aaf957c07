"""Batches: columns of values, and their concatenation and reordering.

A column is an array (B, *shape) if all values have the same size, a `Ragged` for sequences of such values,
and a list otherwise.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.dataset import above
from bags.indexing import offsets_of


@dataclasses.dataclass(eq=False)
class Ragged:
    """A batch of sequences of different lengths.

    `ragged[i]` is the i-th sequence, a view of `values`; None if it is missing.

    Examples:
        >>> state = dataset.batch([0, 1], 'state')['state']
        >>> state.values.shape, state.offsets
        ((7, 2), array([0, 3, 7]))
        >>> state[1].shape
        (4, 2)
    """

    values: npt.NDArray[Any]
    """The items of all sequences, concatenated, shape (items, *shape)."""
    offsets: npt.NDArray[np.int64]
    """The start of each sequence in `values`, and the end of the last, shape (B + 1,)."""
    present: npt.NDArray[np.bool_] | None = None
    """Which sequences are present, shape (B,), if the field is optional. A missing sequence has 0 items."""

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of items of each sequence, shape (B,)."""
        # Not `np.diff`: the offsets may be PyTorch tensors or JAX arrays.
        return self.offsets[1:] - self.offsets[:-1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> npt.NDArray[Any] | None:
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f'index {index} out of range [{-count}, {count})')
        index = index % count
        if self.present is not None and not self.present[index]:
            return None
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def __iter__(self) -> Iterator[npt.NDArray[Any] | None]:
        return (self[index] for index in range(len(self)))

    def _repr_html_(self) -> str:
        """Returns the HTML for notebooks: the first sequences, with numbers as curves."""
        html: str = above.ragged_as_html(self)
        return html

    def dense(self) -> npt.NDArray[Any]:
        """Returns the sequences as one array (B, items, *shape), without a copy.

        Raises:
            ValueError: The lengths differ, or a sequence is missing.
        """
        lengths = self.lengths
        if self.present is not None and not self.present.all():
            missing = int((~self.present).sum())
            raise ValueError(f'expected sequences of equal length, got {missing} missing')
        if len(lengths) and (lengths != lengths[0]).any():
            raise ValueError(
                f'expected sequences of equal length, got {lengths.min()} to {lengths.max()} items'
            )
        items = int(lengths[0]) if len(lengths) else 0
        return self.values.reshape(len(lengths), items, *self.values.shape[1:])

    def __repr__(self) -> str:
        shape = ', '.join(map(str, self.values.shape[1:]))
        missing = '' if self.present is None else f', {int((~self.present).sum())} missing'
        items = f'{len(self.values)} items of {self.values.dtype}({shape})'
        return f'Ragged({len(self)} sequences, {items}{missing})'


Column = npt.NDArray[Any] | Ragged | list[Any]


def concat_ranges(firsts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Concatenates the ranges that begin at `firsts` and have `counts` elements."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(firsts - ends + counts, counts)


def take(column: Column, order: npt.NDArray[np.int64]) -> Column:
    """Returns the rows of a column at the positions in `order`."""
    if isinstance(column, Ragged):
        counts = column.lengths[order]
        items = concat_ranges(column.offsets[:-1][order], counts)
        present = column.present[order] if column.present is not None else None
        return Ragged(column.values[items], offsets_of(counts), present)
    if isinstance(column, np.ndarray):
        return column[order]
    return [column[position] for position in order.tolist()]


def join_columns(columns: Sequence[Column], positions: npt.NDArray[np.int64] | None = None) -> Column:
    """Concatenates columns of one field; with `positions`, row i is moved to row `positions[i]`."""
    first = columns[0]
    if len(columns) == 1:
        return first if positions is None else take(first, np.argsort(positions))
    if isinstance(first, Ragged) and all(isinstance(column, Ragged) for column in columns):
        parts = [column for column in columns if isinstance(column, Ragged)]
        present = None
        if first.present is not None:
            masks = [np.ones(len(part), np.bool_) if part.present is None else part.present for part in parts]
            present = _join(masks, positions)
        counts = _join([part.lengths for part in parts], positions)
        offsets = offsets_of(counts)
        if positions is not None:
            lengths = np.concatenate([part.lengths for part in parts])
            positions = concat_ranges(offsets[:-1][positions], lengths)
        return Ragged(_join([part.values for part in parts], positions), offsets, present)
    arrays = [column for column in columns if isinstance(column, np.ndarray)]
    if len(arrays) == len(columns) and len({array.shape[1:] for array in arrays}) == 1:
        return _join(arrays, positions)
    # E.g. some columns have integers too large for the dtype, or numbers of frames differ.
    values = [value for column in columns for value in as_list(column)]
    return values if positions is None else take(values, np.argsort(positions))


def _join(arrays: Sequence[npt.NDArray[Any]], positions: npt.NDArray[np.int64] | None) -> npt.NDArray[Any]:
    """Concatenates arrays, with `positions` as in `join_columns`; copies them once."""
    if positions is None or len({array.shape[1:] for array in arrays}) > 1:
        return np.concatenate(arrays)
    dtype = functools.reduce(np.promote_types, {array.dtype for array in arrays})
    joined = np.empty((len(positions), *arrays[0].shape[1:]), dtype)
    start = 0
    for array in arrays:
        joined[positions[start : start + len(array)]] = array
        start += len(array)
    return joined


def split(column: Column, counts: Sequence[int]) -> list[Column]:
    """Splits a column into columns with the given numbers of rows. Their arrays are views."""
    ranges = list(itertools.pairwise(itertools.accumulate(counts, initial=0)))
    if not isinstance(column, Ragged):
        return [column[start:stop] for start, stop in ranges]
    parts: list[Column] = []
    for start, stop in ranges:
        offsets = column.offsets[start : stop + 1]
        present = None if column.present is None else column.present[start:stop]
        values = column.values[int(offsets[0]) : int(offsets[-1])]
        parts.append(Ragged(values, offsets - offsets[0], present))
    return parts


def as_list(column: Column) -> list[Any]:
    """Converts a column to a list of values."""
    if isinstance(column, Ragged):
        return [None if values is None else as_list(values) for values in column]
    if isinstance(column, np.ndarray):
        return column.tolist() if column.ndim == 1 else list(column)
    return column


def convert(value: Any, leaf: Callable[[Any, str], Any], where: str = '') -> Any:
    """Returns a batch with `leaf` applied to each value; recurses into mappings, lists and tuples.

    Args:
        value: The batch, or a part of it.
        leaf: Function of a value and the name of its field.
        where: The name of the field of this part.
    """
    if isinstance(value, Mapping):
        prefix = f'{where}.' if where else ''
        return {key: convert(part, leaf, f'{prefix}{key}') for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, '_fields'):
        return type(value)(*(convert(part, leaf, where) for part in value))
    if isinstance(value, list | tuple):
        return type(value)(convert(part, leaf, where) for part in value)
    return leaf(value, where)
