"""`ItemStream`: a stream of items of a sequence, of rows of an array, or of frames of one's own type."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.dataset.reading.columns import read_values
from bags.dataset.reading.selection import FrameSelection, PerRowItems
from bags.indexing import Int64s
from bags.media.frames import Elements, as_seconds
from bags.streams.clocks import EPSILON, Seconds
from bags.streams.field import StreamField


class ItemStream:
    """The elements of a field in a datapoint, and their times. Reads elements on access.

    Thread-safe, and picklable if the dataset is picklable.

    Args:
        field: The field.
        row: The datapoint.
    """

    def __init__(self, field: StreamField, row: int) -> None:
        self._field, self._row = field, row
        self._rows = np.array([row], np.int64)

    @property
    def _name(self) -> str:
        return f'{self._field.dataset.expression}, datapoint {self._row}, field {self._field.name!r}'

    def __len__(self) -> int:
        return int(self._field.counts(self._rows)[0])

    @property
    def times(self) -> Seconds:
        """The time of each element, float64 seconds, shape (n,)."""
        clock = self._field.expect_clock()
        times: Seconds = clock.at(self._rows, np.arange(len(self))[None])[0]
        return times

    @property
    def start(self) -> float:
        """The time of the first element in seconds; NaN without elements."""
        return float(self._field.expect_clock().extent(self._rows)[0][0])

    @property
    def duration(self) -> float:
        """Seconds from the first element to the end of the last."""
        return float(self._field.durations(self._rows)[0])

    @property
    def rate(self) -> float:
        """Elements per second; the average if the rate is not constant."""
        rate = float(self._field.expect_clock().rates(self._rows)[0])
        if not np.isnan(rate):
            return rate
        duration = self.duration
        return len(self) / duration if duration else 0.0

    def __getitem__(self, key: Any) -> Any:
        """Returns elements.

        - `stream[-1]`: one element.
        - `stream[10:18]`, `stream[[3, 50, 7]]`: one array (n, *shape) if all elements have one shape, else a
          list. Slices clamp.

        Raises:
            IndexError: The number of an element is out of range.
        """
        count = len(self)
        if isinstance(key, slice):
            chosen = range(count)[key]
            return self._read(np.arange(chosen.start, chosen.stop, chosen.step))
        if isinstance(key, list | tuple | range | np.ndarray) and np.ndim(key):
            return self._read(self._numbers(key, count))
        try:
            number = operator.index(key)
        except TypeError:
            raise TypeError(
                f'expected the number of an element, a slice or a list of numbers, got {type(key).__name__}'
            ) from None
        return self._read(self._numbers([number], count))[0]

    def _numbers(self, key: Any, count: int) -> Int64s:
        numbers = np.asarray(key)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in 'iu'):
            raise TypeError(f'expected a list of numbers of elements, got {numbers.dtype} {numbers.shape}')
        wrong = numbers[(numbers < -count) | (numbers >= count)]
        if len(wrong):
            raise IndexError(f'{self._name}: element {wrong[0]} out of range [{-count}, {count})')
        numbers = numbers.astype(np.int64)
        return np.where(numbers < 0, numbers + count, numbers)

    def _read(self, numbers: Int64s) -> Any:
        field, dataset = self._field, self._field.dataset
        asked: Any = True
        if field.type == 'frames':
            asked = FrameSelection(numbers)
        elif field.type == 'items':
            asked = numbers.tolist()
        elif field.are_stored_rows:
            count = np.array([len(numbers)])
            is_range = len(numbers) and int(numbers[-1]) - int(numbers[0]) == len(numbers) - 1
            if is_range and (np.diff(numbers) == 1).all():
                asked = PerRowItems(numbers[:1], count)
            else:
                asked = PerRowItems(None, count, numbers)
        (value,) = dataset.read_selection(self._rows, {field.name: asked}, read_values)[field.name]
        if field.type == 'rows':
            value = [] if value is None else value[numbers] if asked is True else value
        return as_one_array(value)

    def at(self, seconds: float | Sequence[float] | npt.NDArray[Any]) -> Any:
        """Returns the last element at or before a time; for a list of times, elements as `stream[[…]]`.

        Raises:
            IndexError: A time is before the first element, or not before the end of the last.
        """
        is_single = np.ndim(seconds) == 0
        asked: Any = [seconds] if is_single else seconds
        times = np.array([as_seconds(time) for time in asked], np.float64)
        clock = self._field.expect_clock()
        start, end = (float(bound[0]) for bound in clock.range(self._rows))
        numbers = clock.before(self._rows, times[None])[0]
        wrong = times[~((numbers >= 0) & (times < max(end, np.nextafter(start, np.inf))))]
        if len(wrong):
            raise IndexError(f'{self._name}: no element at {wrong[0]} s: they last from {start} s to {end} s')
        elements = self._read(numbers)
        return elements[0] if is_single else elements

    def between(self, start: float, stop: float) -> Any:
        """Returns the elements whose times are in [start, stop), in seconds."""
        return self[self._span(start, stop)]

    def _span(self, start: float, stop: float) -> slice:
        bounds = np.array([[as_seconds(start), as_seconds(stop)]], float) - 2 * EPSILON
        if np.isnan(bounds).any():
            raise ValueError(f'{self._name}: expected times in seconds, got {start!r} and {stop!r}')
        low, high = (self._field.expect_clock().before(self._rows, bounds)[0] + 1).tolist()
        return slice(low, max(low, high))

    def read(self, key: Any) -> Elements:
        """Returns elements and their times; `key` as for `stream[key]`."""
        return Elements(self[key], self.times[key])

    def __reduce__(self) -> Any:
        return ItemStream, (self._field, self._row)

    def __repr__(self) -> str:
        return f'bags.Stream({self._name})'


def as_one_array(values: Any) -> Any:
    """Returns values as one array (n, *shape) if all are arrays of one shape and dtype."""
    if isinstance(values, np.ndarray) or not isinstance(values, list | tuple) or not values:
        return values
    if not all(isinstance(value, np.ndarray) for value in values):
        return values
    if len({(value.shape, value.dtype) for value in values}) > 1:
        return values
    return np.stack(values)
