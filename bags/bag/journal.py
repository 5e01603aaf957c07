"""The content of a journal of bags that are being written: which records are certain after a power cut.

The journal of a bag is `NAME.bag.unfinished`. The bags of a dataset folder share one, `unfinished`, whose
names and meaning for a dataset are in `bags.dataset.format.journal`.

After a power cut, any unsynced data may be missing, or be zeros. Unless its durability is 'none', a writer
therefore keeps a journal, a small file beside its bags, and removes it when they are closed. The journal
begins with a text, followed at offset 128 by three entries:

    base      number of records of each bag on disk; written, and synced, when the journal is replaced
    flush 1   and flush 2, alternately: numbers of records at the last two flushes, and digests of the records
              after the base

After a kill, the last flush matches the files, and nothing is lost. After a power cut, the files may match
neither of the two flushes; then only the records of the base are kept.

While a writer drops records that are on disk (`truncate_to`), the entry flush 1 has the number of records of
each bag before the truncation, until all bags are truncated. Each bag then matches one of the two entries.

While a datapoint of a dataset is open, two more lists follow, each with the XXH3-64 of its numbers: the
number of records of each bag before the datapoint, and the number after its last flush. The records in
between are the items of the open datapoint that readers may see: all items of a call, or none. The journal of
a dataset folder has these numbers with any durability. Earlier versions wrote only the first list.

An entry has a number, which increases; the placement of the limits; for each bag, the number of records on
disk, the number of flushed records and their end, and two digests (`UnsyncedDigest`); and the XXH3-64 of the
preceding values. Each is a little-endian u64.
"""

from __future__ import annotations

import itertools
import operator
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from bags.bag.limits import ENTRY
from bags.bag.options import LimitsPlacement
from bags.bag.unsynced_digest import BagState, UnsyncedDigest, pack_numbers, unpack_numbers
from bags.storage import Durability, Output, Store

BAG_JOURNAL_TEXT = (
    b'This is being written, or its writer ended early: resume=True, or mode append, continues it.\n'
)
ENTRIES_OFFSET = 128
ENTRIES = 3
MAX_UNSYNCED_BYTES = 1 << 28
"""Bytes of unsynced records after which the bags are synced: limits the bytes read to compare digests."""


MAX_READ_ATTEMPTS = 8
"""Number of times that a reader reads the numbers of an open datapoint while its writer changes them."""


class OpenCounts(NamedTuple):
    """Numbers of records of each bag of a folder with an open datapoint."""

    before: list[int]
    """Before the datapoint."""
    flushed: list[int]
    """After its last flush. Equal to `before` if an earlier version wrote the journal."""


def journal_name(path: str) -> str:
    """Returns the path of the journal of a bag that does not belong to a dataset."""
    return f'{path}.unfinished'


