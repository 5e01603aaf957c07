"""Many rows of a field, read together: as a column of a batch, or as a list of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bags.concurrency import map_concurrently
from bags.dataset.batch import Column, Ragged, spread
from bags.dataset.field import Field
from bags.dataset.refs import MISSING
from bags.dataset.selection import Each, FrameSelection, Items, select_many
from bags.indexing import Int64s, offsets_of

__all__ = ['read_column', 'read_values']

Values = npt.NDArray[Any] | list[Any]

CONSTANT = (str, bytes, int, float, type(None))


def read_column(field: Field, refs: Any, items: Items | Literal[True]) -> Column:
    """Returns the column of a batch.

    Args:
        field: The field.
        refs: For a plain field, indices (B,); for a sequence, firsts and counts.
        items: True, or which items of each sequence.

    Raises:
        BadRef: A ref that leads outside the bag.
    """
    if isinstance(items, FrameSelection):
        found = _frames(field, refs, items)
        shapes = {np.shape(frames) if frames is not None else None for frames in found}
        return np.stack(found) if len(shapes) == 1 and None not in shapes else found
    if field.kind.sequence:
        firsts, counts = refs
        return _ragged(field, firsts, counts, items)
    field.check(refs, None)
    if field.kind.optional:
        return _where_present(refs, field.decoded)
    return _dense(field, refs)


def read_values(field: Field, refs: Any, items: Items | Literal[True]) -> list[Any]:
    """Returns the values of rows, each as its row would have it; arguments and errors as above."""
    if isinstance(items, FrameSelection):
        return _frames(field, refs, items)
    if field.kind.sequence:
        firsts, counts = refs
        field.check(firsts, counts)
        if isinstance(items, Each):
            return _each(field, firsts, counts, items)
        if field.is_remote:
            return _together(field, firsts, counts, items)
        before = (0,) * field.place
        rows = [before + row for row in zip(firsts.tolist(), counts.tolist(), strict=True)]
        return [field.read(row) if items is True else field.read_items(row, items) for row in rows]
    field.check(refs, None)
    if field.kind.optional:
        return _where_present(refs, field.decoded)
    return field.decoded(refs)


def _where_present(refs: Int64s, read: Callable[[Int64s], list[Any]]) -> list[Any]:
    """Returns a value for each ref, None for those of values that are missing."""
    present = refs != MISSING
    values = iter(read(refs[present]))
    return [next(values) if there else None for there in present.tolist()]


def _dense(field: Field, indices: Int64s) -> Values:
    """Returns values by their indices in the bag: one array if the type has that form."""
    array = field.array(indices)
    if array is not None:
        return array
    values = field.decoded(indices)
    if field.decoder.dtype is None or not all(isinstance(value, int) for value in values):
        return values
    try:
        # Integers whose records differ in length, as Granular has them.
        return np.array(values, field.decoder.dtype)
    except OverflowError:
        return values


# Sequences.


def _ragged(field: Field, firsts: Int64s, counts: Int64s, items: Items | Literal[True]) -> Ragged | list[Any]:
    present = (firsts != MISSING) | (counts > 0) if field.kind.optional else None
    field.check(firsts, counts)
    members, counts = _members(firsts, counts, items)
    values = _once(field, members) if type(items) is Each else _dense(field, members)
    if isinstance(values, np.ndarray):
        return Ragged(values, offsets_of(counts), present)
    if field.decoder.dtype is not None and not values:
        empty = np.empty((0, *field.decoder.shape), field.decoder.dtype)
        return Ragged(empty, offsets_of(counts), present)
    there = [True] * len(counts) if present is None else present.tolist()
    parts = _parts(values, counts)
    return [part if is_there else None for part, is_there in zip(parts, there, strict=True)]


def _members(firsts: Int64s, counts: Int64s, items: Items | Literal[True]) -> tuple[Int64s, Int64s]:
    """Returns the indices in the bag of all that is asked of sequences, and how many each has."""
    return (spread(firsts, counts), counts) if items is True else select_many(items, firsts, counts)


def _together(
    field: Field, firsts: Int64s, counts: Int64s, items: Items | Literal[True]
) -> list[list[Any] | None]:
    """Returns the values of many rows as rows have them, read at once."""
    present = (firsts != MISSING) | (counts > 0)
    members, counts = _members(firsts, counts, items)
    parts = _parts(field.values(members), counts)
    return [part if there else None for there, part in zip(present.tolist(), parts, strict=True)]


def _each(field: Field, firsts: Int64s, counts: Int64s, items: Each) -> list[list[Any]]:
    """Returns items that differ from row to row as rows have them: lists of values."""
    members, counts = select_many(items, firsts, counts)
    values = _once(field, members)
    if isinstance(values, np.ndarray):
        if field.decoder.is_scalar:
            values = values.tolist()
        else:
            values = [values[position, ...] for position in range(len(values))]
    return _parts(values, counts)


def _once(field: Field, members: Int64s) -> Values:
    """As `_dense`, for overlapping runs: what several of them have is read and decoded once."""
    if field.bag.is_sliced and field.decoder.dtype is not None:
        return _dense(field, members)
    indices, first, back = np.unique(members, return_index=True, return_inverse=True)
    if len(indices) == len(members):
        return _dense(field, members)
    values = _dense(field, indices)
    if isinstance(values, np.ndarray):
        return values[back]
    found = [values[place] for place in back.tolist()]
    repeated = np.ones(len(members), bool)
    repeated[first] = False
    # Every run owns its values: what is written to one does not show in another.
    for position in np.flatnonzero(repeated).tolist():
        value = found[position]
        if type(value) is np.ndarray:
            found[position] = value.copy()
        elif field.decoder.decode is not None and not isinstance(value, CONSTANT):
            found[position] = field.value(int(members[position]))
    return found


def _parts(values: list[Any], counts: Int64s) -> list[list[Any]]:
    """Cuts a list into parts of these lengths."""
    ends = np.cumsum(counts).tolist()
    return [values[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)] if ends else []


# Frames.


def _frames(field: Field, refs: Any, selection: FrameSelection) -> list[Any]:
    """Returns frames of many rows."""
    firsts, counts = refs if field.kind.sequence else (refs, np.ones(len(refs), np.int64))
    field.check(*(refs if field.kind.sequence else (refs, None)))
    rows = zip(firsts.tolist(), counts.tolist(), strict=True)

    def read(row: tuple[int, int]) -> Any:
        return field.frames(*row, selection)

    return map_concurrently(read, list(rows), field.bag.is_remote)
