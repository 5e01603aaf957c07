"""Bytes, text, bools and numbers; and checks of type arguments, used by all formats.

| type | accepts | record |
| --- | --- | --- |
| `bytes` | bytes, bytearray, memoryview | unchanged |
| `utf8` | str without lone surrogates | strict UTF-8 |
| `bool` | bool, not the integers 0 and 1 | one byte, 0 or 1 |
| `int(size)` | objects with `__index__`, except bools | two's complement of 1 to 16 bytes, 8 by default |
| `uint(size)` | the same, at least 0 | 1 to 16 bytes, 8 by default |
| `float(size)` | int and float, except bools | IEEE 754 of 2, 4 or 8 bytes, 8 by default, rounded |

Numbers are little-endian. NumPy scalars and arrays of shape () are accepted like Python scalars. An encoder
raises TypeError for a value of another type, and ValueError for a value that does not fit its size. A decoder
raises ValueError for an invalid record.

`*_encoder` and `*_decoder` parse the arguments of a type once, and return the function for its values.
`encode_*` and `decode_*` do both in one call.
"""

from __future__ import annotations

import functools
import math
import operator
import os
import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

Buffer: TypeAlias = bytes | bytearray | memoryview


class Sliceable(Protocol):
    """Bytes, or a file whose slices are read on access."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: slice, /) -> Buffer: ...


SEARCH_BLOCK_BYTES = 1 << 20
"""Bytes of a file that are searched for a marker at a time."""
MAX_VALUE_SIZE = 1 << 30
"""Default of `max_value_size`: the maximum size of a decoded record, in bytes."""

_FLOAT_FORMATS = {2: '<e', 4: '<f', 8: '<d'}


def check_count(args: Sequence[str], count: int, form: str) -> None:
    """Raises ValueError for more than `count` arguments of a type. `form` shows how the type is written."""
    if len(args) > count:
        raise ValueError(f'expected {form}, got {len(args)} arguments: {", ".join(args)}')


def check_value_size(size: int, max_size: int, what: str) -> None:
    """Raises ValueError for a value of more than `max_size` bytes. `what` describes the value."""
    if size > max_size:
        raise ValueError(f'{what} would take {size} bytes, which exceeds max_value_size={max_size}')


def split_options(
    args: Sequence[str], **parsers: Callable[[str], Any]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Splits the arguments of a type, e.g. `video(30,rotate=False)`, into positional arguments and options.

    Args:
        args: The arguments.
        **parsers: Parser for the value of each option. An option without a value is `True`.

    Raises:
        ValueError: An option is unknown, or occurs twice.
    """
    positional, options = [], {}
    for arg in args:
        name, sign, value = (part.strip() for part in arg.partition('='))
        if not sign and name not in parsers:
            positional.append(arg)
        elif name not in parsers or name in options:
            raise ValueError(f'expected each option of {", ".join(parsers)} once, got {arg!r}')
        else:
            options[name] = parsers[name](value if sign else 'True')
    return tuple(positional), options


def parse_bool(text: str) -> bool:
    """Parses an argument of a type as `True` or `False`."""
    if text not in ('True', 'False'):
        raise ValueError(f'expected True or False, got {text!r}')
    return text == 'True'


def parse_int(text: str, low: int, high: int, what: str) -> int:
    """Parses an argument of a type as an integer in [low, high].

    Raises:
        ValueError: The text is not such an integer. The message contains `what`.
    """
    if text.isascii() and text.isdigit() and low <= int(text[:20]) <= high:
        return int(text)
    raise ValueError(f'expected {what} from {low} to {high}, got {text!r}')


def encode_bytes(value: Buffer) -> bytes:
    """Returns bytes unchanged. Copies bytearrays and memoryviews, since they may change later."""
    if type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f'expected bytes, got {type(value).__name__}')


def decode_bytes(data: Buffer) -> bytes:
    """Decodes bytes. Copies `data`, unless it is a bytes object already."""
    return bytes(data)


def encode_utf8(value: str) -> bytes:
    """Encodes a str."""
    if isinstance(value, str):
        return value.encode('utf-8')
    raise TypeError(f'expected str, got {type(value).__name__}{_hint(value, "str")}')


def decode_utf8(data: Buffer) -> str:
    """Decodes a str."""
    return str(data, 'utf-8')


def encode_bool(value: bool) -> bytes:
    """Encodes a bool. Rejects the integers 0 and 1, as they usually mean that fields were swapped."""
    value = _plain(value)
    if isinstance(value, bool):
        return b'\x01' if value else b'\x00'
    raise TypeError(f'expected bool, got {type(value).__name__}')


def decode_bool(data: Buffer) -> bool:
    """Decodes a bool."""
    try:
        return _BOOLS[bytes(data)]
    except KeyError:
        raise ValueError(f'expected one byte, 0 or 1, got {bytes(data[:8])!r}') from None


_BOOLS = {b'\x00': False, b'\x01': True}


def int_size(*args: str) -> int:
    """Returns the size of an `int` or `uint` in bytes; at most 16, as in Granular."""
    check_count(args, 1, 'int(size)')
    return parse_int(args[0], 1, 16, 'a size in bytes') if args else 8


def int_encoder(*args: str, signed: bool = True) -> Callable[[Any], bytes]:
    """Returns the encoder of `int(size)`, or, if not `signed`, of `uint(size)`."""
    size = int_size(*args)

    def encode(value: Any) -> bytes:
        if type(value) is not int:
            value = _integer(value)
        try:
            return value.to_bytes(size, 'little', signed=signed)  # type: ignore[no-any-return]
        except OverflowError:
            bits = 8 * size - signed
            low = f'-2**{bits}' if signed else '0'
            # Python refuses to print the digits of huge integers.
            got = value if abs(value) < 1 << 200 else f'an integer of {value.bit_length()} bits'
            raise ValueError(f'expected an integer from {low} to 2**{bits} - 1, got {got}') from None

    return encode


