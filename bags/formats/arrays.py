"""Arrays: raw bytes of a fixed dtype and shape (`array(float32,3,4)`), or, as in Granular, any (`array`).

One length of a shape may vary (`array(float32,?,4)`). It is derived from the size of the record.

Elements are bools, integers, floats, complex numbers, datetimes, timedeltas, and fixed-size `S` and `U`
strings; with the package ml_dtypes also `bfloat16` and its `float8_*`. Object dtypes, which need pickle, and
structured dtypes, which a dtype string cannot describe, are rejected when reading and writing.
"""

from __future__ import annotations

import functools
import importlib
import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import numpy as np

from bags.errors import MissingDependencyError
from bags.formats.scalars import Buffer, parse_int, time_hint

Array = np.ndarray[Any, np.dtype[Any]]

# Names and codes of unstructured types, without commas or parentheses. 'a' is deprecated.
_DTYPE = re.compile(r'(?![<>=|]?a\d*$)[<>=|]?([A-Za-z_]\w*|\?)(\[\w*\])?', re.ASCII)
_DTYPE_KINDS = 'biufcmMSU'
_SMALL_FLOAT = re.compile(r'bfloat16|float8_\w+', re.ASCII)

_MAX_HEADER_BYTES = 1024
"""Maximum bytes before the elements of an `array` record: a dtype string, and 64 dimensions of 9 bytes."""


def element_dtype(text: str) -> np.dtype[Any]:
    """Parses the NumPy name of a dtype: `float32`, `<f4`, `>u2`, `bool`, `datetime64[ns]`, `U10`.

    The dtype is little-endian, unless `text` specifies another byte order.

    Raises:
        ValueError: The text is not a dtype, or the dtype is rejected.
        MissingDependencyError: The dtype needs ml_dtypes, which is not installed.
    """
    try:
        if not _DTYPE.fullmatch(text):
            raise TypeError
        small = _SMALL_FLOAT.fullmatch(text)
        dtype = np.dtype(getattr(importlib.import_module('ml_dtypes'), text) if small else text)
    except ImportError as exc:
        raise MissingDependencyError('ml_dtypes') from exc
    except (TypeError, ValueError, OverflowError, SyntaxError, AttributeError):
        raise ValueError(f'expected a NumPy dtype, got {text!r}') from None
    _check_dtype(dtype)
    return dtype if text[0] in '<>' else dtype.newbyteorder('<')


def is_small_float(dtype: np.dtype[Any]) -> bool:
    """Returns whether a dtype is `bfloat16` or a `float8_*` of ml_dtypes. Their kind is V or f."""
    return _SMALL_FLOAT.fullmatch(dtype.name) is not None


def _check_dtype(dtype: np.dtype[Any]) -> None:
    if is_small_float(dtype):
        return
    if dtype.kind not in _DTYPE_KINDS or dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(
            f'expected a dtype of bools, numbers, times or fixed-size strings, got {dtype!s} '
            '(objects would need pickle; view structured and extension dtypes as plain ones)'
        )


