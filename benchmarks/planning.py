"""Work done before training: bins of 10⁶ and 10⁸ lengths, 10⁸ windows, statistics of 1 GB."""

import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

import bags
from bags import samplers
from benchmarks import data, report

COUNT = 1_000_000
CHUNK = 1 << 16
"""States of a datapoint, of 64 float32."""


def main(_output: report.Report, *, quick: bool) -> None:
    """Prints times and how full bins are, and compares statistics with those of NumPy in float64."""
    report.heading('Planning')
    pack()
    pack_many(10**7 if quick else 10**8)
    with tempfile.TemporaryDirectory(dir=data.directory()) as folder:
        open_windows(Path(folder) / 'windows')
        scan(Path(folder) / 'statistics', 8 if quick else 64)


def pack() -> None:
    """Packs log-normal lengths into bins; the number of images has a second budget."""
    random = np.random.default_rng(0)
    tokens = np.minimum(random.lognormal(6, 1, COUNT).astype(int) + 1, 8192)
    pictures = np.minimum(random.geometric(0.4, COUNT) - 1, 16)
    for budget in (2048, 8192, 32768):
        capped = np.minimum(tokens, budget)
        limit = max(16, int(pictures.sum() * budget / capped.sum()))
        for lengths, budgets in (
            (capped, budget),
            ({'tokens': capped, 'pictures': pictures}, {'tokens': budget, 'pictures': limit}),
        ):
            start = time.process_time()
            sampler = samplers.Packed(budgets, lengths)
            sampler.take(0, np.arange(1))
            print(f'  {budgets}: {time.process_time() - start:.2f} s of CPU, full: {sampler.fill}')
    for cap in (64, 16, 14, 8):
        start = time.process_time()
        sampler = samplers.Packed(8192, tokens, max_datapoints=cap)
        sampler.take(0, np.arange(1))
        possible = min(1, cap * tokens.mean() / 8192)
        print(
            f'  8192, at most {cap} datapoints: {time.process_time() - start:.2f} s of CPU, full: '
            f'{sampler.fill:.5f}, {sampler.fill / possible:.5f} of what the mean length allows'
        )


def pack_many(count: int) -> None:
    """Takes the first bins of many int32 lengths, and measures the memory of the process."""
    random, lengths = np.random.default_rng(0), np.empty(count, np.int32)
    for start in range(0, count, CHUNK):
        part = lengths[start : start + CHUNK]
        part[:] = random.lognormal(6, 1, len(part)) + 1
    for options in ({}, {'overlap': 1, 'max_datapoints': 16}):
        start = time.process_time()
        sampler = samplers.Packed(8192, lengths, longer='cut', **options)
        created = time.process_time() - start
        sampler.take(0, np.arange(64))
        first = time.process_time() - start
        tracemalloc.start()
        samplers.Packed(8192, lengths, longer='cut', **options).take(0, np.arange(64))
        peak = tracemalloc.get_traced_memory()[1] / count
        tracemalloc.stop()
        print(
            f'  {count:,} lengths {options or ""}: created in {created:.2f} s of CPU, first bins after '
            f'{first:.2f} s, full: {sampler.fill:.5f}, with {peak:.2f} bytes a datapoint beside its length'
        )


def open_windows(path: Path) -> None:
    """Makes views of 10⁸ windows, by items and by time."""
    with bags.DatasetWriter(path, {'x': 'uint(1)[]'}) as writer:
        for _ in range(1000):
            writer.append({'x': np.zeros(100_000, np.uint8)})
    for title, options in (
        ('of items', {'every': 'x', 'x': bags.steps(0, 16), 'padding': 'drop'}),
        ('by time', {'every': 'x', 'x': bags.times(-0.1, 0.1, rate=50), 'times': {'x': 100}}),
        ('by time, whole ones', {
            'every': 0.01, 'x': bags.times(-0.1, 0.1, rate=50), 'times': {'x': 100}, 'padding': 'drop',
        }),
    ):  # fmt: skip
        start = time.perf_counter()
        view = bags.open(path).windows(**options)
        view[len(view) // 2]
        print(f'  {len(view):,} windows {title}, and one of them: {time.perf_counter() - start:.3f} s')


def scan(path: Path, rows: int) -> None:
    """Computes statistics with one thread, from a warm page cache."""
    block = np.random.default_rng(0).standard_normal((CHUNK, 64), np.float32)
    size = rows * block.nbytes / 1e9
    with bags.DatasetWriter(path, {'x': 'array(float32,64)[]'}) as writer:
        for row in range(rows):
            writer.append({'x': block + np.float32(row)})
    with bags.open(path) as reader:
        for _ in range(2):  # The first pass reads the pages from the disk.
            start = time.process_time()
            found = bags.statistics(reader, 'x', workers=1, progress=False)['x']
            taken = time.process_time() - start
        print(f'  statistics of {size:.2f} GB: {size / taken:.2f} GB/s')
        values = np.concatenate([reader[row]['x'][:, 0] for row in range(rows)]).astype(np.float64)
    for name, wanted in (('mean', values.mean()), ('std', values.std())):
        if abs(getattr(found, name)[0] / wanted - 1) > 1e-12:
            raise AssertionError(f'{name}: expected {wanted!r}, got {getattr(found, name)[0]!r}')
    for quantile, value in found.quantiles.items():
        wanted = np.quantile(values, quantile, method='lower')
        if abs(value[0] - wanted) > found.quantile_error * abs(wanted - found.pivot[0]):
            raise AssertionError(f'quantile {quantile}: expected {wanted}, got {value[0]}')
    print(f'  mean, std and quantiles are those of {len(values):,} values in float64')
