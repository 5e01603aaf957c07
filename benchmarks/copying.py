"""Copying a dataset of records of one size beside `cp --reflink=never` of its folder and `fsync` of the copy.

python -m benchmarks.copying [--size 1048576] [--total 1073741824] [--folder DIR]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import bags
from benchmarks import data


def best(work: Callable[[], object], target: Path, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        shutil.rmtree(target, ignore_errors=True)
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument('--size', type=int, default=1 << 20)
    parser.add_argument('--total', type=int, default=1 << 29)
    parser.add_argument('--repeats', type=int, default=5)
    parser.add_argument('--folder')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        source, target = Path(folder) / 'source', Path(folder) / 'target'
        record, count = np.random.default_rng(0).bytes(args.size), args.total // args.size
        with bags.ShardedDatasetWriter(source, {'data': 'bytes', 'id': 'int(8)'}) as writer:
            for index in range(count):
                writer.append({'data': record, 'id': index})
        reader = bags.open(source)
        mixed = reader.select(np.random.default_rng(1).permutation(count))
        ways: dict[str, Callable[[], object]] = {
            'cp and sync': lambda: copy_and_sync(source, target),
            'bags.copy': lambda: bags.copy(reader, target),
            'bags.copy, resharded': lambda: bags.copy(reader, target, shard_length=count // 7),
            'bags.copy, shuffled': lambda: bags.copy(mixed, target),
        }
        times = {name: best(work, target, args.repeats) for name, work in ways.items()}
        for name, seconds in times.items():
            rate = args.total / seconds / 1e9
            print(f'{name:24} {rate:6.2f} GB/s {times["cp and sync"] / seconds:6.2f} of cp and sync')


def copy_and_sync(source: Path, target: Path) -> None:
    subprocess.run(['cp', '-r', '--reflink=never', source, target], check=True)
    data.sync(target)


if __name__ == '__main__':
    main()
