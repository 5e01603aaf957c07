"""Digests of what was written to a bag since it was last on disk, to be compared after a power cut."""

from __future__ import annotations

from typing import Any

from bags.bag.checksums import checksums_name
from bags.bag.limits import ENTRY
from bags.indexing import Int64s
from bags.storage import Hints, Store

__all__ = ['UnsyncedDigest', 'digest_of']

READ_BYTES = 1 << 22


class UnsyncedDigest:
    """The digest of the records, limits and checksums that follow the first `synced` records of a bag."""

    def __init__(self, synced: int) -> None:
        from xxhash import xxh3_64

        self.synced = synced
        """Number of records that are on disk."""
        self.is_known = True
        """False after a failed write, which may have written more than the bag counts."""
        self.size = 0
        """Bytes of the records that followed."""
        self._records, self._limits, self._checksums = xxh3_64(), xxh3_64(), xxh3_64()

    def add_records(self, data: Any) -> None:
        self._records.update(data)
        self.size += len(data)

    def add_limits(self, table: bytes) -> None:
        self._limits.update(table)

    def add_checksums(self, table: bytes) -> None:
        self._checksums.update(table)

    def value(self) -> int:
        """Returns the digest, an unsigned integer of 64 bits."""
        from xxhash import xxh3_64_intdigest

        parts = (self._records, self._limits, self._checksums)
        return xxh3_64_intdigest(b''.join(part.digest() for part in parts))


def digest_of(store: Store, path: str, synced: int, ends: Int64s) -> int:
    """Computes the digest of the records of a bag after the first `synced` ones.

    Args:
        store, path: The bag.
        synced: Number of records before them.
        ends: The limits of all records up to the last one.

    Raises:
        OSError, EOFError: A file is missing or too short.
    """
    digest = UnsyncedDigest(synced)
    start, stop = (int(ends[count - 1]) if count else 0 for count in (synced, len(ends)))
    file = store.open(path, Hints(mapped=False))
    for first in range(start, stop, READ_BYTES):
        digest.add_records(file.fetch(first, min(first + READ_BYTES, stop)))
    digest.add_limits(ends[synced:].astype('<i8').tobytes())
    if store.exists(checksums_name(path)):
        table = store.read(checksums_name(path))
        digest.add_checksums(table[ENTRY * (synced + 1) : ENTRY * (len(ends) + 1)])
    return digest.value()
