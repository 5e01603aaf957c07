"""`Shards`: the bags of a Reader as one sequence. Bags are opened on first use, and read by global index."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.compression import Buffer
from bags.bag.journal import journal_name
from bags.bag.journal_recovery import check_certain
from bags.bag.limits import ENTRY
from bags.bag.open import limits_name, open_bag
from bags.bag.options import ReaderOptions, ShardingLayout
from bags.bag.sharding import Concatenated, Interleaved
from bags.concurrency import CPU_COUNT, MAX_OPEN_BAGS, FifoCache, map_concurrently
from bags.errors import CorruptError
from bags.indexing import Int64s

Indices = range | Int64s
Group = tuple[int, Indices]
"""A shard, and indices within it."""


def global_indices(chosen: range, indices: Int64s) -> Int64s:
    """Converts indices into a slice of all records to indices into all records."""
    return indices if chosen.start == 0 and chosen.step == 1 else chosen.start + chosen.step * indices


class Shards:
    """Bags that form one sequence. Pickled as paths, options, counts and sizes.

    All methods take global indices in `range(total)`.

    Args:
        paths: The paths of the bags in their store, in order.
        options: The options for reading.
        counts: The number of records and of bytes of each bag, if known.
        versions: The versions of bags that another process has opened: type, size and version, by number.
    """

    def __init__(
        self,
        paths: list[str],
        options: ReaderOptions,
        counts: tuple[list[int], list[int]] | None = None,
        versions: dict[int, tuple[str, int, str]] | None = None,
    ) -> None:
        self.paths = paths
        self.options = options
        self.store = store = options.store_of(paths[0])
        lengths: list[int] = []
        self.lengths = lengths
        """Number of records of each bag."""
        self.versions = versions = {} if versions is None else versions
        """Versions since each bag was first opened, by number: of remote bags, and of closed local ones."""

        # Does not refer to `self`: without a reference cycle, files are closed with the last reference, and
        # not only when the garbage collector runs.
        def open_shard(shard: int) -> BagFile:
            bag = open_bag(store, paths[shard], options)
            if not store.is_remote:
                check_certain(store, journal_name(bag.path), [bag.path], limits_name(bag.path))
            expected = lengths[shard] if lengths else 0
            if bag.count < expected:
                detail = f'had {expected} records when first opened, now {bag.count}'
                raise CorruptError(bag.path, None, detail)
            if store.is_remote or bag.limits.path == bag.path:
                version = store.version_type, bag.file.size, bag.file.version
                before = versions.setdefault(shard, version)
                # A forked child may use another client, with another type of versions.
                if version != before and (version[0] == before[0] or version[1] != before[1]):
                    detail = 'was replaced since it was first opened: open the bags again'
                    raise CorruptError(bag.path, None, detail)
            return bag

        self.bags = FifoCache(open_shard, MAX_OPEN_BAGS)
        self.is_remote = store.is_remote
        lengths[:], self.sizes = counts or self._count()
        interleaved = options.sharding_layout is ShardingLayout.INTERLEAVED
        self.layout = Interleaved(lengths) if interleaved else Concatenated(lengths)
        self.total = self.layout.total

    def _count(self) -> tuple[list[int], list[int]]:
        def count(shard: int) -> tuple[int, int]:
            bag = self.bags[shard]
            return bag.count, bag.size

        counts = map_concurrently(count, range(len(self.paths)), self.is_remote)
        return [records for records, _ in counts], [size for _, size in counts]

    def __reduce__(self) -> tuple[Any, ...]:
        # A local bag that grows may have another version when it is opened again.
        versions = self.versions if self.is_remote else None
        return Shards, (self.paths, self.options, (self.lengths, self.sizes), versions)

    @property
    def size(self) -> int:
        """Total bytes of all bags: records as stored, and limits."""
        return sum(self.sizes)

    @property
    def mean(self) -> float:
        """Mean bytes of a record as stored, without its limit; 0.0 without records."""
        return (self.size - self.total * ENTRY) / self.total if self.total else 0.0

    def bytes_before(self, index: int) -> int:
        """Returns the number of bytes on disk before a record; approximate for interleaved bags."""
        if index >= self.total:
            return self.size
        shard, within = self.layout.one(index)
        before = self.bags[shard].bytes_before(within)
        if isinstance(self.layout, Interleaved):
            return (before - within * ENTRY) * len(self.paths)
        return sum(self.sizes[:shard]) + before

    def record(self, index: int) -> bytes:
        """Returns one record."""
        shard, within = self.layout.one(index)
        return self.bags[shard].get(within)

    def record_view(self, index: int) -> Buffer:
        """Returns one record as a buffer, which may be a view of its file."""
        shard, within = self.layout.one(index)
        return self.bags[shard].get_view(within)

    def read(self, indices: Indices, views: bool = False) -> list[Any]:
        """Returns records; with `views`, as buffers that may be views of their files."""
        parallelism = min(self.options.max_parallelism, CPU_COUNT)

        def work(group: Group) -> list[Any]:
            shard, within = group
            if not isinstance(within, range) or within.step != 1 or views:
                within = np.asarray(within, np.int64)
            return self.bags[shard].read(within, parallelism, views=views)

        groups, order = self._groups(indices)
        if len(groups) == 1 and order is None:
            return work(groups[0])
        unordered = itertools.chain.from_iterable(map_concurrently(work, groups, self.is_remote))
        if order is None:
            return list(unordered)
        records: list[Any] = [None] * len(indices)
        for position, record in zip(order.tolist(), unordered, strict=True):
            records[position] = record
        return records

    def read_shared(self, indices: Indices) -> list[bytes]:
        """Returns records. Equal indices return the same object."""
        if isinstance(indices, range) or len(indices) < 2:
            return self.read(indices)
        ordered = np.sort(indices)
        if not np.count_nonzero(ordered[1:] == ordered[:-1]):
            return self.read(indices)
        unique, inverse = np.unique(indices, return_inverse=True)
        records = self.read(unique)
        return [records[position] for position in inverse.tolist()]

    def will_need(self, indices: Indices) -> None:
        """Announces the records to read next, so that the kernel may read ahead."""
        for shard, within in self._groups(indices)[0]:
            self.bags[shard].will_need(np.asarray(within, np.int64))

    def _groups(self, indices: Indices) -> tuple[list[Group], Int64s | None]:
        """Groups indices by shard. Returns the groups, and the positions of their members in `indices`.

        The positions are None if the concatenated groups have the order of `indices`.
        """
        if len(self.paths) == 1:
            return [(0, indices)], None
        if isinstance(indices, range) and indices.step == 1 and isinstance(self.layout, Concatenated):
            if not indices:
                return [], None
            (first, _), (last, _) = self.layout.one(indices[0]), self.layout.one(indices[-1])
            groups: list[Group] = []
            for shard in range(first, last + 1):
                start, length = self.layout.starts[shard], self.lengths[shard]
                groups.append(
                    (shard, range(max(indices.start - start, 0), min(indices.stop - start, length)))
                )
            return groups, None
        shards, within = self.layout.many(np.asarray(indices, np.int64))
        order = np.argsort(shards, kind='stable')
        cuts = np.flatnonzero(np.diff(shards[order])) + 1
        return [(int(shards[part[0]]), within[part]) for part in np.split(order, cuts) if len(part)], order
