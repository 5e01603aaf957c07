"""Conversion of field types to Arrow types and back. Values are converted elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bags.dataset.base import Media
from bags.dataset.format.registry import (
    AUDIO_FORMATS,
    IMAGE_FORMATS,
    INTEGER_FORMATS,
    VIDEO_FORMATS,
    decoders,
    fixed_dtype,
)
from bags.dataset.format.spec import FieldType, type_texts
from bags.formats.arrays import array_text, array_type, is_small_float, type_text
from bags.formats.scalars import int_size
from bags.validation import import_optional

if TYPE_CHECKING:
    import pyarrow as pa

METADATA_KEY = b'bags'
"""Key in the schema metadata. Its value is JSON with the types (`spec`) and `metadata` of the dataset."""
MEDIA_TYPES = (*IMAGE_FORMATS, *VIDEO_FORMATS, *AUDIO_FORMATS)
NUMPY_NAMES_OF_FLOATS = {'halffloat': 'float16', 'float': 'float32', 'double': 'float64'}
"""NumPy's names of Arrow's float types; integers and bools have the same names in both."""
TIME_UNITS = ('s', 'ms', 'us', 'ns')

Shape = tuple[int, ...]


def import_pyarrow() -> Any:
    """Imports pyarrow; raises MissingDependencyError if it is not installed."""
    return import_optional('pyarrow', 'arrow')


def stores_location(field_type: FieldType, media: Media) -> bool:
    """Returns whether Arrow data contains the locations of a field's records instead of their bytes."""
    if media is None:
        return bool(getattr(decoders.get(field_type.format), 'lazy', False))
    return media == 'location' and field_type.format in MEDIA_TYPES


def shape_of(field_type: FieldType) -> tuple[np.dtype[Any], Shape] | None:
    """Returns the dtype and shape of values, -1 for a varying length; None without a fixed dtype."""
    return (
        array_type(*field_type.args)
        if field_type.format == 'array'
        else fixed_dtype(field_type.format, field_type.args)
    )


def element_type(dtype: np.dtype[Any]) -> pa.DataType:
    """Returns the Arrow type of the elements of an array: binary for dtypes that Arrow lacks."""
    pa = import_pyarrow()
    if dtype.kind in 'mM':
        unit, count = np.datetime_data(dtype)
        if count == 1 and unit in TIME_UNITS:
            return pa.timestamp(unit) if dtype.kind == 'M' else pa.duration(unit)
        return pa.date32() if (dtype.kind, unit, count) == ('M', 'D', 1) else pa.binary(dtype.itemsize)
    if dtype.kind in 'SU':
        return pa.binary() if dtype.kind == 'S' else pa.string()
    if dtype.kind == 'c':
        return pa.list_(pa.from_numpy_dtype(f'f{dtype.itemsize // 2}'), 2)
    if dtype.kind not in 'biuf' or is_small_float(dtype):
        return pa.binary(dtype.itemsize)
    # DuckDB lacks float16.
    return pa.float32() if dtype == np.float16 else pa.from_numpy_dtype(dtype.newbyteorder('='))


def item_type(field_type: FieldType, media: Media) -> pa.DataType:
    """Returns the Arrow type of a value of a plain field, or of an item of a sequence."""
    pa = import_pyarrow()
    if stores_location(field_type, media):
        return pa.struct({'path': pa.string(), 'offset': pa.int64(), 'length': pa.int64()})
    dtype_and_shape = shape_of(field_type)
    if dtype_and_shape is not None:
        dtype, shape = dtype_and_shape
        nested = element_type(dtype)
        for length in reversed(shape):
            nested = pa.list_(nested, length or -1)  # -1 means any size. Polars fails for size 0.
        return nested
    if field_type.format == 'array':
        return pa.struct({'dtype': pa.string(), 'shape': pa.list_(pa.int64()), 'data': pa.binary()})
    if field_type.format in INTEGER_FORMATS:
        size = int_size(*field_type.args)
        return pa.string() if size > 8 else pa.int64() if field_type.format == 'int' else pa.uint64()
    return pa.string() if field_type.format in ('utf8', 'json') else pa.binary()


