"""What was written to a bag since it was last on disk, with digests to compare after a power cut."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from bags.bag.checksums import checksums_name
from bags.bag.limits import ENTRY
from bags.storage import Hints, Store

READ_BYTES = 1 << 22


class BagState(NamedTuple):
    """A bag in an entry of a journal."""

    synced: int
    """Number of records that are on disk."""
    flushed: int
    """Number of records that are flushed."""
    end: int
    """End of these records."""
    records: int
    """The digest of the records after those on disk, and of their checksums."""
    limits: int
    """The digest of their limits, which are written after the entry: some or all may be missing."""


class UnsyncedDigest:
    """The state of a bag, with digests of what follows the first `synced` records."""

    def __init__(self, synced: int, end: int = 0) -> None:
        from xxhash import xxh3_64

        self.records = xxh3_64()
        """The digest of the records. The writer updates it with each piece that it writes."""
        self._limits, self._checksums = xxh3_64(), xxh3_64()
        self.state = BagState(synced, synced, end, 0, 0)
        self.add(synced, end, b'', b'')

    def add(self, count: int, end: int, limits: bytes, checksums: bytes) -> None:
        """Counts the records that were added, with their limits and checksums.

        Args:
            count, end: Number of records of the bag, and the end of the last one.
            limits, checksums: What is written to these files for the new records.
        """
        from xxhash import xxh3_64_intdigest

        self._limits.update(limits)
        self._checksums.update(checksums)
        records = xxh3_64_intdigest(self.records.digest() + self._checksums.digest())
        self.state = BagState(self.state.synced, count, end, records, self._limits.intdigest())


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
        digest.records.update(file.fetch(first, min(first + READ_BYTES, stop)))
    checksums = b''
    if store.exists(checksums_name(path)):
        checksums = store.read(checksums_name(path))[ENTRY * (synced + 1) : ENTRY * (flushed + 1)]
    digest.add(flushed, stop, b'', checksums)
    return digest.state.records


def pack_numbers(numbers: Sequence[int]) -> bytes:
    """Returns numbers with the XXH3-64 of them, each as a little-endian u64."""
    from xxhash import xxh3_64_intdigest

    data = struct.pack(f'<{len(numbers)}Q', *numbers)
    return data + struct.pack('<Q', xxh3_64_intdigest(data))


def unpack_numbers(data: bytes, count: int) -> list[int] | None:
    """Returns `count` numbers that were packed; None if there are not as many, or their checksum differs."""
    if len(data) != (count + 1) * ENTRY:
        return None
    numbers = list(struct.unpack(f'<{count}Q', data[:-ENTRY]))
    return numbers if pack_numbers(numbers) == data else None
