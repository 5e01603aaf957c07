"""`bags index`: a dataset of many folders that opens with one request."""

from __future__ import annotations

from typing import Annotated

import typer

from bags.cli.options import Json

__all__ = ['PANEL', 'index']

PANEL = 'Make'


def index(
    path: Annotated[
        str, typer.Argument(metavar='PATH', show_default=False, help='A dataset of many folders; also a URL.')
    ],
    json: Json = False,
) -> None:
    """Writes shards.json into a dataset of many folders, so that it opens with one request over a network.

    Example: bags index episodes
    """
    from bags.cli.printing import console, emit, print_json, text
    from bags.maintenance.shard_list_file import index as write_index

    shards = write_index(path)
    if json:
        print_json({'path': path, 'shards': shards})
    else:
        emit(console(), text(f'{path}: indexed {shards:,} shard{"" if shards == 1 else "s"}'))
