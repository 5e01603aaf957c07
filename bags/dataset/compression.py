"""How the fields of a dataset are compressed: which, at what level, and with which dictionary. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from bags.bag.options import CompressionZstd
from bags.dataset.spec import Spec
from bags.errors import SpecError

__all__ = ['Compressed', 'Compression', 'field_compressions']

LEVEL = 3

Compression = Iterable[str] | Mapping[str, Any] | None
"""Fields, or a mapping of them to a zstd level, 'dictionary', or both: `('dictionary', 19)`."""


class Compressed(NamedTuple):
    """How a field is compressed."""

    level: int = LEVEL
    trained: bool = False
    """Whether with a dictionary, trained on the field's first records."""
    dictionary: bytes = b''
    """One that is there already."""


def field_compressions(compression: Compression, spec: Spec) -> dict[str, Compressed]:
    """Returns how each field is compressed that is.

    Raises:
        SpecError: No such field.
        TypeError: A string, say, where names are expected.
        ValueError: No way to compress one.
    """
    if isinstance(compression, str) or not isinstance(compression, Iterable | None):
        raise TypeError(f'compression: expected names of fields, or a mapping of them, got {compression!r}')
    asked = compression if isinstance(compression, Mapping) else dict.fromkeys(compression or (), LEVEL)
    found = {}
    for name, value in asked.items():
        if name not in spec:
            raise SpecError(name, f'one of the fields {", ".join(spec)} to compress', name)
        try:
            found[name] = _parse(value)
        except ValueError as exc:
            raise ValueError(f'compression of field {name!r}: {exc}') from None
    return found


def _parse(value: Any) -> Compressed:
    if isinstance(value, Compressed):
        return value
    parts = list(value) if isinstance(value, tuple | list) else [value]
    trained = bool(parts) and parts[0] == 'dictionary'
    rest = parts[trained:]
    if len(rest) > 1 or not (rest or trained) or not all(isinstance(level, int) for level in rest):
        raise ValueError(f"expected a zstd level, 'dictionary' or ('dictionary', level), got {value!r}")
    level = rest[0] if rest else LEVEL
    CompressionZstd(level)
    return Compressed(level, trained)
