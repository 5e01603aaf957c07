"""Reads the refs of a folder: of many datapoints as arrays, and of the last datapoint."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.limits import BlockTable
from bags.bag.verified import VerifiedBlocks, as_slice
from bags.concurrency import cached_attribute, map_concurrently
from bags.dataset.format.refs import MISSING, Refs, RefsFormat
from bags.errors import CorruptError
from bags.indexing import Int64s
from bags.storage.memory_file import MemoryFile

MAX_FIELD_SETS = 16  # Sets of fields for which identity refs are remembered.
MAX_REFS_IN_MEMORY = 1 << 28  # Maximum bytes of remote refs that are read as a whole.


def refs_in_memory(refs: BagFile) -> BagFile:
    """Reads refs into memory; if they are very large, only their limits."""
    if refs.limits is not refs.file or refs.file.size > MAX_REFS_IN_MEMORY:
        refs.warm()
        return refs
    file = MemoryFile(refs.path, bytes(refs.file.read(0, refs.file.size)))
    return BagFile(
        refs.path, file, file, refs.offset, refs.count, refs.end, refs.codec, False, refs.checksums
    )


class RefsReader:
    """The refs of the first `count` datapoints of a folder.

    Args:
        path: The path in errors: the refs, or the folder if it does not have refs.
        bag: The refs; None in a folder of Granular, where datapoint i is record i of each field.
        refs_format: The format of the refs.
        count: Number of datapoints.
    """

    def __init__(self, path: str, bag: BagFile | None, refs_format: RefsFormat, count: int) -> None:
        self.path = path
        self.bag = bag
        self.format = refs_format
        self.count = count
        self._identity: dict[tuple[str, ...], VerifiedBlocks] = {}
        """Maps names of fields to the blocks in which datapoint i has record i of each field."""
        self.is_table = bag is not None and bag.length == refs_format.stride
        """Whether the refs are in memory and seem to be a table of rows of the same length."""
        if bag is not None and self.is_table:
            bag.check_rows = refs_format.has_tags
            self._rows = np.ndarray((bag.count,), refs_format.dtype, bag.buffer)

    @cached_attribute
    def last_records(self) -> dict[str, int]:
        """The last record of the last datapoint in each field with a value; empty if its refs are damaged."""
        bag, format, last = self.bag, self.format, {}
        if bag is None or not bag.count:
            return {}
        try:
            if self.is_table:
                start = (bag.count - 1) * format.stride
                row = format.unpack(bag.buffer[start : start + format.stride])
            else:
                row = format.unpack(bag.get(bag.count - 1))
        except (CorruptError, ValueError):
            return {}  # Reading that datapoint raises the error.
        for name, position in format.positions.items():
            count = row[position + 1] if format.schema[name].sequence else int(row[position] != MISSING)
            if count:
                last[name] = row[position] + count - 1
        return last

    def of(self, indices: Int64s, names: Iterable[str]) -> dict[str, Refs]:
        """Returns the refs of datapoints by field: (n,), or for a sequence a pair of firsts and counts.

        Raises:
            CorruptError: The refs are damaged.
        """
        names, bag = tuple(names), self.bag
        if bag is None:
            return dict.fromkeys(names, indices)
        if self.is_table and len(indices):
            rows = as_slice(indices)
            if bag.verified.all_verified(rows):
                identity = self._identity.get(names) or self._identity_blocks(names)
                if identity is not None and not identity.any_bad and identity.all_verified(rows):
                    return dict.fromkeys(names, indices)
                starts = indices * self.format.stride
                bag.file.will_need(starts, starts + self.format.stride)
                return self.format.columns(self._rows, names, rows)
        if len(indices) == 1 and isinstance(bag.ends, BlockTable):
            refs = [self._row_and_limits(bag, int(indices[0]))]
        else:
            raw = bag.fixed(indices, self.format.stride)
            if raw is not None and self.format.has_tags(raw):
                return self.format.columns(raw.view(self.format.dtype)[:, 0], names)
            records = zip(indices.tolist(), bag.read(indices), strict=True)
            refs = [self._unpack(index, record) for index, record in records]
        return self.format.columns(np.array(refs, self.format.dtype), names)

    def _identity_blocks(self, names: tuple[str, ...]) -> VerifiedBlocks | None:
        """Returns the blocks in which datapoint i has record i of each of these fields.

        Their refs need not be read. None if a field is a sequence.
        """
        if len(self._identity) >= MAX_FIELD_SETS or not self.format.sequences.isdisjoint(names):
            return None
        # Must not refer to self: a cycle would keep the file open.
        check = functools.partial(self.format.is_identity, self._rows, names)
        blocks = self._identity[names] = VerifiedBlocks(len(self._rows), check)
        return blocks

    def _row_and_limits(self, bag: BagFile, index: int) -> tuple[int, ...]:
        """Reads a remote row at its expected position, at the same time as the limits that confirm it."""
        start, stop = index * self.format.stride, (index + 1) * self.format.stride
        if bag.codec is not None or bag.checksums is not None or bag.end != bag.count * self.format.stride:
            return self._unpack(index, bag.record(index))
        works: list[Callable[[], Any]] = [
            lambda: bag.locate(np.array([index]))[0],
            lambda: bag.file.read(start, stop),
        ]
        location, data = map_concurrently(lambda work: work(), works, bag.is_remote)
        is_expected = (location.starts[0], location.stops[0]) == (start, stop)
        return self._unpack(index, bytes(data) if is_expected else bag.record(index))

    def _unpack(self, index: int, record: bytes) -> tuple[int, ...]:
        try:
            return self.format.unpack(record)
        except ValueError as exc:
            raise CorruptError(self.path, index, str(exc)) from exc
