"""A progress bar on the terminal, or a line of text in a notebook.

Functions have the option `progress: bool | None`: True shows a bar, False hides it, and None (the default)
shows it if standard error is a terminal or a notebook.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

Advance = Callable[..., None]
"""`advance(count=1, size=0)` adds finished units, and their bytes."""
LINE_SECONDS = 0.2  # Seconds between two lines in a notebook, which keeps all output.


@contextlib.contextmanager
def progress(what: str, total: int | None, unit: str, *, show: bool | None = None) -> Iterator[Advance]:
    """Shows a bar with the number of finished units, units and bytes per second, and the remaining time.

    Args:
        what: The activity, e.g. 'copying'.
        total: Total number of units; None if unknown.
        unit: Name of the units, e.g. 'datapoints'.
        show: Whether to show the bar. Default: if standard error is a terminal or a notebook. The bar on a
            terminal is removed at the end.

    Yields:
        The function that advances the bar. Any thread may call it.
    """
    # In Jupyter, VS Code and Colab, standard error is a stream of the kernel and not a terminal.
    is_notebook = type(sys.stderr).__module__.startswith('ipykernel.')
    if show is None:
        show = is_notebook or (sys.stderr is not None and sys.stderr.isatty())
    if not show:
        yield lambda count=1, size=0: None  # noqa: ARG005
        return
    if is_notebook:
        with _line(what, total, unit) as advance:
            yield advance
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.table import Column
    from rich.text import Text

    class Rates(ProgressColumn):
        """Units and bytes per second."""

        def render(self, task: Task) -> Text:
            # Not `task.speed`, the momentary speed: updates come in bursts.
            speed = task.completed / max(task.elapsed or 0, 0.1)
            return Text(_rates(speed, unit, task.fields['size'] / max(task.completed, 1)))

    columns = [
        TextColumn('{task.description}'),
        BarColumn(None, table_column=Column(ratio=1, max_width=40)),
        TextColumn('{task.completed:,.0f}' + (f'/{total:,}' if total is not None else '')),
        Rates(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(),
    ]
    # Text printed to a terminal appears above the bar; output to a file is not redirected.
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


def _rates(speed: float, unit: str, size: float) -> str:
    """Returns units and bytes per second as text, given the mean bytes of a unit."""
    from rich.filesize import decimal

    text = f'{speed:,.0f} {unit}/s' if speed >= 10 else f'{speed:.1f} {unit}/s'
    return f'{text}, {decimal(int(speed * size))}/s' if size else text


@contextlib.contextmanager
def _line(what: str, total: int | None, unit: str) -> Iterator[Advance]:
    """Rewrites one line: notebooks do not support cursor movement, and a widget needs other packages."""
    lock = threading.Lock()
    start = written = time.monotonic()
    done = done_size = width = 0

    def write(end: str = '') -> None:
        nonlocal width
        speed = done / max(time.monotonic() - start, 1e-6)
        count = f'{done:,}' if total is None else f'{done:,}/{total:,}'
        line = f'{what} {count}, {_rates(speed, unit, done_size / max(done, 1))}'
        sys.stderr.write(f'\r{line:<{width}}{end}')
        sys.stderr.flush()
        width = len(line)

    def advance(count: int = 1, size: int = 0) -> None:
        nonlocal done, done_size, written
        with lock:
            done, done_size = done + count, done_size + size
            if time.monotonic() - written >= LINE_SECONDS:
                written = time.monotonic()
                write()

    yield advance
    if width:
        write('\n')