class Journal:
    """The journal of bags that are being written. With durability 'none', it contains only the text.

    Args:
        store, path: The journal.
        placement: The placement of the limits in the closed bags.
    """

    def __init__(self, store: Store, path: str, placement: LimitsPlacement = LimitsPlacement.TAIL) -> None:
        self.must_sync = False
        """Whether `sync` must precede more records: many bytes are not on disk, or a write has failed, which
        may have left bytes after the counted records."""
        self._store = store
        self._path = path
        self._placement = int(placement)
        self._syncs_flushes = store.durability is Durability.FLUSH
        self._file: Output | None = None
        self._numbers = itertools.count(1)
        """Generates the numbers of entries."""
        self._slot = 1
        """The position of the next entry, 1 or 2. With durability 'flush', the other entry is on disk."""
        self._bags: list[Any] = []
        self._digests: list[UnsyncedDigest] = []
        self._unsynced_bytes = 0
        """Bytes of records after the base."""
        self._has_unsynced_flush = False
        """Whether flushed records of the first bag, and their entry, are not on disk yet."""
        self._is_truncating = False
        """Whether the journal has the number of records before a truncation."""
        self.open_counts: OpenCounts | None = None
        """Numbers of records of the open datapoint; None without an open datapoint."""

    def create(self, counts: Sequence[int], before: Sequence[int] | None = None) -> None:
        """Writes or replaces the journal.

        Args:
            counts: Number of records of each bag on disk.
            before: If bags have more records, which are dropped next: their number of records before that.
        """
        size, entries = entry_size(len(counts)), b''
        self._is_truncating = before is not None
        if self._store.durability:
            for counts_of_entry in (counts,) if before is None else (counts, before):
                states = [UnsyncedDigest(count).state for count in counts_of_entry]
                entries += pack_numbers([next(self._numbers), self._placement, *itertools.chain(*states)])
        elif self.open_counts is None:
            self._store.replace(self._path, BAG_JOURNAL_TEXT)
            return
        entries = entries.ljust(ENTRIES * size, b'\0')
        if self.open_counts is not None:
            entries += b''.join(map(pack_numbers, self.open_counts))
        self._store.replace(self._path, BAG_JOURNAL_TEXT.ljust(ENTRIES_OFFSET, b'\n') + entries)
        if self._store.durability:
            self._file = self._store.resume(self._path, 0)

    def set_open(self, counts: Sequence[int] | None) -> None:
        """Saves the number of records before the open datapoint, and syncs it, unless durability is 'none'.

        Args:
            counts: Number of records of each bag before the open datapoint; None to clear them.
        """
        earlier, self.open_counts = self.open_counts, None
        if counts is not None:
            self.open_counts = OpenCounts(list(counts), list(counts))
        bags = len((self.open_counts or earlier or OpenCounts([], [])).before)
        if self._file is None:
            self.create([0] * bags)
            return
        self._write_open(self._file, bags, 0)
        self._file.sync()

    def set_flushed(self, counts: Sequence[int]) -> None:
        """Saves the number of records of each bag that readers may see, which are flushed. Does not sync."""
        assert self.open_counts is not None
        self.open_counts = self.open_counts._replace(flushed=list(counts))
        if self._file is None:
            self.create([0] * len(counts))
        else:
            self._write_open(self._file, len(counts), 1)

    def _write_open(self, file: Output, bags: int, first: int) -> None:
        """Writes the lists of the open datapoint from number `first` on, in one call."""
        size = (bags + 1) * ENTRY
        lists = [bytes(size)] * 2 if self.open_counts is None else list(map(pack_numbers, self.open_counts))
        file.size = open_offset(bags) + first * size
        file.write([b''.join(lists[first:])])

    def find_open(self, counts: Sequence[int]) -> None:
        """Continues the open datapoint of an earlier writer, if its records are kept.

        Args:
            counts: Number of records of each bag that are kept.
        """
        found = read_open(self._store, self._path, len(counts))
        # If the number of refs differs, the datapoint was committed. If a bag has fewer records, a power cut
        # has damaged records before the datapoint.
        if found is not None and found.before[0] == counts[0] and all(map(operator.le, found.before, counts)):
            self.open_counts = found._replace(flushed=list(map(min, found.flushed, counts)))

    def track(self, bags: Sequence[Any], counts: Sequence[int]) -> None:
        """Starts to save an entry whenever records are flushed.

        Args:
            bags: The `BagAppender` of each bag. The records of the first bag are the datapoints of a dataset.
            counts: As passed to `create`.
        """
        if self._file is None:
            return
        if self._is_truncating:
            self.create(counts)
        self._bags = [weakref.proxy(bag) for bag in bags]  # A reference cycle would keep the files open.
        self._begin_digests(counts)
        self.must_sync = any(bag.count != count for bag, count in zip(bags, counts, strict=True))

    def _begin_digests(self, counts: Sequence[int]) -> None:
        self._digests = [UnsyncedDigest(count) for count in counts]
        for bag, digest in zip(self._bags, self._digests, strict=True):
            digest.add(bag.count, bag.end, b'', b'')
            bag.journal, bag.unsynced = self, digest
        self._unsynced_bytes = 0

    def sync(self) -> None:
        """Syncs all bags, and replaces the journal: flushed records then survive a power cut."""
        for bag in self._bags:
            bag.expect_in_place()
        self._sync_bags(self._bags)
        counts = [bag.count for bag in self._bags]
        self.create(counts)
        self._begin_digests(counts)
        self.must_sync = False

    def _sync_bags(self, bags: Sequence[Any]) -> None:
        for bag in bags:
            bag.sync()
        self._store.sync_folder(self._path.rpartition('/')[0])

    def save(self, digest: UnsyncedDigest, count: int, end: int, limits: bytes, checksums: bytes) -> None:
        """Saves an entry, before the limits of new records of a bag make them visible to readers.

        Args:
            digest: The digest of the bag.
            count, end, limits, checksums: As in `UnsyncedDigest.add`.
        """
        if self._file is None:
            return
        if self._syncs_flushes and digest is self._digests[0]:
            for tracked in self._bags:
                tracked.sync(limits=tracked.unsynced is not digest)
            self._has_unsynced_flush = True
        self._unsynced_bytes += end - digest.state.end
        self.must_sync = self._unsynced_bytes >= MAX_UNSYNCED_BYTES
        digest.add(count, end, limits, checksums)
        numbers = [next(self._numbers), self._placement]
        for tracked_digest in self._digests:
            numbers += tracked_digest.state
        entry = pack_numbers(numbers)
        self._file.size = ENTRIES_OFFSET + self._slot * len(entry)
        self._file.write([entry])
        if not self._syncs_flushes:
            self._slot = 3 - self._slot

    def sync_flush(self) -> None:
        """Syncs the flushed records of the first bag, and their entry.

        The records of the other bags were synced before the entry was saved.
        """
        if self._file is not None and self._has_unsynced_flush:
            self._sync_bags(self._bags[:1])
            self._file.sync()
            self._has_unsynced_flush = False
            self._slot = 3 - self._slot

    def remove(self) -> None:
        file, self._file = self._file, None
        if file is None:
            self._store.remove(self._path)
        else:
            file.discard()


def read_open(store: Store, path: str, bags: int) -> OpenCounts | None:
    """Reads the numbers of records of the open datapoint of a folder from its journal.

    Args:
        store, path: The journal.
        bags: Number of bags of the folder.

    Returns:
        The numbers; None without a journal or an open datapoint.
    """
    size, start = (bags + 1) * ENTRY, open_offset(bags)
    found = None
    for _ in range(MAX_READ_ATTEMPTS):
        try:
            data = store.read(path)[start:]
        except FileNotFoundError:
            return None
        if not data[:size].strip(b'\0'):
            return None
        before, flushed = (unpack_numbers(data[first : first + size], bags) for first in (0, size))
        if before is not None and flushed is not None and all(map(operator.le, before, flushed)):
            return OpenCounts(before, flushed)
        found = None if before is None else OpenCounts(before, before)
        if len(data) <= size:
            break
    return found


def open_offset(bags: int) -> int:
    """Returns the offset of the numbers of the open datapoint for some number of bags."""
    return ENTRIES_OFFSET + ENTRIES * entry_size(bags)


def entry_size(bags: int) -> int:
    """Returns the number of bytes of an entry for some number of bags."""
    return ENTRY * (3 + len(BagState._fields) * bags)
