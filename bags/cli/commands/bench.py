"""`bags bench`: measures how fast a loader reads a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bags.cli.arguments import Fields, Json, TrustLinks, argument, parse_fields, parse_trusted
from bags.cli.errors import UsageError
from bags.cli.output import print_json, print_rich, say, table
from bags.display.counts import byte_count, plural

if TYPE_CHECKING:
    from bags.loader.bench import BenchRun


def bench(
    path: Annotated[str, argument('PATH', 'A dataset; also a URL.')],
    fields: Fields = None,
    batch: Annotated[int, typer.Option('--batch', metavar='N', min=1, help='Datapoints in a batch.')] = 64,
    workers: Annotated[
        str, typer.Option('--workers', metavar='NUMBERS', help='Threads, separated by commas; 0: without.')
    ] = '0,1,4,16',
    processes: Annotated[bool, typer.Option('--processes', help='Run with processes, too.')] = False,
    shuffle: Annotated[
        Literal['all', 'shards', 'none'],
        typer.Option('--shuffle', help='shards: a few shards at a time, for object stores.'),
    ] = 'all',
    seconds: Annotated[
        float, typer.Option('--seconds', metavar='S', min=0.01, help='Duration of each run and replay.')
    ] = 2.0,
    trust_links: TrustLinks = None,
    json: Json = False,
) -> None:
    """Measures how fast a loader makes batches, and where the time goes: read, decode, hand over.

    Prints a line for each number of workers, the bottleneck of each, and the option that moves it. `replay`
    is the rate at which batches that are in memory reach a loop: no loader can be faster.

    Example: bags bench episodes

    Example: bags bench episodes --fields image --batch 64 --workers 1,4,16 --processes
    """
    import bags
    from bags.loader.bench import bench as runs_of

    counts = _parse_workers(workers)
    with bags.open(path, trust_links=parse_trusted(trust_links)) as dataset:
        chosen = parse_fields(fields, dataset.schema)
        order: bool | Literal['shards'] = 'shards' if shuffle == 'shards' else shuffle == 'all'
        runs = list(
            runs_of(
                dataset, batch, counts, fields=chosen, processes=processes, shuffle=order, seconds=seconds
            )
        )
        names = list(dataset.schema) if chosen is None else chosen
    if json:
        facts = {'path': path, 'fields': names, 'batch_size': batch, 'shuffle': shuffle}
        print_json({**facts, 'runs': [_facts(run) for run in runs]})
    else:
        _print(runs, names)


def _parse_workers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(',')]
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f'--workers: expected numbers as 1,4,16, got {text!r}')
    return list(dict.fromkeys(map(int, parts)))


def _facts(run: BenchRun) -> dict[str, Any]:
    return {
        'workers': run.workers,
        'processes': run.processes,
        'datapoints_per_second': run.rate,
        'replayed_per_second': run.replay_rate,
        'first_wait': run.first_wait,
        'timing': run.timing.as_dict(),
    }


def _print(runs: list[BenchRun], names: list[str]) -> None:
    """Prints a line for each run, and the bottlenecks."""
    decoded = [name for name in names if any(name in run.timing.decode for run in runs)]
    stages = ['read', *(f'decode {name}' for name in decoded), 'collate', 'hand over']
    is_remote = any(run.timing.requests for run in runs)
    heads = ['workers', 'datapoints/s', 'replay', *stages, 'processors', 'ready', 'first batch']
    heads += ['requests/s', 'received'] if is_remote else []
    rows = []
    for run in runs:
        timing, steps = run.timing, max(run.timing.steps, 1)
        work: dict[str, float] = {
            'read': timing.read,
            'collate': timing.collate,
            'hand over': timing.hand_over,
        }
        work |= {f'decode {name}': part for name, part in timing.decode.items()}
        cells = [_who(run), f'{run.rate:,.0f}', f'{run.replay_rate:,.0f}']
        cells += [f'{1000 * work.get(stage, 0.0) / steps:.2f} ms' for stage in stages]
        used = f'{timing.processors:.1f}' if run.workers else ''
        ready = f'{timing.ready:.1f} of {timing.prefetch:.0f}' if run.workers else ''
        cells += [used, ready, f'{1000 * run.first_wait:,.0f} ms']
        if is_remote:
            cells += [
                f'{timing.requests / timing.wall:,.0f}',
                f'{byte_count(timing.received_bytes / timing.wall)}/s',
            ]
        rows.append(cells)
    print_rich(table([(head, 'right' if number else 'left') for number, head in enumerate(heads)], rows))
    say('Stages are work per step; workers do several at a time.\n', 'dim')
    for run in runs:
        say(f'{_who(run)}: {run.timing.advice}')


def _who(run: BenchRun) -> str:
    if not run.workers:
        return 'none'
    return plural(run.workers, 'process' if run.processes else 'thread').replace('processs', 'processes')
