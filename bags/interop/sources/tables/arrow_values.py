"""Conversion of Arrow columns to values of a field type."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bags.arrow.types import MEDIA_TYPES, import_pyarrow, is_list
from bags.dataset.format.registry import INTEGER_FORMATS, bind_encoder
from bags.dataset.format.spec import FieldType
from bags.formats.arrays import array_from_parts, array_type
from bags.formats.trees import check_json

if TYPE_CHECKING:
    import pyarrow as pa


def values_of(column: pa.Array, field_type: FieldType) -> list[Any]:
    """Converts a column to values of a field, or to records for json, msgpack and tree; nulls become None.

    A value that does not fit the type is replaced by an error.
    """
    import pyarrow.compute as pc

    column = _decoded(column)
    if not field_type.sequence:
        return _items(column, field_type)
    if not is_list(column.type):
        return _each(column, _refuse_item)
    lengths = pc.list_value_length(column).to_pylist()
    items = _items(_decoded(column.flatten()), field_type)
    values: list[Any] = []
    start = 0
    for length in lengths:
        part: Any = None
        if length is not None:
            part = items[start : start + length]
            start += length
            errors = [item for item in part if item is None or isinstance(item, Exception)]
            if errors:
                part = errors[0] or ValueError('expected items, got a null among them; msgpack can hold it')
        values.append(part)
    return values


def _refuse_item(value: Any) -> Any:
    raise TypeError(f'expected a list, got {value!r:.80}')


def _decoded(column: pa.Array) -> pa.Array:
    """Decodes dictionaries, run-end encoding and extension types of a column."""
    pa = import_pyarrow()
    if getattr(column.type, 'extension_name', '') == 'arrow.bool8':
        return pa.compute.not_equal(column.storage, 0)
    if isinstance(column.type, pa.BaseExtensionType):
        return _decoded(column.storage)
    if pa.types.is_dictionary(column.type):
        return _decoded(column.dictionary_decode())
    if pa.types.is_run_end_encoded(column.type):
        import pyarrow.compute as pc

        return _decoded(pc.run_end_decode(column))
    if pa.types.is_fixed_size_list(column.type):  # Nulls in lists have no items.
        return column.cast(pa.large_list(column.type.value_type))
    return column


def _each(column: pa.Array, convert: Callable[[Any], Any]) -> list[Any]:
    values: list[Any] = column.to_pylist()
    for row, value in enumerate(values):
        if value is not None:
            try:
                values[row] = convert(value)
            except (ValueError, TypeError, OverflowError, RecursionError) as exc:
                values[row] = exc
    return values


def _items(column: pa.Array, field_type: FieldType) -> list[Any]:
    """Converts a column to values of a field, or to items of a sequence."""
    pa = import_pyarrow()
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    is_text = is_text or pa.types.is_string_view(column.type)
    if field_type.format in MEDIA_TYPES:
        if is_text or pa.types.is_struct(column.type):
            return _each(column, _file)
    elif field_type.format == 'array':
        found = array_type(*field_type.args)
        if found is None:
            return _each(column, _restored)
        arrays = _arrays(column, *found, keeps_nulls=field_type.optional and not field_type.sequence)
        return column.to_pylist() if arrays is None else arrays  # type: ignore[no-any-return, unused-ignore]
    elif field_type.format == 'json':
        return _each(column, _checked_json if is_text else lambda value: bind_encoder('json')(_plain(value)))
    elif field_type.format in ('msgpack', 'tree') and not _is_binary(column.type):
        encode = bind_encoder(field_type.format)
        return _each(column, lambda value: encode(_plain(value)))
    elif field_type.format == 'utf8' and not is_text:
        return _each(column, lambda value: str(value, 'utf-8') if isinstance(value, bytes) else str(value))
    elif field_type.format in INTEGER_FORMATS and is_text:
        return _each(column, int)
    values: list[Any] = column.to_pylist()
    return values


def _is_binary(type: pa.DataType) -> bool:
    types = import_pyarrow().types
    return bool(types.is_binary(type) or types.is_large_binary(type) or types.is_binary_view(type))


def _file(value: Any) -> bytes:
    """Returns the bytes of an image, video or recording from a struct of Hugging Face: bytes and path."""
    data = value.get('bytes') if isinstance(value, dict) else None
    if isinstance(data, bytes):
        return data
    path = value.get('path') if isinstance(value, dict) else value
    if path is None:
        raise ValueError('expected bytes, got none')
    raise ValueError(
        f'expected bytes, which save_to_disk and push_to_hub store, got a reference to the file {path!r:.200}'
    )


def _checked_json(text: str) -> bytes:
    check_json(text)
    return text.encode()


def _plain(value: Any) -> Any:
    """Converts numbers and times that msgpack and JSON cannot hold to text, in nested values."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return str(value) if isinstance(value, decimal.Decimal | dt.timedelta) else value


