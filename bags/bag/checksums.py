"""Checksums of records, in a file beside the bag: `NAME.xxh3`.

The file is a table of little-endian u64. The first entry is the XXH3-64 of the bag's *companion*: the
spec.json of refs, the dictionary of a compressed field, or no bytes. The following entries are the XXH3-64 of
the records as stored. The file is written before the limits of the records, and stays beside a closed bag.
Other readers ignore it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bags.bag.limits import ENTRY, BlockTable
from bags.errors import CorruptError
from bags.indexing import Int64s
from bags.storage import Store

SUFFIX = '.xxh3'


def checksums_name(path: str) -> str:
    """Returns the path of the checksum file of a bag."""
    return path + SUFFIX


def digest_function() -> Callable[[Any], int]:
    """Returns the function that computes the XXH3-64 of a buffer."""
    from xxhash import xxh3_64_intdigest

    return xxh3_64_intdigest


def digests_of(pieces: Iterable[Any], sizes: Iterable[int] | None) -> list[int]:
    """Returns the checksums of records whose bytes arrive in pieces. Consumes all pieces.

    Args:
        pieces: Buffers. Records may begin and end anywhere in them.
        sizes: Bytes of each record; None for one record with all bytes.
    """
    from xxhash import xxh3_64, xxh3_64_intdigest

    if sizes is None:
        whole = xxh3_64()
        for piece in pieces:
            whole.update(piece)
        return [whole.intdigest()]
    views = (memoryview(piece).cast('B') for piece in pieces)
    view, digests = memoryview(b''), []
    for size in sizes:
        if size <= len(view):
            digests.append(xxh3_64_intdigest(view[:size]))
            view = view[size:]
            continue
        hasher = xxh3_64()
        while size:
            view = view or next(views)
            hasher.update(view[:size])
            size, view = size - len(view[:size]), view[size:]
        digests.append(hasher.intdigest())
    for _ in views:
        pass
    return digests


def table_of(digests: Iterable[int]) -> bytes:
    """Returns checksums in the format of the checksum file."""
    return np.array(list(digests), '<u8').tobytes()


class Checksums:
    """The checksums of an open bag.

    Raises:
        FileNotFoundError: The bag has no checksums.
        CorruptError: The number of checksums does not match the number of records.
    """

    def __init__(self, store: Store, path: str, count: int, hints: Any, is_closed: bool) -> None:
        self.path = path
        self.is_closed = is_closed
        file = store.open(checksums_name(path), hints)
        expected = ENTRY * (count + 1)
        if file.size < expected or (is_closed and file.size > expected):
            detail = f'expected the {expected} bytes of checksums of {count} records, got {file.size}'
            raise CorruptError(file.path, None, detail)
        self.digest = digest_function()
        self.values: memoryview | None = None
        """The table, if it is memory-mapped."""
        self._table: Any = BlockTable(file, 0, count + 1)
        if file.buffer is not None:
            self._table = np.frombuffer(file.buffer, '<i8', count + 1)
            self.values = memoryview(file.buffer)[:expected].cast('Q')

    def check_companion(self, data: bytes, name: str) -> None:
        """Raises CorruptError if `data` is not the companion with which the bag was written."""
        expected = int(self._table[0:1].view('<u8')[0])
        if not self.is_closed and expected == self.digest(b''):
            return  # The writer has not saved the checksum of the companion yet.
        if self.digest(data) != expected:
            raise CorruptError(self.path, None, f'{name} differs from its checksum: one of them is damaged')

    def match(self, start: int, records: Iterable[Any]) -> bool:
        """Returns whether consecutive records match their checksums."""
        digests = list(map(self.digest, records))
        expected: list[int] = self._table[start + 1 : start + 1 + len(digests)].view('<u8').tolist()
        return digests == expected

    def of(self, indices: Int64s | range) -> Int64s:
        """Returns the checksums of records as u64, shape (n,); 0 if unknown."""
        checksums: Int64s = self._table[np.asarray(indices) + 1].view('<u8')
        return checksums

    def compare(self, indices: Int64s | range, digests: Iterable[int]) -> None:
        """Raises CorruptError if a stored record differs from its checksum, given the digests."""
        expected = self.of(indices).tolist()
        for position, digest in enumerate(digests):
            if digest != expected[position] != 0:  # 0 means unknown.
                detail = 'differs from its checksum: one of them is damaged'
                raise CorruptError(self.path, int(indices[position]), detail)
