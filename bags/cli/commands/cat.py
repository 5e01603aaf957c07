"""`bags cat`: writes the bytes of one record."""

from __future__ import annotations

from typing import Annotated, Any

from bags.cli.arguments import Json, Path, argument, check_field, option, parse_item, parse_rows
from bags.cli.errors import UsageError
from bags.cli.output import print_json

__all__ = ['PANEL', 'cat']

PANEL = 'Show'
SETTINGS = {'ignore_unknown_options': True}  # So that -1 is an index.


def cat(
    path: Path,
    index: Annotated[int, argument('INDEX', 'The datapoint, or the record of a bag.')],
    field: Annotated[str, argument('[FIELD]', 'The field of a dataset; an item as frames[3].')] = '',
    item: Annotated[int | None, option('--item', help='The item of a sequence.')] = None,
    json: Json = False,
) -> None:
    """Writes the bytes of one record to standard output, unchanged.

    Example: bags cat episodes 12 image > x.jpg

    Example: bags cat episodes 12 'words[0]'
    """
    import base64
    import shutil
    import sys

    with _open(path, index, field, item) as file:
        if not json:
            shutil.copyfileobj(file, sys.stdout.buffer, 1 << 20)
            sys.stdout.buffer.flush()
            return
        from bags.cli.values import media_info

        facts = media_info(file)
        file.seek(0)
        data = base64.b64encode(file.read()).decode()
        print_json({'index': index, 'field': field or None, 'item': item, **facts, 'base64': data})


def _open(path: str, index: int, field: str, item: int | None) -> Any:
    import io

    import bags
    from bags.cli.values import open_to_show
    from bags.maintenance.location import locate

    if locate(path).kind == 'bags':
        if field or item is not None:
            raise UsageError(f'{path}: a bag has no fields and no items, got {field or item!r}')
        with bags.bag.Reader(path) as reader:
            return io.BytesIO(reader[parse_rows(str(index), len(reader), 'record')[0]])
    with open_to_show(path) as dataset:
        if not field:
            raise UsageError(f'{path}: which field? There are {", ".join(dataset.spec)}')
        name, item = parse_item(field, item)
        if name not in dataset.spec and field in dataset.spec:
            name, item = field, None
        check_field(name, dataset.spec)
        row = parse_rows(str(index), len(dataset))[0]
        try:
            return dataset.file(row, name, item)
        except TypeError as exc:
            raise UsageError(str(exc)) from exc
        except IndexError as exc:
            raise IndexError(f'datapoint {row}, field {name!r}: no item {item}: {exc}') from exc
