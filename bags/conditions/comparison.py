"""The tests of conditions: comparisons of fields and constants, and searches for words in texts."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from bags.dataset.format.registry import AUDIO_FORMATS, NUMBER_FORMATS, VIDEO_FORMATS
from bags.dataset.format.spec import FieldType, Schema
from bags.validation import no_field

MAX_SEARCHED_TEXT_BYTES = 4096
"""Maximum UTF-8 bytes of a text that is searched for words."""

SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    '==': operator.eq, '=': operator.eq, '!=': operator.ne,
    '<': operator.lt, '<=': operator.le, '>': operator.gt, '>=': operator.ge,
}  # fmt: skip
EQUALITIES = {'==', '=', '!='}
COMPARED = {*NUMBER_FORMATS, 'utf8'}
"""Types whose values can be compared."""
TIMED = {*VIDEO_FORMATS, *AUDIO_FORMATS}
"""Types whose values have a duration."""
TYPES_WITH_LENGTH = {'array', 'bytes', 'json', 'msgpack', 'tree'}
"""Types whose values have a length, besides texts and sequences."""

Datapoint = Mapping[str, Any]
Test = Callable[[Datapoint], Any]
Need = Literal['presence', 'count', 'value']
Measure = Literal['size', 'duration']
"""A function of the stored records of a value."""
ValueType = Literal['number', 'numbers', 'text', 'texts', 'word', 'none', 'counted', 'other']


class Value(NamedTuple):
    """A side of a comparison.

    Attributes:
        type: The type of the side. A `word` is a text, or a misspelled field, depending on the other side.
        get: Returns the value of a datapoint, or None if it is missing.
        literal: The text of a constant.
        field: The name of the compared field.
    """

    type: ValueType
    get: Callable[[Datapoint], Any]
    literal: str | None = None
    field: str | None = None


def constant(type: ValueType, value: Any, literal: str) -> Value:
    """Returns a value that is the same for all datapoints."""
    return Value(type, lambda _: value, literal)


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

    def field(self, name: str) -> Value:
        if name not in self.schema:
            raise ValueError(no_field(name, self.schema))
        return Value(_type_of(self.schema[name]), operator.itemgetter(name), None, name)

    def known(self, value: Value) -> Value:
        """Returns the value; raises ValueError if it is a word where a field is required."""
        if value.type == 'word':
            raise ValueError(no_field(value.literal, self.schema))
        return value

    def length(self, name: str) -> Value:
        """Returns the number of items of a field, or of characters of a text; 0 if it is missing."""
        type, is_sequence = self.field(name).type, self.schema[name].sequence
        if not is_sequence and type not in ('text', 'counted'):
            raise ValueError(f'{self._typed_name(name)}: len takes texts, bytes, sequences, arrays and trees')
        self._need(name, 'count' if is_sequence else 'value')
        return Value('number', lambda row: _length_of(row[name], name))

    def size(self, name: str) -> Value:
        """Returns the stored bytes of a field; for a sequence, the bytes of its items."""
        self.field(name)
        return self._measured(name, 'size')

    def duration(self, name: str) -> Value:
        """Returns the seconds of a video or a sound, or of a sequence whose metadata has a rate."""
        self.field(name)
        field_type, facts = self.schema[name], self.facts.get(name)
        rate: Any = facts.get('rate') if isinstance(facts, dict) else None
        if field_type.sequence and type(rate) in (int, float) and rate > 0:
            self._need(name, 'count')
            return Value('number', lambda row: None if row[name] is None else len(row[name]) / rate)
        if field_type.sequence or field_type.format not in TIMED:
            expected = 'duration takes videos, sounds, and sequences whose metadata has a rate'
            raise ValueError(f'{self._typed_name(name)}: {expected}')
        return self._measured(name, 'duration')

    def _measured(self, name: str, measure: Measure) -> Value:
        key = f'{measure}\0{name}'
        self.measures[key] = name, measure
        return Value('number', operator.itemgetter(key))

    def negated(self, value: Value) -> Value:
        if self.known(value).type != 'number':
            raise ValueError(f'expected a number after -, got {value.literal or value.field}')
        get = value.get
        return value._replace(get=lambda row: None if (number := get(row)) is None else -number, literal=None)

    def truth(self, value: Value) -> Test:
        """Tests a field alone: whether a bool or number is not 0, or a text or sequence is not empty."""
        name = value.field
        if name is None or (value.type in ('counted', 'other') and not self.schema[name].sequence):
            raise ValueError(f'expected a comparison with {value.literal or name or "a value"}')
        if not self.schema[name].sequence:
            self._need(name, 'value')
            return value.get
        self._need(name, 'count')
        return lambda row: row[name] is not None and len(row[name]) > 0

    def is_none(self, value: Value, negated: bool) -> Test:
        name = self.known(value).field
        if name is None:
            raise ValueError(f'expected a field that is none, got {value.literal or "a value"}')
        self._need(name, 'presence')
        return (lambda row: row[name] is not None) if negated else (lambda row: row[name] is None)

    def compare(self, left: Value, sign: str, right: Value) -> Test:
        left = self.known(left)
        if 'none' in (left.type, right.type) and sign in EQUALITIES:
            return self.is_none(left if right.type == 'none' else right, sign == '!=')
        left, right = self._as_type_of(right, left), self._as_type_of(left, right)
        self._check(left, sign, right, ('text', 'texts') if sign == '~' else ('number', 'text'))
        one, two = left.get, right.get
        if sign == '~':
            many = left.type == 'texts'

            def contains(row: Datapoint) -> bool:
                word = two(row)
                return word is not None and any(
                    word.lower() in text.lower() for text in _items(one(row), many)
                )

            return contains
        operation, takes_none = SIGNS[sign], sign in EQUALITIES

        def test(row: Datapoint) -> bool:
            pair = one(row), two(row)
            return bool(operation(*pair)) if takes_none or None not in pair else False

        return test

    def is_in(self, left: Value, within: Value | Sequence[Value]) -> Test:
        """Tests whether a value is among constants, in a text, or in a sequence."""
        if not isinstance(within, Value):
            items = [self._as_type_of(left, item) for item in within]
            for item in items:
                self._check(self.known(left), 'in', item, ('number', 'text'))
            first, others = left.get, [item.get for item in items]
            return lambda row: (
                (value := first(row)) is not None and any(value == other(row) for other in others)
            )
        if within.field is None or within.type not in ('text', 'texts', 'numbers'):
            got = within.literal if within.field is None else self._typed_name(within.field)
            raise ValueError(f'expected a list as (1, 2), a text or a sequence after in, got {got}')
        left = self._as_type_of(within, left)
        item_type: ValueType = 'number' if within.type == 'numbers' else 'text'
        self._check(left, 'in', within._replace(type=item_type), (item_type,))
        get, get_within = left.get, within.get

        def is_in(row: Datapoint) -> bool:
            value, values = get(row), get_within(row)
            return value is not None and values is not None and bool(value in values)

        return is_in

    def search(self, terms: Sequence[str]) -> Test:
        """Tests whether each term is in a short text or a class name, ignoring case."""
        lower_terms = [term.lower() for term in terms]
        texts: list[tuple[str, bool]] = []
        classes: list[tuple[str, bool, list[str]]] = []
        for name, field_type in self.schema.items():
            names = self.class_names(name)
            if field_type.format == 'utf8':
                texts.append((name, field_type.sequence))
            elif names and field_type.format in NUMBER_FORMATS:
                classes.append((name, field_type.sequence, [class_name.lower() for class_name in names]))
            else:
                continue
            self._need(name, 'value')
        if not texts and not classes:
            raise ValueError(f'no field has texts to search for {terms[0]}')

        def test(row: Datapoint) -> bool:
            searched = [
                text.lower() for name, many in texts for text in _items(row[name], many) if _is_short(text)
            ]
            for name, many, names in classes:
                numbers = (item for item in _items(row[name], many) if 0 <= item < len(names))
                searched.extend(names[int(number)] for number in numbers if number == int(number))
            return all(any(term in text for text in searched) for term in lower_terms)

        return test

    def class_names(self, field: str | None) -> list[str]:
        """Returns the class names in the metadata of a field, or an empty list."""
        facts = self.facts.get(field) if field is not None else None
        names = facts.get('classes') if isinstance(facts, dict) else None
        return list(map(str, names)) if isinstance(names, list) else []

    def _need(self, field: str, need: Need) -> None:
        order = ('presence', 'count', 'value').index
        self.needs[field] = max(self.needs.get(field, need), need, key=order)

    def _typed_name(self, field: str) -> str:
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
            if value.type not in types:
                what = ' and '.join(f'{type}s' for type in types if not type.endswith('s'))
                raise ValueError(f'{self._typed_name(value.field)}: {sign} compares {what}')
            self._need(value.field, 'value')
        if left.type.rstrip('s') != right.type.rstrip('s'):
            name = self._typed_name(left.field) if left.field else f'a {left.type}'
            got = right.literal if right.field is None else self._typed_name(right.field)
            raise ValueError(f'{name}: {sign} compares it with a {left.type.rstrip("s")}, got {got}')


def _type_of(field_type: FieldType) -> ValueType:
    if field_type.format in NUMBER_FORMATS:
        return 'numbers' if field_type.sequence else 'number'
    if field_type.format == 'utf8':
        return 'texts' if field_type.sequence else 'text'
    return 'counted' if field_type.format in TYPES_WITH_LENGTH and not field_type.sequence else 'other'


def _items(value: Any, is_sequence: bool) -> Sequence[Any]:
    return () if value is None else value if is_sequence else (value,)


def _is_short(text: str) -> bool:
    return 4 * len(text) <= MAX_SEARCHED_TEXT_BYTES or len(text.encode()) <= MAX_SEARCHED_TEXT_BYTES


def _length_of(value: Any, field: str) -> int:
    try:
        return 0 if value is None else len(value)
    except TypeError:
        raise ValueError(f'{field}: len takes values with items, got {value!r:.40}') from None
