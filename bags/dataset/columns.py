"""Batched reads of a field: as a column of a batch, as a list of values, or as records.

Each function takes a field, the refs of rows ((n,) indices, or for a sequence a pair of firsts and counts)
and the items to read of each row. It raises `BadRef` for a ref outside the bag.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bags.concurrency import map_concurrently
from bags.dataset.batch import Column, Ragged, spread
from bags.dataset.field import Field
from bags.dataset.refs import MISSING
from bags.dataset.selection import FrameSelection, Items, PerRowItems, select_many
from bags.formats.arrays import encode_array
from bags.indexing import Int64s, offsets_of

Asked = Items | Literal[True]
Values = npt.NDArray[Any] | list[Any]

IMMUTABLE = (str, bytes, int, float, type(None))


def read_column(field: Field, refs: Any, items: Asked) -> Column:
    """Returns the column of a batch."""
    if items is not True and _are_frames(items):
        found = _frames(field, refs, items)
        shapes = {np.shape(frames) if frames is not None else None for frames in found}
        return np.stack(found) if len(shapes) == 1 and None not in shapes else found
    if field.type.sequence:
        members, counts, present = _members(field, refs, items)
        values = _values(field, members, items)
        if isinstance(values, np.ndarray):
            return Ragged(values, offsets_of(counts), present if field.type.optional else None)
        return _cut(values, counts, present)
    field.check(refs, None)
    if field.type.optional:
        return _where_present(refs, field.decoded)
    return field.values(refs)


def read_values(field: Field, refs: Any, items: Asked) -> list[Any]:
    """Returns the value of each row; a sequence of fixed-size items is one array (n, *shape)."""
    if items is not True and _are_frames(items):
        return _frames(field, refs, items)
    if not field.type.sequence:
        return read_rows(field, refs, items, field.decoded)
    members, counts, present = _members(field, refs, items)
    return _cut(_values(field, members, items), counts, present)


def read_records(field: Field, refs: Any, items: Asked) -> list[bytes | None]:
    """Returns the undecoded records of a plain field, or of one item of each sequence."""
    found = read_stored(field, refs, items)
    if _are_frames(items):
        return [bytes(encode_array(frames)) for frames in found]
    return [record for records in found for record in records] if field.type.sequence else found


def read_stored(field: Field, refs: Any, items: Asked) -> list[Any]:
    """Returns undecoded records, a list for each sequence; for selected frames, the decoded frames."""
    if _are_frames(items):
        return _frames(field, refs, items)
    return read_rows(field, refs, items, lambda indices: list(field.bag.read(indices)))


def read_rows(field: Field, refs: Any, items: Asked, read: Callable[[Int64s], list[Any]]) -> list[Any]:
    """Calls `read` for the records of all rows; a missing value is None, and a sequence a list."""
    if field.type.sequence:
        members, counts, present = _members(field, refs, items)
        return _cut(read(members), counts, present)
    field.check(refs, None)
    return _where_present(refs, read) if field.type.optional else read(refs)


def _where_present(refs: Int64s, read: Callable[[Int64s], list[Any]]) -> list[Any]:
    """Returns a value for each ref; None if the value is missing."""
    present = refs != MISSING
    values = iter(read(refs[present]))
    return [next(values) if there else None for there in present.tolist()]


# Sequences.


def _members(field: Field, refs: Any, items: Asked) -> tuple[Int64s, Int64s, npt.NDArray[np.bool_]]:
    """Returns the record indices of the selected items, row after row.

    Also returns the number of items of each row, and whether the row has a value.
    """
    firsts, counts = refs
    field.check(firsts, counts)
    present = (firsts != MISSING) | (counts > 0)
    if items is not True:
        try:
            return *select_many(items, firsts, counts), present
        except IndexError as exc:
            raise IndexError(f'field {field.name!r}: {exc}') from None
    if len(counts):
        longest = int(counts.argmax())
        field.check_items(int(firsts[longest]), int(counts[longest]))
    return spread(firsts, counts), counts, present


def _values(field: Field, members: Int64s, items: Asked) -> Values:
    """Returns the values of records. A record in several windows is read and decoded once."""
    is_array = field.bag.in_place and field.decoder.dtype is not None
    if not isinstance(items, PerRowItems) or is_array:
        return field.values(members)
    indices, first, back = np.unique(members, return_index=True, return_inverse=True)
    if len(indices) == len(members):
        return field.values(members)
    values = field.values(indices)
    if isinstance(values, np.ndarray):
        return values[back]
    found = [values[position] for position in back.tolist()]
    repeated = np.ones(len(members), bool)
    repeated[first] = False
    # Windows do not share values: writing to one must not change another.
    for position in np.flatnonzero(repeated).tolist():
        value = found[position]
        if type(value) is np.ndarray:
            found[position] = value.copy()
        elif field.decoder.decode is not None and not isinstance(value, IMMUTABLE):
            found[position] = field.value(int(members[position]))
    return found


def _cut(values: Values, counts: Int64s, present: npt.NDArray[np.bool_]) -> list[Any]:
    """Splits concatenated values by row; None for a missing row."""
    ends = np.cumsum(counts)
    rows = zip(present.tolist(), (ends - counts).tolist(), ends.tolist(), strict=True)
    return [values[start:end] if there else None for there, start, end in rows]


# Frames of videos.


def _are_frames(items: Asked) -> bool:
    return isinstance(items, FrameSelection) or (isinstance(items, PerRowItems) and items.are_frames)


def _frames(field: Field, refs: Any, items: Any) -> list[Any]:
    """Returns frames of many rows; frames of one video are decoded together."""
    firsts, counts = refs if field.type.sequence else (refs, np.ones(len(refs), np.int64))
    field.check(firsts, counts if field.type.sequence else None)
    if isinstance(items, FrameSelection):
        rows = zip(firsts.tolist(), counts.tolist(), strict=True)
        return map_concurrently(lambda row: field.frames(*row, items), list(rows), field.bag.is_remote)
    found: list[Any] = [None] * len(firsts)
    positions, starts = items.numbers, np.cumsum(items.counts) - items.counts
    videos, which = np.unique(np.stack([firsts, counts], 1), axis=0, return_inverse=True)

    def read(video: int) -> None:
        rows = np.flatnonzero(which.reshape(-1) == video)
        wanted = positions[spread(starts[rows], items.counts[rows])]
        first, count = videos[video].tolist()
        frames = field.frames(first, count, FrameSelection(wanted))
        if frames is None:
            return
        ends = np.cumsum(items.counts[rows]).tolist()
        for row, start, end in zip(rows.tolist(), [0, *ends], ends, strict=False):
            found[row] = frames[start:end].copy()

    map_concurrently(read, range(len(videos)), field.bag.is_remote)
    return found
