"""Reading the refs of a dataset folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.limits import BlockTable
from bags.bag.verified import VerifiedBlocks, as_slice
from bags.concurrency import cached_attribute, map_concurrently
from bags.dataset.refs import RefsFormat
from bags.errors import CorruptError
from bags.indexing import Int64s

MAX_FIELD_SETS = 16  # Sets of fields for which identity refs are remembered.


class RefsReader:
    """The refs of the first `count` datapoints of a folder.

    Args:
        path: The path that errors name: the refs, or the folder if it has none.
        bag: The refs; None in a folder of Granular, where datapoint i is record i of each field.
        format: Their format.
        count: Number of datapoints.
    """

    def __init__(self, path: str, bag: BagFile | None, format: RefsFormat, count: int) -> None:
        self.path = path
        self.bag = bag
        self.format = format
        self.count = count
        self._identity: dict[tuple[str, ...], VerifiedBlocks] = {}
        """By field names, the blocks in which datapoint i has record i of each field."""
        self.is_table = bag is not None and bag.length == format.stride
        """Whether the refs, in memory, seem to be a table of rows of one length."""

    @cached_attribute
    def verified(self) -> VerifiedBlocks:
        """The blocks whose rows have the limits and tags of the format."""
        bag, format = self.bag, self.format  # Not self: a cycle would keep the file open.
        assert bag is not None
        table = np.ndarray((bag.count, format.stride), np.uint8, bag.file.buffer)
        limits = bag.verified
        return VerifiedBlocks(
            bag.count,
            lambda start, stop: limits.holds(slice(start, stop)) and format.has_tags(table[start:stop]),
        )

    def of(self, indices: Int64s, names: Iterable[str]) -> dict[str, Any]:
        """Returns the refs of datapoints by field: (n,), or for a sequence a pair of firsts and counts.

        Raises:
            CorruptError: Damaged refs.
        """
        names, bag = tuple(names), self.bag
        if bag is None:
            return dict.fromkeys(names, indices)
        if self.is_table and len(indices):
            rows = as_slice(indices)
            if self.verified.holds(rows):
                identity = self._identity.get(names) or self._identity_blocks(names)
                if identity is not None and not identity.any_bad and identity.holds(rows):
                    return dict.fromkeys(names, indices)
                starts = indices * self.format.stride
                bag.file.expect(starts, starts + self.format.stride)
                return self.format.columns(bag.file.buffer, bag.count, rows, names)
        if len(indices) == 1 and isinstance(bag.ends, BlockTable):
            return self.format.gather([self._row_and_limits(bag, int(indices[0]))], names)
        raw = bag.fixed(indices, self.format.stride)
        if raw is not None and self.format.has_tags(raw):
            return self.format.columns(raw, len(raw), slice(None), names)
        records = zip(indices.tolist(), bag.read(indices), strict=True)
        return self.format.gather([self._unpack(index, record) for index, record in records], names)

    def _identity_blocks(self, names: tuple[str, ...]) -> VerifiedBlocks | None:
        """Returns the blocks in which datapoint i has record i of each of these fields.

        Their refs need not be read. None if a field is a sequence.
        """
        if len(self._identity) >= MAX_FIELD_SETS or any(self.format.spec[name].sequence for name in names):
            return None
        bag, format = self.bag, self.format
        assert bag is not None
        buffer, count = bag.file.buffer, bag.count  # Not self: a cycle would keep the file open.
        found = self._identity[names] = VerifiedBlocks(
            count, lambda start, stop: format.is_identity(buffer, count, slice(start, stop), names)
        )
        return found

    def _row_and_limits(self, bag: BagFile, index: int) -> tuple[int, ...]:
        """Reads a remote row at its expected position, at the same time as the limits that confirm it."""
        start, stop = index * self.format.stride, (index + 1) * self.format.stride
        if bag.codec is not None or bag.checksums is not None or bag.end != bag.count * self.format.stride:
            return self._unpack(index, bag.record(index))
        works: list[Callable[[], Any]] = [
            lambda: bag.locate(np.array([index]))[0],
            lambda: bag.file.read(start, stop),
        ]
        found, data = map_concurrently(lambda work: work(), works, bag.is_remote)
        is_there = (found.starts[0], found.stops[0]) == (start, stop)
        return self._unpack(index, bytes(data) if is_there else bag.record(index))

    def _unpack(self, index: int, record: bytes) -> tuple[int, ...]:
        try:
            return self.format.unpack(record)
        except ValueError as exc:
            raise CorruptError(self.path, index, str(exc)) from exc
