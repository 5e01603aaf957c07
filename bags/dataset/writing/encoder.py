"""Encodes the values of datapoints as records, without writing them.

An encoded datapoint is a list with one entry per field, in sorted order. The entry is bytes, an open file
or a link, for a sequence an iterator over these, and None for a missing value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from bags.dataset.format import registry
from bags.dataset.format.registry import AUDIO_FORMATS
from bags.dataset.format.spec import FieldType, Schema, likely_type, not_in_spec
from bags.errors import BagsError, EncodeError, SpecError
from bags.links.link import Link
from bags.storage.range_file import BorrowedFile


class Encoder:
    """Encodes datapoints of a spec. Raises the errors of `bind_encoders`."""

    def __init__(
        self, schema: Schema, encoders: Mapping[str, Callable[..., Any]] | None, links: Iterable[str] = ()
    ) -> None:
        self._schema = schema
        self.functions = registry.encoders if encoders is None else encoders
        """Maps formats to encoders."""
        self._functions = bind_encoders(schema, encoders)
        self._steps = [
            (name, field_type, self._functions[name], field_type.sequence)
            for name, field_type in schema.items()
        ]
        self.accept_links(links)

    def accept_links(self, fields: Iterable[str]) -> None:
        """Accepts links as values of these fields; they are returned unchanged."""
        for name in fields:
            self._functions[name] = functools.partial(_encode_or_link, self._functions[name])
        self._steps = [
            (name, field_type, self._functions[name], is_sequence)
            for name, field_type, _, is_sequence in self._steps
        ]

    def encode(self, datapoint: Any) -> list[Any]:
        """Returns the records of a datapoint. Items of sequences are encoded during iteration.

        Raises:
            EncodeError: A field is missing or unknown, or a value cannot be encoded.
            TypeError: The datapoint is not a mapping.
        """
        if type(datapoint) is not dict or datapoint.keys() != self._schema.keys():
            self._check_keys(datapoint)
        records: list[Any] = []
        try:
            for name, field_type, function, is_sequence in self._steps:
                value = datapoint.get(name)
                if value is None and field_type.optional:
                    record = None
                elif is_sequence:
                    record = _encode_items(name, field_type, function, value)
                else:
                    record = function(value)
                    if type(record) is not bytes:
                        record = _as_record(record)
                records.append(record)
        except BaseException as exc:
            close_files(records)
            if isinstance(exc, BagsError) or not isinstance(exc, Exception):
                raise
            if isinstance(value, Link):
                exc = ValueError(f'{value!r:.200}: links need a writer with linked_fields=({name!r},)')
            raise _encode_error(name, field_type, exc, value=value) from exc
        return records

    def encode_field(self, field: str, value: Any) -> Any:
        """Returns the record of one field's value, or an iterator over the records of its sequence."""
        encode = _encode_items if self._schema[field].sequence else _encode
        return encode(field, self._schema[field], self._functions[field], value)

    def encode_item(self, field: str, value: Any, item: int | None) -> Any:
        """Returns the record of the value of a plain field, or of one item of a sequence.

        A missing value of an optional plain field is None.
        """
        if value is None and item is None and self._schema[field].optional:
            return None
        return _encode(field, self._schema[field], self._functions[field], value, item)

    def _check_keys(self, datapoint: Any) -> None:
        check_mapping('datapoint', datapoint)
        for name in datapoint:
            if name not in self._schema:
                raise EncodeError(str(name), '', not_in_spec(name, self._schema))
        for name, field_type in self._schema.items():
            if name not in datapoint and not field_type.optional:
                names = ', '.join(map(repr, datapoint))
                raise EncodeError(name, field_type.text, f'the value is missing; the datapoint has {names}')


def check_mapping(name: str, value: Any) -> None:
    """Raises TypeError for values that are not in a mapping."""
    if not isinstance(value, Mapping):
        advice = '; convert it with dict(value)' if hasattr(value, 'keys') else ''
        raise TypeError(f'{name}: expected a mapping of fields to values, got {type(value).__name__}{advice}')


def _encode(
    name: str, field_type: FieldType, function: Callable[[Any], Any], value: Any, item: int | None = None
) -> Any:
    try:
        record = function(value)
        return record if type(record) is bytes else _as_record(record)
    except BagsError:
        raise
    except Exception as exc:
        raise _encode_error(name, field_type, exc, item, value) from exc


def _encode_or_link(function: Callable[[Any], Any], value: Any) -> Any:
    return value if isinstance(value, Link) else function(value)


