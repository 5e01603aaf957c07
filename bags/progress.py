"""A progress bar on the terminal.

`progress: bool | None` of functions of the library is True for a bar, False for none, and None (the default)
for a bar if standard error is a terminal.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

__all__ = ['Advance', 'progress']

Advance = Callable[..., None]
"""`advance(count=1, size=0)` counts more things as done, and their bytes."""


@contextlib.contextmanager
def progress(what: str, total: int | None, unit: str, *, show: bool | None = None) -> Iterator[Advance]:
    """Shows a bar with the count of things done, things and bytes a second, and the time left.

    Args:
        what: What is being done, e.g. 'copying'.
        total: How many things there are; None if this is not known.
        unit: What is counted, e.g. 'datapoints'.
        show: Whether to show it; None: if standard error is a terminal. The bar is removed at the end.

    Yields:
        The function that advances the bar, for any thread.
    """
    if show is None:
        show = sys.stderr is not None and sys.stderr.isatty()
    if not show:
        yield lambda count=1, size=0: None  # noqa: ARG005
        return
    from rich.console import Console
    from rich.filesize import decimal
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.table import Column
    from rich.text import Text

    class Rates(ProgressColumn):
        """Things and bytes a second."""

        def render(self, task: Task) -> Text:
            speed = task.speed or 0.0
            size = int(speed * task.fields['size'] / max(task.completed, 1))
            text = f'{speed:,.0f} {unit}/s' if speed >= 10 else f'{speed:.1f} {unit}/s'
            return Text(f'{text}, {decimal(size)}/s' if task.fields['size'] else text)

    columns = [
        TextColumn('{task.description}'),
        BarColumn(None, table_column=Column(ratio=1, max_width=40)),
        TextColumn('{task.completed:,.0f}' + (f'/{total:,}' if total is not None else '')),
        Rates(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(),
    ]
    # What is printed to a terminal meanwhile appears above the bar; other output is not redirected.
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    with Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=is_terminal, expand=True
    ) as bar:
        task = bar.add_task(what, total=total, size=0)
        lock = threading.Lock()
        total_size = 0

        def advance(count: int = 1, size: int = 0) -> None:
            nonlocal total_size
            with lock:
                total_size += size
                bar.update(task, advance=count, size=total_size)

        yield advance
