"""Checksums of records, in a file beside the bag: `NAME.xxh3`.

The file is a table of little-endian u64: first the XXH3-64 of what else is needed to read the bag (the
spec.json of refs, the dictionary of a field, or nothing), then that of each record as it is stored. It is
written before the limits of the records, and stays beside a closed bag. Other readers ignore it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bags.bag.limits import ENTRY, BlockTable
from bags.errors import CorruptError
from bags.indexing import Int64s
from bags.storage import Store

__all__ = ['SUFFIX', 'Checksums', 'RecordHasher', 'checksums_name', 'digest_of']

SUFFIX = '.xxh3'


def checksums_name(path: str) -> str:
    """Returns the path of the checksums of a bag."""
    return path + SUFFIX


def digest_of(data: Any) -> int:
    """Returns the XXH3-64 of a buffer."""
    return _digest()(data)


def _digest() -> Callable[[Any], int]:
    from xxhash import xxh3_64_intdigest

    return xxh3_64_intdigest


class RecordHasher:
    """Computes the checksums of records whose bytes come in pieces.

    Args:
        sizes: Bytes of each record; None for one record of all bytes.
        records: All of them, if they are at hand: then there are no pieces.
    """

    def __init__(self, sizes: Iterable[int] | None, records: Iterable[Any] = ()) -> None:
        from xxhash import xxh3_64

        self._new, self._digest = xxh3_64, _digest()
        self._sizes = None if sizes is None else iter(sizes)
        self._digests: list[int] = list(map(self._digest, records))
        if self._digests:
            self._sizes = iter(())
        self._hash: Any = None if self._sizes is not None else self._new()
        self._missing = 0

    def update(self, piece: Any) -> None:
        if self._sizes is None:
            self._hash.update(piece)
            return
        view = memoryview(piece).cast('B')
        position, stop = 0, len(view)
        while position < stop:
            if self._hash is None:
                size = next(self._sizes)
                if size <= stop - position:
                    self._digests.append(self._digest(view[position : position + size]))
                    position += size
                    continue
                self._hash, self._missing = self._new(), size
            part = view[position : position + self._missing]
            self._hash.update(part)
            position += len(part)
            self._missing -= len(part)
            if not self._missing:
                self._digests.append(self._hash.intdigest())
                self._hash = None

    def update_all(self, pieces: Iterable[Any]) -> None:
        for piece in pieces:
            self.update(piece)

    def digests(self) -> list[int]:
        """Returns the checksums of all records."""
        if self._sizes is None:
            return [self._hash.intdigest()]
        return self._digests + [self._digest(b'') for _ in self._sizes]  # Only empty records are left.

    def table(self) -> bytes:
        """Returns the checksums of all records as the file has them."""
        return np.array(self.digests(), '<u8').tobytes()


class Checksums:
    """The checksums of an open bag.

    Raises:
        FileNotFoundError: The bag has none.
        CorruptError: They are not those of so many records.
    """

    def __init__(self, store: Store, path: str, count: int, hints: Any, is_closed: bool) -> None:
        self.path = path
        file = store.open(checksums_name(path), hints)
        expected = ENTRY * (count + 1)
        if file.size < expected or (is_closed and file.size > expected):
            detail = f'expected the {expected} bytes of checksums of {count} records, got {file.size}'
            raise CorruptError(file.path, None, detail)
        self.digest = _digest()
        self.values: memoryview | None = None
        """The table, if it is mapped."""
        self._table: Any = BlockTable(file, 0, count + 1)
        if file.buffer is not None:
            self._table = np.frombuffer(file.buffer, '<i8', count + 1)
            self.values = memoryview(file.buffer)[:expected].cast('Q')

    def check_companion(self, data: bytes, name: str) -> None:
        """Raises CorruptError if `data` is not what was needed to read the bag when it was written."""
        if self.digest(data) != int(self._table[0:1].view('<u8')[0]):
            raise CorruptError(self.path, None, f'{name} differs from its checksum: one of them is damaged')

    def check(self, indices: Int64s | range, records: Iterable[Any]) -> None:
        """Raises CorruptError for the first record, as it is stored, that differs from its checksum."""
        self.compare(indices, map(self.digest, records))

    def holds(self, start: int, records: Iterable[Any]) -> bool:
        """Returns whether consecutive records are as their checksums say."""
        digests = list(map(self.digest, records))
        expected = self._table[start + 1 : start + 1 + len(digests)].view('<u8').tolist()
        return bool(digests == expected)

    def compare(self, indices: Int64s | range, digests: Iterable[int]) -> None:
        """As `check`, with the checksums of the records."""
        expected = self._table[np.asarray(indices) + 1].view('<u8').tolist()
        for position, found in enumerate(digests):
            if found != expected[position] != 0:  # 0: not known.
                detail = 'differs from its checksum: one of them is damaged'
                raise CorruptError(self.path, int(indices[position]), detail)