@functools.lru_cache(maxsize=256)  # Reads of parts of arrays parse it for each batch: 60 us each time.
def array_type(*args: str) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Parses the arguments of `array(dtype,*shape)`.

    Returns:
        The dtype and shape of all values, with -1 for a length that varies (`?`); None for `array`, which
        stores dtype and shape in each record.
    """
    if not args:
        return None
    dtype = element_dtype(args[0])
    shape = tuple(-1 if length == '?' else parse_int(length, 0, 2**62, 'a length') for length in args[1:])
    if -1 in shape and (shape.count(-1) > 1 or 0 in shape):
        # The varying length is the size of the record divided by the product of the other lengths.
        raise ValueError(f'expected one ? at most, and no 0 beside it, got shape {_shape_text(shape)}')
    if len(shape) > 64 or math.prod(max(length, 1) for length in shape) * dtype.itemsize >= 2**62:
        raise ValueError(f'expected an array that NumPy can hold, got shape {shape}')
    return dtype, shape


def fixed_array_type(*args: str) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """As `array_type`, but also returns None if a length varies."""
    fixed = array_type(*args)
    return None if fixed is None or -1 in fixed[1] else fixed


def type_text(dtype: np.dtype[Any], shape: Sequence[int] = ()) -> str:
    """Returns the type for values of a dtype and shape, such as `float(4)`, or `array(uint8,64,?)` for -1."""
    format = {'b': 'bool', 'i': 'int', 'u': 'uint', 'f': 'float'}.get(dtype.kind)
    if format and not shape and dtype.itemsize <= 8 and not is_small_float(dtype):
        return format if format == 'bool' else f'{format}({dtype.itemsize})'
    return array_text(dtype, shape)


def array_text(dtype: np.dtype[Any], shape: Sequence[int]) -> str:
    """Returns the type `array(dtype,*shape)`."""
    text = dtype.str[1:] if dtype.kind in 'SU' else dtype.newbyteorder('=').name
    return f'array({",".join([text, *map(str, shape)])})'.replace('-1', '?')


def _shape_text(shape: tuple[int, ...]) -> str:
    return str(shape).replace('-1', '?')


def array_encoder(*args: str) -> Callable[[Any], bytes]:
    """Returns the encoder of `array` or `array(dtype,*shape)`; see `encode_array`."""
    fixed = array_type(*args)
    if fixed is None:
        return _encode_any
    dtype, shape = fixed

    def encode(value: Any) -> bytes:
        is_exact = type(value) is np.ndarray and value.dtype == dtype
        array = value if is_exact else _convert(value, dtype)
        if array.shape != shape and (
            len(array.shape) != len(shape)
            or any(expected not in (got, -1) for got, expected in zip(array.shape, shape, strict=True))
        ):
            raise ValueError(f'expected shape {_shape_text(shape)}, got {array.shape}')
        return array.tobytes()

    return encode


def array_decoder(*args: str) -> Callable[[Buffer], Array]:
    """Returns the decoder of `array` or `array(dtype,*shape)`; see `decode_array`."""
    fixed = array_type(*args)
    if fixed is None:
        return _decode_any
    dtype, shape = fixed
    size = dtype.itemsize * abs(math.prod(shape))
    if -1 in shape:
        return functools.partial(_decode_varying, args, dtype, shape, size)
    checked = dtype.kind in 'bU'
    ndarray = np.ndarray

    def decode(data: Buffer) -> Array:
        if len(data) != size:
            raise size_error(args, len(data))
        array = ndarray(shape, dtype, data).copy()
        if checked:
            check_elements(array)
        return array

    return decode


def size_error(args: Sequence[str], size: int) -> ValueError:
    """Returns the error for a record of `size` bytes, given the arguments of `array(dtype,*shape)`."""
    fixed = array_type(*args)
    assert fixed is not None
    dtype, shape = fixed
    multiple = 'a multiple of ' if -1 in shape else ''
    bytes_of_shape = dtype.itemsize * abs(math.prod(shape))
    expected = f'{multiple}{bytes_of_shape} bytes for {dtype} of shape {_shape_text(shape)}'
    return ValueError(f'expected {expected}, got {size}')


def _decode_varying(
    args: Sequence[str], dtype: np.dtype[Any], shape: tuple[int, ...], size: int, data: Buffer
) -> Array:
    if len(data) % size:
        raise size_error(args, len(data))
    lengths = tuple(len(data) // size if length == -1 else length for length in shape)
    array = np.ndarray(lengths, dtype, data).copy()
    check_elements(array)
    return array


def encode_array(value: Any, *args: str) -> bytes:
    """Encodes an array as the bytes of its elements in C order, or, without `args`, as msgpack.

    The msgpack value is `[dtype, shape, bytes]`.

    Args:
        value: An array with exactly the dtype (in any byte order and memory layout) and shape. Without
            `args`, any value that `np.asarray` accepts. Lists and Python numbers are converted to the dtype
            if only the precision of floats is lost.
        *args: Dtype and shape of all values, such as `'float32', '3', '4'`, with `'?'` for one length that
            varies; empty for any dtype and shape.

    Raises:
        TypeError: The array has another dtype.
        ValueError: The array has another shape, or its dtype is rejected (see the module).
    """
    return array_encoder(*args)(value)


def decode_array(data: Buffer, *args: str) -> Array:
    """Decodes an array that owns its memory and is writable.

    Raises:
        ValueError: The number of bytes does not match dtype and shape, or an element is invalid, such as a
            bool that is neither 0 nor 1.
    """
    return array_decoder(*args)(data)


def as_array(value: Any) -> Array:
    """Returns `np.asarray(value)`, also for PyTorch tensors with a dtype that only ml_dtypes supports.

    Raises:
        ValueError: The array has masked elements.
    """
    if np.ma.is_masked(value):
        raise ValueError('expected an array without masked elements (its filled() replaces them)')
    name = str(getattr(value, 'dtype', '')).removeprefix('torch.')
    if not hasattr(value, 'untyped_storage') or not _SMALL_FLOAT.fullmatch(name):
        return np.asarray(value)
    dtype, torch = element_dtype(name), sys.modules['torch']
    integers: Array = value.detach().view(torch.int16 if dtype.itemsize == 2 else torch.int8).numpy()
    return integers.view(dtype)


def _convert(value: Any, dtype: np.dtype[Any]) -> Array:
    array: Array = value if type(value) is np.ndarray else as_array(value)
    if array.dtype == dtype:
        return array
    same = array.dtype.newbyteorder('=') == dtype.newbyteorder('=')
    # The dtype of a NumPy text scalar has the length of its text, not of the dtype of its array.
    has_dtype = hasattr(value, 'dtype') and not isinstance(value, np.character)
    if same or (not has_dtype and (array.size == 0 or _fits(array, dtype))):
        try:
            with np.errstate(over='raise'):
                converted = array.astype(dtype)
        except FloatingPointError:
            raise ValueError(f'expected numbers that fit {dtype}, got larger ones') from None
        # Conversions to ml_dtypes never raise. Some of its types lack inf, some lack NaN.
        if is_small_float(dtype):
            stored = converted.astype('f4')
            changed = (np.isinf(stored) != np.isinf(array)) | (np.isnan(stored) != np.isnan(array))
            if changed.any():
                raise ValueError(f'expected numbers that fit {dtype}, got {array[changed][0]}')
        return converted
    expected = f'expected an array of {dtype}, got {type(value).__name__} of {array.dtype}'
    if array.dtype.kind in 'biufc' and dtype.kind in 'biufcV':
        expected += f"; np.asarray(value, '{dtype.name}') converts it"
    elif dtype.kind in 'mM' and time_hint(value):
        expected += f'; np.{dtype.name.partition("[")[0]}(value) converts it'
    raise TypeError(expected)


def _fits(array: Array, dtype: np.dtype[Any]) -> bool:
    """Returns whether an array of Python values can be converted to a dtype without loss, except rounding."""
    source, target = array.dtype.kind, dtype.kind
    if target in 'fcV':
        return source in 'iuf' or source == target
    if target in 'iu':
        limits = np.iinfo(dtype)
        return source in 'iu' and bool(array.min() >= limits.min and array.max() <= limits.max)
    return target in 'SU' and source == target and array.dtype.itemsize <= dtype.itemsize


def array_parts(value: Any) -> tuple[str, tuple[int, ...], bytes]:
    """Splits an array into three parts, as in Granular: dtype string, shape, and element bytes in C order."""
    array: Array = value if type(value) is np.ndarray else as_array(value)
    _check_dtype(array.dtype)
    name = array.dtype.name if is_small_float(array.dtype) else array.dtype.str
    return name, array.shape, array.tobytes()


def array_from_parts(dtype: object, shape: object, data: Buffer) -> Array:
    """Builds an array from the parts of `array_parts`. Raises ValueError if they are inconsistent."""
    if (
        not isinstance(dtype, str)
        or not isinstance(shape, list)
        or not isinstance(data, bytes | bytearray | memoryview)
    ):
        raise ValueError('expected an array as dtype, shape and bytes')
    element = element_dtype(dtype)
    if len(shape) > 64 or not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f'expected the shape of an array, got {shape}')
    size = math.prod(shape) * element.itemsize
    if size != len(data) or max(shape, default=0) >= 2**62:
        raise ValueError(f'expected {size} bytes for {element} of shape {tuple(shape)}, got {len(data)}')
    try:
        array = np.ndarray(shape, element, data).copy()
    except ValueError as exc:  # The shape (2**61, 2**61, 0) has no bytes, but is too large for NumPy.
        raise ValueError(f'expected an array that NumPy can hold, got shape {tuple(shape)}') from exc
    check_elements(array)
    return array


def _encode_any(value: Any) -> bytes:
    return msgpack.packb(array_parts(value))  # type: ignore[no-any-return]


def _decode_any(data: Buffer) -> Array:
    # Only the header is unpacked with msgpack, whose bytes object would be an additional copy of the elements
    # (1 MB of float32 takes 70 µs instead of 160).
    head = msgpack.Unpacker(max_buffer_size=_MAX_HEADER_BYTES)
    head.feed(data[:_MAX_HEADER_BYTES])
    try:
        if head.read_array_header() != 3:
            raise ValueError('not three parts')
        dtype, shape = head.unpack(), head.unpack()
        start = head.tell()
        width = {0xC4: 1, 0xC5: 2, 0xC6: 4}[data[start]]
    except (ValueError, TypeError, LookupError, msgpack.UnpackException) as exc:
        raise ValueError('expected an array as msgpack [dtype, shape, bytes]') from exc
    start += 1
    size = int.from_bytes(data[start : start + width], 'big')
    elements = memoryview(data)[start + width :]
    if len(elements) != size or start + width > len(data):
        raise ValueError(f'expected {size} bytes of elements, got {len(elements)}')
    return array_from_parts(dtype, shape, elements)


def invalid_row(values: Array) -> int | None:
    """Returns the first row with an element that is invalid for its dtype, in an array viewed from records.

    Two dtypes have invalid elements: the byte of a bool must be 0 or 1 (other values are undefined behaviour
    in NumPy), and the characters of a `U` string must not exceed 0x10FFFF. Other dtypes are not checked.

    Args:
        values: Array of shape (rows, ...), with any dtype that `fixed_dtype` returns.

    Returns:
        The index of the row; None if all rows are valid.
    """
    if not values.size:
        return None
    if values.dtype.kind == 'b':
        bad = values.view(np.uint8) > 1
    elif values.dtype.kind == 'U':
        code = np.dtype(np.uint32).newbyteorder(values.dtype.byteorder)
        bad = np.ascontiguousarray(values).reshape(-1).view(code).reshape(len(values), -1) > 0x10FFFF
    else:
        return None
    if not bad.any():
        return None
    return int(bad.reshape(len(values), -1).any(axis=1).argmax())


def check_elements(array: Array) -> None:
    """Raises ValueError if an element is invalid for its dtype; see `invalid_row`."""
    if array.dtype.kind in 'bU' and invalid_row(array[None]) is not None:
        valid = 'bools that are 0 or 1' if array.dtype.kind == 'b' else 'characters up to 0x10FFFF'
        raise ValueError(f'expected {valid}, got other elements')
