"""The arguments in a type's parentheses: they arrive as strings and are checked once, when a type is read."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ['check_count', 'whole_number']


def check_count(args: Sequence[str], most: int, form: str) -> None:
    """Raises ValueError if there are more than `most` arguments; `form` shows the type as it should be."""
    if len(args) > most:
        raise ValueError(f'expected {form}, got {len(args)} arguments: {", ".join(args)}')


def whole_number(text: str, low: int, high: int, what: str) -> int:
    """Reads a whole number between `low` and `high`, both included.

    Raises:
        ValueError: `text` is anything else; the message names `what`.
    """
    if text.isascii() and text.isdigit() and low <= int(text[:20]) <= high:
        return int(text)
    raise ValueError(f'expected {what} from {low} to {high}, got {text!r}')
