"""Structured values: `msgpack`, `json`, and `tree`, which are nested dicts and lists that may contain arrays.

All three preserve None, bool, int, float, str, lists and dicts; `msgpack` and `tree` also preserve bytes.
Tuples are decoded as lists, NumPy scalars as Python numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np

from bags.formats.arrays import array_from_parts, array_parts
from bags.formats.scalars import MAX_VALUE_SIZE, Buffer, check_value_size, time_hint

# Approximate memory of lists, dicts and their items, in bytes; and maximum memory of a value for each byte of
# its record. The memory of values of larger records is counted: for MessagePack while decoding, which takes a
# third longer.
LIST_SIZE, DICT_SIZE, ITEM_SIZE, PAIR_SIZE = 88, 184, 40, 120
MAX_GROWTH = 128
MAX_TREE_DEPTH = 500
"""Maximum number of nesting levels to write: reading more levels may overflow the Python stack."""


def encode_msgpack(value: Any) -> bytes:
    """Encodes a value as MessagePack.

    Dict keys may be any hashable values that MessagePack supports (Granular reads only str and bytes keys).

    Raises:
        TypeError: The value contains an object that MessagePack does not support. `tree` supports arrays.
        ValueError: The value contains an integer of more than 64 bits, or more than 500 levels of nesting.
    """
    return msgpack.packb(value, default=_plain)  # type: ignore[no-any-return]


def decode_msgpack(data: Buffer, *, max_size: int = MAX_VALUE_SIZE) -> Any:
    """Decodes one MessagePack value.

    Raises:
        ValueError: The data is not MessagePack, bytes follow the value, or the value takes more than about
            `max_size` bytes.
    """
    return _unpack(data, max_size)


def encode_json(value: Any) -> bytes:
    """Encodes a value as JSON in UTF-8, without spaces, with keys in their order.

    Raises:
        TypeError: The value contains an object that JSON does not support: bytes, an array, or a dict key
            that is not a str (Python would convert it, so that it would be decoded as another key).
        ValueError: The value contains NaN or infinity, which are not JSON; a lone surrogate; itself; or more
            than 500 levels of nesting.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(',', ':'), default=_plain)
    except RecursionError:
        raise ValueError(f'expected up to {MAX_TREE_DEPTH} levels of nesting, got more') from None
    _check_depth(text, value)
    for node in _nodes(value):
        if isinstance(node, dict):
            for key in node:
                if not isinstance(key, str):
                    raise TypeError(f'expected dict keys of str, got {key!r} of {type(key).__name__}')
    return text.encode('utf-8')


def decode_json(data: Buffer, *, max_size: int = MAX_VALUE_SIZE) -> Any:
    """Decodes one JSON value in UTF-8.

    NaN and Infinity are accepted, as other writers produce them.

    Raises:
        ValueError: The data is not JSON, text follows the value, or the value takes more than about
            `max_size` bytes.
    """
    text = str(data, 'utf-8')
    if len(text) * MAX_GROWTH > max_size:
        size = LIST_SIZE * text.count('[') + DICT_SIZE * text.count('{') + ITEM_SIZE * text.count(',')
        check_value_size(size + len(text), max_size, 'the values of this JSON')
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError('expected JSON with fewer levels of nesting') from None


