"""Finding records: from a record to where it is.

Held are, sorted, a 64-bit hash of every record, and its index: 12 bytes a record (16 above 2³²), however
long the records are. A look-up bisects the hashes and compares the records that they lead to, so what it
says is exact.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from bags.bag.reader import Reader
from bags.bag.records import as_record

__all__ = ['Index', 'MultiIndex']

Default = TypeVar('Default')
Found = TypeVar('Found')

STEP = 1 << 13


class _Table(Generic[Found]):
    """Hashes of records, sorted, and their indices."""

    def __init__(self, reader: Sequence[bytes]) -> None:
        # A part of its own, which is not closed with the reader.
        self._reader = reader[:] if isinstance(reader, Reader) else reader
        try:
            count = len(reader)
            hashes = np.fromiter(map(hash, reader), np.int64, count)
        except TypeError as exc:
            raise TypeError(f'Index: expected records, as of a bag or of a field, got {reader!r}') from exc
        order = np.argsort(hashes, kind='stable')
        self._order = order.astype(np.uint32) if count < 1 << 32 else order
        self._hashes = hashes[order]
        # Items come out of it as ints, twice as fast as of an array.
        self._sorted: memoryview[int] = self._hashes.data
        self._unique: int | None = None

    def _find(self, record: Any) -> Iterator[int]:
        """Yields the indices of a record, in order."""
        try:
            key = as_record(record)
        except TypeError:
            return
        number = hash(key)
        start = bisect_left(self._sorted, number)
        stop = bisect_right(self._sorted, number, start)
        for index in self._order[start:stop].tolist():
            if self._reader[index] == key:
                yield index

    def __contains__(self, record: object) -> bool:
        return next(self._find(record), None) is not None

    def __len__(self) -> int:
        """Returns the number of different records."""
        if self._unique is None:
            self._unique = self._count_unique()
        return self._unique

    def _count_unique(self) -> int:
        if not len(self._hashes):
            return 0
        firsts = np.flatnonzero(np.diff(self._hashes, prepend=self._hashes[:1] - 1))
        stops = np.append(firsts[1:], len(self._hashes))
        unique = len(firsts)
        for start, stop in zip(firsts.tolist(), stops.tolist(), strict=True):
            # Equal hashes are equal records, but for one in 2⁶⁴: so they are compared.
            if stop - start > 1:
                indices = self._order[start:stop].tolist()
                first = self._reader[indices[0]]
                if any(self._reader[index] != first for index in indices[1:]):
                    unique += len({self._reader[index] for index in indices}) - 1
        return unique

    def __reduce__(self) -> tuple[Any, ...]:
        # The hashes hold in this process only.
        return type(self), (self._reader,)

    def __repr__(self) -> str:
        return f'bags.bag.{type(self).__name__}({self._reader!r})'


class Index(_Table[int]):
    """The first index of each record.

    Args:
        reader: Records; read as a whole once, and again where a record is looked up.
    """

    def __getitem__(self, record: Any) -> int:
        """Returns the first index of a record (bytes or str).

        Raises:
            KeyError: No such record.
        """
        index = next(self._find(record), None)
        if index is None:
            raise KeyError(record)
        return index

    def get(self, record: Any, default: Default | None = None) -> int | Default | None:
        """Returns the first index of a record, or a default."""
        index = next(self._find(record), None)
        return default if index is None else index


class MultiIndex(_Table[list[int]]):
    """All indices of each record.

    Args:
        reader: Records; read as a whole once, and again where a record is looked up.
    """

    def __getitem__(self, record: Any) -> list[int]:
        """Returns all indices of a record (bytes or str), in order.

        Raises:
            KeyError: No such record.
        """
        indices = list(self._find(record))
        if not indices:
            raise KeyError(record)
        return indices

    def get(self, record: Any, default: Default | None = None) -> list[int] | Default | None:
        """Returns all indices of a record, or a default."""
        return list(self._find(record)) or default
