"""Tables, text and JSON on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from os import environ
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bags.storage import store_for

__all__ = ['as_given', 'bars', 'byte_count', 'console', 'emit', 'print_json', 'table', 'text']

PIPED = 10_000  # Columns of what is no terminal: nothing is cut off or wrapped there.
BARS = '▁▂▃▄▅▆▇█'
PLAIN_BARS = '_.:-=+*#'


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError  # As anywhere else; rich by itself would exit with 1.


def console() -> Console:
    """Returns what prints on standard output: in colour on terminals (unless NO_COLOR is set), else plain."""
    piped = not sys.stdout.isatty() and 'COLUMNS' not in environ
    return _Console(highlight=False, soft_wrap=False, width=PIPED if piped else None)


def emit(out: Console, what: Any) -> None:
    """Prints something; where that is no terminal, without spaces at the ends of lines."""
    whole = not isinstance(what, Table)  # Wrapping is the terminal's: so paths can be copied.
    with out.capture() as captured:
        out.print(what, soft_wrap=whole)
    shown = captured.get()
    if not out.is_terminal:
        shown = '\n'.join(line.rstrip() for line in shown.split('\n'))
    print(shown, end='')  # And so above a bar of progress, if there is one.


def text(content: str, style: str = '') -> Text:
    """Returns text that is printed as it is, whatever brackets and control characters it has."""
    shown = ''.join(char if char.isprintable() or char == '\n' else repr(char)[1:-1] for char in content)
    encoding = sys.stdout.encoding or 'utf-8'
    return Text(shown.encode(encoding, 'backslashreplace').decode(encoding), style)


def table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str | Text]]) -> Table:
    """Returns a table without lines.

    Args:
        columns: Of each its heading, and 'left', 'right' or 'whole', which is left and not divided.
        rows: Cells.
    """
    headed = any(heading for heading, _ in columns)
    made = Table(box=None, show_header=headed, pad_edge=False, header_style='dim', padding=(0, 2, 0, 0))
    for number, (heading, justify) in enumerate(columns):
        side: Any = 'right' if justify == 'right' else 'left'
        made.add_column(heading, justify=side, overflow='fold', no_wrap=justify == 'whole')
        if not number:
            made.columns[0].style = 'bold'
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else text(cell) for cell in row))
    return made


def byte_count(size: float) -> str:
    """Returns a number of bytes in three digits and a unit: 999 B, 1.2 MB."""
    for unit in ('B', 'kB', 'MB', 'GB', 'TB'):
        if size < 999.5:
            return f'{size:.0f} {unit}' if unit == 'B' or size >= 99.95 else f'{size:.1f} {unit}'
        size /= 1000
    return f'{size:,.0f} PB'


def as_given(said: str, path: str) -> str:
    """Returns a text that begins with the absolute form of a path with the path as it was given instead."""
    found = store_for(path)[1]
    return path.rstrip('/') + said[len(found) :] if found and said.startswith(found) else said


def bars(counts: Sequence[int]) -> str:
    """Returns a histogram on one line: a bar for each count, in eight heights; none for 0."""
    encoding = (sys.stdout.encoding or '').lower().replace('-', '')
    levels = BARS if encoding.startswith('utf') else PLAIN_BARS
    most = max(counts, default=0)
    return ''.join(levels[-(-count * 8 // most) - 1] if count else ' ' for count in counts)


def print_json(value: Any, indent: int | None = 2) -> None:
    """Prints JSON: over several lines, or with `indent=None` on a line of its own."""
    print(json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False), flush=indent is None)
