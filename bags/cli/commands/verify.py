"""`bags verify`: looking for damage."""

from __future__ import annotations

from typing import Annotated

import typer

from bags.cli.options import Json, Path

__all__ = ['PANEL', 'verify']

PANEL = 'Mend'


def verify(
    path: Path,
    decode: Annotated[bool, typer.Option('--decode', help='Also decode every value.')] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, show_default=False, help='Threads; one a processor unless given.')
    ] = None,
    json: Json = False,
) -> None:
    """Looks for damage in limits, refs, specs and frames, and names each damaged record.

    Exits with 1 if there is any. What is worth knowing but no damage is printed as a note.

    Example: bags verify episodes

    Example: bags verify episodes --decode
    """
    import dataclasses

    from bags.cli.failing import FAILED
    from bags.cli.printing import as_given, console, emit, print_json, text
    from bags.maintenance.verify import Damage
    from bags.maintenance.verify import verify as look

    found = look(path, decode, notes=True, workers=workers, progress=None)
    damage = 0
    listed: dict[str, list[object]] = {'damage': [], 'notes': []}
    out = console()
    for finding in found:
        is_damage = isinstance(finding, Damage)
        damage += is_damage
        if json:
            listed['damage' if is_damage else 'notes'].append(dataclasses.asdict(finding))
        else:
            said = as_given(str(finding), path)
            emit(out, text(f'{"damage" if is_damage else "note"}: {said}', 'red' if is_damage else 'dim'))
    if json:
        print_json({'path': path, 'ok': not damage, 'decoded': decode, **listed})
    else:
        ends = 's' if damage > 1 else ''
        said = f'{path}: {damage:,} thing{ends} damaged' if damage else f'{path}: no damage found'
        emit(out, text(said, 'bold red' if damage else 'bold green'))
    if damage:
        raise typer.Exit(FAILED)
