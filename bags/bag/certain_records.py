"""Which records of bags whose writer ended early are certain, by their journal (`bags.bag.journal`).

After a kill, the files match the last entry of the journal, and all records are kept. After a power cut, the
files may match an earlier entry, or none: then the records that were on disk are kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bags.bag.checksums import digest_function
from bags.bag.journal import ENTRIES, ENTRIES_OFFSET, entry_size, journal_name
from bags.bag.limits import ENTRY, valid_count
from bags.bag.open import limits_name, open_bag
from bags.bag.options import LimitsPlacement, ReaderOptions
from bags.bag.unsynced import BagState, digest_of, unpack_numbers
from bags.errors import CorruptError
from bags.indexing import Int64s
from bags.storage import Store

STATE_NUMBERS = len(BagState._fields)


class Entry(NamedTuple):
    """An entry of a journal."""

    number: int
    placement: int
    states: list[BagState]

    @property
    def is_on_disk(self) -> bool:
        """Whether it has no records that may be lost: the base, and what bags had before they were cut."""
        return all(state.flushed == state.synced for state in self.states)


def _load(store: Store, path: str, bags: int) -> list[Entry]:
    """Returns the valid entries of a journal, the last one first. Without a base there are none."""
    try:
        data = store.read(path)
    except FileNotFoundError:
        return []
    size, found = entry_size(bags), list[Entry]()
    for position in range(ENTRIES):
        start = ENTRIES_OFFSET + position * size
        numbers = unpack_numbers(data[start : start + size], size // ENTRY - 1)
        if numbers is not None:
            firsts = range(2, len(numbers), STATE_NUMBERS)
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
    found = _load(store, journal, len(bags))
    on_disk = [entry.states for entry in found if entry.is_on_disk]
    entries = [entry for entry in found if not entry.is_on_disk] + found[-1:]
    for (_, placement, states), before in itertools.zip_longest(entries, entries[1:]):
        possible = on_disk if states is on_disk[-1] else [states]
        options = ReaderOptions(limits_placement=LimitsPlacement(placement))
        absent = [state for path, state in zip(bags, states, strict=True) if not store.exists(path)]
        if any(state.synced for state in absent):
            return None  # Not by a power cut: opening the bags reports the damage.
        if any(state.flushed for state in absent):
            continue
        missing = [_missing_limits(store, bags[each], states[each], options) for each in unclosed]
        if None in missing:
            continue
        is_whole = all(
            any(_is_whole(store, bags[each], those[each], options) for those in possible) for each in unclosed
        )
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
