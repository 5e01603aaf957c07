"""Makes batches in order: each when it is asked for, or ahead in a pool of workers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from bags.loader.batches import BatchMaker
from bags.loader.shared_memory import SharedMemoryTransport
from bags.workers.outcome import Outcome
from bags.workers.pool import WorkerPool

__all__ = ['Inline', 'Prefetched']


class Inline(Iterator[Any]):
    """Makes each batch when it is asked for, in the calling thread."""

    def __init__(self, maker: BatchMaker) -> None:
        self._make = maker.make
        self._numbers = _step_numbers(maker)

    def __next__(self) -> Any:
        return self._make(next(self._numbers))

    def close(self) -> None:
        self._numbers = iter(())


class Prefetched(Iterator[Any]):
    """Makes batches ahead, in threads or processes that end with `close`.

    Args:
        maker: Makes them.
        workers: Number of threads or processes.
        processes: Whether they are processes.
        prefetch: Batches that may be finished or begun before they are asked for.
    """

    def __init__(self, maker: BatchMaker, workers: int, processes: bool, prefetch: int) -> None:
        self._pool = WorkerPool(
            maker.make,
            workers,
            processes=processes,
            name='bags-loader',
            attempts=1,
            transport=SharedMemoryTransport if processes else None,
        )
        self._outcomes: Iterator[Outcome] = self._pool.run(_step_numbers(maker), ahead=prefetch)

    def __next__(self) -> Any:
        return next(self._outcomes).get()

    def close(self) -> None:
        self._outcomes = iter(())
        self._pool.close()


def _step_numbers(maker: BatchMaker) -> Iterator[int]:
    total = maker.schedule.total
    return itertools.count() if total is None else iter(range(total))
