"""A bar that shows how far long work has come, on terminals only."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

__all__ = ['Advance', 'progress']

Advance = Callable[..., None]
"""`advance(count=1, size=0)`: so many more things are done, and so many bytes with them."""


@contextlib.contextmanager
def progress(what: str, total: int | None, unit: str, *, show: bool | None = None) -> Iterator[Advance]:
    """Shows a bar with things done, things and bytes a second, and the time left.

    Args:
        what: What is being done, as `copying`.
        total: How many things there are, None if nobody knows.
        unit: What is counted, as `datapoints`.
        show: True or False, or None: if standard error is a terminal. The bar is gone when it is done.

    Yields:
        The function to call with how many things were done, and their bytes. Any thread may call it.
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
            done = max(task.completed, 1)
            size = task.fields['size']
            text = f'{speed:,.0f} {unit}/s' if speed >= 10 else f'{speed:.1f} {unit}/s'
            return Text(f'{text}, {decimal(int(speed * size / done))}/s' if size else text)

    columns = [
        TextColumn('{task.description}'),
        BarColumn(None, table_column=Column(ratio=1, max_width=40)),  # As wide as there is room for.
        TextColumn('{task.completed:,.0f}' + (f'/{total:,}' if total is not None else '')),
        Rates(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(),
    ]
    # What is printed meanwhile goes above the bar, if it goes to a terminal; else to where it should.
    above = sys.stdout is not None and sys.stdout.isatty()
    with Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=above, expand=True
    ) as bar:
        task = bar.add_task(what, total=total, size=0)

        sizes = [0]
        lock = threading.Lock()

        def advance(count: int = 1, size: int = 0) -> None:
            with lock:
                sizes[0] += size
                bar.update(task, advance=count, size=sizes[0])

        yield advance