def check_json(text: str) -> None:
    """Checks the text of a JSON value that is stored unchanged.

    Raises:
        ValueError: The text is not JSON, or has more than 500 levels of nesting.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f'expected up to {MAX_TREE_DEPTH} levels of nesting, got more') from None
    _check_depth(text, value)


def encode_tree(value: Any) -> bytes:
    """Encodes nested dicts, lists and tuples that may contain arrays as MessagePack, as Granular does.

    An array becomes the list `['_', dtype, shape, bytes]`. A list or tuple of four items that begins with
    `'_'` would be decoded as an array, here and by Granular, and is rejected: Granular cannot escape it.

    Raises:
        TypeError: The value contains an object that MessagePack does not support.
        ValueError: The value contains a list that looks like an array, an array whose dtype is rejected (see
            `bags.formats.arrays`), an integer of more than 64 bits, or more than 500 levels of nesting.
    """
    data: bytes = msgpack.packb(value, default=_mark_array)
    for node in _nodes(value):
        if isinstance(node, list | tuple) and len(node) == 4 and isinstance(node[0], str) and node[0] == '_':
            raise ValueError("expected no list of four that begins with '_': a tree stores arrays like that")
    return data


def decode_tree(data: Buffer, *, max_size: int = MAX_VALUE_SIZE) -> Any:
    """Decodes a tree. Its arrays own their memory, and are writable.

    Raises:
        ValueError: The data is not one MessagePack value, the dtype, shape and bytes of an array are
            inconsistent, or the value takes more than about `max_size` bytes.
    """
    return _unpack(data, max_size, _restore_array)


def _unpack(data: Buffer, max_size: int, list_hook: Callable[[list[Any]], Any] | None = None) -> Any:
    try:
        if len(data) * MAX_GROWTH <= max_size:
            try:
                return msgpack.unpackb(data, strict_map_key=False, list_hook=list_hook)
            except TypeError:
                pass  # A tuple that is a dict key was decoded as a list, which is not hashable.
        return _unpack_counted(data, max_size, list_hook)
    except (ValueError, TypeError, msgpack.UnpackException) as exc:
        detail = str(exc) or type(exc).__name__
        if 'max_value_size' in detail:
            raise
        if 'exceeds max_' in detail:
            raise ValueError(f'{detail}, by max_value_size={max_size}') from exc
        raise ValueError(f'expected one MessagePack value: {detail}') from exc


def _unpack_counted(data: Buffer, max_size: int, list_hook: Callable[[list[Any]], Any] | None) -> Any:
    size = 0

    def count(added: int) -> None:
        nonlocal size
        size += added
        check_value_size(size, max_size, 'the values decoded so far')

    def counted_list(items: list[Any]) -> Any:
        count(LIST_SIZE + ITEM_SIZE * len(items))
        return items if list_hook is None else list_hook(items)

    def counted_dict(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        count(DICT_SIZE + PAIR_SIZE * len(pairs))
        return {_hashable(key): value for key, value in pairs}

    count(len(data))
    limits = {'max_array_len': max_size // ITEM_SIZE, 'max_map_len': max_size // PAIR_SIZE}
    hooks = {'list_hook': counted_list, 'object_pairs_hook': counted_dict}
    # The lengths are limited, too, as a list is allocated before its hook is called.
    return msgpack.unpackb(data, strict_map_key=False, **hooks, **limits)


def _hashable(key: Any) -> Any:
    return tuple(_hashable(part) for part in key) if isinstance(key, list) else key


def _plain(value: Any) -> Any:
    """Converts NumPy scalars, which a packer does not support, to Python values."""
    # `item` would convert times whose unit `datetime` lacks to integers.
    if isinstance(value, np.generic) and value.dtype.kind not in 'mM':
        item = value.item()
        if isinstance(item, bool | int | float | str | bytes):
            return item
    if isinstance(value, int):
        # Only msgpack calls this for integers.
        raise ValueError(f'expected integers of at most 64 bits, got {value.bit_length()} bits')
    hint = '; the type for values with arrays is tree' if isinstance(value, np.ndarray) else time_hint(value)
    raise TypeError(f'expected plain values, got {type(value).__name__}{hint}')


def _mark_array(value: Any) -> Any:
    return ('_', *array_parts(value)) if isinstance(value, np.ndarray) else _plain(value)


def _restore_array(items: list[Any]) -> Any:
    if len(items) == 4 and type(items[0]) is str and items[0] == '_':
        return array_from_parts(*items[1:])
    return items


def _check_depth(text: str, value: Any) -> None:
    """Raises ValueError if a value has more than `MAX_TREE_DEPTH` levels of nesting. `text` is its JSON."""
    if text.count('[') + text.count('{') <= MAX_TREE_DEPTH:
        return
    stack = [(value, 1)]
    while stack:
        node, depth = stack.pop()
        parts = node.values() if isinstance(node, dict) else node if isinstance(node, list | tuple) else None
        if parts is None:
            continue
        if depth > MAX_TREE_DEPTH:
            raise ValueError(f'expected up to {MAX_TREE_DEPTH} levels of nesting, got more')
        stack.extend((part, depth + 1) for part in parts)


def _nodes(value: Any) -> Any:
    """Yields all containers in a value. The value was packed before, so it does not contain itself."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            stack.extend(node.values())
            yield node
        elif isinstance(node, list | tuple):
            stack.extend(node)
            yield node