def _as_record(value: Any) -> Any:
    if hasattr(value, 'read') or isinstance(value, Link):
        return value
    try:
        return bytes(memoryview(value))
    except TypeError:
        raise TypeError(f'expected bytes from the encoder, got {type(value).__name__}') from None


def _encode_error(
    name: str, field_type: FieldType, exc: Exception, item: int | None = None, value: Any = ()
) -> EncodeError:
    advice = f'; {field_type.text}? takes None' if value is None and item is None else ''
    return EncodeError(name, field_type.text, f'{type(exc).__name__}: {exc}{advice}', item)


def _encode_items(
    name: str, field_type: FieldType, function: Callable[[Any], Any], values: Any
) -> Iterator[Any]:
    try:
        is_list = type(values) is list  # The check of an abstract class takes as long as a text does.
        if not is_list and isinstance(values, str | bytes | bytearray | memoryview | Mapping):
            raise TypeError
        items = iter(values)
    except TypeError:
        detail = f'expected an iterable of items, got {type(values).__name__}'
        is_sound = field_type.format in AUDIO_FORMATS
        advice = f'; pass a list of recordings, such as dataset[0][{name!r}]' if is_sound else ''
        raise EncodeError(name, field_type.text, detail + advice) from None
    except Exception as exc:
        raise _encode_error(name, field_type, exc) from exc
    item = -1
    try:
        for item, value in enumerate(items):
            yield _encode(name, field_type, function, value, item)
    except BagsError:
        raise
    except Exception as exc:
        exc.add_note(f'from the iterable of field {name!r} of type {field_type.text}, at item {item + 1}')
        raise


def collect(records: list[Any]) -> list[Any]:
    """Loads an encoded datapoint into memory: sequences become lists, and files bytes. Links stay links."""
    try:
        return [
            record if record is None or type(record) is bytes
            else _loaded(record) if hasattr(record, 'read') or isinstance(record, Link)
            else [item if type(item) is bytes else _loaded(item) for item in record]
            for record in records
        ]  # fmt: skip
    finally:
        close_files(records)


def _loaded(record: BinaryIO | Link) -> bytes | Link:
    if isinstance(record, Link):
        return record
    with record:
        return record.read()


def bind_encoders(
    schema: Schema, encoders: Mapping[str, Callable[..., Any]] | None
) -> dict[str, Callable[[Any], Any]]:
    """Returns the encoder of each field. Default: the built-in encoders.

    Raises:
        SpecError: A format has no encoder, or the arguments of a built-in type are invalid.
    """
    functions = registry.encoders if encoders is None else encoders
    if not isinstance(functions, Mapping):
        raise TypeError(f'encoders: expected a mapping of formats to functions, got {functions!r:.80}')
    bound = {}
    for name, field_type in schema.items():
        try:
            bound[name] = registry.bind_encoder(field_type.format, field_type.args, functions)
        except KeyError:
            expected = f'a type of {", ".join(sorted(functions))}{likely_type(field_type, functions)}'
            raise SpecError(name, expected, field_type.text) from None
        except ValueError as exc:
            raise SpecError.of_type(name, field_type.text, exc) from exc
    return bound


def encode_call(
    schema: Schema,
    encode_item: Callable[[str, Any, int | None], Any],
    values: Mapping[str, Any],
    counts: Mapping[str, int] | None,
) -> list[tuple[str, Any]]:
    """Returns the records of items of sequences, or of values of plain fields.

    Args:
        schema: The types of all fields.
        encode_item: Returns the record of a value, given its field and the number of the item.
        values: Items or values by field.
        counts: Number of items of each sequence so far; None for plain fields.

    Raises:
        EncodeError: The field does not exist, is plain where a sequence is needed or the reverse, or a value
            cannot be encoded.
    """
    found: list[tuple[str, Any]] = []
    try:
        for name, value in values.items():
            field_type = schema.get(name)
            if field_type is None:
                raise EncodeError(str(name), '', not_in_spec(name, schema))
            if field_type.sequence is (counts is None):
                is_plain = counts is not None
                detail = 'is not a sequence: set() sets it' if is_plain else 'is a sequence: append() appends'
                raise EncodeError(name, field_type.text, detail)
            record = encode_item(name, value, None if counts is None else counts[name])
            # The file of a caller may be moved before the record is written.
            if isinstance(record, BorrowedFile):
                record = _loaded(record)  # type: ignore[arg-type]
            found.append((name, record))
    except BaseException:
        close_files(record for _, record in found)
        raise
    return found


def close_files(records: Iterable[Any]) -> None:
    """Closes the records that are open files."""
    for record in records:
        if hasattr(record, 'read'):
            record.close()
