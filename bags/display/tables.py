"""Tables of the results of `bags.info` and `bags.statistics`, for `str` and for the command line.

NumPy is imported on use: `bags --help` imports this module.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from bags.display.counts import byte_count

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

BARS = '▁▂▃▄▅▆▇█'
ASCII_BARS = '_.:-=+*#'
MAX_ELEMENTS = 8
"""Maximum number of elements of a value with one line of statistics for each element, by default."""


class TableColumn(NamedTuple):
    """A column of a table."""

    heading: str
    justify: Literal['left', 'right']
    cells: Sequence[str]


def as_lines(columns: Sequence[TableColumn]) -> str:
    """Returns a table as text, with two spaces between columns."""
    padded = []
    for heading, justify, cells in columns:
        width = max(map(len, [heading, *cells]))
        pad = str.rjust if justify == 'right' else str.ljust
        padded.append([pad(cell, width) for cell in [heading, *cells]])
    return '\n'.join('  '.join(row).rstrip() for row in zip(*padded, strict=True))


def info_table(found: Any) -> list[TableColumn]:
    """Returns a table with a line for each field of a `DatasetInfo`, and a line for the refs."""
    fields = found.fields.values()
    linked = [field.linked_bytes for field in fields]
    columns = [
        TableColumn('field', 'left', [*found.fields, '(refs)']),
        TableColumn('type', 'left', [*(field.type for field in fields), '']),
        TableColumn(
            'bytes', 'right', [*(byte_count(field.bytes) for field in fields), byte_count(found.refs_bytes)]
        ),
        TableColumn('linked', 'right', [*(byte_count(size) if size else '' for size in linked), '']),
        TableColumn(
            'zstd', 'right', [*(f'{field.ratio:.1f}×' if field.ratio else '' for field in fields), '']
        ),
        TableColumn(
            'bytes a record', 'left', [*(extent(field.record_bytes, byte_count) for field in fields), '']
        ),
        TableColumn('items', 'left', [*(extent(field.items, '{:,.0f}'.format) for field in fields), '']),
        TableColumn('seconds', 'left', [*(extent(field.seconds, '{:,.3g}'.format) for field in fields), '']),
    ]
    return [column for column in columns if any(column.cells)]


def statistics_table(found: Mapping[str, Any], each: bool = False) -> list[TableColumn]:
    """Returns a table with a line for each element of the values of each field.

    Values of more than `MAX_ELEMENTS` elements have one line for all elements together, without a median;
    with `each`, they also have a line for each element.
    """
    rows: list[list[str]] = []
    for name, field in found.items():
        shape = field.mean.shape
        if is_pooled(field) and not each:
            rows.append(_pooled_row(f'{name}[{"×".join(map(str, shape))}]', field))
            continue
        for element in itertools.product(*map(range, shape)):
            label = f'{name}[{",".join(map(str, element))}]' if element else name
            middle = field.quantiles[0.5][element] if field.quantiles else float('nan')
            numbers = (
                field.min[element], middle, field.max[element], field.mean[element], field.std[element]
            )  # fmt: skip
            bars = histogram(field.histogram[element].reshape(-1, 2).sum(1).tolist())
            counts = [f'{int(count[element]):,}' for count in (field.count, field.nans, field.infinities)]
            rows.append([label, *counts, *(f'{number:.4g}' for number in numbers), bars])
    headings = ['field', 'values', 'NaN', 'inf', 'min', 'median', 'max', 'mean', 'std', 'histogram']
    for heading in ('inf', 'NaN'):  # Shown only if there are such values.
        column = headings.index(heading)
        if all(row[column] == '0' for row in rows):
            headings.pop(column)
            rows = [row[:column] + row[column + 1 :] for row in rows]
    return [
        TableColumn(
            heading, 'left' if heading in ('field', 'histogram') else 'right', [row[i] for row in rows]
        )
        for i, heading in enumerate(headings)
    ]


class ElementStatistics(Protocol):
    """Statistics of each element of the values of a field, as arrays of one shape."""

    @property
    def count(self) -> npt.NDArray[np.int64]: ...

    @property
    def nans(self) -> npt.NDArray[np.int64]: ...

    @property
    def infinities(self) -> npt.NDArray[np.int64]: ...

    @property
    def min(self) -> npt.NDArray[np.float64]: ...

    @property
    def max(self) -> npt.NDArray[np.float64]: ...

    @property
    def mean(self) -> npt.NDArray[np.float64]: ...

    @property
    def std(self) -> npt.NDArray[np.float64]: ...

    @property
    def histogram(self) -> npt.NDArray[np.int64]: ...


def is_pooled(field: ElementStatistics) -> bool:
    """Returns whether the elements of a field share one line of statistics."""
    return bool(field.mean.size > MAX_ELEMENTS)


def _pooled_row(label: str, field: ElementStatistics) -> list[str]:
    """Returns the line for all elements of a field, with the statistics of all their numbers together."""
    import numpy as np

    is_present = field.count > 0
    count = field.count[is_present].astype(np.float64)
    low, high, mean, std = (values[is_present] for values in (field.min, field.max, field.mean, field.std))
    others = [f'{int(field.nans.sum()):,}', f'{int(field.infinities.sum()):,}']
    if not len(count):
        return [label, '0', *others, 'nan', '', 'nan', 'nan', 'nan', '']
    total = count.sum()
    pooled = (count * mean).sum() / total
    deviation = np.sqrt((count * (std**2 + (mean - pooled) ** 2)).sum() / total)
    numbers = [f'{number:.4g}' for number in (low.min(), high.max(), pooled, deviation)]
    return [label, f'{int(total):,}', *others, numbers[0], '', *numbers[1:], _pooled_bars(field, is_present)]


def _pooled_bars(field: ElementStatistics, is_present: Any) -> str:
    """Returns a histogram over the range of all elements; the bins of each element count at their middle."""
    import numpy as np

    low, high, counts = field.min[is_present], field.max[is_present], field.histogram[is_present]
    bins = counts.shape[-1] // 2
    first, last = low.min(), high.max()
    if not np.isfinite([first, last]).all():
        return ''
    steps = (np.arange(counts.shape[-1]) + 0.5) / counts.shape[-1]
    middles = low[:, None] + steps * (high - low)[:, None]
    positions = np.minimum((middles - first) * bins / max(last - first, np.finfo(float).tiny), bins - 1)
    pooled = np.bincount(positions.astype(np.int64).ravel(), counts.ravel(), bins)
    return histogram(pooled.astype(np.int64).tolist())


def extent(found: Any, as_text: Callable[[float], str]) -> str:
    """Returns minimum, histogram and maximum: `12 B ▁▃█▂ 480 B`; a single number if all are equal."""
    if found is None:
        return ''
    if found.min == found.max:
        return as_text(found.min)
    return f'{as_text(found.min)} {histogram(found.counts)} {as_text(found.max)}'


def histogram(counts: Sequence[int]) -> str:
    """Returns a histogram on one line: a bar of eight possible heights for each count; a space for 0."""
    levels = BARS if is_unicode() else ASCII_BARS
    largest = max(counts, default=0)
    return ''.join(levels[-(-count * 8 // largest) - 1] if count else ' ' for count in counts)


def is_unicode() -> bool:
    """Returns whether standard output can encode all characters."""
    return (getattr(sys.stdout, 'encoding', None) or '').lower().startswith('utf')
