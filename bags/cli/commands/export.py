"""`bags export`: writes a dataset as files that others read."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from bags.cli.arguments import Fields, Json, Path, argument, parse_byte_count, parse_fields
from bags.cli.output import plural, print_json

__all__ = ['PANEL', 'export']

PANEL = 'Copy and convert'


class Format(enum.StrEnum):
    WEBDATASET = 'webdataset'
    FILES = 'files'


def export(
    path: Path,
    target: Annotated[str, argument('TARGET', 'A new or empty folder.')],
    format: Annotated[
        Format, typer.Option(help='webdataset for tars, files for a folder of files.')
    ] = Format.WEBDATASET,
    fields: Fields = None,
    shard_size: Annotated[str, typer.Option(metavar='BYTES', help='Size of a full tar.')] = '1GiB',
    json: Json = False,
) -> None:
    """Writes a dataset as WebDataset tars, or as a folder of files. Records are written byte for byte.

    Example: bags export dataset tars

    Example: bags export dataset photos --format files --fields jpg,txt
    """
    import bags
    from bags.dataset.open import open_with_known_decoders

    with open_with_known_decoders(path) as dataset:
        count, names, size = len(dataset), parse_fields(fields, dataset.spec), parse_byte_count(shard_size)
        files = bags.export(dataset, target, format=format.value, fields=names, shard_size=size)
    if json:
        print_json({'datapoints': count, 'files': files})
    else:
        print(f'{plural(count, "datapoint")}, {plural(files, "file")}')
