"""Specs and schemas: the fields of a dataset and their types, as text and parsed. No I/O.

type = format [ "(" arg ("," arg)* ")" ] [ "[]" ] [ "?" ]
"""

from __future__ import annotations

import difflib
import functools
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bags.errors import SpecError
from bags.storage.base import A_LFS_POINTER, is_lfs_pointer
from bags.validation import nearest_name

TYPE = re.compile(
    r'(?P<format>[A-Za-z0-9_+.-]+)'
    r'(\((?P<args>(?:[^()\[\]]|\[\w*\])*)\))?'  # Arguments may have brackets, as in datetime64[us].
    r'(?P<items>\[\])?(?P<optional>\?)?'
)
NAME = re.compile(r'[A-Za-z_][A-Za-z0-9_.-]*')
SHOWN_FIELDS = 12
"""Maximum number of fields in a `repr`."""
MAX_NAME_LENGTH = 200
"""File systems accept names of 255 bytes, including the prefixes and suffixes of temporary files."""
DEVICES = {'con', 'prn', 'aux', 'nul', *(f'{port}{digit}' for port in ('com', 'lpt') for digit in range(10))}
OTHER_NAMES = {
    **{f'{format}{8 * size}': f'{format}({size})' for format in ('int', 'uint') for size in (1, 2, 4, 8)},
    **dict.fromkeys(('str', 'string', 'text', 'utf-8', 'unicode'), 'utf8'),
    **dict.fromkeys(('dict', 'list', 'object', 'any'), 'msgpack'),
    **dict.fromkeys(('ndarray', 'numpy', 'tensor'), 'array'),
    'float16': 'array(float16)', 'float32': 'float(4)', 'float64': 'float(8)', 'double': 'float(8)',
    'binary': 'bytes', 'boolean': 'bool', 'mp3': 'audio', 'mov': 'video', 'pickle': 'msgpack',
    **dict.fromkeys(('datetime', 'datetime64', 'timestamp'), 'array(datetime64[us])'),
    **dict.fromkeys(('timedelta', 'timedelta64', 'duration'), 'array(timedelta64[us])'),
    'date': 'array(datetime64[D])', **dict.fromkeys(('category', 'categorical', 'classlabel'), 'int'),
}  # fmt: skip
"""Names of the built-in types in Python, NumPy and other libraries."""


class FieldType(NamedTuple):
    """A parsed type: `jpeg(95)[]?` has the format jpeg and the args ('95',), and is an optional sequence."""

    text: str
    format: str
    args: tuple[str, ...]
    sequence: bool
    optional: bool


Schema = dict[str, FieldType]
"""The parsed type of each field, sorted by field as in a refs record, or in the author's order."""


@functools.lru_cache
def parse_type(text: str) -> FieldType:
    """Parses a type.

    Raises:
        TypeError: The type is not a str.
        ValueError: The text does not follow the grammar.
    """
    match = TYPE.fullmatch(text)
    args = tuple(map(str.strip, match['args'].split(','))) if match and match['args'] is not None else ()
    if match is None or not all(args):
        raise ValueError(f'expected a type like format, format(arg,arg), format[] or format?, got {text!r}')
    return FieldType(text, match['format'], args, bool(match['items']), bool(match['optional']))


def likely_type(field_type: FieldType, formats: Collection[str]) -> str:
    """Returns the likely replacement of an unknown type among formats, ` (perhaps utf8)`, or nothing."""
    format, rest = field_type.format, field_type.text[len(field_type.format) :]
    nearest = OTHER_NAMES.get(format.lower())
    if nearest is not None and field_type.args and format.lower()[-1].isdigit():
        nearest, rest = f'array({format},{",".join(field_type.args)})', rest[rest.index(')') + 1 :]
    if nearest is None or nearest.partition('(')[0] not in formats:
        nearest = next(iter(difflib.get_close_matches(format, formats, 1)), None)
    return f' (perhaps {nearest}{rest})' if nearest is not None else ''


