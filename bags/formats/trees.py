"""Structured values: `msgpack`, `json`, and `tree`, which is nested dicts and lists with arrays in them.

All three keep None, bool, int, float, str, lists and dicts; `msgpack` and `tree` keep bytes too. Tuples come
back as lists. NumPy scalars are taken and come back as Python's numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np

from bags.formats.arrays import payload, restore
from bags.formats.scalars import Buffer

__all__ = ['decode_json', 'decode_msgpack', 'decode_tree', 'encode_json', 'encode_msgpack', 'encode_tree']


def encode_msgpack(value: Any) -> bytes:
    """Encodes a value as MessagePack.

    Dict keys may be anything hashable that MessagePack knows (Granular reads only str and bytes keys).

    Raises:
        TypeError: It holds something MessagePack does not know; for arrays there is `tree`.
        ValueError: An integer beyond 64 bits, or more than 500 levels of nesting.
    """
    return msgpack.packb(value, default=_plain)  # type: ignore[no-any-return]


def decode_msgpack(data: Buffer) -> Any:
    """Decodes one MessagePack value; anything else, and bytes after it, raise ValueError."""
    return _unpack(data)


def encode_json(value: Any) -> bytes:
    """Encodes a value as JSON in UTF-8, without spaces, in the order of its keys.

    Raises:
        TypeError: It holds something JSON does not know: bytes, arrays, or a dict key that is not a str
            (Python would make a str of it, so that it came back as another key).
        ValueError: NaN or infinity, which are not JSON; a lone surrogate; a value that contains itself.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(',', ':'), default=_plain)
    except RecursionError:
        raise ValueError('expected a value of fewer levels of nesting') from None
    for node in _nodes(value):
        if isinstance(node, dict):
            for key in node:
                if not isinstance(key, str):
                    raise TypeError(f'expected dict keys of str, got {key!r} of {type(key).__name__}')
    return text.encode('utf-8')


def decode_json(data: Buffer) -> Any:
    """Decodes one JSON value in UTF-8; anything else, and text after it, raise ValueError.

    The NaN and Infinity that other writers leave in JSON are read as what they mean.
    """
    try:
        return json.loads(str(data, 'utf-8'))
    except RecursionError:
        raise ValueError('expected JSON of fewer levels of nesting') from None


def encode_tree(value: Any) -> bytes:
    """Encodes nested dicts, lists and tuples with arrays in them as MessagePack, in Granular's form.

    An array is the list `['_', dtype, shape, bytes]`. So a list or tuple of four that begins with `'_'`
    cannot be told from one, here or by Granular: it is refused, because no escape would be read back by both.

    Raises:
        TypeError: It holds something MessagePack does not know.
        ValueError: A list that looks like an array, an array whose dtype is refused (see
            `bags.formats.arrays`), an integer beyond 64 bits, or more than 500 levels of nesting.
    """
    data: bytes = msgpack.packb(value, default=_mark_array)
    for node in _nodes(value):
        if isinstance(node, list | tuple) and len(node) == 4 and isinstance(node[0], str) and node[0] == '_':
            raise ValueError(
                "expected no list of four that begins with '_': that is how a tree holds an array"
            )
    return data


def decode_tree(data: Buffer) -> Any:
    """Decodes a tree; its arrays own their memory and are writable.

    Raises:
        ValueError: Not one MessagePack value, or an array in it whose parts do not fit together.
    """
    return _unpack(data, _restore_array)


def _unpack(data: Buffer, list_hook: Callable[[list[Any]], Any] | None = None) -> Any:
    try:
        try:
            return msgpack.unpackb(data, strict_map_key=False, list_hook=list_hook)
        except TypeError:
            # A tuple as a key came back as a list, which no dict takes. Rare, so only now is each pair looked
            # at.
            return msgpack.unpackb(
                data, strict_map_key=False, list_hook=list_hook, object_pairs_hook=_with_keys
            )
    except (ValueError, TypeError, msgpack.UnpackException) as exc:
        raise ValueError(f'expected one MessagePack value: {str(exc) or type(exc).__name__}') from exc


def _with_keys(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    return {_hashable(key): value for key, value in pairs}


def _hashable(key: Any) -> Any:
    return tuple(_hashable(part) for part in key) if isinstance(key, list) else key


def _plain(value: Any) -> Any:
    """Stands in for what a packer does not know: NumPy scalars become Python's."""
    if isinstance(value, np.generic):
        item = value.item()
        if isinstance(item, bool | int | float | str | bytes):
            return item
    if isinstance(value, int):
        raise ValueError(
            f'expected integers of at most 64 bits, got one of {value.bit_length()}'
        )  # By msgpack only.
    hint = '; the type for values with arrays is tree' if isinstance(value, np.ndarray) else ''
    raise TypeError(f'expected plain values, got {type(value).__name__}{hint}')


def _mark_array(value: Any) -> Any:
    return ('_', *payload(value)) if isinstance(value, np.ndarray) else _plain(value)


def _restore_array(items: list[Any]) -> Any:
    if len(items) == 4 and type(items[0]) is str and items[0] == '_':
        return restore(*items[1:])
    return items


def _nodes(value: Any) -> Any:
    """Every container in a value that has already been packed, and so does not contain itself."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            stack.extend(node.values())
            yield node
        elif isinstance(node, list | tuple):
            stack.extend(node)
            yield node
