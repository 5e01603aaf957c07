"""Checks of arguments: numbers, choices and records; errors name the option. Also optional packages."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable
from typing import Any

from bags.errors import MissingDependencyError

__all__ = [
    'as_record',
    'at_least',
    'at_least_or_none',
    'import_optional',
    'integer',
    'one_of',
    'refuse_unknown',
]

RENAMED_SHARD_OPTIONS = {
    'shardsize': 'shard_size (bytes) or shard_length (datapoints)',
    'shardlen': 'shard_length (datapoints)',
    'shardstart': 'shard_start',
    'shardstep': 'shard_step',
    'shard_stop': 'shard_step',
}
"""Options of readers and writers of shards in Bags 0.x and Granular, and their replacements."""


def refuse_unknown(given: Iterable[str], known: Collection[str] = ()) -> None:
    """Raises TypeError for an unknown option, with advice for those of other libraries."""
    for name in given:
        if name in RENAMED_SHARD_OPTIONS:
            raise TypeError(f'unexpected option {name!r}: use {RENAMED_SHARD_OPTIONS[name]}')
        if name not in known:
            advice = f': expected one of {", ".join(known)}' if known else ''
            raise TypeError(f'unexpected option {name!r}{advice}')


def integer(name: str, value: Any, alternative: str = '') -> int:
    """Returns an integer, which may be given as a float without a fraction, such as `5e9`.

    `alternative` names other accepted values in the error message.

    Raises:
        TypeError: The value is not an integer.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not hasattr(value, '__index__'):
        raise TypeError(f'{name}: expected an integer{alternative}, got {value!r:.200}')
    return int(value)


def at_least(name: str, value: Any, minimum: int, alternative: str = '') -> int:
    """Returns an integer that is not below a minimum.

    Raises:
        TypeError: The value is not an integer.
        ValueError: It is below the minimum.
    """
    number = integer(name, value, alternative)
    if number < minimum:
        raise ValueError(f'{name}: expected at least {minimum}{alternative}, got {number}')
    return number


def at_least_or_none(name: str, value: Any, minimum: int) -> int | None:
    """As `at_least`, for an option that may also be None."""
    return None if value is None else at_least(name, value, minimum, ' or None')


def one_of(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raises ValueError for a value that is not one of the choices."""
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


def import_optional(package: str, extra: str = '') -> Any:
    """Imports a package that an extra installs, one of the same name unless given.

    Raises:
        MissingDependencyError: It is not installed; says how to install it.
    """
    try:
        return importlib.import_module(package)
    except ImportError as exc:
        raise MissingDependencyError(package.replace('_', '-'), extra or package) from exc
