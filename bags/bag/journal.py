"""The journal of bags that are being written: which of their records are certain after a power cut.

After a power cut, any part of what was not synced may be missing, or be zeros. A writer with a durability
therefore keeps a journal, a small file beside its bags, and removes it when they are closed. After a text
follow, at offset 128, three entries:

    base      replaced with the journal, and then on disk: the records of each bag that are on disk
    flush 1   and flush 2, in turns: the records at the last two flushes, and digests of those after the base

After a kill the last flush matches the files, and nothing is lost. After a power cut the files may match none
of the two flushes: then the records of the base are kept.

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
import struct
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bags.bag.checksums import digest_function
from bags.bag.limits import ENTRY, valid_count
from bags.bag.open import limits_name, open_bag
from bags.bag.options import LimitsPlacement, ReaderOptions
from bags.bag.unsynced import BagState, UnsyncedDigest, digest_of, pack_counts, unpack_counts
from bags.errors import CorruptError
from bags.indexing import Int64s
from bags.storage import Durability, Output, Store

TEXT = b'This is being written, or its writer ended early: resume=True, or mode append, continues it.\n'
ENTRIES_OFFSET = 128
ENTRIES = 3
MAX_UNSYNCED_BYTES = 1 << 28
"""Bytes of records after which the bags are synced: the most that is read to compare digests."""


def journal_name(path: str) -> str:
    """Returns the path of the journal of a bag that is no part of a dataset."""
    return f'{path}.unfinished'


STATE_NUMBERS = len(BagState._fields)


class Entry(NamedTuple):
    """An entry of a journal."""

    number: int
    placement: int
    states: list[BagState]


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
        self._number = 0
        self._slot = 1
        """The entry to write next, 1 or 2. With durability 'flush', the other one is on disk."""
        self._bags: list[Any] = []
        self._digests: list[UnsyncedDigest] = []
        self._unsynced_bytes = 0
        """Bytes of records after the base."""
        self._has_unsynced_flush = False
        """Whether records of the first bag are flushed, and their entry is not on disk."""
        self.open_counts: list[int] | None = None
        """Number of records of each bag before the open datapoint; None if none is open."""

    def create(self, counts: Sequence[int]) -> None:
        """Writes the journal, or writes it anew.

        Args:
            counts: Number of records of each bag that are on disk.
        """
        size, base = _entry_size(len(counts)), b''
        if self._store.durability:
            base = self._next_entry([UnsyncedDigest(count) for count in counts])
        elif self.open_counts is None:
            self._store.replace(self._path, TEXT)
            return
        entries = base.ljust(ENTRIES * size, b'\0') + pack_counts(self.open_counts)
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
        self._file.size = ENTRIES_OFFSET + ENTRIES * _entry_size(bags)
        self._file.write([pack_counts(self.open_counts) or bytes((bags + 1) * ENTRY)])
        self._file.sync()

    def find_open(self, counts: Sequence[int]) -> None:
        """Takes over the open datapoint of an earlier writer, if its records are among those that are kept.

        Args:
            counts: Number of records that are kept of each bag.
        """
        with contextlib.suppress(FileNotFoundError):
            data = self._store.read(self._path)[ENTRIES_OFFSET + ENTRIES * _entry_size(len(counts)) :]
            before = unpack_counts(data, len(counts))
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
        entry = self._next_entry(self._digests)
        self._file.size = ENTRIES_OFFSET + self._slot * len(entry)
        self._file.write([entry])
        if not self._syncs_flushes:
            self._slot = 3 - self._slot

    def _next_entry(self, digests: Sequence[UnsyncedDigest]) -> bytes:
        from xxhash import xxh3_64_intdigest

        self._number += 1
        numbers = [self._number, self._placement]
        for digest in digests:
            numbers += digest.state
        data = struct.pack(f'<{len(numbers)}Q', *numbers)
        return data + struct.pack('<Q', xxh3_64_intdigest(data))

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


def _entry_size(bags: int) -> int:
    return ENTRY * (3 + STATE_NUMBERS * bags)


def _load(store: Store, path: str, bags: int) -> list[Entry]:
    """Returns the valid entries of a journal, the last one first. Without a base there are none."""
    try:
        data = store.read(path)
    except FileNotFoundError:
        return []
    count = 3 + STATE_NUMBERS * bags
    found: list[Entry] = []
    for position in range(ENTRIES):
        start = ENTRIES_OFFSET + position * count * ENTRY
        entry = data[start : start + count * ENTRY]
        numbers = struct.unpack(f'<{count}Q', entry) if len(entry) == count * ENTRY else ()
        if numbers and numbers[-1] == digest_function()(entry[:-ENTRY]):
            firsts = range(2, count - 1, STATE_NUMBERS)
            states = [BagState(*numbers[first : first + STATE_NUMBERS]) for first in firsts]
            found.append(Entry(numbers[0], numbers[1], states))
        elif not position:
            return []
    return sorted(found, reverse=True)


def placement_in(store: Store, path: str) -> LimitsPlacement | None:
    """Returns where the limits of a bag belong, from its journal; None if it has none."""
    entries = _load(store, journal_name(path), 1)
    return LimitsPlacement(entries[0].placement) if entries else None


def certain_counts(store: Store, journal: str, bags: Sequence[str]) -> list[int] | None:
    """Returns the number of records of each bag that are certain, after a power cut.

    Args:
        store, journal: The journal of local bags whose writer ended early.
        bags: Their paths.

    Returns:
        The records to keep; None if the bags are as their writer left them, or if that is unknown.
    """
    unclosed = [position for position, path in enumerate(bags) if store.exists(limits_name(path))]
    if not unclosed:
        return None  # A bag is closed after all bags were synced.
    entries = _load(store, journal, len(bags))
    for (_, placement, states), before in itertools.zip_longest(entries, entries[1:]):
        options = ReaderOptions(limits_placement=LimitsPlacement(placement))
        absent = [state for path, state in zip(bags, states, strict=True) if not store.exists(path)]
        if any(state.synced for state in absent):
            return None  # Not by a power cut: opening the bags reports the damage.
        if any(state.flushed for state in absent):
            continue
        missing = [_missing_limits(store, bags[each], states[each], options) for each in unclosed]
        if None in missing:
            continue
        is_whole = all(_is_whole(store, bags[each], states[each], options) for each in unclosed)
        short = [each for each, count in zip(unclosed, missing, strict=True) if count]
        # A killed writer leaves the limits of one bag incomplete: those that it was writing after this entry.
        is_killed = is_whole and len(short) == 1
        if not short or (is_killed and _are_limits(store, bags, short[0], states, before, options)):
            # A power cut may lose the name of a bag without records.
            if is_whole and not (absent and states[0].flushed):
                return None
            return [state.flushed for state in states]
    return None


def check_certain(store: Store, journal: str, bags: Sequence[str], locked: str) -> None:
    """Raises CorruptError if bags whose writer ended early have records that are not certain.

    Args:
        store, journal, bags: As for `certain_counts`.
        locked: The file or folder that their writer locks.
    """
    while store.exists(journal) and not store.is_locked(locked):
        entries = _load(store, journal, len(bags))
        try:
            kept = certain_counts(store, journal, bags)
        except FileNotFoundError:
            continue  # A writer has resumed and closed them meanwhile.
        if kept is None:
            return
        # An entry that differs, or a lock, is that of a writer that has resumed them meanwhile.
        if _load(store, journal, len(bags)) == entries and not store.is_locked(locked):
            detail = f'a power cut has damaged what was not on disk: `bags recover` keeps {kept[0]:,} records'
            raise CorruptError(bags[0], None, detail)


def _missing_limits(store: Store, path: str, state: BagState, options: ReaderOptions) -> int | None:
    """Returns how many limits of the records of an entry a bag lacks; None if it has other records."""
    synced, flushed, end = state.synced, state.flushed, state.end
    if flushed == synced:
        return 0
    try:
        ends = _ends(store, path, flushed, options)
        if len(ends) < synced or valid_count(ends, end) < len(ends):
            return None
        start = int(ends[synced - 1]) if synced else 0
        if digest_of(store, path, synced, start, end, flushed) != state.records:
            return None
    except (CorruptError, OSError, EOFError):
        return None
    is_equal = len(ends) < flushed or digest_function()(ends[synced:].tobytes()) == state.limits
    return flushed - len(ends) if is_equal else None


def _are_limits(
    store: Store,
    bags: Sequence[str],
    position: int,
    states: list[BagState],
    before: Entry | None,
    options: ReaderOptions,
) -> bool:
    """Returns whether the limits that a bag has, of which some are missing, are not zeros of a power cut.

    Zeros could also be the limits of empty records: they are if they match the entry before.
    """
    path, state = bags[position], states[position]
    ends = _ends(store, path, state.flushed, options)
    if ends[state.synced :].all():
        return True
    if before is None or _missing_limits(store, path, before.states[position], options) != 0:
        return False
    return bool(ends[before.states[position].flushed :].all())


def _ends(store: Store, path: str, count: int, options: ReaderOptions) -> Int64s:
    """Returns the first limits of a bag that is not closed; fewer if there are fewer."""
    data = store.read(limits_name(path))
    listed = min(count, len(data) // ENTRY)
    if listed:
        return np.frombuffer(data, '<i8', listed)
    bag = open_bag(store, path, options)  # Its writer had not copied the limits of a closed bag yet.
    return np.array(bag.stated(0, min(count, bag.count))[1], '<i8')


def _is_whole(store: Store, path: str, state: BagState, options: ReaderOptions) -> bool:
    """Returns whether a bag that matches an entry can be opened, and has no more records."""
    try:
        if not state.flushed and not store.exists(path):
            # Its limits are created first. They are empty, unless a power cut has lost the name of the bag.
            return not store.stat(limits_name(path)).size
        bag = open_bag(store, path, options)
        ends = bag.stated(0, bag.count)[1]
    except (CorruptError, OSError, EOFError):
        return False
    return state.synced <= bag.count <= state.flushed and valid_count(ends, bag.file.size) == bag.count
