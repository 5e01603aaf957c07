"""Reads rows of arrays, which are their elements along the first dimension, without the rest of the records.

Rows of a record that is stored as it is, in a bag or in a linked file, are read from their bytes alone. A
compressed record, and one that is compared with its checksum, is read as a whole, and then sliced.

    tokens: array(uint16,?)    {'tokens': slice(2, 5)}    bytes 4 to 10 of the record
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.bag.records import FileRanges
from bags.concurrency import map_concurrently
from bags.dataset.format.registry import array_rows
from bags.dataset.reading.batch import concat_ranges
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.selection import Items, PerRowItems, items_of_rows
from bags.formats.arrays import check_elements, invalid_row, size_error
from bags.indexing import Int64s, offsets_of
from bags.storage.mmap_file import gather
from bags.storage.ranges import merge

MAX_SKIPPED_BYTES = 1 << 12
"""Bytes between selected rows that are cheaper to read than to skip with another range."""

Bytes = npt.NDArray[np.uint8]


class ArrayParts(NamedTuple):
    """Rows of the arrays of n records."""

    values: npt.NDArray[Any] | list[Any]
    """The rows of all records, concatenated, shape (rows, *shape); or a list with a value for each record, in
    raw mode, and if functions of the user return values that cannot be concatenated."""
    counts: Int64s
    """The number of rows of each record, shape (n,)."""


def read_rows(field: FieldReader, records: Int64s, items: Items) -> ArrayParts:
    """Returns rows of the arrays in records, which may repeat.

    Args:
        field: A plain field of arrays.
        records: The records, shape (n,).
        items: The rows to read from each record; see `items_of_rows`.

    Raises:
        CorruptError, DecodeError: Damaged data.
        IndexError: A row is out of range.
        TypeError: The records are in the form of another encoder.
    """
    decoder = field.decoder
    if decoder.rows is None and decoder.decode is not None:
        return _rows_of_values(field, records, items)
    rows, counts = read_row_bytes(field, records, items)
    if decoder.decode is None:
        bounds = itertools.pairwise(offsets_of(counts).tolist())
        return ArrayParts([rows[start:stop].tobytes() for start, stop in bounds], counts)
    assert decoder.rows is not None
    dtype, shape = decoder.rows
    values = rows.reshape(-1).view(dtype).reshape(len(rows), *shape)
    if dtype.kind in 'bU' and (bad := invalid_row(values)) is not None:
        record = int(np.searchsorted(offsets_of(counts), bad, 'right')) - 1
        try:
            check_elements(values[bad : bad + 1])
        except ValueError as exc:
            field.fail(int(records[record]), exc)
    return ArrayParts(values, counts)


def read_row_bytes(field: FieldReader, records: Int64s, items: Items) -> tuple[Bytes, Int64s]:
    """As `read_rows`, but returns the bytes of the rows, shape (rows, bytes of a row), and their counts."""
    bag, dtype_and_shape = field.bag, field.decoder.rows
    if dtype_and_shape is None:
        raise TypeError(
            f'field {field.name!r} of type {field.type.text}: expected the built-in decoder of arrays to '
            'select rows of records, got another one'
        )
    size = _row_bytes(*dtype_and_shape)
    located = bag.locate(records) if len(records) else []
    if bag.checksums is not None or not all(ranges.are_stored for ranges in located):
        return _slice_whole(field, records, items, size)
    stored = np.zeros(len(records), np.int64)
    for ranges in located:
        stored[_positions(ranges)] = ranges.stops - ranges.starts
    rows = items_of_rows(items, _count_rows(field, records, stored, size))
    if field.bounded.size_limit is not None and len(records):
        largest = int(rows.counts.argmax())
        field.bounded.expect_size(int(records[largest]), int(rows.counts[largest]) * size, None)

    def read(ranges: FileRanges) -> Bytes:
        positions = ranges.positions
        try:
            return _read_ranges(ranges, rows if positions is None else rows.take(positions), size)
        except EOFError as exc:
            index = int(records[0 if positions is None else positions[0]]) if len(records) == 1 else None
            raise bag.cut_error(index, exc) from exc

    parts = map_concurrently(read, located, any(ranges.file.is_remote for ranges in located))
    if len(parts) == 1 and located[0].positions is None:
        return parts[0], rows.counts
    offsets = offsets_of(rows.counts)
    data = np.empty((int(offsets[-1]), size), np.uint8)
    for ranges, part in zip(located, parts, strict=True):
        positions = _positions(ranges)
        data[concat_ranges(offsets[:-1][positions], rows.counts[positions])] = part
    return data, rows.counts


def read_rows_of_one(field: FieldReader, record: int, items: Items) -> Any:
    """Returns rows of the array in one record, as `read_rows`.

    Raises:
        Exception: As `read_value` of columns.
    """
    rows = field.decoder.rows
    is_plain = rows is not None and field.decoder.decode is not None and rows[0].kind not in 'bU'
    if is_plain and rows is not None and isinstance(items, slice) and items.step in (None, 1):
        # 5 us of a mapped bag, and 10 us of a linked file instead of 51 us as a batch of one.
        part = _stored_rows(field, record, items, *rows)
        if part is not None:
            return part
    values = read_rows(field, np.array([record], np.int64), items).values
    return values[0] if isinstance(values, list) else values


def _stored_rows(
    field: FieldReader, record: int, items: slice, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> npt.NDArray[Any] | None:
    """Returns rows of the array in one record, read alone; None if the caller has to read the record."""
    bag, size = field.bag, _row_bytes(dtype, shape)
    if bag.checksums is not None or bag.is_remote:
        return None
    whole = bag.get_view(record) if bag.in_place else None
    stored = bag.stored_range(record) if whole is None else None
    if whole is not None:
        length = len(whole)
    elif stored is not None:
        length = stored[2] - stored[1]
    else:
        return None
    start, stop, _ = items.indices(length // size)
    limit = field.bounded.size_limit
    count = max(stop - start, 0)
    is_invalid = length % size or field.decoder.length not in (0, length)
    if is_invalid or (limit is not None and count * size > limit.max_size):
        return None
    if whole is not None:
        data: Any = whole[start * size : (start + count) * size]
    else:
        assert stored is not None
        file, first, _ = stored
        data = file.read(first + start * size, first + (start + count) * size)
    return np.ndarray((count, *shape), dtype, data).copy()


def _row_bytes(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    return math.prod(shape) * dtype.itemsize


def _positions(ranges: FileRanges) -> Any:
    return slice(None) if ranges.positions is None else ranges.positions


def _count_rows(field: FieldReader, records: Int64s, stored: Int64s, size: int) -> Int64s:
    """Returns the number of rows of records, given their bytes.

    Raises:
        DecodeError: A record does not consist of whole rows, or has another number of rows than its type.
    """
    length = field.decoder.length
    bad = (stored != length) if length else stored % size != 0
    if np.count_nonzero(bad):
        position = int(bad.argmax())
        error = size_error(field.type.args, int(stored[position]))
        field.fail(int(records[position]), error)
    return stored // size


def _read_ranges(ranges: FileRanges, rows: PerRowItems, size: int) -> Bytes:
    """Reads rows of records in one file, each of `size` bytes."""
    if not len(ranges.starts):
        return np.empty((0, size), np.uint8)
    if rows.starts is not None:
        starts = ranges.starts + rows.starts * size
        parts = ranges.file.read_many(starts, starts + rows.counts * size)
        return np.frombuffer(bytearray().join(parts), np.uint8).reshape(-1, size)
    starts = np.repeat(ranges.starts, rows.counts) + rows.numbers * size
    if not len(starts):
        return np.empty((0, size), np.uint8)
    runs = merge(starts, starts + size, MAX_SKIPPED_BYTES)
    data = b''.join(ranges.file.read_many(runs.starts, runs.stops))
    firsts = offsets_of(runs.stops - runs.starts)[:-1] - runs.starts
    return gather(data, len(data), firsts[runs.owner] + starts, size)


def _slice_whole(field: FieldReader, records: Int64s, items: Items, size: int) -> tuple[Bytes, Int64s]:
    """Reads each record once, as a whole, and returns rows of it."""
    unique, inverse = np.unique(records, return_inverse=True)
    whole = field.bounded.read(unique, views=True)
    stored = np.fromiter(map(len, whole), np.int64, len(whole))
    rows = items_of_rows(items, _count_rows(field, unique, stored, size)[inverse])
    tables = [np.frombuffer(data, np.uint8).reshape(-1, size) for data in whole]
    parts = [tables[owner][key] for owner, key in zip(inverse.tolist(), _keys(rows), strict=True)]
    return np.concatenate([np.empty((0, size), np.uint8), *parts]), rows.counts


def _rows_of_values(field: FieldReader, records: Int64s, items: Items) -> ArrayParts:
    """Returns rows of values that functions of the user decode."""
    unique, inverse = np.unique(records, return_inverse=True)
    values = field.decoded(unique)
    rows = items_of_rows(items, np.fromiter(map(len, values), np.int64, len(values))[inverse])
    parts = [values[owner][key] for owner, key in zip(inverse.tolist(), _keys(rows), strict=True)]
    if all(isinstance(part, np.ndarray) for part in parts):
        types = {(part.dtype, part.shape[1:]) for part in parts}
        if len(types) == 1:
            return ArrayParts(np.concatenate(parts), rows.counts)
        known = array_rows(field.type.format, field.type.args)
        if not parts and known is not None:
            return ArrayParts(np.empty((0, *known[1]), known[0]), rows.counts)
    return ArrayParts(parts, rows.counts)


def _keys(rows: PerRowItems) -> list[Any]:
    """Returns the index of NumPy for the rows of each array."""
    if rows.starts is not None:
        return list(map(slice, rows.starts.tolist(), (rows.starts + rows.counts).tolist()))
    return np.split(rows.numbers, np.cumsum(rows.counts)[:-1]) if len(rows.counts) else []
