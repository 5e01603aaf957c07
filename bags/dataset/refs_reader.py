"""Reading the refs of a dataset folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.limits_table import BlockTable
from bags.bag.uniform import Uniform, as_slice
from bags.concurrency import map_concurrently
from bags.dataset.refs import RefsFormat
from bags.errors import CorruptError
from bags.indexing import Int64s, check_index

__all__ = ['RefsReader']

CHOICES = 16  # Of fields, of which is kept where they are straight.


class RefsReader:
    """The refs of the first `count` datapoints of a folder.

    Args:
        path: What errors name: the refs, or the folder if it has none.
        bag: The refs; None in a folder of Granular, where datapoint i is record i of every field.
        format: How they are held.
        count: How many there are.
    """

    def __init__(self, path: str, bag: BagFile | None, format: RefsFormat, count: int) -> None:
        self.path = path
        self.bag = bag
        self.format = format
        self.count = count
        self.sound: Uniform | None = None
        """Which rows are known to have the limits and the tags they should have, where all may have them."""
        if bag is not None and bag.uniform is not None and bag.uniform.length == format.stride:
            table = np.ndarray((bag.count, format.stride), np.uint8, bag.file.buffer)
            self._straight: dict[tuple[str, ...], Uniform] = {}
            self.sound = Uniform(
                bag.ends, format.stride, lambda start, stop: format.has_tags(table[start:stop])
            )

    @property
    def is_remote(self) -> bool:
        """Whether reads of several bags are worth doing at the same time."""
        return self.bag is not None and self.bag.is_remote

    def row_reader(self) -> Callable[[int], tuple[int, ...]]:
        """Returns the quickest way to a row: a function of any index that Python takes."""
        if self.bag is None or self.sound is None:
            return self.row
        return self.format.row_reader(self.bag.file.buffer, self.count, self.sound.marks, self.row)

    def row(self, index: Any) -> tuple[int, ...]:
        """Returns the row of refs of a datapoint.

        Raises:
            IndexError: No such datapoint.
            CorruptError: It has no refs of this format.
        """
        index = check_index(index, self.count)
        if self.bag is None:
            return (index,) * len(self.format.spec)
        if self.sound is not None:
            self.sound.touch(index)
        elif isinstance(self.bag.ends, BlockTable) and self._is_even(self.bag):
            return self._unpack(index, self._guess(self.bag, index))
        return self._unpack(index, self.bag.record(index))

    def _is_even(self, bag: BagFile) -> bool:
        return bag.codec is None and bag.end == bag.count * self.format.stride

    def _guess(self, bag: BagFile, index: int) -> bytes:
        """Reads a row from where it should be, and at the same time the limits that say if it is there."""
        start, stop = index * self.format.stride, (index + 1) * self.format.stride
        works: list[Callable[[], Any]] = [lambda: bag.where(index), lambda: bag.file.read(start, stop)]
        where, data = map_concurrently(lambda work: work(), works, bag.is_remote)
        return bytes(data) if where == (start, stop) else bag.record(index)

    def _unpack(self, index: int, record: bytes) -> tuple[int, ...]:
        try:
            return self.format.unpack(record)
        except ValueError as exc:
            raise CorruptError(self.path, index, str(exc)) from exc

    def of(self, indices: Int64s, names: Iterable[str]) -> dict[str, Any]:
        """Returns the refs of some fields by field: indices (B,), or for a sequence firsts and counts."""
        names, bag = list(names), self.bag
        if bag is None:
            return dict.fromkeys(names, indices)
        if self.sound is not None and len(indices):
            chosen = as_slice(indices)
            if self.sound.holds(chosen):
                if self._are_straight(chosen, tuple(names)):
                    return dict.fromkeys(names, indices)
                stride = self.format.stride
                bag.file.expect(indices * stride, (indices + 1) * stride)
                return self.format.columns(bag.file.buffer, bag.count, chosen, names)
        raw = bag.fixed(indices, self.format.stride)
        if raw is not None and self.format.has_tags(raw):
            return self.format.columns(raw, len(raw), slice(None), names)
        records = zip(indices.tolist(), bag.read(indices), strict=True)
        return self.format.gather([self._unpack(index, record) for index, record in records], names)

    def _are_straight(self, chosen: Int64s | slice, names: tuple[str, ...]) -> bool:
        """Tells whether datapoints are known to have the records of their own numbers in some fields."""
        bag, format = self.bag, self.format
        known = self._straight.get(names)
        if known is None:
            if len(self._straight) >= CHOICES or any(format.spec[name].sequence for name in names):
                return False
            assert bag is not None
            buffer, count = bag.file.buffer, bag.count  # Not self, which would be in a cycle then.
            known = self._straight[names] = Uniform(
                bag.ends, format.stride, lambda *rows: format.is_straight(buffer, count, slice(*rows), names)
            )
        if isinstance(chosen, slice):
            known.holds(slice(chosen.start, chosen.start + 1))  # Before a look at many blocks.
        # As one block is not, others are unlikely to be.
        return not known.uneven and known.holds(chosen)
