"""`bags.bins`: lays out the datapoints of bins one after the other, with their positions and segments.

tokens of the datapoints   a a a | b b | c c c c      _bin  0 0 1     _start  0 5 0

rows of 6 (default)        tokens  a a a b b -   position_ids  0 1 2 0 1 0   segment_ids  1 1 1 2 2 0
                                   c c c c - -                 0 1 2 3 0 0                1 1 1 1 0 0
flat                       tokens  a a a b b c c c c   position_ids  0 1 2 0 1 0 1 2 3   cu_seqlens  0 3 5 9
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from bags.collate.columns import as_ragged, can_be_array
from bags.collate.padding import fill_of
from bags.dataset.reading.batch import Ragged
from bags.errors import StackError
from bags.indexing import Int64s, offsets_of
from bags.validation import at_least, no_field, one_of

Array = npt.NDArray[Any]
Names = str | tuple[str, ...]
PositionsOf = Literal['piece', 'document']

ZERO = np.zeros((), np.int32)
BIN, DATAPOINT, START, MASK = '_bin', '_datapoint', '_start', '_mask'


class Layout(NamedTuple):
    """Where the elements of n pieces are in their bins."""

    lengths: Int64s
    """Number of elements of each piece, shape (n,)."""
    begins: Int64s
    """The first element of each piece, and the end, shape (n + 1,)."""
    firsts: Int64s
    """The first piece of each bin, and the end, shape (bins + 1,)."""
    starts: Int64s
    """The first element of each bin, and the end, shape (bins + 1,)."""


@dataclasses.dataclass(frozen=True)
class Bins:
    """The function for `collate` that `bags.bins` returns. Picklable.

    Examples:
        >>> bags.bins(8192)
        Bins(lengths={(): 8192}, flat=False, value=0, positions='piece')
    """

    lengths: dict[tuple[str, ...], int | None]
    """The length of a bin for fields of equal lengths; () for all fields with elements."""
    flat: bool
    """Whether bins follow each other, instead of being rows."""
    value: Any
    """The padding value, or a mapping of fields to theirs."""
    positions: PositionsOf
    """Whether positions begin at 0 in each piece, or at its first element in the datapoint."""

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a batch whose fields with elements are laid out.

        Raises:
            KeyError: A field, or a field of `value`, is not in the batch.
            ValueError: Fields of a datapoint differ in their numbers of elements, or a bin is too long, or
                the batch already has one of the new columns.
            StackError: Elements of different shapes.
        """
        collated = dict(batch)
        for number, (names, length) in enumerate(self.lengths.items()):
            fields = list(names) or [
                name for name, column in batch.items() if can_be_array(column, numbers=False)
            ]
            if not fields:
                raise ValueError(f'bins: expected a field with elements, got the columns {list(batch)}')
            columns = {name: _ragged(name, batch) for name in fields}
            layout = _layout(batch, columns, length)
            prefix = '' if number == 0 else f'{fields[0]}_'
            new = self._columns(columns, layout, length, batch.get(START))
            for name, column in new.items():
                name = name if name in columns else prefix + name
                if name in collated and name not in columns:
                    raise ValueError(f'bins: the batch already has a column {name!r}: rename that field')
                collated[name] = column
        if isinstance(self.value, Mapping) and not self.flat:
            for name in self.value:
                if name not in batch:
                    raise KeyError(f'bins: value: {no_field(name, batch)}')
        if MASK in batch and not self.flat:
            of_bins = np.repeat(np.arange(len(layout.firsts) - 1), np.diff(layout.firsts))
            collated[MASK] = (
                np.bincount(of_bins[np.asarray(batch[MASK])], minlength=len(layout.firsts) - 1) > 0
            )
        return collated

    def _columns(
        self, columns: Mapping[str, Ragged], layout: Layout, length: int | None, firsts: Any
    ) -> dict[str, Array]:
        """Returns the laid out fields, and the positions and segments of their elements."""
        lengths, begins, pieces, starts = layout
        total = int(starts[-1])
        # The position of each element: counted through the batch, less the beginning of its piece.
        shifts = begins[:-1] if self.positions == 'piece' or firsts is None else begins[:-1] - firsts
        positions = np.arange(total, dtype=np.int32)
        positions -= np.repeat(shifts.astype(np.int32), lengths)
        if self.flat:
            laid_out = {name: column.values for name, column in columns.items()}
            return {**laid_out, 'position_ids': positions, 'cu_seqlens': begins.astype(np.int32)}
        assert length is not None
        numbers = np.arange(1, len(lengths) + 1) - np.repeat(pieces[:-1], pieces[1:] - pieces[:-1])
        segments = np.repeat(numbers.astype(np.int32), lengths)
        values = self.value if isinstance(self.value, Mapping) else dict.fromkeys(columns, self.value)
        laid_out = {
            name: _rows(column.values, starts, length, *fill_of(column.values.dtype, values.get(name, 0)))
            for name, column in columns.items()
        }
        ids = {'position_ids': positions, 'segment_ids': segments}
        return {
            **laid_out,
            **{name: _rows(column, starts, length, ZERO, ZERO.dtype) for name, column in ids.items()},
        }


