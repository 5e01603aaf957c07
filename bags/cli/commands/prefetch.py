"""`bags prefetch`: fills the cache of a remote dataset."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import typer

from bags.cli.arguments import (
    Fields,
    Json,
    Rows,
    argument,
    option,
    parse_byte_count,
    parse_fields,
    parse_rows,
)
from bags.cli.output import byte_count, print_json, say

__all__ = ['PANEL', 'prefetch']

PANEL = 'Copy and convert'


class Mode(enum.StrEnum):
    FILES = 'files'
    BLOCKS = 'blocks'


def prefetch(
    path: Annotated[str, argument('PATH', 'The URL of a dataset.')],
    cache: Annotated[
        str, option('--cache', metavar='DIR', help='The folder to pass as cache= when it is read.')
    ],
    rows: Rows = '',
    fields: Fields = None,
    mode: Annotated[
        Mode, typer.Option('--mode', help='Whole files, or only the blocks of what is read.')
    ] = Mode.FILES,
    size: Annotated[
        str | None, option('--size', metavar='BYTES', help='Largest size of the cache, as 500GB.')
    ] = None,
    json: Json = False,
) -> None:
    """Fetches a dataset, or a part of it, into a cache, so that reading it is local from then on.

    Example: bags prefetch s3://bucket/episodes --cache cache

    Example: bags prefetch s3://bucket/episodes --cache cache --rows :10 --fields id,words
    """
    import bags

    options: dict[str, Any] = {'cache': cache, 'cache_mode': mode}
    if size is not None:
        options['cache_size'] = parse_byte_count(size)
    with bags.open(path, **options) as dataset:
        view = bags.select(dataset, parse_rows(rows, len(dataset))) if rows else dataset
        fetched = bags.prefetch(view, parse_fields(fields, dataset.spec))
    if json:
        print_json({'path': path, 'cache': cache, 'bytes': fetched})
    else:
        say(f'{path}: {byte_count(fetched)} are in {cache}')
