"""Selections: the fields, and the items of sequences, to read. No I/O."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from bags.dataset.format.registry import (
    STRUCTURED_FORMATS,
    VIDEO_FORMATS,
    are_pictures,
    decoders,
    has_varying_rows,
)
from bags.dataset.format.spec import FieldType, Schema
from bags.dataset.reading.batch import concat_ranges
from bags.indexing import MAX_INT64, Int64s, as_integers, offsets_of
from bags.validation import no_field

Fill = Literal['nearest', 'previous', 'linear', 'exact']
Padding = Literal['edge', 'zero', 'drop']


@dataclasses.dataclass(frozen=True)
class Times:
    """Items at times relative to an anchor: the result of `bags.times`.

    Examples:
        >>> bags.times(-0.1, 0.0).offsets
        (-0.1, 0.0)
    """

    offsets: tuple[float, ...]
    """Seconds from the anchor, in the order of the items of a window."""
    fill: Fill
    tolerance: float | None
    gaps: Literal['raise', 'pad']
    has_rate: bool = dataclasses.field(default=False, repr=False)
    """Whether the offsets divide a range at a rate."""

    @property
    def count(self) -> int:
        """Number of items of a window."""
        return len(self.offsets)


@dataclasses.dataclass(frozen=True)
class Steps:
    """Items at steps relative to an anchor: the result of `bags.steps`.

    Examples:
        >>> bags.steps(-1, 1)
        Steps(start=-1, stop=1)
    """

    start: int
    stop: int

    @property
    def count(self) -> int:
        """Number of items of a window."""
        return self.stop - self.start


@dataclasses.dataclass(frozen=True)
class Between:
    """Elements in an interval of time relative to an anchor: the result of `bags.between`.

    Examples:
        >>> bags.between(-0.5, 0.0)
        Between(start=-0.5, stop=0.0, closed='left', count=None, keep='last')
    """

    start: float
    stop: float
    """Seconds from the anchor."""
    closed: Literal['left', 'right']
    """Which end of the interval belongs to it."""
    count: int | None
    """Number of elements of a window; None for all elements of the interval."""
    keep: Literal['first', 'last']
    """Which elements of the interval to keep if it has more than `count`."""


Span = Times | Steps | Between


@dataclasses.dataclass(frozen=True, eq=False)
class PerRowItems:
    """Items that differ from row to row: items of a sequence, frames of a video, or rows of an array.

    Rows `[start, stop)` of the arrays `tokens` of many datapoints are read with one call, in any order and
    with repeats. Reads of one file are merged:

        items = PerRowItems(starts, stops - starts)
        ragged = dataset.read_selection(indices, {'tokens': items}, read_column)['tokens']

    `ragged.values` has the rows of all datapoints, concatenated, and `ragged.offsets` where each begins.
    Starts are at least 0; IndexError is raised for rows beyond the end of an array.
    """

    starts: Int64s | None
    """The first item of each row, shape (B,), if each row has consecutive items; else None."""
    counts: Int64s
    """Number of items of each row, shape (B,)."""
    listed: Int64s | None = None
    """The items of all rows, concatenated, if `starts` is None."""
    are_frames: bool = False
    """Whether the items are frames of a value, or of a sequence of values as one."""

    @property
    def numbers(self) -> Int64s:
        """The items of all rows, concatenated, each in `range` of its sequence."""
        if self.listed is not None:
            return self.listed
        assert self.starts is not None
        return concat_ranges(self.starts, self.counts)

    def expect_within(self, counts: Int64s) -> None:
        """Raises IndexError if an item is outside its sequence; `counts` are the lengths of the sequences."""
        if self.starts is not None:
            is_beyond = self.starts + self.counts > counts
        else:
            is_beyond = self.numbers >= np.repeat(counts, self.counts)
        if is_beyond.any():
            raise IndexError('items that a view takes from a sequence no longer exist')

    def take(self, rows: Int64s) -> PerRowItems:
        """Returns the items of these rows."""
        counts = self.counts[rows]
        if self.starts is not None:
            return PerRowItems(self.starts[rows], counts, None, self.are_frames)
        firsts = (np.cumsum(self.counts) - self.counts)[rows]
        return PerRowItems(None, counts, self.numbers[concat_ranges(firsts, counts)], self.are_frames)


@dataclasses.dataclass(frozen=True, eq=False)
class FrameSelection:
    """Frames of a value, such as a video, or of a sequence of values as if they were one."""

    key: Any
    """A slice or numbers, as for `Video`; None for their number; 'times' for their times and the end."""

    def __repr__(self) -> str:
        if isinstance(self.key, slice):
            return f'bags.frames({self.key.start}, {self.key.stop}, {self.key.step})'
        return f'bags.frames({self.key!r})'


Items = range | slice | list[int] | PerRowItems | FrameSelection
Asked = Items | Literal[True]
"""The requested part of a field: True for all, or items, or frames."""
Selection = dict[str, Asked]
"""Maps fields to True, or to the items of their sequences, in the order of the result."""
Fields = str | Iterable[str] | Mapping[str, Any] | None


def select_fields(fields: Fields, schema: Schema) -> Selection:
    """Converts names or a mapping, as given by the user, to a selection.

    Args:
        fields: None for all fields; a name; names; or a mapping of names to True, False (left out) or items.

    Raises:
        KeyError: A field does not exist.
        TypeError: The argument is not a selection, or selects items of a field that has none.
    """
    if fields is None:
        return dict.fromkeys(schema, True)
    if isinstance(fields, str):
        fields = (fields,)
    if not isinstance(fields, Mapping):
        try:
            fields = dict.fromkeys(fields, True)
        except TypeError:
            raise TypeError(f'fields: expected a name, names or a mapping of them, got {fields!r}') from None
    selection: Selection = {}
    for name, items in fields.items():
        if name not in schema:
            if not isinstance(cast('object', name), str):  # E.g. the integers in bytes.
                raise TypeError(f'fields: expected names, got {name!r}')
            raise KeyError(no_field(name, schema) + _advice_of_path(name, schema))
        if items is True:
            selection[name] = True
        elif isinstance(items, range | slice) and schema[name].sequence:
            selection[name] = items
        elif items is not False:
            selection[name] = _as_items(name, items, schema)
    return selection


def has_items(field_type: FieldType) -> bool:
    """Returns whether items of a field can be selected: of a sequence, or the rows of an array."""
    return field_type.sequence or has_varying_rows(field_type)


def _advice_of_path(name: str, schema: Schema) -> str:
    """Returns advice for the path of a value inside a field, which only conditions take."""
    field = name
    while '.' in field:
        field = field.rpartition('.')[0]
        if field in schema and schema[field].format in STRUCTURED_FORMATS:
            return (
                f"; {field!r} is {schema[field].text}: dataset.filter('{name} == …') tests values inside it"
            )
    return ''


def select_whole(fields: Fields, schema: Schema, what: str) -> list[str]:
    """Returns the names of selected fields, for the function `what`, which cannot select items.

    Raises:
        KeyError, TypeError: As `select_fields`. TypeError also for items of a sequence.
    """
    selection = select_fields(fields, schema)
    for name, items in selection.items():
        if items is not True:
            raise TypeError(f'{what}: expected fields as a whole, got items {items!r} of {name!r}')
    return list(selection)


def check_name(field: str) -> None:
    """Raises TypeError if an argument is not the name of a field."""
    if not isinstance(cast('object', field), str):
        raise TypeError(f'field: expected the name of a field, got {field!r:.80}')


def check_sequence(field: str, schema: Schema) -> None:
    """Raises TypeError or KeyError if an argument is not a sequence field."""
    check_name(field)
    select_fields(field, schema)
    if not schema[field].sequence:
        raise TypeError(f'field {field!r} of type {schema[field].text}: expected a sequence field')


def frames(start: Any, stop: SupportsIndex | None = None, step: SupportsIndex = 1) -> FrameSelection:
    """Returns a selection of frames of a video, of a sequence of clips, or of a sequence of images.

    `reader[i, {'video': bags.frames(1000, 1064)}]` is uint8, shape (64, height, width, 3); depth frames are
    uint16 (64, height, width). The frames of a sequence of clips are numbered through all clips. Only the
    clips that contain selected frames are read, and only their necessary part. Custom types have frames if
    their decoder has an attribute `frames`.

    Args:
        start, stop, step: As in a slice: clipped, and counted from the end if negative. Or a list of frames
            as `start`, in any order, with repeats.

    Examples:
        >>> videos = bags.open('videos')
        >>> videos[0, {'video': bags.frames(10, 14)}]['video'].shape
        (4, 360, 640, 3)
    """
    if start is None or (hasattr(start, '__index__') and not np.ndim(start)):  # Arrays have `__index__` too.
        bounds = [None if bound is None else operator.index(bound) for bound in (start, stop, step)]
        if bounds[2] == 0:
            raise ValueError('frames: expected a step other than 0')
        return FrameSelection(slice(*bounds))
    if stop is not None or isinstance(start, str | bytes):
        raise TypeError(f'frames: expected integers, or a list of them, got {start!r}')
    return FrameSelection(as_integers(start, 'frames'))


def _as_items(name: str, items: Any, schema: Schema) -> Items:
    if isinstance(items, FrameSelection):
        field_type = schema[name]
        have_frames = field_type.format not in decoders or field_type.format in VIDEO_FORMATS
        if not have_frames and not (field_type.sequence and are_pictures(field_type.format, field_type.args)):
            raise TypeError(f'field {name!r} of type {schema[name].text} has no frames: got {items!r}')
        return items
    if not has_items(schema[name]):
        expected = (
            'True, False or bags.frames(…)' if schema[name].format in VIDEO_FORMATS else 'True or False'
        )
        what = 'has no ? as its first dimension' if schema[name].format == 'array' else 'is not a sequence'
        detail = f'field {name!r} of type {schema[name].text} {what}'
        raise TypeError(f'{detail}: expected {expected}, got {items!r}')
    if isinstance(items, list | tuple | np.ndarray):
        return as_integers(items, f'field {name!r}')
    if isinstance(items, range | slice):
        return items
    raise TypeError(
        f'field {name!r}: expected True, False, a range, a slice or a list of items, got {items!r}'
    )


def select_items(items: range | slice | list[int], count: int) -> range | list[int]:
    """Returns the selected positions in a sequence of `count` items.

    Ranges and slices are clipped; in a list, negative positions count from the end.

    Raises:
        IndexError: A position in a list is out of range.
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