def arrow_field(name: str, field_type: FieldType, media: Media) -> pa.Field:
    """Returns the field of an Arrow schema for a field of a dataset."""
    pa = import_pyarrow()
    item = item_type(field_type, media)
    if field_type.sequence:
        return pa.field(name, pa.list_(item), nullable=field_type.optional)
    return pa.field(name, item, nullable=field_type.optional or pa.types.is_temporal(item))  # NaT is null.


def arrow_schema(
    field_types: Mapping[str, FieldType], media: Media, metadata: Mapping[str, Any]
) -> pa.Schema:
    """Returns the Arrow schema of fields. Its metadata contains the field types and the dataset metadata."""
    pa = import_pyarrow()
    facts = {'spec': type_texts(dict(field_types)), 'metadata': metadata}
    return pa.schema(
        [arrow_field(name, field_type, media) for name, field_type in field_types.items()],
        {METADATA_KEY: json.dumps(facts, ensure_ascii=False).encode()},
    )


def dtype_of(type: pa.DataType) -> str | None:
    """Returns the name of the NumPy dtype of an Arrow number, bool or time; None for other types."""
    pa = import_pyarrow()
    if getattr(type, 'extension_name', '') == 'arrow.bool8':
        return 'bool'
    if pa.types.is_boolean(type) or pa.types.is_integer(type) or pa.types.is_floating(type):
        return NUMPY_NAMES_OF_FLOATS.get(str(type), str(type))
    if pa.types.is_timestamp(type):
        return f'datetime64[{type.unit}]'
    if pa.types.is_duration(type) or pa.types.is_time(type):
        return f'timedelta64[{type.unit}]'
    return f'datetime64[{"D" if type == pa.date32() else "ms"}]' if pa.types.is_date(type) else None


def type_of(type: pa.DataType) -> str:
    """Returns the field type for values of an Arrow type; `msgpack` for structs and similar types."""
    pa = import_pyarrow()
    if isinstance(type, pa.BaseExtensionType):
        if type.extension_name == 'arrow.bool8':
            return 'bool'
        if type.extension_name == 'arrow.fixed_shape_tensor':
            return _array_or_msgpack(dtype_of(type.value_type), tuple(type.shape))
        return type_of(type.storage_type)
    if pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
        return type_of(type.value_type)
    if (name := dtype_of(type)) is not None:
        return type_text(np.dtype(name))
    is_text = pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type)
    if is_text or pa.types.is_decimal(type):
        return 'utf8'
    shape: Shape = ()
    while pa.types.is_fixed_size_list(type):
        shape, type = (*shape, type.list_size), type.value_type
    if shape:
        return _array_or_msgpack(dtype_of(type), shape)
    if is_list(type):
        item = type.value_type
        # Nested lists of numbers become arrays with a varying length.
        is_nested = is_list(item) and not pa.types.is_fixed_size_list(item)
        inner = _array_or_msgpack(dtype_of(item.value_type), (-1,)) if is_nested else type_of(item)
        return 'msgpack[]' if inner.endswith(']') else f'{inner}[]'
    types = pa.types
    is_binary = types.is_binary(type) or types.is_large_binary(type) or types.is_binary_view(type)
    return 'bytes' if is_binary or types.is_fixed_size_binary(type) else 'msgpack'


def is_list(type: pa.DataType) -> bool:
    """Returns whether the values of an Arrow type are lists."""
    types = import_pyarrow().types
    return bool(
        types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type)
        or types.is_list_view(type) or types.is_large_list_view(type)
    )  # fmt: skip


def _array_or_msgpack(dtype: str | None, shape: Shape) -> str:
    return 'msgpack' if dtype is None else array_text(np.dtype(dtype), shape)
