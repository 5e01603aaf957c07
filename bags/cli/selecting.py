"""What a command line means: which datapoints, which field and item, how many bytes, which compression."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from bags.cli.failing import Misused

__all__ = [
    'check_field',
    'parse_byte_count',
    'parse_compression',
    'parse_field',
    'parse_fields',
    'parse_rows',
]

NUMBER = r'[+-]?[0-9]+'
SLICE = re.compile(rf'(?P<start>{NUMBER})?:(?P<stop>{NUMBER})?(:(?P<step>{NUMBER})?)?')


def parse_rows(text: str, length: int, what: str = 'datapoint') -> tuple[range | list[int], bool]:
    """Returns the indices that are meant, and whether it is a single one.

    Args:
        text: `7`, `-1`, `10:20`, `:5`, `::2`, or several of these with commas between.
        length: How many there are.
        what: What is counted, for messages.

    Raises:
        Misused: Something else.
        IndexError: There is no such index; a range, as in Python, takes what there is of it.
    """
    parts = [_parse_part(part.strip(), length, what) for part in text.split(',')]
    if len(parts) == 1:
        return parts[0], ':' not in text
    return [index for part in parts for index in part], False


def _parse_part(text: str, length: int, what: str) -> range:
    if re.fullmatch(NUMBER, text):
        index = int(text)
        if not -length <= index < length:
            there = f'there are {length:,}' if length else 'there is none'
            raise IndexError(f'no {what} {index}: {there}')
        index %= length
        return range(index, index + 1)
    match = SLICE.fullmatch(text)
    if match is None or match['step'] in ('0', '-0', '+0'):
        raise Misused(f'expected an index as 7 or -1, or a range as 10:20 or ::2, got {text!r}')
    start, stop, step = (
        None if match[name] is None else int(match[name]) for name in ('start', 'stop', 'step')
    )
    return range(length)[slice(start, stop, step)]


def parse_fields(text: str | None, known: Collection[str]) -> list[str] | None:
    """Returns the fields that are meant: `id,words`; None if none are given.

    Raises:
        Misused: There is no such field.
    """
    if text is None:
        return None
    names = [name.strip() for name in text.split(',') if name.strip()]
    if not names:
        raise Misused(f'no field in {text!r}; those there are: {", ".join(known)}')
    for name in names:
        check_field(name, known)
    return names


def check_field(name: str, known: Collection[str]) -> None:
    """Raises Misused if there is no such field."""
    if name not in known:
        raise Misused(f'no field {name!r}; those there are: {", ".join(known)}')


def parse_field(text: str, item: int | None = None) -> tuple[str, int | None]:
    """Takes a field and, as in `frames[3]`, an item of it apart.

    Raises:
        Misused: The item is given twice.
    """
    match = re.fullmatch(rf'(?P<field>.+)\[(?P<item>{NUMBER})\]', text)
    if match is None:
        return text, item
    if item is not None:
        raise Misused(f'expected one item, got {text} and --item {item}')
    return match['field'], int(match['item'])


def parse_byte_count(text: str) -> int:
    """Returns how many bytes are meant: `500000`, `2GB`, `1.5 GiB`.

    Raises:
        Misused: Something else.
    """
    match = re.fullmatch(r'([0-9]+(?:[.][0-9]+)?)\s*(?:([kmgt])(i?)b?|b)?', text.strip().lower())
    if match is None:
        raise Misused(f'expected a number of bytes as 500000, 2GB or 1.5GiB, got {text!r}')
    number, unit, binary = match.groups()
    power = ' kmgt'.index(unit or ' ')
    count = int(float(number) * (1 << 10 * power if binary else int(f'1{"000" * power}')))
    if not count:
        raise Misused(f'expected at least one byte, got {text!r}')
    return count


def parse_compression(text: str, known: Collection[str]) -> dict[str, Any]:
    """Returns how fields are to be compressed: `meta,words=19,text=dictionary`.

    Raises:
        Misused: A level that is none, or no such field.
    """
    found: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(','))):
        name, given, how = map(str.strip, part.partition('='))
        check_field(name, known)
        if given and how != 'dictionary' and not (re.fullmatch(NUMBER, how) and -131072 <= int(how) <= 22):
            raise Misused(
                f"compression of field {name!r}: expected a zstd level up to 22 or 'dictionary', got {how!r}"
            )
        found[name] = 3 if not given else how if how == 'dictionary' else int(how)
    return found
