"""Tables, text and JSON on standard output. `rich` is imported when something is printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from os import environ
from typing import TYPE_CHECKING, Any

from bags.display.counts import byte_count, plural
from bags.display.tables import Column, is_unicode

if TYPE_CHECKING:
    from bags.runs.written import Written

MIN_COLUMN = 16
"""Characters of a column of values that are not folded."""
PIPE_COLUMNS = 10_000
"""Width of output that is not a terminal, so that nothing is truncated or wrapped."""


def say(content: str, style: str = '') -> None:
    """Prints a line."""
    print_rich(as_text(content, style))


def answer(json: bool, facts: Any, *lines: str) -> None:
    """Prints facts as JSON, or as lines of text."""
    if json:
        print_json(facts)
        return
    for line in lines:
        say(line)


def print_rich(content: Any) -> None:
    """Prints text or a table: in colour on terminals (unless NO_COLOR is set), else plain."""
    from rich.console import Console
    from rich.table import Table

    is_piped = not sys.stdout.isatty() and 'COLUMNS' not in environ
    out = Console(highlight=False, soft_wrap=False, width=PIPE_COLUMNS if is_piped else None)
    if isinstance(content, Table):  # Lines longer than the terminal, rather than names that are cut.
        out.width = max(
            out.width, sum(column.min_width or 0 for column in content.columns) + 2 * len(content.columns)
        )
    with out.capture() as captured:
        # Lines of text are wrapped by the terminal, so that paths can be copied.
        out.print(content, soft_wrap=not isinstance(content, Table))
    printed = captured.get()
    if not out.is_terminal:
        printed = '\n'.join(line.rstrip() for line in printed.split('\n'))
    print(printed, end='')  # Not by rich, so that it appears above a progress bar.


def as_text(content: str, style: str = '') -> Any:
    """Returns text that is printed as it is, with brackets, and with control characters escaped."""
    from rich.text import Text

    shown = ''.join(char if char.isprintable() or char == '\n' else repr(char)[1:-1] for char in content)
    encoding = sys.stdout.encoding or 'utf-8'
    return Text(shown.encode(encoding, 'backslashreplace').decode(encoding), style)


def columns_table(columns: Sequence[Column]) -> Any:
    """Returns a table of columns with their cells."""
    rows = zip(*(cells for _, _, cells in columns), strict=True)
    return table([(heading, justify) for heading, justify, _ in columns], list(rows))


def table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> Any:
    """Returns a table without lines.

    Args:
        columns: The heading of each, and 'left', 'right' or 'whole' (left, and not wrapped).
        rows: Cells.
    """
    from rich.table import Table

    has_headings = any(heading for heading, _ in columns)
    made = Table(box=None, show_header=has_headings, pad_edge=False, header_style='dim', padding=(0, 2, 0, 0))
    for number, (heading, justify) in enumerate(columns):
        side: Any = 'right' if justify == 'right' else 'left'
        style = '' if number else 'bold'
        is_whole = not number or justify == 'whole'  # The first column has names, which can then be copied.
        longest = max((len(row[number]) for row in rows), default=0)
        width = max(len(heading), longest if is_whole else min(longest, MIN_COLUMN))
        made.add_column(
            heading, justify=side, overflow='fold', no_wrap=is_whole, style=style, min_width=width
        )
    for row in rows:
        made.add_row(*map(as_text, row))
    return made


def summary(target: str, done: Written) -> str:
    """Returns what was written, on one line: `out: 3 datapoints in 1 shard, 81.2 kB`."""
    shards, size = plural(done.shards, 'shard'), byte_count(done.size)
    return f'{target}: {plural(done.datapoints, "datapoint")} in {shards}, {size}'


def facts_of(done: Written) -> dict[str, Any]:
    """Returns what was written as JSON."""
    return {
        'datapoints': done.datapoints,
        'shards': done.shards,
        'bytes': done.size,
        'spec': done.spec,
        'skipped': [each._asdict() for each in done.skipped],
        'notes': done.notes,
    }


def with_path_as_given(text: str, path: str) -> str:
    """Replaces the absolute path at the start of a text by the path as given."""
    from bags.storage import store_for

    found = store_for(path)[1]
    return path.rstrip('/') + text[len(found) :] if found and text.startswith(found) else text


def print_json(value: Any, indent: int | None = 2) -> None:
    """Prints JSON: over several lines, or with `indent=None` on one line, at once."""
    text = json.dumps(value, indent=indent, ensure_ascii=not is_unicode(), allow_nan=False)
    print(text, flush=indent is None)
