"""Digests of what was written to a bag since it was last on disk, to be compared after a power cut."""

from __future__ import annotations

from typing import Any

from bags.bag.checksums import checksums_name
from bags.bag.limits import ENTRY
from bags.storage import Hints, Store

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

    def values(self) -> tuple[int, int]:
        """Returns the digests of records and checksums, and of limits: unsigned integers of 64 bits."""
        from xxhash import xxh3_64_intdigest

        both = xxh3_64_intdigest(self._records.digest() + self._checksums.digest())
        return both, self._limits.intdigest()


def digest_of(store: Store, path: str, synced: int, start: int, stop: int, flushed: int) -> int:
    """Computes the digest of records of a bag and of their checksums.

    Args:
        store, path: The bag.
        synced: Number of records before them.
        start, stop: Where they are in the file.
        flushed: Number of records before their end.

    Raises:
        OSError, EOFError: A file is missing or too short.
    """
    digest = UnsyncedDigest(synced)
    file = store.open(path, Hints(mapped=False))
    for first in range(start, stop, READ_BYTES):
        digest.add_records(file.fetch(first, min(first + READ_BYTES, stop)))
    if store.exists(checksums_name(path)):
        table = store.read(checksums_name(path))
        digest.add_checksums(table[ENTRY * (synced + 1) : ENTRY * (flushed + 1)])
    return digest.values()[0]
