"""What a check is given: `Field`, a field of the dataset, and `Column`, its values in some datapoints."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from bags.concurrency import cached_attribute
from bags.dataset.base import Dataset
from bags.dataset.format.metadata import UNITS
from bags.dataset.format.registry import (
    AUDIO_FORMATS,
    IMAGE_FORMATS,
    VIDEO_FORMATS,
    are_pictures,
    decoders,
    fixed_dtype,
)
from bags.dataset.format.spec import FieldType
from bags.dataset.reading.batch import Ragged
from bags.errors import BagsError
from bags.formats.arrays import array_type
from bags.indexing import Int64s, offsets_of

SAMPLED_DATAPOINTS = 256
"""Number of datapoints, evenly spaced, from which the usual values of a field are computed."""
SAMPLED_BYTES = 1 << 24
"""Bytes of values in the sample, approximately."""
TIME_NAMES = ('t', 'time', 'times', 'timestamp', 'timestamps')
"""Names of fields of times, whose metadata may have been lost."""
SPLIT_NAMES = ('split', 'subset', 'partition', 'fold')
"""Names of fields that say to which part of the dataset a datapoint belongs."""

READ_ERRORS = (BagsError, OSError, EOFError)
"""Errors of values that cannot be read."""

Array = npt.NDArray[Any]
Result = TypeVar('Result')


class Numbers(NamedTuple):
    """The numbers of a field in n datapoints."""

    items: Array
    """The values of all datapoints, one after the other, shape (items, d), in the dtype of the field. A plain
    field has one item per datapoint, unless it is missing."""
    offsets: Int64s
    """The start of each datapoint in `items`, and the end of the last, shape (n + 1,)."""

    @property
    def counts(self) -> Int64s:
        """Number of items of each datapoint, shape (n,)."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> Int64s:
        """The position of the datapoint of each item, shape (items,)."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.counts)

    def reduce(self, function: np.ufunc, values: Array, empty: Any) -> Array:
        """Reduces a number for each item to one for each datapoint; `empty` for a datapoint without items."""
        results = np.full(len(self.offsets) - 1, empty, np.result_type(values.dtype, type(empty)))
        filled = np.flatnonzero(self.counts)
        if len(filled):
            results[filled] = function.reduceat(values, self.offsets[:-1][filled])
        return results

    def steps(self) -> tuple[Array, Int64s]:
        """Returns the differences of consecutive items of a datapoint, and the position of the later item.

        Returns:
            float64 (steps, d), and (steps,).
        """
        if len(self.items) < 2:
            return np.empty((0, *self.items.shape[1:])), np.empty(0, np.int64)
        owners = self.owners
        later = np.flatnonzero(owners[1:] == owners[:-1]) + 1
        items = self.items.astype(np.float64, copy=False)
        with np.errstate(invalid='ignore', over='ignore'):
            return items[later] - items[later - 1], later

    def item_of(self, positions: Int64s, owners: Int64s) -> Int64s:
        """Returns the number of an item in its datapoint, from its position in `items`."""
        return positions - self.offsets[:-1][owners]


class Extent:
    """The smallest and largest numbers of a field, and how many are not finite, in the datapoints read."""

    def __init__(self) -> None:
        self.count = 0
        self.low = self.high = np.empty(0)
        """(d,), of finite numbers; inf and -inf if there are none."""

    def add(self, items: Array) -> None:
        """Adds items, shape (n, d)."""
        if not len(items) or (self.count and items.shape[1] != len(self.low)):
            return
        if not self.count:
            self.low, self.high = np.full(items.shape[1], np.inf), np.full(items.shape[1], -np.inf)
        self.count += len(items)
        low, high = items.min(0).astype(np.float64), items.max(0).astype(np.float64)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            are_finite = np.isfinite(items)
            low = np.where(are_finite, items, np.inf).min(0).astype(np.float64)
            high = np.where(are_finite, items, -np.inf).max(0).astype(np.float64)
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)


class Field:
    """A field of the dataset that is checked, and what is known of it.

    Examples:
        >>> from bags.types import Check, FieldScores
        >>> wide = Check(
        ...     name='large_dimensions',
        ...     severity='info',
        ...     bound=0,
        ...     reason='r',
        ...     bound_source='s',
        ...     applies=lambda field: field.dtype == np.float32 and field.has_items,
        ...     of_field=lambda field: FieldScores(field.extent.high > 12),
        ... )
        >>> bags.check(dataset, checks=[wide], only=['large_dimensions'])[0].detail
        'state[0], state[1]: 1'

    Args:
        dataset, name: The field.
        fields: All fields by name, this one included.
        window: Number of items of the windows that training uses; None if it is unknown.
        split: The field that says to which part of the dataset a datapoint belongs, if there is one.
        parts: The number of the part of each datapoint, (n,), if each part is a dataset of its own.
        has_own_decoders: Whether the dataset may have other decoders than the library.
    """

    def __init__(
        self,
        dataset: Dataset,
        name: str,
        fields: Mapping[str, Field],
        window: int | None = None,
        split: str | None = None,
        parts: Int64s | None = None,
        has_own_decoders: bool = True,
    ) -> None:
        self.has_own_decoders = has_own_decoders
        self.dataset, self.name, self.fields = dataset, name, fields
        self.window, self.split, self._parts = window, split, parts
        self.extent = Extent()
        """Of the numbers in the datapoints that were read so far."""
        self.kept: dict[str, npt.NDArray[Any]] = {}
        """Unsigned integers for each datapoint, (n,), on which the scores of later datapoints depend: a check
        that is resumed gets them back."""
        self._known: dict[Any, Any] = {}

    @property
    def type(self) -> FieldType:
        """The type of the field, parsed."""
        return self.dataset.schema[self.name]

    @cached_attribute
    def facts(self) -> Mapping[str, Any]:
        """The metadata of the field; empty if there is none."""
        found = self.dataset.metadata.get('fields', {}).get(self.name)
        return found if isinstance(found, Mapping) else {}

    @property
    def is_media(self) -> bool:
        """Whether values are files of images, videos or sound."""
        return self.type.format in (*IMAGE_FORMATS, *VIDEO_FORMATS, *AUDIO_FORMATS)

    @property
    def is_sound(self) -> bool:
        """Whether values are files of sound."""
        return self.type.format in AUDIO_FORMATS

    @property
    def is_video(self) -> bool:
        """Whether values are files of video."""
        return self.type.format in VIDEO_FORMATS

    @property
    def is_image(self) -> bool:
        """Whether values are images, also as arrays of pixels."""
        return are_pictures(self.type.format, self.type.args)

    @property
    def is_text(self) -> bool:
        """Whether values are texts."""
        return self.type.format == 'utf8'

    @property
    def has_decoder(self) -> bool:
        """Whether values of the type can be read."""
        return self.type.format in decoders

    @cached_attribute
    def dtype(self) -> np.dtype[Any] | None:
        """The dtype of the numbers of the field; None if it has no numbers, or pixels.

        Arrays whose first dimension varies have numbers: their rows are the items. Arrays of another or an
        unknown shape have none.
        """
        if self.is_image:
            return None
        fixed = fixed_dtype(self.type.format, self.type.args)
        if fixed is None and self.has_rows and (array := array_type(*self.type.args)) is not None:
            fixed = array
        return fixed[0] if fixed is not None and fixed[0].kind in 'biuf' else None

    @cached_attribute
    def shape(self) -> tuple[int, ...]:
        """The shape of an item; () for a number, or if it has no numbers."""
        fixed = fixed_dtype(self.type.format, self.type.args)
        if fixed is not None:
            return fixed[1]
        array = array_type(*self.type.args) if self.has_rows else None
        return () if array is None else array[1][1:]

    @cached_attribute
    def has_rows(self) -> bool:
        """Whether values are arrays whose first dimension varies: the items are their rows."""
        array = array_type(*self.type.args) if self.type.format == 'array' and self.type.args else None
        return array is not None and array[1][:1] == (-1,) and not self.type.sequence

    @property
    def has_items(self) -> bool:
        """Whether a datapoint has several items: a sequence, or rows of an array."""
        return self.type.sequence or self.has_rows

    @property
    def has_floats(self) -> bool:
        """Whether values are floating-point numbers."""
        return self.dtype is not None and self.dtype.kind == 'f'

    @cached_attribute
    def times(self) -> str | None:
        """The field with the times of the items; None if there is none."""
        name = self.facts.get('times')
        if not isinstance(name, str) or name not in self.fields or not self.fields[name].type.sequence:
            return None
        return name if self.fields[name].dtype is not None else None

    @cached_attribute
    def parts(self) -> Int64s | None:
        """The number of the split of each datapoint, (n,); None if the dataset is not split."""
        if self._parts is not None or self.split is None or self.split == self.name:
            return self._parts
        column = self.fields[self.split].readable(np.arange(len(self.dataset)))
        names, parts = np.unique(np.array([str(value) for value in column.values]), return_inverse=True)
        of_all = np.full(len(self.dataset), len(names))
        of_all[column.rows] = parts
        return of_all

    @cached_attribute
    def clock(self) -> str | None:
        """The field whose times are checked with this field; None if there is none.

        It is the field of the times of its items, if no earlier field has the same; or itself, if its name
        says that its numbers are times, and no field uses them.
        """
        if self.times is not None:
            first = next(other for other in self.fields.values() if other.times == self.times)
            return self.times if first is self else None
        is_own = self.name.rpartition('.')[2] in TIME_NAMES and self.type.sequence and not self.is_clock
        return self.name if is_own and self.dtype is not None and not self.shape else None

    @property
    def has_times_as_values(self) -> bool:
        """Whether the numbers of the field are times."""
        return self.is_clock or self.clock == self.name

    @cached_attribute
    def rate(self) -> float | None:
        """The items per second in the metadata; None if it has none, or a field of times."""
        rate = self.facts.get('rate')
        if not isinstance(rate, int | float) or isinstance(rate, bool) or self.times is not None:
            return None
        return float(rate) if 0 < rate < math.inf else None

    @cached_attribute
    def is_clock(self) -> bool:
        """Whether the numbers are the times of the items of another field."""
        return any(other.times == self.name for other in self.fields.values())

    @cached_attribute
    def sample(self) -> Column:
        """The values in some datapoints, evenly spaced over the dataset."""
        count = len(self.dataset)
        chosen = min(count, SAMPLED_DATAPOINTS)
        rows = np.unique(np.linspace(0, count - 1, chosen).astype(np.int64)) if count else np.arange(0)
        if self.has_items and self.dtype is not None and len(rows):
            sizes = Column(self, rows).lengths * self.dtype.itemsize * math.prod(self.shape)
            step = max(1, math.ceil(int(sizes.sum()) / SAMPLED_BYTES))
            rows = rows[::step]
        # Values of media are not read: checks of their headers do not decode them.
        return Column(self, rows) if self.is_media else self.readable(rows)

    def readable(self, rows: Int64s) -> Column:
        """Returns the values in those of some datapoints that are not damaged."""
        column = Column(self, rows)
        try:
            _ = column.values
        except READ_ERRORS:
            column = Column(self, rows[[self._is_readable(row) for row in rows]])
        return column

    def _is_readable(self, row: int) -> bool:
        try:
            _ = Column(self, np.array([row])).values
        except READ_ERRORS:
            return False
        return True

    def forget(self) -> None:
        """Drops values that were kept for the checks of this field."""
        self._known, self.kept = {}, {}
        vars(self).pop('sample', None)

    def once(self, function: Callable[[Field], Result]) -> Result:
        """Returns the result of a function of this field, which is computed once."""
        if function not in self._known:
            self._known[function] = function(self)
        return self._known[function]  # type: ignore[no-any-return]

    def dimension(self, number: int) -> str:
        """Returns the name of a dimension: `state[3] (elbow)`, with the name in the metadata."""
        if not self.shape:
            return self.name
        index = ','.join(map(str, np.unravel_index(number, self.shape)))
        names = self.facts.get('names')
        is_named = isinstance(names, list) and len(names) == math.prod(self.shape)
        return f'{self.name}[{index}]' + (f' ({names[number]})' if is_named else '')  # type: ignore[index]


class Column:
    """The values of a field in some datapoints.

    Examples:
        >>> from bags.types import Check
        >>> steps = Check(
        ...     name='largest_step',
        ...     severity='info',
        ...     bound=5,
        ...     reason='r',
        ...     bound_source='s',
        ...     applies=lambda field: field.name == 'label',
        ...     scores=lambda column: np.abs(column.values * 6),
        ... )
        >>> bags.check(dataset, checks=[steps], only=['largest_step'])[0].datapoints
        (1, 3, 5, 7)
    """

    def __init__(self, field: Field, rows: Int64s) -> None:
        self.field = field
        self._known: dict[Any, Any] = {}
        self.rows = rows
        """The indices of the datapoints, shape (n,)."""

    def __len__(self) -> int:
        return len(self.rows)

    @cached_attribute
    def values(self) -> Any:
        """The values, as `dataset.batch` returns them: an array, a `Ragged`, or a list."""
        return self.field.dataset.batch(self.rows, self.field.name)[self.field.name]

    @cached_attribute
    def present(self) -> npt.NDArray[np.bool_]:
        """Which datapoints have a value, shape (n,)."""
        return self.field.dataset.are_present(self.rows, self.field.name)

    @cached_attribute
    def lengths(self) -> Int64s:
        """Number of items of each datapoint, shape (n,): items of a sequence, or rows; 0 if missing."""
        if self.field.type.sequence:
            return self.field.dataset.item_counts(self.rows, self.field.name)
        if self.field.has_rows:
            return self.numbers.counts
        return self.present.astype(np.int64)

    @cached_attribute
    def numbers(self) -> Numbers:
        """The numbers, for a field with a `dtype`."""
        field, values = self.field, self.values
        assert field.dtype is not None
        width = math.prod(field.shape)
        if isinstance(values, Ragged):
            return Numbers(values.values.reshape(len(values.values), width), values.offsets)
        if isinstance(values, np.ndarray):
            return Numbers(values.reshape(len(values), width), np.arange(len(values) + 1))
        if field.has_items:
            counts = [0 if value is None else len(value) for value in values]
            present = [np.asarray(value).reshape(-1, width) for value in values if value is not None]
        else:
            counts = [value is not None for value in values]
            present = [
                np.asarray([value], field.dtype).reshape(1, width) for value in values if value is not None
            ]
        items = np.concatenate(present) if present else np.empty((0, width), field.dtype)
        return Numbers(items, offsets_of(np.array(counts, np.int64)))

    @cached_attribute
    def texts(self) -> tuple[list[str], Int64s]:
        """The texts of a field of texts, one after the other, and the position of the datapoint of each."""
        if not self.field.type.sequence:
            texts = [(position, text) for position, text in enumerate(self.values) if text is not None]
        else:
            texts = [
                (position, text)
                for position, items in enumerate(self.values)
                for text in (() if items is None else items)
            ]
        return [text for _, text in texts], np.array([position for position, _ in texts], np.int64)

    @cached_attribute
    def times(self) -> Numbers | None:
        """The times of the items as they are stored, in seconds, items (items, 1); None without times.

        Times may be fewer or more than the items, and need not increase.
        """
        return None if self.field.times is None else self.other(self.field.times).seconds

    @cached_attribute
    def seconds(self) -> Numbers:
        """The numbers of a field of times, in seconds, items (items, 1)."""
        numbers = self.numbers
        scale = UNITS.get(self.field.facts.get('unit', 's'), 1.0)
        return Numbers(numbers.items.astype(np.float64) * scale, numbers.offsets)

    @property
    def clock(self) -> Numbers:
        """The times that are checked with a field that has a `clock`, in seconds, items (items, 1)."""
        assert self.field.clock is not None
        return self.other(self.field.clock).seconds

    def once(self, function: Callable[[Column], Result]) -> Result:
        """Returns the result of a function of this column, which is computed once."""
        if function not in self._known:
            self._known[function] = function(self)
        return self._known[function]  # type: ignore[no-any-return]

    def other(self, name: str) -> Column:
        """Returns the values of another field in the same datapoints."""
        return self._others(name)

    @cached_attribute
    def _others(self) -> Callable[[str], Column]:
        return functools.cache(lambda name: Column(self.field.fields[name], self.rows))