def _likely_text(given: object) -> str:
    """Returns the likely type for an invalid one: ` (perhaps int[])` for `list[int]`; or nothing."""
    text = given.__name__ if isinstance(given, type) else str(given)
    name, bracket, inner = text.removesuffix(']').partition('[')
    if isinstance(given, Mapping):
        return ' (fields are not nested: use names such as obs.image, or msgpack for a dict)'
    if bracket and name.lower() in ('list', 'tuple', 'sequence', 'optional'):
        inner = inner.partition(',')[0].strip()
        return f' (perhaps {OTHER_NAMES.get(inner, inner)}{"?" if name.lower() == "optional" else "[]"})'
    if isinstance(given, list) and len(given) == 1:
        item = given[0].__name__ if isinstance(given[0], type) else given[0]
        return f' (perhaps {OTHER_NAMES.get(str(item), item)}[])'
    if re.fullmatch(r'(datetime|timedelta)64\[\w+\]', text):
        return f' (perhaps array({text}))'
    if text.count('(') > text.count(')'):
        return f' (perhaps {text})'[:-1] + '))'
    return f' (perhaps {OTHER_NAMES.get(text, text)!r})' if isinstance(given, type) else ''


def parse_spec(spec: object, where: object = None) -> Schema:
    """Returns the schema of a spec, sorted; `where` is the file of the spec, for error messages.

    Raises:
        SpecError: The spec is not a mapping of names to types, or a name is not a single component of a path.
            `check_names` has more rules, for writing.
    """
    if not isinstance(spec, Mapping):
        raise SpecError(None, 'a mapping of field names to types', spec, where)
    for name in spec:
        if not isinstance(name, str) or name in ('', '.', '..', 'refs') or set(name) & set('/\\\0'):
            expected = 'a name that is a single component of a path, and not refs'
            raise SpecError(str(name), expected, name, where)
    schema: Schema = {}
    for name in sorted(spec):
        try:
            schema[name] = parse_type(spec[name])
        except (TypeError, ValueError):
            expected = 'a type like format, format(arg,arg), format[] or format?'
            raise SpecError(name, expected + _likely_text(spec[name]), spec[name], where) from None
    return schema


def check_names(schema: Schema) -> None:
    """Checks that all file systems support the field names of a schema, before it is written.

    Raises:
        SpecError: The schema is empty, a name is invalid on some file systems, or two names differ only in
            case.
    """
    if not schema:
        raise SpecError(None, 'at least one field', {})
    seen: dict[str, str] = {}
    for name in schema:
        if not NAME.fullmatch(name) or name.endswith('.'):
            raise SpecError(
                name, 'a letter or _, then letters, digits and any of _ . -, and no dot at the end', name
            )
        if len(name) > MAX_NAME_LENGTH:
            raise SpecError(name, f'a name of at most {MAX_NAME_LENGTH} characters, for its files', name)
        folded = name.casefold()
        if is_reserved(name):
            raise SpecError(name, 'a name other than refs, limits.… and the devices of Windows', name)
        if folded in seen:
            raise SpecError(name, f'a name that differs from {seen[folded]!r} in more than case', name)
        seen[folded] = name


def is_reserved(name: str) -> bool:
    """Returns whether a name belongs to another file of a dataset, or to a Windows device."""
    folded = name.casefold()
    return folded == 'refs' or folded.startswith('limits.') or folded.split('.')[0] in DEVICES


def unite(
    schemas: Iterable[tuple[object, Schema]],
    before: str,
    advise: Callable[[Schema, Schema], str] | None = None,
) -> Schema:
    """Merges schemas, each given with its name in error messages.

    Raises:
        SpecError: The schemas differ in more than optional fields. `before` names the earlier schemas, and
            `advise`, a function of both schemas, says how to make them fit. Default: `advice`.
    """
    united: Schema = {}
    for number, (where, other) in enumerate(schemas):
        both = union(united, other) if number else other
        if both is None:
            differing = differing_fields(united, other)
            mine, theirs = (
                {name: text for name, text in type_texts(schema).items() if name in differing}
                for schema in (united, other)
            )
            fits = (advise or advice)(united, other)
            expected = f'the spec of {before}, {mine}, except for optional fields ({fits})'
            raise SpecError(None, expected, theirs, where)
        united = both
    return united


def union(first: Schema, other: Schema) -> Schema | None:
    """Merges two schemas that differ only in optional fields; returns None if they differ otherwise."""
    if first == other:
        return first
    return None if differing_fields(first, other) else dict(sorted({**first, **other}.items()))


