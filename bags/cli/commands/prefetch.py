"""`bags prefetch`: filling the cache of a dataset that is elsewhere."""

from __future__ import annotations

from typing import Annotated

import typer

from bags.cli.options import Fields, Json, chosen_fields

__all__ = ['PANEL', 'prefetch']

PANEL = 'Make'


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
        str,
        typer.Option(
            '--mode', metavar='files|blocks', help='Whole files, or only the blocks of what is read.'
        ),
    ] = 'files',
    size: Annotated[
        int | None, typer.Option(min=1, show_default=False, help='Most bytes in the cache.')
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
    from bags.cli.selecting import parse_rows

    options: dict[str, Any] = {'cache': cache, 'cache_mode': mode}
    if size is not None:
        options['cache_size'] = size
    with bags.open(path, **options) as dataset:
        view = bags.select(dataset, parse_rows(index, len(dataset))[0]) if index else dataset
        there = bags.prefetch(view, chosen_fields(fields))
    if json:
        print_json({'path': path, 'cache': cache, 'bytes': there})
    else:
        emit(console(), text(f'{path}: {byte_count(there)} are in {cache}'))
