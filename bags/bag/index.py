"""Indexes of a bag: look up the index of a record.

An index stores the sorted 64-bit hashes of all records, and their indices: 12 bytes per record (16 above 2³²
records), for records of any length. A look-up bisects the hashes, and compares the records with equal hashes,
so the result is exact.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from bags.bag.reader import Reader
from bags.concurrency import cached_attribute
from bags.validation import as_record

Default = TypeVar('Default')


class _Table:
    """The sorted hashes of records, and the indices of these records."""

    def __init__(self, reader: Sequence[bytes]) -> None:
        # A second Reader over the same files, which stays open when the first one is closed.
        self._reader = reader[:] if isinstance(reader, Reader) else reader
        try:
            count = len(reader)
            hashes = np.fromiter(map(hash, reader), np.int64, count)
        except TypeError as exc:
            raise TypeError(f'Index: expected records of a bag or a field, got {reader!r}') from exc
        order = np.argsort(hashes, kind='stable')
        self._order = order.astype(np.uint32) if count < 1 << 32 else order
        self._hashes = hashes[order]
        # The items of a memoryview are ints, and access takes half the time of an array.
        self._sorted: memoryview[int] = self._hashes.data

    def _find(self, record: Any) -> Iterator[int]:
        """Yields the indices of a record, in ascending order."""
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
        """Returns the number of distinct records."""
        return self._distinct

    @cached_attribute
    def _distinct(self) -> int:
        # Records with equal hashes are almost always equal, but have to be compared.
        starts = np.flatnonzero(np.diff(self._hashes, prepend=self._hashes[:1] - 1)).tolist()
        return sum(
            1 if stop - start == 1 else len({self._reader[i] for i in self._order[start:stop].tolist()})
            for start, stop in itertools.pairwise([*starts, len(self._hashes)])
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Hashes are only valid in this process.
        return type(self), (self._reader,)

    def __repr__(self) -> str:
        return f'bags.bag.{type(self).__name__}({self._reader!r})'


class Index(_Table):
    """Maps each record to its first index.

    Args:
        reader: The records. All records are read once. A look-up reads the records that may match.

    Examples:
        >>> reader = bags.bag.Reader('episodes/000000/task.bag')
        >>> bags.bag.Index(reader)[b'reach 2']
        2
    """

    def __getitem__(self, record: Any) -> int:
        """Returns the first index of a record (bytes or str).

        Raises:
            KeyError: The record does not occur.
        """
        for index in self._find(record):
            return index
        raise KeyError(record)

    def get(self, record: Any, default: Default | None = None) -> int | Default | None:
        """Returns the first index of a record, or the default."""
        return next(self._find(record), default)


class MultiIndex(_Table):
    """Maps each record to all of its indices.

    Args:
        reader: The records. All records are read once. A look-up reads the records that may match.

    Examples:
        >>> reader = bags.bag.Reader('episodes/000000/label.bag')
        >>> bags.bag.MultiIndex(reader)[bytes([1])]
        [1, 3]
    """

    def __getitem__(self, record: Any) -> list[int]:
        """Returns all indices of a record (bytes or str), in order.

        Raises:
            KeyError: The record does not occur.
        """
        indices = list(self._find(record))
        if not indices:
            raise KeyError(record)
        return indices

    def get(self, record: Any, default: Default | None = None) -> list[int] | Default | None:
        """Returns all indices of a record, or the default."""
        return list(self._find(record)) or default
