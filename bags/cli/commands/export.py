"""`bags export`: a dataset becomes files that others read."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from bags.cli.options import Fields, Json, Path

__all__ = ['PANEL', 'export']

PANEL = 'Make'


class Format(enum.StrEnum):
    WEBDATASET = 'webdataset'
    FILES = 'files'


def export(
    path: Path,
    target: Annotated[
        str, typer.Argument(metavar='TARGET', show_default=False, help='A new or empty folder.')
    ],
    format: Annotated[
        Format,
        typer.Option(help='webdataset for tars, files for a folder of files.'),
    ] = Format.WEBDATASET,
    fields: Fields = None,
    shard_size: Annotated[str, typer.Option(metavar='BYTES', help='From which on a tar is full.')] = '1GiB',
    json: Json = False,
) -> None:
    """Writes a dataset as WebDataset tars, or as a folder of files. Records go out byte for byte.

    Example: bags export dataset tars

    Example: bags export dataset photos --format files --fields jpg,txt
    """
    import bags
    from bags.cli.printing import print_json
    from bags.cli.selecting import parse_byte_count, parse_fields
    from bags.dataset.open import open_with_known_decoders

    with open_with_known_decoders(path) as dataset:
        files = bags.export(
            dataset,
            target,
            format=format,
            fields=parse_fields(fields, dataset.spec),
            shard_size=parse_byte_count(shard_size),
        )
        count = len(dataset)
    if json:
        print_json({'datapoints': count, 'files': files})
    else:
        print(f'{count:,} datapoints, {files:,} files')
