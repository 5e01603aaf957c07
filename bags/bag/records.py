"""What can be given as a record."""

from __future__ import annotations

from typing import Any

__all__ = ['as_record']


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