def select_many(
    items: Items, firsts: Int64s, counts: Int64s, present: npt.NDArray[np.bool_] | None = None
) -> tuple[Int64s, Int64s]:
    """Returns the selected records of many sequences, as indices in the bag, and their count per sequence.

    Args:
        items: The items of each sequence.
        firsts, counts: The first record of each sequence, and the number of records.
        present: Which sequences are present. Default: all. Missing sequences have 0 items, even if `items`
            is a list.

    Raises:
        IndexError: A position in a list is out of range of a present sequence.
    """
    assert not isinstance(items, FrameSelection)
    if isinstance(items, PerRowItems):
        items.expect_within(counts)
        return np.repeat(firsts, items.counts) + items.numbers, items.counts
    are_present = itertools.repeat(True, len(firsts)) if present is None else present.tolist()
    parts = [
        first + np.asarray(select_items(items, count) if is_present else [], np.int64)
        for first, count, is_present in zip(firsts.tolist(), counts.tolist(), are_present, strict=True)
    ]
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    return np.concatenate(parts) if parts else np.empty(0, np.int64), lengths


def items_of_rows(items: Items, counts: Int64s) -> PerRowItems:
    """Returns the selected positions in sequences of `counts` items, as `select_items`.

    Raises:
        IndexError: A position in a list, or in `PerRowItems`, is out of range.
    """
    if isinstance(items, PerRowItems):
        items.expect_within(counts)
        return items
    if isinstance(items, range) and items.step == 1:
        items = slice(max(items.start, 0), max(items.stop, 0))
    if isinstance(items, slice) and items.step in (None, 1):
        starts, stops = _clip(items.start, 0, counts), _clip(items.stop, MAX_INT64, counts)
        return PerRowItems(starts, np.maximum(stops - starts, 0))
    numbers, lengths = select_many(items, np.zeros_like(counts), counts)
    return PerRowItems(None, lengths, numbers)


