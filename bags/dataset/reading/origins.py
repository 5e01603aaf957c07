"""`Origin`: where a datapoint of a view comes from."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

import numpy as np

from bags.indexing import Int64s


class Origin(NamedTuple):
    """Where a datapoint comes from: the result of `dataset.origin`.

    Examples:
        >>> both = bags.concat([dataset, dataset[4:]])
        >>> both.origin(9)
        Origin(datasets=(1,), datapoint=5, anchor=None, start=None, stop=None)
        >>> dataset.windows(every='state', state=bags.steps(-1, 2)).origin(3)
        Origin(datasets=(), datapoint=1, anchor=0, start=0, stop=2)
    """

    datasets: tuple[int, ...]
    """The position of the dataset in each `concat` on the way to the reader, the outermost first."""
    datapoint: int
    """The index in the reader."""
    anchor: int | None
    """The anchor of a window: an item of the field `every`, or the number of a time. None for no window."""
    start: int | None
    """The first element of the field in a window, without padding. None for values outside of windows."""
    stop: int | None
    """The end of the elements in a window. Equal to `start` if all are padding."""


class Origins(NamedTuple):
    """Where datapoints come from: the result of `dataset.origins`. -1 where an `Origin` has None.

    Examples:
        >>> bags.concat([dataset, dataset[4:]]).origins([1, 9]).datapoint
        array([1, 5])
    """

    datasets: Int64s
    """Shape (n, depth); -1 after the last `concat` of a datapoint."""
    datapoint: Int64s
    """Shape (n,); -1 if a field has no origin: a `join` without a match, or a dataset without the field."""
    anchor: Int64s
    """Shape (n,)."""
    start: Int64s
    """Shape (n,)."""
    stop: Int64s
    """Shape (n,)."""

    @classmethod
    def of_rows(cls, rows: Int64s) -> Self:
        """Returns the origins of rows of a reader."""
        none = np.full(len(rows), -1)
        return cls(np.empty((len(rows), 0), np.int64), rows, none, none, none)

    @classmethod
    def merge(cls, count: int, parts: Iterable[tuple[Int64s, tuple[int, ...], Origins]]) -> Self:
        """Returns the origins of `count` datapoints: of each part the positions, and the datasets before."""
        parts = list(parts)
        depth = max((len(path) + origins.datasets.shape[1] for _, path, origins in parts), default=0)
        merged = cls(np.full((count, depth), -1), *np.full((4, count), -1))
        for positions, path, origins in parts:
            merged.datasets[positions, : len(path)] = path
            merged.datasets[positions, len(path) : len(path) + origins.datasets.shape[1]] = origins.datasets
            for target, source in zip(merged[1:], origins[1:], strict=True):
                target[positions] = source
        return merged


def groups_of(numbers: Int64s) -> Iterator[tuple[int, Int64s]]:
    """Yields each distinct number, in order, with its positions."""
    if not len(numbers):
        return
    order = np.argsort(numbers, kind='stable')
    ordered = numbers[order]
    bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(numbers)]
    for start, stop in itertools.pairwise(bounds):
        yield int(ordered[start]), order[start:stop]
