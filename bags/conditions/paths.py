"""Paths to values inside `json`, `msgpack` and `tree`, as `meta.score`: columns and errors. No I/O."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bags.conditions.columns import Column, column_of_sequences, column_of_values
from bags.dataset.format.registry import STRUCTURED_FORMATS
from bags.dataset.format.spec import Schema
from bags.indexing import offsets_of
from bags.validation import no_field

MAX_KEYS = 50
"""Maximum keys of a path."""
MAX_NAMES = 20
"""Maximum keys that an error lists."""
MAX_EXPLAINED = 100
"""Maximum values from which an error takes the keys that exist."""

MISSING = object()
TYPES: dict[type, str] = {
    type(None): 'none', bool: 'number', int: 'number', float: 'number', str: 'text', bytes: 'bytes',
    list: 'list', np.ndarray: 'list', dict: 'object',
}  # fmt: skip
"""The type of a value inside another, as conditions see it."""
ALL_TYPES = frozenset({*TYPES.values(), 'other'})
PHRASES = {
    'number': 'a number',
    'text': 'a text',
    'list': 'a list',
    'object': 'an object',
    'other': 'of another type',
}


class Path(NamedTuple):
    """A value inside the values of a field.

    Attributes:
        field: The field.
        keys: The keys of the objects on the way to the value, or to the list if `item_keys` is given.
        item_keys: The keys from an item of the list to the value; None for the value of a datapoint.
    """

    field: str
    keys: tuple[str, ...] = ()
    item_keys: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        return '.'.join((self.field, *self.keys, *(self.item_keys or ())))


def find_path(name: str, schema: Schema) -> Path | None:
    """Returns the path that a dotted name is, by the longest field with values inside; None if it is none.

    Raises:
        ValueError: The path has too many keys.
    """
    field, keys = name, list[str]()
    while '.' in field:
        field, _, key = field.rpartition('.')
        keys.append(key)
        if field in schema and schema[field].format in STRUCTURED_FORMATS:
            if len(keys) > MAX_KEYS:
                raise ValueError(f'expected a path of at most {MAX_KEYS} keys, got {len(keys)}: {name:.80}')
            return Path(field, tuple(reversed(keys)))
    return None


def no_value(name: object, schema: Schema) -> str:
    """Returns the message for a name that is no field, and no path."""
    field = str(name)
    while '.' in field:
        field = field.rpartition('.')[0]
        if field in schema:
            inside = f'{field} is {schema[field].text}, and only json, msgpack and tree have values inside'
            return f'no field {name!r}: {inside}'
    return no_field(name, schema)


def common_list(paths: Iterable[Path]) -> int:
    """Returns the number of keys up to the list whose items several paths of a field share."""
    keys = [path.keys for path in paths]
    shared = min(map(len, keys))
    while len({each[:shared] for each in keys}) > 1:
        shared -= 1
    return shared


# Values.


def _step(node: Any, keys: Sequence[str], at: int) -> tuple[Any, int]:
    """Returns the value of the next key of an object, and the position behind it. The longest key wins."""
    if isinstance(node, dict):
        for stop in range(len(keys), at, -1):
            key = keys[at] if stop == at + 1 else '.'.join(keys[at:stop])
            if key in node:
                return node[key], stop
        if keys[at].isdecimal() and len(keys[at]) < MAX_NAMES and int(keys[at]) in node:  # Of msgpack.
            return node[int(keys[at])], at + 1
    return MISSING, at


def value_at(value: Any, keys: Sequence[str]) -> Any:
    """Returns the value at the end of a path, or `MISSING`."""
    at = 0
    while at < len(keys) and value is not MISSING:
        value, at = _step(value, keys, at)
    return value


def items_of(value: Any) -> list[Any] | None:
    """Returns the items of a list or an array of any depth, datetimes as texts; None for other values."""
    if isinstance(value, np.ndarray):
        return (value.astype(str) if value.dtype.kind == 'M' else value).ravel().tolist()
    return value if isinstance(value, list) else None


def items_at(value: Any, keys: Sequence[str]) -> tuple[list[Any] | None, bool]:
    """Returns the items of the lists on the way and at the end of a path, and whether there is a list.

    The items of nested lists are joined. An object of a list that lacks a key has `MISSING`. Without a list,
    the value is the only item. The items are None if the path does not exist.
    """
    found: list[Any] = []
    stack, is_list = [(value, 0)], False
    while stack:
        node, at = stack.pop()
        items = items_of(node)
        if items is not None:
            stack.extend((item, at) for item in reversed(items))
            is_list = True
        elif at < len(keys):
            node, at = _step(node, keys, at)
            if node is not MISSING:
                stack.append((node, at))
            elif is_list:
                found.append(MISSING)
            else:
                return None, False
        else:
            found.append(node)
    return found, is_list


def type_of(value: Any) -> str:
    """Returns the type of a value inside another, as conditions see it."""
    return TYPES.get(type(value), 'other')


def of_type(column: Column, type: str) -> Column:
    """Returns a column in which values of another type are missing."""
    hits = np.fromiter((type_of(value) == type for value in column.values), bool, len(column.values))
    present = hits if column.present is None else hits & column.present
    return column._replace(values=np.where(present, column.values, 0), present=present)


# Columns.


def path_column(path: Path, column: Column) -> tuple[Column, set[str]]:
    """Returns the column of a path, and the types of its values.

    The types are those of `TYPES`; 'missing' for a value that has no such path; and for a path to items,
    'empty' for a list without items, 'lacking' for an item without the value, and 'single' for a value that
    is not a list.
    """
    values = _values_of(column)
    types: set[str] = set()
    if path.item_keys is None:
        found = [None if value is None else value_at(value, path.keys) for value in values]
        is_there = [value is not None for value in values]
        types.update(
            'missing' if value is MISSING else type_of(value)
            for value, is_present in zip(found, is_there, strict=True)
            if is_present
        )
        return column_of_values([None if value is MISSING else value for value in found]), types
    rows: list[list[Any] | None] = []
    for value in values:
        items, is_list = (None, False) if value is None else items_at(value, path.keys)
        if items is not None:
            inner = [value_at(item, path.item_keys) for item in items]
            if is_list:
                types.update('lacking' if item is MISSING else type_of(item) for item in inner)
            if not items:
                types.add('empty')
            items = [None if item is MISSING else item for item in inner]
            if not is_list:
                types.add('none' if items[0] is None else 'single')
        elif value is not None:
            types.add('missing')
        rows.append(items)
    return column_of_sequences(rows), types


def _values_of(column: Column) -> list[Any]:
    """Returns the value of each datapoint, a list for a sequence; None for a missing one."""
    values: list[Any] = column.values.tolist()
    if column.counts is not None:
        ends = offsets_of(column.counts).tolist()
        values = [values[start:stop] for start, stop in itertools.pairwise(ends)]
    if column.present is not None:
        pairs = zip(values, column.present.tolist(), strict=True)
        values = [value if is_present else None for value, is_present in pairs]
    return values


# Errors.


def check_types(types: set[str], expected: Iterable[str]) -> bool:
    """Returns whether a condition can be meant: a value has an expected type, or all are missing or None."""
    expected = {*expected}
    found = types - {'missing', 'lacking', 'empty'}
    if not found:
        is_unknown = not types or ('empty' in types and 'lacking' not in types)
        return is_unknown or 'missing' in expected
    found -= {'none'}
    return not found or bool(found & expected)


def wrong_path(path: Path, types: set[str], expected: Iterable[str], values: Sequence[Any]) -> str:
    """Returns the message for a path of which no datapoint has a value of an expected type.

    Args:
        path: The path.
        types: The types of its values, as of `path_column`.
        expected: The types that the condition takes.
        values: Some values of the field.
    """
    name = path.name
    found = types - {'missing', 'lacking', 'none', 'empty'}
    if found:
        kinds = ' or '.join(PHRASES.get(type, type) for type in sorted(found - {'single'})) or 'no list'
        if path.item_keys is None and found == {'list'}:
            return f'{name} is a list: write any({name} …), all({name} …) or … in {name}'
        if 'single' in found:
            return f'{name} is no list: any and all take lists'
        wanted = ' or '.join(PHRASES[type] for type in PHRASES if type in {*expected} - {'other'})
        return f'{name} is {kinds} in all datapoints that have it: expected {wanted}'
    keys = (*path.keys, *(path.item_keys or ()))
    deepest, nodes = 0, list[Any]()
    for value in values:
        stack = [(value, 0)]
        while stack:
            node, at = stack.pop()
            items = items_of(node)
            if items is not None and path.item_keys is not None:
                stack.extend((item, at) for item in items[:MAX_EXPLAINED])
                continue
            after, stop = _step(node, keys, at) if at < len(keys) else (MISSING, at)
            if after is not MISSING:
                stack.append((after, stop))
            elif at >= deepest:
                nodes = [*nodes, node] if at == deepest else [node]
                deepest = at
    where = '.'.join((path.field, *keys[:deepest]))
    optional = f'{name} is none is true for all'
    if any(isinstance(node, dict) for node in nodes):
        names = dict.fromkeys(str(key) for node in nodes if isinstance(node, dict) for key in node)
        listed = ', '.join(f'{key:.40}' for key in [*names][:MAX_NAMES]) or 'no keys'
        more = ', …' if len(names) > MAX_NAMES else ''
        return f'no datapoint has {name}: {where} has {listed}{more} ({optional})'
    if any(items_of(node) is not None for node in nodes):
        return f'no datapoint has {name}: {where} is a list: any({name} …) and all({name} …) test its items'
    kinds = ' or '.join(sorted({PHRASES.get(type_of(node), type_of(node)) for node in nodes}))
    return f'no datapoint has {name}: {where} is {kinds}, without values inside ({optional})'


def add_paths(block: dict[str, Column], paths: Mapping[str, Path]) -> dict[str, set[str]]:
    """Adds the columns of paths to the columns of their fields, and returns the types of their values."""
    types: dict[str, set[str]] = {}
    for key, path in paths.items():
        block[key], types[key] = path_column(path, block[path.field])
    return types
