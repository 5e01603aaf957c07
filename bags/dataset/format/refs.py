"""The refs table, which gives the records of each datapoint in the bags of the fields. No I/O.

A refs record is a msgpack array with one entry per field, in sorted order: a record index for a plain field,
`[first, count]` for a sequence. Every integer takes five bytes, so the records of a table differ only in the
numbers:

    spec {"id": "int(8)", "words": "utf8[]"}, the datapoint with record 7 and records 20 to 22:

    92  CE 00 00 00 07  92 CE 00 00 00 14 CE 00 00 00 03
    array of 2          array of 2

A bag of a million refs is read as one NumPy table, with one gather. Other rows (Bags 0.x writes short
integers) are unpacked one at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from bags.dataset.format.spec import FieldType, Schema
from bags.indexing import Int64s

Refs = Int64s | tuple[Int64s, Int64s]
"""The refs of n rows: the records of a plain field, (n,), or first records and counts of a sequence."""
MISSING = 0xFFFFFFFF
"""The record index of a missing value."""

ALL_ROWS = slice(None)
UINT32 = b'\xce'
PAIR = b'\x92'


def is_missing(firsts: Any, counts: Any = None) -> Any:
    """Returns which rows have missing values, given their first records, and for a sequence their counts.

    The arguments are integers, or arrays of them.
    """
    return firsts == MISSING if counts is None else (firsts == MISSING) & (counts == 0)


def dangling(
    field_type: FieldType, firsts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64] | None, records: int
) -> npt.NDArray[np.bool_]:
    """Returns which refs of a field point outside its bag.

    Args:
        field_type: The type of the field.
        firsts, counts: Its refs; `counts` is None for a plain field.
        records: Number of records in the bag.
    """
    last = firsts if counts is None else firsts + counts - 1
    bad: npt.NDArray[np.bool_] = last >= records  # Includes MISSING, which is greater than any index.
    if field_type.optional or counts is not None:
        missing = is_missing(firsts, counts)
        if counts is not None:
            bad &= counts > 0
        bad = bad & ~missing if field_type.optional else bad | missing
    return bad


class RefsFormat:
    """The format of the refs of a schema.

    A row of refs is a tuple of integers: one for a plain field, and two, first and count, for a sequence.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.sequences = frozenset(name for name, field_type in schema.items() if field_type.sequence)
        """The fields that are sequences."""
        header = msgpack.Packer().pack_array_header(len(schema))
        self.positions: dict[str, int] = {}
        """Position of each field's first integer in a row."""
        self.tags: list[bytes] = []
        """The bytes before each integer of a row."""
        starts: list[int] = []
        self.stride = 0
        """Bytes of a row."""
        for name, field_type in schema.items():
            self.positions[name] = len(self.tags)
            for number in range(1 + field_type.sequence):
                tag = PAIR + UINT32 if field_type.sequence and not number else UINT32
                self.tags.append(tag if self.tags else header + tag)
                starts.append(self.stride + len(self.tags[-1]))
                self.stride += len(self.tags[-1]) + 4
        form = ['>', *(f'{len(tag)}sI' for tag in self.tags)]
        self._struct = struct.Struct(''.join(form))
        self.unpack_numbers = struct.Struct(''.join(form).replace('s', 'x')).unpack_from
        """Reads the integers of a row from a buffer at an offset. The tags must be verified."""
        numbers = [*map(str, range(len(starts)))]
        self.dtype = np.dtype(
            {'names': numbers, 'formats': ['>u4'] * len(starts), 'offsets': starts, 'itemsize': self.stride}
        )
        """A row whose tags are verified: its integers, by position."""
        is_tag = np.ones(self.stride, bool)
        for start in starts:
            is_tag[start : start + 4] = False
        self._tag_bytes = np.flatnonzero(is_tag)
        self._expected = np.frombuffer(b''.join(self.tags), np.uint8)

    def pack(self, rows: npt.NDArray[np.int64]) -> bytes:
        """Returns the concatenated records of rows, shape (n, integers of a row)."""
        table = np.empty((len(rows), self.stride), np.uint8)
        table[:, self._tag_bytes] = self._expected
        numbers = table.view(self.dtype)[:, 0]
        for position in range(len(self.tags)):
            numbers[str(position)] = rows[:, position]
        return table.tobytes()

    def rows_after(self, firsts: Mapping[str, int], refs: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        """Returns the rows of new datapoints, shape (n, integers of a row).

        Args:
            firsts: Number of earlier records of each field.
            refs: For each field, the records relative to `firsts`: int64 (n,); for a sequence a pair of
                arrays, firsts and counts.
        """
        columns: list[Any] = []
        for name, field_type in self.schema.items():
            if field_type.sequence:
                starts, counts = refs[name]
                empty = np.where(starts == MISSING, MISSING, 0)
                columns += [np.where(counts > 0, starts + firsts[name], empty), counts]
            else:
                columns.append(np.where(refs[name] == MISSING, MISSING, refs[name] + firsts[name]))
        return np.stack(columns, 1)

    def unpack(self, record: bytes) -> tuple[int, ...]:
        """Returns the row of a record.

        Raises:
            ValueError: The record is not a msgpack array of the expected shape.
        """
        if len(record) == self.stride:
            slots = self._struct.unpack(record)
            if list(slots[::2]) == self.tags:
                return slots[1::2]
        return self._unpack_other(record)

    def _unpack_other(self, record: bytes) -> tuple[int, ...]:
        try:
            entries = msgpack.unpackb(record)
        except Exception as exc:  # The errors of msgpack do not share a class.
            raise ValueError(f'is not msgpack: {exc}') from exc
        if not isinstance(entries, list) or len(entries) != len(self.schema):
            raise ValueError(f'expected an array of {len(self.schema)} refs, got {entries!r:.80}')
        row: list[int] = []
        for (name, field_type), entry in zip(self.schema.items(), entries, strict=True):
            numbers = (
                ((entry or [0, 0]) if isinstance(entry, list) else None) if field_type.sequence else [entry]
            )
            if (
                numbers is None
                or len(numbers) != 1 + field_type.sequence
                or any(type(number) is not int or not 0 <= number <= MISSING for number in numbers)
            ):
                shape = '[first, count]' if field_type.sequence else 'an index'
                raise ValueError(f'field {name!r}: expected {shape}, got {entry!r:.80}')
            row.extend(numbers)
        return tuple(row)

    def has_tags(self, rows: npt.NDArray[np.uint8]) -> bool:
        """Returns whether all records, shape (n, stride), have the tags of this format."""
        return bool((rows[:, self._tag_bytes] == self._expected).all())

    def columns(
        self, rows: npt.NDArray[Any], names: Sequence[str], chosen: npt.NDArray[np.int64] | slice = ALL_ROWS
    ) -> dict[str, Any]:
        """Returns the refs of some fields from many rows.

        Args:
            rows: Rows of `dtype`, shape (n,).
            names: The fields.
            chosen: The rows to return.

        Returns:
            For a plain field int64 (n,); for a sequence a pair of such arrays, firsts and counts.
        """
        found: dict[str, Any] = {}
        for name in names:
            position = self.positions[name]
            found[name] = rows[str(position)][chosen].astype(np.int64)
            if name in self.sequences:
                found[name] = found[name], rows[str(position + 1)][chosen].astype(np.int64)
        return found

    def is_identity(self, rows: npt.NDArray[Any], names: Sequence[str], start: int, stop: int) -> bool:
        """Returns whether rows of `dtype` refer to the records of their own indices, in some plain fields.

        This is true unless values are shared or missing.
        """
        indices, chosen = np.arange(start, stop), rows[start:stop]
        return all(np.array_equal(chosen[str(self.positions[name])], indices) for name in names)
