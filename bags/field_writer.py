"""One field of a dataset folder that is being written: from values to records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from bags import bag, formats
from bags.errors import BagsError, EncodeError, SpecError
from bags.refs import MISSING
from bags.spec import FieldType, Spec

__all__ = ['RECORDS', 'FieldWriter', 'bind_encoders', 'close_file']

RECORDS = 0xFFFFFFFE
"""Most records of a field: the number after them stands for a missing value."""


class FieldWriter:
    """Writes the values of one field."""

    def __init__(self, name: str, kind: FieldType, encode: Callable[[Any], Any], writer: bag.Writer) -> None:
        self.name = name
        self.kind = kind
        self.writer = writer
        self.count = len(writer)
        """Records in the bag."""
        self._encode = encode
        self._missing = kind.optional and not kind.sequence

    def encode(self, value: Any) -> Any:
        """Returns the record of a value, bytes or an open file; None for a missing one.

        Raises:
            EncodeError: It cannot be encoded.
        """
        if value is None and self._missing:
            return None
        try:
            record = self._encode(value)
        except BagsError:
            raise
        except Exception as exc:
            raise EncodeError(self.name, self.kind.text, f'{type(exc).__name__}: {exc}') from exc
        if type(record) is bytes or hasattr(record, 'read'):
            return record
        try:
            return bytes(memoryview(record))
        except TypeError:
            detail = f'expected bytes from the encoder, got {type(record).__name__}'
            raise EncodeError(self.name, self.kind.text, detail) from None

    def write(self, record: Any) -> int:
        """Writes a record, and closes it if it is a file.

        Returns:
            The ref of the record; that of a missing value for None.

        Raises:
            EncodeError: It is too large, or a file that ends early.
        """
        if record is None:
            return MISSING
        try:
            if self.count >= RECORDS:
                raise ValueError(f'expected at most {RECORDS} records in a folder')
            if type(record) is bytes:
                self.writer.write(record)
            else:
                self.writer.write_file(record)
        except (ValueError, EOFError) as exc:
            raise EncodeError(self.name, self.kind.text, str(exc)) from exc
        finally:
            if type(record) is not bytes:
                close_file(record)
        self.count += 1
        return self.count - 1

    def write_items(self, values: Any) -> tuple[int, int]:
        """Writes the items of a sequence, one in memory at a time.

        Returns:
            The ref of the first and their number; those of a missing sequence for None.

        Raises:
            EncodeError: No sequence of values, or one of them cannot be encoded.
        """
        if values is None and self.kind.optional:
            return MISSING, 0
        try:
            if isinstance(values, str | bytes | bytearray | memoryview | Mapping):
                raise TypeError
            items = iter(values)
        except TypeError:
            detail = f'expected several values to iterate over, got {type(values).__name__}'
            raise EncodeError(self.name, self.kind.text, detail) from None
        first = self.count
        for value in items:
            self.write(self.encode(value))
        return (first, self.count - first) if self.count > first else (0, 0)

    def forget(self, count: int) -> None:
        """Drops the records after the first `count`, as far as they still wait in memory."""
        if self.count != count or len(self.writer) != count:
            self.writer.forget(count)
            self.count = len(self.writer)


def bind_encoders(
    spec: Spec, encoders: Mapping[str, Callable[..., Any]] | None
) -> dict[str, Callable[[Any], Any]]:
    """Returns the encoder of each field, of the built-in ones if none are given.

    Raises:
        SpecError: A word without a function, or arguments that a built-in type cannot have.
    """
    functions = formats.encoders if encoders is None else encoders
    bound = {}
    for name, kind in spec.items():
        try:
            bound[name] = formats.bind_encoder(kind.word, kind.args, functions)
        except KeyError:
            raise SpecError(name, f'a type of {", ".join(sorted(functions))}', kind.text) from None
        except ValueError as exc:
            raise SpecError(name, str(exc), kind.text) from exc
    return bound


def close_file(record: bytes | BinaryIO | None) -> None:
    """Closes what an encoder opened."""
    if record is not None and not isinstance(record, bytes):
        record.close()
