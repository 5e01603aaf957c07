"""The results of `bags.statistics`, and their JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.display.tables import as_lines, statistics_table

Array = npt.NDArray[Any]

COUNTS = ('count', 'nans', 'infinities', 'histogram')
"""The statistics that are integers."""


@dataclasses.dataclass(frozen=True)
class FieldStatistics:
    """Statistics of a field, for each element of its values, or each channel of its images.

    All arrays are float64 and have the shape of a value; for images, (channels,). NaNs count only in `nans`.

    Examples:
        >>> state = bags.statistics('episodes', 'state')['state']
        >>> state.max.tolist(), state.count.tolist()
        ([18.0, 19.0], [52, 52])
    """

    count: npt.NDArray[np.int64]
    """Number of values; for images, of pixels."""
    nans: npt.NDArray[np.int64]
    infinities: npt.NDArray[np.int64]
    """Number of infinite values, which count in the other statistics too."""
    min: Array
    max: Array
    mean: Array
    std: Array
    """Population standard deviation, as `numpy.std`."""
    quantiles: dict[float, Array]
    """Quantiles at 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99; empty for values of more than 512 elements."""
    quantile_error: float
    """Maximum error of a quantile, relative to its distance from `pivot`; NaN without quantiles."""
    pivot: Array
    """A value near the median."""
    histogram: npt.NDArray[np.int64]
    """Number of values in ranges of equal width from `min` to `max`, shape (*shape, ranges)."""
    sampled: int | None = None
    """Number of datapoints whose images were decoded; None if all values were read."""


class Statistics(dict[str, FieldStatistics]):
    """Statistics by field; `str` is a table with a line for each element of the values.

    Fields with more than 8 elements have a single line for all elements together.
    """

    def __str__(self) -> str:
        return as_lines(statistics_table(self))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Prints `str` in IPython."""
        printer.text(str(self))


class GroupedStatistics(dict[Any, Statistics]):
    """Statistics of groups of datapoints, by the value of a field; None for missing values.

    Examples:
        >>> groups = bags.statistics('episodes', 'state', by='label')
        >>> groups.by, [int(group['state'].count[0]) for group in groups.values()]
        ('label', [24, 28])
    """

    def __init__(self, by: str, groups: Mapping[Any, Statistics]) -> None:
        super().__init__(groups)
        self.by = by
        """The field whose values define the groups."""

    def __str__(self) -> str:
        return '\n\n'.join(f'{self.by} {value!r}\n{group}' for value, group in self.items())

    def __reduce__(self) -> tuple[Any, ...]:
        return GroupedStatistics, (self.by, dict(self))


def as_json(statistics: FieldStatistics) -> dict[str, Any]:
    """Returns statistics as JSON values."""
    quantiles = {str(key): value.tolist() for key, value in statistics.quantiles.items()}
    values = {name: np.asarray(value).tolist() for name, value in vars(statistics).items()}
    return {**values, 'quantiles': quantiles}


def from_json(content: Mapping[str, Any]) -> FieldStatistics:
    """Returns statistics from JSON values, as `as_json` returns them."""
    arrays: dict[str, Any] = {
        name: np.array(content[name], np.int64 if name in COUNTS else np.float64)
        for name in (*COUNTS, 'min', 'max', 'mean', 'std', 'pivot')
    }
    quantiles = {float(key): np.array(value, np.float64) for key, value in content['quantiles'].items()}
    error = float(content['quantile_error'])
    return FieldStatistics(**arrays, quantiles=quantiles, quantile_error=error, sampled=content['sampled'])
