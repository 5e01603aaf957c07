"""Which datapoints, which field and which item a command line means."""

from __future__ import annotations

import re

__all__ = ['parse_field', 'parse_rows']

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
