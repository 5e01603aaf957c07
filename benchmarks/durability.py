"""The cost of durability: writing with each of its values, beside `cp` and `sync` of the same files.

`python -m benchmarks --only durability`; the files have to be on a disk: `$BAGS_BENCH_DIR`.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bags
from benchmarks import data, report
from benchmarks.timing import Candidate, time_interleaved

SIZES = {'30 KB': (30_000, 20_000), '100 B': (100, 200_000)}
"""Bytes of a record, and records."""
VALUES = ('close', 'flush', 'none')
SPEC = {'data': 'bytes'}


def main(output: report.Report, *, quick: bool) -> None:
    """Prints one table for each size of records."""
    report.heading('Durability: us a datapoint')
    for name, (size, count) in SIZES.items():
        count = count // 5 if quick else count
        records = list(data.records(count, size, variable=False, content='random'))
        source = data.cached(f'durability-{size}-{count}', lambda path, records=records: write(path, records))
        data.warm(source)
        candidates = {f'bags, {value}': candidate(count, writing(records, value)) for value in VALUES}
        candidates['cp'] = candidate(count, lambda path, source=source: copy(source, path))
        candidates['cp and sync'] = candidate(count, lambda path, source=source: copy_and_sync(source, path))
        timings = time_interleaved(candidates, seconds=60, min_rounds=3 if quick else 7, max_rounds=9)
        title = f'write {count:,} datapoints of {name}'
        output.compare(title, timings, 'bags, close', {})


def candidate(count: int, run: Callable[[Path], object]) -> Candidate:
    """Writes to a new path, on a disk with nothing left to write."""

    def before() -> Path:
        path = data.scratch('durability')
        os.sync()
        return path

    return Candidate(run, count, before, data.remove)


def writing(records: list[bytes], durability: Any) -> Callable[[Path], None]:
    return lambda path: write(path, records, durability=durability)


def write(path: Path, records: list[bytes], **options: Any) -> None:
    with bags.DatasetWriter(path, SPEC, **options) as writer:
        for record in records:
            writer.append({'data': record})


def copy(source: Path, path: Path) -> None:
    subprocess.run(['cp', '-r', '--reflink=never', source, path], check=True)


def copy_and_sync(source: Path, path: Path) -> None:
    copy(source, path)
    data.sync(path)
