"""Collates the rows of any map-style dataset to batches of columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from bags.dataset.reading.selection import Fields
from bags.indexing import Int64s


class MapStyle(Protocol):
    """Rows by index; `__getitems__`, PyTorch's method for a list of indices, is optional."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class RowBatches:
    """A map-style dataset whose rows are collated to columns.

    Dicts are collated to a dict of columns, tuples to a tuple of columns, and other values to a single
    column. A column of numbers, or of arrays or tensors of one shape, is an array, any other is a list.

    Raises:
        TypeError: The object is not a map-style dataset.
    """

    def __init__(self, rows: MapStyle) -> None:
        is_map_style = hasattr(rows, '__len__') and hasattr(rows, '__getitem__')
        if not is_map_style or isinstance(rows, str | bytes | Mapping | type):
            advice = f'; bags.open({rows!r:.200}) opens a dataset' if isinstance(rows, str) else ''
            raise TypeError(
                'dataset: expected a reader, a view, or a map-style dataset with __len__ and __getitem__, '
                f'got {type(rows).__name__}{advice}'
            )
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def expression(self) -> str:
        """A short description of the rows."""
        return f'{type(self.rows).__name__} of {len(self)} rows'

    def batch(self, indices: Int64s | list[int], fields: Fields = None) -> Any:
        """Returns the columns of some rows.

        Raises:
            KeyError: A field does not exist.
            TypeError: `fields` selects items of sequences, or the rows are not dicts.
            ValueError: The dataset returns another number of rows, or the rows differ in form.
        """
        indices = list(map(int, indices))
        if hasattr(self.rows, '__getitems__'):
            result = self.rows.__getitems__(indices)
            rows = [result] if isinstance(result, Mapping) else list(result)
            if len(rows) != len(indices) or rows[0] is result:
                raise ValueError(
                    f'__getitems__ of {self.expression}: expected a list of {len(indices)} rows, '
                    f'got {result!r:.200}'
                )
        else:
            rows = [self.rows[index] for index in indices]
        if fields is not None and (
            isinstance(fields, Mapping) or not all(isinstance(row, Mapping) for row in rows)
        ):
            raise TypeError('fields: of a map-style dataset, expected names, and rows that are dicts')
        return columns_of(rows, indices, (fields,) if isinstance(fields, str) else fields)


def rows_of(batch: Any, count: int) -> list[Any]:
    """Returns the rows of a batch: dicts, tuples, or single values."""
    if isinstance(batch, dict):
        return [{name: column[row] for name, column in batch.items()} for row in range(count)]
    if isinstance(batch, tuple):
        return [tuple(column[row] for column in batch) for row in range(count)]
    return [batch[row] for row in range(count)]


def columns_of(rows: list[Any], indices: list[int], fields: Iterable[str] | None = None) -> Any:
    """Collates the rows of some datapoints, which must all have the same form.

    Raises:
        KeyError: A field does not exist.
        ValueError: The rows differ in form.
    """
    row_type = next(
        (row_type for row_type in (Mapping, tuple) if rows and isinstance(rows[0], row_type)), object
    )
    if row_type is object:
        return _column(rows)
    forms = [_form(row, row_type) for row in rows]
    for index, form in zip(indices, forms, strict=True):
        if form != forms[0]:
            raise ValueError(f'datapoint {index}: expected {forms[0]:.200} as in this batch, got {form:.200}')
    if row_type is tuple:
        return tuple(map(_column, map(list, zip(*rows, strict=True))))
    return {name: _column([row[name] for row in rows]) for name in fields or rows[0]}


def _form(row: Any, row_type: Any) -> str:
    """Describes the form of a row, which must be the same for all rows of a batch."""
    if not isinstance(row, row_type):
        return type(row).__name__
    return f'fields {", ".join(sorted(map(repr, row)))}' if row_type is Mapping else f'a tuple of {len(row)}'


def _column(values: list[Any]) -> Any:
    """Stacks numbers, or arrays of one shape; returns other values unchanged."""
    if not all(hasattr(value, '__array__') or isinstance(value, int | float | complex) for value in values):
        return values
    try:
        arrays = [np.asarray(value) for value in values]
        dtype = np.result_type(*{array.dtype for array in arrays})
    except TypeError:  # NumPy has no such dtype, or no common one.
        return values
    # If no input is a float, the floats come from promotion and would round 64-bit integers.
    rounds = dtype.kind == 'f' and all(array.dtype.kind != 'f' for array in arrays)
    if rounds or dtype.kind == 'O' or len({array.shape for array in arrays}) > 1:
        return values
    return np.stack(arrays, dtype=dtype)
