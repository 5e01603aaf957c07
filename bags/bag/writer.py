"""Writing a bag, so that a reader sees all of what was flushed and a killed process loses none of it."""

from __future__ import annotations

import os
import sys
from typing import Any, BinaryIO, Self

import numpy as np

from bags.bag.appender import BagAppender
from bags.bag.limits import ENTRY
from bags.bag.options import CompressionZstd, LimitsPlacement, WriterOptions, merge
from bags.bag.records import as_record
from bags.bag.zstd import Zstd, codec_for
from bags.storage import store_for

__all__ = ['Writer']

SMALL = 1 << 12  # Records that are smaller in the mean are joined to one write.
JOINED = 1 << 15  # Likewise in runs: 50,000 buffers of 4 KB take the system twice as long as one.
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
        self.buffered = 0
        """Bytes that wait in memory."""
        self._closed = True  # Until it is open.
        self._options = merge(WriterOptions, options, keywords)
        self._buffer_size = self._options.buffer_size
        if self._options.limits_placement is LimitsPlacement.IDX:
            raise ValueError('limits_placement: expected tail, separate or starts for writing, got idx')
        store, path = store_for(filename, self._options.filesystem, self._options.storage_options)
        self._codec: Zstd | None = codec_for(path, self._options.compression, self._options.max_record_size)
        self._most = self._options.max_record_size if self._codec is not None else sys.maxsize
        self._bag = BagAppender(store, path, self._options.limits_placement, mode, at_most)
        self._closed = False

    # What it is.

    def __len__(self) -> int:
        return self._bag.count + len(self._pending)

    def __bool__(self) -> bool:
        return True

    @property
    def size(self) -> int:
        """Bytes of the bag so far, with its limits. What waits in memory counts as it is, uncompressed."""
        return self._bag.end + self._bag.count * ENTRY + self.buffered

    @property
    def path(self) -> str:
        return self._bag.path

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
        self.buffered += size + 8
        if self.buffered >= self._buffer_size:
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
                self._bag.copy(file, size)
            else:
                self._compress(self._codec, file, size)
            self._bag.commit(None, self._pending)
        except BaseException:
            self._bag.rewind()
            raise

    def write_run(self, data: Any, sizes: Any, *, held: bool = False) -> None:
        """Appends many records whose bytes lie one after the other; flushes what waited before them.

        Args:
            data: The records, in one buffer, or a list of buffers.
            sizes: Bytes of each record, shape (n,).
            held: The data is what a bag of this kind holds: frames, if the records are compressed. It goes
                in as it is, unchecked.

        Raises:
            ValueError: Sizes that are not those of the data, or a record too large to be compressed.
            OSError: The disk is full, say; the bag is as before.
        """
        parts = data if isinstance(data, list) else [data]
        views = [part if type(part) is bytes else as_bytes(part) for part in parts]
        sizes = np.asarray(sizes, np.int64)
        total, found = int(sizes.sum()), sum(map(len, views))
        if total != found or (len(sizes) and int(sizes.min()) < 0):
            raise ValueError(f'sizes: expected those of {found} bytes, got {len(sizes)} of {total} bytes')
        if self._codec is not None and not held:
            if len(sizes) and (most := int(sizes.max())) > self._most:
                raise ValueError(f'a record of {most} bytes is not compressed: more than {self._most} bytes')
            whole, start = views[0] if len(views) == 1 else memoryview(b''.join(views)), 0
            for end in np.cumsum(sizes).tolist():
                self.write(whole[start:end])
                start = end
            return
        self.flush()
        if not len(sizes):
            return
        try:
            if len(views) > 1 and total < JOINED * len(views):
                views = [memoryview(b''.join(views))]
            if total <= RUN:
                self._bag.put(views, total)
            else:
                for view in views:
                    for start in range(0, len(view), RUN):
                        part = view[start : start + RUN]
                        self._bag.put([part], len(part))
            self._bag.commit(sizes, self._pending)
        except BaseException:
            self._bag.rewind()
            raise

    def copy_run(self, file: BinaryIO, sizes: Any) -> None:
        """As `write_run` of what the bag holds, from where an open file is, in the kernel where it can be.

        Raises:
            OSError, EOFError: Reading or writing failed; the bag is as before.
        """
        self.flush()
        if not len(sizes):
            return
        try:
            self._bag.copy(file, int(np.sum(sizes)))
            self._bag.commit(sizes, self._pending)
        except BaseException:
            self._bag.rewind()
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
            part = stream.compress(piece)
            self._bag.put([part], len(part))
        if size:
            part = stream.flush()
            self._bag.put([part], len(part))

    def compress_with(self, compression: CompressionZstd) -> None:
        """Compresses in another way from here on, what still waits too, in a bag that is compressed."""
        assert self._codec is not None
        self._codec = Zstd(compression, self._options.max_record_size)

    def write_many(self, records: list[bytes]) -> None:
        """Appends records, behind those that are buffered, and makes them all readable.

        Args:
            records: The records. The list is emptied in the same step in which they join the bag.

        Raises:
            OSError: E.g. the disk is full; the bag and the list are as before.
        """
        if self._closed:
            self._refuse()
        if self._pending and records is not self._pending:
            self.flush()
        if not records:
            return
        frames = records if self._codec is None else self._codec.encode_many(records)
        sizes = np.fromiter(map(len, frames), np.int64, len(frames))
        total = int(sizes.sum())
        buffers = [b''.join(frames)] if total < SMALL * len(frames) else frames
        try:
            self._bag.put(buffers, total)
            self._bag.commit(sizes, records)
        except BaseException:
            self._bag.rewind()
            raise

    def flush(self) -> None:
        """Makes all records readable, by any process, and safe from the end of this one."""
        self.write_many(self._pending)
        self.buffered = 0

    def forget(self, count: int) -> None:
        """Drops the records after the first `count`, as far as they still wait in memory."""
        keep = max(0, count - self._bag.count)
        self.buffered -= sum(len(record) + ENTRY for record in self._pending[keep:])
        del self._pending[keep:]

    def close(self) -> None:
        """Flushes, puts the limits in their place, and ends the file.

        Raises:
            OSError: The disk is full, say. What was flushed is safe; `close` may be tried again.
        """
        if self._closed:
            return
        self.flush()
        self._bag.close()
        self._end_writing()

    def _end_writing(self) -> None:
        self._closed = True
        self._pending = _Closed(self)

    def _refuse(self) -> None:
        raise ValueError(f'{self!r} is closed')

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None and self._bag.replaces:
            # A half-made bag does not replace a whole one.
            self._bag.discard()
            self._end_writing()
            return
        try:
            self.close()
        except OSError:
            if kind is None:
                raise  # Else the first error tells more; what was flushed waits for 'append'.


def as_bytes(data: Any) -> memoryview:
    view = memoryview(data)
    return view.cast('B') if view.nbytes else memoryview(b'')


class _Closed(list[bytes]):
    """What waits in a closed writer: nothing, and nothing more."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def append(self, record: bytes) -> None:
        raise ValueError(f'{self.writer!r} is closed')
