"""The tests of conditions over columns: comparisons, membership, lengths, items, and words in texts."""

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
    present_in,
)
from bags.conditions.paths import items_of, of_type, type_of
from bags.indexing import Int64s

MAX_SEARCHED_TEXT_BYTES = 4096
"""Maximum UTF-8 bytes of a text that is searched for words."""
SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    '==': operator.eq, '=': operator.eq, '!=': operator.ne,
    '<': operator.lt, '<=': operator.le, '>': operator.gt, '>=': operator.ge,
}  # fmt: skip
EQUALITIES = {'==', '=', '!='}
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


# Columns of functions.


def counts_of(column: Column) -> Int64s:
    """Returns the number of items of each value of sequences."""
    assert column.counts is not None
    return column.counts


def lengths(column: Column, field: str) -> Column:
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


def have_content(column: Column, length: int) -> Bools:
    """Returns which values inside fields are not 0, or a text, list or object that is not empty."""
    items = (items_of(value) for value in column.values)
    pairs = zip(column.values, items, strict=True)
    are_true = np.fromiter(
        (bool(value if items is None else items) for value, items in pairs), bool, len(column.values)
    )
    return are_true & present_in(column, length)


def are_true(column: Column, length: int) -> Bools:
    """Returns which numbers are not 0, and which texts are not empty."""
    hits: Bools = column.values.astype(bool)
    return hits & present_in(column, length)


def comparison_test(left: Value, sign: str, right: Value) -> Test:
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


def presence_test(value: Value) -> Test:
    """Tests whether there is a value."""
    get = value.get
    return lambda block: present_in(get(block), block.length)


def of_items(keys: Mapping[str, str], test: Test, *, is_any: bool, is_array: bool = False) -> Test:
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
        counts = counts_of(column)
        hits = test(block.per_item(items, counts))
        if is_any:
            return any_item(hits, counts)
        return present_in(column, block.length) & ~any_item(~hits, counts)

    return test_items


def is_among(left: Value, items: Sequence[Value]) -> Test:
    """Tests whether a value equals one of several values."""
    get = left.get
    if left.type == 'any' or any(item.literal is None for item in items):
        return all_of([presence_test(left), any_of([comparison_test(left, '==', item) for item in items])])

    def test(block: Block) -> Bools:
        column, hits = get(block), np.zeros(block.length, bool)
        for item in items:
            hits |= compare(operator.eq, column, item.get(block), block.length)
        return hits

    return test


def contains(left: Value, right: Value) -> Test:
    """Tests whether a text, or a text of a sequence or list, contains a text, ignoring case."""
    first, second = left.get, right.get

    def test(block: Block) -> Bools:
        texts, words = first(block), second(block)
        texts = _texts_inside(texts, block.length) if left.type == 'any' else texts
        words = of_type(words, 'text') if right.type == 'any' else words
        if texts.counts is None:
            return _find(words, texts, block.length, ignore_case=True)
        words, items = _per_item(words, texts.counts), Column(texts.values)
        return any_item(_find(words, items, len(items.values), ignore_case=True), texts.counts)

    return test


def _texts_inside(column: Column, length: int) -> Column:
    """Returns the texts among values inside a field, which are texts or lists; no text for other values."""
    return column_of_sequences(
        [
            [value]
            if type_of(value) == 'text'
            else [text for text in items_of(value) or () if type_of(text) == 'text']
            for value in _present_values(column, length)
        ]
    )


def is_within_any(left: Value, within: Value) -> Test:
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


def is_within(left: Value, within: Value) -> Test:
    """Tests whether a text contains a text, or a sequence an item."""
    first, second = left.get, within.get
    type = 'number' if within.type == 'numbers' else 'text'

    def test(block: Block) -> Bools:
        column, many = first(block), second(block)
        column = of_type(column, type) if left.type == 'any' else column
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


def search_test(
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


def _is_short(text: str) -> bool:
    return 4 * len(text) <= MAX_SEARCHED_TEXT_BYTES or len(text.encode()) <= MAX_SEARCHED_TEXT_BYTES


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
