"""`bags info`: what there is at a path, in numbers."""

from __future__ import annotations

from typing import Any

from bags.cli.options import Json, Path

__all__ = ['PANEL', 'info']

PANEL = 'Look'


def info(path: Path, json: Json = False) -> None:
    """Fields, types, datapoints, bytes, and how large records and how long sequences are.

    Example: bags info episodes
    """
    import dataclasses

    from bags.cli.printing import print_json
    from bags.maintenance.info import describe_bags, describe_dataset
    from bags.maintenance.sources import find_source

    source = find_source(path)
    if source.kind == 'bags':
        bag = describe_bags(source)
        print_json({'kind': 'bag', **dataclasses.asdict(bag)}) if json else _print_bag(path, bag)
    else:
        dataset = describe_dataset(source)
        print_json({'kind': 'dataset', **dataclasses.asdict(dataset)}) if json else _print_dataset(
            path, dataset
        )


def _print_dataset(path: str, facts: Any) -> None:
    from bags.cli.printing import as_given, byte_count, console, emit, table, text

    out = console()
    shards, size = _count(facts.shards, 'shard'), byte_count(facts.bytes)
    head = f'{_count(facts.datapoints, "datapoint")} in {shards}, {size}'
    emit(out, text(path, 'bold'))
    emit(out, text(head))
    emit(out, '')
    columns = [('field', 'left'), ('type', 'left'), ('bytes', 'right')]
    ratios = any(field.ratio for field in facts.fields.values())
    if ratios:
        columns.append(('zstd', 'right'))
    columns.append(('bytes a record', 'whole'))
    items = any(field.items for field in facts.fields.values())
    if items:
        columns.append(('items', 'whole'))
    rows = []
    for name, field in facts.fields.items():
        row = [name, field.type, byte_count(field.bytes)]
        if ratios:
            row.append(f'{field.ratio:.1f}×' if field.ratio else '')
        row.append(_histogram(field.record_bytes, byte_count))
        if items:
            row.append(_histogram(field.items, lambda number: f'{number:,.0f}'))
        rows.append(row)
    rows.append(['(refs)', '', byte_count(facts.refs_bytes)] + [''] * (len(columns) - 3))
    emit(out, table(columns, rows))
    if facts.sampled_shards < facts.shards:
        emit(out, '')
        emit(out, text(f'Records and items: of {facts.sampled_shards} of {facts.shards:,} shards.', 'dim'))
    _print_unclosed([as_given(part, path) for part in facts.unclosed], out)


def _print_bag(path: str, facts: Any) -> None:
    from bags.cli.printing import as_given, byte_count, console, emit, text

    out = console()
    emit(out, text(path, 'bold'))
    zstd = f', zstd {facts.ratio:.1f}×' if facts.ratio else ', zstd' if facts.compressed else ''
    where = f' in {_count(facts.bags, "bag")}' if facts.bags > 1 else ''
    emit(out, text(f'{_count(facts.records, "record")}{where}, {byte_count(facts.bytes)}{zstd}'))
    if facts.record_bytes:
        emit(out, text(f'bytes a record  {_histogram(facts.record_bytes, byte_count)}'))
    _print_unclosed([as_given(part, path) for part in facts.unclosed], out)


def _print_unclosed(paths: list[str], out: Any) -> None:
    from bags.cli.printing import emit, text

    if paths:
        more = f' and {len(paths) - 1:,} more' if len(paths) > 1 else ''
        emit(out, '')
        said = (
            f'Not closed: {paths[0]}{more}. It is being written, or its writer was killed: see bags recover.'
        )
        emit(out, text(said, 'yellow'))


def _count(number: int, what: str) -> str:
    return f'{number:,} {what}{"" if number == 1 else "s"}'


def _histogram(found: Any, unit: Any) -> str:
    """Least, bars, most: `12 B ▁▃█▂ 480 B`; the number alone where all are the same."""
    from bags.cli.printing import bars

    if found is None:
        return ''
    if found.min == found.max:
        return str(unit(found.min))
    return f'{unit(found.min)} {bars(found.counts)} {unit(found.max)}'
