"""From values to records: encoding a datapoint, apart from writing it.

An encoded datapoint is a list with an entry a field, in sorted order: bytes, an open file, or None where the
value is missing; for a sequence an iterator over these, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from bags.dataset import registry
from bags.dataset.spec import FieldType, Spec
from bags.errors import BagsError, EncodeError, SpecError

__all__ = ['Encoder', 'bind_encoders', 'close_file', 'collect']


class Encoder:
    """Encodes datapoints of a spec.

    Raises:
        SpecError: A word without a function, or arguments that a built-in type cannot have.
    """

    def __init__(self, types: Spec, encoders: Mapping[str, Callable[..., Any]] | None) -> None:
        self.types = types
        functions = bind_encoders(types, encoders)
        self._fields = [
            (name, kind, functions[name], not kind.optional and not kind.sequence)
            for name, kind in types.items()
        ]

    def encode(self, datapoint: Any) -> list[Any]:
        """Returns the records of a datapoint; those of sequences are encoded when they are iterated over.

        Raises:
            EncodeError: A field that is missing or unknown, or a value that cannot be encoded.
            TypeError: No mapping.
        """
        if type(datapoint) is not dict or datapoint.keys() != self.types.keys():
            self._check_keys(datapoint)
        records: list[Any] = []
        try:
            for name, kind, function, is_plain in self._fields:
                value = datapoint.get(name)
                if is_plain:
                    records.append(_encode(name, kind, function, value))
                elif value is None and kind.optional:
                    records.append(None)
                elif kind.sequence:
                    records.append(_encode_items(name, kind, function, value))
                else:
                    records.append(_encode(name, kind, function, value))
        except BaseException:
            for record in records:
                close_file(record)
            raise
        return records

    def encode_field(self, field: str, value: Any) -> Any:
        """Returns the record of one field's value, or the iterator over those of its sequence."""
        return next(
            _encode_items(name, kind, function, value)
            if kind.sequence
            else _encode(name, kind, function, value)
            for name, kind, function, _ in self._fields
            if name == field
        )

    def _check_keys(self, datapoint: Any) -> None:
        if not isinstance(datapoint, Mapping):
            raise TypeError(
                f'datapoint: expected a mapping of fields to values, got {type(datapoint).__name__}'
            )
        for name, kind in self.types.items():
            if name not in datapoint and not kind.optional:
                raise EncodeError(
                    name, kind.text, f'is missing; the datapoint has {", ".join(map(repr, datapoint))}'
                )
        for name in datapoint:
            if name not in self.types:
                raise EncodeError(
                    str(name), '?', f'is not in the spec, which has {", ".join(map(repr, self.types))}'
                )


def _encode(
    name: str, kind: FieldType, function: Callable[[Any], Any], value: Any, item: int | None = None
) -> Any:
    try:
        record = function(value)
    except BagsError:
        raise
    except Exception as exc:
        raise EncodeError(name, kind.text, f'{type(exc).__name__}: {exc}', item) from exc
    if type(record) is bytes or hasattr(record, 'read'):
        return record
    try:
        return bytes(memoryview(record))
    except TypeError:
        detail = f'expected bytes from the encoder, got {type(record).__name__}'
        raise EncodeError(name, kind.text, detail, item) from None


def _encode_items(name: str, kind: FieldType, function: Callable[[Any], Any], values: Any) -> Iterator[Any]:
    try:
        if isinstance(values, str | bytes | bytearray | memoryview | Mapping):
            raise TypeError
        items = iter(values)
    except TypeError:
        detail = f'expected several values to iterate over, got {type(values).__name__}'
        raise EncodeError(name, kind.text, detail) from None
    return _encode_each(name, kind, function, items)


def _encode_each(
    name: str, kind: FieldType, function: Callable[[Any], Any], items: Iterator[Any]
) -> Iterator[Any]:
    item = -1
    try:
        for item, value in enumerate(items):
            yield _encode(name, kind, function, value, item)
    except BagsError:
        raise
    except Exception as exc:
        exc.add_note(f'where field {name!r} of type {kind.text} gives its item {item + 1}')
        raise


def collect(records: list[Any]) -> list[Any]:
    """Returns an encoded datapoint with all of it in memory: sequences as lists, and files as bytes."""
    try:
        return [
            record if record is None or type(record) is bytes
            else _read(record) if hasattr(record, 'read')
            else [item if type(item) is bytes else _read(item) for item in record]
            for record in records
        ]  # fmt: skip
    finally:
        for record in records:
            close_file(record)


def _read(file: BinaryIO) -> bytes:
    with file:
        return file.read()


def bind_encoders(
    spec: Spec, encoders: Mapping[str, Callable[..., Any]] | None
) -> dict[str, Callable[[Any], Any]]:
    """Returns the encoder of each field, of the built-in ones if none are given.

    Raises:
        SpecError: A word without a function, or arguments that a built-in type cannot have.
    """
    functions = registry.encoders if encoders is None else encoders
    if not isinstance(functions, Mapping):
        raise TypeError(f'encoders: expected a mapping of words to functions, got {functions!r:.80}')
    bound = {}
    for name, kind in spec.items():
        try:
            bound[name] = registry.bind_encoder(kind.word, kind.args, functions)
        except KeyError:
            raise SpecError(name, f'a type of {", ".join(sorted(functions))}', kind.text) from None
        except ValueError as exc:
            raise SpecError.of_type(name, kind.text, exc) from exc
    return bound


def close_file(record: Any) -> None:
    """Closes what an encoder opened."""
    if hasattr(record, 'read'):
        record.close()
