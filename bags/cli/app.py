"""The commands put together: every module of `bags.cli.commands` is one or several."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Annotated, Any

import typer

from bags.cli import commands
from bags.cli.failing import guarded

__all__ = ['build_app']

PANELS = ('Look', 'Make', 'Mend')


def build_app() -> Any:
    """Returns the command as a function of no arguments, which reads those of the process."""
    app = typer.Typer(
        name='bags',
        help='Looks at, copies, checks and mends datasets and bags.',
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode='markdown',
        context_settings={'help_option_names': ['-h', '--help']},
    )
    app.callback()(_options)
    found = []
    for info in pkgutil.iter_modules(commands.__path__):
        module = importlib.import_module(f'{commands.__name__}.{info.name}')
        names = [name for name in module.__all__ if name != 'PANEL']
        found += [(PANELS.index(module.PANEL), module.PANEL, name, module) for name in names]
    for _, panel, name, module in sorted(found, key=lambda each: each[:3]):
        # Of a name that is a word of Python, as `import_`, the underscore is not typed.
        settings = getattr(module, 'SETTINGS', None)
        command = app.command(name.rstrip('_'), rich_help_panel=panel, context_settings=settings)
        command(guarded(getattr(module, name)))
    return app


def _version(asked: bool) -> None:
    if asked:
        import bags

        print(f'bags {bags.__version__}')
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option('--version', callback=_version, is_eager=True, help='Print the version.')
    ] = False,
) -> None:
    pass
