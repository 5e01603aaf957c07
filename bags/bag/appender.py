"""The two files of a bag that is being written: its records, and the limits beside them.

While a bag is written, its limits go to `limits.NAME`; `close` copies them behind the records and removes
that file. Records are written before their limits, so at any moment every limit there is has its record.

Where files cannot grow, on a storage of objects, the bag appears as a whole at `close`, in place of one that
it replaces or goes on with, and the limits wait in memory.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.limits import ENTRY
from bags.bag.open import limits_name, open_bag
from bags.bag.options import LimitsPlacement, ReaderOptions
from bags.errors import CorruptError
from bags.storage import Lock, Output, Store
from bags.storage.base import Buffer
from bags.storage.memory_file import MemoryOutput

__all__ = ['BagAppender']

PIECE = 1 << 22


class BagAppender:
    """A bag that grows by records as it holds them: the bytes first, then, by `commit`, their limits.

    Args:
        store, path: Where it is.
        placement: Where its limits will be.
        mode, at_most: As in `bags.bag.Writer`.

    Raises:
        FileExistsError, BlockingIOError, CorruptError: As `bags.bag.Writer`.
    """

    def __init__(
        self, store: Store, path: str, placement: LimitsPlacement, mode: str, at_most: int | None
    ) -> None:
        self.count = 0
        """Records whose limits are written,"""
        self.end = 0
        """and the end of the last of them."""
        self._store = store
        self._path = path
        self._placement = placement
        self._target: str | None = None
        self._lock: Lock | None = None
        self._replaces = mode == 'overwrite'
        if mode == 'create' or (mode == 'append' and not self._exists()):
            self._create(path)
        elif mode in ('append', 'overwrite') and store.is_remote:
            self._replace(0 if mode == 'overwrite' else at_most)
        elif mode == 'append':
            self._append(at_most)
        elif mode == 'overwrite':
            self._target = path
            self._create(self._beside())
        else:
            raise ValueError(f"mode: expected 'create', 'append' or 'overwrite', got {mode!r}")

    def _beside(self) -> str:
        # Not the process's id: in a container that is the same each time, and so what a killed one left.
        folder, name = os.path.split(self._path)
        return self._store.join(folder, f'.{name}.{secrets.token_hex(4)}.new')

    def _exists(self) -> bool:
        return self._store.exists(self._path) or self._store.exists(limits_name(self._path))

    def _create(self, path: str) -> None:
        # The limits come first: a bag without `limits.NAME` beside it counts as closed.
        if self._store.exists(path):
            raise FileExistsError(errno.EEXIST, 'a bag is there already', path)
        self._path = path
        beside = limits_name(path)
        self._limits: Output = MemoryOutput(beside) if self._is_whole else self._store.create(beside)
        self._lock = self._store.lock(self._limits.path)
        try:
            self._data: Output = self._store.create(path)
        except BaseException:
            self._limits.discard()
            self._lock.release()
            raise

    @property
    def _is_whole(self) -> bool:
        """Whether the bag is one file that appears as a whole."""
        return self._store.is_remote and self._placement is not LimitsPlacement.SEPARATE

    def _replace(self, at_most: int | None) -> None:
        """Starts a bag that takes the place of the one there, with the first records of that."""
        ends, beside = np.empty(0, '<i8'), limits_name(self._path)
        if at_most != 0:
            bag = open_bag(self._store, self._path, self._reader_options())
            self._check_separate(bag)
            ends = np.array(bag.span(0, bag.count)[1], '<i8')[:at_most]
        self.count, self.end = len(ends), int(ends[-1]) if len(ends) else 0
        self._data = self._store.resume(self._path, self.end)
        self._limits = MemoryOutput(beside) if self._is_whole else self._store.resume(beside, 0)
        self._limits.write([ends.tobytes()])

    def _append(self, at_most: int | None) -> None:
        beside = limits_name(self._path)
        if not self._store.exists(beside):
            if self._placement is LimitsPlacement.SEPARATE:
                raise FileNotFoundError(errno.ENOENT, 'the bag has no separate limits', beside)
            # It must be closed. With limits beside it, a damaged one would count as one being written.
            open_bag(self._store, self._path, self._reader_options())
            self._store.create(beside).close()
        self._lock = self._store.lock(beside)
        try:
            if not self._store.exists(self._path):
                self._data = self._store.create(self._path)
            self._resume(beside, at_most)
        except BaseException:
            self._lock.release()
            raise

    def _reader_options(self) -> ReaderOptions:
        return ReaderOptions(limits_placement=self._placement)

    def _check_separate(self, bag: BagFile) -> None:
        """Refuses a bag that seems to have no records, because its limits are elsewhere."""
        if self._placement is LimitsPlacement.SEPARATE and bag.file.size and not bag.count:
            other = open_bag(self._store, self._path, ReaderOptions())
            if other.limits is other.file:
                raise CorruptError(self._path, None, 'has limits at its end, expected separate ones')

    def _resume(self, beside: str, at_most: int | None) -> None:
        """Goes on where a bag ends, under the lock."""
        bag = open_bag(self._store, self._path, self._reader_options())
        self._check_separate(bag)
        ends = np.array(bag.span(0, bag.count)[1], '<i8')[:at_most]
        self.count, self.end = len(ends), int(ends[-1]) if len(ends) else 0
        if bag.limits is bag.file and bag.count:
            # Closed, and perhaps mapped somewhere: only a copy of it may grow.
            self._limits = self._store.resume(beside, 0)
            self._limits.write([ends.tobytes()])
            copy = self._beside()
            self._store.clone(self._path, copy, self.end)
            self._data = self._store.resume(copy, self.end)
            self._seal(self.end)
            self._store.rename(copy, self._path)
        else:
            self._limits = self._store.resume(beside, self.count * ENTRY)
        # What lies behind the end stays, as part of the seal, until `close` cuts it off.
        size = self._store.size(self._path)
        self._data = self._store.resume(self._path, size)
        self._data.size = self.end
        self._seal(size)

    @property
    def path(self) -> str:
        return self._target or self._path

    @property
    def replaces(self) -> bool:
        """Whether it takes the place of another bag when it is closed."""
        return self._replaces

    def put(self, buffers: Sequence[Buffer], size: int) -> None:
        """Writes bytes that do not count before `commit`, `size` of them."""
        self._seal(self._data.size + size)
        self._data.write(buffers)

    def copy(self, file: BinaryIO, size: int) -> None:
        """As `put`, of the next `size` bytes of an open file."""
        self._seal(self._data.size + size)
        self._data.copy(file, size)

    def commit(self, sizes: Any, pending: list[bytes]) -> None:
        """Writes the limits of records whose bytes are written, and empties the list that they come from.

        Args:
            sizes: Bytes of each as it is held; None for one record, of all that was put.
            pending: The list.
        """
        if sizes is None:
            table = np.array([self._data.size], '<i8')
        else:
            table = np.cumsum(sizes, dtype='<i8')
            table += self.end
        count, end = self.count + len(table), int(table[-1])
        self._limits.write([table.tobytes()])
        # All at once: there is no point between at which Ctrl-C could arrive.
        self.count, self.end, pending[:] = count, end, ()

    def rewind(self) -> None:
        """Takes back what a failed write left behind what counts. The seal stays."""
        self._data.size = self.end
        self._limits.size = self.count * ENTRY
        self._limits.cut()
        if self._data.size != self.end:
            # Sent to a storage that takes nothing back: it becomes a record, to which nothing refers.
            self._limits.write([np.array([self._data.size], '<i8').tobytes()])
            self.count, self.end = self.count + 1, self._data.size

    def _seal(self, offset: int) -> None:
        """Puts an FF where bytes will end, before they are written: until `close`, a bag's last byte is FF.

        A reader takes the end of a bag for limits if its last number can be the end of the records. FF
        makes that number too large: whatever records hold that have no limits yet, wherever their writing
        is cut short, and however much of the limits is in place.
        """
        if not self._store.is_remote and self._placement is not LimitsPlacement.SEPARATE:
            size = self._data.size
            self._data.size = offset
            try:
                self._data.write([b'\xff'])
            finally:
                self._data.size = size

    def close(self) -> None:
        """Puts the limits in their place, and ends the file. After an error it may be called again."""
        if not self._data.closed:  # As it is where `close` is tried again.
            self._data.size = self.end
            if self._data.size != self.end:
                raise OSError(errno.EIO, 'cannot be ended any more: its limits were sent in part', self._path)
            try:
                if self._placement is not LimitsPlacement.SEPARATE:
                    self._append_limits()
                self._data.close()
            except BaseException:
                self._data.size = self.end
                raise
        self._limits.close()
        self._finish()
        self._unlock()

    def _append_limits(self) -> None:
        starts, size = self._placement is LimitsPlacement.STARTS, self.count * ENTRY
        if not starts and not size:
            return
        # The seal becomes the last byte of the last limit, which replaces it in the end: so the file does
        # not become shorter, under readers that have just mapped it.
        self._seal(self.end + starts * ENTRY + size - 1)
        if starts:
            self._data.write([bytes(ENTRY)])
        last = max(0, size - ENTRY)
        for start in range(0, last, PIECE):
            self._data.write([self._limits.read(start, min(start + PIECE, last))])
        if size:
            self._data.write([self._limits.read(last, size)])

    def _finish(self) -> None:
        store, separate = self._store, self._placement is LimitsPlacement.SEPARATE
        if self._target is not None:
            if separate:
                # Between the two renames there are records without limits, never with wrong ones.
                store.remove(limits_name(self._target))
            store.rename(self._path, self._target)
            if separate:
                store.rename(self._limits.path, limits_name(self._target))
            else:
                store.remove(limits_name(self._target))
        if not separate and not store.is_remote:
            store.remove(self._limits.path)

    def discard(self) -> None:
        """Removes what there is."""
        self._data.discard()
        self._limits.discard()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
