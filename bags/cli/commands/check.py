"""`bags check`: finds mistakes in the data of a dataset."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bags.cli.arguments import Json, TrustLinks, argument, option, parse_pairs, parse_trusted
from bags.cli.errors import FAILED, UsageError
from bags.cli.output import print_json, say

if TYPE_CHECKING:
    from bags.links.permission import PermittedPaths


def check(
    path: Annotated[str, argument('PATH', 'A dataset, or what `bags import --link` takes; also a URL.')],
    only: Annotated[
        str | None,
        option('--only', metavar='NAMES', help='Only these checks or fields, separated by commas.'),
    ] = None,
    skip: Annotated[
        str | None, option('--skip', metavar='NAMES', help='Not these checks or fields, separated by commas.')
    ] = None,
    bound: Annotated[
        list[str] | None,
        option(
            '--bound', metavar='NAME=VALUE', help='Another bound of a check, as gap_seconds=2; repeatable.'
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            '--window', metavar='N', min=1, show_default=False, help='Items of the windows of the training.'
        ),
    ] = None,
    headers: Annotated[bool, typer.Option('--headers', help='Also read the headers of media.')] = False,
    decode: Annotated[bool, typer.Option('--decode', help='Also decode media.')] = False,
    like: Annotated[
        str | None, option('--like', metavar='REFERENCE', help='Also report what differs from this dataset.')
    ] = None,
    checks: Annotated[
        list[str] | None,
        option(
            '--checks', metavar='NAME', help='Also run a check of a package, or of a .py file; repeatable.'
        ),
    ] = None,
    save: Annotated[
        str | None,
        option('--save', metavar='FOLDER', help='Write a dataset with the scores of all datapoints.'),
    ] = None,
    on: Annotated[
        str | None, option('--on', metavar='FIELD', help='With --save: also store this field of keys.')
    ] = None,
    resume: Annotated[
        bool, typer.Option('--resume', help='With --save: continue a check that was interrupted.')
    ] = False,
    fail_on: Annotated[
        Literal['error', 'warning'], typer.Option('--fail-on', help='The findings that exit with 1.')
    ] = 'error',
    trust_links: TrustLinks = None,
    json: Json = False,
) -> None:
    """Finds mistakes in the data: gaps in clocks, frozen sensors, NaN, equal records in two splits, and more.

    Exits with 1 if it finds errors. The dataset does not change.

    Example: bags check episodes

    Example: bags check episodes --decode --save scores --resume

    Example: bags check episodes --bound gap_seconds=1 --skip meta --fail-on warning
    """
    import bags
    from bags.checks.findings import lines_of

    if on is not None and save is None:
        raise UsageError('--on needs --save FOLDER')
    if resume and save is None:
        raise UsageError('--resume needs --save FOLDER')
    try:
        with _dataset(path, parse_trusted(trust_links)) as (where, permitted, is_source):
            found = bags.check(
                where, only=_names(only), skip=_names(skip) or (), bounds=_bounds(bound), window=window,
                checks=checks or (), headers=headers, decode=decode, like=like, save=save, on=on,
                resume=resume, trust_links=permitted,
            )  # fmt: skip
    except ValueError as exc:
        if str(exc).startswith(('check: only', 'check: skip', 'check: bounds')):
            raise UsageError(str(exc).removeprefix('check: ').replace('bounds:', '--bound:', 1)) from None
        raise
    if json:
        print_json({'path': path, **found.as_json()})
    else:
        for line in lines_of(found) if len(found) else ():
            style = {'error': 'red', 'warning': 'yellow'}.get(line.partition(' ')[0], 'dim')
            if not (is_source and line.startswith(' ')):  # The commands would name a temporary folder.
                say(line, style)
        if found.leave_out and not is_source:
            say(f'without all of these: {found.leave_out}', 'dim')
        for skipped in found.skipped:
            say(f'skipped: {skipped.check} of {skipped.field}: {skipped.reason}', 'dim')
        if found.installed:
            say(f'not run: {", ".join(found.installed)} of installed packages (--checks NAME)', 'dim')
        style = 'bold red' if found.has('error') else 'bold yellow' if found.has('warning') else 'bold green'
        say(f'{path}: {found.summary}', style)
    if found.has(fail_on):
        raise typer.Exit(FAILED)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(',') if name.strip()]


def _bounds(texts: list[str] | None) -> dict[str, float]:
    bounds = {}
    for name, value in parse_pairs('--bound', texts).items():
        try:
            bounds[name] = float(value)
        except ValueError:
            raise UsageError(f'--bound: {name}: expected a number, got {value!r}') from None
    return bounds


@contextlib.contextmanager
def _dataset(path: str, trust_links: PermittedPaths) -> Iterator[tuple[str, PermittedPaths, bool]]:
    """Yields a dataset, its permitted links, and whether it is a temporary one, with links to a source."""
    from bags.checks.check import parts_of
    from bags.interop.convert import convert
    from bags.maintenance.location import locate

    if parts_of(path):
        yield path, trust_links, False
        return
    with contextlib.suppress(FileNotFoundError):
        location = locate(path)
        if location.type != 'bags':
            yield path, trust_links, False
            return
        if location.path.endswith(('.bag', '.bagz')):
            raise UsageError(f'{path}: expected a dataset, which is a folder, got a bag')
    with tempfile.TemporaryDirectory(prefix='bags-check-') as folder:
        target = f'{folder}/dataset'
        try:
            convert(path, target, link=True)
        except ValueError as exc:
            if not str(exc).startswith('link: '):
                raise
            convert(path, target)  # Values of tables are copied: they have no files to link to.
        yield target, True, True
