"""The Arrow columns of Ray's blocks. The type of a field determines the type of its column.

bool, int, uint, float               a number of the same size
utf8                                 large_string
bytes; images, video and audio       large_binary: records in stored form
array(dtype,*shape)                  a Ray tensor; a Ray tensor of variable shape if one length varies
msgpack, json, tree, array           Python objects; likewise integers of more than 8 bytes, arrays of complex
                                     numbers, times or strings, and user-defined types
X[]                                  a large_list; a sequence of arrays is a tensor, items first
X?                                   null if the value is missing; arrays are then nested lists
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from ray.data.extensions import ArrowPythonObjectArray, ArrowTensorArray, ArrowVariableShapedTensorArray

from bags.arrow.types import MEDIA_TYPES
from bags.dataset.base import Dataset
from bags.dataset.format.registry import fixed_dtype
from bags.dataset.format.spec import FieldType, Schema
from bags.dataset.reading.batch import Column, Ragged
from bags.dataset.reading.columns import read_column, read_records
from bags.formats.arrays import array_type, is_small_float
from bags.formats.scalars import int_size
from bags.indexing import Int64s


def to_table(dataset: Dataset, indices: Int64s, fields: tuple[str, ...]) -> pa.Table:
    """Reads datapoints as a block of Ray.

    Raises:
        TypeError: A value does not have the type of its field, e.g. because of `raw=True`.
    """
    schema = dataset.schema
    stored = [name for name in fields if schema[name].format in MEDIA_TYPES]
    values = [name for name in fields if schema[name].format not in MEDIA_TYPES]
    columns = {
        **dataset.read_selection(indices, dict.fromkeys(values, True), read_column),
        **dataset.read_selection(indices, dict.fromkeys(stored, True), read_records),
    }
    return pa.table({name: _to_arrow(name, schema[name], columns[name]) for name in fields})


def _to_arrow(name: str, field_type: FieldType, column: Column) -> pa.Array:
    try:
        return _convert(field_type, column)
    except (ValueError, TypeError, OverflowError) as exc:  # Arrow's and Ray's errors are ValueErrors.
        raise TypeError(
            f'field {name!r} of type {field_type.text}: its values are not those of the type ({exc!s:.200}); '
            'a dataset for Ray is opened without raw and with the built-in decoders'
        ) from exc


def _convert(field_type: FieldType, column: Column) -> pa.Array:
    element_type = _element_type(field_type)
    if element_type is None:
        return ArrowPythonObjectArray.from_objects([*column])
    element, shape = element_type
    is_frames = field_type.format in MEDIA_TYPES and any(isinstance(value, np.ndarray) for value in column)
    if is_frames or (shape and not field_type.optional and not (field_type.sequence and -1 in shape)):
        if isinstance(column, np.ndarray):
            return ArrowTensorArray.from_numpy(_native(column))
        values = [_native(value) for value in column]
        if not values:
            ndim = len(shape) + field_type.sequence
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
    return pa.array(column, pa.large_list(element) if field_type.sequence else element)


def _element_type(field_type: FieldType) -> tuple[pa.DataType, tuple[int, ...]] | None:
    """Returns the Arrow type of the elements of a field, and the shape of its arrays; None without a type."""
    if field_type.format in MEDIA_TYPES or field_type.format == 'bytes':
        return pa.large_binary(), ()
    if field_type.format == 'utf8':
        return pa.large_string(), ()
    if field_type.format in ('int', 'uint') and int_size(*field_type.args) <= 8:
        size = next(size for size in (1, 2, 4, 8) if size >= int_size(*field_type.args))
        return pa.from_numpy_dtype(np.dtype(f'{field_type.format[0]}{size}')), ()
    dtype_and_shape = (
        array_type(*field_type.args)
        if field_type.format == 'array'
        else fixed_dtype(field_type.format, field_type.args)
    )
    if (
        dtype_and_shape is None
        or dtype_and_shape[0].kind not in 'biuf'
        or dtype_and_shape[0].itemsize > 8
        or is_small_float(dtype_and_shape[0])
    ):
        return None
    return pa.from_numpy_dtype(dtype_and_shape[0].newbyteorder('=')), dtype_and_shape[1]


def _native(array: Any) -> Any:
    """Converts an array to the native byte order, which Arrow requires."""
    return array.astype(array.dtype.newbyteorder('='), copy=False)


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, list) else value.tolist()


def as_datapoint(row: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Converts a row of a block to a datapoint for a `DatasetWriter` of these types."""
    return {name: _from_row(schema.get(name), value) for name, value in row.items()}


def _from_row(field_type: FieldType | None, value: Any) -> Any:
    if field_type is None:
        return value  # The writer raises for the unknown field.
    # pandas represents a missing value as NaN.
    if field_type.optional and field_type.format != 'float' and isinstance(value, float) and value != value:  # noqa: PLR0124
        return None
    if field_type.format != 'array' or not isinstance(value, list):
        return value
    return (
        [_as_array(field_type, item) for item in value]
        if field_type.sequence
        else _as_array(field_type, value)
    )


def _as_array(field_type: FieldType, value: Any) -> Any:
    """Converts an empty nested list to an array; its shape comes from the type, as the list lacks it."""
    dtype_and_shape = array_type(*field_type.args)
    if dtype_and_shape is None or not isinstance(value, list) or np.size(value):
        return value
    dtype, shape = dtype_and_shape
    return np.zeros([0 if length == -1 else length for length in shape], dtype)
