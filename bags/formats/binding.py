"""Types made ready: the function for one type's values, its arguments read ahead of time.

What a function does is known by the function, not by the word it goes under. So a user may replace a
built-in, give one a second name, or put `decode_legacy_int` behind `int`, and each is bound for what it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bags.formats import arrays, scalars
from bags.formats import words as table
from bags.formats.scalars import Buffer

__all__ = ['bind_decoder', 'bind_encoder', 'fixed_dtype']

_Function = Callable[..., Any]

_ENCODERS: dict[_Function, Callable[..., Callable[[Any], Any]]] = {
    scalars.encode_int: scalars.int_encoder,
    scalars.encode_uint: scalars.uint_encoder,
    scalars.encode_float: scalars.float_encoder,
    scalars.encode_i64: lambda: scalars.int_encoder('8'),
    scalars.encode_u64: lambda: scalars.uint_encoder('8'),
    arrays.encode_array: arrays.array_encoder,
}
_DECODERS: dict[_Function, Callable[..., Callable[[Buffer], Any]]] = {
    scalars.decode_bytes: lambda: bytes,
    scalars.decode_bool: scalars.bool_decoder,
    scalars.decode_int: scalars.int_decoder,
    scalars.decode_uint: scalars.uint_decoder,
    scalars.decode_float: scalars.float_decoder,
    scalars.decode_i64: lambda: scalars.int_decoder('8'),
    scalars.decode_u64: lambda: scalars.uint_decoder('8'),
    arrays.decode_array: arrays.array_decoder,
}
_OTHER_DECODERS = [scalars.decode_legacy_int, *table.decoders.values()]


def bind_encoder(
    word: str, args: tuple[str, ...] = (), encoders: Mapping[str, _Function] = table.encoders
) -> Callable[[Any], Any]:
    """The function that turns a value of a type into a record.

    Args:
        word: The type's word.
        args: What its parentheses hold.
        encoders: The functions in use.

    Raises:
        KeyError: No function for the word.
        ValueError: A built-in type cannot have these arguments.
    """
    function = encoders[word]
    table.check_type(word, args, encoders)
    if (factory := _known(_ENCODERS, function)) is not None:
        return factory(*args)  # type: ignore[no-any-return]
    return (lambda value: function(value, *args)) if args else function


def bind_decoder(
    word: str, args: tuple[str, ...] = (), decoders: Mapping[str, _Function] = table.decoders
) -> Callable[[Buffer], Any]:
    """The function that turns a record of a type into a value.

    Built-in decoders are handed the record's buffer as it is and keep nothing of it; functions of the user
    get `bytes`; with the attribute `opens`, either is handed something to open instead.

    Args:
        word: The type's word.
        args: What its parentheses hold.
        decoders: The functions in use.

    Raises:
        KeyError: No function for the word.
        ValueError: A built-in type cannot have these arguments.
    """
    # Nanoseconds a value, from a memoryview: int(8) 51, float(4) 54, int 69, bool 73, bytes 89, utf8 128,
    # msgpack of two keys 205, array(float32,256) 439. With the arguments read at every call, int(8) takes
    # 930.
    function = decoders[word]
    table.check_type(word, args, decoders)
    if (factory := _known(_DECODERS, function)) is not None:
        return factory(*args)  # type: ignore[no-any-return]
    if getattr(function, 'opens', False) or any(function is other for other in _OTHER_DECODERS):
        return (lambda data: function(data, *args)) if args else function
    return lambda data: function(bytes(data), *args)


def fixed_dtype(
    word: str, args: tuple[str, ...] = (), decoders: Mapping[str, _Function] = table.decoders
) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """What a batch of a type's records can be viewed as, where all its values have one size.

    A view of such a dtype is not checked yet: `invalid_row` does that. An `int` without a size may still meet
    a record of another length (see `decode_int`), and so may an old folder's `int(4)`; these take the
    decoder.

    Args:
        word: The type's word.
        args: What its parentheses hold.
        decoders: The functions in use; the type is of a fixed size only if the word's function is a built-in
            one.

    Returns:
        The dtype (little-endian, unless an array's says otherwise) and the shape of one value; None if
        records differ in size, or have one that no dtype has, as `int(3)`.

    Raises:
        ValueError: A built-in type cannot have these arguments.
    """
    reader = _known(_FIXED, decoders.get(word))
    if reader is None:
        return None
    table.check_type(word, args, decoders)
    return reader(*args)  # type: ignore[no-any-return]


def _number(kind: str, size: Callable[..., int], *args: str) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    width = size(*args)
    return (np.dtype(f'<{kind}{width}'), ()) if width in (1, 2, 4, 8) else None


_FIXED: dict[_Function, Callable[..., tuple[np.dtype[Any], tuple[int, ...]] | None]] = {
    scalars.decode_bool: lambda: (np.dtype(bool), ()),
    scalars.decode_int: functools.partial(_number, 'i', scalars.int_size),
    scalars.decode_uint: functools.partial(_number, 'u', scalars.int_size),
    scalars.decode_legacy_int: functools.partial(_number, 'u', scalars.int_size),
    scalars.decode_float: functools.partial(_number, 'f', scalars.float_size),
    scalars.decode_i64: lambda: (np.dtype('<i8'), ()),
    scalars.decode_u64: lambda: (np.dtype('<u8'), ()),
    arrays.decode_array: arrays.array_type,
}


def _known(entries: Mapping[_Function, Any], function: Any) -> Any:
    return next((entry for key, entry in entries.items() if key is function), None)
