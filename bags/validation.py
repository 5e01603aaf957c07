"""Checks of what users pass: numbers, choices and records; errors name the option."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ['as_record', 'at_least', 'at_least_or_none', 'integer', 'one_of']


def integer(name: str, value: Any, other: str = '') -> int:
    """Returns a whole number, which may also be given as a float that is one, such as `5e9`.

    Args:
        name: Of the option.
        value: What is given.
        other: What else it may be, for the message.

    Raises:
        TypeError: No whole number.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not hasattr(value, '__index__'):
        raise TypeError(f'{name}: expected an integer{other}, got {value!r:.200}')
    return int(value)


def at_least(name: str, value: Any, least: int) -> int:
    """Returns a whole number, as `integer`.

    Raises:
        TypeError: No whole number.
        ValueError: Less than the least.
    """
    return _checked(name, value, least, '')


def at_least_or_none(name: str, value: Any, least: int) -> int | None:
    """As `at_least`, for an option that may also be None."""
    return None if value is None else _checked(name, value, least, ' or None')


def _checked(name: str, value: Any, least: int, other: str) -> int:
    number = integer(name, value, other)
    if number < least:
        raise ValueError(f'{name}: expected at least {least}{other}, got {number}')
    return number


def one_of(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raises ValueError for what is no choice."""
    known = list(choices)
    if value not in known:
        raise ValueError(f'{name}: expected {" or ".join(map(repr, known))}, got {value!r}')


def as_record(value: Any) -> bytes:
    """Returns a record as bytes, from bytes, str (as UTF-8) or any buffer.

    Raises:
        TypeError: Anything else.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    try:
        return bytes(memoryview(value))
    except TypeError:
        raise TypeError(f'record: expected bytes, str or a buffer, got {type(value).__name__}') from None
