"""`bags prefetch`: filling the cache of a dataset that is elsewhere."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from bags.cli.options import Fields, Json

__all__ = ['PANEL', 'prefetch']

PANEL = 'Make'


class Mode(enum.StrEnum):
    FILES = 'files'
    BLOCKS = 'blocks'


def prefetch(
    path: Annotated[str, typer.Argument(metavar='PATH', show_default=False, help='The URL of a dataset.')],
    cache: Annotated[
        str,
        typer.Option(
            metavar='DIR', show_default=False, help='The folder that is given as cache= when it is read.'
        ),
    ],
    index: Annotated[
        str,
        typer.Option(
            '--rows',
            metavar='INDEX',
            show_default=False,
            help='Only datapoints as 10:20, with commas between.',
        ),
    ] = '',
    fields: Fields = None,
    mode: Annotated[
        Mode,
        typer.Option(
            '--mode',
            help='Whole files, or only the blocks of what is read.',
        ),
    ] = Mode.FILES,
    size: Annotated[
        str | None,
        typer.Option(metavar='BYTES', show_default=False, help='Most bytes in the cache, as 500GB.'),
    ] = None,
    json: Json = False,
) -> None:
    """Fetches a dataset, or a part of it, into a cache, so that reading it is local from then on.

    Example: bags prefetch s3://bucket/episodes --cache cache

    Example: bags prefetch s3://bucket/episodes --cache cache --rows :10 --fields id,words
    """
    from typing import Any

    import bags
    from bags.cli.printing import byte_count, console, emit, print_json, text
    from bags.cli.selecting import parse_byte_count, parse_fields, parse_rows

    options: dict[str, Any] = {'cache': cache, 'cache_mode': mode}
    if size is not None:
        options['cache_size'] = parse_byte_count(size)
    with bags.open(path, **options) as dataset:
        view = bags.select(dataset, parse_rows(index, len(dataset))[0]) if index else dataset
        there = bags.prefetch(view, parse_fields(fields, dataset.spec))
    if json:
        print_json({'path': path, 'cache': cache, 'bytes': there})
    else:
        emit(console(), text(f'{path}: {byte_count(there)} are in {cache}'))
