"""Builds the command `bags` from the functions in `bags.cli.commands`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
import typer.core

from bags.cli.commands.bench import bench
from bags.cli.commands.check import check
from bags.cli.commands.convert import export, import_
from bags.cli.commands.copy import append, consolidate, copy, create_index, prefetch, push
from bags.cli.commands.edit import diff, edit, split
from bags.cli.commands.info import info, metadata, statistics
from bags.cli.commands.show import cat, show
from bags.cli.commands.verify import recover, verify
from bags.cli.commands.view import view
from bags.cli.errors import USAGE, exits_with_code, usage_message
from bags.cli.output import printable, say_error

COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    'Show': (bench, cat, diff, info, metadata, show, statistics, view),
    'Edit': (edit, split),
    'Copy and convert': (append, consolidate, copy, create_index, export, import_, prefetch, push),
    'Check and repair': (check, recover, verify),
}
"""The commands of each section of `bags --help`; add new commands here."""


class Commands(typer.core.TyperGroup):
    """The commands, with plain-text help: importing a renderer of boxes would take longer than all else."""

    def main(  # type: ignore[override]
        self, args: Any = None, standalone_mode: bool = True, **options: Any
    ) -> Any:
        """Runs a command. Reports an invalid command line on one line, like other errors."""
        warnings.formatwarning = _format_warning  # type: ignore[assignment]
        try:
            code = super().main(args=args, standalone_mode=False, **options)
        except Exception as exc:
            if not (standalone_mode and hasattr(exc, 'format_message')):
                raise
            if type(exc).__name__ == 'NoArgsIsHelpError':
                exc.show()  # type: ignore[attr-defined]
                sys.exit(USAGE)
            say_error(usage_message(exc))
            sys.exit(USAGE)
        if standalone_mode:
            sys.exit(code or 0)
        return code

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes a section for each theme, with the first paragraph of each command's help."""
        for title, functions in COMMANDS.items():
            commands = [self.commands[command_name(function)] for function in functions]
            with formatter.section(title):
                texts = [(command.name, (command.help or '').partition('\n\n')[0]) for command in commands]
                formatter.write_dl(texts)


def _format_warning(message: Warning | str, *_: Any) -> str:
    return f'bags: warning: {printable(str(message))}\n'


class Command(typer.core.TyperCommand):
    """A command whose help shows arguments without Python types: `PATH`, not `PATH <str>`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for parameter in self.params:
            if parameter.param_type_name == 'argument':
                parameter.display_type_rich = lambda ctx: None  # type: ignore[attr-defined]  # noqa: ARG005
        super().format_options(ctx, formatter)


def command_name(function: Callable[..., None]) -> str:
    """Returns the name of a command, such as `create-index`. `import_` avoids the Python keyword."""
    return function.__name__.rstrip('_').replace('_', '-')


def build_app() -> Any:
    """Returns the command as a function without arguments, which parses the arguments of the process."""
    app = typer.Typer(
        name='bags',
        help='Shows, copies, checks and repairs datasets and bags.',
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        cls=Commands,
        context_settings={'help_option_names': ['-h', '--help']},
    )
    app.callback()(_options)
    for functions in COMMANDS.values():
        for function in functions:
            # -1 is an index, not an option.
            settings = {'ignore_unknown_options': function is cat}
            register = app.command(command_name(function), cls=Command, context_settings=settings)
            register(exits_with_code(function))
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