def _clip(bound: SupportsIndex | None, default: int, counts: Int64s) -> Int64s:
    """Returns a bound of a slice for sequences of `counts` items."""
    number = default if bound is None else max(-MAX_INT64, min(operator.index(bound), MAX_INT64))
    return np.maximum(counts + number, 0) if number < 0 else np.minimum(counts, number)


class GroupedItems(NamedTuple):
    """The items that groups of rows need, to read the items of a group together.

    rows of a group    [3 4 5]       [9 10]         [3 4 5]
                                                        [5 6 7]
    items               3 4 5 9 10                   3 4 5 6 7
    firsts              0     3                      0   2
    """

    items: list[Int64s]
    """The items of each group."""
    firsts: Int64s
    """The position of the first item of each row among the items of its group, shape (B,)."""
    overlap: list[bool]
    """Whether rows of a group have items in common. Its items are then all from the first to the last."""


def group_items(items: PerRowItems, groups: Int64s) -> GroupedItems:
    """Returns the items of groups of rows; `groups` has the start of each, and the end of the last."""
    sizes, offsets = groups[1:] - groups[:-1], offsets_of(items.counts)
    bounds, firsts = offsets[groups], offsets[:-1] - np.repeat(offsets[groups[:-1]], sizes)
    ranges = itertools.pairwise(bounds.tolist())
    overlap = np.zeros(len(sizes), np.bool_)
    if items.starts is None or not len(sizes):
        return GroupedItems([items.numbers[slice(*bounds)] for bounds in ranges], firsts, overlap.tolist())
    low = np.minimum.reduceat(items.starts, groups[:-1])
    high = np.maximum.reduceat(items.starts + items.counts, groups[:-1])
    overlap = high - low < bounds[1:] - bounds[:-1]
    numbers = items.numbers if not overlap.all() else low[:0]
    of_groups = [
        np.arange(first, stop) if has_overlap else numbers[slice(*bounds)]
        for first, stop, has_overlap, bounds in zip(
            low.tolist(), high.tolist(), overlap.tolist(), ranges, strict=True
        )
    ]
    if overlap.any():
        firsts = np.where(np.repeat(overlap, sizes), items.starts - np.repeat(low, sizes), firsts)
    return GroupedItems(of_groups, firsts, overlap.tolist())


def divide(selection: Selection, groups: Sequence[Int64s]) -> list[Selection]:
    """Splits the selection of all rows into the selections of groups of rows."""
    if not any(type(items) is PerRowItems for items in selection.values()):
        return [selection] * len(groups)
    return [
        {name: items.take(rows) if type(items) is PerRowItems else items for name, items in selection.items()}
        for rows in groups
    ]
