"""How the fields of a dataset are compressed: which ones, at what level, and with what dictionary. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from bags.bag.options import CompressionZstd
from bags.dataset.spec import Spec
from bags.errors import SpecError

__all__ = ['Compressed', 'Compression', 'field_compressions']

DEFAULT_LEVEL = 3

Compression = Iterable[str] | Mapping[str, Any] | None
"""Fields, or a mapping of fields to a zstd level, 'dictionary', or both: `('dictionary', 19)`."""


class Compressed(NamedTuple):
    """How a field is compressed."""

    level: int = DEFAULT_LEVEL
    trained: bool = False
    """Whether with a dictionary that is trained on the field's first records."""
    dictionary: bytes = b''
    """The dictionary; empty if it is not trained yet."""


def field_compressions(compression: Compression, spec: Spec) -> dict[str, Compressed]:
    """Returns the compression of each field that is compressed.

    Raises:
        SpecError: The spec has no such field.
        TypeError: `compression` is neither fields nor a mapping of fields.
        ValueError: The compression of a field is not valid.
    """
    if isinstance(compression, str) or not isinstance(compression, Iterable | None):
        raise TypeError(f'compression: expected names of fields, or a mapping of them, got {compression!r}')
    if not isinstance(compression, Mapping):
        compression = dict.fromkeys(compression or (), DEFAULT_LEVEL)
    found = {}
    for name, value in compression.items():
        if name not in spec:
            raise SpecError(name, f'one of the fields {", ".join(spec)} to compress', name)
        try:
            found[name] = value if isinstance(value, Compressed) else _parse(value)
        except ValueError as exc:
            raise ValueError(f'compression of field {name!r}: {exc}') from None
    return found


def _parse(value: Any) -> Compressed:
    parts = list(value) if isinstance(value, tuple | list) else [value]
    trained = bool(parts) and parts[0] == 'dictionary'
    levels = parts[trained:]
    if len(levels) > 1 or len(levels) + trained < 1 or not all(isinstance(level, int) for level in levels):
        raise ValueError(f"expected a zstd level, 'dictionary' or ('dictionary', level), got {value!r}")
    level = levels[0] if levels else DEFAULT_LEVEL
    CompressionZstd(level)  # Checks it.
    return Compressed(level, trained)
