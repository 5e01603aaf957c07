"""The page of `bags view` over 200,000 datapoints: its first grid, and its frames beside a plain page.

python -m benchmarks.viewer [--rounds 6]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import bags
from bags.viewer.server import ViewServer

ROOT = Path(__file__).parents[1]
ROWS = 200_000
SPEC = {'photo': 'png', 'caption': 'utf8', 'label': 'int(1)', 'id': 'int(8)', 'score': 'float(4)'}
METADATA = {'fields': {'label': {'classes': ['cat', 'dog', 'owl']}}}


def write(path: Path) -> None:
    """Writes the dataset: photos of 32 x 32, captions, labels and numbers."""
    rng = np.random.default_rng(0)
    photos = [rng.integers(0, 255, (32, 32, 3), np.uint8) for _ in range(64)]
    with bags.ShardedDatasetWriter(path, SPEC, shard_length=50_000, metadata=METADATA) as writer:
        for row in range(ROWS):
            writer.append(
                {
                    'photo': photos[row % len(photos)],
                    'caption': f'a photo of animal {row} in the grass',
                    'label': row % 3,
                    'id': row,
                    'score': row / ROWS,
                }
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--rounds', type=int, default=6)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'rows'
        write(path)
        with ViewServer(path) as server:
            command = [shutil.which('node') or 'node', ROOT / 'viewer' / 'scroll.mjs', server.url]
            subprocess.run([*command, str(ROWS), str(rounds)], check=True)


if __name__ == '__main__':
    main()
