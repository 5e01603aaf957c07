"""Which fields, and which items of sequences, are asked for. No I/O."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.batch import spread
from bags.spec import Spec

__all__ = [
    'Each',
    'Fields',
    'Items',
    'Selection',
    'divide',
    'select_fields',
    'select_items',
    'select_many',
]

Int64s = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class Each:
    """Items that differ from row to row: what a view asks of the dataset below it, for a batch."""

    places: Int64s
    """Which items, row after row, each in `range` of its sequence."""
    counts: Int64s
    """How many of them each row has, shape (B,)."""

    def take(self, rows: Int64s) -> Each:
        """Returns what is asked of some of the rows."""
        counts = self.counts[rows]
        return Each(self.places[spread((np.cumsum(self.counts) - self.counts)[rows], counts)], counts)


Items = range | slice | list[int] | Each
Selection = dict[str, Any]
"""Field → True, or which items of its sequence, in the order asked."""
Fields = str | Iterable[str] | Mapping[str, Any] | None


def select_fields(fields: Fields, spec: Spec) -> Selection:
    """Returns what a user asks for as a selection.

    Args:
        fields: None for all; a name; names; or a mapping of names to True, False (left out) or items.

    Raises:
        KeyError: No such field.
        TypeError: No selection, or items of a field that is no sequence.
    """
    if fields is None:
        return dict.fromkeys(spec, True)
    if isinstance(fields, str):
        fields = (fields,)
    if not isinstance(fields, Mapping):
        try:
            fields = dict.fromkeys(fields, True)
        except TypeError:
            raise TypeError(f'fields: expected a name, names or a mapping of them, got {fields!r}') from None
    selection: Selection = {}
    for name, items in fields.items():
        if name not in spec:
            raise KeyError(f'no field {name!r}; those there are: {", ".join(map(repr, spec))}')
        if items is True:
            selection[name] = True
        elif items is not False:
            selection[name] = _as_items(name, items, spec)
    return selection


def _as_items(name: str, items: Any, spec: Spec) -> Items:
    if not spec[name].sequence:
        raise TypeError(
            f'field {name!r} of type {spec[name].text} is no sequence: expected True or False, got {items!r}'
        )
    if isinstance(items, range | slice):
        return items
    if isinstance(items, list | tuple | np.ndarray):
        return [operator.index(item) for item in items]
    raise TypeError(
        f'field {name!r}: expected True, False, a range, a slice or a list of items, got {items!r}'
    )


def select_items(items: range | slice | list[int], count: int) -> range | list[int]:
    """Returns the places that are asked for in a sequence of `count` items.

    Ranges and slices are cut off at its ends; in a list, negative places count from the end.

    Raises:
        IndexError: A place in a list is out of range.
    """
    if isinstance(items, slice):
        return range(count)[items]
    if isinstance(items, range):
        if items.step < 0:
            return select_items(items[::-1], count)[::-1]
        start = items.start if items.start >= 0 else items.start % items.step
        stop = min(items.stop, count)
        return range(start, max(start, stop), items.step)
    for item in items:
        if not -count <= item < count:
            raise IndexError(f'item {item} out of range [{-count}, {count})')
    return [item + count if item < 0 else item for item in items]


def select_many(items: Items, firsts: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """Returns the places asked for in many sequences, counted in the bag, and how many each has."""
    if isinstance(items, Each):
        if (items.places >= np.repeat(counts, items.counts)).any():
            raise IndexError('items that a view takes of a sequence are not there any more')
        return np.repeat(firsts, items.counts) + items.places, items.counts
    parts = [
        first + np.asarray(select_items(items, count), np.int64)
        for first, count in zip(firsts.tolist(), counts.tolist(), strict=True)
    ]
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    return np.concatenate(parts) if parts else np.empty(0, np.int64), lengths


def divide(selection: Selection, groups: Sequence[Int64s]) -> list[Selection]:
    """Returns what is asked of each group of rows, of a selection made for all of them."""
    if not any(type(items) is Each for items in selection.values()):
        return [selection] * len(groups)
    return [
        {name: items.take(rows) if type(items) is Each else items for name, items in selection.items()}
        for rows in groups
    ]
