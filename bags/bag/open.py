"""Opens a bag in any state: closed, being written, or left behind by a killed writer."""

from __future__ import annotations

import errno
import os
import struct

from bags.bag.bag_file import BagFile
from bags.bag.limits import ENTRY, parse_tail, prefix_agrees
from bags.bag.limits_table import open_table
from bags.bag.options import LimitsPlacement, LimitsStorage, ReaderOptions
from bags.bag.zstd import codec_for
from bags.errors import CorruptError
from bags.indexing import Int64s
from bags.storage import File, Hints, Store

__all__ = ['limits_name', 'open_bag']

ATTEMPTS = 8

_u64 = struct.Struct('<Q').unpack


class _Changed(Exception):
    """A writer closed the bag, or resumed it, while it was being opened."""


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
    """
    previous = ''
    for _ in range(ATTEMPTS):
        try:
            bag = _open_bag(store, path, options)
        except _Changed:
            continue
        except IsADirectoryError:
            detail = 'expected a bag, which is a file, got a folder (bags.open opens datasets)'
            raise IsADirectoryError(errno.EISDIR, detail, path) from None
        except CorruptError as exc:
            # Maybe not damaged: a writer may have resumed and closed the bag after the check for limits
            # beside it, and the file was read in between. The next attempt then opens another file.
            if store.is_remote or str(exc) == previous:
                raise
            previous = str(exc)
        else:
            bag.options = options
            return bag
    raise CorruptError(path, None, 'keeps changing while it is being opened')


def _open_bag(store: Store, path: str, options: ReaderOptions) -> BagFile:
    hints = Hints(options.access_pattern, options.cache_policy, options.mapped, options.max_parallelism)
    plain = Hints(mapped=options.mapped, max_parallelism=options.max_parallelism)
    placement = options.limits_placement
    starts = placement is LimitsPlacement.STARTS
    separate = placement in (LimitsPlacement.SEPARATE, LimitsPlacement.IDX)
    beside = limits_name(path, placement)
    memory = options.limits_storage is LimitsStorage.IN_MEMORY
    # The limits are opened before the records: each record is written before its limit, so every limit
    # in the file has its record.
    limits = None
    if separate or not store.is_remote:
        try:
            limits = store.open(beside, plain)
        except FileNotFoundError:
            if separate:
                store.open(path, plain)  # If the bag is missing too, that is the error to raise.
                raise
    file = store.open(path, hints)
    codec = codec_for(path, options.compression, options.max_record_size)
    # The cache policy and access pattern apply to records only, not to the limits after them.
    source = file if hints == plain else store.open(path, plain)
    tail: tuple[int, int] | None
    if limits is None:
        try:
            tail = _parse(source, starts)
        except CorruptError:
            if not store.is_remote and store.exists(beside):
                raise _Changed from None
            raise
    else:
        tail = None if separate else _closed_tail(store, source, limits, starts)
        if tail is None:
            return BagFile(path, file, limits, 0, limits.size // ENTRY, file.size, codec, memory)
    end, count = tail
    if file.size != source.size:  # The bag grew, or was replaced, between the two opens.
        raise _Changed
    return BagFile(path, file, source, source.size - count * ENTRY, count, end, codec, memory)


def _parse(file: File, starts: bool) -> tuple[int, int]:
    """Returns the end of the records and their number, from the limits at the end of the file."""
    if not file.size:
        return 0, 0
    if file.size < ENTRY:
        raise CorruptError(file.path, None, f'{file.size} bytes are too few to hold limits')
    last = _u64(file.read(file.size - ENTRY, file.size))[0]
    try:
        end, count = parse_tail(file.size, last, starts)
    except ValueError as exc:
        raise CorruptError(file.path, None, str(exc)) from None
    if end < file.cached_from and not starts:
        # A request for what every read of a record checks anyway.
        return end, count
    first = _u64(file.read(end, end + ENTRY))[0]
    if starts and first:
        raise CorruptError(file.path, None, f'expected limits that begin with 0, got {first}')
    if first > end:
        # Detects most truncated files at open: they have bytes of a record here.
        raise CorruptError(file.path, 0, f'limit {first} lies beyond the records ({end} bytes)')
    return end, count


def _closed_tail(store: Store, file: File, limits: File, starts: bool) -> tuple[int, int] | None:
    """Looks for limits at the end of a bag that also has limits beside it.

    Returns:
        The end of the records and their number if the bag is closed after all (its writer was
        killed between appending the limits and removing the file beside it); None if it is not.

    Raises:
        CorruptError: A complete table is at the end, but differs from the one beside the bag. Our writers
            never leave such a bag, not even by chance (`BagAppender._write_sentinel`).
        _Changed: The limits beside the bag were replaced or removed since they were opened.
    """
    try:
        end, count = _parse(file, starts)
    except CorruptError:
        return None
    if not count:
        return None
    tail = open_table(file, file.size - count * ENTRY, count, True)
    if not ((tail[1:] >= tail[:-1]).all() and tail[0] >= 0 and tail[-1] == end):
        return None
    ends = open_table(limits, 0, limits.size // ENTRY, True)
    if count >= len(ends) and prefix_agrees(ends, tail):
        return end, count
    if _begins_tail(file, ends, starts):
        return None
    if not store.exists(limits.path) or store.size(limits.path) != limits.size:
        raise _Changed
    raise CorruptError(
        file.path, None, f'has {count} limits at its end that differ from the {len(ends)} in {limits.path}'
    )


def _begins_tail(file: File, ends: Int64s, starts: bool) -> bool:
    """Returns whether the end of the file is a part of the limits that the writer was appending.

    Together with the records before it, such a part can look like a table.
    """
    last = int(ends[-1]) if len(ends) else 0
    tail = bytes(ENTRY * starts) + ends.tobytes()
    return 0 <= file.size - last < len(tail) and tail.startswith(bytes(file.read(last, file.size)))
