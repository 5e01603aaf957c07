"""Splits JSON into the texts of its values, and counts its levels of nesting."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from bags.formats.trees import MAX_TREE_DEPTH

BLOCK_BYTES = 1 << 22
"""Bytes whose levels of nesting are counted at a time."""
_SPACES = re.compile(r'[ \t\n\r]*')
_COLON = re.compile(r'[ \t\n\r]*:[ \t\n\r]*')
_SEPARATOR = re.compile(r'[ \t\n\r]*([,}])[ \t\n\r]*')
_ESCAPE, _STRING = re.compile(rb'\\.', re.DOTALL), re.compile(rb'"[^"]*"')
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*("|$)|[][{}]', re.DOTALL)
_NOT_MARKS = bytes(set(range(256)) - set(b'"[]{}'))
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b'[{')], _STEPS[list(b']}')] = 1, -1
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def check_levels(data: bytes) -> None:
    """Raises ValueError for more than 500 levels of nesting, at which parsers overflow the stack."""
    depth, is_string, start = 0, False, 0
    while start < len(data):
        stop = start + BLOCK_BYTES
        while stop < len(data) and data[stop - 1 : stop] == b'\\':
            stop += 1
        block = b'"' * is_string + data[start:stop]
        marks = (_ESCAPE.sub(b'', block) if b'\\' in block else block).translate(None, _NOT_MARKS)
        marks, quote, _ = _STRING.sub(b'', marks).partition(b'"')
        is_string = bool(quote)
        levels = depth + np.cumsum(_STEPS[np.frombuffer(marks, np.uint8)], dtype=np.int64)
        if len(levels):
            if levels.max() > MAX_TREE_DEPTH:
                before = data.count(b'\n', 0, start)
                _fail_levels(block, depth, before)
            depth = int(levels[-1])
        start = stop


def _fail_levels(block: bytes, depth: int, lines: int) -> NoReturn:
    position = 0
    for token in _TOKEN.finditer(block):
        depth += int(_STEPS[token[0][0]])
        position = token.start()
        if depth > MAX_TREE_DEPTH:
            break
    line = lines + block.count(b'\n', 0, position) + 1
    raise ValueError(f'line {line}: expected up to {MAX_TREE_DEPTH} levels of nesting, got more')


def members(text: str, start: int) -> tuple[dict[str, str], int]:
    """Returns the text of each value of a JSON object, by key, and the position after the object."""
    values: dict[str, str] = {}
    end = skip_spaces(text, start + 1)
    if text[end : end + 1] == '}':
        return values, end + 1
    while True:
        if text[end : end + 1] != '"':
            fail_at(text, end, 'a key in quotes')
        key, end = value_at(text, end)
        if key in values:
            fail_at(text, end, f'each key once, got {key!r} twice')
        if (colon := _COLON.match(text, end)) is None:
            fail_at(text, end, 'a colon')
        first = colon.end()
        end = value_at(text, first)[1]
        values[key] = text[first:end]
        if (separator := _SEPARATOR.match(text, end)) is None:
            fail_at(text, end, 'a comma or }')
        end = separator.end()
        if separator[1] == '}':
            return values, end


def items(text: str) -> list[str]:
    """Returns the text of each item of a JSON list."""
    texts: list[str] = []
    end = skip_spaces(text, 1)
    while text[end] != ']':
        first = skip_spaces(text, end + bool(texts))
        end = value_at(text, first)[1]
        texts.append(text[first:end])
        end = skip_spaces(text, end)
    return texts


def value_at(text: str, start: int) -> tuple[Any, int]:
    """Parses the JSON value at a position; returns the position after it too."""
    try:
        return _scan(text, start)
    except StopIteration:
        fail_at(text, start, 'a JSON value')


def text_of(text: str) -> str:
    """Returns the characters of a JSON string, or the JSON text of another value."""
    return str(json.loads(text)) if text.startswith('"') else text


def skip_spaces(text: str, start: int) -> int:
    """Returns the position of the next character that is not white space."""
    match = _SPACES.match(text, start)
    assert match is not None
    return match.end()


def fail_at(text: str, position: int, what: str) -> NoReturn:
    """Raises ValueError with the line of a position, where `what` was expected."""
    line = text.count('\n', 0, position) + 1
    raise ValueError(f'line {line}: expected {what}, got {text[position : position + 20]!r}')
