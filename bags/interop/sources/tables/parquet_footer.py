"""The row groups of a Parquet file, read from its footer.

Reading column metadata with pyarrow crashes the process for some damaged footers.
"""

from __future__ import annotations

from typing import Any, BinaryIO, NamedTuple

_MAGIC = b'PAR1'
_END_BYTES = 8
"""Bytes after the footer: its length, in 4 bytes, and the magic number."""
_READ_BYTES = 1 << 16
"""Bytes that are read from the end of a file; most footers fit."""

# The fields of the footer that are read, by their number in parquet.thrift.
_STATISTICS = {3: int}  # null_count
_COLUMN = {3: [bytes], 12: _STATISTICS}  # path_in_schema, statistics
_ROW_GROUP = {1: [{3: _COLUMN}], 2: int, 3: int}  # columns, total_byte_size, num_rows
_FOOTER = {3: int, 4: [_ROW_GROUP]}  # num_rows, row_groups


class ParquetRowGroup(NamedTuple):
    """Consecutive rows of a file."""

    length: int
    """Number of rows."""
    size: int
    """Bytes of the encoded columns before compression."""
    nulls: dict[str, int]
    """For each column, the smallest number of nulls of its leaves; an unknown number counts as 1."""


def read_row_groups(file: BinaryIO) -> list[ParquetRowGroup]:
    """Returns the row groups of a Parquet file.

    Raises:
        ValueError: The footer is damaged.
    """
    size = file.seek(0, 2)
    start = max(0, size - _READ_BYTES)
    file.seek(start)
    end = file.read(size - start)
    length = int.from_bytes(end[-_END_BYTES:-4], 'little') + _END_BYTES
    if end[-4:] != _MAGIC or length > size:
        raise ValueError(f'expected a footer of {length} bytes before {_MAGIC!r}, got a file of {size} bytes')
    if length > len(end):
        file.seek(size - length)
        end = file.read(length)
    try:
        footer, _ = _struct(end[-length:], 0, _FOOTER)
        groups = [_row_group(group) for group in footer[4]]
        expected = footer[3]
    except (LookupError, ValueError, RecursionError) as exc:
        raise ValueError(f'its footer is damaged: {exc!r}') from exc
    lengths = [group.length for group in groups]
    if sum(lengths) != expected or min(lengths, default=0) < 0:
        raise ValueError(f'its footer is damaged: expected {expected} rows, got groups of {lengths!r:.80}')
    return groups


def _row_group(group: dict[int, Any]) -> ParquetRowGroup:
    nulls: dict[str, int] = {}
    for chunk in group[1]:
        name = chunk[3][3][0].decode()
        count = chunk[3].get(12, {}).get(3, 1)
        nulls[name] = min(count, nulls.get(name, count))
    return ParquetRowGroup(group[3], group[2], nulls)


# Thrift's compact protocol:
# https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
# Each function takes an offset in the data, and returns the offset after the value.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)


def _struct(data: bytes, offset: int, wanted: dict[int, Any]) -> tuple[dict[int, Any], int]:
    """Returns the fields of a struct that are in `wanted`, by number.

    The values of `wanted` are `int`, `bytes`, `[type]` for a list, or the fields of a struct.
    """
    fields: dict[int, Any] = {}
    number = 0
    while head := data[offset]:
        offset += 1
        if head >> 4:
            number += head >> 4
        else:
            number, offset = _integer(data, offset)
        if number in wanted:
            fields[number], offset = _value(data, offset, head & 15, wanted[number])
        elif head & 15 > _FALSE:  # Otherwise the type is the value.
            offset = _skip(data, offset, head & 15)
    return fields, offset + 1


def _value(data: bytes, offset: int, code: int, wanted: Any) -> tuple[Any, int]:
    """Parses a value whose type has a code; raises ValueError if `wanted` is another type."""
    if wanted is int and code in (_I16, _I32, _I64):
        return _integer(data, offset)
    if wanted is bytes and code == _BINARY:
        length, start = _varint(data, offset)
        return data[start : start + length], start + length
    if isinstance(wanted, dict) and code == _STRUCT:
        return _struct(data, offset, wanted)
    if isinstance(wanted, list) and code == _LIST:
        code, count, offset = _list(data, offset)
        items = []
        for _ in range(count):
            item, offset = _value(data, offset, code, wanted[0])
            items.append(item)
        return items, offset
    raise ValueError(f'expected another type than {code} at byte {offset}')


def _skip(data: bytes, offset: int, code: int) -> int:
    if code in (_I16, _I32, _I64):
        while data[offset] >= 0x80:
            offset += 1
        return offset + 1
    if code == _BINARY:
        length, offset = _varint(data, offset)
        return offset + length
    if code == _STRUCT:
        while head := data[offset]:
            offset += 1
            if head < 16:
                offset = _skip(data, offset, _I16)
            if head & 15 > _FALSE:
                offset = _skip(data, offset, head & 15)
        return offset + 1
    if code in (_LIST, _SET):
        code, count, offset = _list(data, offset)
        for _ in range(count):
            offset = _skip(data, offset, code)
        return offset
    if code in (_TRUE, _FALSE, _BYTE, _DOUBLE):
        return offset + (8 if code == _DOUBLE else 1)
    raise ValueError(f'expected a type of Parquet, got {code} at byte {offset}')


def _list(data: bytes, offset: int) -> tuple[int, int, int]:
    """Returns the type of the items of a list, and their number.

    Raises:
        ValueError: There are fewer bytes than items.
    """
    head, offset = data[offset], offset + 1
    count = head >> 4
    if count == 15:
        count, offset = _varint(data, offset)
    if count > len(data) - offset:
        raise ValueError(f'expected a list of {count} items at byte {offset}, got {len(data) - offset} bytes')
    return head & 15, count, offset


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[offset]) >= 0x80:
        value |= (byte & 0x7F) << shift
        shift, offset = shift + 7, offset + 1
        if shift > 63:
            raise ValueError(f'expected a number of 64 bits, got a longer one at byte {offset}')
    return value | byte << shift, offset + 1


def _integer(data: bytes, offset: int) -> tuple[int, int]:
    value, offset = _varint(data, offset)
    return value >> 1 ^ -(value & 1), offset
