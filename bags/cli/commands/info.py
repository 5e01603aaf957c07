"""`bags info`: counts, bytes and distributions of a dataset or a bag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bags.cli.arguments import Json, Path
from bags.cli.output import (
    byte_count,
    histogram,
    plural,
    print_json,
    print_rich,
    say,
    table,
    with_path_as_given,
)

__all__ = ['info']


def info(path: Path, json: Json = False) -> None:
    """Prints fields, types, datapoints, bytes, and how large records and how long sequences are.

    Example: bags info episodes
    """
    import dataclasses

    import bags

    found = bags.info(path)
    is_dataset = isinstance(found, bags.DatasetInfo)
    if json:
        print_json({'kind': 'dataset' if is_dataset else 'bag', **dataclasses.asdict(found)})
        return
    say(path, 'bold')
    _print_dataset(found) if is_dataset else _print_bag(found)
    if isinstance(found, bags.DatasetInfo) and found.metadata:
        from json import dumps

        say('')
        say(f'metadata  {dumps(found.metadata, ensure_ascii=False)}')
    if found.checksums:
        say('')
        say('Every record has a checksum.')
    if isinstance(found, bags.DatasetInfo) and found.unfinished:
        say('')
        say('Unfinished: it is being written, or its writer ended early (by an error, or killed).', 'yellow')
        say('Resuming continues it, bags recover accepts it as it is.', 'yellow')
    elif found.unclosed:
        first = with_path_as_given(found.unclosed[0], path)
        more = f' and {len(found.unclosed) - 1:,} more' if len(found.unclosed) > 1 else ''
        say('')
        say(
            f'Not closed: {first}{more}. It is being written, or its writer was killed: see bags recover.',
            'yellow',
        )


def _print_dataset(found: Any) -> None:
    shards = plural(found.shards, 'shard')
    say(f'{plural(found.datapoints, "datapoint")} in {shards}, {byte_count(found.bytes)}')
    say('')
    fields = found.fields.values()
    columns = [
        ('field', 'left', [*found.fields, '(refs)']),
        ('type', 'left', [*(field.type for field in fields), '']),
        ('bytes', 'right', [*(byte_count(field.bytes) for field in fields), byte_count(found.refs_bytes)]),
        ('zstd', 'right', [*(f'{field.ratio:.1f}×' if field.ratio else '' for field in fields), '']),
        ('bytes a record', 'whole', [*(_range(field.record_bytes, byte_count) for field in fields), '']),
        ('items', 'whole', [*(_range(field.items, '{:,.0f}'.format) for field in fields), '']),
    ]
    columns = [column for column in columns if any(column[2])]
    headings = [(heading, justify) for heading, justify, _ in columns]
    print_rich(table(headings, list(zip(*(cells for _, _, cells in columns), strict=True))))
    if found.sampled_shards < found.shards:
        say('')
        say(f'Records and items: of {found.sampled_shards} of {shards}.', 'dim')


def _print_bag(found: Any) -> None:
    zstd = f', zstd {found.ratio:.1f}×' if found.ratio else ', zstd' if found.compressed else ''
    bags = f' in {plural(found.bags, "bag")}' if found.bags > 1 else ''
    say(f'{plural(found.records, "record")}{bags}, {byte_count(found.bytes)}{zstd}')
    if found.record_bytes:
        say(f'bytes a record  {_range(found.record_bytes, byte_count)}')


def _range(found: Any, as_text: Callable[[float], str]) -> str:
    """Returns minimum, histogram and maximum: `12 B ▁▃█▂ 480 B`; one number where all are equal."""
    if found is None:
        return ''
    if found.min == found.max:
        return as_text(found.min)
    return f'{as_text(found.min)} {histogram(found.counts)} {as_text(found.max)}'
