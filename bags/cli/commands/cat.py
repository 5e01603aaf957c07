"""`bags cat`: one record's bytes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bags.cli.options import Json, Path

__all__ = ['PANEL', 'cat']

PANEL = 'Look'
SETTINGS = {'ignore_unknown_options': True}  # So that -1 is an index.

PIECE = 1 << 20


def cat(
    path: Path,
    index: Annotated[
        int,
        typer.Argument(
            metavar='INDEX', show_default=False, help='Which datapoint, or which record of a bag.'
        ),
    ],
    field: Annotated[
        str,
        typer.Argument(
            metavar='[FIELD]', show_default=False, help='Of a dataset, its field; an item as frames[3].'
        ),
    ] = '',
    item: Annotated[int | None, typer.Option(show_default=False, help='Which item of a sequence.')] = None,
    json: Json = False,
) -> None:
    """Writes one record's bytes to standard output, as they are: nothing is added, and nothing encoded.

    Example: bags cat episodes 12 image > x.jpg

    Example: bags cat episodes 12 'words[0]'
    """
    file = _open(path, index, field, item)
    with file:
        if json:
            _print_json(index, field, item, file)
            return
        import sys

        while piece := file.read(PIECE):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _open(path: str, index: int, field: str, item: int | None) -> Any:
    import io

    import bags
    from bags.cli.failing import Misused
    from bags.cli.selecting import check_field, parse_field, parse_rows
    from bags.cli.showing import open_for_show
    from bags.maintenance.sources import find_source

    if find_source(path).kind == 'bags':
        if field or item is not None:
            raise Misused(f'{path}: a bag has no fields and no items, got {field or item!r}')
        with bags.bag.Reader(path) as reader:
            ((found,), _) = parse_rows(str(index), len(reader), 'record')
            return io.BytesIO(reader[found])
    with open_for_show(path) as dataset:
        if not field:
            raise Misused(f'{path}: which field? There are {", ".join(dataset.spec)}')
        name, item = parse_field(field, item)
        if name not in dataset.spec and field in dataset.spec:
            name, item = field, None
        check_field(name, dataset.spec)
        ((found,), _) = parse_rows(str(index), len(dataset))
        try:
            return dataset.file(found, name, item)
        except TypeError as exc:
            raise Misused(str(exc)) from exc
        except IndexError as exc:
            raise IndexError(f'datapoint {found}, field {name!r}: no item {item}: {exc}') from exc


def _print_json(index: int, field: str, item: int | None, file: Any) -> None:
    import base64

    from bags.cli.facts import media_facts
    from bags.cli.printing import print_json

    facts = media_facts(file)
    file.seek(0)
    line = {'index': index, 'field': field or None, 'item': item, **facts}
    print_json({**line, 'base64': base64.b64encode(file.read()).decode()})
