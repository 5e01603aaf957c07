"""Conditions on datapoints as text: the grammar of `Dataset.filter`, of `--where` and of the viewer's filter.

    any   = all ("or" all)*                  value  = field | function "(" field ")" | number | text
    all   = not ("and" not)*                        | "none" | "true" | "false" | "-" value
    not   = "not" not | "(" any ")" | test   text   = "quoted" | 'quoted' | word
    test  = value (sign value)+              field  = word | `quoted`, also with keys: meta.score
          | value "is" ["not"] what          what   = "none" | "nan"
          | ("any" | "all") "(" any ")"      list   = "(" value ("," value)* ")", also with []
          | value ["not"] "in" (field | list)
          | field                            sign   = == = != < <= > >= ~
          | text+                            each text is in a text of the datapoint

The functions are len, elements, size and duration. `any(state > 3)` tests the items of a sequence or of an
array.

`viewer/src/bags/condition.ts` is the same in TypeScript; tests/conditions/conditions.json has cases for both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from bags.conditions.column_tests import SIGNS, Value, constant
from bags.conditions.columns import Test, all_of, any_of, negation
from bags.conditions.comparison import Comparisons, Measure, Need
from bags.conditions.paths import Path, find_path
from bags.dataset.format.spec import Schema

MAX_DIGITS = 4000
"""Maximum number of digits of a number. Python refuses integers of more than 4,300."""
MAX_CONDITION_DEPTH = 50
EXAMPLE = 'length > 3 and label == owl'
SUBSCRIPT_ADVICE = ': meta.score is a value inside meta, and any(meta.tags == red) tests the items of a list'
CONDITION_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text> "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' )
    | `(?P<field> [^`]+ )`
    | (?P<sign> == | != | <= | >= | [=<>~()\[\],] | -(?![\d.]) )
    | (?P<word> (?: [^\s()\[\],=!<>~"'`] | !(?!=) ) (?: [^\s()\[\],=!<>~] | !(?!=) )* )
    )""",
    re.VERBOSE | re.DOTALL,
)
QUOTES = '"\'`'
CONDITION_NUMBER = re.compile(r'[+-]?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?', re.ASCII)
KEYWORDS = {'and', 'or', 'not', 'in', 'is', 'none', 'true', 'false'}
CONSTANTS = {'true': True, 'false': False}
FUNCTIONS = {
    'len': Comparisons.length,
    'elements': Comparisons.elements,
    'size': Comparisons.size,
    'duration': Comparisons.duration,
}


class Condition(NamedTuple):
    """A condition, parsed.

    Attributes:
        needs: What the test reads of each field: 'value'; 'count', the number of items of a sequence; or
            'presence', which datapoints have a value.
        measures: Other keys that the test reads, each with a field and a function of the field.
        paths: Other keys that the test reads, each with a path inside a field.
        expected: The types that each path is compared as, and 'missing' if it need not exist.
        test: Returns which datapoints pass, given a block with these columns.
    """

    needs: dict[str, Need]
    measures: dict[str, tuple[str, Measure]]
    paths: dict[str, Path]
    expected: dict[str, set[str]]
    test: Test


def parse_condition(text: str, schema: Schema, facts: Mapping[str, Any] | None = None) -> Condition:
    """Parses a condition such as `length > 3 and (label == owl or len(words) == 0)`.

    Args:
        text: The condition.
        schema: The type of each field.
        facts: The metadata of the fields, whose `classes` name the values of numbers.

    Raises:
        ValueError: The condition violates the grammar, names no field, or compares values of different types.
    """
    parser = _Parser(text, Comparisons(schema, facts or {}))
    test = parser.parse()
    fields = parser.fields
    for name in fields.expected:
        if name in schema and fields.needs.get(name) == 'value':  # The types of its values are checked.
            fields.paths[name] = Path(name)
    return Condition(fields.needs, fields.measures, fields.paths, fields.expected, test)


class _Token(NamedTuple):
    type: str
    text: str


