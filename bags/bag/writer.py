"""Writing a bag, so that a reader sees all of what was flushed and a killed process loses none of it.

While a bag is written, its limits go to `limits.NAME`; `close` copies them behind the records and removes
that file. Records are written before their limits, so at any moment every limit there is has its record.
"""

from __future__ import annotations

import os
import secrets
import sys
from typing import Any, BinaryIO, Self

import numpy as np

from bags.bag.compression import Zstd, codec_for
from bags.bag.files import Lock, Output, store_for
from bags.bag.limits import ENTRY
from bags.bag.opening import limits_name, open_bag
from bags.bag.options import LimitsPlacement, ReaderOptions, WriterOptions, merge
from bags.bag.records import as_record
from bags.errors import CorruptError

__all__ = ['Writer']

SMALL = 1 << 12  # Records that are smaller in the mean are joined to one write.
PIECE = 1 << 22
RUN = 1 << 26  # Bytes of a run that one system call is given: it takes less than 2 GiB.


class Writer:
    """Writes a bag. For one thread at a time.

    Args:
        filename: The bag; a name in `.bagz` has its records compressed.
        options: As `Writer.Options(…)`; copied.
        mode: 'create'; 'append' to a bag that is closed, or that was left by a writer that did not get
            to close it, or that does not exist; 'overwrite', with the old bag in place until `close`.
        at_most: In mode 'append', how many of the records that are there are kept.
        **keywords: Any option by its name, over those in `options`.

    Raises:
        FileExistsError: In mode 'create', something is there.
        BlockingIOError: In mode 'append', another writer is at work on it.
        CorruptError: In mode 'append', a bag that cannot be read.
    """

    Options = WriterOptions

    def __init__(
        self,
        filename: str | os.PathLike[str],
        options: WriterOptions | None = None,
        *,
        mode: str = 'create',
        at_most: int | None = None,
        **keywords: Any,
    ) -> None:
        self._pending: list[bytes] = []
        self._buffered = 0
        self._count = 0  # Records whose limits are written,
        self._end = 0  # and the end of the last of them.
        self._lock: Lock | None = None
        self._closed = True  # Until it is open.
        self._options = merge(WriterOptions, options, keywords)
        self._buffer_size = self._options.buffer_size
        self._at_most = at_most
        if self._options.limits_placement is LimitsPlacement.IDX:
            raise ValueError('limits_placement: expected tail, separate or starts for writing, got idx')
        self._store, self._path = store_for(filename, self._options.filesystem, self._options.storage_options)
        self._codec: Zstd | None = codec_for(
            self._path, self._options.compression, self._options.max_record_size
        )
        self._most = self._options.max_record_size if self._codec is not None else sys.maxsize
        self._target: str | None = None
        if mode == 'create' or (mode == 'append' and not self._exists()):
            self._create(self._path)
        elif mode == 'append':
            self._append()
        elif mode == 'overwrite':
            self._target = self._path
            self._create(self._beside())
        else:
            raise ValueError(f"mode: expected 'create', 'append' or 'overwrite', got {mode!r}")
        self._closed = False

    def _beside(self) -> str:
        # Not the process's id: in a container that is the same each time, and so what a killed one left.
        folder, name = os.path.split(self._path)
        return self._store.join(folder, f'.{name}.{secrets.token_hex(4)}.new')

    def _exists(self) -> bool:
        return self._store.exists(self._path) or self._store.exists(limits_name(self._path))

    def _create(self, path: str) -> None:
        # The limits come first: a bag without `limits.NAME` beside it counts as closed.
        if self._store.exists(path):
            raise FileExistsError(17, 'a bag is there already', path)
        self._path = path
        self._limits: Output = self._store.create(limits_name(path))
        self._lock = self._store.lock(self._limits.path)
        try:
            self._data: Output = self._store.create(path)
        except BaseException:
            self._limits.discard()
            self._lock.release()
            raise

    def _append(self) -> None:
        beside = limits_name(self._path)
        if not self._store.exists(beside):
            if self._options.limits_placement is LimitsPlacement.SEPARATE:
                raise FileNotFoundError(2, 'the bag has no separate limits', beside)
            # It must be closed. With limits beside it, a damaged one would count as one being written.
            open_bag(self._store, self._path, self._reader_options())
            self._store.create(beside).close()
        self._lock = self._store.lock(beside)
        try:
            if not self._store.exists(self._path):
                self._data = self._store.create(self._path)
            self._resume(beside)
        except BaseException:
            self._lock.release()
            raise

    def _reader_options(self) -> ReaderOptions:
        return ReaderOptions(limits_placement=self._options.limits_placement)

    def _resume(self, beside: str) -> None:
        """Goes on where a bag ends, under the lock."""
        bag = open_bag(self._store, self._path, self._reader_options())
        if self._options.limits_placement is LimitsPlacement.SEPARATE and bag.file.size and not bag.count:
            other = open_bag(self._store, self._path, ReaderOptions())
            if other.limits is other.file:
                raise CorruptError(self._path, None, 'has limits at its end, expected separate ones')
        ends = np.array(bag.span(0, bag.count)[1], '<i8')[: self._at_most]
        self._count, self._end = len(ends), int(ends[-1]) if len(ends) else 0
        if bag.limits is bag.file and bag.count:
            # Closed, and perhaps mapped somewhere: only a copy of it may grow.
            self._limits = self._store.resume(beside, 0)
            self._limits.write([ends.tobytes()])
            copy = self._beside()
            self._store.clone(self._path, copy, self._end)
            self._data = self._store.resume(copy, self._end)
            self._seal(self._end)
            self._store.rename(copy, self._path)
        else:
            self._limits = self._store.resume(beside, self._count * ENTRY)
        # What lies behind the end stays, as part of the seal, until `close` cuts it off.
        size = self._store.size(self._path)
        self._data = self._store.resume(self._path, size)
        self._data.size = self._end
        self._seal(size)

    # What it is.

    def __len__(self) -> int:
        return self._count + len(self._pending)

    def __bool__(self) -> bool:
        return True

    @property
    def size(self) -> int:
        """Bytes of the bag so far, with its limits. What waits in memory counts as it is, uncompressed."""
        return self._end + self._count * ENTRY + self._buffered

    @property
    def buffered(self) -> int:
        """Bytes that wait in memory."""
        return self._buffered

    @property
    def path(self) -> str:
        return self._target or self._path

    @property
    def options(self) -> WriterOptions:
        """A copy of the options in use."""
        return merge(WriterOptions, self._options, {})

    @property
    def closed(self) -> bool:
        return self._closed

    def __repr__(self) -> str:
        state = 'closed' if self._closed else 'open'
        return f'bags.bag.Writer({self.path!r}, {len(self)} records, {state})'

    # Writing.

    def write(self, record: Any) -> None:
        """Appends a record: bytes, str (as UTF-8) or any buffer. It may wait in memory until `flush`.

        Raises:
            TypeError: Something else.
            ValueError: A record too large to be compressed, or the writer is closed.
            OSError: The disk is full, say. The records that wait keep waiting; `flush` tries again.
        """
        if type(record) is not bytes:
            record = as_record(record)
        size = len(record)
        if size > self._most:
            raise ValueError(f'a record of {size} bytes is not compressed: more than {self._most} bytes')
        self._pending.append(record)
        self._buffered += size + 8
        if self._buffered >= self._buffer_size:
            self.flush()

    def write_file(self, file: BinaryIO) -> None:
        """Appends what is left of an open file as one record, a piece at a time.

        Raises:
            ValueError: Too large to be compressed.
            OSError, EOFError: Reading or writing failed; the bag is as before.
        """
        self.flush()
        start = file.tell()
        size = file.seek(0, os.SEEK_END) - start
        file.seek(start)
        try:
            if self._codec is None:
                self._seal(self._end + size)
                self._data.copy(file, size)
            else:
                self._compress(self._codec, file, size)
            self._commit([self._data.size])
        except BaseException:
            self._rewind()
            raise

    def write_run(self, data: Any, sizes: Any, *, held: bool = False) -> None:
        """Appends many records whose bytes lie one after the other; flushes what waited before them.

        Args:
            data: The records, in one buffer.
            sizes: Bytes of each, shape (n,).
            held: The data is what a bag of this kind holds: frames, if the records are compressed. It goes
                in as it is, unchecked.

        Raises:
            ValueError: Sizes that are not those of the data, or a record too large to be compressed.
            OSError: The disk is full, say; the bag is as before.
        """
        view = memoryview(data)
        view = view.cast('B') if view.nbytes else memoryview(b'')
        ends = np.cumsum(np.asarray(sizes, np.int64))
        total = int(ends[-1]) if len(ends) else 0
        if total != len(view) or (len(ends) and int(np.min(sizes)) < 0):
            raise ValueError(f'sizes: expected those of {len(view)} bytes, got {len(ends)} of {total} bytes')
        if self._codec is not None and not held:
            if len(ends) and (most := int(np.max(sizes))) > self._most:
                raise ValueError(f'a record of {most} bytes is not compressed: more than {self._most} bytes')
            start = 0
            for end in ends.tolist():
                self.write(view[start:end])
                start = end
            return
        self.flush()
        if not len(ends):
            return
        try:
            self._seal(self._end + total)
            for start in range(0, total, RUN):
                self._data.write([view[start : start + RUN]])
            self._commit(ends + self._end)
        except BaseException:
            self._rewind()
            raise

    def _compress(self, codec: Zstd, file: BinaryIO, size: int) -> None:
        if size > self._most:
            raise ValueError(f'a record of {size} bytes is not compressed: more than {self._most} bytes')
        stream = codec.compressor().compressobj(size)
        left = size
        while left:
            piece = file.read(min(PIECE, left))
            if not piece:
                raise EOFError(f'{getattr(file, "name", file)}: expected {left} more bytes, got none')
            left -= len(piece)
            self._write_part(stream.compress(piece))
        if size:
            self._write_part(stream.flush())

    def _write_part(self, part: bytes) -> None:
        self._seal(self._data.size + len(part))
        self._data.write([part])

    def flush(self) -> None:
        """Makes all records readable, by any process, and safe from the end of this one."""
        pending = self._pending
        if not pending:
            if self._closed:
                self._refuse()
            return
        frames = pending if self._codec is None else self._codec.encode_many(pending)
        sizes = np.fromiter(map(len, frames), np.int64, len(frames))
        ends = np.cumsum(sizes)
        buffers = [b''.join(frames)] if int(ends[-1]) < SMALL * len(frames) else frames
        ends += self._end
        try:
            self._seal(int(ends[-1]))
            self._data.write(buffers)
            self._commit(ends)
        except BaseException:
            self._rewind()
            raise

    def _commit(self, ends: Any) -> None:
        """Writes the limits of records whose bytes are written."""
        table = np.asarray(ends, '<i8')
        count, end = self._count + len(table), int(table[-1])
        self._limits.write([table.tobytes()])
        # All at once: there is no point between at which Ctrl-C could arrive.
        self._count, self._end, self._buffered, self._pending[:] = count, end, 0, ()

    def _rewind(self) -> None:
        """Takes back what a failed write left behind what counts. The seal stays."""
        self._data.size = self._end
        self._limits.size = self._count * ENTRY
        self._limits.cut()

    def _seal(self, offset: int) -> None:
        """Puts an FF where bytes will end, before they are written: until `close`, a bag's last byte is FF.

        A reader takes the end of a bag for limits if its last number can be the end of the records. FF
        makes that number too large: whatever records hold that have no limits yet, wherever their writing
        is cut short, and however much of the limits is in place.
        """
        if self._store.appendable and self._options.limits_placement is not LimitsPlacement.SEPARATE:
            size = self._data.size
            self._data.size = offset
            try:
                self._data.write([b'\xff'])
            finally:
                self._data.size = size

    def forget(self, count: int) -> None:
        """Drops the records after the first `count`, as far as they still wait in memory."""
        keep = max(0, count - self._count)
        self._buffered -= sum(len(record) + ENTRY for record in self._pending[keep:])
        del self._pending[keep:]

    def close(self) -> None:
        """Flushes, puts the limits in their place, and ends the file.

        Raises:
            OSError: The disk is full, say. What was flushed is safe; `close` may be tried again.
        """
        if self._closed:
            return
        self.flush()
        if not self._data.closed:  # As it is where `close` is tried again.
            self._data.size = self._end
            try:
                if self._options.limits_placement is not LimitsPlacement.SEPARATE:
                    self._append_limits()
                self._data.close()
            except BaseException:
                self._data.size = self._end
                raise
        self._limits.close()
        self._finish()

    def _append_limits(self) -> None:
        starts, size = self._options.limits_placement is LimitsPlacement.STARTS, self._count * ENTRY
        if not starts and not size:
            return
        # The seal becomes the last byte of the last limit, which replaces it in the end: so the file does
        # not become shorter, under readers that have just mapped it.
        self._seal(self._end + starts * ENTRY + size - 1)
        if starts:
            self._data.write([bytes(ENTRY)])
        last = max(0, size - ENTRY)
        for start in range(0, last, PIECE):
            self._data.write([self._limits.read(start, min(start + PIECE, last))])
        if size:
            self._data.write([self._limits.read(last, size)])

    def _finish(self) -> None:
        store, separate = self._store, self._options.limits_placement is LimitsPlacement.SEPARATE
        if self._target is not None:
            if separate:
                # Between the two renames there are records without limits, never with wrong ones.
                store.remove(limits_name(self._target))
            store.rename(self._path, self._target)
            if separate:
                store.rename(self._limits.path, limits_name(self._target))
            else:
                store.remove(limits_name(self._target))
        if not separate:
            store.remove(self._limits.path)
        self._end_writing()

    def _end_writing(self) -> None:
        self._closed = True
        self._pending = _Closed(self)
        if self._lock is not None:
            self._lock.release()

    def _refuse(self) -> None:
        raise ValueError(f'{self!r} is closed')

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None and self._target is not None:
            # A half-made bag does not replace a whole one.
            self._data.discard()
            self._limits.discard()
            self._end_writing()
            return
        try:
            self.close()
        except OSError:
            if kind is None:
                raise  # Else the first error tells more; what was flushed waits for 'append'.


class _Closed(list[bytes]):
    """What waits in a closed writer: nothing, and nothing more."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def append(self, record: bytes) -> None:
        raise ValueError(f'{self.writer!r} is closed')
