"""The bar: seen on terminals, nothing at all elsewhere."""

import io

from bags.progress import progress


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
