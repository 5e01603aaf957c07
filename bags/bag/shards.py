"""The bags behind a Reader as one sequence: opened when needed, read by global index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.limits import ENTRY
from bags.bag.open import open_bag
from bags.bag.options import CachePolicy, ReaderOptions, ShardingLayout
from bags.bag.sharding import Concatenated, Interleaved
from bags.bag.zstd import Buffer
from bags.concurrency import CPU_COUNT, FifoCache, map_concurrently, max_open_bags
from bags.errors import CorruptError
from bags.indexing import Int64s, check_index
from bags.storage import store_to_read

__all__ = ['Shards']

Group = tuple[int, range | Int64s, slice | Int64s]
"""A shard, indices in it, and their places in the result."""


class Shards:
    """Bags that are one sequence. Picklable: as paths, options and what was counted.

    Args:
        paths: The bags, in order, in the form of their store.
        options: How they are read.
        counts: Records and bytes of each, where they were counted before.
    """

    def __init__(
        self, paths: list[str], options: ReaderOptions, counts: tuple[list[int], list[int]] | None = None
    ) -> None:
        self.paths = paths
        self.options = options
        self.store, _ = store_to_read(paths[0], options)
        self.lengths: list[int] = []
        self.bags = self._keep()
        self.lengths[:], self.sizes = counts or self._count()
        interleaved = options.sharding_layout is ShardingLayout.INTERLEAVED
        self.layout = Interleaved(self.lengths) if interleaved else Concatenated(self.lengths)

    def __reduce__(self) -> tuple[Any, ...]:
        return Shards, (self.paths, self.options, (self.lengths, self.sizes))

    @property
    def size(self) -> int:
        """Bytes of all bags."""
        return sum(self.sizes)

    def bytes_before(self, index: int) -> int:
        """Returns the bytes that records before an index take on disk; of interleaved bags about that."""
        if index >= self.layout.total:
            return self.size
        shard, within = self.layout.one(index)
        start, _ = self.bags[shard].where(within)
        if isinstance(self.layout, Interleaved):
            return start * len(self.paths)
        return sum(self.sizes[:shard]) + start + within * ENTRY

    def _keep(self) -> FifoCache[int, BagFile]:
        # What opens a bag does not refer to the shards: they let go of their files with the last reference,
        # not when the garbage collector comes.
        store, paths, options, lengths = self.store, self.paths, self.options, self.lengths

        def make(shard: int) -> BagFile:
            bag = open_bag(store, paths[shard], options)
            expected = lengths[shard] if lengths else 0
            if bag.count < expected:
                detail = f'had {expected} records when first opened, now {bag.count}'
                raise CorruptError(bag.path, None, detail)
            return bag

        # Past the cache, a bag's limits are read by a file of their own, and both files by two descriptors.
        return FifoCache(make, max_open_bags(2 if options.cache_policy is CachePolicy.SYSTEM else 4))

    @property
    def is_remote(self) -> bool:
        """Whether several bags are worth reading at the same time."""
        return self.store.is_remote

    def _count(self) -> tuple[list[int], list[int]]:
        def count(shard: int) -> tuple[int, int]:
            bag = self.bags[shard]
            return bag.count, bag.size

        counts = map_concurrently(count, range(len(self.paths)), self.is_remote)
        return [records for records, _ in counts], [size for _, size in counts]

    def getters(self, part: range) -> tuple[Callable[[int], bytes], Callable[[int], Buffer]]:
        """Returns the ways to one record of a part, as bytes, and as a buffer that may alias a file."""
        count = len(part)
        if len(self.paths) == 1 and part == range(self.layout.total):
            bag = self.bags[0]
            if bag.count == count:
                return bag.get, bag.get_view
            return (
                lambda index: bag.get(check_index(index, count)),
                lambda index: bag.get_view(check_index(index, count)),
            )
        one, bags = self.layout.one, self.bags

        def get(index: int) -> bytes:
            shard, within = one(part[check_index(index, count)])
            return bags[shard].get(within)

        def get_view(index: int) -> Buffer:
            shard, within = one(part[check_index(index, count)])
            return bags[shard].get_view(within)

        return get, get_view

    def read(self, chosen: range | Int64s, how: str = 'read') -> list[Any]:
        """Reads by global indices that are in range.

        Args:
            chosen: The indices.
            how: 'read' for bytes, 'views' for buffers.
        """
        parallelism = min(self.options.max_parallelism, CPU_COUNT)

        def work(group: Group) -> list[Any]:
            bag, within = self.bags[group[0]], group[1]
            if isinstance(within, range) and within.step == 1 and how == 'read':
                return bag.read_span(within.start, within.stop, parallelism)
            found: list[Any] = getattr(bag, how)(np.asarray(within, np.int64), parallelism)
            return found

        groups = self._groups(chosen)
        if len(groups) == 1:
            return work(groups[0])
        results: list[Any] = [None] * len(chosen)
        for group, records in zip(groups, map_concurrently(work, groups, self.is_remote), strict=True):
            places = group[2]
            if isinstance(places, slice):
                results[places] = records
            else:
                for place, record in zip(places.tolist(), records, strict=True):
                    results[place] = record
        return results

    def expect(self, chosen: range | Int64s) -> None:
        """Has the kernel read ahead what is at global indices, as far as that is of use."""
        for shard, within, _ in self._groups(chosen):
            bag = self.bags[shard]
            bag.file.expect(*bag.ranges(np.asarray(within, np.int64)))

    def _groups(self, chosen: range | Int64s) -> list[Group]:
        """Divides global indices by shard."""
        if len(self.paths) == 1:
            return [(0, chosen, slice(None))]
        if isinstance(chosen, range) and chosen.step == 1 and isinstance(self.layout, Concatenated):
            return self._spans(chosen, self.layout)
        shards, within = self.layout.many(np.asarray(chosen, np.int64))
        order = np.argsort(shards, kind='stable')
        cuts = np.flatnonzero(np.diff(shards[order])) + 1
        return [
            (int(shards[places[0]]), within[places], places)
            for places in np.split(order, cuts)
            if len(places)
        ]

    def _spans(self, chosen: range, layout: Concatenated) -> list[Group]:
        groups: list[Group] = []
        index = chosen.start
        while index < chosen.stop:
            shard, within = layout.one(index)
            count = min(self.lengths[shard] - within, chosen.stop - index)
            place = index - chosen.start
            groups.append((shard, range(within, within + count), slice(place, place + count)))
            index += count
        return groups
