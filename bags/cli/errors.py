"""Reports errors as one line on standard error, and defines exit codes.

0     done
1     an error, or damage was found
2     an invalid command line, or a field that does not exist
130   interrupted with Ctrl-C
141   the reader of the output closed it
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Collection
from typing import Any, NoReturn

import typer

from bags.cli.output import say_error
from bags.errors import BagsError
from bags.other_names import option_advice

FAILED = 1
USAGE = 2
INTERRUPTED = 130
BROKEN_PIPE = 141

USER_ERRORS = (BagsError, OSError, EOFError, ValueError, LookupError, TypeError, ImportError, MemoryError)
"""Errors that users can cause. Other errors are bugs, and keep their traceback."""


POSITIONAL = ('path', 'source', 'target', 'field', 'key')
"""Positional arguments of commands."""
USAGE_WORDS = (
    (r"^Invalid value for '(.+?)': (?:Value error, )?", r'\1: '),
    (r'^No such option: (\S+) \(Possible options: (\S+)\)$', r'no option \1; did you mean \2?'),
    (r'^No such option: (\S+?)\.?(?: \(Possible options: (.+)\))?$', r'no option \1'),
    (r"^No such command '(.*?)'\. Did you mean '(.*)'\?$", r'no command \1; did you mean \2?'),
    (r"^No such command '(.*?)'\.(?: Did you mean .*)?$", r'no command \1'),
    (r"^Missing (?:argument|option|parameter) '(.+)'\.$", r'\1 is missing'),
    (r"'(.*)' is not one of (.+)\.$", r"expected one of \2, got '\1'"),
    (r'Input should be greater than or equal to (\S+)', r'expected at least \1'),
    (r'Input should be less than or equal to (\S+)', r'expected at most \1'),
    (
        r'^Got unexpected extra argument\(s\) \((-?[\d:,]+)\)$',
        r'too many arguments: \1; --rows \1 selects datapoints where a command has it',
    ),
    (r'^Got unexpected extra argument\(s\) \((.+)\)$', r'too many arguments: \1'),
    (r'Input should be a valid integer, .*', 'expected an integer'),
)
"""Patterns of Typer's messages, and their replacements."""


class UsageError(ValueError):
    """An invalid argument, or a field that does not exist."""


def exits_with_code(command: Callable[..., None]) -> Callable[..., None]:
    """Makes a command report errors that users can cause as one line, with an exit code."""

    @functools.wraps(command)
    def run(*args: Any, **keywords: Any) -> None:
        try:
            command(*args, **keywords)
            sys.stdout.flush()
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _close_output()
            raise typer.Exit(BROKEN_PIPE) from None
        except USER_ERRORS as exc:
            fail(_with_options(_message(exc), keywords), USAGE if isinstance(exc, UsageError) else FAILED)

    return run


def usage_message(error: Any) -> str:
    """Returns the message of a Typer error in the style of this command: `info: no option --jsn`."""
    message = str(error.format_message())
    for pattern, text in USAGE_WORDS:
        message = re.sub(pattern, text, message)
    command = error.ctx.command_path if getattr(error, 'ctx', None) else 'bags'
    option = re.search(r'(?<!\S)--[a-z-]+', message)
    advice = option_advice(command, option[0]) if option else None
    if option and advice:
        message = f'no option {option[0]}: use {advice}'
    name = command.partition(' ')[2]
    return f'{name}: {message} ({command} -h)' if name else f'{message} ({command} -h)'


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Prints a message on standard error, and exits."""
    try:
        sys.stdout.flush()
    except OSError:
        _close_output()
    say_error(message)
    raise typer.Exit(code)


def _message(error: BaseException) -> str:
    """Returns the message of an error on one line: where, what, expected, got."""
    if isinstance(error, OSError) and error.strerror:
        where = f'{error.filename}: ' if error.filename else ''
        advice = '; choose another place' if isinstance(error, FileExistsError) else ''
        if isinstance(error, BlockingIOError):
            advice = '; wait until it is done'
        reason = error.strerror
        if re.match(r'[A-Z][a-z]*\b', reason):  # Not a name, such as the name of an exception.
            reason = f'{reason[0].lower()}{reason[1:]}'
        return f'{where}{reason}{advice}'
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])  # `str(error)` would be in quotes.
    if isinstance(error, MemoryError):
        return 'not enough memory'
    return str(error) or type(error).__name__


def _with_options(message: str, options: Collection[str]) -> str:
    """Writes keywords in a message as options of the command: `mode='overwrite'` as `--mode overwrite`."""

    def option(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name not in options:
            return match[0]
        option = name.replace('_', '-')
        return {'True': f'--{option}', 'False': f'--no-{option}'}.get(value) or f'--{option} {value[1:-1]}'

    # The name of an argument at the start: "format: expected …".
    name = re.match(r'(\w+): ', message)
    if name is not None and name[1] in options and name[1] not in POSITIONAL:
        message = f'--{name[1].replace("_", "-")}{message[len(name[1]) :]}'
    # Not the keywords of a call in a message: bags.export(…, resume=True).
    return re.sub(r"(?<!…, )\b(\w+)=(True|False|'\w+'|\"\w+\")", option, message)


def _close_output() -> None:
    """Drops output buffered for a closed pipe, so that Python does not write it at exit."""
    with contextlib.suppress(OSError):
        sys.stdout.close()
