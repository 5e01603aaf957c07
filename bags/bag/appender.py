"""The end of a bag that is being written: appends records and limits, and closes the bag.

Records are written before their limits, so that at any moment every limit in the file has its record. `close`
copies the limits to the end of the records, syncs the bag, and removes `limits.NAME`. On object stores the
whole bag appears at `close`, in place of the one that it replaces or appends to.
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
from bags.bag.options import LimitsPlacement
from bags.bag.temporary_files import swap_name
from bags.bag.unclosed import UnclosedBag
from bags.storage.range_file import read_pieces

COPY_BYTES = 1 << 22

Chunk = tuple[list[Any] | BinaryIO, int]
"""Buffers, or an open file, and the number of bytes to write from them."""


class BagAppender(UnclosedBag):
    """Appends stored records (frames, if the bag is compressed) to the files of a bag, then their limits."""

    def append(
        self, chunks: Iterable[Chunk], sizes: Any, pending: list[Any], digests: list[int] | None = None
    ) -> None:
        """Writes stored records and their limits.

        After an error, records whose limits were written stay, because readers may have seen them.

        Args:
            chunks: The bytes of the records.
            sizes: Bytes of each record; None for one record of all bytes.
            pending: The buffer of these records. They are removed from it when they count as written.
            digests: The checksums to write, if they are not those of the records.
        """
        if self.journal is not None and self.journal.must_sync:
            self.journal.sync()
        table, sums = np.empty(0, '<i8'), b''
        try:
            pieces = self._write_pieces(chunks)
            if self.sums is not None:
                found = digests_of(pieces, None if sizes is None else sizes.tolist())
                sums = table_of(found if digests is None else digests)
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
                self.journal.save(self, count, end, limits, sums)
            self.limits.write([limits])
            # One statement, which Ctrl-C cannot interrupt.
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
        """Writes chunks; yields each piece after it is written, unless no digest needs it."""
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
        """Drops the bytes of a failed write. The sentinel stays."""
        self.data.size = self.end
        self.limits.size = self.count * ENTRY
        if self.sums is not None:
            self.sums.size = ENTRY * (self.count + 1)
        if self.data.size != self.end:
            # The bytes are already uploaded to an object store. They become a record that nothing refers to.
            self.limits.write([np.array([self.data.size], '<i8').tobytes()])
            self.count, self.end = self.count + 1, self.data.size
            if self.sums is not None:
                self.sums.write([bytes(ENTRY)])

    def sync(self, limits: bool = True) -> None:
        """Writes the records that were appended to the disk, and their limits unless `limits` is False."""
        if self.data.closed:
            return
        if self.sums is not None:
            self.sums.sync()
        self.data.sync()
        if limits:
            self.limits.sync()

    def sync_flush(self) -> None:
        """Writes what was flushed to the disk."""
        if self.journal is None:
            self.sync()
        else:
            self.journal.sync_flush()

    def finish(self) -> None:
        """Appends the limits and syncs the bag. Until `close`, it still counts as open.

        Can be called again on error.
        """
        if self.data.closed:  # By an earlier call.
            return
        self.data.size = self.end
        if self.data.size != self.end:
            raise OSError(errno.EIO, 'cannot be closed: its limits were uploaded in part', self.written)
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
        """Finishes the bag, and moves its files into place. Can be called again on error."""
        self.finish()
        if self.separate:
            self.limits.close()
        self.sync_folder()
        self._move_into_place()
        if not self.separate:
            self.limits.discard()
        if self.is_alone and self.journal is not None:
            self.sync_folder()  # Without the journal, the bag has to be closed.
            self.journal.remove()
        self.sync_folder()
        self.release_lock()

    def _append_limits(self) -> None:
        starts, size = self.placement is LimitsPlacement.STARTS, self.count * ENTRY
        if not starts and not size:
            return
        # The last limit is written last, and its last byte replaces the sentinel: the file never gets
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
        """Moves the files of a bag that replaces another one to their paths."""
        store, limits = self.store, limits_name(self.path)
        if self.written == self.path or store.is_remote:
            return
        sums = checksums_name(self.path)
        has_sums = self.count > 0 and (self.sums is not None or store.exists(sums))
        if self.separate or store.exists(limits) or has_sums:
            # From here on, `remove_leftovers` completes the replacement. Between the renames the records have
            # no limits and no checksums rather than those of the other bag.
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
        """Removes the files that were written."""
        self.data.discard()
        self.limits.discard()
        if self.sums is not None:
            self.sums.discard()
        if self.is_alone and self.journal is not None:
            self.journal.remove()
        self.release_lock()
