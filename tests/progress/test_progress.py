"""The progress bar: shown on terminals, and nowhere else."""

import io
import re
import time

from bags.progress.progress import progress


class Notebook(io.StringIO):
    __module__ = 'ipykernel.iostream'  # Like the standard error of a kernel.


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(stream, monkeypatch, **options):
    monkeypatch.setattr('sys.stderr', stream)
    monkeypatch.setenv('TERM', 'xterm')
    monkeypatch.setenv('COLUMNS', '120')
    with progress('copying', 2000, 'datapoints', **options) as advance:
        advance(1000, 5_000_000)
        advance()
    return stream.getvalue()


def test_a_terminal_shows_the_count(monkeypatch):
    shown = run(Terminal(), monkeypatch)
    assert 'copying' in shown
    assert '1,001/2,000' in shown


def test_nothing_is_printed_elsewhere(monkeypatch):
    assert not run(io.StringIO(), monkeypatch)


def test_it_can_be_turned_off(monkeypatch):
    assert not run(Terminal(), monkeypatch, show=False)


def test_an_unknown_total(monkeypatch):
    monkeypatch.setattr('sys.stderr', Terminal())
    with progress('reading', None, 'files', show=True) as advance:
        advance(3)


def test_a_notebook_shows_a_line(monkeypatch):
    """Without codes that move the cursor, and without widgets."""
    stream = Notebook()
    monkeypatch.setattr('sys.stderr', stream)
    begun = time.monotonic()
    with progress('copying', 30, 'datapoints') as advance:
        for _ in range(30):
            time.sleep(0.02)
            advance(1, 1000)
    seconds = time.monotonic() - begun
    assert '\x1b' not in stream.getvalue()
    lines = stream.getvalue().split('\r')[1:]
    assert 2 <= len(lines) <= 2 + seconds / 0.2  # At most one in 0.2 s, and the last.
    assert re.fullmatch(r'copying 30/30, \d+ datapoints/s, \d+\.\d kB/s *\n', lines[-1])
    assert not run(Notebook(), monkeypatch, show=False)
    assert not run(Notebook(), monkeypatch)  # Done before the delay after which the bar is shown.
