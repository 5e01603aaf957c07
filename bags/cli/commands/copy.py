"""`bags copy`, `append`, `push`; `consolidate`, `create-index` and `prefetch`, which make reading faster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bags.cli.arguments import (
    SHARD_SIZE_TEXT,
    CheckSource,
    Checksum,
    Compression,
    DropField,
    Durability,
    Fields,
    Json,
    Mode,
    OnError,
    Rename,
    Rows,
    ShardLength,
    ShardSize,
    TrustLinks,
    Workers,
    argument,
    check_field,
    option,
    parse_byte_count,
    parse_compression,
    parse_fields,
    parse_renames,
    parse_trusted,
    select_rows,
)
from bags.cli.output import answer, facts_of, say, summary, trust_lines
from bags.display.counts import byte_count, plural


def copy(
    source: Annotated[str, argument('SOURCE', 'A dataset; also a URL.')],
    target: Annotated[str, argument('TARGET', 'The copy; also a URL.')],
    rows: Rows = '',
    fields: Fields = None,
    drop_field: DropField = None,
    rename: Rename = None,
    compression: Compression = None,
    shard_size: ShardSize = SHARD_SIZE_TEXT,
    shard_length: ShardLength = None,
    resume: Annotated[bool, typer.Option('--resume', help='Resume an interrupted copy.')] = False,
    check_source: CheckSource = True,
    mode: Mode = 'create',
    link: Annotated[
        str | None,
        option(
            '--link',
            metavar='FIELDS',
            help='Link these fields instead of copying them; "all": fields with records of over 256 bytes.',
        ),
    ] = None,
    trust_links: TrustLinks = None,
    on_error: OnError = 'raise',
    checksum: Checksum = None,
    durability: Durability = 'close',
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Copies a dataset or a part of it: resharded, with another compression, or with fewer fields.

    Records are copied without decoding.

    Example: bags copy episodes half --rows ::2 --fields id,words

    Example: bags copy episodes small --compression words,meta=19

    Example: bags copy episodes view --rows ::2 --link all
    """
    import bags

    with bags.open(source, raw=True, trust_links=parse_trusted(trust_links)) as dataset:
        view, names = select_rows(dataset, rows), parse_fields(fields, dataset.spec)
        if drop_field is not None:
            dropped = parse_fields(drop_field, dataset.spec) or ()
            names = [name for name in names or view.spec if name not in dropped]
        if rename:
            view = view.select(fields=names).rename(parse_renames(rename, names or view.spec))
            names = None
        spec = {name: view.spec[name] for name in names or view.spec}
        done = view.save(
            target,
            fields=names,
            compression=parse_compression(compression, spec),
            shard_size=parse_byte_count(shard_size),
            shard_length=shard_length,
            resume=resume,
            check_source=check_source,
            mode=mode,
            checksum=checksum,
            durability=durability,
            workers=workers,
            on_error=on_error,
            link=link == 'all' or parse_fields(link, spec) or False,
        )
    for skipped in () if json else done.skipped:
        say(f'left out: datapoint {skipped.datapoint:,}: {skipped.error}', 'yellow')
    lines = *done.notes, summary(target, done), *trust_lines(done.trust_links)
    answer(json, {'source': source, 'target': target, **facts_of(done)}, *lines)


