"""`Writer`: writes a bag. Flushed records are visible to readers, and survive if the process is killed."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Literal, NoReturn, Self, Unpack

import numpy as np

from bags.bag.appender import BagAppender, Chunk
from bags.bag.compression import Zstd, codec_for
from bags.bag.limits import ENTRY
from bags.bag.options import LimitsPlacement, WriterKeywords, WriterOptions
from bags.bag.temporary_files import remove_leftovers
from bags.storage import Durability, Store, store_for
from bags.storage.range_file import read_pieces
from bags.validation import as_record, merge

JOIN_BYTES = 1 << 12
"""Mean size of buffers, in bytes, below which joining them is faster than a vectored write."""
ADVICE = (
    'only the process that opened it can write to it: open a bag in each process, such as '
    "'name-00000-of-00004.bag', and read them together as 'name@4.bag'"
)
_open_writers: weakref.WeakSet[Writer] = weakref.WeakSet()
"""Writers of bags that do not belong to a dataset."""


class Writer:
    """Writes a bag. Not thread-safe.

    Args:
        filename: Path of the bag. Records are compressed if the name ends with `.bagz`.
        options: Options as `Writer.Options(…)`; copied.
        mode: 'create'; 'append' to a bag that is closed, was left unclosed by a killed writer, or does not
            exist; 'overwrite', which keeps the old bag until `close`.
        truncate_to: In mode 'append', the number of existing records to keep.
        **keywords: Options by name; see `WriterKeywords`. They take precedence over `options`.

    Raises:
        FileExistsError: In mode 'create', the bag exists.
        BlockingIOError: In mode 'append', another writer has the bag open.
        CorruptError: In mode 'append', the bag cannot be read.

    Examples:
        >>> with bags.bag.Writer('words.bag') as writer:
        ...     for word in (b'one', b'two'):
        ...         writer.write(word)
        >>> bags.bag.Reader('words.bag').read()
        [b'one', b'two']
    """

    Options = WriterOptions
    _is_alone = True
    """Whether the bag does not belong to a dataset."""
    _is_inherited = False
    """Whether this process was forked from the process of the writer. The bag belongs to that process."""

    def __init__(
        self,
        filename: str | os.PathLike[str],
        options: WriterOptions | None = None,
        *,
        mode: Literal['create', 'append', 'overwrite'] = 'create',
        truncate_to: int | None = None,
        **keywords: Unpack[WriterKeywords],
    ) -> None:
        self.buffered = 0
        """Bytes of buffered records and their limits."""
        self.pending: list[Any] = []
        """Buffered records."""
        self._closed = True  # Until the bag is open.
        self._process_id = os.getpid()
        self._options = options = merge(WriterOptions, options, keywords)
        self._buffer_size = options.buffer_size
        if options.limits_placement is LimitsPlacement.IDX:
            raise ValueError('limits_placement: expected tail, separate or starts for writing, got idx')
        store, path = self._locate(filename, options)
        self.syncs_flushes = store.durability is Durability.FLUSH
        """Whether `flush` also syncs to disk."""
        self._codec: Zstd | None = codec_for(path, options.compression, options.max_record_size)
        self._max_size = options.max_record_size if self._codec is not None else sys.maxsize
        if mode != 'create':
            remove_leftovers(store, path)
        self.appender = BagAppender(
            store, path, options.limits_placement, mode, truncate_to, bool(options.checksum), self._is_alone
        )
        self._closed = False
        if self._is_alone:
            _open_writers.add(self)

    def _locate(self, filename: str | os.PathLike[str], options: WriterOptions) -> tuple[Store, str]:
        """Returns the path of the bag, and a store that holds its folder."""
        store, path = store_for(
            filename, options.filesystem, options.storage_options, durability=options.durability
        )
        return store.hold(os.path.dirname(path)), path

    # Properties.

    def __len__(self) -> int:
        return self.appender.count + len(self.pending)

    def __bool__(self) -> bool:
        return True

    @property
    def size(self) -> int:
        """Bytes of the bag so far, including limits. Buffered records count uncompressed."""
        return self.appender.end + self.appender.count * ENTRY + self.buffered

    @property
    def path(self) -> str:
        return self.appender.path

    @property
    def options(self) -> WriterOptions:
        """A copy of the options."""
        return merge(WriterOptions, self._options, {})

    @property
    def closed(self) -> bool:
        return self._closed

    def __repr__(self) -> str:
        state = 'open'
        if self._is_inherited:
            state = f'open in process {self._process_id}'
        elif self._closed:
            state = 'closed'
        return f'bags.bag.Writer({self.path!r}, {len(self)} records, {state})'

    def __reduce__(self) -> NoReturn:
        raise TypeError(f'{self!r} cannot be pickled: {ADVICE}')

    # Writing.

    def write(self, record: Any) -> None:
        """Appends a record: bytes, str (as UTF-8) or any buffer. It may be buffered until `flush`.

        Raises:
            TypeError: The value is not a record.
            ValueError: The record is too large to be compressed, or the writer is closed.
            OSError: Writing failed, e.g. the disk is full. Buffered records are kept, and `flush` retries.
        """
        if type(record) is not bytes:
            record = as_record(record)
        size = len(record)
        if size > self._max_size or self._closed:
            self._check(size)
        self.pending.append(record)
        self.buffered += size + ENTRY
        if self.buffered >= self._buffer_size:
            self.flush()

    def _check(self, size: int = 0) -> None:
        if self._is_inherited:
            raise RuntimeError(f'{self!r} cannot write in process {os.getpid()}: {ADVICE}')
        if self._closed:
            raise ValueError(f'{self!r} is closed')
        if size > self._max_size:
            raise ValueError(f'record of {size} bytes exceeds max_record_size={self._max_size}')

    def write_file(self, file: BinaryIO) -> None:
        """Appends the rest of an open file as one record, without loading it into memory.

        Raises:
            ValueError: The record is too large to be compressed.
            OSError, EOFError: Reading or writing failed. The bag is unchanged.
        """
        self.flush()
        start = file.tell()
        size = file.seek(0, os.SEEK_END) - start
        file.seek(start)
        self._check(size)
        if self._codec is None:
            self.appender.append([(file, size)], None, self.pending)
        else:
            self.appender.append(self._compressed(self._codec, file, size), None, self.pending)

    def _compressed(self, codec: Zstd, file: BinaryIO, size: int) -> Iterator[Chunk]:
        if not size:
            return
        stream = codec.compressor().compressobj(size)
        for piece in read_pieces(file, size):
            part = stream.compress(piece)
            yield [part], len(part)
        part = stream.flush()
        yield [part], len(part)

    def write_stored(self, data: Sequence[Any] | BinaryIO, sizes: Any) -> None:
        """Appends many records in stored form, i.e. frames if the bag is compressed. Flushes first.

        Args:
            data: The records in order, as buffers, or as an open file, which is copied in the kernel if
                possible. The records are not checked.
            sizes: Bytes of each record, shape (n,).

        Raises:
            ValueError: The sizes do not match the buffers.
            OSError, EOFError: Reading or writing failed, e.g. the disk is full. None, or only the first few,
                of the records were appended.
        """
        sizes = np.asarray(sizes, np.int64)
        total = int(sizes.sum())
        if isinstance(data, Sequence):
            views = [memoryview(part) for part in data]
            data = [view.cast('B') for view in views if view.nbytes]
            size = sum(map(len, data))
            if total != size or (len(sizes) and int(sizes.min()) < 0):
                raise ValueError(f'sizes: expected a sum of {size} bytes, got {len(sizes)} of {total} bytes')
            if total < JOIN_BYTES * len(data):
                data = [b''.join(data)]
        self.flush()
        if len(sizes):
            self.appender.append([(data, total)], sizes, self.pending)

    def flush(self) -> None:
        """Makes all records visible to other processes, and safe if this process is killed.

        With `durability='flush'`, also syncs them to disk.

        Raises:
            OSError: Writing failed, e.g. the disk is full. Records that were not written stay buffered.
        """
        if self._closed:
            self._check()
        records = self.pending
        if records:
            frames = records if self._codec is None else self._codec.encode_many(records)
            sizes = np.fromiter(map(len, frames), np.int64, len(frames))
            total = int(sizes.sum())
            buffers = [b''.join(frames)] if total < JOIN_BYTES * len(frames) else frames
            self.appender.append([(buffers, total)], sizes, records)
        self.buffered = 0
        if self.syncs_flushes:
            self.appender.sync_flush()

    def finish(self) -> None:
        """Does the slow part of `close`: flushes, appends the limits and syncs the files."""
        if self._closed:
            return
        self.flush()
        self.appender.finish()

    def close(self) -> None:
        """Flushes, appends the limits, syncs (unless `durability='none'`), and closes the file.

        Raises:
            OSError: Writing failed, e.g. the disk is full. Flushed records are safe. `close` may be called
                again.
        """
        if self._closed:
            return
        self.flush()
        self.appender.close()
        self._closed = True

    def discard(self) -> None:
        """Stops writing, and removes the bag."""
        if self._is_inherited:
            return
        self.appender.discard()
        self._closed, self.pending, self.buffered = True, [], 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if exc_type is not None and self.appender.replaces:
            self.discard()  # An incomplete bag must not replace a complete one.
            return
        try:
            self.close()
        except OSError:
            if exc_type is None:
                raise  # Otherwise the first error is raised. Mode 'append' finds the flushed records.


def _close_in_child() -> None:
    for writer in list(_open_writers):
        if not writer._closed:
            writer._closed = writer._is_inherited = True


if hasattr(os, 'register_at_fork'):
    os.register_at_fork(after_in_child=_close_in_child)
