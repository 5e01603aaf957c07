"""`bags verify`: finds damage; `bags recover`: closes the files of killed writers."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from bags.cli.arguments import Json, Path, TrustLinks, Workers, parse_trusted
from bags.cli.errors import FAILED
from bags.cli.output import print_json, say, with_path_as_given
from bags.display.counts import plural


def verify(
    path: Path,
    decode: Annotated[bool, typer.Option('--decode', help='Also decode every value.')] = False,
    workers: Workers = None,
    trust_links: TrustLinks = None,
    json: Json = False,
) -> None:
    """Finds damage in limits, refs, specs and compressed records, and names each damaged record.

    Exits with 1 if it finds damage. Findings that are not damage are printed as notes.

    Example: bags verify episodes

    Example: bags verify episodes --decode
    """
    from bags.dataset.format.folder_layout import Decoders
    from bags.dataset.format.options import FolderOptions
    from bags.maintenance.location import locate
    from bags.maintenance.verify import find_damage
    from bags.maintenance.verify_bag import Damage

    damage = 0
    listed: dict[str, list[Any]] = {'damage': [], 'notes': []}
    options = FolderOptions(trust_links=parse_trusted(trust_links))
    for finding in find_damage([(locate(path), options)], Decoders(None), decode, workers, None):
        is_damage = isinstance(finding, Damage)
        damage += is_damage
        if json:
            listed['damage' if is_damage else 'notes'].append(dataclasses.asdict(finding))
        else:
            label, style = ('damage', 'red') if is_damage else ('note', 'dim')
            say(f'{label}: {with_path_as_given(str(finding), path)}', style)
    if json:
        print_json({'path': path, 'ok': not damage, 'decoded': decode, **listed})
    elif damage:
        say(f'{path}: {plural(damage, "problem")} found', 'bold red')
    else:
        say(f'{path}: no damage found', 'bold green')
    if damage:
        raise typer.Exit(FAILED)


def recover(
    path: Path,
    keep_readable: Annotated[
        bool,
        typer.Option(
            '--keep-readable',
            help='Rewrite folders whose files were cut off, with the datapoints that can be read.',
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Closes the files of a killed writer, and prints the result. No flushed data are lost.

    A closed dataset stays unchanged. A dataset that is being written is refused.

    Example: bags recover episodes

    Example: bags recover episodes --keep-readable
    """
    from bags.maintenance.recover import recover_each

    done: list[dict[str, Any]] = []
    closed_already = 0
    for recovery in recover_each(path, keep_readable=keep_readable):
        if json:
            done.append(dataclasses.asdict(recovery))
        elif recovery.action == 'nothing':
            closed_already += 1
        else:
            style = 'green' if recovery.action == 'closed' else 'yellow'
            say(with_path_as_given(str(recovery), path), style)
    if json:
        print_json({'path': path, 'done': done})
    elif closed_already:
        parts = '' if closed_already == 1 else f'{closed_already:,} parts '
        say(f'{path}: {parts}closed already', 'dim')
