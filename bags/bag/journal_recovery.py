"""Recovery with the journal (`bags.bag.journal`): which records of unclosed bags are certain to be intact.

After a kill, the files match the last entry of the journal, and all records are kept. After a power cut, the
files may match an earlier entry, or no entry: then only the records that were on disk are kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bags.bag.checksums import digest_function
from bags.bag.journal import ENTRIES, ENTRIES_OFFSET, entry_size, journal_name
from bags.bag.limits import ENTRY, read_entries, valid_count
from bags.bag.open import limits_name, open_bag
from bags.bag.options import LimitsPlacement, ReaderOptions
from bags.bag.unsynced_digest import BagState, digest_of, unpack_numbers
from bags.errors import CorruptError
from bags.indexing import Int64s
from bags.storage import Store

STATE_NUMBERS = len(BagState._fields)


class JournalEntry(NamedTuple):
    """An entry of a journal."""

    number: int
    placement: int
    states: list[BagState]

    @property
    def is_on_disk(self) -> bool:
        """Whether all its records are on disk: the base, and the state of bags before they were truncated."""
        return all(state.flushed == state.synced for state in self.states)


def _load(store: Store, path: str, bags: int) -> list[JournalEntry]:
    """Returns the valid entries of a journal, the latest first; none if the base is invalid."""
    try:
        data = store.read(path)
    except FileNotFoundError:
        return []
    size, entries = entry_size(bags), list[JournalEntry]()
    for position in range(ENTRIES):
        start = ENTRIES_OFFSET + position * size
        numbers = unpack_numbers(data[start : start + size], size // ENTRY - 1)
        if numbers is not None:
            firsts = range(2, len(numbers), STATE_NUMBERS)
            states = [BagState(*numbers[first : first + STATE_NUMBERS]) for first in firsts]
            entries.append(JournalEntry(numbers[0], numbers[1], states))
        elif not position:
            return []
    return sorted(entries, reverse=True)


def placement_in(store: Store, path: str) -> LimitsPlacement | None:
    """Returns the placement of the limits of a bag, from its journal; None without a valid journal."""
    entries = _load(store, journal_name(path), 1)
    return LimitsPlacement(entries[0].placement) if entries else None


def certain_counts(store: Store, journal: str, bags: Sequence[str]) -> list[int] | None:
    """Returns the number of records of each bag that are certain to be intact after a power cut.

    Args:
        store, journal: The journal of local bags whose writer ended early.
        bags: The paths of the bags.

    Returns:
        The number of records to keep; None if the bags are as their writer left them, or if that is unknown.
    """
    unclosed = [position for position, path in enumerate(bags) if store.exists(limits_name(path))]
    if not unclosed:
        return None  # Bags are closed only after all of them were synced.
    valid = _load(store, journal, len(bags))
    on_disk = [entry.states for entry in valid if entry.is_on_disk]
    entries = [entry for entry in valid if not entry.is_on_disk] + valid[-1:]
    for (_, placement, states), before in itertools.zip_longest(entries, entries[1:]):
        possible = on_disk if states is on_disk[-1] else [states]
        options = ReaderOptions(limits_placement=LimitsPlacement(placement))
        absent = [state for path, state in zip(bags, states, strict=True) if not store.exists(path)]
        if any(state.synced for state in absent):
            return None  # Not caused by a power cut. Opening the bags reports the damage.
        if any(state.flushed for state in absent):
            continue
        missing = [_missing_limits(store, bags[bag], states[bag], options) for bag in unclosed]
        if None in missing:
            continue
        is_whole = all(
            any(_is_whole(store, bags[bag], state[bag], options) for state in possible) for bag in unclosed
        )
        short = [bag for bag, count in zip(unclosed, missing, strict=True) if count]
        # A killed writer leaves the limits of at most one bag incomplete, which it wrote after this entry.
        is_killed = is_whole and len(short) == 1
        if not short or (is_killed and _are_limits(store, bags, short[0], states, before, options)):
            # A power cut may lose the directory entry of a bag without records.
            if is_whole and not (absent and states[0].flushed):
                return None
            return [state.flushed for state in states]
    return None


def check_certain(store: Store, journal: str, bags: Sequence[str], locked: str) -> None:
    """Raises CorruptError if unclosed bags have records that a power cut may have damaged.

    Args:
        store, journal, bags: As for `certain_counts`.
        locked: The file or folder that the writer of the bags locks.
    """
    while store.exists(journal) and not store.is_locked(locked):
        entries = _load(store, journal, len(bags))
        try:
            counts = certain_counts(store, journal, bags)
        except FileNotFoundError:
            continue  # A writer has resumed and closed the bags since.
        if counts is None:
            return
        # If the entries differ, or the lock is held, a writer has resumed the bags since.
        if _load(store, journal, len(bags)) == entries and not store.is_locked(locked):
            detail = f'a power cut has damaged unsynced records: `bags recover` keeps {counts[0]:,} records'
            raise CorruptError(bags[0], None, detail)


def _missing_limits(store: Store, path: str, state: BagState, options: ReaderOptions) -> int | None:
    """Returns how many limits a bag lacks for the records of an entry; None if its records differ."""
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
    before: JournalEntry | None,
    options: ReaderOptions,
) -> bool:
    """Returns whether the incomplete limits of a bag are real limits, and not zeros caused by a power cut.

    Zeros are the limits of empty records if they match the previous entry.
    """
    path, state = bags[position], states[position]
    ends = _ends(store, path, state.flushed, options)
    if ends[state.synced :].all():
        return True
    if before is None or _missing_limits(store, path, before.states[position], options) != 0:
        return False
    return bool(ends[before.states[position].flushed :].all())


def _ends(store: Store, path: str, count: int, options: ReaderOptions) -> Int64s:
    """Returns the first `count` limits of an unclosed bag, or fewer if it has fewer."""
    data = read_entries(store, limits_name(path), 0, count)
    listed = len(data) // ENTRY
    if listed:
        return np.frombuffer(data, '<i8', listed)
    bag = open_bag(store, path, options)  # The writer had not yet copied the limits of a closed bag.
    return np.array(bag.limits_of(0, min(count, bag.count))[1], '<i8')


def _is_whole(store: Store, path: str, state: BagState, options: ReaderOptions) -> bool:
    """Returns whether a bag that matches an entry can be opened, and has no additional records."""
    try:
        if not state.flushed and not store.exists(path):
            # Limits are created before the bag. They are empty, unless a power cut has lost the bag's name.
            return not store.stat(limits_name(path)).size
        bag = open_bag(store, path, options)
        if not state.synced <= bag.count <= state.flushed:
            return False
        ends = bag.limits_of(0, bag.count)[1]
    except (CorruptError, OSError, EOFError):
        return False
    return valid_count(ends, bag.file.size) == bag.count
