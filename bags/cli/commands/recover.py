"""`bags recover`: closes what a killed writer left."""

from __future__ import annotations

from typing import Any

from bags.cli.arguments import Json, Path
from bags.cli.output import print_json, say, with_path_as_given

__all__ = ['PANEL', 'recover']

PANEL = 'Check and repair'


def recover(path: Path, json: Json = False) -> None:
    """Closes what a killed writer left, and prints what was done. Nothing that was flushed is lost.

    A closed dataset stays unchanged, and one that is being written is refused.

    Example: bags recover episodes
    """
    import dataclasses

    from bags.maintenance.recover import recover_each

    done: list[dict[str, Any]] = []
    closed_already = 0
    for recovery in recover_each(path):
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