# Arrays.


def _restored(parts: Any) -> npt.NDArray[Any]:
    return array_from_parts(parts['dtype'], parts['shape'], parts['data'])


def _arrays(
    column: pa.Array, dtype: np.dtype[Any], shape: tuple[int, ...], keeps_nulls: bool
) -> list[Any] | None:
    """Returns nested lists as arrays; None if shapes differ in more than the first length.

    Null times are None if `keeps_nulls`, else NaT.
    """
    if -1 in shape[1:]:
        return None
    import pyarrow.compute as pc

    present = column.is_valid().to_numpy(zero_copy_only=False)
    if dtype.kind in 'mM' and not shape and not keeps_nulls:
        present[:] = True
    level = column if present.all() else column.drop_null()
    count, sizes = len(level), None
    lengths = (*shape, 2) if dtype.kind == 'c' else shape
    if len(shape) > 1 and is_list(level.type) and not is_list(level.type.value_type):
        lengths = (math.prod(shape),)  # The storage of a fixed_shape_tensor.
    for axis, length in enumerate(lengths):
        if not is_list(level.type) or level.null_count:
            return None
        found = pc.list_value_length(level).to_numpy(zero_copy_only=False)
        if length == -1 and not axis:
            sizes = found
        elif (found != length).any():
            return None
        level = _decoded(level.flatten())
    flat = _elements(level, dtype)
    if flat is None:
        return None
    if sizes is None:
        arrays = iter(flat.reshape(count, *shape))
    else:
        ends = np.cumsum(sizes)[:-1] if count else np.empty(0, np.int64)
        arrays = iter(np.split(flat.reshape(-1, *shape[1:]), ends))
    return [next(arrays) if there else None for there in present.tolist()]


def _elements(column: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any] | None:
    """Converts elements of arrays to one array, shape (n,); None for nulls or values of another type."""
    pa = import_pyarrow()
    if pa.types.is_temporal(column.type):
        size = 4 if column.type.bit_width == 32 else 8
        integers = column.view(pa.int32() if size == 4 else pa.int64()).cast(pa.int64())
        filled: npt.NDArray[Any] = integers.fill_null(np.iinfo(np.int64).min).to_numpy()  # NaT.
        times: npt.NDArray[Any] = filled.view(f'{dtype.kind}8[{_unit(column.type)}]')
        return times
    if column.null_count:
        return None
    if pa.types.is_fixed_size_binary(column.type) or (_is_binary(column.type) and dtype.kind not in 'SU'):
        data = b''.join(column.to_pylist())
        return np.frombuffer(data, dtype) if len(data) == len(column) * dtype.itemsize else None
    if dtype.kind in 'SU':
        return np.array(column.to_pylist(), dtype)
    if not (pa.types.is_primitive(column.type) or pa.types.is_boolean(column.type)):
        return None
    found: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if dtype.kind == 'c':
        pairs: npt.NDArray[Any] = np.ascontiguousarray(found).view(f'c{2 * found.itemsize}')
        return pairs
    # Only float16 may have another type in Arrow; the encoder rejects other dtypes.
    return found.astype(dtype) if dtype == np.float16 and found.dtype == np.float32 else found


def _unit(type: pa.DataType) -> str:
    pa = import_pyarrow()
    return str(type.unit) if hasattr(type, 'unit') else 'D' if pa.types.is_date32(type) else 'ms'
