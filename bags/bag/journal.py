"""The journal of bags that are being written: which of their records are certain after a power cut.

After a power cut, any part of what was not synced may be missing, or be zeros. A writer with a durability
therefore keeps a journal, a small file beside its bags, and removes it when they are closed. After a text
follow, at offset 128, three entries:

    base      replaced with the journal, and then on disk: the records of each bag that are on disk
    flush 1   and flush 2, in turns: the records at the last two flushes, and digests of those after the base

After a kill the last flush matches the files, and nothing is lost. After a power cut the files may match none
of the two flushes: then the records of the base are kept.

A writer that drops records which are on disk (`truncate_to`) has, until it has cut all bags, the records of
each bag before that in place of flush 1: each bag is then as in one of the two entries.

While a datapoint of a dataset is open, the records of each bag before it follow, and the XXH3-64 of these
numbers: the records after them are its items. The mark of a dataset has them without durability too.

An entry has a number, which increases; the placement of the limits; for each bag the records on disk, the
records flushed and their end, and two digests (`UnsyncedDigest`); and the XXH3-64 of all that. Each is a
little-endian u64.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import weakref
from collections.abc import Sequence
from typing import Any

from bags.bag.limits import ENTRY
from bags.bag.options import LimitsPlacement
from bags.bag.unsynced import BagState, UnsyncedDigest, pack_numbers, unpack_numbers
from bags.storage import Durability, Output, Store

TEXT = b'This is being written, or its writer ended early: resume=True, or mode append, continues it.\n'
ENTRIES_OFFSET = 128
ENTRIES = 3
MAX_UNSYNCED_BYTES = 1 << 28
"""Bytes of records after which the bags are synced: the most that is read to compare digests."""


def journal_name(path: str) -> str:
    """Returns the path of the journal of a bag that is no part of a dataset."""
    return f'{path}.unfinished'


class Journal:
    """The journal of bags that are being written. Without durability it is only a text.

    Args:
        store, path: The journal.
        placement: Where the limits of the bags are when they are closed.
    """

    def __init__(self, store: Store, path: str, placement: LimitsPlacement = LimitsPlacement.TAIL) -> None:
        self.must_sync = False
        """Whether `sync` comes before more records: many bytes are not on disk, or a write has failed, which
        may have written more than the bags count."""
        self._store = store
        self._path = path
        self._placement = int(placement)
        self._syncs_flushes = store.durability is Durability.FLUSH
        self._file: Output | None = None
        self._numbers = itertools.count(1)
        """The numbers of the next entries."""
        self._slot = 1
        """The entry to write next, 1 or 2. With durability 'flush', the other one is on disk."""
        self._bags: list[Any] = []
        self._digests: list[UnsyncedDigest] = []
        self._unsynced_bytes = 0
        """Bytes of records after the base."""
        self._has_unsynced_flush = False
        """Whether records of the first bag are flushed, and their entry is not on disk."""
        self._is_cutting = False
        """Whether the journal has the records from before they were dropped."""
        self.open_counts: list[int] | None = None
        """Number of records of each bag before the open datapoint; None if none is open."""

    def create(self, counts: Sequence[int], before: Sequence[int] | None = None) -> None:
        """Writes the journal, or writes it anew.

        Args:
            counts: Number of records of each bag that are on disk.
            before: If bags have more records, which are dropped next: the numbers of these, also on disk.
        """
        size, entries = entry_size(len(counts)), b''
        self._is_cutting = before is not None
        if self._store.durability:
            for each in (counts,) if before is None else (counts, before):
                states = [UnsyncedDigest(count).state for count in each]
                entries += pack_numbers([next(self._numbers), self._placement, *itertools.chain(*states)])
        elif self.open_counts is None:
            self._store.replace(self._path, TEXT)
            return
        entries = entries.ljust(ENTRIES * size, b'\0')
        if self.open_counts is not None:
            entries += pack_numbers(self.open_counts)
        self._store.replace(self._path, TEXT.ljust(ENTRIES_OFFSET, b'\n') + entries)
        if self._store.durability:
            self._file = self._store.resume(self._path, 0)

    def set_open(self, counts: Sequence[int] | None) -> None:
        """Saves the number of records before the open datapoint; unless durability is 'none', on disk.

        Args:
            counts: Number of records of each bag before it; None if none is open.
        """
        bags = len(self.open_counts or counts or ())
        self.open_counts = None if counts is None else list(counts)
        if self._file is None:
            self.create([0] * bags)
            return
        self._file.size = ENTRIES_OFFSET + ENTRIES * entry_size(bags)
        none = bytes((bags + 1) * ENTRY)
        self._file.write([none if self.open_counts is None else pack_numbers(self.open_counts)])
        self._file.sync()

    def find_open(self, counts: Sequence[int]) -> None:
        """Takes over the open datapoint of an earlier writer, if its records are among those that are kept.

        Args:
            counts: Number of records that are kept of each bag.
        """
        with contextlib.suppress(FileNotFoundError):
            data = self._store.read(self._path)[ENTRIES_OFFSET + ENTRIES * entry_size(len(counts)) :]
            before = unpack_numbers(data, len(counts))
            # With other refs it was committed; with fewer records, a power cut has damaged those before it.
            if before is not None and before[0] == counts[0] and all(map(operator.le, before, counts)):
                self.open_counts = before

    def track(self, bags: Sequence[Any], counts: Sequence[int]) -> None:
        """Begins to save an entry whenever records are flushed.

        Args:
            bags: Each `BagAppender`; the datapoints of a dataset are the records of the first.
            counts: As given to `create`.
        """
        if self._file is None:
            return
        if self._is_cutting:
            self.create(counts)
        self._bags = [weakref.proxy(bag) for bag in bags]  # A cycle would keep the files open.
        self._begin_digests(counts)
        self.must_sync = any(bag.count != count for bag, count in zip(bags, counts, strict=True))

    def _begin_digests(self, counts: Sequence[int]) -> None:
        self._digests = [UnsyncedDigest(count) for count in counts]
        for bag, digest in zip(self._bags, self._digests, strict=True):
            digest.add(bag.count, bag.end, b'', b'')
            bag.journal, bag.unsynced = self, digest
        self._unsynced_bytes = 0

    def sync(self) -> None:
        """Syncs all bags: what is flushed is then certain."""
        self._sync_bags(self._bags)
        counts = [bag.count for bag in self._bags]
        self.create(counts)
        self._begin_digests(counts)
        self.must_sync = False

    def _sync_bags(self, bags: Sequence[Any]) -> None:
        for bag in bags:
            bag.sync()
        self._store.sync_folder(self._path.rpartition('/')[0])

    def save(self, bag: Any, count: int, end: int, limits: bytes, checksums: bytes) -> None:
        """Saves an entry, before the limits of new records of a bag make them readable.

        Args:
            bag: Its `BagAppender`.
            count, end, limits, checksums: As in `UnsyncedDigest.add`.
        """
        if self._file is None:
            return
        digest = bag.unsynced
        if self._syncs_flushes and digest is self._digests[0]:
            for each in self._bags:
                each.sync(limits=each.unsynced is not digest)
            self._has_unsynced_flush = True
        self._unsynced_bytes += end - digest.state.end
        self.must_sync = self._unsynced_bytes >= MAX_UNSYNCED_BYTES
        digest.add(count, end, limits, checksums)
        numbers = [next(self._numbers), self._placement]
        for each in self._digests:
            numbers += each.state
        entry = pack_numbers(numbers)
        self._file.size = ENTRIES_OFFSET + self._slot * len(entry)
        self._file.write([entry])
        if not self._syncs_flushes:
            self._slot = 3 - self._slot

    def sync_flush(self) -> None:
        """Syncs the records of the first bag that were flushed, and their entry.

        Those of the other bags were synced before the entry was saved.
        """
        if self._file is not None and self._has_unsynced_flush:
            self._sync_bags(self._bags[:1])
            self._file.sync()
            self._has_unsynced_flush = False
            self._slot = 3 - self._slot

    def remove(self) -> None:
        self._file = None  # Its descriptor closes.
        self._store.remove(self._path)


def entry_size(bags: int) -> int:
    """Returns the bytes of an entry."""
    return ENTRY * (3 + len(BagState._fields) * bags)
