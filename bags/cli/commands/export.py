"""`bags export`: a dataset becomes files that others read."""

from __future__ import annotations

from typing import Annotated

import typer

from bags.cli.options import Fields, Json, Path, chosen_fields

__all__ = ['PANEL', 'export']

PANEL = 'Make'


def export(
    path: Path,
    target: Annotated[str, typer.Argument(show_default=False, help='A new or empty folder.')],
    format: Annotated[
        str, typer.Option(help='webdataset for tars, files for a folder of files.')
    ] = 'webdataset',
    fields: Fields = None,
    shard_size: Annotated[int, typer.Option(help='Bytes from which on a tar is full.')] = 1 << 30,
    json: Json = False,
) -> None:
    """Writes a dataset as WebDataset tars, or as a folder of files. Records go out byte for byte.

    Example: bags export dataset tars

    Example: bags export dataset photos --format files --fields jpg,txt
    """
    import bags
    from bags.cli.printing import print_json

    with bags.open(path) as dataset:
        files = bags.export(
            dataset, target, format=format, fields=chosen_fields(fields), shard_size=shard_size
        )
        count = len(dataset)
    if json:
        print_json({'datapoints': count, 'files': files})
    else:
        print(f'{count:,} datapoints, {files:,} files')
