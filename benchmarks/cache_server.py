"""Requests to a bucket by several processes, with and without the server of docs/recipes/cache-server.md.

`python -m benchmarks.cache_server`; needs nginx, which also serves the bucket. Each process reads all
datapoints, in the same random order.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import bags
from benchmarks import data
from benchmarks.server import cache_server, nginx, nginx_path

PROCESSES, ROWS, SHARD, SIZE = 4, 2000, 500, 30_000
READER = """
import sys
import bags
reader = bags.open(sys.argv[1])
assert sum(len(batch['id']) for batch in bags.Loader(reader, 32, seed=0)) == len(reader)
"""


def main() -> None:
    """Prints the number of requests, and the bytes that the bucket sent."""
    if nginx_path() is None:
        print('skipped: nginx is not installed')
        return
    folder = Path(tempfile.mkdtemp(dir=data.directory()))
    folder.chmod(0o755)  # nginx runs as another user.
    try:
        write(folder / 'root/bucket/images')
        log = folder / 'log'
        with nginx(folder / 'root', str(log)) as bucket, cache_server(folder / 'cache', bucket) as head:
            for title, url in (
                ('directly', f'{bucket}/bucket/images'),
                ('through the cache, empty', f'{head}/bucket/images'),
                ('through the cache, full', f'{head}/bucket/images'),
            ):
                before = len(log.read_text().splitlines()) if log.exists() else 0
                command = [sys.executable, '-c', READER, url]
                processes = [subprocess.Popen(command) for _ in range(PROCESSES)]
                assert not any(process.wait() for process in processes)
                lines = log.read_text().splitlines()[before:]
                sent = sum(int(line.split('"')[2].split()[1]) for line in lines)
                of_bags = sum('.bag HTTP' in line for line in lines)
                print(f'{title:<28}{of_bags:>8,} requests for bags{len(lines) - of_bags:>8,} others', end='')
                print(f'{sent / 1e6:>10,.1f} MB', flush=True)
    finally:
        shutil.rmtree(folder)


def write(path: Path) -> None:
    """Writes datapoints of noise."""
    chance = np.random.default_rng(0)
    with bags.ShardedDatasetWriter(path, {'id': 'int(8)', 'image': 'bytes'}, shard_length=SHARD) as writer:
        for number in range(ROWS):
            writer.append({'id': number, 'image': chance.bytes(SIZE)})
    bags.consolidate(path)


if __name__ == '__main__':
    main()
