"""Reads a field: computes the value of each row from its refs and the requested items.

- A row of a plain field has one record; a row of a sequence has the records `first` to `first + count`. A ref
  outside the bag raises `BadRef`.
- A row without a value has the ref `MISSING`, and in a sequence a count of 0. Only optional fields may have
  such rows: the value is None.
- Items of a sequence are the records that `select_items` selects, or `PerRowItems` for each row.
- Items of a plain field are rows of its arrays (see `array_rows`).
- Frames are frames of the value of a plain field, or of all values of a sequence, numbered as one video.

Each function takes a field, the refs of rows ((n,) indices, or for a sequence a pair of firsts and counts)
and the items to read from each row.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bags.concurrency import map_concurrently
from bags.dataset.format.refs import MISSING, Refs, dangling, is_missing
from bags.dataset.reading.array_rows import read_row_bytes, read_rows, read_rows_of_one
from bags.dataset.reading.batch import Column, Ragged, concat_ranges
from bags.dataset.reading.field_reader import FieldReader
from bags.dataset.reading.selection import (
    Asked,
    FrameSelection,
    Items,
    PerRowItems,
    group_items,
    select_items,
    select_many,
)
from bags.formats.arrays import encode_array
from bags.indexing import Int64s, group_equal, offsets_of

Values = npt.NDArray[Any] | list[Any]

IMMUTABLE = (str, bytes, int, float, type(None))


ReadField = Callable[[FieldReader, Refs, Asked], Column]
"""Makes the column of a field from the refs of rows: `read_column`, `read_values` or `read_records`."""


class BadRef(Exception):
    """An invalid ref: its position among the requested ones, and a description of the error."""

    def __init__(self, position: int, detail: str) -> None:
        self.position = position
        self.detail = detail


class RowRecords(NamedTuple):
    """The records from which rows are read."""

    records: Int64s
    """Indices in the bag, row after row."""
    counts: Int64s | None
    """The number of records of each row of a sequence, shape (n,); None in a plain field."""
    present: npt.NDArray[np.bool_] | None
    """Which rows have a value, shape (n,); None if all rows have one."""


def read_column(field: FieldReader, refs: Refs, items: Asked) -> Column:
    """Returns the column of a batch."""
    if items is not True and _are_frames(items):
        frames = _frames(field, refs, items)
        return np.stack(frames) if _have_one_shape(frames) else frames
    if items is not True and not field.type.sequence:
        rows, chosen = _array_parts(field, refs, items)
        if isinstance(rows, np.ndarray) and chosen.counts is not None:
            return Ragged(rows, offsets_of(chosen.counts), chosen.present)
        return _by_row(rows, chosen)
    chosen = choose_records(field, refs, items)
    if chosen.counts is not None:
        values = _item_values(field, chosen.records, items)
        if isinstance(values, np.ndarray):
            return Ragged(values, offsets_of(chosen.counts), chosen.present)
        return _by_row(values, chosen)
    if chosen.present is not None:
        return _by_row(field.decoded(chosen.records), chosen)
    return field.values(chosen.records)


def read_values(field: FieldReader, refs: Refs, items: Asked) -> list[Any]:
    """Returns the value of each row; a sequence of fixed-size items is one array (n, *shape)."""
    if items is not True and _are_frames(items):
        return _frames(field, refs, items)
    if items is not True and not field.type.sequence:
        return _by_row(*_array_parts(field, refs, items))
    chosen = choose_records(field, refs, items)
    if chosen.counts is not None:
        return _by_row(_item_values(field, chosen.records, items), chosen)
    values = field.decoded(chosen.records)
    return values if chosen.present is None else _by_row(values, chosen)


def read_records(field: FieldReader, refs: Refs, items: Asked) -> list[Any]:
    """Returns the undecoded record of each row, or a list for a sequence; frames as encoded arrays."""
    if _are_frames(items):
        return [bytes(encode_array(frames)) for frames in _frames(field, refs, items)]
    if items is not True and not field.type.sequence:
        return _array_part_records(field, refs, items)
    return read_with(field, refs, items, field.bag.read)


def read_presence(field: FieldReader, refs: Refs, _: Asked) -> Column:
    """Returns which rows have a value, bool (n,), without reading records."""
    firsts, counts = refs if isinstance(refs, tuple) else (refs, None)
    expect_refs(field, firsts, counts)
    present: Column = ~is_missing(firsts, counts)
    return present


def read_with(field: FieldReader, refs: Refs, items: Asked, read: Callable[[Int64s], list[Any]]) -> list[Any]:
    """Returns the result of `read` for the record of each row, or a list for a sequence."""
    chosen = choose_records(field, refs, items)
    return _by_row(read(chosen.records), chosen)


def read_value(field: FieldReader, first: int, count: int, items: Asked = True) -> Any:
    """Returns the value of one row, as `read_values`; `count` is 1 for a plain field.

    Raises:
        Exception: Anything unusual. The caller then reads the row as a batch, which raises the error to
            report.
    """
    # A shortcut: a row of a sequence of 8 texts takes 9 us with it, and 88 us as a batch of one; a missing
    # value 1.7 and 38 us.
    is_sequence = field.type.sequence
    if not is_sequence and not isinstance(items, FrameSelection):
        if first == MISSING and field.type.optional:
            return None
        return field.value(first) if items is True else read_rows_of_one(field, first, items)
    records = None
    if not field.type.optional or first != MISSING or (is_sequence and count):
        if first == MISSING or (count and first + count > field.bag.count):
            raise IndexError(first)
        records = range(first, first + count)
    if isinstance(items, FrameSelection):
        return field.frames(records, items)
    if records is None:
        return None
    if items is True:
        if count > field.decoder.max_items:
            field.check_items(first, count)
        return field.values(records)
    if isinstance(items, range) and items.start >= 0 and items.stop >= 0 and items.step > 0:
        items = slice(items.start, items.stop, items.step)
    if isinstance(items, slice):
        return field.values(records[items])
    assert not isinstance(items, PerRowItems)
    return field.values([records[item] for item in select_items(items, count)])


# The records of rows.


def choose_records(field: FieldReader, refs: Refs, items: Asked) -> RowRecords:
    """Returns the records of the rows.

    Raises:
        BadRef: A ref is outside the bag; names the first one.
        IndexError: An item is out of range of its sequence.
        DecodeError: A sequence of compressed items exceeds `max_value_size`.
    """
    if not isinstance(refs, tuple):
        if len(refs) and int(np.maximum.reduce(refs)) >= field.bag.count:  # `MISSING` exceeds all records.
            expect_refs(field, refs, None)
        if not field.type.optional:
            return RowRecords(refs, None, None)
        present = ~is_missing(refs)
        return RowRecords(refs[present], None, present)
    firsts, counts = refs
    if len(firsts) and (int((firsts + counts - 1).max()) >= field.bag.count or MISSING in firsts):
        expect_refs(field, firsts, counts)
    present = ~is_missing(firsts, counts)
    if items is not True:
        try:
            records, counts = select_many(items, firsts, counts, present)
        except IndexError as exc:
            raise IndexError(f'field {field.name!r}: {exc}') from None
    else:
        if len(counts):
            longest = int(counts.argmax())
            field.check_items(int(firsts[longest]), int(counts[longest]))
        records = concat_ranges(firsts, counts)
    return RowRecords(records, counts, present if field.type.optional else None)


def expect_refs(field: FieldReader, firsts: Int64s, counts: Int64s | None) -> None:
    """Raises BadRef for the first ref outside the bag."""
    bad = dangling(field.type, firsts, counts, field.bag.count)
    if np.count_nonzero(bad):
        position = int(bad.argmax())
        last = int(firsts[position] if counts is None else firsts[position] + counts[position] - 1)
        has_none = int(firsts[position]) == MISSING
        what = 'no value, in a field that is not optional' if has_none else f'record {last}'
        path, count = field.bag.path, field.bag.count
        raise BadRef(position, f'field {field.name!r}: refers to {what}; {path} has {count} records')


def _by_row(values: Values, chosen: RowRecords) -> list[Any]:
    """Returns the value of each row from the values of its records; None for a row without a value."""
    _, counts, present = chosen
    if counts is None:
        if present is None:
            return list(values)
        remaining = iter(values)
        return [next(remaining) if is_present else None for is_present in present.tolist()]
    ends = np.cumsum(counts)
    bounds = zip((ends - counts).tolist(), ends.tolist(), strict=True)
    if present is None:
        return [values[start:end] for start, end in bounds]
    rows = zip(present.tolist(), bounds, strict=True)
    return [values[start:end] if is_present else None for is_present, (start, end) in rows]


def _item_values(field: FieldReader, records: Int64s, items: Asked) -> Values:
    """Returns the values of records. A record in several windows is read and decoded once."""
    is_array = field.bag.in_place and field.decoder.dtype is not None
    if not isinstance(items, PerRowItems) or is_array:
        return field.values(records)
    indices, first, inverse = np.unique(records, return_index=True, return_inverse=True)
    if len(indices) == len(records):
        return field.values(records)
    decoded = field.values(indices)
    if isinstance(decoded, np.ndarray):
        return decoded[inverse]
    values = [decoded[position] for position in inverse.tolist()]
    repeated = np.ones(len(records), bool)
    repeated[first] = False
    # Windows must not share values: writing to one would change another.
    for position in np.flatnonzero(repeated).tolist():
        value = values[position]
        if type(value) is np.ndarray:
            values[position] = value.copy()
        elif field.decoder.decode is not None and not isinstance(value, IMMUTABLE):
            values[position] = field.value(int(records[position]))
    return values


# Rows of arrays.


def _array_parts(field: FieldReader, refs: Refs, items: Items) -> tuple[Values, RowRecords]:
    """Returns the selected rows of the array of each row, and the number of them."""
    chosen = choose_records(field, refs, True)
    if isinstance(items, PerRowItems) and chosen.present is not None:
        items = items.take(np.flatnonzero(chosen.present))
    values, counts = read_rows(field, chosen.records, items)
    if isinstance(values, list):
        return values, chosen
    return values, chosen._replace(counts=_with_missing(counts, chosen.present))


def _array_part_records(field: FieldReader, refs: Refs, items: Items) -> list[Any]:
    """Returns the bytes of the selected rows of the array of each row."""
    chosen = choose_records(field, refs, True)
    data, counts = read_row_bytes(field, chosen.records, items)
    parts = _by_row(data, chosen._replace(counts=_with_missing(counts, chosen.present)))
    return [None if part is None else part.tobytes() for part in parts]


def _with_missing(counts: Int64s, present: npt.NDArray[np.bool_] | None) -> Int64s:
    """Returns the number of items of each row; 0 for a row without a value."""
    if present is None:
        return counts
    all_counts = np.zeros(len(present), np.int64)
    all_counts[present] = counts
    return all_counts


# Frames of videos.


def _are_frames(items: Asked) -> bool:
    return isinstance(items, FrameSelection) or (isinstance(items, PerRowItems) and items.are_frames)


def _have_one_shape(frames: list[Any]) -> bool:
    shape = frames[0].shape if frames and isinstance(frames[0], np.ndarray) else None
    return shape is not None and all(isinstance(part, np.ndarray) and part.shape == shape for part in frames)


def _frames(field: FieldReader, refs: Refs, items: Asked) -> list[Any]:
    """Returns the frames of each row; None for a row without a value."""
    firsts, counts = refs if isinstance(refs, tuple) else (refs, None)
    expect_refs(field, firsts, counts)
    if isinstance(items, PerRowItems):
        return _frames_of_windows(field, refs, items)
    rows = zip(firsts.tolist(), repeat(1) if counts is None else counts.tolist(), strict=False)
    return map_concurrently(lambda row: read_value(field, *row, items), list(rows), field.bag.is_remote)


def _frames_of_windows(field: FieldReader, refs: Refs, items: PerRowItems) -> list[Any]:
    """Returns the frames of windows, with one read of each value; None for a window of a missing value."""
    keys = refs if isinstance(refs, tuple) else (refs,)
    order, groups = group_equal(*keys)
    values = [key[order[groups[:-1]]] for key in keys]
    records = list(zip(*(key.tolist() for key in values), strict=True))
    items = items.take(order)
    numbers, starts, overlap = group_items(items, groups)
    rows = list(zip(order.tolist(), starts.tolist(), (starts + items.counts).tolist(), strict=True))
    windows: list[Any] = [None] * len(rows)

    def read(group: int) -> None:
        first, count = records[group] if field.type.sequence else (*records[group], 1)
        frames = field.open_frames(range(first, first + count)).read_some(numbers[group])
        must_copy = overlap[group] or not frames.flags.owndata  # Writing to a window must not change others.
        for row, start, stop in rows[groups[group] : groups[group + 1]]:
            windows[row] = frames[start:stop].copy() if must_copy else frames[start:stop]

    map_concurrently(read, np.flatnonzero(~is_missing(*values)).tolist(), field.bag.is_remote)
    return windows
