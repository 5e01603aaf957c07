"""The tests of conditions: comparisons of fields and constants, and searches for words in texts."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.conditions.columns import (
    Block,
    Bools,
    Column,
    Test,
    all_of,
    any_item,
    any_of,
    as_floats,
    column_of_arrays,
    column_of_sequences,
    column_of_values,
    compare,
    constant_column,
    negation,
    negative,
    present_in,
)
from bags.conditions.paths import (
    ALL_TYPES,
    Path,
    common_list,
    find_path,
    items_of,
    no_value,
    of_type,
    type_of,
)
from bags.dataset.format.registry import AUDIO_FORMATS, NUMBER_FORMATS, STRUCTURED_FORMATS, VIDEO_FORMATS
from bags.dataset.format.spec import FieldType, Schema
from bags.indexing import Int64s

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
TYPES_WITH_LENGTH = {'array', 'bytes'}
"""Types whose values have a length, besides texts, sequences and structured values."""

Need = Literal['presence', 'count', 'value']
Measure = Literal['size', 'duration']
"""A function of the stored records of a value."""
ValueType = Literal['number', 'numbers', 'text', 'texts', 'word', 'none', 'counted', 'any', 'other']


class Value(NamedTuple):
    """A side of a comparison.

    Attributes:
        type: The type of the side. A `word` is a text, or a misspelled field, depending on the other side.
            Each value of `any` has its own type, and equals no value of another type.
        get: Returns the column of a block of datapoints.
        literal: The text of a constant.
        field: The name of the compared field, or of a value inside a field.
    """

    type: ValueType
    get: Callable[[Block], Column]
    literal: str | None = None
    field: str | None = None


def constant(type: ValueType, value: float | str | None, literal: str) -> Value:
    """Returns a value that is the same for all datapoints."""
    column = constant_column(value)
    return Value(type, lambda _: column, literal)


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
                return _of_items(self._add_items(paths, inner), test, is_any=quantifier == 'any')
            names = {*paths}
        if len(names) != 1:
            got = ' and '.join(sorted(names)) or 'none'
            raise ValueError(f'{quantifier} takes a condition on one sequence or array, got {got}')
        (name,) = names
        is_array = self.schema[name].format == 'array'
        return _of_items({name: name}, test, is_any=quantifier == 'any', is_array=is_array)

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
        test = _comparison(value, '==', value)  # NaN differs from itself.
        is_nan = all_of([_presence(value), negation(test)])
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
        """Returns a value whose numbers are compared: values of `any` that are no numbers are missing."""
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
            return Value('number', lambda block: _lengths(block[name], name))
        type, is_sequence = value.type, self.schema[name].sequence
        if not is_sequence and type not in ('text', 'counted'):
            raise ValueError(f'{self._typed_name(name)}: len takes texts, bytes, sequences, arrays and trees')
        self._need(name, 'count' if is_sequence else 'value')
        return Value('number', lambda block: _lengths(block[name], name))

    def size(self, name: str) -> Value:
        """Returns the stored bytes of a field; for a sequence, the bytes of its items."""
        self._stored(name, 'size')
        return self._measured(name, 'size')

    def duration(self, name: str) -> Value:
        """Returns the seconds of a video or a sound, or of a sequence whose metadata has a rate."""
        self._stored(name, 'duration')
        field_type, facts = self.schema[name], self.facts.get(name)
        rate: Any = facts.get('rate') if isinstance(facts, dict) else None
        if field_type.sequence and type(rate) in (int, float) and rate > 0:
            self._need(name, 'count')
            return Value('number', lambda block: _seconds(block[name], rate))
        if field_type.sequence or field_type.format not in TIMED:
            expected = 'duration takes videos, sounds, and sequences whose metadata has a rate'
            raise ValueError(f'{self._typed_name(name)}: {expected}')
        return self._measured(name, 'duration')

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
            return lambda block: _have_content(get(block), block.length)
        if name is None or (value.type in ('counted', 'other') and not self.schema[name].sequence):
            raise ValueError(f'expected a comparison with {value.literal or name or "a value"}')
        if value.type in ('number', 'text'):
            self._need(name, 'value')
            get = value.get
            return lambda block: _are_true(get(block), block.length)
        self._need(name, 'count')
        return lambda block: _counts(block[name]) > 0

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
            if left.type == 'any':
                return _contains_any(left, right)
            if right.field is not None and right.type == 'texts':
                raise ValueError(f'{self._typed_name(right.field)}: expected a text after ~')
            return _contains(left, right)
        return _comparison(left, sign, right)

    def is_in(self, left: Value, within: Value | Sequence[Value]) -> Test:
        """Tests whether a value is among constants, in a text, or in a sequence."""
        if not isinstance(within, Value):
            items = [self._as_type_of(left, item) for item in within]
            for item in items:
                self._check(self.known(left), 'in', item, ('number', 'text'))
            return _is_among(left, items)
        if within.type == 'any' and within.field is not None:
            self._check(left, 'in', within._replace(field=None), ('number', 'text'))
            self._expect(left, 'number', 'text')
            self._need(within.field, 'value')
            self._expect(within, 'list', 'text')
            return _is_within_any(left, within)
        if within.field is None or within.type not in ('text', 'texts', 'numbers'):
            got = within.literal if within.field is None else self._typed_name(within.field)
            raise ValueError(f'expected a list as (1, 2), a text or a sequence after in, got {got}')
        left = self._as_type_of(within, left)
        item_type: ValueType = 'number' if within.type == 'numbers' else 'text'
        self._check(left, 'in', within._replace(type=item_type), (item_type,))
        return _is_within(left, within)

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
        return lambda block: _search(block, lower_terms, texts, classes)

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


def _is_short(text: str) -> bool:
    return 4 * len(text) <= MAX_SEARCHED_TEXT_BYTES or len(text.encode()) <= MAX_SEARCHED_TEXT_BYTES


# Columns of functions.


def _counts(column: Column) -> Int64s:
    assert column.counts is not None
    return column.counts


def _lengths(column: Column, field: str) -> Column:
    """Returns the number of items of each value; 0 for a missing one."""
    if column.counts is not None:
        return Column(column.counts)
    present = present_in(column, len(column.values)).tolist()
    pairs = zip(column.values.tolist(), present, strict=True)
    lengths = [_length_of(value, field) if is_present else 0 for value, is_present in pairs]
    return Column(np.array(lengths, np.int64))


def _length_of(value: Any, field: str) -> int:
    try:
        return len(value)
    except TypeError:
        raise ValueError(f'{field}: len takes values with items, got {value!r:.40}') from None


def _seconds(column: Column, rate: float) -> Column:
    counts, positions = np.unique(_counts(column), return_inverse=True)
    return Column(np.array([count / rate for count in counts.tolist()])[positions], column.present)


# Tests of columns.


def _have_content(column: Column, length: int) -> Bools:
    """Returns which values inside fields are not 0, or a text, list or object that is not empty."""
    items = (items_of(value) for value in column.values)
    pairs = zip(column.values, items, strict=True)
    are_true = np.fromiter(
        (bool(value if items is None else items) for value, items in pairs), bool, len(column.values)
    )
    return are_true & present_in(column, length)


def _are_true(column: Column, length: int) -> Bools:
    are_true: Bools = column.values.astype(bool)
    return are_true & present_in(column, length)


def _comparison(left: Value, sign: str, right: Value) -> Test:
    """Tests two numbers or two texts. Missing values are equal to each other, and to nothing else."""
    operation, first, second = SIGNS[sign], left.get, right.get
    if 'any' in (left.type, right.type):
        return _comparison_of_any(left, sign, right)

    def test(block: Block) -> Bools:
        one, two = first(block), second(block)
        hits = compare(operation, one, two, block.length)
        if sign not in EQUALITIES or (one.present is None and two.present is None):
            return hits
        has_one, has_two = present_in(one, block.length), present_in(two, block.length)
        return hits | (has_one != has_two if sign == '!=' else ~(has_one | has_two))

    return test


def _comparison_of_any(left: Value, sign: str, right: Value) -> Test:
    """Tests values with a type each. Values of different types are not equal, and have no order."""
    equal = SIGNS['=='] if sign in EQUALITIES else SIGNS[sign]
    types = [type for type in ('number', 'text') if {left.type, right.type} <= {type, 'any'}]

    def test(block: Block) -> Bools:
        one, two, hits = left.get(block), right.get(block), np.zeros(block.length, bool)
        for type in types:
            first = of_type(one, type) if left.type == 'any' else one
            second = of_type(two, type) if right.type == 'any' else two
            hits |= compare(equal, first, second, block.length)
        if sign not in EQUALITIES:
            return hits
        hits |= ~(present_in(one, block.length) | present_in(two, block.length))
        return ~hits if sign == '!=' else hits

    return test


def _presence(value: Value) -> Test:
    """Tests whether there is a value."""
    get = value.get
    return lambda block: present_in(get(block), block.length)


def _of_items(keys: Mapping[str, str], test: Test, *, is_any: bool, is_array: bool = False) -> Test:
    """Tests whether any item or all items of a field pass. A missing field has no item, and fails.

    Args:
        keys: The keys of the columns of the items, all of the same counts, by the names of their values.
        test: The test of an item.
        is_any: Whether one item is enough.
        is_array: Whether the items are the numbers of arrays.
    """

    def test_items(block: Block) -> Bools:
        items: dict[str, Column] = {}
        for name, key in keys.items():
            column = block[key]
            if is_array:
                column = column_of_arrays(column, name)
            is_inside = name != key  # The items of a list may be None.
            items[name] = (
                column_of_values(column.values.tolist()) if is_inside else Column(as_floats(column.values))
            )
        counts = _counts(column)
        hits = test(block.per_item(items, counts))
        if is_any:
            return any_item(hits, counts)
        return present_in(column, block.length) & ~any_item(~hits, counts)

    return test_items


def _is_among(left: Value, items: Sequence[Value]) -> Test:
    """Tests whether a value equals one of several values."""
    get = left.get
    if left.type == 'any' or any(item.literal is None for item in items):
        return all_of([_presence(left), any_of([_comparison(left, '==', item) for item in items])])

    def test(block: Block) -> Bools:
        column, hits = get(block), np.zeros(block.length, bool)
        for item in items:
            hits |= compare(operator.eq, column, item.get(block), block.length)
        return hits

    return test


def _contains(left: Value, right: Value) -> Test:
    """Tests whether a text, or a text of a sequence, contains a text, ignoring case."""
    first, second = left.get, right.get

    def test(block: Block) -> Bools:
        texts, words = first(block), second(block)
        if texts.counts is None:
            return _find(words, texts, block.length, ignore_case=True)
        words, items = _per_item(words, texts.counts), Column(texts.values)
        return any_item(_find(words, items, len(items.values), ignore_case=True), texts.counts)

    return test


def _contains_any(left: Value, right: Value) -> Test:
    """Tests whether a value inside a field is a text, or a list of texts, that contains a text."""
    first, second = left.get, right.get

    def test(block: Block) -> Bools:
        column, words = first(block), second(block)
        words = of_type(words, 'text') if right.type == 'any' else words
        rows = [
            [value]
            if type_of(value) == 'text'
            else [text for text in items_of(value) or () if type_of(text) == 'text']
            for value in _present_values(column, block.length)
        ]
        texts = column_of_sequences(rows)
        counts = _counts(texts)
        found = _find(_per_item(words, counts), Column(texts.values), len(texts.values), ignore_case=True)
        return any_item(found, counts)

    return test


def _is_within_any(left: Value, within: Value) -> Test:
    """Tests whether a value inside a field is a text that contains a text, or a list that has an item."""
    first, second = left.get, within.get

    def test(block: Block) -> Bools:
        column, many = first(block), second(block)
        values = _present_values(column, block.length)
        # A number is also searched in texts.
        words = values if left.literal is None else [left.literal] * block.length
        found = np.zeros(block.length, bool)
        for row, (value, word, whole) in enumerate(
            zip(values, words, _present_values(many, block.length), strict=True)
        ):
            if type_of(whole) == 'text':
                found[row] = type_of(word) == 'text' and word in whole
            elif value is not None:
                type = type_of(value)
                found[row] = any(type_of(item) == type and item == value for item in items_of(whole) or ())
        return found

    return test


def _present_values(column: Column, length: int) -> list[Any]:
    """Returns the value of each datapoint; None for a missing one."""
    values: list[Any] = column.values.tolist()
    if len(values) == 1 and length != 1:
        values *= length
    if column.present is None:
        return values
    return [
        value if is_there else None for value, is_there in zip(values, column.present.tolist(), strict=True)
    ]


def _is_within(left: Value, within: Value) -> Test:
    """Tests whether a text contains a text, or a sequence an item."""
    first, second = left.get, within.get

    def test(block: Block) -> Bools:
        column, many = first(block), second(block)
        if many.counts is None:
            return _find(column, many, block.length)
        column, items = _per_item(column, many.counts), many.values
        values = column.values
        if items.dtype.kind == 'f':  # `number in array` converts the number to the type of the array.
            with np.errstate(over='ignore'):
                values = values.astype(np.float64).astype(items.dtype)
        hits = np.broadcast_to(values == items, items.shape)
        return any_item(hits & present_in(column, len(items)), many.counts)

    return test


def _per_item(column: Column, counts: Int64s) -> Column:
    """Returns the value of each datapoint for each item of a sequence."""
    if len(column.values) == 1 and column.present is None:
        return column
    present = None if column.present is None else np.repeat(column.present, counts)
    return Column(np.repeat(column.values, counts), present)


def _find(words: Column, texts: Column, length: int, *, ignore_case: bool = False) -> Bools:
    """Returns which texts contain a word, each its own; False if one is missing."""
    rows = np.flatnonzero(present_in(words, length) & present_in(texts, length))
    one, two = (
        itertools.repeat(values[0], len(rows)) if len(values) == 1 else values[rows].tolist()
        for values in (words.values, texts.values)
    )
    if ignore_case and isinstance(one, itertools.repeat):
        word = words.values[0].lower() if len(rows) else ''
        hits = [word in text.lower() for text in two]
    elif ignore_case:
        hits = [word.lower() in text.lower() for word, text in zip(one, two, strict=True)]
    else:
        hits = [word in text for word, text in zip(one, two, strict=True)]
    found = np.zeros(length, bool)
    found[rows] = hits
    return found


def _search(
    block: Block, terms: Sequence[str], texts: Sequence[str], classes: Mapping[str, Sequence[str]]
) -> Bools:
    """Returns which datapoints have each term, in lowercase, in a short text or in the name of a class."""
    columns = {name: _lowercase(block[name]) for name in texts}
    passed = np.ones(block.length, bool)
    for term in terms:
        found = np.zeros(block.length, bool)
        for name, names in classes.items():
            column = block[name]
            found |= _any_of(_in_classes(column.values, [term in name for name in names]), column)
        for name, lowercase in columns.items():
            hits = np.array([text is not None and term in text for text in lowercase], bool)
            found |= _any_of(hits, block[name])
        passed &= found
    return passed


def _lowercase(column: Column) -> list[str | None]:
    """Returns the texts of a column in lowercase; None for missing and long ones."""
    texts = column.values.tolist()
    if column.counts is None and column.present is not None:
        pairs = zip(texts, column.present.tolist(), strict=True)
        return [text.lower() if is_present and _is_short(text) else None for text, is_present in pairs]
    return [text.lower() if _is_short(text) else None for text in texts]


def _any_of(hits: Bools, column: Column) -> Bools:
    """Returns which datapoints have a hit, in their value or in an item."""
    if column.counts is not None:
        return any_item(hits, column.counts)
    return hits & present_in(column, len(hits))


def _in_classes(values: npt.NDArray[Any], are_hits: Sequence[bool]) -> Bools:
    """Returns which numbers are the number of a class in `are_hits`."""
    with np.errstate(invalid='ignore'):
        rows = np.flatnonzero((values >= 0) & (values < len(are_hits)))
    numbers = values[rows].astype(np.int64)
    hits = np.zeros(len(values), bool)
    hits[rows] = np.array(are_hits, bool)[numbers] & (numbers == values[rows])
    return hits
