"""Opens the files of a bag for writing: creates them, or continues a bag that was closed or left unclosed.

While a bag is being written, its limits are in `limits.NAME`. After a power cut, only synced data is certain.
A file is therefore synced before it replaces another one, and the folder is synced between two renames whose
order matters.

Files on object stores cannot grow: there, the limits stay in memory, and the whole bag is rewritten.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.checksums import checksums_name, digest_function, table_of
from bags.bag.journal import Journal, journal_name
from bags.bag.journal_recovery import certain_counts
from bags.bag.limits import ENTRY, read_entries
from bags.bag.open import limits_name, open_bag
from bags.bag.options import LimitsPlacement, ReaderOptions
from bags.bag.temporary_files import temporary_path
from bags.bag.unsynced_digest import UnsyncedDigest
from bags.errors import CorruptError
from bags.indexing import Int64s
from bags.storage import Lock, Output, Store
from bags.storage.held_folder import REPLACED
from bags.storage.memory_file import MemoryOutput

COPIED_BYTES = 1 << 22
"""Bytes that are copied at a time from a remote bag to the object that replaces it."""


class UnclosedBag:
    """The files of a bag that is being written: records, limits beside them, and checksums.

    Args:
        store, path: The bag.
        placement: The placement of the limits after `close`.
        mode, truncate_to, checksum: As in `bags.bag.Writer`.
        is_alone: Whether the bag does not belong to a dataset. A dataset has one journal for all its bags,
            and syncs its folder once for all of them.

    Raises:
        FileExistsError, BlockingIOError, CorruptError: As in `bags.bag.Writer`.
    """

    def __init__(
        self,
        store: Store,
        path: str,
        placement: LimitsPlacement,
        mode: str,
        truncate_to: int | None,
        checksum: bool = False,
        is_alone: bool = True,
    ) -> None:
        self.path = path
        """The path of the bag after `close`."""
        self.count = 0
        """Number of records whose limits are written."""
        self.end = 0
        """End of the last of these records."""
        self.replaces = mode == 'overwrite'
        """Whether `close` replaces another bag."""
        self.unsynced: UnsyncedDigest | None = None
        """The digest of the written data, set by the journal."""
        self.journal: Journal | None = None
        """The journal of the bag; or of its dataset, once all bags are open."""
        self.is_alone = is_alone
        if is_alone and mode != 'overwrite' and store.durability:
            self.journal = Journal(store, journal_name(path), placement)
        self.store = store
        self.written = path  # Differs from `path` in mode 'overwrite'.
        self.placement = placement
        self.separate = placement is LimitsPlacement.SEPARATE
        self._lock: Lock | None = None
        self.data: Output
        self.limits: Output
        if mode not in ('create', 'append', 'overwrite'):
            raise ValueError(f"mode: expected 'create', 'append' or 'overwrite', got {mode!r}")
        self._was_closed = store.is_remote
        """Whether the existing bag was closed."""
        self.sums: Output | None = None
        self._has_companion = False
        """Whether the checksum of the bag's companion was saved, and the bag was closed. In an unclosed bag,
        a power cut may have damaged it."""
        is_append = mode == 'append'
        exists = is_append and (store.is_remote or store.exists(path) or store.exists(limits_name(path)))
        if mode == 'create' or (is_append and not exists):
            self._create(checksum)
        elif store.is_remote:
            if mode == 'overwrite':
                store.remove(checksums_name(path))
            self._rewrite(checksum, 0 if mode == 'overwrite' else truncate_to)
        elif mode == 'append':
            self._append(checksum, truncate_to)
        else:
            self.written = temporary_path(self.store, path)
            self._create(checksum)
        if self.journal is not None:
            self.journal.track([self], [self.count])

    def _open_checksums(self, beside: str, table: bytes) -> None:
        # Creates a new file: readers that opened more records keep the old file.
        if self.store.is_remote:
            self.sums = MemoryOutput(beside)
            self.sums.write([table])
        else:
            self.store.replace(beside, table)
            self.sums = self.store.resume(beside, len(table))

    def set_companion(self, data: bytes) -> None:
        """Saves the checksum of the bag's companion, unless it was saved before."""
        entry = table_of([digest_function()(data)])
        if self.sums is not None and not self._has_companion and self.sums.read(0, ENTRY) != entry:
            record_entries = self.sums.read(ENTRY, self.sums.size)
            self.sums.size = 0
            self.sums.write([entry, record_entries])
            if self.journal is not None:
                self.journal.must_sync = True

    def _continue_checksums(self, checksum: bool) -> None:
        """Continues the checksums of a bag. With `checksum`, computes them if they are missing."""
        beside, size = checksums_name(self.path), ENTRY * (self.count + 1)
        exists = self.store.exists(beside)
        if exists and self.count:
            table = read_entries(self.store, beside, 0, self.count + 1)
            if len(table) < size:
                raise CorruptError(beside, None, f'expected the checksums of {self.count} records at least')
            is_saved = table[:ENTRY] != table_of([digest_function()(b'')])
            self._has_companion = is_saved and self._was_closed
            self._open_checksums(beside, table)
        elif exists or checksum:
            bag = self._open_bag() if self.count else None
            stored = (bag.read(np.array([index]), stored=True)[0] for index in range(self.count) if bag)
            self._open_checksums(beside, table_of(map(digest_function(), itertools.chain([b''], stored))))

    def _create(self, checksum: bool) -> None:
        # The limits are created first, because a bag without `limits.NAME` counts as closed. The bag is
        # created last, so that readers find its checksums.
        # The writer of a remote dataset owns the folder, and each bag is created on condition that it is new.
        if (self.is_alone or not self.store.is_remote) and self.store.exists(self.written):
            raise FileExistsError(errno.EEXIST, 'the bag already exists', self.written)
        beside = limits_name(self.written)
        if self.journal is not None:
            self.journal.create([0])
        in_memory = self.store.is_remote and not self.separate
        self.limits = MemoryOutput(beside) if in_memory else self.store.create(beside)
        self._lock = self.store.lock(beside)
        try:
            if checksum:
                self._open_checksums(checksums_name(self.written), table_of([digest_function()(b'')]))
            self.data = self.store.create(self.written)
        except BaseException:
            if self.sums is not None:
                self.sums.discard()
            self.limits.discard()
            self._lock.release()
            raise

    def _rewrite(self, checksum: bool, truncate_to: int | None) -> None:
        """Starts an object that replaces the existing one, and copies the records to keep."""
        ends = np.empty(0, '<i8')
        # Opened before the bag is read: `close` replaces the version that is read here, and no other.
        self.data = self.store.resume(self.path, 0)
        if truncate_to != 0:
            try:
                bag = self._open_bag()
            except FileNotFoundError:
                self._create(checksum)  # There is no bag to append to.
                return
            ends = self._ends(bag, truncate_to)
            self._continue_checksums(checksum)
            try:
                for start in range(0, self.end, COPIED_BYTES):
                    self.data.write([bag.file.read(start, min(start + COPIED_BYTES, self.end))])
            except BaseException:
                self.data.discard()
                raise
        elif checksum:
            self._open_checksums(checksums_name(self.path), table_of([digest_function()(b'')]))
        beside = limits_name(self.path)
        self.limits = self.store.resume(beside, 0) if self.separate else MemoryOutput(beside)
        self.limits.write([ends.tobytes()])

    def _append(self, checksum: bool, truncate_to: int | None) -> None:
        beside = limits_name(self.path)
        if not self.store.exists(beside):
            if self.separate:
                raise FileNotFoundError(errno.ENOENT, 'the bag has no separate limits', beside)
            # Checks that the bag is closed. With limits beside it, a damaged bag would count as unclosed.
            open_bag(self.store, self.path, ReaderOptions(limits_placement=self.placement))
            self._was_closed = True
            self.store.create(beside).close()
        self._lock = self.store.lock(beside)
        try:
            if not self.store.exists(self.path):
                self.data = self.store.create(self.path)
            self._resume(beside, checksum, truncate_to)
        except BaseException:
            self._lock.release()
            raise

    def _resume(self, beside: str, checksum: bool, truncate_to: int | None) -> None:
        """Continues at the end of a local bag, while holding the lock."""
        store = self.store
        before = None
        if self.is_alone:
            truncate_to, before = self._certain_count(beside, truncate_to)
        ends, is_replaced = self._ends_to_keep(beside, truncate_to)
        self.count, self.end = len(ends), int(ends[-1]) if len(ends) else 0
        if self.journal is not None:
            self.journal.create([self.count], before)
        elif self.is_alone:
            store.remove(journal_name(self.path))
        if is_replaced:
            # Readers may have mapped the records that are dropped here, or the limits of a closed bag, so
            # both files are replaced by copies. The limits are replaced first: the kept limits match the old
            # and the new records. One byte after them marks that the records are not replaced yet.
            self._replace_limits(beside, ends)
            store.sync_folder(os.path.dirname(beside))
            copy = temporary_path(store, self.path)
            store.clone(self.path, copy, self.end)
            self.data = store.resume(copy, self.end)
            self.write_sentinel(self.end)
            store.rename(copy, self.path)
            store.sync_folder(os.path.dirname(beside))
        else:
            if self._was_closed:  # The bag is empty. Without limits beside it, it counts as closed.
                store.sync_folder(os.path.dirname(beside))
            self.limits = store.resume(beside, self.count * ENTRY)
        # Bytes after the last record stay until `close` truncates the file. The sentinel follows them.
        size = store.stat(self.path).size
        self.data = store.resume(self.path, size)
        self.data.size = self.end
        self.write_sentinel(size)
        self._continue_checksums(checksum)

    def _certain_count(self, beside: str, truncate_to: int | None) -> tuple[int | None, list[int] | None]:
        """Returns the number of records to keep, excluding records that a power cut may have damaged.

        Also returns the number of records before truncation, if all of them are certain. On return, the kept
        records are on disk.
        """
        store, path = self.store, self.path
        counts = certain_counts(store, journal_name(path), [path])
        for file in (path, beside, checksums_name(path)):
            if store.exists(file):
                store.sync(file)
        store.sync_folder(os.path.dirname(path))
        if counts is not None:
            return min(counts[0], counts[0] if truncate_to is None else truncate_to), None
        before = None
        if truncate_to is not None:
            with contextlib.suppress(CorruptError):  # The dropped records may be damaged.
                before = [self._open_bag().count]
        return truncate_to, before

    def _ends_to_keep(self, beside: str, truncate_to: int | None) -> tuple[Int64s, bool]:
        """Returns the ends of the records to keep, and whether the files must be replaced by copies."""
        if truncate_to is not None:
            listed = read_entries(self.store, beside, 0, truncate_to)
            if len(listed) == truncate_to * ENTRY:
                # Also valid after a power cut that lost later bytes, when the bag may not look unclosed.
                return np.frombuffer(listed, '<i8'), True
        bag = self._open_bag()
        count = bag.count if truncate_to is None else min(truncate_to, bag.count)
        ends = np.array(bag.locate(range(count))[0].stops, '<i8')
        if bag.limits is bag.file:
            return ends, True
        return ends, len(ends) < bag.count or bag.limits.size % ENTRY > 0

    def _replace_limits(self, beside: str, ends: Int64s) -> None:
        """Replaces the file of limits, and locks the new file."""
        copy = temporary_path(self.store, beside)
        self.limits = self.store.create(copy)
        try:
            self.limits.write([ends.tobytes(), b'\0'])
            self.limits.sync()
            lock, self._lock = self._lock, self.store.lock(copy)
            self.store.rename(copy, beside)
        except BaseException:
            self.limits.discard()
            raise
        self.limits.path, self.limits.size = beside, self.count * ENTRY
        if lock is not None:
            lock.release()

    def _open_bag(self) -> BagFile:
        bag = open_bag(self.store, self.path, ReaderOptions(limits_placement=self.placement))
        if self.separate and bag.file.size and not bag.count:
            # Otherwise limits at the end of the bag would not be detected.
            other = open_bag(self.store, self.path, ReaderOptions())
            if other.limits is other.file:
                raise CorruptError(self.path, None, 'has limits at its end, expected separate ones')
        return bag

    def _ends(self, bag: BagFile, truncate_to: int | None) -> Int64s:
        """Returns the ends of the records of an object to keep; sets `count` and `end` to continue there."""
        ends = np.array(bag.locate(range(bag.count))[0].stops, '<i8')[:truncate_to]
        self.count, self.end = len(ends), int(ends[-1]) if len(ends) else 0
        return ends

    def write_sentinel(self, offset: int) -> None:
        """Writes the byte FF at `offset`, the end of the next write: an unclosed bag always ends in FF.

        A reader interprets the end of a file as limits if the last 8 bytes, as a number, can be the end of
        the records. FF makes that number too large. Records are therefore never interpreted as limits,
        whatever they contain, wherever writing is interrupted, and however many limits were already appended.
        """
        if not self.store.is_remote and not self.separate:
            size = self.data.size
            self.data.size = offset
            try:
                self.data.write([b'\xff'])
            finally:
                self.data.size = size

    def expect_in_place(self) -> None:
        """Raises OSError if the files of the bag, or its folder, were removed or replaced.

        Another writer may have begun the bag again: its files have the names of the files of this one.
        """
        self.store.expect_held()
        for file in (self.data, self.limits):
            if not file.is_in_place():
                raise OSError(errno.ESTALE, f'the file {REPLACED}', file.path)

    def sync_folder(self) -> None:
        if self.is_alone:
            self.store.sync_folder(os.path.dirname(self.path))

    def release_lock(self) -> None:
        if self._lock is not None:
            self._lock.release()
        if self.is_alone:
            self.store.release()
