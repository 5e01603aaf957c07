"""Measures how fast a loader reads a dataset, with several numbers of workers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any, Literal, NamedTuple

import numpy as np

from bags.dataset.base import Dataset
from bags.dataset.reading.batch import Ragged
from bags.dataset.reading.selection import Fields
from bags.loader.loader import Loader
from bags.loader.timing import LoaderTiming

MAX_REPLAYED_BATCHES = 16
MAX_REPLAYED_BYTES = 1 << 24
"""Limits of the batches that are replayed: each worker process has a copy."""


class BenchRun(NamedTuple):
    """A run of a loader."""

    workers: int
    processes: bool
    timing: LoaderTiming
    """The run without its first batch."""
    first_wait: float
    """Seconds until the first batch."""
    rate: float
    """Datapoints per second."""
    replay_rate: float
    """Datapoints per second of a loader that makes no batches, but passes these batches again."""


class Replay:
    """A `transform` that returns batches that were read before."""

    def __init__(self, batches: list[Any]) -> None:
        self._batches = batches

    def __call__(self, numbers: Any) -> Any:
        return self._batches[int(numbers[0]) % len(self._batches)]


class _Steps:
    """The numbers of steps, as a map-style dataset."""

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> int:
        return index


def bench(
    dataset: Dataset,
    batch_size: int,
    workers: Sequence[int],
    *,
    fields: Fields = None,
    processes: bool = False,
    shuffle: bool | Literal['shards'] = True,
    seconds: float = 3.0,
) -> Iterator[BenchRun]:
    """Yields a run for each number of workers: with threads and, if asked for, with processes.

    Each run has another order. The first one may read from a disk what later ones find in memory.

    Args:
        dataset: The dataset.
        batch_size: Datapoints in a batch.
        workers: Numbers of threads, and of processes.
        fields: As in `Loader`.
        processes: Whether to run with processes, too.
        shuffle: As in `Loader`.
        seconds: Duration of each run and of its replay, without the first batches.
    """
    seed = 0
    for is_process, count in itertools.product((False, True) if processes else (False,), workers):
        if is_process and not count:
            continue
        seed += 1
        options: Any = {'workers': count, 'processes': is_process, 'epochs': None, 'timing': True}
        loader = Loader(dataset, batch_size, fields=fields, shuffle=shuffle, seed=seed, **options)
        timing, first_wait, batches = _run(loader, seconds)
        replay = Loader(_Steps(), 1, shuffle=False, transform=Replay(batches), **options)
        replayed, _, _ = _run(replay, seconds)
        rate, replay_rate = (run.steps * batch_size / run.wall for run in (timing, replayed))
        yield BenchRun(count, is_process, timing, first_wait, rate, replay_rate)


def _run(loader: Loader, seconds: float) -> tuple[LoaderTiming, float, list[Any]]:
    """Returns the report of a run, the seconds until its first batch, and some of its batches."""
    with iter(loader) as batches:
        kept = [next(batches)]
        size = size_of(kept[0])
        first_wait = loader.timing.first_wait
        end = perf_counter() + seconds
        for _ in range(2 * loader.workers):  # Until all workers have started.
            next(batches)
            if perf_counter() >= end:
                break
        _ = loader.timing  # Begins another period.
        end = perf_counter() + seconds
        for batch in batches:
            if len(kept) < MAX_REPLAYED_BATCHES and size * (len(kept) + 1) <= MAX_REPLAYED_BYTES:
                kept.append(batch)
            if perf_counter() >= end:
                break
        return loader.timing, first_wait, kept


def size_of(batch: Any) -> int:
    """Returns about the bytes of a batch."""
    if isinstance(batch, dict):
        return sum(map(size_of, batch.values()))
    if isinstance(batch, list):
        return sum(map(size_of, batch))
    if isinstance(batch, Ragged):
        return batch.values.nbytes + batch.offsets.nbytes
    return (
        batch.nbytes if isinstance(batch, np.ndarray) else len(batch) if isinstance(batch, bytes | str) else 8
    )
