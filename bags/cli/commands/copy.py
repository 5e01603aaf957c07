"""`bags copy`: a dataset or a part of it as a dataset of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from bags.cli.options import Fields, Json

__all__ = ['PANEL', 'copy']

PANEL = 'Make'


def copy(
    source: Annotated[
        str, typer.Argument(metavar='SOURCE', show_default=False, help='A dataset; also a URL.')
    ],
    target: Annotated[
        str, typer.Argument(metavar='TARGET', show_default=False, help='Where the copy goes; also a URL.')
    ],
    rows: Annotated[
        str,
        typer.Option(
            metavar='INDEX', show_default=False, help='Only datapoints as 10:20 or ::2, with commas between.'
        ),
    ] = '',
    fields: Fields = None,
    compression: Annotated[
        str | None,
        typer.Option(
            metavar='NAMES',
            show_default=False,
            help='Fields to compress, as meta,text=19 or text=dictionary; as they are held unless given.',
        ),
    ] = None,
    shard_size: Annotated[
        str, typer.Option(metavar='BYTES', help='From which on a shard is full.')
    ] = '10GiB',
    shard_length: Annotated[
        int | None, typer.Option(min=1, show_default=False, help='Datapoints from which on a shard is full.')
    ] = None,
    resume: Annotated[
        bool, typer.Option('--resume', help='Go on with a copy that was not finished.')
    ] = False,
    skip: Annotated[
        bool, typer.Option('--skip', help='Leave out datapoints that cannot be read, and list them.')
    ] = False,
    json: Json = False,
) -> None:
    """Copies a dataset or a part of it: resharded, compressed in another way, with fewer fields.

    Records are copied as they are, undecoded.

    Example: bags copy episodes half --rows ::2 --fields id,words

    Example: bags copy episodes small --compression words,meta=19
    """
    import bags
    from bags.cli.printing import byte_count, console, emit, print_json, text
    from bags.cli.selecting import parse_byte_count, parse_compression, parse_fields, parse_rows

    with bags.open(source, raw=True) as dataset:
        view = bags.select(dataset, parse_rows(rows, len(dataset))[0]) if rows else dataset
        done = bags.copy(
            view,
            target,
            fields=parse_fields(fields, dataset.spec),
            compression=None if compression is None else parse_compression(compression, dataset.spec),
            shard_size=parse_byte_count(shard_size),
            shard_length=shard_length,
            resume=resume,
            on_error='skip' if skip else 'raise',
        )
    if json:
        skipped = [{'datapoint': each.datapoint, 'error': each.error} for each in done.skipped]
        counts = {'datapoints': done.datapoints, 'shards': done.shards, 'bytes': done.size}
        print_json({'source': source, 'target': target, **counts, 'skipped': skipped})
        return
    out = console()
    for each in done.skipped:
        emit(out, text(f'left out: datapoint {each.datapoint:,}: {each.error}', 'yellow'))
    ends = '' if done.shards == 1 else 's'
    said = f'{target}: {done.datapoints:,} datapoints in {done.shards:,} shard{ends}, {byte_count(done.size)}'
    emit(out, text(said))