class _Parser:
    def __init__(self, text: str, fields: Comparisons) -> None:
        self.fields = fields
        self.tokens = _tokens(text)
        self.at = self.depth = 0

    def parse(self) -> Test:
        test = self.any()
        if self.at < len(self.tokens):
            advice = SUBSCRIPT_ADVICE if self.sees('[') else ''
            raise _error(f'expected and, or, or the end, not {self.peek().text}{advice}')
        return test

    def peek(self, ahead: int = 0) -> _Token:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else _Token('end', 'the end')

    def next(self) -> _Token:
        self.at += 1
        return self.peek(-1)

    def sees(self, *names: str, ahead: int = 0) -> bool:
        """Returns whether the next token is one of these signs and keywords."""
        symbol, text = self.peek(ahead)
        return symbol in ('sign', 'word') and text.lower() in names

    def takes(self, *names: str) -> bool:
        is_next = self.sees(*names)
        self.at += is_next
        return is_next

    def expect(self, *names: str) -> None:
        if not self.takes(*names):
            raise _error(f'expected {names[0]}, not {self.peek().text}')

    def any(self) -> Test:
        self.depth += 1
        if self.depth > MAX_CONDITION_DEPTH:
            raise _error(f'more than {MAX_CONDITION_DEPTH} levels of brackets')
        parts = [self.all()]
        while self.takes('or'):
            parts.append(self.all())
        self.depth -= 1
        return any_of(parts)

    def all(self) -> Test:
        parts = [self.negation()]
        while self.takes('and'):
            parts.append(self.negation())
        return all_of(parts)

    def negation(self) -> Test:
        negated = False
        while self.takes('not'):
            negated = not negated
        if self.takes('('):
            test = self.any()
            self.expect(')')
        elif self.sees('any', 'all') and self.sees('(', ahead=1):
            quantifier = self.next().text.lower()
            self.expect('(')
            test = self.fields.of_items(quantifier, self.any)
            self.expect(')')
        else:
            test = self.test()
        return negation(test) if negated else test

    def test(self) -> Test:
        count = 0
        while self.is_term(count):
            count += 1
        compared = self.sees(*SIGNS, '~', 'in', 'is', ahead=count)
        compared = compared or (self.sees('not', ahead=count) and self.sees('in', ahead=count + 1))
        if count > 1 and compared:
            raise _error(f'expected and, or, or quotes between {self.peek().text} and {self.peek(1).text}')
        if count > 1 or (count == 1 and not compared and not self.is_value()):
            return self.fields.search([self.next().text for _ in range(count)])
        left = self.value()
        tests = []
        while True:
            if self.takes('is'):
                negated = self.takes('not')
                if self.takes('nan'):
                    tests.append(self.fields.is_nan(left, negated))
                    continue
                self.expect('none')
                tests.append(self.fields.is_none(left, negated))
            elif self.sees('in') or (self.sees('not') and self.sees('in', ahead=1)):
                negated = self.takes('not')
                self.expect('in')
                tests.append(self.membership(left, negated))
            elif self.sees(*SIGNS, '~'):
                sign = self.next().text
                right = self.value()
                tests.append(self.fields.compare(left, sign, right))
                left = right
            else:
                return all_of(tests) if tests else self.fields.truth(left)

    def is_term(self, ahead: int) -> bool:
        """Returns whether the next token is a search term or a field."""
        symbol, text = self.peek(ahead)
        return symbol == 'text' or (symbol == 'word' and text.lower() not in KEYWORDS)

    def is_value(self) -> bool:
        """Returns whether the next token is a field or a function."""
        symbol, text = self.peek()
        return symbol == 'word' and (self.is_field(text) or self.sees('(', ahead=1))

    def is_field(self, text: str) -> bool:
        """Returns whether a word names a field or a value inside a field, and is not a number."""
        if text in self.fields.schema:
            return True
        return not CONDITION_NUMBER.fullmatch(text) and find_path(text, self.fields.schema) is not None

    def membership(self, left: Value, negated: bool) -> Test:
        if self.takes('(', '['):
            items = [self.value()]
            while self.takes(','):
                if not self.sees(')', ']'):
                    items.append(self.value())
            self.expect(')', ']')
            test = self.fields.is_in(left, items)
        else:
            test = self.fields.is_in(left, self.value())
        return negation(test) if negated else test

    def value(self) -> Value:
        signs = 0
        while self.peek() == ('sign', '-'):
            self.next()
            signs += 1
        value = self.unsigned()
        for _ in range(2 - signs % 2 if signs else 0):  # Two signs check the type, as more would.
            value = self.fields.negated(value)
        return value

    def unsigned(self) -> Value:
        symbol, text = self.next()
        if symbol == 'text':
            return constant('text', text, text)
        if symbol == 'field':
            return self.fields.field(text)
        lower = text.lower()
        if symbol != 'word' or (lower in KEYWORDS and lower != 'none' and lower not in CONSTANTS):
            raise _error(f'expected a value, not {text}')
        if self.takes('('):
            if lower not in FUNCTIONS:
                raise _error(f'there is no function {text}, but len, elements, size and duration')
            symbol, name = self.next()
            if symbol not in ('word', 'field'):
                raise _error(f'expected a field after {lower}(, not {name}')
            self.expect(')')
            return FUNCTIONS[lower](self.fields, name)
        if lower == 'none':
            return constant('none', None, text)
        if lower in CONSTANTS:
            return constant('number', CONSTANTS[lower], text)
        if self.is_field(text):
            return self.fields.field(text)
        if CONDITION_NUMBER.fullmatch(text):
            digits = text.replace('_', '')
            if len(digits) > MAX_DIGITS:
                raise _error(f'expected a number of at most {MAX_DIGITS} digits, not one of {len(digits)}')
            return constant('number', int(digits) if digits.lstrip('+-').isdigit() else float(digits), text)
        return constant('word', text, text)


def _tokens(text: str) -> list[_Token]:
    tokens, end, text = [], 0, text.rstrip()
    while end < len(text):
        match = CONDITION_TOKEN.match(text, end)
        if match is None:
            rest = text[end:].strip()
            raise _error(f'{"no end of" if rest[0] in QUOTES else "unexpected"} {rest}')
        symbol = str(match.lastgroup)
        tokens.append(_Token(symbol, _unquoted(match[symbol]) if symbol == 'text' else match[symbol]))
        end = match.end()
    return tokens


def _unquoted(text: str) -> str:
    special = {'n': '\n', 't': '\t'}
    return re.sub(r'\\(.)', lambda match: special.get(match[1], match[1]), text[1:-1], flags=re.DOTALL)


def _error(detail: str) -> ValueError:
    return ValueError(f"expected a condition as '{EXAMPLE}': {detail}")
