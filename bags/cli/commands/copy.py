"""`bags copy`; `bags consolidate`, `bags index` and `bags prefetch`, which make reading faster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bags.cli.arguments import (
    SHARD_SIZE,
    Durability,
    Fields,
    Json,
    Overwrite,
    Rows,
    ShardSize,
    argument,
    check_field,
    mode_of,
    option,
    parse_byte_count,
    parse_compression,
    parse_fields,
    select_rows,
)
from bags.cli.output import answer, facts_of, say, summary
from bags.display.counts import byte_count, plural


def copy(
    source: Annotated[str, argument('SOURCE', 'A dataset; also a URL.')],
    target: Annotated[str, argument('TARGET', 'The copy; also a URL.')],
    rows: Rows = '',
    fields: Fields = None,
    compression: Annotated[
        str | None,
        option(
            '--compression', metavar='NAMES', help='As meta,text=19 or text=dictionary; by default unchanged.'
        ),
    ] = None,
    shard_size: ShardSize = SHARD_SIZE,
    shard_length: Annotated[
        int | None, typer.Option(min=1, show_default=False, help='Datapoints of a full shard.')
    ] = None,
    resume: Annotated[bool, typer.Option('--resume', help='Continue an interrupted copy.')] = False,
    other_source: Annotated[
        bool, typer.Option('--other-source', help='Continue even if the source has changed since.')
    ] = False,
    overwrite: Overwrite = False,
    skip: Annotated[
        bool, typer.Option('--skip', help='Leave out datapoints that cannot be read, and list them.')
    ] = False,
    durability: Durability = 'close',
    json: Json = False,
) -> None:
    """Copies a dataset or a part of it: resharded, with other compression, with fewer fields.

    Records are copied undecoded.

    Example: bags copy episodes half --rows ::2 --fields id,words

    Example: bags copy episodes small --compression words,meta=19
    """
    import bags

    with bags.open(source, raw=True) as dataset:
        done = bags.copy(
            select_rows(dataset, rows),
            target,
            fields=parse_fields(fields, dataset.spec),
            compression=None if compression is None else parse_compression(compression, dataset.spec),
            shard_size=parse_byte_count(shard_size),
            shard_length=shard_length,
            resume=resume,
            check_source=not other_source,
            mode=mode_of(overwrite),
            durability=durability,
            on_error='skip' if skip else 'raise',
        )
    for each in () if json else done.skipped:
        say(f'left out: datapoint {each.datapoint:,}: {each.error}', 'yellow')
    answer(json, {'source': source, 'target': target, **facts_of(done)}, *done.notes, summary(target, done))


def consolidate(
    path: Annotated[str, argument('PATH', 'A sharded dataset; also a URL.')], json: Json = False
) -> None:
    """Writes shards.json into a sharded dataset, so that it opens with one request over a network.

    Example: bags consolidate episodes
    """
    import bags

    shards = bags.consolidate(path)
    answer(json, {'path': path, 'shards': shards}, f'{path}: consolidated {plural(shards, "shard")}')


def index(
    path: Annotated[str, argument('PATH', 'A dataset; also a URL.')],
    field: Annotated[str, argument('FIELD', 'Its field of keys: utf8, bytes, int or uint.')],
    json: Json = False,
) -> None:
    """Writes the index of a field of keys, with which find() and find_many() find datapoints.

    Example: bags index episodes id
    """
    import bags

    with bags.open(path, raw=True) as dataset:
        check_field(field, dataset.spec)
    keys = bags.create_index(path, field)
    facts = {'path': path, 'field': field, 'keys': keys}
    answer(json, facts, f'{path}: indexed {plural(keys, "key")} of {field}')


def prefetch(
    path: Annotated[str, argument('PATH', 'The URL of a dataset.')],
    cache: Annotated[
        str, option('--cache', metavar='DIR', help='The folder to pass as cache= when it is read.')
    ],
    rows: Rows = '',
    fields: Fields = None,
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

    options: dict[str, Any] = {} if size is None else {'cache_size': parse_byte_count(size)}
    with bags.open(path, cache=cache, **options) as dataset:
        fetched = bags.prefetch(select_rows(dataset, rows), parse_fields(fields, dataset.spec))
    facts = {'path': path, 'cache': cache, 'bytes': fetched}
    answer(json, facts, f'{path}: {byte_count(fetched)} are in {cache}')
