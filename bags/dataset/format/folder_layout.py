"""The layout of a folder, which is its schema and the format of its refs; and the decoders of types."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bags.dataset.format import registry
from bags.dataset.format.refs import RefsFormat
from bags.dataset.format.spec import FieldType, Schema, load_spec
from bags.errors import SpecError
from bags.formats.scalars import MAX_VALUE_SIZE, decode_legacy_int

SMALL = 64  # Fixed-size values of up to this many bytes are decoded faster from bytes than from a buffer.


class FolderLayout(NamedTuple):
    """A schema, and the format of its refs."""

    schema: Schema
    refs_format: RefsFormat


@functools.lru_cache(64)
def parse_layout(data: bytes) -> FolderLayout:
    """Returns the layout of a folder with this spec.json; shards share it.

    Raises:
        SpecError: The spec is invalid.
    """
    schema = load_spec(data, None)
    return FolderLayout(schema, RefsFormat(schema))


class Decoder:
    """The function that converts records of a type to values, and the dtype and shape of the values."""

    def __init__(
        self,
        decode: Callable[[Any], Any] | None,
        fixed: Any,
        accepts_view: bool,
        lazy: bool,
        find_frames: Callable[[], Callable[..., Any] | None],
        max_size: int | None = None,
        rows: tuple[np.dtype[Any], tuple[int, ...]] | None = None,
    ) -> None:
        self.decode = decode
        """None if the record is the value."""
        self.find_frames = find_frames
        """Returns the function that opens a record as frames; None if values do not have frames."""
        self.dtype: np.dtype[Any] | None = fixed[0] if fixed else None
        self.shape: tuple[int, ...] = fixed[1] if fixed else ()
        """The shape of the values, if all have the same size."""
        self.length = _size(fixed)
        """Bytes of a record, if all have the same size; else 0."""
        self.rows = rows
        """Dtype and shape of the rows of arrays whose records are the bytes of their rows; else None."""
        self.accepts_view = accepts_view
        """Whether `decode` accepts a view of the file instead of a copy."""
        self.max_items = sys.maxsize
        """Maximum number of compressed items of a sequence that are read at once."""
        self.max_size = max_size
        """Maximum bytes of a record that is read as a whole; None for any size."""
        self.lazy = lazy
        """Whether `decode` takes a `Record`, which it opens on use, instead of bytes."""
        is_single = bool(self.dtype) and not self.shape
        self.is_scalar = is_single and not isinstance(decode and decode(bytes(self.length)), np.ndarray)


def _size(fixed: Any) -> int:
    return int(fixed[0].itemsize * np.prod(fixed[1], dtype=np.int64)) if fixed else 0


def _decoder_for(field_type: FieldType, function: Callable[..., Any], max_value_size: int) -> Decoder:
    functions = {field_type.format: function}
    fixed = registry.fixed_dtype(field_type.format, field_type.args, functions)
    decode: Any = registry.bind_decoder(field_type.format, field_type.args, functions, max_value_size)
    find_frames = functools.partial(registry.frames_of, field_type.format, functions)
    if getattr(function, 'lazy', False):
        return Decoder(decode, None, False, True, find_frames)
    if function is registry.decoders['utf8']:
        decode = bytes.decode  # The fastest decoder: records are bytes here.
    is_copied = decode in (bytes, bytes.decode) or (fixed and _size(fixed) <= SMALL)
    accepts_view = registry.is_built_in(function) and not is_copied
    rows = registry.array_rows(field_type.format, field_type.args, functions)
    decoder = Decoder(
        None if decode is bytes else decode, fixed, accepts_view, False, find_frames, max_value_size, rows
    )
    if decoder.length:
        decoder.max_items = max_value_size // decoder.length
    return decoder


def _raw_decoder(field_type: FieldType, functions: Mapping[str, Callable[..., Any]]) -> Decoder:
    decoder = Decoder(
        None, None, True, False, functools.partial(registry.frames_of, field_type.format, functions)
    )
    # In raw mode an invalid type argument does not prevent reading.
    with contextlib.suppress(ValueError, ImportError):
        decoder.length = _size(registry.fixed_dtype(field_type.format, field_type.args, functions))
        decoder.rows = registry.array_rows(field_type.format, field_type.args, functions)
    return decoder


_known_decoder = functools.lru_cache(256)(_decoder_for)


@functools.lru_cache(256)
def _default_decoder(field_type: FieldType, legacy: bool, max_value_size: int) -> Decoder:
    function = registry.decoders[field_type.format]
    if legacy and field_type.format == 'int':
        function = decode_legacy_int
    return _decoder_for(field_type, function, max_value_size)


class Decoders:
    """The decoders of a dataset. Decoders with built-in functions are created once per process.

    Args:
        functions: The functions by format. Default: the built-in functions.
        raw: Return records instead of values.
        max_value_size: Maximum bytes of a decoded value.
    """

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]] | None,
        raw: bool = False,
        max_value_size: int = MAX_VALUE_SIZE,
    ) -> None:
        if functions is not None and not isinstance(functions, Mapping):
            raise TypeError(f'decoders: expected functions by format, got {type(functions).__name__}')
        self.functions = functions
        self.raw = raw
        self.max_value_size = max_value_size

    def get(self, name: str, field_type: FieldType, legacy: bool, where: object) -> Decoder:
        """Returns the decoder of a field. `legacy`: Bags 0.x wrote the folder, so every `int` is unsigned.

        Raises:
            KeyError: The format does not have a function.
            SpecError: The arguments are invalid for the type, or its package cannot be imported.
        """
        functions = registry.decoders if self.functions is None else self.functions
        if self.raw:
            return _raw_decoder(field_type, functions)
        try:
            if functions is registry.decoders:
                return _default_decoder(field_type, legacy, self.max_value_size)
            function = functions[field_type.format]
        except ValueError as exc:
            raise SpecError.of_type(name, field_type.text, exc, where) from exc
        if legacy and field_type.format == 'int' and function is registry.decoders['int']:
            function = decode_legacy_int
        make = _known_decoder if registry.is_built_in(function) else _decoder_for
        try:
            return make(field_type, function, self.max_value_size)
        except ValueError as exc:
            raise SpecError.of_type(name, field_type.text, exc, where) from exc

    def has(self, format: str) -> bool:
        """Returns whether values of a type can be decoded, possibly with another installed package."""
        try:
            (registry.decoders if self.functions is None else self.functions)[format]
        except (KeyError, ValueError):
            return False
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        return Decoders, (self.functions, self.raw, self.max_value_size)
