"""Columns of values that conditions test, and exact comparisons of columns. No I/O."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.dataset.reading.batch import as_list, concat_ranges
from bags.indexing import Int64s, offsets_of

MAX_EXACT_INT = 1 << 53
"""Every integer up to this absolute value is a float64."""

Bools = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]


class Column(NamedTuple):
    """The values of a field, function or constant, for n datapoints."""

    values: Array
    """Numbers, or objects for texts and all other values: shape (n,), or (1,) for a constant. For a sequence,
    the items of all datapoints, shape (items,). The value of a datapoint without one is arbitrary. Empty if
    the condition needs no values."""
    present: Bools | None = None
    """Which datapoints have a value, shape (n,); None if all have one."""
    counts: Int64s | None = None
    """The number of items of each datapoint of a sequence, shape (n,)."""

    def take(self, rows: Int64s) -> Column:
        """Returns the column of some datapoints."""
        present = None if self.present is None else self.present[rows]
        counts = None if self.counts is None else self.counts[rows]
        if not len(self.values):  # The condition needs only the presence, or the number of items.
            return Column(self.values, present, counts)
        if self.counts is not None and counts is not None:
            rows = concat_ranges(offsets_of(self.counts)[:-1][rows], counts)
        return Column(self.values[rows], present, counts)


class Block:
    """Some datapoints, with the columns that a condition needs."""

    def __init__(self, length: int, columns: Mapping[str, Column]) -> None:
        self.length = length
        self._columns = dict(columns)
        self._source: Block | None = None
        self._rows = np.empty(0, np.int64)

    def __getitem__(self, key: str) -> Column:
        if key not in self._columns and self._source is not None:
            self._columns[key] = self._source[key].take(self._rows)
        return self._columns[key]

    def take(self, rows: Int64s) -> Block:
        """Returns the block of some datapoints. Takes a column when it is first used."""
        if len(rows) == self.length:
            return self
        block = Block(len(rows), {})
        block._source, block._rows = self, rows
        return block

    def per_item(self, items: Mapping[str, Column], counts: Int64s) -> Block:
        """Returns the block of all items of a field, with the other values of their datapoints."""
        block = Block(int(counts.sum()), items)
        block._source, block._rows = self, np.repeat(np.arange(self.length), counts)
        return block


Test = Callable[[Block], Bools]
"""Returns which datapoints of a block pass, shape (n,)."""


def all_of(tests: Sequence[Test]) -> Test:
    """Returns the conjunction. Each test takes only the datapoints that passed the tests before it."""
    if len(tests) == 1:
        return tests[0]

    def test(block: Block) -> Bools:
        rows = np.flatnonzero(tests[0](block))
        for later in tests[1:]:
            if not len(rows):
                break
            rows = rows[later(block.take(rows))]
        return _mask(rows, block.length)

    return test


def any_of(tests: Sequence[Test]) -> Test:
    """Returns the disjunction. Each test takes only the datapoints that failed the tests before it."""
    return tests[0] if len(tests) == 1 else negation(all_of([*map(negation, tests)]))


def negation(test: Test) -> Test:
    """Returns the test that the other datapoints pass."""
    return lambda block: ~test(block)


def _mask(rows: Int64s, length: int) -> Bools:
    mask = np.zeros(length, bool)
    mask[rows] = True
    return mask


# Columns.


def constant_column(value: float | str | None) -> Column:
    """Returns the column of a value that is the same for all datapoints."""
    # A NumPy text would lose zeros at its end.
    return Column(np.array([value], object if isinstance(value, str) else None))


def objects(values: Iterable[Any], count: int) -> Array:
    """Returns an array of Python objects, shape (count,)."""
    return np.fromiter(values, object, count)


def column_of_values(values: Sequence[Any]) -> Column:
    """Returns the column of Python values, of which None is a missing one."""
    array = objects((0 if value is None else value for value in values), len(values))
    missing = np.fromiter((value is None for value in values), bool, len(values))
    return Column(array, ~missing if missing.any() else None)


def column_of_sequences(rows: Sequence[Any]) -> Column:
    """Returns the column of sequences of Python values, of which None is a missing sequence."""
    counts = np.array([0 if items is None else len(items) for items in rows], np.int64)
    lists = (as_list(items) for items in rows if items is not None)
    values = objects(itertools.chain.from_iterable(lists), int(counts.sum()))
    return Column(values, column_of_values(rows).present, counts)


def column_of_arrays(column: Column, field: str) -> Column:
    """Returns the numbers of arrays, or of sequences of arrays, as the items of sequences.

    Raises:
        ValueError: An array has no numbers.
    """
    values, present, counts = column
    if values.dtype == object:
        is_sequence = counts is not None
        rows = np.arange(len(values)) if is_sequence else np.flatnonzero(present_in(column, len(values)))
        arrays = [np.ravel(value) for value in values[rows].tolist()]
        sizes = np.zeros(len(values), np.int64)
        sizes[rows] = [len(array) for array in arrays]
        if len({array.dtype for array in arrays}) > 1:
            arrays = [_numbers(array, field).astype(object) for array in arrays]
        values = np.concatenate(arrays) if arrays else np.empty(0)
        ends = offsets_of(sizes)
        lengths = sizes if counts is None else ends[offsets_of(counts)[1:]] - ends[offsets_of(counts)[:-1]]
    else:
        assert counts is not None
        lengths = counts * math.prod(values.shape[1:])
    values = values if values.dtype == object else _numbers(values.reshape(-1), field)
    return Column(values, present, lengths)


def _numbers(array: Array, field: str) -> Array:
    if array.dtype.kind not in 'biuf':
        raise ValueError(f'{field}: any and all take arrays of numbers, got {array.dtype}')
    return as_floats(array)


def as_floats(values: Array) -> Array:
    """Returns numbers with their exact values as Python has them: shorter floats as float64."""
    return values.astype(np.float64) if values.dtype.kind == 'f' else values


def present_in(column: Column, length: int) -> Bools:
    """Returns which datapoints of a block of this length have a value."""
    return np.ones(length, bool) if column.present is None else column.present


def any_item(hits: Bools, counts: Int64s) -> Bools:
    """Returns which sequences have an item in `hits`, the items of all sequences."""
    found, rows = np.zeros(len(counts), bool), np.flatnonzero(counts)
    found[rows] = np.logical_or.reduceat(hits, offsets_of(counts)[rows]) if len(rows) else False
    return found


def negative(values: Array) -> Array:
    """Returns `-values`. Integers do not overflow."""
    if values.dtype.kind in 'Of':
        return -values
    limits = np.iinfo(np.int64)
    if values.dtype.kind == 'u' and len(values) and int(values.max()) > limits.max:
        return -values.astype(object)
    values = values.astype(np.int64)
    return -values.astype(object) if len(values) and int(values.min()) == limits.min else -values


# Comparisons.


def compare(operation: Callable[[Any, Any], Any], left: Column, right: Column, length: int) -> Bools:
    """Returns the comparison of the values of each datapoint; False if one is missing."""
    present, one, two = _both(left, right), left.values, right.values
    if present is None:
        return np.broadcast_to(_compare(operation, one, two), (length,))
    rows = np.flatnonzero(present)
    if not len(rows):
        return np.zeros(length, bool)
    hits = _compare(operation, *(values if len(values) == 1 else values[rows] for values in (one, two)))
    return _mask(rows[np.broadcast_to(hits, rows.shape)], length)


def _both(left: Column, right: Column) -> Bools | None:
    """Returns which datapoints have both values; None if all have both."""
    if left.present is None or right.present is None:
        return right.present if left.present is None else left.present
    both: Bools = left.present & right.present
    return both


def _compare(operation: Callable[[Any, Any], Any], left: Array, right: Array) -> Bools:
    left, right = _comparable(left, right)
    with np.errstate(all='ignore'):  # Objects that are NaN.
        hits: Bools = operation(left, right)
    return hits


def _comparable(left: Array, right: Array) -> tuple[Array, Array]:
    """Returns arrays that NumPy compares as Python compares their values.

    NumPy converts an integer to float64 to compare it with a float; Python compares exact values.
    """
    types = left.dtype.kind + right.dtype.kind
    if 'O' in types:
        return left.astype(object), right.astype(object)
    if left.dtype.kind == right.dtype.kind or 'f' not in types:
        return left, right
    if left.dtype.kind == 'f':
        right, left = _comparable(right, left)
        return left, right
    if len(right) == 1:
        number = float(right[0])
        # A number with a fraction is below 2**52, where the conversion to float64 keeps the order.
        return _comparable(left, np.array([int(number)])) if number.is_integer() else (left, right)
    if len(left) == 1 and int(float(left[0])) == int(left[0]):
        return left.astype(np.float64), right
    if not len(left) or (int(left.max()) <= MAX_EXACT_INT and int(left.min()) >= -MAX_EXACT_INT):
        return left, right
    return left.astype(object), right.astype(object)