def int_decoder(*args: str, signed: bool = True) -> Callable[[Buffer], int]:
    """Returns the decoder of `int(size)`, or, if not `signed`, of `uint(size)`.

    Without a size, an `int` with a length other than 8 is unsigned, as Granular writes it.
    """
    size, is_granular = int_size(*args), signed and not args

    def decode(data: Buffer) -> int:
        if len(data) == size:
            return int.from_bytes(data, 'little', signed=signed)
        if is_granular:
            return int.from_bytes(data, 'little')
        raise ValueError(f'expected {size} bytes, got {len(data)}')

    return decode


uint_encoder = functools.partial(int_encoder, signed=False)
uint_decoder = functools.partial(int_decoder, signed=False)


def encode_int(value: int, *args: str) -> bytes:
    """Encodes a signed integer."""
    return int_encoder(*args)(value)


def decode_int(data: Buffer, *args: str) -> int:
    """Decodes a signed integer."""
    return int_decoder(*args)(data)


def encode_uint(value: int, *args: str) -> bytes:
    """Encodes an unsigned integer."""
    return uint_encoder(*args)(value)


def decode_uint(data: Buffer, *args: str) -> int:
    """Decodes an unsigned integer."""
    return uint_decoder(*args)(data)


def decode_legacy_int(data: Buffer, *_args: str) -> int:
    """Decodes an `int` of a folder written by Bags 0.x: unsigned, of any length, whatever its size argument.

    Datasets use it in place of `decode_int`, also in batches.
    """
    return int.from_bytes(data, 'little')


def decode_i64(data: Buffer) -> int:
    """Decodes `i64`, Granular's name for `int(8)`."""
    return decode_int(data, '8')


def float_size(*args: str) -> int:
    """Returns the size of a `float` in bytes."""
    check_count(args, 1, 'float(size)')
    if args and args[0] not in ('2', '4', '8'):
        raise ValueError(f'expected a size in bytes, 2, 4 or 8, got {args[0]!r}')
    return int(args[0]) if args else 8


def float_encoder(*args: str) -> Callable[[Any], bytes]:
    """Returns the encoder of `float(size)`, which keeps NaN and infinities."""
    size = float_size(*args)
    pack = struct.Struct(_FLOAT_FORMATS[size]).pack

    def encode(value: Any) -> bytes:
        if type(value) is not float:
            value = _number(value)
        try:
            return pack(value)
        except (OverflowError, struct.error):
            expected = f'a number that fits a float of {size} bytes'
            raise ValueError(f'expected {expected}, got a larger one') from None

    return encode


def float_decoder(*args: str) -> Callable[[Buffer], float]:
    """Returns the decoder of `float(size)`."""
    size = float_size(*args)
    unpack = struct.Struct(_FLOAT_FORMATS[size]).unpack

    def decode(data: Buffer) -> float:
        try:
            return unpack(data)[0]  # type: ignore[no-any-return]
        except struct.error:
            raise ValueError(f'expected {size} bytes, got {len(data)}') from None

    return decode


def encode_float(value: float, *args: str) -> bytes:
    """Encodes a number, rounded to the nearest representable number."""
    return float_encoder(*args)(value)


def decode_float(data: Buffer, *args: str) -> float:
    """Decodes a number."""
    return float_decoder(*args)(data)


def _plain(value: Any) -> Any:
    """Returns the Python value of a NumPy scalar or an array of shape (). Returns other values unchanged.

    Times are unchanged: `item` would convert units that `datetime` lacks, e.g. nanoseconds, to integers.
    """
    if getattr(value, 'shape', None) != () or not hasattr(value, 'item') or value is np.ma.masked:
        return value
    return value if getattr(value.dtype, 'kind', None) in ('m', 'M') else value.item()


def _integer(value: Any) -> int:
    value = _plain(value)
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f'expected an integer, got {type(value).__name__}{_hint(value, "int")}')


def _number(value: Any) -> float:
    value = _plain(value)
    if isinstance(value, int | float | np.floating) and not isinstance(value, bool):
        return value  # type: ignore[return-value]
    raise TypeError(f'expected a number, got {type(value).__name__}{_hint(value, "float")}')


def time_hint(value: Any) -> str:
    """Returns advice on types for values of the module `datetime`, for errors; '' for other values."""
    import datetime as dt

    if isinstance(value, dt.timedelta):
        return '; float holds value.total_seconds(), array(timedelta64[us]) np.timedelta64(value)'
    if isinstance(value, dt.datetime):
        types = 'utf8 holds value.isoformat(), float value.timestamp(), array(datetime64[us])'
        return f'; {types} np.datetime64(value)'
    if isinstance(value, dt.date):
        return '; utf8 holds value.isoformat(), array(datetime64[D]) np.datetime64(value)'
    return ''


def _hint(value: Any, function: str) -> str:
    if isinstance(value, float) and math.isnan(value):
        return ' (nan); a missing value is None, in a field whose type ends in ?'
    is_path = isinstance(value, os.PathLike) or type(value).__module__ == 'uuid'
    has_number = hasattr(type(value), '__float__') and not isinstance(value, bool | np.ndarray)
    is_fraction = function == 'int' and isinstance(value, float) and not value.is_integer()
    is_number = (isinstance(value, str) or has_number) and not is_fraction
    if is_path if function == 'str' else is_number:
        return f'; {function}(value) converts it'
    return time_hint(value)
