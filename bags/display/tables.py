"""Tables of what `bags.info` and `bags.statistics` return, for their `str` and for the command."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from bags.display.counts import byte_count

BARS = '▁▂▃▄▅▆▇█'
ASCII_BARS = '_.:-=+*#'
MAX_ELEMENTS = 16
"""Lines of statistics of a field."""


class Column(NamedTuple):
    """A column of a table."""

    heading: str
    justify: Literal['left', 'right', 'whole']
    """'whole': left, and not wrapped."""
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
        Column(
            'bytes a record', 'whole', [*(extent(field.record_bytes, byte_count) for field in fields), '']
        ),
        Column('items', 'whole', [*(extent(field.items, '{:,.0f}'.format) for field in fields), '']),
    ]
    return [column for column in columns if any(column.cells)]


def statistics_table(found: Mapping[str, Any]) -> list[Column]:
    """Returns a line for each element of the values of each field."""
    rows: list[list[str]] = []
    for name, each in found.items():
        elements = list(itertools.product(*map(range, each.mean.shape)))
        for element in elements[:MAX_ELEMENTS]:
            label = f'{name}[{",".join(map(str, element))}]' if element else name
            middle = each.quantiles[0.5][element] if each.quantiles else float('nan')
            numbers = (each.min[element], middle, each.max[element], each.mean[element], each.std[element])
            bars = histogram(each.histogram[element].reshape(-1, 2).sum(1).tolist())
            count = f'{int(each.count[element]):,}'
            rows.append([label, count, *(f'{number:.4g}' for number in numbers), bars])
        if len(elements) > MAX_ELEMENTS:
            rows.append([f'… {len(elements) - MAX_ELEMENTS} more of {name}', *[''] * 7])
    headings = ('field', 'values', 'min', 'median', 'max', 'mean', 'std', 'histogram')
    return [
        Column(heading, 'left' if heading in ('field', 'histogram') else 'right', [row[i] for row in rows])
        for i, heading in enumerate(headings)
    ]


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
