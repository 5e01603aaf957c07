"""`bags recover`: closing what a killed writer left."""

from __future__ import annotations

from bags.cli.options import Json, Path

__all__ = ['PANEL', 'recover']

PANEL = 'Mend'


def recover(path: Path, json: Json = False) -> None:
    """Closes what a killed writer left, and says what it did. Nothing that was flushed is lost.

    A dataset that is closed is left as it is, and one that is being written is refused.

    Example: bags recover episodes
    """
    import dataclasses

    from bags.cli.printing import as_given, console, emit, print_json, text
    from bags.maintenance.recover import recover as close

    out = console()
    done = []
    quiet = 0
    for recovery in close(path):
        if json:
            done.append(dataclasses.asdict(recovery))
        elif recovery.action == 'nothing':
            quiet += 1
        else:
            emit(
                out, text(as_given(str(recovery), path), 'green' if recovery.action == 'closed' else 'yellow')
            )
    if json:
        print_json({'path': path, 'done': done})
    elif quiet:
        what = '' if quiet == 1 else f'{quiet:,} parts '
        emit(out, text(f'{path}: {what}closed already', 'dim'))
