"""The command `bags`, made of the modules of `bags.cli.commands`."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Annotated, Any

import typer

from bags.cli import commands
from bags.cli.errors import exits_with_code

__all__ = ['build_app']

PANELS = ('Show', 'Copy and convert', 'Check and repair')


def build_app() -> Any:
    """Returns the command as a function without arguments, which reads those of the process."""
    app = typer.Typer(
        name='bags',
        help='Shows, copies, checks and repairs datasets and bags.',
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode='markdown',
        context_settings={'help_option_names': ['-h', '--help']},
    )
    app.callback()(_options)
    found = []
    for info in pkgutil.iter_modules(commands.__path__):
        module = importlib.import_module(f'{commands.__name__}.{info.name}')
        found += [(PANELS.index(module.PANEL), name, module) for name in module.__all__ if name != 'PANEL']
    for _, name, module in sorted(found, key=lambda each: each[:2]):
        settings = getattr(module, 'SETTINGS', None)
        # `import_` is the command `import`, which is a keyword of Python.
        command = app.command(name.rstrip('_'), rich_help_panel=module.PANEL, context_settings=settings)
        command(exits_with_code(getattr(module, name)))
    return app


def _version(is_asked: bool) -> None:
    if is_asked:
        import bags

        print(f'bags {bags.__version__}')
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option('--version', callback=_version, is_eager=True, help='Print the version.')
    ] = False,
) -> None:
    pass
