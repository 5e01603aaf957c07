"""The file `unfinished` in a folder that is being written, and what it tells about the records beside it.

A writer creates the mark before the first datapoint and removes it at `close`. It exists while the dataset is
being written, and remains if the writer is killed or its `with` block ends with an exception. Readers of bags
and other libraries open files by name and ignore it.

A sharded dataset has a mark beside its shards from before the first new shard until its writer is closed, and
another one in the shard that is being written. Each of several parallel writers has its own.

After a power cut, any part of what was not synced may be missing, or be zeros. A mark that is written with a
durability therefore says which records are certain. After its text follow, at offset 128, three entries:

    base      replaced with the mark, and then on disk: the records of each bag that are on disk
    flush 1   and flush 2, in turns: the records at the last two flushes, and digests of those after the base

After a kill the last flush matches the files, and nothing is lost. After a power cut the files may match none
of the two flushes: then the records of the base are kept.

An entry has a number, which increases; for refs and each field in order the records on disk, the records
flushed, and the digest (`UnsyncedDigest`); and the XXH3-64 of all that. Each is a little-endian u64.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np

from bags.bag.appender import BagAppender
from bags.bag.checksums import digest_function
from bags.bag.limits import ENTRY, valid_count
from bags.bag.open import limits_name, open_bag
from bags.bag.options import ReaderOptions
from bags.bag.unsynced import UnsyncedDigest, digest_of
from bags.errors import CorruptError
from bags.indexing import Int64s
from bags.storage import Durability, Output, Store

__all__ = ['MARK', 'TEXT', 'Mark', 'certain_counts', 'is_mark', 'is_marked', 'mark_name']

MARK = 'unfinished'
TEXT = b'This dataset is being written, or its writer ended early: resume=True continues it.\n'
ENTRIES_OFFSET = 128
MAX_UNSYNCED_BYTES = 1 << 30
"""Bytes of a folder after which it is synced: the most that `resume` may have to read to compare digests."""


def mark_name(shard_start: int, shard_step: int) -> str:
    """Returns the name of the mark beside the shards of a writer."""
    return MARK if shard_step == 1 else f'{MARK}-{shard_start}-{shard_step}'


def is_mark(name: str) -> bool:
    """Returns whether a file, by its name, is the mark of a folder or of a sharded writer."""
    return name == MARK or name.startswith(f'{MARK}-')


def is_marked(store: Store, directory: str) -> bool:
    """Returns whether a sharded dataset has a mark beside its shards."""
    if store.can_list:
        return any(map(is_mark, store.names(directory)))
    return store.exists(store.join(directory, MARK))


class BagState(NamedTuple):
    """A bag in an entry."""

    synced: int
    """Number of records that are on disk."""
    flushed: int
    """Number of records that are flushed."""
    digest: int
    """The digest of the records after those on disk."""


class Mark:
    """The mark of a folder that is being written. Without durability it is only a text.

    Args:
        store, folder: The folder.
    """

    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._path = store.join(folder, MARK)
        self._file: Output | None = None
        self._number = 0
        self._bags: Sequence[BagAppender] = ()

    def create(self, counts: Sequence[int]) -> None:
        """Writes the mark, or writes it anew.

        Args:
            counts: Number of records of refs and each field that are on disk.
        """
        if not self._store.durability:
            self._store.replace(self._path, TEXT)
            return
        self._number += 1
        base = [BagState(count, count, UnsyncedDigest(count).value()) for count in counts]
        entry = _dump(self._number, base)
        self._store.replace(self._path, TEXT.ljust(ENTRIES_OFFSET, b'\n') + entry + bytes(2 * len(entry)))
        self._file = self._store.resume(self._path, 0)
        for bag, count in zip(self._bags, counts, strict=False):
            bag.unsynced = UnsyncedDigest(count)

    def track(self, bags: Sequence[BagAppender], counts: Sequence[int]) -> None:
        """Begins to save an entry at each flush.

        Args:
            bags: Refs and each field, open.
            counts: As given to `create`.
        """
        if self._file is None:
            return
        self._bags = bags
        for bag, count in zip(bags, counts, strict=True):
            bag.unsynced = UnsyncedDigest(count)
            bag.unsynced.is_known = count == bag.count

    def flush(self, flush_refs: Callable[[], None]) -> None:
        """Flushes the refs, after all other records; saves an entry before they can be read."""
        if self._file is None:
            flush_refs()
            return
        digests = [bag.unsynced for bag in self._bags if bag.unsynced is not None]
        size = sum(digest.size for digest in digests)
        if size >= MAX_UNSYNCED_BYTES or not all(digest.is_known for digest in digests):
            for bag in self._bags:
                bag.sync()
            self._store.sync_folder(self._folder)
            self.create([bag.count for bag in self._bags])
        refs = self._bags[0]
        refs.before_limits = self._save  # Only now: a cycle would keep the files open.
        try:
            flush_refs()
        finally:
            refs.before_limits = None
        if self._store.durability is Durability.FLUSH:
            refs.sync()
            self._file.sync()
            self._store.sync_folder(self._folder)

    def _save(self, datapoints: int) -> None:
        """Writes an entry, before the refs that it counts can be read."""
        if self._store.durability is Durability.FLUSH:
            for bag in self._bags:
                bag.sync(limits=bag is not self._bags[0])
        self._number += 1
        counts = [datapoints, *(bag.count for bag in self._bags[1:])]
        states = list(map(_state_of, self._bags, counts))
        entry = _dump(self._number, states)
        assert self._file is not None
        self._file.size = ENTRIES_OFFSET + (1 + self._number % 2) * len(entry)
        self._file.write([entry])

    def remove(self) -> None:
        self._file = None  # Its descriptor closes.
        self._store.remove(self._path)


def _state_of(bag: BagAppender, count: int) -> BagState:
    assert bag.unsynced is not None
    return BagState(bag.unsynced.synced, count, bag.unsynced.value())


def _dump(number: int, states: Sequence[BagState]) -> bytes:
    data = struct.pack(f'<{1 + 3 * len(states)}Q', number, *(value for state in states for value in state))
    return data + struct.pack('<Q', digest_function()(data))


def _load(data: bytes, bags: int) -> list[list[BagState]]:
    """Returns the valid entries of a mark, the last one first. Without a base there are none."""
    size = ENTRY * (2 + 3 * bags)
    found = []
    for position in range(3):
        start = ENTRIES_OFFSET + position * size
        entry = data[start : start + size]
        numbers = struct.unpack(f'<{2 + 3 * bags}Q', entry) if len(entry) == size else ()
        if numbers and numbers[-1] == digest_function()(entry[:-ENTRY]):
            states = [BagState(*numbers[first : first + 3]) for first in range(1, len(numbers) - 1, 3)]
            found.append((numbers[0], states))
        elif not position:
            return []
    return [states for _, states in sorted(found, reverse=True)]


def certain_counts(
    store: Store, folder: str, bags: Sequence[str], names: Collection[str], row_bytes: int
) -> dict[str, int] | None:
    """Returns the number of records of each bag that are certain, after a power cut.

    Args:
        store, folder: A local folder whose writer ended early.
        bags: The names of the bags: refs, then fields.
        names: The files in the folder.
        row_bytes: Bytes of a refs record.

    Returns:
        The records to keep, by bag; None if the bags are as their writer left them, or if that is unknown.
    """
    unclosed = [name for name in bags if f'limits.{name}' in names]
    if not unclosed or MARK not in names:
        return None  # A bag is closed after all bags were synced.
    for states in _load(store.read(store.join(folder, MARK)), len(bags)):
        kept = dict(zip(bags, states, strict=True))
        paths = {name: store.join(folder, name) for name in unclosed}
        if all(_matches(store, paths[name], kept[name], row_bytes * (name == bags[0])) for name in unclosed):
            if all(_is_whole(store, paths[name], kept[name], name == bags[0]) for name in unclosed):
                return None
            return {name: state.flushed for name, state in kept.items()}
    return None


def _matches(store: Store, path: str, state: BagState, row_bytes: int) -> bool:
    """Returns whether a bag has the records of an entry.

    The limits of refs are written after the entry, and some or all may be missing.
    """
    if state.flushed == state.synced:
        return True
    try:
        ends = _ends(store, path, state.flushed)
        if state.synced <= len(ends) < state.flushed and row_bytes:
            missing = np.arange(1, 1 + state.flushed - len(ends), dtype='<i8') * row_bytes
            ends = np.concatenate([ends, missing + (ends[-1] if len(ends) else 0)])
        if len(ends) < state.flushed or valid_count(ends, store.stat(path).size) < state.flushed:
            return False
        return digest_of(store, path, state.synced, ends) == state.digest
    except (CorruptError, OSError, EOFError):
        return False


def _ends(store: Store, path: str, count: int) -> Int64s:
    """Returns the first limits of a bag that is not closed; fewer if there are fewer."""
    data = store.read(limits_name(path))
    listed = min(count, len(data) // ENTRY)
    if listed:
        return np.frombuffer(data, '<i8', listed)
    bag = open_bag(store, path, ReaderOptions())  # Its writer had not copied the limits of a closed bag yet.
    return np.array(bag.unchecked_span(0, min(count, bag.count))[1], '<i8')


def _is_whole(store: Store, path: str, state: BagState, is_refs: bool) -> bool:
    """Returns whether a bag that matches an entry is open, and has nothing else or more whole records."""
    try:
        bag = open_bag(store, path, ReaderOptions())
        ends = bag.unchecked_span(0, bag.count)[1]
    except (CorruptError, OSError, EOFError):
        return False
    if is_refs and bag.count > state.flushed:
        return False
    return (is_refs or bag.count >= state.flushed) and valid_count(ends, bag.file.size) == bag.count
