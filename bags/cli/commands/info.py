"""`bags info`, `bags metadata` and `bags statistics`: describe a dataset or a bag."""

from __future__ import annotations

import dataclasses
from json import dumps
from pathlib import Path as LocalPath
from typing import Annotated, Any

import typer

from bags.cli.arguments import Fields, Json, Path, TrustLinks, argument, option, parse_fields, parse_trusted
from bags.cli.output import columns_table, print_json, print_rich, say, table, with_path_as_given
from bags.display.counts import byte_count, plural
from bags.display.tables import extent, info_table, is_pooled, statistics_table

MAX_NEEDS = 8
"""Maximum number of folders with linked records."""
MAX_FACTS = 32
"""Maximum number of lines of metadata."""
MAX_FACT = 160
"""Maximum number of characters of the value on a line."""


def info(path: Path, json: Json = False) -> None:
    """Prints fields, types, datapoints, bytes, and the sizes of records and lengths of sequences.

    Example: bags info episodes
    """
    import bags
    from bags.maintenance.info import DatasetInfo

    summary = bags.info(path)
    is_dataset = isinstance(summary, DatasetInfo)
    if json:
        print_json({'kind': 'dataset' if is_dataset else 'bag', **dataclasses.asdict(summary)})
        return
    say(path, 'bold')
    _print_dataset(summary) if is_dataset else _print_bag(summary)
    if summary.checksums:
        say('\nEvery record has a checksum.')
    if getattr(summary, 'unfinished', False):
        why = 'it is being written, or its writer ended early (by an error, or killed).'
        if isinstance(summary, DatasetInfo) and summary.not_begun:
            from bags.dataset.format.journal import describe_not_begun

            why = f'{describe_not_begun(summary.not_begun)}.'
        say(f'\nUnfinished: {why}\nResuming continues it, bags recover accepts it as it is.', 'yellow')
    elif summary.unclosed:
        first = with_path_as_given(summary.unclosed[0], path)
        more = f' and {len(summary.unclosed) - 1:,} more' if len(summary.unclosed) > 1 else ''
        why = 'It is being written, or its writer was killed: see bags recover.'
        say(f'\nNot closed: {first}{more}. {why}', 'yellow')


def _print_dataset(summary: Any) -> None:
    shards = plural(summary.shards, 'shard')
    say(f'{plural(summary.datapoints, "datapoint")} in {shards}, {byte_count(summary.bytes)}\n')
    print_rich(columns_table(info_table(summary)))
    if summary.sampled_shards < summary.shards:
        say(f'\nRecords and items: of {summary.sampled_shards} of {shards}.', 'dim')
    opened = {name: field.unmeasured for name, field in summary.fields.items() if field.unmeasured}
    if opened:
        names = ', '.join(f'{name}: {plural(count, "file")}' for name, count in opened.items())
        say(f'\nNo length in the header, so the file was opened: {names}.', 'dim')
    if summary.needs:
        more = f' and {len(summary.needs) - MAX_NEEDS:,} more' if len(summary.needs) > MAX_NEEDS else ''
        say(f'\nNeeds the linked records of {", ".join(summary.needs[:MAX_NEEDS])}{more}.')
    if summary.metadata:
        _print_metadata(summary.metadata)


def _print_metadata(metadata: dict[str, Any]) -> None:
    """Prints a line for each key, and for each key of a field: `state.rate  200`."""
    fields = {
        f'{name}.{key}': fact
        for name, facts in metadata.get('fields', {}).items()
        for key, fact in facts.items()
    }
    texts = {
        key: dumps(value, ensure_ascii=False)
        for key, value in {**metadata, **fields}.items()
        if key != 'fields'
    }
    rows = [[key, text if len(text) <= MAX_FACT else f'{text[:MAX_FACT]}…'] for key, text in texts.items()]
    say('')
    print_rich(table([('metadata', 'left'), ('', 'left')], rows[:MAX_FACTS]))
    if len(rows) > MAX_FACTS:
        say(f'… {len(rows) - MAX_FACTS:,} more (--json prints all)', 'dim')


def _print_bag(summary: Any) -> None:
    zstd = f', zstd {summary.ratio:.1f}×' if summary.ratio else ', zstd' if summary.compressed else ''
    bags = f' in {plural(summary.bags, "bag")}' if summary.bags > 1 else ''
    say(f'{plural(summary.records, "record")}{bags}, {byte_count(summary.bytes)}{zstd}')
    if summary.record_bytes:
        say(f'bytes a record  {extent(summary.record_bytes, byte_count)}')


def metadata(
    path: Annotated[str, argument('PATH', 'A dataset; also a URL.')],
    set_to: Annotated[
        str | None, option('--set', metavar='FILE', help='Replace it with the JSON object in this file.')
    ] = None,
    json: Json = False,
) -> None:
    """Prints the metadata of a dataset as JSON, or replaces it in all shards.

    Example: bags metadata episodes > facts.json

    Example: bags metadata episodes --set facts.json
    """
    import bags

    if set_to is not None:
        from bags.dataset.format.metadata import load_metadata

        bags.set_metadata(path, load_metadata(LocalPath(set_to).read_bytes(), set_to))
    with bags.open(path, raw=True) as dataset:
        current = dataset.metadata
    if json:
        print_json({'path': path, 'metadata': current})
    else:
        say(dumps(current, indent=1, ensure_ascii=False))


def statistics(
    path: Path,
    fields: Fields = None,
    samples: Annotated[
        int, typer.Option(metavar='N', min=1, help='Datapoints whose images and videos are decoded.')
    ] = 512,
    recompute: Annotated[
        bool, typer.Option('--recompute', help='Compute them again, even if the dataset has not changed.')
    ] = False,
    keep: Annotated[
        bool, typer.Option('--keep', help='Save them in the dataset, in statistics.json.')
    ] = False,
    each: Annotated[
        bool, typer.Option('--each', help='Also print a line for each element of wide values.')
    ] = False,
    trust_links: TrustLinks = None,
    json: Json = False,
) -> None:
    """Prints mean, deviation, quantiles and a histogram of each numeric field.

    Example: bags statistics episodes

    Example: bags statistics episodes --fields id,actions
    """
    import bags

    with bags.open(path, raw=True) as dataset:
        names = parse_fields(fields, dataset.spec)
    found = bags.statistics(
        path, names, samples=samples, recompute=recompute, keep=keep, trust_links=parse_trusted(trust_links)
    )
    if json:
        from bags.display.values import to_json
        from bags.maintenance.field_statistics import as_json

        print_json(to_json({name: as_json(field) for name, field in found.items()}))
        return
    say(path, 'bold')
    print_rich(columns_table(statistics_table(found, each)))
    for name, field in found.items():
        if field.sampled is not None:
            say(f'{name}: sampled from {plural(field.sampled, "datapoint")}')
    if not each and any(map(is_pooled, found.values())):
        say('All elements of a wide value share a line; --each prints a line for each element.', 'dim')
