"""Prints tables, text and JSON on standard output. `rich` is imported on first use."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bags.display.counts import byte_count, plural
from bags.display.tables import TableColumn, is_unicode

if TYPE_CHECKING:
    from bags.progress.write_result import WriteResult

MIN_COLUMN = 16
"""Minimum width of a wrapped column, in characters."""
GAP = INDENT = 2
"""Spaces between columns (1 if the table fits only then), and before columns on a continuation line."""
_C1_CONTROLS = re.compile('[\x7f-\x9f]')
PIPE_COLUMNS = 10_000
"""Width of output to files and pipes, so that nothing is truncated or wrapped."""


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
    out = _console()
    with out.capture() as captured:
        out.print(content, soft_wrap=True)  # Wrapped by the terminal, so that paths can be copied.
    printed = captured.get()
    if not out.is_terminal:
        printed = '\n'.join(line.rstrip() for line in printed.split('\n'))
    print(printed, end='')  # Not printed by rich, so that it appears above a progress bar.


def _console() -> Any:
    from rich.console import Console

    is_piped = not sys.stdout.isatty() and 'COLUMNS' not in os.environ
    return Console(highlight=False, width=PIPE_COLUMNS if is_piped else None)


def as_text(content: str, style: str = '') -> Any:
    """Returns text for printing without markup: brackets are kept, and control characters are escaped."""
    from rich.text import Text

    encoding = sys.stdout.encoding or 'utf-8'
    return Text(printable(content).encode(encoding, 'backslashreplace').decode(encoding), style)


def printable(text: str) -> str:
    """Escapes control characters, such as those of names in a dataset: a terminal would act on them."""
    return ''.join(char if char.isprintable() or char == '\n' else repr(char)[1:-1] for char in text)


def say_error(message: str) -> None:
    """Prints a line on standard error: the name of this command, and a message."""
    print(f'bags: {printable(message)}', file=sys.stderr)


def columns_table(columns: Sequence[TableColumn]) -> Any:
    """Returns a table of columns with their cells."""
    rows = zip(*(cells for _, _, cells in columns), strict=True)
    return table([(heading, justify) for heading, justify, _ in columns], list(rows))


def table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> Any:
    """Returns a table without lines, as text that fits the terminal.

    Columns that do not fit on the line go on a line below, indented by two spaces. Only the last column and
    cells wider than the terminal are wrapped. The first column never is, so that names can be copied.

    Args:
        columns: The heading and the alignment of each column, 'left' or 'right'.
        rows: The cells of each row.
    """
    from rich.text import Text

    out = _console()
    heads = [as_text(heading, 'dim') for heading, _ in columns]
    body = [[as_text(cell, '' if number else 'bold') for number, cell in enumerate(row)] for row in rows]
    widths = [max(cell.cell_len for cell in cells) for cells in zip(heads, *body, strict=True)]
    gap = 1 if sum(widths) + len(widths) - 1 <= out.width < sum(widths) + GAP * (len(widths) - 1) else GAP
    groups = _groups(widths, out.width, gap)
    lines = []
    for row in [heads, *body] if any(heads) else body:
        for group in groups:
            if group.start and not any(row[group.start : group.stop]):
                continue
            start = INDENT if group.start else 0
            line = Text(' ' * start)
            for number in group:
                cell, pad = row[number], widths[number] - row[number].cell_len
                if number and line.cell_len + cell.cell_len > out.width:
                    start, pad = line.cell_len, 0
                    first, *more = cell.wrap(out, max(out.width - start, MIN_COLUMN)) or [cell]
                    cell = Text(f'\n{" " * start}').join([first, *more])
                is_right = columns[number][1] == 'right'
                line.append(' ' * pad if is_right else '').append_text(cell)
                line.append('' if is_right else ' ' * pad).append(' ' * gap)
            line.rstrip()
            lines.append(line)
    return Text('\n').join(lines)


def _groups(widths: Sequence[int], width: int, gap: int) -> list[range]:
    """Returns the columns of each line; the last column needs at least `MIN_COLUMN` characters."""
    groups, first, used = [], 0, 0
    for number, needed in enumerate(widths):
        min_width = min(needed, MIN_COLUMN) if number == len(widths) - 1 else needed
        if number > first and used + min_width > width:
            groups.append(range(first, number))
            first, used = number, INDENT
        used += needed + gap
    return [*groups, range(first, len(widths))]


def summary(target: str, done: WriteResult) -> str:
    """Returns a summary of a written dataset on one line: `out: 3 datapoints in 1 shard, 81.2 kB`."""
    shards, size = plural(done.shards, 'shard'), byte_count(done.size)
    return f'{target}: {plural(done.datapoints, "datapoint")} in {shards}, {size}'


def facts_of(done: WriteResult) -> dict[str, Any]:
    """Returns a summary of a written dataset as JSON values."""
    return {
        'datapoints': done.datapoints,
        'shards': done.shards,
        'bytes': done.size,
        'spec': done.spec,
        'skipped': [skipped._asdict() for skipped in done.skipped],
        'notes': done.notes,
        'parents': done.parents,
        'trust_links': done.trust_links,
    }


def trust_lines(folders: Sequence[str]) -> list[str]:
    """Returns a line with the options that commands need to read a dataset with links to these folders."""
    below = os.path.join(os.getcwd(), '')
    options = ' '.join(f'--trust-links {folder.removeprefix(below)}' for folder in folders)
    return [f'to read it: {options}'] if folders else []


def with_path_as_given(text: str, path: str) -> str:
    """Replaces the absolute path at the start of a text with the path that the user gave."""
    from bags.storage import store_for

    absolute = store_for(path)[1]
    return path.rstrip('/') + text[len(absolute) :] if absolute and text.startswith(absolute) else text


def print_json(value: Any, indent: int | None = 2) -> None:
    """Prints JSON on several lines; with `indent=None`, on one line, flushed immediately."""
    text = json.dumps(value, indent=indent, ensure_ascii=not is_unicode(), allow_nan=False)
    # JSON escapes the control characters of ASCII, but not these.
    print(_C1_CONTROLS.sub(lambda match: f'\\u{ord(match[0]):04x}', text), flush=indent is None)
