"""Tables of what `bags.info` and `bags.statistics` return, for their `str` and for the command.

NumPy is imported when it is used: `bags --help` imports this module.
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
"""Maximum number of elements of a value that have a line of statistics each, unless all are asked for."""


class Column(NamedTuple):
    """A column of a table."""

    heading: str
    justify: Literal['left', 'right']
    cells: Sequence[str]


def as_lines(columns: Sequence[Column]) -> str:
    """Returns a table as text, with two spaces between columns."""
    padded = []
    for heading, justify, cells in columns:
        width = max(map(len, [heading, *cells]))
        pad = str.rjust if justify == 'right' else str.ljust
        padded.append([pad(cell, width) for cell in [heading, *cells]])
    return '\n'.join('  '.join(row).rstrip() for row in zip(*padded, strict=True))


def info_table(found: Any) -> list[Column]:
    """Returns a line for each field of a `DatasetInfo`, and one for the refs."""
    fields = found.fields.values()
    linked = [field.linked_bytes for field in fields]
    columns = [
        Column('field', 'left', [*found.fields, '(refs)']),
        Column('type', 'left', [*(field.type for field in fields), '']),
        Column(
            'bytes', 'right', [*(byte_count(field.bytes) for field in fields), byte_count(found.refs_bytes)]
        ),
        Column('linked', 'right', [*(byte_count(size) if size else '' for size in linked), '']),
        Column('zstd', 'right', [*(f'{field.ratio:.1f}×' if field.ratio else '' for field in fields), '']),
        Column('bytes a record', 'left', [*(extent(field.record_bytes, byte_count) for field in fields), '']),
        Column('items', 'left', [*(extent(field.items, '{:,.0f}'.format) for field in fields), '']),
    ]
    return [column for column in columns if any(column.cells)]


def statistics_table(found: Mapping[str, Any], each: bool = False) -> list[Column]:
    """Returns a line for each element of the values of each field.

    Values of more than `MAX_ELEMENTS` have one line for all their elements together, without a median; with
    `each`, they have a line for each, too.
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
            count = f'{int(field.count[element]):,}'
            rows.append([label, count, *(f'{number:.4g}' for number in numbers), bars])
    headings = ('field', 'values', 'min', 'median', 'max', 'mean', 'std', 'histogram')
    return [
        Column(heading, 'left' if heading in ('field', 'histogram') else 'right', [row[i] for row in rows])
        for i, heading in enumerate(headings)
    ]


class ElementStatistics(Protocol):
    """Statistics of each element of the values of a field, as arrays of one shape."""

    @property
    def count(self) -> npt.NDArray[np.int64]: ...

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
    """Returns whether the elements of the values of a field have one line of statistics together."""
    return bool(field.mean.size > MAX_ELEMENTS)


def _pooled_row(label: str, field: ElementStatistics) -> list[str]:
    """Returns the line for all elements of the values of a field: statistics of their numbers as one set."""
    import numpy as np

    there = field.count > 0
    count = field.count[there].astype(np.float64)
    low, high, mean, std = (each[there] for each in (field.min, field.max, field.mean, field.std))
    if not len(count):
        return [label, '0', 'nan', '', 'nan', 'nan', 'nan', '']
    total = count.sum()
    pooled = (count * mean).sum() / total
    deviation = np.sqrt((count * (std**2 + (mean - pooled) ** 2)).sum() / total)
    numbers = [f'{number:.4g}' for number in (low.min(), high.max(), pooled, deviation)]
    return [label, f'{int(total):,}', numbers[0], '', *numbers[1:], _pooled_bars(field, there)]


def _pooled_bars(field: ElementStatistics, there: Any) -> str:
    """Returns a histogram over the range of all elements: each of their ranges counts at its middle."""
    import numpy as np

    low, high, counts = field.min[there], field.max[there], field.histogram[there]
    bins = counts.shape[-1] // 2
    first, last = low.min(), high.max()
    if not np.isfinite([first, last]).all():
        return ''
    steps = (np.arange(counts.shape[-1]) + 0.5) / counts.shape[-1]
    middles = low[:, None] + steps * (high - low)[:, None]
    positions = np.minimum((middles - first) * bins / max(last - first, np.finfo(float).tiny), bins - 1)
    found = np.bincount(positions.astype(np.int64).ravel(), counts.ravel(), bins)
    return histogram(found.astype(np.int64).tolist())


def extent(found: Any, as_text: Callable[[float], str]) -> str:
    """Returns minimum, histogram and maximum: `12 B ▁▃█▂ 480 B`; one number where all are equal."""
    if found is None:
        return ''
    if found.min == found.max:
        return as_text(found.min)
    return f'{as_text(found.min)} {histogram(found.counts)} {as_text(found.max)}'


def histogram(counts: Sequence[int]) -> str:
    """Returns a histogram on one line: a bar for each count, in eight heights; a space for 0."""
    levels = BARS if is_unicode() else ASCII_BARS
    largest = max(counts, default=0)
    return ''.join(levels[-(-count * 8 // largest) - 1] if count else ' ' for count in counts)


def is_unicode() -> bool:
    """Returns whether standard output takes all characters."""
    return (getattr(sys.stdout, 'encoding', None) or '').lower().startswith('utf')