def append(
    source: Annotated[str, argument('SOURCE', 'A dataset with the spec and the metadata of the target.')],
    target: Annotated[str, argument('TARGET', 'A sharded dataset, or the folder of a new one; also a URL.')],
    shard_size: ShardSize = SHARD_SIZE_TEXT,
    shard_length: ShardLength = None,
    durability: Durability = 'close',
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Adds the datapoints of a dataset to a sharded dataset, as new shards after its last one.

    The same command continues an interrupted append. A dataset that was appended is not appended again.

    Example: bags append episodes s3://bucket/all
    """
    import bags

    done = bags.append(
        source, target, shard_size=parse_byte_count(shard_size), shard_length=shard_length,
        durability=durability, workers=workers,
    )  # fmt: skip
    answer(json, {'source': source, 'target': target, **facts_of(done)}, summary(target, done))


def push(
    path: Annotated[str, argument('PATH', 'A local dataset.')],
    target: Annotated[str, argument('TARGET', 'A repository: hf://datasets/OWNER/NAME[@BRANCH][/PATH].')],
    append: Annotated[
        bool, option('--append', help='Add the shards after the shards of the repository.')
    ] = False,
    message: Annotated[
        str | None, option('--message', '-m', metavar='TEXT', help='Title of the commit.')
    ] = None,
    viewer: Annotated[
        str | None, option('--viewer', metavar='URL', help='A page from bags view --export, to link to.')
    ] = None,
    json: Json = False,
) -> None:
    """Uploads a dataset to a repository of the Hugging Face hub, in one commit.

    The same command continues an interrupted push. The token is taken from HF_TOKEN, or from hf
    auth login.

    Example: bags push episodes hf://datasets/u/d

    Example: bags push monday hf://datasets/u/d --append
    """
    import bags

    url = bags.push(path, target, append=append, message=message, viewer=viewer)
    answer(json, {'path': path, 'url': url}, f'{path}: pushed to {url}')


def consolidate(
    path: Annotated[str, argument('PATH', 'A sharded dataset; also a URL.')], json: Json = False
) -> None:
    """Writes shards.json into a sharded dataset, so that it opens with one request over a network.

    Example: bags consolidate episodes
    """
    import bags

    shards = bags.consolidate(path)
    answer(json, {'path': path, 'shards': shards}, f'{path}: consolidated {plural(shards, "shard")}')


def create_index(
    path: Annotated[str, argument('PATH', 'A dataset; also a URL.')],
    field: Annotated[str, argument('FIELD', 'The field with the keys: utf8, bytes, int or uint.')],
    trust_links: TrustLinks = None,
    json: Json = False,
) -> None:
    """Writes the index of a field of keys, so that find() and find_many() can look up datapoints.

    Example: bags create-index episodes id
    """
    import bags

    with bags.open(path, raw=True) as dataset:
        check_field(field, dataset.spec)
    keys = bags.create_index(path, field, trust_links=parse_trusted(trust_links))
    facts = {'path': path, 'field': field, 'keys': keys}
    answer(json, facts, f'{path}: indexed {plural(keys, "key")} of {field}')


def prefetch(
    path: Annotated[str, argument('PATH', 'The URL of a dataset.')],
    cache: Annotated[
        str, option('--cache', metavar='DIR', help='The folder to pass as cache= when reading the dataset.')
    ],
    rows: Rows = '',
    fields: Fields = None,
    cache_size: Annotated[
        str | None, option('--cache-size', metavar='BYTES', help='Maximum size of the cache, as 500GB.')
    ] = None,
    cache_check: Annotated[
        str | None,
        option(
            '--cache-check',
            metavar='WHEN',
            help="Value to pass as cache_check=: 'open' (the default), or 'never' to read offline later.",
        ),
    ] = None,
    trust_links: TrustLinks = None,
    json: Json = False,
) -> None:
    """Downloads a dataset, or a part of it, into a cache, so that later reads are local.

    Example: bags prefetch s3://bucket/episodes --cache cache

    Example: bags prefetch s3://bucket/episodes --cache cache --rows :10 --fields id,words
    """
    import bags

    options: dict[str, Any] = {} if cache_size is None else {'cache_size': parse_byte_count(cache_size)}
    if cache_check is not None:
        options['cache_check'] = cache_check
    with bags.open(path, cache=cache, trust_links=parse_trusted(trust_links), **options) as dataset:
        fetched = bags.prefetch(select_rows(dataset, rows), parse_fields(fields, dataset.spec))
    facts = {'path': path, 'cache': cache, 'bytes': fetched}
    answer(json, facts, f'{path}: {byte_count(fetched)} are in {cache}')
