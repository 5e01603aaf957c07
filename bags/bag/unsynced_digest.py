"""Digests of the records written to a bag since its last sync, to compare after a power cut."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from bags.bag.checksums import checksums_name
from bags.bag.limits import ENTRY, read_entries
from bags.storage import Hints, Store

DIGEST_READ_BYTES = 1 << 22


class BagState(NamedTuple):
    """The state of a bag in an entry of a journal."""

    synced: int
    """Number of records that are on disk."""
    flushed: int
    """Number of records that are flushed."""
    end: int
    """End of the flushed records."""
    records: int
    """Digest of the flushed records that are not on disk, and of their checksums."""
    limits: int
    """Digest of the limits of these records. They are written after the entry: some or all may be missing."""


class UnsyncedDigest:
    """The state of a bag, with digests of the records after the first `synced`."""

    def __init__(self, synced: int, end: int = 0) -> None:
        from xxhash import xxh3_64

        self.records = xxh3_64()
        """The digest of the records, which the writer updates with each piece that it writes."""
        self._limits, self._checksums = xxh3_64(), xxh3_64()
        self.state = BagState(synced, synced, end, 0, 0)
        self.add(synced, end, b'', b'')

    def add(self, count: int, end: int, limits: bytes, checksums: bytes) -> None:
        """Updates the state after records were added.

        Args:
            count, end: The number of records of the bag, and the end of the last one.
            limits, checksums: The bytes written to the files of limits and checksums for the new records.
        """
        from xxhash import xxh3_64_intdigest

        self._limits.update(limits)
        self._checksums.update(checksums)
        records = xxh3_64_intdigest(self.records.digest() + self._checksums.digest())
        self.state = BagState(self.state.synced, count, end, records, self._limits.intdigest())


def digest_of(store: Store, path: str, synced: int, start: int, stop: int, flushed: int) -> int:
    """Computes the digest of a range of records of a bag, and of their checksums.

    Args:
        store, path: The bag.
        synced: Index of the first record.
        start, stop: Byte range of the records in the file.
        flushed: Index after the last record.

    Raises:
        OSError, EOFError: A file is missing or too short.
    """
    digest = UnsyncedDigest(synced)
    file = store.open(path, Hints(mapped=False))
    for first in range(start, stop, DIGEST_READ_BYTES):
        digest.records.update(file.fetch(first, min(first + DIGEST_READ_BYTES, stop)))
    checksums = b''
    if store.exists(checksums_name(path)):
        checksums = read_entries(store, checksums_name(path), synced + 1, flushed + 1)
    digest.add(flushed, stop, b'', checksums)
    return digest.state.records


def pack_numbers(numbers: Sequence[int]) -> bytes:
    """Packs numbers, followed by their XXH3-64, each as a little-endian u64."""
    from xxhash import xxh3_64_intdigest

    data = struct.pack(f'<{len(numbers)}Q', *numbers)
    return data + struct.pack('<Q', xxh3_64_intdigest(data))


def unpack_numbers(data: bytes, count: int) -> list[int] | None:
    """Unpacks `count` numbers; returns None if `data` has another length, or the checksum differs."""
    if len(data) != (count + 1) * ENTRY:
        return None
    numbers = list(struct.unpack(f'<{count}Q', data[:-ENTRY]))
    return numbers if pack_numbers(numbers) == data else None
