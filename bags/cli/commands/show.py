"""`bags show`, `bags head`, `bags tail`: datapoints with readable values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from bags.cli.options import Fields, Json, Path

__all__ = ['PANEL', 'head', 'show', 'tail']

PANEL = 'Look'
SETTINGS = {'ignore_unknown_options': True}  # So that -1 is an index.

Count = Annotated[int, typer.Option('--count', '-n', min=0, help='How many.')]
Dataset = Annotated[
    str,
    typer.Argument(
        metavar='[INDEX]',
        show_default=False,
        help='7, -1, 10:20, ::100, or several with commas; the first unless given.',
    ),
]
Save = Annotated[
    str | None,
    typer.Option(metavar='DIR', show_default=False, help='Also save the media as files in this folder.'),
]


def show(
    path: Path, index: Dataset = '', fields: Fields = None, save: Save = None, json: Json = False
) -> None:
    """Shows a datapoint or a range of them: values, shapes of arrays, facts of media.

    Example: bags show episodes 10:12 --fields id,image

    Example: bags show episodes 0 --save out

    Example: bags show episodes -1
    """
    _show(path, lambda length, what: _rows(index, length, what), fields, save, json)


def head(path: Path, count: Count = 5, fields: Fields = None, json: Json = False) -> None:
    """Shows the first datapoints.

    Example: bags head episodes --count 3
    """
    _show(path, lambda length, _: range(min(count, length)), fields, None, json)


def tail(path: Path, count: Count = 5, fields: Fields = None, json: Json = False) -> None:
    """Shows the last datapoints.

    Example: bags tail episodes --count 3
    """
    _show(path, lambda length, _: range(max(0, length - count), length), fields, None, json)


def _rows(text: str, length: int, what: str) -> Iterable[int]:
    from bags.cli.selecting import parse_rows

    if text.startswith('--'):
        raise typer.BadParameter(f'No such option: {text}')
    return parse_rows(text, length, what)[0] if text else range(min(1, length))


def _show(path: str, rows: Any, fields: str | None, save: str | None, json: bool) -> None:
    from bags.maintenance.sources import find_source

    if find_source(path).kind == 'bags':
        _show_records(path, rows, fields, save, json)
        return
    from bags.cli.selecting import parse_fields
    from bags.cli.showing import open_for_show, show_value

    with open_for_show(path) as dataset:
        names = parse_fields(fields, dataset.spec) or list(dataset.spec)
        for place, index in enumerate(rows(len(dataset), 'datapoint')):
            found = {name: show_value(dataset, index, name) for name in names}
            saved = _save(save, dataset, index, names) if save is not None else []
            _print(
                index,
                {name: (dataset.spec[name], shown) for name, shown in found.items()},
                json,
                place > 0,
                saved,
            )


def _show_records(path: str, rows: Any, fields: str | None, save: str | None, json: bool) -> None:
    import io

    from bags import bag
    from bags.cli.failing import Misused
    from bags.cli.saving import save_file
    from bags.cli.showing import show_file

    if fields is not None:
        raise Misused(f'{path}: a bag has no fields, got --fields {fields}')
    with bag.Reader(path) as reader:
        for index in rows(len(reader), 'record'):
            record = reader[index]
            saved = [save_file(save, index, 'record', None, io.BytesIO(record))] if save is not None else []
            shown = show_file(io.BytesIO(record))
            _print(index, {'record': ('', shown)}, json, False, saved, alone=True)


def _save(folder: str, dataset: Any, index: int, names: list[str]) -> list[str]:
    from bags.cli.saving import save_media

    return save_media(folder, dataset, index, names)


def _print(
    index: int,
    found: dict[str, tuple[str, Any]],
    json: bool,
    again: bool,
    saved: list[str],
    alone: bool = False,
) -> None:
    from bags.cli.printing import console, emit, print_json, table, text

    if json:
        values = {name: shown.json for name, (_, shown) in found.items()}
        line: dict[str, Any] = {
            'index': index,
            **({'record': values['record']} if alone else {'fields': values}),
        }
        if saved:
            line['saved'] = saved
        print_json(line, None)
        return
    out = console()
    if alone:
        emit(out, text(f'{index:>8}  {found["record"][1].text}'))
    else:
        if again:
            emit(out, '')
        emit(out, text(f'datapoint {index:,}', 'bold'))
        emit(
            out,
            table([('', 'left'), ('', 'left')], [[name, shown.text] for name, (_, shown) in found.items()]),
        )
    for name in saved:
        emit(out, text(f'saved {name}', 'dim'))
