"""Opens a bag in any state: closed, being written, or left unclosed by a killed writer."""

from __future__ import annotations

import errno
import functools
import os
from typing import Unpack

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.checksums import Checksums
from bags.bag.compression import codec_for
from bags.bag.limits import ENTRY
from bags.bag.options import LimitsPlacement, LimitsStorage, ReaderKeywords, ReaderOptions
from bags.errors import CorruptError
from bags.storage import File, Hints, Stat, Store
from bags.storage.base import A_LFS_POINTER, MAX_LFS_POINTER_BYTES, is_lfs_pointer
from bags.validation import merge

MAX_OPEN_ATTEMPTS = 8
TABLE_ENTRIES = 1 << 17
"""Number of limits that are compared at a time."""
MAX_LIMIT = 1 << 48
"""Maximum value of a limit. A larger number at the end of a file is not a limit."""


def limits_name(path: str, placement: LimitsPlacement = LimitsPlacement.TAIL) -> str:
    """Returns the path of the limits beside a bag, either separate ones or of a bag that is being written."""
    folder, name = os.path.split(path)
    if placement is LimitsPlacement.IDX:
        return os.path.join(folder, os.path.splitext(name)[0] + '.idx')
    return os.path.join(folder, f'limits.{name}')


def open_bag(store: Store, path: str, options: ReaderOptions) -> BagFile:
    """Opens a bag in its current state: closed, being written, or left unclosed by a killed writer.

    Raises:
        FileNotFoundError: The bag, or its separate limits, do not exist.
        IsADirectoryError: The path is a folder.
        CorruptError: The limits do not match the file.
        ValueError: The option `checksum` is set, and the bag has no checksums.
    """
    placement = options.limits_placement
    starts = placement is LimitsPlacement.STARTS
    separate = placement in (LimitsPlacement.SEPARATE, LimitsPlacement.IDX)
    beside = limits_name(path, placement) if separate or not store.is_remote else ''
    memory = options.limits_storage is LimitsStorage.IN_MEMORY
    codec = codec_for(path, options.compression, options.max_record_size)
    closed = Hints(options.access_pattern, options.cache_policy, options.mapped, options.max_parallelism)
    previous = ''
    for attempt in range(MAX_OPEN_ATTEMPTS):
        limits = None
        try:
            has_limits = separate or (not store.is_remote and store.exists(beside))
            hints = closed._replace(keep_open=True) if has_limits and not separate else closed
            # The cache policy and access pattern apply to records only, not to limits.
            plain = Hints(
                mapped=options.mapped, max_parallelism=options.max_parallelism, keep_open=hints.keep_open
            )
            # The limits are opened before the records: records are written before their limits, so each limit
            # in the file has its record.
            if has_limits:
                try:
                    limits = store.open(beside, plain)
                except FileNotFoundError:
                    if separate:
                        store.open(path, plain)  # If the bag is missing too, its own error is raised.
                        raise
            file = store.open(path, hints)
            tail = file if hints == plain else store.open(path, plain)
            if limits is not None and (separate or not _is_closed(tail, limits, starts)):
                changes = not store.is_remote and attempt < MAX_OPEN_ATTEMPTS - 1
                if changes and _stat(store, beside) != (limits.size, limits.version):
                    # A writer that resumes the bag may have replaced its records in between. On the last
                    # attempt, the writer is assumed to only append.
                    continue
                table, offset, count, end = limits, 0, limits.size // ENTRY, file.size
            else:
                end, count = parse_tail(tail, starts)
                if file.size != tail.size:  # The bag grew, or was replaced, between the two opens.
                    continue
                table, offset = tail, tail.size - count * ENTRY
            sums = _open_checksums(store, path, count, table is tail, plain) if options.checksum else None
            bag = BagFile(path, file, table, offset, count, end, codec, memory, sums)
        except IsADirectoryError:
            detail = 'expected a bag, which is a file, got a folder (bags.open opens datasets)'
            raise IsADirectoryError(errno.EISDIR, detail, path) from None
        except (CorruptError, EOFError) as exc:
            # The bag may be undamaged: a writer may have closed or resumed it while it was being opened. The
            # next attempt then opens another file.
            before = None if limits is None else (limits.size, limits.version)
            if not store.is_remote and _stat(store, beside) != before:
                continue
            if store.is_remote or str(exc) == previous:
                if isinstance(exc, CorruptError):
                    raise
                raise CorruptError(path, None, str(exc)) from exc
            previous = str(exc)
        else:
            bag.options, bag.reopen = options, functools.partial(_reopen, path, options)
            return bag
    raise CorruptError(path, None, 'keeps changing while it is being opened')


def _reopen(path: str, options: ReaderOptions, **changes: Unpack[ReaderKeywords]) -> BagFile:
    """Opens a bag again with some options changed, also in another process."""
    options = merge(ReaderOptions, options, changes)
    return open_bag(options.store_of(path), path, options)