def bins(
    length: int | Mapping[Names, int] | None = None,
    *,
    flat: bool = False,
    value: Any = 0,
    positions: PositionsOf = 'piece',
) -> Bins:
    """Returns a function for `collate` that lays out the datapoints of bins, as of `samplers.Packed`.

    The elements of the datapoints of a bin follow each other, in all fields alike. Besides, the batch gets
    `position_ids`, the position of each element in its piece, and the segments, for attention within a piece:

    - In rows: fields are arrays (bins, length, *shape), with `position_ids` and `segment_ids`, int32
      (bins, length). Segments count from 1 in each bin; padding has 0. The column `_mask` of a loader that
      pads has one value for each bin.
    - Flat: fields are arrays (elements, *shape) without padding, with `position_ids`, int32 (elements,), and
      `cu_seqlens`, the start of each piece and the end, int32 (pieces + 1,).

    Args:
        length: Length of a bin, the budget of the sampler, for all fields with elements: sequences, and
            arrays whose first dimension is `?`. For fields of several budgets, a mapping of a field, or of a
            tuple of fields with equal lengths, to its length: `{('tokens', 'loss_mask'): 8192, 'patches':
            1024}`. The columns of the first have the names above, and others are `patches_position_ids` and
            `patches_segment_ids` or `patches_cu_seqlens`. Flat bins need no length.
        flat: Whether bins follow each other in one dimension, instead of being rows.
        value: The padding value; or a mapping of fields to their padding values, 0 by default.
        positions: 'piece': positions begin at 0 in each piece. 'document': the pieces of a datapoint that is
            cut continue its positions.

    Raises:
        TypeError, ValueError: An option has the wrong type or value.

    Examples:
        >>> sampler = bags.samplers.Packed(12, dataset.lengths('state'))
        >>> loader = bags.Loader(
        ...     dataset, 2, fields='state', sampler=sampler, collate=bags.bins(12), workers=0
        ... )
        >>> batch = next(iter(loader))
        >>> batch['state'].shape, batch['segment_ids'][1]
        ((2, 12, 2), array([1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2], dtype=int32))
    """
    one_of('bins: positions', positions, get_args(PositionsOf))
    given: Mapping[Any, Any] = length if isinstance(length, Mapping) else {(): length}
    lengths: dict[tuple[str, ...], int | None] = {}
    for names, limit in given.items():
        fields = (names,) if isinstance(names, str) else names
        if not isinstance(fields, tuple) or not all(isinstance(name, str) for name in fields):
            raise TypeError(f'bins: length: expected names of fields, or tuples of names, got {names!r:.80}')
        if limit is None and not flat:
            raise ValueError('bins: expected a length, or flat=True')
        lengths[fields] = None if limit is None else at_least('bins: length', limit, 1)
    if not lengths:
        raise ValueError('bins: length: expected a field, got none')
    named = [name for fields in lengths for name in fields]
    if len(set(named)) < len(named):
        twice = next(name for name in named if named.count(name) > 1)
        raise ValueError(f'bins: length: expected each field once, got {twice!r} several times')
    return Bins(lengths, bool(flat), dict(value) if isinstance(value, Mapping) else value, positions)


def _ragged(name: str, batch: Mapping[str, Any]) -> Ragged:
    """Returns a column with its elements concatenated."""
    if name not in batch:
        raise KeyError(f'bins: {no_field(name, batch)}')
    try:
        return as_ragged(batch[name])
    except StackError as exc:
        raise StackError(exc.shapes, name) from None
    except Exception as exc:
        exc.add_note(f'field {name!r}')
        raise


def _layout(batch: Mapping[str, Any], columns: Mapping[str, Ragged], limit: int | None) -> Layout:
    """Returns the layout of fields, which must have equal lengths."""
    (first, column), *others = columns.items()
    lengths = column.lengths
    for name, other in others:
        differs = other.lengths != lengths
        if np.count_nonzero(differs):
            row = int(differs.argmax())
            raise ValueError(
                f'{_datapoint(batch, row)}: expected as many elements of {name!r} as of {first!r}, got '
                f'{other.lengths[row]} and {lengths[row]}: name fields of different lengths apart, as in '
                f'bags.bins({{{first!r}: …, {name!r}: …}})'
            )
    of_bins = np.asarray(batch[BIN]) if BIN in batch else np.arange(len(lengths))
    if np.count_nonzero(of_bins[1:] < of_bins[:-1]):
        raise ValueError('bins: expected datapoints in the order of their bins')
    count = int(of_bins[-1]) + 1 if len(of_bins) else 0
    firsts = np.searchsorted(of_bins, np.arange(count + 1))
    begins = offsets_of(lengths)
    starts = begins[firsts]
    sizes = starts[1:] - starts[:-1]
    if limit is not None and np.count_nonzero(sizes > limit):
        number = int(sizes.argmax())
        raise ValueError(
            f'bins: expected at most {limit} elements of {first!r} in a bin, got {sizes[number]} in bin '
            f'{number}, which begins with {_datapoint(batch, int(firsts[number]))}: expected the lengths of '
            'this field to be packed, with this budget'
        )
    return Layout(lengths, begins, firsts, starts)


def _datapoint(batch: Mapping[str, Any], row: int) -> str:
    return f'datapoint {batch[DATAPOINT][row]}' if DATAPOINT in batch else f'datapoint {row} of the batch'


def _rows(values: Array, starts: Int64s, length: int, fill: Array, dtype: np.dtype[Any]) -> Array:
    """Returns the elements of each bin as a row, with padding at its end."""
    rows = np.empty((len(starts) - 1, length, *values.shape[1:]), dtype)
    bounds = starts.tolist()
    for row, start, stop in zip(rows, bounds, bounds[1:], strict=False):
        row[: stop - start] = values[start:stop]
        row[stop - start :] = fill
    return rows
