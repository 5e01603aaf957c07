"""The command `bags`: shows, copies, checks and repairs datasets and bags from a shell.

    commands    the commands, by theme
    app         builds the command line from the commands; add new commands there
    arguments   shared arguments and options, and how they are parsed
    errors      errors as one line, and exit codes
    output      tables, text and JSON on standard output
    values      values and media as text and as JSON

The library does the work; the commands call it and print.
"""

from __future__ import annotations


def main() -> None:
    """Runs the command with the arguments of this process, and exits."""
    import sys

    try:
        from bags.cli.app import build_app

        build_app()(prog_name='bags')
    except KeyboardInterrupt:
        sys.exit(130)
