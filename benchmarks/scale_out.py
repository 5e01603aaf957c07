"""A run on 4,096 ranks over 10⁹ datapoints in 100,000 shards: `python -m benchmarks --only scale_out`.

What one rank does is measured on this machine. What all ranks do at once is computed from that.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bags
from benchmarks import data, memory, report

RANKS, BATCH, SHARDS = 4096, 64, 100_000
PARTS, PART = 1000, 1_000_000
"""10⁹ datapoints: a thousand times a dataset of a million."""
RECORD, RECORDS = 30_000, 4096
"""Bytes and number of the records from which requests are counted; 64 shards of them."""
HOST_RANKS = 8
S3_REQUESTS = 5500
"""Requests to read objects in a second that S3 allows at least for a prefix of names (Amazon S3 User Guide,
"Best practices design patterns: optimizing Amazon S3 performance", 2026)."""
MAX_LINKS = 50_000
"""Links to a file, of which ext4 allows 65,000."""
MEASURED, SIMULATED = 'measured, one rank', 'simulated, 4,096 ranks'


def best(work: Callable[[int], Any], count: int = 200) -> float:
    """Returns the median seconds of a call."""
    seconds = []
    for number in range(count):
        start = time.perf_counter()
        work(number)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def main(output: report.Report, *, quick: bool) -> None:
    """Prints both tables."""
    report.heading('A run on 4,096 ranks')
    measured: dict[str, dict[str, Any]] = {}
    numbers(measured)
    shards(measured, SHARDS // 100 if quick else SHARDS)
    counts = requests(measured)
    output.tables[MEASURED] = {'unit': 'as said', 'cells': measured}
    simulated = {}
    for shuffle, count in counts.items():
        all_ranks = count * RANKS
        simulated[f'requests a step of all ranks, {shuffle}'] = {'figure': f'{all_ranks:,.0f}'}
        steps = S3_REQUESTS / all_ranks
        simulated[f'steps a second that one prefix of S3 allows, {shuffle}'] = {'figure': f'{steps:.3g}'}
        prefixes = max(1, -(-all_ranks // S3_REQUESTS))
        simulated[f'prefixes for a step a second, {shuffle}'] = {'figure': f'{prefixes:,.0f}'}
    hosts = RANKS // HOST_RANKS
    simulated['hosts with a cache each, which request every file once'] = {'figure': f'{hosts:,}'}
    output.tables[SIMULATED] = {'unit': 'as said', 'cells': simulated}
    for title in (MEASURED, SIMULATED):
        print(f'\n{title}')
        for name, cell in output.tables[title]['cells'].items():
            print(f'  {name:<72}{cell["figure"]:>16}')


def numbers(cells: dict[str, dict[str, Any]]) -> None:
    """Measures what depends on the number of datapoints and ranks."""
    path = data.cached(f'scale-out-{PART}', write_million)
    start = time.perf_counter()
    part = bags.open(path)
    dataset = bags.concat([part] * PARTS)
    assert len(dataset) == 10**9
    cells['opening 1,000 datasets of 10⁶ datapoints as one of 10⁹'] = duration(time.perf_counter() - start)
    loader = bags.Loader(dataset, BATCH, seed=1, workers=0, world_size=RANKS, rank=0)
    cells['`loader.on_rank(4095, 4096)`'] = duration(best(lambda _: loader.on_rank(RANKS - 1, RANKS)))
    last = loader.on_rank(RANKS - 1, RANKS)
    cells['`indices` of a step of rank 4,095'] = duration(best(lambda step: last.indices(0, step)))
    start = time.perf_counter()
    batches = iter(last)
    next(batches)
    cells['first batch of rank 4,095'] = duration(time.perf_counter() - start)
    for _ in range(200):
        next(batches)
    cells['a batch of 64 of 10⁹ datapoints'] = duration(best(lambda _: next(batches), 500))
    state = last.state_dict()
    cells['state of all 4,096 ranks'] = {'figure': f'{len(json.dumps(state)):,} bytes of JSON'}
    third = loader.on_rank(0, RANKS // 2)
    third.load_state_dict(state)
    start = time.perf_counter()
    next(iter(third))
    cells['resuming on 2,048 ranks, to the first batch'] = duration(time.perf_counter() - start)
    cells['the dataset, pickled for a worker process'] = {'figure': f'{len(pickle.dumps(dataset)):,} bytes'}


def duration(seconds: float) -> dict[str, Any]:
    figure = f'{seconds:.3g} s' if seconds >= 1 else f'{seconds * 1000:.3g} ms'
    return {'figure': figure, 'seconds': float(f'{seconds:.4g}')}


def write_million(path: Path) -> None:
    """Writes a million integers."""
    from benchmarks.scale import build

    build(path, PART)


def shards(cells: dict[str, dict[str, Any]], count: int) -> None:
    """Measures opening and reading a dataset of many shards, with `shards.json`."""
    path = data.cached(f'scale-out-shards-{count}', lambda path: write_shards(path, count))
    before = memory.status()
    start = time.perf_counter()
    dataset = bags.open(path)
    length = len(dataset)
    cells[f'opening {count:,} shards'] = duration(time.perf_counter() - start)
    after = memory.status()
    cells[f'memory of {count:,} open shards'] = {'figure': f'{after[0] - before[0]:,.0f} MB'}
    order = np.random.default_rng(0).integers(0, length, (20, BATCH))
    cells[f'a batch of 64 from as many of {count:,} shards, first read'] = duration(
        best(lambda number: dataset.batch(order[number]), len(order))
    )


def write_shards(path: Path, count: int) -> None:
    """Writes many shards of ten datapoints: copies of one, each with an id of its own."""
    spec = {'id': 'int(8)'}
    with bags.ShardedDatasetWriter(path, spec, shard_length=10, durability='none') as writer:
        for index in range(10):
            writer.append({'id': index})
    (first,) = (each for each in path.iterdir() if each.is_dir())
    for number in range(1, count):
        shard = path / f'{number:06}'
        if number % MAX_LINKS == 0:
            first = Path(shutil.copytree(first, shard))
            continue
        shard.mkdir()
        for file in first.iterdir():
            if file.name == 'source.json':
                identity = json.loads(file.read_text())
                text = json.dumps({key: _another(value) for key, value in identity.items()})
                (shard / file.name).write_text(text)
            else:
                os.link(file, shard / file.name)
    bags.consolidate(path)


def _another(value: Any) -> Any:
    """Returns another id in place of an id."""
    return uuid.uuid4().hex[: len(value)] if isinstance(value, str) and len(value) >= 16 else value


def requests(cells: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Counts the requests of a step for a dataset on an object store in memory, by the order."""
    folder = Path(tempfile.mkdtemp(dir=data.directory()))
    counts: dict[str, float] = {}
    try:
        url = f'memory://scale-out/{uuid.uuid4().hex}'
        spec = {'raw': 'bytes', 'id': 'int(8)'}
        with bags.ShardedDatasetWriter(url, spec, shard_length=RECORDS // 64) as writer:
            for index in range(RECORDS):
                writer.append({'raw': bytes(RECORD), 'id': index})
        bags.consolidate(url)
        for shuffle in ('all', 'shards'):
            order: Any = 'shards' if shuffle == 'shards' else True
            name = f'shuffle={order!r}'
            dataset = bags.open(url)
            loader = bags.Loader(dataset, BATCH, seed=1, shuffle=order, epochs=2, workers=4, timing=True)
            batches = iter(loader)
            for _ in itertools.islice(batches, RECORDS // BATCH):
                pass
            first = loader.timing
            for _ in batches:
                pass
            second = loader.timing
            counts[name] = second.requests / second.steps
            figure = (
                f'{counts[name]:.1f} ({first.requests / first.steps:.1f} in the first epoch, with opening)'
            )
            cells[f'requests a step of 64 records of 30 KB, {name}'] = {'figure': figure}
        cached = bags.open(url, cache=folder / 'cache')
        loader = bags.Loader(cached, BATCH, seed=1, epochs=2, workers=4, timing=True)
        batches = iter(loader)
        for _ in itertools.islice(batches, RECORDS // BATCH):
            pass
        first = loader.timing
        for _ in batches:
            pass
        second = loader.timing
        figure = f'{first.requests:,} in the first epoch, {second.requests:,} in the second'
        cells['requests of two epochs of 4,096 records in 64 shards, with `cache=`'] = {'figure': figure}
    finally:
        shutil.rmtree(folder)
    return counts
