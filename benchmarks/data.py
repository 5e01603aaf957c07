"""Reproducible records and datapoints to measure with, in files that are kept between runs."""

import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

POOL = 4 << 20
BLOB = 30_000
Row = dict[str, Any]


def directory() -> Path:
    """Returns the folder of files that are kept between runs: $BAGS_BENCH_DIR, or a temporary folder."""
    path = Path(os.environ.get('BAGS_BENCH_DIR') or Path(tempfile.gettempdir()) / 'bags-bench')
    path.mkdir(parents=True, exist_ok=True)
    return path


def cached(name: str, build: Callable[[Path], object]) -> Path:
    """Returns the file or folder `name`, which is built if it does not exist or was left unfinished."""
    path = directory() / name
    if not path.exists():
        unfinished = path.with_name(f'unfinished-{name}')
        remove(unfinished)
        print(f'  (building {name})', flush=True)
        build(unfinished)
        unfinished.rename(path)
    return path


def scratch(name: str) -> Path:
    """Returns a path to write to, after removing what is there."""
    path = directory() / f'scratch-{name}'
    remove(path)
    return path


def warm(path: Path) -> None:
    """Brings a file, or all files of a folder, into the page cache."""
    for file in path.rglob('*') if path.is_dir() else (path,):
        if file.is_file():
            with open(file, 'rb') as opened:
                while opened.read(1 << 24):
                    pass


def sync(path: Path) -> None:
    """Writes a file, or a folder and all that is in it, to the disk."""
    for each in [path, path.parent, *(path.rglob('*') if path.is_dir() else ())]:
        fd = os.open(each, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def remove(path: Path) -> None:
    """Removes a file or a folder, if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@functools.cache
def pool(content: str) -> bytes:
    """Returns bytes to cut records from: 'text' (words, which zstd halves) or 'random' (incompressible)."""
    rng = np.random.default_rng(1)
    if content == 'random':
        return rng.bytes(POOL)
    letters = [rng.integers(97, 123, size).astype(np.uint8).tobytes() for size in rng.integers(2, 10, 4096)]
    words = np.minimum(rng.zipf(1.3, POOL // 4), len(letters)) - 1
    return b' '.join(letters[word] for word in words.tolist())[:POOL]


def records(count: int, size: int, *, variable: bool, content: str = 'text') -> Iterator[bytes]:
    """Returns records of `size` bytes, or of half to one and a half times that, evenly distributed."""
    source = pool(content)
    rng = np.random.default_rng(2)
    sizes = rng.integers(size // 2, size + size // 2 + 1, count) if variable else np.full(count, size)
    starts = rng.integers(0, len(source) - sizes)
    for start, length in zip(starts.tolist(), sizes.tolist(), strict=True):
        yield source[start : start + length]


def rows(count: int, size: int = BLOB) -> Iterator[Row]:
    """Yields datapoints of an int, a text of 20 to 200 characters, a float32[256] and `size` bytes."""
    text, noise = pool('text').decode(), pool('random')
    # Separate generators, so that the first rows are the same for any count.
    starts = np.random.default_rng(3).integers(0, POOL - BLOB, count).tolist()
    lengths = np.random.default_rng(4).integers(20, 201, count).tolist()
    for index, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        vector = np.frombuffer(noise, np.uint8, 256, start).astype(np.float32)
        words, blob = text[start : start + length], noise[start : start + size]
        yield {'id': index * 7919, 'text': words, 'vector': vector, 'blob': blob}


def order(count: int, length: int, seed: int = 4) -> np.ndarray:
    """Returns random indices below `length`, int64, shape (count,), without repeats if `count` allows it."""
    return np.random.default_rng(seed).choice(length, count, replace=count > length)