def differing_fields(first: Schema, other: Schema) -> list[str]:
    """Returns the fields whose types differ, and required fields that only one schema has."""
    found = []
    for name, field_type in {**first, **other}.items():
        types = first.get(name), other.get(name)
        if types != (field_type, field_type) and not (field_type.optional and None in types):
            found.append(name)
    return found


def as_optional(field_type: FieldType) -> FieldType:
    """Returns a type whose values may be missing."""
    return field_type if field_type.optional else parse_type(f'{field_type.text}?')


def with_optional(schemas: Sequence[Schema]) -> list[Schema]:
    """Returns schemas in which fields are optional if another schema lacks them or has them as optional."""
    optional = {
        name
        for schema in schemas
        for name, field_type in schema.items()
        if field_type.optional or not all(name in other for other in schemas)
    }
    return [
        {name: as_optional(each) if name in optional else each for name, each in schema.items()}
        for schema in schemas
    ]


def advice(first: Schema, other: Schema) -> str:
    """Returns how to make another schema fit a first one, for an error."""
    renamed = renames(first, other)
    found = [f'rename({renamed}) of this one'] if renamed else []
    lacking = [name for name in first if name not in other and not first[name].optional]
    more = [name for name in other if name not in first and not other[name].optional]
    drops = [
        ([name for name in more if name not in renamed], 'this one'),
        ([name for name in lacking if name not in renamed.values()], 'the others'),
        ([name for name in first if name in other and first[name] != other[name]], 'all'),
    ]
    found += [f'drop(fields={names}) of {which}' for names, which in drops if names]
    if drops[0][0] or drops[1][0]:
        found[-1] += ' unless they are optional, as int?'
    return f'to fit: {", ".join(found)}'


def renames(first: Schema, other: Schema) -> dict[str, str]:
    """Maps names of fields of another schema to the fields of the first schema that they may stand for."""
    lacking = [name for name in first if name not in other and not first[name].optional]
    found: dict[str, str] = {}
    for name, field_type in other.items():
        if name not in first and not field_type.optional:
            fits = [old for old in lacking if first[old] == field_type and old not in found.values()]
            found |= {name: fits[0]} if fits else {}
    return found


def reordered(schema: Schema, orders: Iterable[Schema]) -> Schema:
    """Returns a schema in the order in which its fields first occur in other schemas; other fields come last.

    If all schemas are in alphabetical order, so is the result.
    """
    given = list(map(list, orders))
    if all(names == sorted(names) for names in given):
        return {name: schema[name] for name in sorted(schema)}
    names = dict.fromkeys([*itertools.chain(*given), *sorted(schema)])
    return {name: schema[name] for name in names if name in schema}


def type_texts(schema: Schema) -> dict[str, str]:
    """Returns the spec of a schema: the text of each type."""
    return {name: field_type.text for name, field_type in schema.items()}


def some_fields(schema: Schema) -> str:
    """Returns the names of the first fields, and the total number if there are more."""
    names = ', '.join(itertools.islice(schema, SHOWN_FIELDS))
    return names if len(schema) <= SHOWN_FIELDS else f'{names}, … ({len(schema)} fields)'


def count_text(count: int) -> str:
    """Returns a number of datapoints as text, for `repr`: 1 datapoint, 2 datapoints."""
    return f'{count} datapoint' if count == 1 else f'{count} datapoints'


def not_in_spec(name: object, schema: Schema) -> str:
    """Returns the error text for a field of a datapoint that is not in its dataset."""
    similar = nearest_name(name, schema)
    perhaps = '' if similar is None else f' (perhaps {similar!r})'
    return f'is not in the spec{perhaps}, which has {", ".join(map(repr, schema))}'


def dump_spec(schema: Schema) -> bytes:
    """Returns the content of spec.json."""
    return json.dumps(type_texts(schema)).encode()


def load_spec(data: bytes, where: object) -> Schema:
    """Parses the content of spec.json.

    Raises:
        SpecError: The content is not JSON, or not a spec.
    """

    def to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise SpecError(None, 'each field once', sorted(name for name, _ in pairs), where)
        return found

    try:
        return parse_spec(json.loads(data, object_pairs_hook=to_dict), where)
    except SpecError:
        raise
    except (ValueError, RecursionError) as exc:
        if is_lfs_pointer(data):
            raise SpecError(None, f'JSON, not {A_LFS_POINTER}', data[:40], where) from None
        raise SpecError(None, f'JSON ({exc})', data[:40], where) from exc
