"""What a command line means: which datapoints, which field and item, how many bytes, which compression."""

from __future__ import annotations

import re
from typing import Any

__all__ = ['parse_byte_count', 'parse_compression', 'parse_field', 'parse_rows']

NUMBER = r'[+-]?[0-9]+'
SLICE = re.compile(rf'(?P<start>{NUMBER})?:(?P<stop>{NUMBER})?(:(?P<step>{NUMBER})?)?')


def parse_rows(text: str, length: int, what: str = 'datapoint') -> tuple[range | list[int], bool]:
    """Returns the indices that are meant, and whether it is a single one.

    Args:
        text: `7`, `-1`, `10:20`, `:5`, `::2`, or several of these with commas between.
        length: How many there are.
        what: What is counted, for messages.

    Raises:
        ValueError: Something else.
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
        raise ValueError(f'expected an index as 7 or -1, or a range as 10:20 or ::2, got {text!r}')
    start, stop, step = (
        None if match[name] is None else int(match[name]) for name in ('start', 'stop', 'step')
    )
    return range(length)[slice(start, stop, step)]


def parse_field(text: str, item: int | None = None) -> tuple[str, int | None]:
    """Takes a field and, as in `frames[3]`, an item of it apart.

    Raises:
        ValueError: The item is given twice.
    """
    match = re.fullmatch(rf'(?P<field>.+)\[(?P<item>{NUMBER})\]', text)
    if match is None:
        return text, item
    if item is not None:
        raise ValueError(f'expected one item, got {text} and --item {item}')
    return match['field'], int(match['item'])


def parse_byte_count(text: str) -> int:
    """Returns how many bytes are meant: `500000`, `2GB`, `1.5 GiB`.

    Raises:
        ValueError: Something else.
    """
    match = re.fullmatch(r'([0-9]+(?:[.][0-9]+)?)\s*(?:([kmgt])(i?)b?|b)?', text.strip().lower())
    if match is None:
        raise ValueError(f'expected a number of bytes as 500000, 2GB or 1.5GiB, got {text!r}')
    number, unit, binary = match.groups()
    power = ' kmgt'.index(unit or ' ')
    return int(float(number) * (1 << 10 * power if binary else int(f'1{"000" * power}')))


def parse_compression(text: str) -> dict[str, Any]:
    """Returns how fields are to be compressed: `meta,words=19,text=dictionary`.

    Raises:
        ValueError: A level that is none.
    """
    found: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(','))):
        name, given, how = part.partition('=')
        if given and how != 'dictionary' and not re.fullmatch(NUMBER, how):
            raise ValueError(
                f"compression of field {name!r}: expected a zstd level or 'dictionary', got {how!r}"
            )
        found[name] = 3 if not given else how if how == 'dictionary' else int(how)
    return found
