"""The journal of bags that are being written: which of their records are certain after a power cut.

After a power cut, any part of what was not synced may be missing, or be zeros. A writer with a durability
therefore keeps a journal, a small file beside its bags, and removes it when they are closed. After a text
follow, at offset 128, three entries:

    base      replaced with the journal, and then on disk: the records of each bag that are on disk
    flush 1   and flush 2, in turns: the records at the last two flushes, and digests of those after the base

After a kill the last flush matches the files, and nothing is lost. After a power cut the files may match none
of the two flushes: then the records of the base are kept.

An entry has a number, which increases; the placement of the limits; for each bag the records on disk, the
records flushed and their end, and two digests (`UnsyncedDigest`); and the XXH3-64 of all that. Each is a
little-endian u64.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bags.bag.checksums import digest_function
from bags.bag.limits import ENTRY, valid_count
from bags.bag.open import limits_name, open_bag
from bags.bag.options import LimitsPlacement, ReaderOptions
from bags.bag.unsynced import UnsyncedDigest, digest_of
from bags.errors import CorruptError
from bags.indexing import Int64s
from bags.storage import Durability, Output, Store

TEXT = b'This is being written, or its writer ended early: resume=True, or mode append, continues it.\n'
ENTRIES_OFFSET = 128
MAX_UNSYNCED_BYTES = 1 << 28
"""Bytes of records after which the bags are synced: the most that is read to compare digests."""


def journal_name(path: str) -> str:
    """Returns the path of the journal of a bag that is no part of a dataset."""
    return f'{path}.unfinished'


class BagState(NamedTuple):
    """A bag in an entry."""

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
        self._store = store
        self._path = path
        self._placement = int(placement)
        self._file: Output | None = None
        self._number = 0
        self._slot = 1
        """The entry to write next, 1 or 2. With durability 'flush', the other one is on disk."""
        self._bags: Sequence[Any] = ()

    def create(self, counts: Sequence[int]) -> None:
        """Writes the journal, or writes it anew.

        Args:
            counts: Number of records of each bag that are on disk.
        """
        if not self._store.durability:
            self._store.replace(self._path, TEXT)
            return
        self._number += 1
        base = [BagState(count, count, 0, *UnsyncedDigest(count).values()) for count in counts]
        entry = _dump(Entry(self._number, self._placement, base))
        self._store.replace(self._path, TEXT.ljust(ENTRIES_OFFSET, b'\n') + entry + bytes(2 * len(entry)))
        self._file = self._store.resume(self._path, 0)
        for bag, count in zip(self._bags, counts, strict=False):
            bag.unsynced = UnsyncedDigest(count)

    def track(self, bags: Sequence[Any], counts: Sequence[int]) -> None:
        """Begins to save an entry whenever records are flushed.

        Args:
            bags: Each `BagAppender`; the datapoints of a dataset are the records of the first.
            counts: As given to `create`.
        """
        if self._file is None:
            return
        self._bags = bags
        for bag, count in zip(bags, counts, strict=True):
            bag.unsynced = UnsyncedDigest(count)
            bag.unsynced.is_known = count == bag.count
            bag.before_limits = weakref.WeakMethod(self._save)  # A cycle would keep the files open.

    def sync_if_due(self) -> None:
        """Syncs all bags if many bytes are not on disk, or after a failed write."""
        digests = [bag.unsynced for bag in self._bags]
        if sum(digest.size for digest in digests) >= MAX_UNSYNCED_BYTES or not _are_known(digests):
            self.sync()

    def sync(self) -> None:
        """Syncs all bags: what is flushed is then certain."""
        if self._file is not None:
            self._sync_bags(self._bags)
            self.create([bag.count for bag in self._bags])

    def _sync_bags(self, bags: Sequence[Any]) -> None:
        for bag in bags:
            bag.sync()
        self._store.sync_folder(self._path.rpartition('/')[0])

    def _save(self, path: str, count: int, end: int) -> None:
        """Saves an entry, before the records of a bag that it counts can be read."""
        if self._file is None or not _are_known([bag.unsynced for bag in self._bags]):
            return
        if self._store.durability is Durability.FLUSH and path == self._bags[0].path:
            for bag in self._bags:
                bag.sync(limits=bag.path != path)
        self._number += 1
        states = [
            BagState(
                bag.unsynced.synced,
                count if bag.path == path else bag.count,
                end if bag.path == path else bag.end,
                *bag.unsynced.values(),
            )
            for bag in self._bags
        ]
        entry = _dump(Entry(self._number, self._placement, states))
        self._file.size = ENTRIES_OFFSET + self._slot * len(entry)
        self._file.write([entry])
        if self._store.durability is not Durability.FLUSH:
            self._slot = 3 - self._slot

    def after_flush(self) -> None:
        """Syncs what was flushed, if it has to be on disk."""
        if self._file is not None and self._store.durability is Durability.FLUSH:
            self._sync_bags(self._bags[:1])  # The others were synced by `_save`.
            self._file.sync()
            self._slot = 3 - self._slot

    def remove(self) -> None:
        self._file = None  # Its descriptor closes.
        self._store.remove(self._path)


def _are_known(digests: Sequence[UnsyncedDigest]) -> bool:
    return all(digest.is_known for digest in digests)


def _dump(entry: Entry) -> bytes:
    numbers = [entry.number, entry.placement, *(value for state in entry.states for value in state)]
    data = struct.pack(f'<{len(numbers)}Q', *numbers)
    return data + struct.pack('<Q', digest_function()(data))


def _load(store: Store, path: str, bags: int) -> list[Entry]:
    """Returns the valid entries of a journal, the last one first. Without a base there are none."""
    try:
        data = store.read(path)
    except FileNotFoundError:
        return []
    count = 3 + STATE_NUMBERS * bags
    found: list[Entry] = []
    for position in range(3):
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
    for _, placement, states in _load(store, journal, len(bags)):
        options = ReaderOptions(limits_placement=LimitsPlacement(placement))
        lost = any(state.flushed > state.synced and not store.exists(path)
                   for path, state in zip(bags, states, strict=True))  # fmt: skip
        if lost:
            continue
        missing = [_missing_limits(store, bags[each], states[each], options) for each in unclosed]
        # A killed writer leaves the limits of one bag incomplete: those that it was writing.
        if None not in missing and sum(map(bool, missing)) <= 1:
            if all(_is_whole(store, bags[each], states[each], options) for each in unclosed):
                return None
            return [state.flushed for state in states]
    return None


def check_certain(store: Store, journal: str, bags: Sequence[str], locked: str) -> None:
    """Raises CorruptError if bags whose writer ended early have records that are not certain.

    Args:
        store, journal, bags: As for `certain_counts`.
        locked: The file or folder that their writer locks.
    """
    if store.exists(journal) and not store.is_locked(locked):
        kept = certain_counts(store, journal, bags)
        if kept is not None:
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
    limits = UnsyncedDigest(synced)
    limits.add_limits(ends[synced:].tobytes())
    is_equal = len(ends) < flushed or limits.values()[1] == state.limits
    return flushed - len(ends) if is_equal else None


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
    if not state.flushed and not store.exists(path):
        return True  # Its limits are created first.
    try:
        bag = open_bag(store, path, options)
        ends = bag.stated(0, bag.count)[1]
    except (CorruptError, OSError, EOFError):
        return False
    return state.synced <= bag.count <= state.flushed and valid_count(ends, bag.file.size) == bag.count