def _open_checksums(store: Store, path: str, count: int, is_closed: bool, hints: Hints) -> Checksums:
    try:
        return Checksums(store, path, count, hints, is_closed)
    except FileNotFoundError:
        detail = 'has no checksums (they are written with checksum=True)'
        raise ValueError(f'{path}: {detail}') from None


def _stat(store: Store, path: str) -> Stat | None:
    """Returns size and version of a file; None if it does not exist."""
    try:
        return store.stat(path)
    except FileNotFoundError:
        return None


def parse_tail(file: File, starts: bool) -> tuple[int, int]:
    """Parses the limits at the end of a file.

    Args:
        file: A closed bag.
        starts: Whether the table begins with the start of the first record.

    Returns:
        The end of the records, and their number n. The table of ends is the last 8 * n bytes.

    Raises:
        CorruptError: The file does not end with a table of limits.
        EOFError: A writer truncated the file since it was opened.
    """
    size = file.size
    if not size:
        return 0, 0
    if size < ENTRY:
        raise _bad_tail(file.path, f'{size} bytes are too few to hold limits')
    last = bytes(file.fetch(size - ENTRY, size))
    end = int.from_bytes(last, 'little')
    if end >= MAX_LIMIT:
        if size < MAX_LFS_POINTER_BYTES and is_lfs_pointer(file.fetch(0, size)):
            raise CorruptError(file.path, None, f'expected a bag, got {A_LFS_POINTER}')
        raise _bad_tail(file.path, f'expected a limit at its end, got {last!r}; is it cut off, or not a bag?')
    if end > size - ENTRY:
        detail = f'the last limit is {end}, but the records can take at most {size - ENTRY} bytes'
        raise _bad_tail(file.path, detail)
    if (size - end) % ENTRY:
        raise _bad_tail(file.path, f'the limits take {size - end} bytes, not a multiple of {ENTRY}')
    # Skipped if it would cost a request, as each read of a record also checks its limits.
    if starts or end >= file.cached_from:
        first = int.from_bytes(file.fetch(end, end + ENTRY), 'little')
        if starts and first:
            raise _bad_tail(file.path, f'expected limits that begin with 0, got {first}')
        if first > end:
            # Detects most truncated files, which have bytes of a record at this offset.
            raise _bad_tail(file.path, f'limit {first} lies beyond the records ({end} bytes)', 0)
    return end, (size - end) // ENTRY - starts


def _bad_tail(path: str, detail: str, record: int | None = None) -> CorruptError:
    """Returns the error for a file without valid limits at its end, which may not be a bag at all."""
    if path.endswith(('.bag', '.bagz')):
        return CorruptError(path, record, detail)
    return CorruptError(path, None, 'not a bag: it has no valid limits at its end')


def _is_closed(file: File, limits: File, starts: bool) -> bool:
    """Returns whether a bag is closed although it has limits beside it.

    Its writer was then killed between appending the limits and removing the file beside the bag.

    Raises:
        CorruptError: The bag ends with a complete table that differs from the table beside it. Writers of
            this library never leave such a bag (see `UnclosedBag.write_sentinel`).
    """
    try:
        end, count = parse_tail(file, starts)
    except (CorruptError, EOFError):
        return False
    if not count:
        return False
    listed, before, are_equal = limits.size // ENTRY, 0, True
    for first in range(0, count, TABLE_ENTRIES):
        start, stop = (
            file.size - (count - entry) * ENTRY for entry in (first, min(first + TABLE_ENTRIES, count))
        )
        tail = np.frombuffer(file.fetch(start, stop), '<i8')
        if tail[0] < before or not (tail[1:] >= tail[:-1]).all():
            return False
        before = int(tail[-1])
        ends = np.frombuffer(
            limits.read(*(min(entry, listed) * ENTRY for entry in (first, first + len(tail)))), '<i8'
        )
        are_equal = are_equal and np.array_equal(tail[: len(ends)], ends)
    if before != end:
        return False
    if are_equal and count >= listed:
        return True
    if _is_appending(file, limits, listed, starts):
        return False
    raise CorruptError(
        file.path, None, f'has {count} limits at its end that differ from the {listed} in {limits.path}'
    )


def _is_appending(file: File, limits: File, listed: int, starts: bool) -> bool:
    """Returns whether a bag ends with a part of its limits, which the writer was appending.

    The records and this part can together look like a table.
    """
    last = int.from_bytes(limits.read((listed - 1) * ENTRY, listed * ENTRY), 'little') if listed else 0
    start = min(last + ENTRY * starts, file.size)
    if not last <= file.size < last + ENTRY * (starts + listed) or any(file.fetch(last, start)):
        return False
    for first in range(start, file.size, TABLE_ENTRIES * ENTRY):
        data = file.fetch(first, min(first + TABLE_ENTRIES * ENTRY, file.size))
        if bytes(data) != bytes(limits.read(first - start, first - start + len(data))):
            return False
    return True
