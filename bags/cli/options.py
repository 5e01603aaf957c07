"""The arguments and options that commands share."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ['Fields', 'Json', 'Path']

Path = Annotated[
    str,
    typer.Argument(
        metavar='PATH', show_default=False, help='A dataset, or a bag or several (name@*.bagz); also a URL.'
    ),
]
Json = Annotated[bool, typer.Option('--json', help='Print JSON, for programs.')]
Fields = Annotated[
    str | None,
    typer.Option(
        '--fields', '-f', metavar='NAMES', show_default=False, help='Only these, with commas between.'
    ),
]
