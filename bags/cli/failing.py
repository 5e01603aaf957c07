"""Errors as a sentence on standard error, and exit codes.

0     done
1     it failed, or damage was found
2     the command line was not understood, or names a field that is not there
130   interrupted with Ctrl-C
141   whoever read the output went away
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import typer

from bags.errors import BagsError

__all__ = ['FAILED', 'INTERRUPTED', 'MISUSED', 'UNHEARD', 'Misused', 'fail', 'guarded', 'sentence']

FAILED = 1
MISUSED = 2
INTERRUPTED = 130
UNHEARD = 141

EXPECTED = (
    BagsError,
    OSError,
    EOFError,
    ValueError,
    IndexError,
    KeyError,
    TypeError,
    ImportError,
    MemoryError,
)


class Misused(ValueError):
    """An argument that means nothing, or a field that is not there."""


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Has a command end with a sentence and an exit code, whatever it raises that a user can cause."""

    @functools.wraps(command)
    def run(*args: Any, **keywords: Any) -> None:
        try:
            command(*args, **keywords)
            sys.stdout.flush()
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _hush()
            raise typer.Exit(UNHEARD) from None
        except EXPECTED as exc:
            fail(sentence(exc), MISUSED if isinstance(exc, Misused) else FAILED)

    return run


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Prints a sentence on standard error, and exits."""
    try:
        sys.stdout.flush()
    except OSError:
        _hush()
    print(f'bags: {message}', file=sys.stderr)
    raise typer.Exit(code)


def sentence(error: BaseException) -> str:
    """Returns what an error says, as a sentence: where, what, expected, got."""
    if isinstance(error, OSError) and error.strerror:
        where = f'{error.filename}: ' if error.filename else ''
        said = error.strerror.replace('resume=True', '--resume')
        return f'{where}{said[0].lower()}{said[1:]}{_advice(error)}'
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])  # Its own text would be in quotes.
    if isinstance(error, MemoryError):
        return 'this takes more memory than there is'
    return str(error) or type(error).__name__


def _advice(error: OSError) -> str:
    if isinstance(error, FileExistsError):
        return '; choose another place'
    if isinstance(error, BlockingIOError):
        return '; wait until it is done'
    return ''


def _hush() -> None:
    """Drops what waits to be written to a pipe that nobody reads, so that nothing tries again at exit."""
    try:
        sys.stdout.close()
    except OSError:
        pass
