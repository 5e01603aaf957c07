"""Excerpts of a batch beside whole files: `python -m benchmarks.excerpts [--delay SECONDS]`.

Counts the bytes and requests of batches from S3, which nginx serves on loopback. Batches have 64 frames, two
of each of 32 random times, of 16 recordings of a minute of H.264 of 640 x 360, with a key frame every two
seconds.
If torchcodec imports, the decoding of the excerpts is timed too: on the CPU, and on a GPU if there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import bags
from benchmarks import data
from benchmarks.server import BUCKET, delayed, nginx, nginx_path
from benchmarks.video import RATE, long_video

RECORDINGS, FRAMES, TIMES, BATCHES = 16, 1_500, 32, 20
OPTIONS = {'key': 'a', 'secret': 'b'}


def main() -> None:
    """Prints a line for each way to read a batch, and for each device."""
    parser = argparse.ArgumentParser(prog='python -m benchmarks.excerpts', description=__doc__)
    parser.add_argument('--delay', type=float, default=0.02, help='seconds that each request waits')
    delay = parser.parse_args().delay
    if nginx_path() is None:
        print('skipped: nginx is not installed')
        return
    os.environ.update(AWS_DEFAULT_REGION='us-east-1', AWS_ALLOW_HTTP='true')
    root = data.directory() / 'excerpts'
    prepare(root / BUCKET / 'recordings')
    with nginx(root) as url, delayed(url, delay) as slow:
        options = {**OPTIONS, 'endpoint_url': slow}
        with bags.open(f's3://{BUCKET}/recordings', storage_options=options) as dataset:
            print(f'batches of {TIMES} x 2 frames of {RECORDINGS} recordings, {1e3 * delay:g} ms a request')
            print(f'{"":<34}{"requests":>10}{"MB":>10}{"ms":>10}')
            for name, read in WAYS.items():
                count(dataset, name, read)
            decode_excerpts(dataset)


def prepare(folder: Path) -> None:
    """Writes the recordings, if they do not exist yet."""
    if folder.exists():
        return
    new, video = folder.with_suffix('.new'), folder.with_suffix('.mp4')
    shutil.rmtree(new, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    long_video(video, FRAMES)
    with bags.remux(video) as file:
        content = bytes(file)
    with bags.ShardedDatasetWriter(new, {'camera': 'video'}, shard_length=4) as writer:
        for _ in range(RECORDINGS):
            writer.append({'camera': content})
    bags.consolidate(new)
    video.unlink()
    new.rename(folder)


def batches(number: int = BATCHES) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Yields datapoints, shape (32,), and times in seconds, shape (32, 2)."""
    chance = np.random.default_rng(0)
    for _ in range(number):
        rows = chance.integers(0, RECORDINGS, TIMES)
        yield rows, chance.integers(3, FRAMES, (TIMES, 1)) / RATE - np.array([0.08, 0.0])


def read_whole(dataset: bags.Dataset, rows: Any, _times: Any) -> None:
    """Reads the files of a batch as decoders do that take whole files."""
    for row in np.unique(rows).tolist():
        with dataset.file(row, 'camera') as file:
            file.read()


def read_excerpts(dataset: bags.Dataset, rows: Any, times: Any) -> None:
    dataset.excerpts(rows, 'camera', times)


def read_files(dataset: bags.Dataset, rows: Any, times: Any) -> None:
    """Decodes the frames on the CPU, a file after the other."""
    for row in np.unique(rows).tolist():
        dataset.stream(row, 'camera').at(times[rows == row].ravel())


WAYS: dict[str, Callable[[bags.Dataset, Any, Any], None]] = {
    'dataset.excerpts': read_excerpts,
    'whole files': read_whole,
    'stream(i).at(…), decoded on the CPU': read_files,
}


def count(dataset: bags.Dataset, name: str, read: Callable[[bags.Dataset, Any, Any], None]) -> None:
    """Prints the requests, the bytes and the time of a batch."""
    read(dataset, *next(batches()))
    before, seconds = dataset.request_counts(), []
    for rows, times in batches():
        start = time.perf_counter()
        read(dataset, rows, times)
        seconds.append(time.perf_counter() - start)
    used = dataset.request_counts().since(before)
    figures = used.requests / BATCHES, used.received / BATCHES / 1e6, statistics.median(seconds) * 1e3
    print(f'{name:<34}' + ''.join(f'{figure:10.1f}' for figure in figures), flush=True)


def decode_excerpts(dataset: bags.Dataset) -> None:
    """Prints the time to decode the excerpts of a batch on each device."""
    import bags.torch

    try:
        import torch

        excerpts = [dataset.excerpts(rows, 'camera', times) for rows, times in batches(5)]
        bags.torch.decode(excerpts[0], 'cpu')
    except ImportError as exc:
        print(f'decoding was not measured: {exc}')
        return
    devices = ['cpu', 'cuda'] if torch.cuda.is_available() else ['cpu']
    for device in devices:
        seconds = []
        for batch in excerpts:
            start = time.perf_counter()
            bags.torch.decode(batch, device)
            with contextlib.suppress(AssertionError, RuntimeError):  # Without a GPU.
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        print(f'bags.torch.decode on {device}: {statistics.median(seconds) * 1e3:.0f} ms a batch')
    if 'cuda' not in devices:
        print('decoding on a GPU was not measured: this machine has none')


if __name__ == '__main__':
    main()
