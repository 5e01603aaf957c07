"""The command `bags`: datasets and bags, looked at and handled from a shell.

    commands    a module for each command: to add one, add a module
    app         the commands put together
    failing     errors as a sentence, and exit codes
    printing    tables and JSON on standard output
    selecting   which datapoints and fields are meant
    showing     values as text and as JSON
    facts       what media are, by their headers

What the commands do is done by the library; here it is only asked for and printed.
"""

from __future__ import annotations

__all__ = ['main']


def main() -> None:
    """Runs the command with the arguments of this process, and exits."""
    import sys

    try:
        from bags.cli.app import build_app

        build_app()(prog_name='bags')
    except KeyboardInterrupt:
        sys.exit(130)
