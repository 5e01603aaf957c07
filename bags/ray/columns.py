"""Arrow columns, which make up Ray's blocks. The type of a column follows from the type of the field.

bool, int, uint, float               a number of that size
utf8                                 large_string
bytes; images, video and audio       large_binary: records in stored form
array(dtype,*shape)                  a tensor of Ray; a tensor of variable shape if one length varies
msgpack, json, tree, array           Python objects; also integers of more than 8 bytes, arrays of complex
                                     numbers, times or strings, and types that users define
X[]                                  a large_list; a sequence of arrays is a tensor, items first
X?                                   null if the value is missing; arrays are then nested lists
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from ray.data.extensions import ArrowPythonObjectArray, ArrowTensorArray, ArrowVariableShapedTensorArray

from bags.dataset.arrow_types import MEDIA
from bags.dataset.base import Dataset
from bags.dataset.batch import Column, Ragged
from bags.dataset.columns import read_column, read_stored
from bags.dataset.registry import fixed_dtype
from bags.dataset.spec import FieldType, Spec
from bags.formats.arrays import array_type, is_small_float
from bags.formats.scalars import int_size
from bags.indexing import Int64s


def to_table(dataset: Dataset, indices: Int64s, fields: tuple[str, ...]) -> pa.Table:
    """Reads datapoints as a block of Ray.

    Raises:
        TypeError: A value does not have the type of its field, e.g. because of `raw=True`.
    """
    types = dataset._types
    stored = [name for name in fields if types[name].word in MEDIA]
    values = [name for name in fields if types[name].word not in MEDIA]
    columns = {
        **dataset._read(indices, dict.fromkeys(values, True), read_column),
        **dataset._read(indices, dict.fromkeys(stored, True), read_stored),
    }
    return pa.table({name: _to_arrow(name, types[name], columns[name]) for name in fields})


def _to_arrow(name: str, kind: FieldType, column: Column) -> pa.Array:
    try:
        return _convert(kind, column)
    except (ValueError, TypeError, OverflowError) as exc:  # Arrow's and Ray's errors are ValueErrors.
        raise TypeError(
            f'field {name!r} of type {kind.text}: its values are not those of the type ({exc!s:.200}); '
            'a dataset for Ray is opened without raw and with the built-in decoders'
        ) from exc


def _convert(kind: FieldType, column: Column) -> pa.Array:
    found = _element_type(kind)
    if found is None:
        return ArrowPythonObjectArray.from_objects([*column])
    element, shape = found
    is_frames = kind.word in MEDIA and any(isinstance(value, np.ndarray) for value in column)
    if is_frames or (shape and not kind.optional and not (kind.sequence and -1 in shape)):
        if isinstance(column, np.ndarray):
            return ArrowTensorArray.from_numpy(_native(column))
        values = [_native(value) for value in column]
        if not values:
            ndim = len(shape) + kind.sequence
            return ArrowVariableShapedTensorArray.from_numpy(
                [np.zeros((0,) * ndim, element.to_pandas_dtype())]
            )[:0]
        return ArrowVariableShapedTensorArray.from_numpy(values)
    for _ in shape:
        element = pa.large_list(element)
    if shape:
        column = [None if value is None else _as_lists(value) for value in column]
    if isinstance(column, Ragged):
        mask = None if column.present is None else pa.array(~column.present)
        return pa.LargeListArray.from_arrays(
            pa.array(column.offsets), pa.array(column.values, element), mask=mask
        )
    return pa.array(column, pa.large_list(element) if kind.sequence else element)


def _element_type(kind: FieldType) -> tuple[pa.DataType, tuple[int, ...]] | None:
    """Returns the Arrow type of the elements of a field and the shape of its arrays; None if it has none."""
    if kind.word in MEDIA or kind.word == 'bytes':
        return pa.large_binary(), ()
    if kind.word == 'utf8':
        return pa.large_string(), ()
    if kind.word in ('int', 'uint') and int_size(*kind.args) <= 8:
        size = next(size for size in (1, 2, 4, 8) if size >= int_size(*kind.args))
        return pa.from_numpy_dtype(np.dtype(f'{kind.word[0]}{size}')), ()
    found = array_type(*kind.args) if kind.word == 'array' else fixed_dtype(kind.word, kind.args)
    if found is None or found[0].kind not in 'biuf' or found[0].itemsize > 8 or is_small_float(found[0]):
        return None
    return pa.from_numpy_dtype(found[0].newbyteorder('=')), found[1]


def _native(array: Any) -> Any:
    """Converts an array to the native byte order, which Arrow requires."""
    return array.astype(array.dtype.newbyteorder('='), copy=False)


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, list) else value.tolist()


def as_datapoint(row: Mapping[str, Any], types: Spec) -> dict[str, Any]:
    """Converts a row of a block to a datapoint for a `DatasetWriter` of these types."""
    return {name: _from_row(types.get(name), value) for name, value in row.items()}


def _from_row(kind: FieldType | None, value: Any) -> Any:
    if kind is None:
        return value  # The writer raises: there is no such field.
    # pandas has NaN for a missing value.
    if kind.optional and kind.word != 'float' and isinstance(value, float) and value != value:  # noqa: PLR0124
        return None
    if kind.word != 'array' or not isinstance(value, list):
        return value
    return [_as_array(kind, item) for item in value] if kind.sequence else _as_array(kind, value)


def _as_array(kind: FieldType, value: Any) -> Any:
    """Converts an empty nested list to an array of the shape of the type, which the list does not tell."""
    found = array_type(*kind.args)
    if found is None or not isinstance(value, list) or np.size(value):
        return value
    dtype, shape = found
    return np.zeros([0 if length == -1 else length for length in shape], dtype)
