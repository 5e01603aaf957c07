"""`bags show`: prints datapoints in readable form; `bags cat`: writes the bytes of a record."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

from bags.cli.arguments import (
    Fields,
    Json,
    Path,
    Rows,
    TrustLinks,
    argument,
    check_field,
    option,
    parse_fields,
    parse_item,
    parse_rows,
    parse_trusted,
)
from bags.cli.errors import UsageError
from bags.cli.output import as_text, print_json, print_rich, say, table

if TYPE_CHECKING:
    from bags.dataset.base import Dataset

Save = Annotated[
    str | None, option('--save', metavar='DIR', help='Also save the media as files in this folder.')
]


def show(
    path: Path,
    rows: Rows = '',
    fields: Fields = None,
    save: Save = None,
    trust_links: TrustLinks = None,
    json: Json = False,
) -> None:
    """Shows the first datapoint, or the datapoints of `--rows`: values, array shapes, media headers.

    Example: bags show episodes

    Example: bags show episodes --rows 10:12 --fields id,image

    Example: bags show episodes --rows 0:5

    Example: bags show episodes --rows -5:

    Example: bags show episodes --rows 3 --save out
    """
    from bags.maintenance.location import locate

    rows = rows or ':1'
    if locate(path).type != 'bags':
        descriptions = _show_datapoints(path, rows, fields, save, trust_links)
    elif fields is None:
        descriptions = _show_records(path, rows, save)
    else:
        raise UsageError(f'{path}: a bag has no fields, got --fields {fields}')
    for facts, lines, saved in descriptions:
        if json:
            print_json({**facts, **({'saved': saved} if saved else {})}, None)
            continue
        for line in lines:
            print_rich(line)
        for name in saved:
            say(f'saved {name}', 'dim')


Description = tuple[dict[str, Any], list[Any], list[str]]
"""A datapoint or record as JSON and as lines of text, and the files that were saved."""


def _show_datapoints(
    path: str, rows: str, fields: str | None, save: str | None, trust_links: list[str] | None
) -> Iterator[Description]:
    from bags.display.values import open_to_show, show_value

    with open_to_show(path, trust_links=parse_trusted(trust_links)) as dataset:
        names = parse_fields(fields, dataset.spec) or list(dataset.spec)
        for position, index in enumerate(parse_rows(rows, len(dataset))):
            values = {name: show_value(dataset, index, name) for name in names}
            facts = {'index': index, 'fields': {name: value.json for name, value in values.items()}}
            cells = table(
                [('', 'left'), ('', 'left')], [(name, value.text) for name, value in values.items()]
            )
            lines = [*([''] if position else []), as_text(f'datapoint {index:,}', 'bold'), cells]
            yield facts, lines, [] if save is None else _save_media(save, dataset, index, names)


def _show_records(path: str, rows: str, save: str | None) -> Iterator[Description]:
    import bags
    from bags.display.values import show_file

    with bags.bag.Reader(path) as reader:
        for index in parse_rows(rows, len(reader), 'record'):
            record = reader[index]
            value = show_file(io.BytesIO(record))
            saved = [] if save is None else [_save_file(save, f'{index:06}.record', io.BytesIO(record))]
            yield {'index': index, 'record': value.json}, [as_text(f'{index:>8}  {value.text}')], saved


def _save_media(folder: str, dataset: Dataset, index: int, names: list[str]) -> list[str]:
    """Saves the media of a datapoint as files, and returns their paths.

    Raises:
        FileExistsError: A file exists.
    """
    from bags.display.values import is_undecoded, open_records

    saved = []
    for name in names:
        field_type = dataset.schema[name]
        if is_undecoded(field_type):
            for item, file in enumerate(open_records(dataset, index, name)):
                stem = f'{index:06}.{name}' + (f'.{item:04}' if field_type.sequence else '')
                saved.append(_save_file(folder, stem, file))
    return saved


def _save_file(folder: str, stem: str, file: BinaryIO) -> str:
    """Saves a record with the file extension of its format; returns the path of the file."""
    from bags.formats.signatures import EXTENSION_OF_FORMAT, SIGNATURE_BYTES, identify
    from bags.storage import store_for

    store, path = store_for(folder)
    store.make_folder(path)
    with file:
        name = f'{stem}.{EXTENSION_OF_FORMAT.get(identify(file.read(SIGNATURE_BYTES)), "bin")}'
        file.seek(0)
        with open(os.path.join(path, name), 'xb') as target:
            shutil.copyfileobj(file, target, 1 << 20)
    return os.path.join(folder, name)


def cat(
    path: Path,
    index: Annotated[int, argument('INDEX', 'The datapoint, or the record of a bag.')],
    field: Annotated[str, argument('[FIELD]', 'The field of a dataset, or an item, as frames[3].')] = '',
    item: Annotated[int | None, option('--item', metavar='N', help='The item of a sequence.')] = None,
    trust_links: TrustLinks = None,
    json: Json = False,
) -> None:
    """Writes the bytes of one record to standard output, unchanged.

    Example: bags cat episodes 12 image > x.jpg

    Example: bags cat episodes 12 'words[0]'
    """
    with _open_record(path, index, field, item, trust_links) as file:
        if not json:
            shutil.copyfileobj(file, sys.stdout.buffer, 1 << 20)
            sys.stdout.buffer.flush()
            return
        import base64

        from bags.display.values import media_info

        facts = media_info(file)
        file.seek(0)
        data = base64.b64encode(file.read()).decode()
        print_json({'index': index, 'field': field or None, 'item': item, **facts, 'base64': data})


def _open_record(path: str, index: int, field: str, item: int | None, trust_links: list[str] | None) -> Any:
    import bags
    from bags.display.values import open_to_show
    from bags.maintenance.location import locate

    if locate(path).type == 'bags':
        if field or item is not None:
            raise UsageError(f'{path}: a bag has no fields and no items, got {field or item!r}')
        with bags.bag.Reader(path) as reader:
            return io.BytesIO(reader[parse_rows(str(index), len(reader), 'record')[0]])
    with open_to_show(path, trust_links=parse_trusted(trust_links)) as dataset:
        if not field:
            raise UsageError(f'{path}: expected a field: one of {", ".join(dataset.spec)}')
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
