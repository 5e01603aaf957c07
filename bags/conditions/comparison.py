"""Checks the comparisons of a condition against the types of the fields, and collects what they need."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from bags.conditions.column_tests import (
    EQUALITIES,
    Value,
    ValueType,
    are_true,
    comparison_test,
    constant,
    contains,
    counts_of,
    have_content,
    is_among,
    is_within,
    is_within_any,
    lengths,
    of_items,
    presence_test,
    search_test,
)
from bags.conditions.columns import Block, Column, Test, all_of, negation, negative, present_in
from bags.conditions.paths import ALL_TYPES, Path, common_list, find_path, no_value, of_type
from bags.dataset.format.registry import NUMBER_FORMATS, STRUCTURED_FORMATS, is_stream, may_have_times
from bags.dataset.format.spec import FieldType, Schema

COMPARED = {*NUMBER_FORMATS, 'utf8'}
"""Types whose values can be compared."""
TYPES_WITH_LENGTH = {'array', 'bytes'}
"""Types whose values have a length, besides texts, sequences and structured values."""

Need = Literal['presence', 'count', 'value']
Measure = Literal['size', 'duration', 'elements']
"""A function of the stored records of a value, or of its stream."""


class Comparisons:
    """Builds the tests of one condition, and collects their needs for each field.

    Args:
        schema: The type of each field.
        facts: The metadata of the fields, whose `classes` name the values of numbers.
    """

    def __init__(self, schema: Schema, facts: Mapping[str, Any]) -> None:
        self.schema, self.facts = schema, facts
        self.needs: dict[str, Need] = {}
        self.measures: dict[str, tuple[str, Measure]] = {}
        self.paths: dict[str, Path] = {}
        """The values inside fields that the test reads, by their keys in a block."""
        self.expected: dict[str, set[str]] = {}
        """The types that a path is compared as, and 'missing' if it need not exist."""
        self._items_of: set[str] | None = None
        """Within `any(…)` and `all(…)`: the sequences and arrays whose items are compared."""
        self._paths_within: dict[str, Path] = {}
        """Within `any(…)` and `all(…)`: the paths. They lead to items unless a sequence is named."""

    def field(self, name: str) -> Value:
        """Returns the value of a field, or a value inside a field."""
        path = Path(name) if name in self.schema else find_path(name, self.schema)
        if path is None:
            raise ValueError(no_value(name, self.schema))
        field_type = self.schema[path.field]
        if field_type.format in STRUCTURED_FORMATS and (
            path.keys or not field_type.sequence or self._items_of is not None
        ):
            if self._items_of is not None:
                self._paths_within[name] = path
            else:
                self._add_path(path)
            return Value('any', operator.itemgetter(name), None, name)
        type = _type_of(field_type)
        if self._items_of is not None:
            if type in ('numbers', 'texts') or self.schema[name].format == 'array':
                self._items_of.add(name)
                type = 'text' if type == 'texts' else 'number'
            elif type in ('counted', 'other'):
                raise ValueError(
                    f'{self._typed_name(name)}: any and all take sequences and arrays of numbers or texts'
                )
        return Value(type, operator.itemgetter(name), None, name)

    def _add_path(self, path: Path) -> None:
        """Adds the value of a path, of each datapoint, to what the test reads."""
        if self.schema[path.field].sequence:
            raise ValueError(
                f'{self._typed_name(path.field)}: any({path.name} …) and all({path.name} …) test its items'
            )
        if path.keys:
            self._need(path.field, 'value')
            self.paths[path.name] = path

    def of_items(self, quantifier: str, parse: Callable[[], Test]) -> Test:
        """Tests the items of the one sequence or array that a condition names.

        Args:
            quantifier: 'any' or 'all'.
            parse: Parses the condition on an item.
        """
        if self._items_of is not None:
            raise ValueError(f'expected a condition on items within any and all, got {quantifier}(')
        names: set[str] = set()
        outer, self.expected = self.expected, {}
        self._items_of, self._paths_within = names, {}
        try:
            test = parse()
        finally:
            self._items_of = None
        paths, inner, self.expected = self._paths_within, self.expected, outer
        if names:
            for name, path in paths.items():
                self._add_path(path)
                self.expected.setdefault(name, set()).update(inner.get(name, ()))
        elif paths:
            names = {path.field for path in paths.values()}
            if len(names) == 1:
                return of_items(self._add_items(paths, inner), test, is_any=quantifier == 'any')
            names = {*paths}
        if len(names) != 1:
            got = ' and '.join(sorted(names)) or 'none'
            raise ValueError(f'{quantifier} takes a condition on one sequence or array, got {got}')
        (name,) = names
        is_array = self.schema[name].format == 'array'
        return of_items({name: name}, test, is_any=quantifier == 'any', is_array=is_array)

    def _add_items(self, paths: Mapping[str, Path], expected: Mapping[str, set[str]]) -> dict[str, str]:
        """Adds paths to the items of one list. Returns the keys in a block by the names of the paths."""
        shared = common_list(paths.values())
        keys: dict[str, str] = {}
        for name, path in paths.items():
            self._need(path.field, 'value')
            keys[name] = f'items {shared}\0{name}'
            self.paths[keys[name]] = Path(path.field, path.keys[:shared], path.keys[shared:])
            self.expected.setdefault(keys[name], set()).update(expected.get(name, ()))
        return keys

    def is_nan(self, value: Value, negated: bool) -> Test:
        """Tests whether a number is NaN."""
        value = self._numbers(self.known(value))
        if value.type != 'number' or value.literal is not None:
            name = value.literal if value.field is None else self._typed_name(value.field)
            raise ValueError(f'expected a number before is nan, got {name}')
        if value.field is not None:
            self._need(value.field, 'value')
        test = comparison_test(value, '==', value)  # NaN differs from itself.
        is_nan = all_of([presence_test(value), negation(test)])
        return negation(is_nan) if negated else is_nan

    def _plain(self, name: str, function: str) -> None:
        """Raises ValueError for a function of a field within `any` and `all`."""
        if self._items_of is not None:
            raise ValueError(f'any and all compare items: {function}({name}) is expected outside of them')

    def known(self, value: Value) -> Value:
        """Returns the value; raises ValueError if it is a word where a field is required."""
        if value.type == 'word':
            raise ValueError(no_value(value.literal, self.schema))
        return value

    def _numbers(self, value: Value) -> Value:
        """Returns a value whose numbers are compared: values of `any` that are not numbers are missing."""
        if value.type != 'any':
            return value
        self._expect(value, 'number')
        get = value.get
        return value._replace(type='number', get=lambda block: of_type(get(block), 'number'))

    def _expect(self, value: Value, *types: str) -> None:
        """Notes the types that a value inside a field is compared as."""
        if value.type == 'any' and value.field is not None:
            self.expected.setdefault(value.field, set()).update(types)

    def length(self, name: str) -> Value:
        """Returns the number of items of a field, or of characters of a text; 0 if it is missing."""
        self._plain(name, 'len')
        value = self.field(name)
        if value.type == 'any':
            self._need(name, 'value')
            self._expect(value, *ALL_TYPES)
            return Value('number', lambda block: lengths(block[name], name))
        type, is_sequence = value.type, self.schema[name].sequence
        if not is_sequence and type not in ('text', 'counted'):
            raise ValueError(f'{self._typed_name(name)}: len takes texts, bytes, sequences, arrays and trees')
        self._need(name, 'count' if is_sequence else 'value')
        return Value('number', lambda block: lengths(block[name], name))

    def size(self, name: str) -> Value:
        """Returns the stored bytes of a field; for a sequence, the bytes of its items."""
        self._stored(name, 'size')
        return self._measured(name, 'size')

    def duration(self, name: str) -> Value:
        """Returns the seconds of the stream of a field."""
        self._stored(name, 'duration')
        field_type, facts = self.schema[name], self.facts.get(name)
        has_times = isinstance(facts, dict) and not facts.keys().isdisjoint(('rate', 'times'))
        if not is_stream(field_type) or not (has_times or may_have_times(field_type)):
            expected = 'duration takes videos, sounds, and sequences whose metadata has a rate or times'
            raise ValueError(f'{self._typed_name(name)}: {expected}')
        return self._measured(name, 'duration')

    def elements(self, name: str) -> Value:
        """Returns the number of elements of the stream of a field."""
        self._stored(name, 'elements')
        if not is_stream(self.schema[name]):
            expected = 'elements takes sequences, videos, sounds, and arrays whose first dimension is ?'
            raise ValueError(f'{self._typed_name(name)}: {expected}')
        return self._measured(name, 'elements')

    def _stored(self, name: str, measure: Measure) -> None:
        """Raises ValueError if a name is not the name of a field whose records can be measured."""
        self._plain(name, measure)
        if name not in self.schema:
            value = self.field(name)
            raise ValueError(f'{self._typed_name(str(value.field))}: {measure} takes a field')

    def _measured(self, name: str, measure: Measure) -> Value:
        key = f'{measure}\0{name}'
        self.measures[key] = name, measure
        return Value('number', operator.itemgetter(key))

    def negated(self, value: Value) -> Value:
        value = self._numbers(self.known(value))
        if value.type != 'number':
            raise ValueError(f'expected a number after -, got {value.literal or value.field}')
        get = value.get

        def negated(block: Block) -> Column:
            column = get(block)
            return column._replace(values=negative(column.values))

        return value._replace(get=negated, literal=None)

    def truth(self, value: Value) -> Test:
        """Tests a field alone: whether a bool or number is not 0, or a text or sequence is not empty."""
        name = value.field
        if name is not None and value.type == 'any':
            self._need(name, 'value')
            self._expect(value, *ALL_TYPES)
            get = value.get
            return lambda block: have_content(get(block), block.length)
        if name is None or (value.type in ('counted', 'other') and not self.schema[name].sequence):
            raise ValueError(f'expected a comparison with {value.literal or name or "a value"}')
        if value.type in ('number', 'text'):
            self._need(name, 'value')
            get = value.get
            return lambda block: are_true(get(block), block.length)
        self._need(name, 'count')
        return lambda block: counts_of(block[name]) > 0

    def is_none(self, value: Value, negated: bool) -> Test:
        name = self.known(value).field
        if name is None:
            raise ValueError(f'expected a field that is none, got {value.literal or "a value"}')
        if self._items_of is not None and name in self._items_of:
            raise ValueError(f'{self._typed_name(name)}: items are never none, within any and all')
        self._expect(value, *ALL_TYPES, 'missing')
        # A json value may be stored as null, even in a field that is not optional.
        is_stored = value.type == 'any' and not (name in self.schema and self.schema[name].optional)
        self._need(name, 'value' if is_stored else 'presence')
        is_present: Test = lambda block: present_in(block[name], block.length)  # noqa: E731
        return is_present if negated else negation(is_present)

    def compare(self, left: Value, sign: str, right: Value) -> Test:
        left = self.known(left)
        if 'none' in (left.type, right.type) and sign in EQUALITIES:
            return self.is_none(left if right.type == 'none' else right, sign == '!=')
        left, right = self._as_type_of(right, left), self._as_type_of(left, right)
        if sign == '~' and left.type == 'any' and right.type == 'number' and right.literal is not None:
            right = constant('text', right.literal, right.literal)
        self._check(left, sign, right, ('text', 'texts') if sign == '~' else ('number', 'text'))
        if sign == '~':
            self._expect(left, 'list')
            if left.type != 'any' and right.field is not None and right.type == 'texts':
                raise ValueError(f'{self._typed_name(right.field)}: expected a text after ~')
            return contains(left, right)
        return comparison_test(left, sign, right)

    def is_in(self, left: Value, within: Value | Sequence[Value]) -> Test:
        """Tests whether a value is among constants, in a text, or in a sequence."""
        if not isinstance(within, Value):
            items = [self._as_type_of(left, item) for item in within]
            for item in items:
                self._check(self.known(left), 'in', item, ('number', 'text'))
            return is_among(left, items)
        if within.type == 'any' and within.field is not None:
            self._check(left, 'in', within._replace(field=None), ('number', 'text'))
            self._expect(left, 'number', 'text')
            self._need(within.field, 'value')
            self._expect(within, 'list', 'text')
            return is_within_any(left, within)
        if within.field is None or within.type not in ('text', 'texts', 'numbers'):
            got = within.literal if within.field is None else self._typed_name(within.field)
            raise ValueError(f'expected a list as (1, 2), a text or a sequence after in, got {got}')
        left = self._as_type_of(within, left)
        item_type: ValueType = 'number' if within.type == 'numbers' else 'text'
        self._check(left, 'in', within._replace(type=item_type), (item_type,))
        return is_within(left, within)

    def search(self, terms: Sequence[str]) -> Test:
        """Tests whether each term is in a short text or a class name, ignoring case."""
        if self._items_of is not None:
            raise ValueError(f'any and all compare items: expected a comparison, got {terms[0]}')
        lower_terms = [term.lower() for term in terms]
        texts: list[str] = []
        classes: dict[str, list[str]] = {}
        for name, field_type in self.schema.items():
            names = self.class_names(name)
            if field_type.format == 'utf8':
                texts.append(name)
            elif names and field_type.format in NUMBER_FORMATS:
                classes[name] = [class_name.lower() for class_name in names]
            else:
                continue
            self._need(name, 'value')
        if not texts and not classes:
            raise ValueError(f'no field has texts to search for {terms[0]}')
        return lambda block: search_test(block, lower_terms, texts, classes)

    def class_names(self, field: str | None) -> list[str]:
        """Returns the class names in the metadata of a field, or an empty list."""
        facts = self.facts.get(field) if field is not None else None
        names = facts.get('classes') if isinstance(facts, dict) else None
        return list(map(str, names)) if isinstance(names, list) else []

    def _need(self, field: str, need: Need) -> None:
        if field not in self.schema:
            return  # A path, whose field is read if its columns are.
        order = ('presence', 'count', 'value').index
        self.needs[field] = max(self.needs.get(field, need), need, key=order)

    def _typed_name(self, field: str) -> str:
        path = None if field in self.schema else find_path(field, self.schema)
        if path is not None:
            return f'{field} is a value inside {path.field}'
        return f'{field} is {self.schema[field].text}'

    def _as_type_of(self, other: Value, value: Value) -> Value:
        """Converts a constant to the type of the other side: a text, a number, or the number of a class."""
        if value.literal is None or value.type == 'none':
            return value
        if other.type in ('number', 'numbers') and value.type != 'number' and other.field is not None:
            names = self.class_names(other.field)
            if value.literal in names:
                return constant('number', names.index(value.literal), value.literal)
            class_text = f' or one of {", ".join(names[:20])}' if names else ''
            raise ValueError(
                f'{self._typed_name(other.field)}: expected a number{class_text}, got {value.literal}'
            )
        if other.type in ('text', 'texts') or value.type == 'word':
            return constant('text', value.literal, value.literal)
        return value

    def _check(self, left: Value, sign: str, right: Value, types: Sequence[ValueType]) -> None:
        """Raises ValueError if a comparison does not support the types of its sides."""
        if left.literal is not None and right.literal is not None:
            raise ValueError(f'{left.literal} {sign} {right.literal} names no field')
        for value in (left, right):
            if value.field is None:
                continue
            other = right if value is left else left
            if value.type == 'any':
                if other.type == 'none':
                    raise ValueError(f'{self._typed_name(value.field)}: {sign} compares numbers and texts')
                if other.type == 'any':
                    self._expect(value, *(type.rstrip('s') for type in types))
                else:
                    self._expect(value, other.type.rstrip('s') if other.type != 'word' else 'text')
            elif value.type not in types:
                what = ' and '.join(f'{type}s' for type in types if not type.endswith('s'))
                raise ValueError(f'{self._typed_name(value.field)}: {sign} compares {what}')
            self._need(value.field, 'value')
        if 'any' not in (left.type, right.type) and left.type.rstrip('s') != right.type.rstrip('s'):
            name = self._typed_name(left.field) if left.field else f'a {left.type}'
            got = right.literal if right.field is None else self._typed_name(right.field)
            raise ValueError(f'{name}: {sign} compares it with a {left.type.rstrip("s")}, got {got}')


def _type_of(field_type: FieldType) -> ValueType:
    if field_type.format in NUMBER_FORMATS:
        return 'numbers' if field_type.sequence else 'number'
    if field_type.format == 'utf8':
        return 'texts' if field_type.sequence else 'text'
    return 'counted' if field_type.format in TYPES_WITH_LENGTH and not field_type.sequence else 'other'
