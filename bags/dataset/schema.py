"""A spec made ready for reading: how refs are held, and how the records of each field become values."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from bags.bag.zstd import Buffer
from bags.dataset import registry
from bags.dataset.refs import RefsFormat
from bags.dataset.spec import FieldType, Spec, load_spec
from bags.errors import SpecError
from bags.formats.scalars import MAX_VALUE_SIZE, decode_legacy_int

__all__ = ['Decoder', 'Decoders', 'Schema', 'SchemaCache']

SMALL = 64  # Values of one size up to this are quicker decoded from bytes than from a buffer.

Decoders = Mapping[str, Callable[..., Any]] | None


class Decoder:
    """How the records of a type become values."""

    def __init__(
        self, decode: Callable[[Any], Any] | None, fixed: Any, accepts_view: bool, lazy: bool = False
    ) -> None:
        self.decode = decode
        """None where the record is the value."""
        self.dtype: np.dtype[Any] | None = fixed[0] if fixed else None
        self.shape: tuple[int, ...] = fixed[1] if fixed else ()
        """Of the values, where all have one size."""
        self.length = _size(fixed)
        """Bytes of a record, where all have one size; else 0."""
        self.accepts_view = accepts_view
        """Whether it takes a buffer over the file itself and does without a copy."""
        self.max_items = sys.maxsize
        """Of a sequence that is read at once, if they are compressed."""
        self.lazy = lazy
        """Whether it takes a `Record`, to open it when it is needed, instead of its bytes."""
        self.is_scalar = bool(self.dtype) and not isinstance(
            decode and decode(bytes(self.length)), np.ndarray
        )


def _size(fixed: Any) -> int:
    return int(fixed[0].itemsize * np.prod(fixed[1], dtype=np.int64)) if fixed else 0


def _length_of(kind: FieldType, decoders: Mapping[str, Callable[..., Any]]) -> int:
    try:
        return _size(registry.fixed_dtype(kind.word, kind.args, decoders))
    except (ValueError, ImportError):
        return 0  # In raw mode an invalid type argument does not prevent reading.


def _decoder_for(
    kind: FieldType, decoders: Mapping[str, Callable[..., Any]], raw: bool, max_value_size: int
) -> Decoder:
    if raw:
        decoder = Decoder(None, None, True)
        decoder.length = _length_of(kind, decoders)
        return decoder
    function = decoders[kind.word]
    fixed = registry.fixed_dtype(kind.word, kind.args, decoders)
    decode = registry.bind_decoder(kind.word, kind.args, decoders, max_value_size)
    if getattr(function, 'lazy', False):
        return Decoder(decode, None, False, lazy=True)
    decoder = Decoder(None if decode is bytes else decode, fixed, False)
    if decoder.length:
        decoder.max_items = max_value_size // decoder.length
    textual = function is registry.decoders['utf8'] or decode is bytes
    if function is registry.decoders['utf8']:
        # Its records come as bytes, and nothing is quicker than this.
        decoder.decode = cast('Callable[[Buffer], Any]', bytes.decode)
    built_in = any(function is known for known in registry.decoders.values())
    decoder.accepts_view = built_in and not textual and not (fixed and decoder.length <= SMALL)
    return decoder


class Schema:
    """What a spec means to a reader.

    Args:
        types: The spec.
        decoders: The functions by word; the built-in ones unless given.
        raw: Give records instead of values.
        legacy: Bags 0.x wrote the folder, so every `int` is unsigned.
        max_value_size: Bytes that the value of a record may take.
    """

    def __init__(
        self,
        types: Spec,
        decoders: Decoders,
        raw: bool,
        legacy: bool,
        format: RefsFormat | None = None,
        max_value_size: int = MAX_VALUE_SIZE,
    ) -> None:
        self.types = types
        self.format = RefsFormat(types) if format is None else format
        self.functions: Mapping[str, Callable[..., Any]] = registry.decoders if decoders is None else decoders
        if legacy and self.functions.get('int') is registry.decoders['int']:
            self.functions = {**self.functions, 'int': decode_legacy_int}
        self._raw = raw
        self._max_value_size = max_value_size
        self._decoders: dict[str, Decoder] = {}

    def decoder(self, name: str, where: object) -> Decoder:
        """Returns the decoder of a field.

        Raises:
            SpecError: A word without a function, or arguments that a built-in type cannot have.
        """
        known = self._decoders.get(name)
        if known is not None:
            return known
        kind = self.types[name]
        try:
            decoder = _decoder_for(kind, self.functions, self._raw, self._max_value_size)
        except KeyError:
            raise SpecError(name, registry.known_types(kind, self.functions), kind.text, where) from None
        except ValueError as exc:
            raise SpecError.of_type(name, kind.text, exc, where) from exc
        self._decoders[name] = decoder
        return decoder


class SchemaCache:
    """Schemas by the content of spec.json: ten thousand shards share one.

    Args:
        decoders, raw, max_value_size: As for `Schema`.
    """

    def __init__(self, decoders: Decoders, raw: bool, max_value_size: int = MAX_VALUE_SIZE) -> None:
        if decoders is not None and not isinstance(decoders, Mapping):
            raise TypeError(f'decoders: expected functions by word, got {type(decoders).__name__}')
        self.decoders = decoders
        self.raw = raw
        self.max_value_size = max_value_size
        self._known: dict[tuple[bytes, bool], Schema] = {}

    def get(self, data: bytes, where: object, legacy: bool = False) -> Schema:
        """Returns the schema of a spec.json.

        Raises:
            SpecError: It is invalid.
        """
        known = self._known.get((data, legacy))
        if known is None:
            try:
                types, format = _parse(data)
            except SpecError:
                load_spec(data, where)  # Raises with the path.
                raise
            known = self._known[data, legacy] = Schema(
                types, self.decoders, self.raw, legacy, format, self.max_value_size
            )
        return known

    def __reduce__(self) -> tuple[Any, ...]:
        return SchemaCache, (self.decoders, self.raw, self.max_value_size)


@functools.lru_cache(64)
def _parse(data: bytes) -> tuple[Spec, RefsFormat]:
    types = load_spec(data, None)
    return types, RefsFormat(types)
