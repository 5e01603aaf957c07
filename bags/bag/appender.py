"""`BagAppender`: appends records and limits to a bag that is being written, and closes the bag.

Records are written before their limits, so that at any time each limit in the file has its record. `close`
copies the limits to the end of the records, syncs the bag, and removes `limits.NAME`. On object stores, the
whole bag becomes visible at `close`, and replaces an existing bag.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np

from bags.bag.checksums import checksums_name, digests_of, table_of
from bags.bag.journal import journal_name
from bags.bag.limits import ENTRY
from bags.bag.open import limits_name
from bags.bag.open_for_writing import UnclosedBag
from bags.bag.options import LimitsPlacement
from bags.bag.temporary_files import swap_name
from bags.storage.range_file import read_pieces

COPY_BYTES = 1 << 22

Chunk = tuple[list[Any] | BinaryIO, int]
"""Buffers, or an open file, and the number of bytes to write from them."""


class BagAppender(UnclosedBag):
    """Appends stored records (frames if the bag is compressed), then their limits, to the files of a bag."""

    def append(
        self, chunks: Iterable[Chunk], sizes: Any, pending: list[Any], digests: list[int] | None = None
    ) -> None:
        """Writes stored records and their limits.

        After an error, records whose limits were written are kept, because readers may have seen them.

        Args:
            chunks: The bytes of the records.
            sizes: Bytes of each record; None for one record with all bytes.
            pending: The buffer with these records. They are removed from it once they count as written.
            digests: The checksums to write; None to compute them from the records.
        """
        if self.journal is not None and self.journal.must_sync:
            self.journal.sync()
        table, sums = np.empty(0, '<i8'), b''
        try:
            pieces = self._write_pieces(chunks)
            if self.sums is not None:
                computed = digests_of(pieces, None if sizes is None else sizes.tolist())
                sums = table_of(computed if digests is None else digests)
                self.sums.write([sums])
            else:
                for _ in pieces:
                    pass
            if sizes is None:
                table = np.array([self.data.size], '<i8')
            else:
                table = np.cumsum(sizes, dtype='<i8')
                table += self.end
            count, end, limits = self.count + len(table), int(table[-1]), table.tobytes()
            if self.journal is not None:
                assert self.unsynced is not None
                self.journal.save(self.unsynced, count, end, limits, sums)
            self.limits.write([limits])
            # A single statement, so that Ctrl-C cannot interrupt it.
            self.count, self.end, pending[:] = count, end, ()
        except BaseException:
            table = table[: self.limits.stored() // ENTRY - self.count]
            if len(table):
                self.count, self.end, pending[: len(table)] = self.count + len(table), int(table[-1]), ()
            if self.journal is not None:
                self.journal.must_sync = True
            self._roll_back()
            raise

    def _write_pieces(self, chunks: Iterable[Chunk]) -> Iterator[Any]:
        """Writes chunks. Yields each piece after it is written, if checksums need it."""
        for source, size in chunks:
            self.write_sentinel(self.data.size + size)
            if isinstance(source, list):
                pieces: Iterable[list[Any]] = [source]
            elif self.sums is None and self.unsynced is None:
                self.data.copy(source, size)
                continue
            else:
                pieces = ([piece] for piece in read_pieces(source, size))
            for buffers in pieces:
                self.data.write(buffers)
                if self.unsynced is not None:
                    for buffer in buffers:
                        self.unsynced.records.update(buffer)
                if self.sums is not None:
                    yield from buffers

    def _roll_back(self) -> None:
        """Drops the bytes of a failed write, except the sentinel."""
        self.data.size = self.end
        self.limits.size = self.count * ENTRY
        if self.sums is not None:
            self.sums.size = ENTRY * (self.count + 1)
        if self.data.size != self.end:
            # The bytes were already uploaded to an object store. They become a record without references.
            self.limits.write([np.array([self.data.size], '<i8').tobytes()])
            self.count, self.end = self.count + 1, self.data.size
            if self.sums is not None:
                self.sums.write([bytes(ENTRY)])

    def sync(self, limits: bool = True) -> None:
        """Syncs the appended records to disk, and, unless `limits` is False, their limits."""
        if self.data.closed:
            return
        if self.sums is not None:
            self.sums.sync()
        self.data.sync()
        if limits:
            self.limits.sync()

    def sync_flush(self) -> None:
        """Syncs the flushed records to disk."""
        if self.journal is None:
            self.sync()
        else:
            self.journal.sync_flush()

    def finish(self) -> None:
        """Appends the limits and syncs the bag. Until `close`, the bag counts as unclosed.

        May be called again after an error.
        """
        if self.data.closed:  # An earlier call has finished the bag.
            return
        self.data.size = self.end
        if self.data.size != self.end:
            raise OSError(errno.EIO, 'cannot be closed: its limits were partly uploaded', self.written)
        try:
            if not self.separate:
                self._append_limits()
            if self.sums is not None and self.store.is_remote:
                self.store.replace(checksums_name(self.path), self.sums.read(0, self.sums.size))
            elif self.sums is not None:
                self.sums.close()
            self.data.close()
        except BaseException:
            self.data.size = self.end
            raise

    def close(self) -> None:
        """Finishes the bag, and moves its files into place. May be called again after an error.

        Raises:
            OSError: Writing failed, or the files of the bag were removed or replaced. They are left alone.
        """
        if self.is_alone:  # A dataset compares its folder once for all bags.
            self.expect_in_place()
        self.finish()
        if self.separate:
            self.limits.close()
        self.sync_folder()
        self._move_into_place()
        if not self.separate:
            self.limits.discard()
        if self.is_alone and self.journal is not None:
            self.sync_folder()  # The bag must be closed on disk before the journal is removed.
            self.journal.remove()
        self.sync_folder()
        self.release_lock()

    def _append_limits(self) -> None:
        starts, size = self.placement is LimitsPlacement.STARTS, self.count * ENTRY
        if not starts and not size:
            return
        # The last limit is written last, and its last byte replaces the sentinel. The file never becomes
        # shorter, as readers may have mapped it.
        self.write_sentinel(self.end + starts * ENTRY + size - 1)
        if starts:
            self.data.write([bytes(ENTRY)])
        last = max(0, size - ENTRY)
        for start in range(0, last, COPY_BYTES):
            self.data.write([self.limits.read(start, min(start + COPY_BYTES, last))])
        if size:
            self.data.write([self.limits.read(last, size)])

    def _move_into_place(self) -> None:
        """Moves the files of a bag that replaces another bag to their final paths."""
        store, limits = self.store, limits_name(self.path)
        if self.written == self.path or store.is_remote:
            return
        sums = checksums_name(self.path)
        has_sums = self.count > 0 and (self.sums is not None or store.exists(sums))
        if self.separate or store.exists(limits) or has_sums:
            # From here on, `remove_leftovers` completes the replacement. Between the renames, the records
            # have no limits and checksums, rather than the wrong ones of the other bag.
            if not self.separate:
                self.limits.sync()
            swap = swap_name(self.written)
            store.rename(self.limits.path, swap)
            self.limits.path = swap
            self.sync_folder()
            store.remove(limits)
        store.remove(sums)
        store.remove(journal_name(self.path))
        self.sync_folder()
        store.rename(self.written, self.path)
        self.sync_folder()
        if self.sums is not None:
            store.rename(self.sums.path, sums)
        if self.separate:
            store.rename(swap_name(self.written), limits)
        self.sync_folder()

    def discard(self) -> None:
        """Stops writing, and removes the written files."""
        self.data.discard()
        self.limits.discard()
        if self.sums is not None:
            self.sums.discard()
        if self.is_alone and self.journal is not None:
            self.journal.remove()
        self.release_lock()
