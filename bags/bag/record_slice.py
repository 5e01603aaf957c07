"""Some of the records of shards as a sequence: what a Reader and its slices read from."""

from __future__ import annotations

from typing import Any

import numpy as np

from bags.bag.shards import Shards
from bags.indexing import Int64s

__all__ = ['RecordSlice']


class RecordSlice:
    """Records of shards, whose indices are a range.

    All methods take indices from 0 on that are known to be in range.

    Args:
        shards: All records.
        chosen: Which of them.
    """

    def __init__(self, shards: Shards, chosen: range) -> None:
        self.shards = shards
        self.chosen = chosen
        self.get, self.get_view = shards.getters(chosen)
        """The ways to one record, as bytes and as a buffer: functions of any index that Python takes."""

    @property
    def is_remote(self) -> bool:
        """Whether reads wait for a network."""
        return self.shards.bags[0].is_remote

    def read(self, indices: range | Int64s, how: str = 'read') -> list[Any]:
        """Returns records: as bytes, or with 'views' as buffers."""
        return self.shards.read(self._among_all(indices), how)

    def read_shared(self, indices: Int64s) -> list[bytes]:
        """Returns records; equal indices give the same object."""
        if len(indices) < 2:
            return self.read(indices)
        ordered = np.sort(indices)
        if not (ordered[1:] == ordered[:-1]).any():
            return self.read(indices)
        order = np.argsort(indices, kind='stable')
        repeated = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1
        if 4 * len(repeated) > len(indices):
            # So many that each is read once. Else all are, which is less work than to find their places.
            unique, inverse = np.unique(indices, return_inverse=True)
            records = self.read(unique)
            return [records[position] for position in inverse.tolist()]
        records = self.read(indices)
        for first, second in zip(order[repeated - 1].tolist(), order[repeated].tolist(), strict=True):
            records[second] = records[first]
        return records

    def expect(self, indices: range | Int64s) -> None:
        """Has the kernel read ahead what is about to be read."""
        self.shards.expect(self._among_all(indices))

    def bytes_before(self, index: int) -> int:
        """Returns the bytes that the records before an index take on disk; of interleaved ones about that."""
        if not self.chosen:
            return 0
        if index >= len(self.chosen):
            return self.shards.bytes_before(max(self.chosen[0], self.chosen[-1]) + 1)
        return self.shards.bytes_before(self.chosen[index])

    def _among_all(self, indices: range | Int64s) -> range | Int64s:
        start, step = self.chosen.start, self.chosen.step
        if start == 0 and step == 1:
            return indices
        if isinstance(indices, range):
            # Not a slice of `chosen`: that would take a stop of -1 for the last.
            return range(start + step * indices.start, start + step * indices.stop, step * indices.step)
        return start + step * indices
