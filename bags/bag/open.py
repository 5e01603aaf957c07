"""Opens a bag in any state: closed, being written, or left behind by a killed writer."""

from __future__ import annotations

import errno
import os

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.checksums import Checksums
from bags.bag.limits import ENTRY
from bags.bag.options import LimitsPlacement, LimitsStorage, ReaderOptions
from bags.bag.zstd import codec_for
from bags.errors import CorruptError
from bags.storage import File, Hints, Stat, Store

__all__ = ['limits_name', 'open_bag', 'parse_tail']

ATTEMPTS = 8
MAX_LIMIT = 1 << 48
"""Larger numbers at the end of a file are no limits, but bytes of something else."""


def limits_name(path: str, placement: LimitsPlacement = LimitsPlacement.TAIL) -> str:
    """Returns the path of the limits of a bag: of separate ones, or those of a bag that is being written."""
    folder, name = os.path.split(path)
    if placement is LimitsPlacement.IDX:
        return os.path.join(folder, os.path.splitext(name)[0] + '.idx')
    return os.path.join(folder, f'limits.{name}')


def open_bag(store: Store, path: str, options: ReaderOptions) -> BagFile:
    """Opens a bag as it is now: closed, being written, or left behind by a killed writer.

    Raises:
        FileNotFoundError: The bag, or its separate limits, do not exist.
        IsADirectoryError: A folder.
        CorruptError: The limits do not match the file.
        ValueError: With the option `checksum`, it has no checksums.
    """
    placement = options.limits_placement
    starts = placement is LimitsPlacement.STARTS
    separate = placement in (LimitsPlacement.SEPARATE, LimitsPlacement.IDX)
    beside = limits_name(path, placement) if separate or not store.is_remote else ''
    memory = options.limits_storage is LimitsStorage.IN_MEMORY
    codec = codec_for(path, options.compression, options.max_record_size)
    hints = Hints(options.access_pattern, options.cache_policy, options.mapped, options.max_parallelism)
    # The cache policy and access pattern apply to records only, not to limits.
    plain = Hints(mapped=options.mapped, max_parallelism=options.max_parallelism)
    previous = ''
    for attempt in range(ATTEMPTS):
        limits = None
        try:
            # The limits are opened before the records: each record is written before its limit, so every
            # limit in the file has its record.
            if separate or (not store.is_remote and store.exists(beside)):
                try:
                    limits = store.open(beside, plain)
                except FileNotFoundError:
                    if separate:
                        store.open(path, plain)  # If the bag is missing too, that is the error to raise.
                        raise
            file = store.open(path, hints)
            tail = file if hints == plain else store.open(path, plain)
            if limits is not None and (separate or not _is_closed(tail, limits, starts)):
                changes = not store.is_remote and attempt < ATTEMPTS - 1
                if changes and _stat(store, beside) != (limits.size, limits.version):
                    # A writer that resumes a bag may have replaced its records before all limits could be
                    # read, or by fewer of them. If it only appends, the last attempt is as good.
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
            # Maybe not damaged: a writer may have closed the bag, or resumed it, while it was being opened.
            # The next attempt then opens another file.
            before = None if limits is None else (limits.size, limits.version)
            if not store.is_remote and _stat(store, beside) != before:
                continue
            if store.is_remote or str(exc) == previous:
                if isinstance(exc, CorruptError):
                    raise
                raise CorruptError(path, None, str(exc)) from exc
            previous = str(exc)
        else:
            bag.options = options
            return bag
    raise CorruptError(path, None, 'keeps changing while it is being opened')


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
        The end of the records and their number, n; the table of ends is the last 8 * n bytes.

    Raises:
        CorruptError: The file cannot end with a table.
        EOFError: A writer has just cut off its end.
    """
    size = file.size
    if not size:
        return 0, 0
    if size < ENTRY:
        raise _bad_tail(file.path, f'{size} bytes are too few to hold limits')
    last = bytes(file.fetch(size - ENTRY, size))
    end = int.from_bytes(last, 'little')
    if end >= MAX_LIMIT:
        raise _bad_tail(file.path, f'expected a limit at its end, got {last!r}; is it cut off, or not a bag?')
    if end > size - ENTRY:
        detail = f'the last limit is {end}, but the records can take at most {size - ENTRY} bytes'
        raise _bad_tail(file.path, detail)
    if (size - end) % ENTRY:
        raise _bad_tail(file.path, f'the limits take {size - end} bytes, not a multiple of {ENTRY}')
    # A remote file costs a request here, for what every read of a record checks anyway.
    if starts or end >= file.cached_from:
        first = int.from_bytes(file.fetch(end, end + ENTRY), 'little')
        if starts and first:
            raise _bad_tail(file.path, f'expected limits that begin with 0, got {first}')
        if first > end:
            # Detects most truncated files at open: they have bytes of a record here.
            raise _bad_tail(file.path, f'limit {first} lies beyond the records ({end} bytes)', 0)
    return end, (size - end) // ENTRY - starts


def _bad_tail(path: str, detail: str, record: int | None = None) -> CorruptError:
    """Returns the error for a file without valid limits at its end: of a bag, or of any other file."""
    if path.endswith(('.bag', '.bagz')):
        return CorruptError(path, record, detail)
    return CorruptError(path, None, 'not a bag: it has no valid limits at its end')


def _is_closed(file: File, limits: File, starts: bool) -> bool:
    """Returns whether a bag that has limits beside it is closed after all.

    Its writer was killed between appending the limits and removing the file beside it.

    Raises:
        CorruptError: A complete table is at the end, but differs from the one beside the bag. Our writers
            never leave such a bag, not even by chance (`BagAppender._write_sentinel`).
    """
    try:
        end, count = parse_tail(file, starts)
    except (CorruptError, EOFError):
        return False
    if not count:
        return False
    tail = np.frombuffer(file.fetch(file.size - count * ENTRY, file.size), '<i8')
    if not ((tail[1:] >= tail[:-1]).all() and tail[0] >= 0 and tail[-1] == end):
        return False
    ends = np.frombuffer(limits.read(0, limits.size // ENTRY * ENTRY), '<i8')
    if count >= len(ends) and np.array_equal(tail[: len(ends)], ends):
        return True
    # A part of the limits that the writer was appending can look like a table, with the records before it.
    last = int(ends[-1]) if len(ends) else 0
    appended = bytes(ENTRY * starts) + ends.tobytes()
    if 0 <= file.size - last < len(appended) and appended.startswith(bytes(file.fetch(last, file.size))):
        return False
    raise CorruptError(
        file.path, None, f'has {count} limits at its end that differ from the {len(ends)} in {limits.path}'
    )
