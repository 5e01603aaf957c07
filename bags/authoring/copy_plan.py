"""How a copy is divided: how many datapoints are taken at a time, and where shards end."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bags.authoring.copy_chunks import Chunk, Copier, Plan
from bags.dataset.record_ranges import Tail
from bags.errors import CorruptError, DecodeError

__all__ = ['Portion', 'Portions', 'loaded']

LIMIT = 1 << 25  # Bytes that are taken at a time.
MOST = 1 << 16  # Datapoints,
RECORDS = 1 << 22  # and records of a field, likewise.
FIRST = 1 << 10


class Portion(NamedTuple):
    """A chunk that is planned."""

    plan: Plan
    chunk: Chunk | None
    """What was read already, to know whether it can be."""
    begins_shard: bool


class Portions:
    """Plans one chunk after the other.

    Args:
        copier: What plans and reads a chunk.
        is_full: Tells by bytes, datapoints, and records of a field if a shard is full.
        begun: The same of the shard that is being written.
        shard_length: Most datapoints of a shard.
        skip: Is told of each datapoint that cannot be read, and why; None if that is an error.
    """

    def __init__(
        self,
        copier: Copier,
        is_full: Callable[[int, int, int], bool],
        begun: tuple[int, int, int],
        shard_length: int | None,
        skip: Callable[[int, Exception], None] | None,
    ) -> None:
        self.scale = 1.0
        """Bytes that a planned byte took so far."""
        self._copier = copier
        self._is_full = is_full
        self._begun = begun
        self._shard_length = shard_length
        self._skip = skip

    def plan(self, position: int, total: int) -> Iterator[Portion]:
        """Plans to take the datapoints from a position on.

        Raises:
            CorruptError, DecodeError: What cannot be read, unless it is skipped.
        """
        size, length, records = self._begun
        window, begins = FIRST, False
        tails: dict[str, Tail] = {}
        while position < total:
            if self._is_full(size, length, records):
                size, length, records, tails, begins = 0, 0, 0, {}, True
            stop = min(position + window, total)
            if self._shard_length is not None:
                stop = min(stop, position + self._shard_length - length)
            while True:
                count = stop - position
                try:
                    plan = self._copier.plan(position, stop, tails)
                    fits = self._fitting(plan, size, length, records)
                    if fits < count:
                        stop = position + fits
                        continue
                    chunk = None if self._skip is None else self._copier.load(plan)
                except (CorruptError, DecodeError) as exc:
                    if self._skip is None:
                        raise
                    if count > 1:
                        stop = position + count // 2
                        continue
                    self._skip(position, exc)
                    break
                yield Portion(plan, chunk, begins)
                begins, tails = False, plan.tails
                size += int(plan.size * self.scale)
                length += count
                records += plan.records
                window = max(1, min(MOST, 2 * count, count * LIMIT // plan.size))
                break
            position = stop

    def _fitting(self, plan: Plan, size: int, length: int, records: int) -> int:
        """Returns how many of a plan's datapoints to take."""
        count = plan.stop - plan.start
        if count > 1 and plan.size > 2 * LIMIT:
            return max(1, count * LIMIT // plan.size)
        room = self._is_full(size + int(plan.size * self.scale), length, records + plan.records)
        if count > 1 and (room or plan.records > RECORDS):
            return count // 2
        return count


def loaded(
    portions: Iterator[Portion], load: Callable[[Plan], Chunk], workers: int
) -> Iterator[tuple[Portion, Chunk]]:
    """Reads portions ahead, in threads, and gives them in order."""
    from concurrent.futures import Future, ThreadPoolExecutor

    waiting: collections.deque[tuple[Portion, Future[Chunk]]] = collections.deque()
    with ThreadPoolExecutor(workers, 'bags-copy') as threads:
        try:
            for portion in portions:
                if portion.chunk is not None:
                    yield portion, portion.chunk
                    continue
                waiting.append((portion, threads.submit(load, portion.plan)))
                if len(waiting) > workers:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            for _, future in waiting:
                future.cancel()
