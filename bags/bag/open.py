"""Opening a bag, in whatever state it is, and telling which that is."""

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

_last = struct.Struct('<Q').unpack


class Retry(Exception):
    """The bag changed its form (a writer closed it) while it was being opened."""


def limits_name(path: str, placement: LimitsPlacement = LimitsPlacement.TAIL) -> str:
    """Returns where the limits of a bag are, or wait while it is written."""
    folder, name = os.path.split(path)
    if placement is LimitsPlacement.IDX:
        return os.path.join(folder, os.path.splitext(name)[0] + '.idx')
    return os.path.join(folder, f'limits.{name}')


def open_bag(store: Store, path: str, options: ReaderOptions) -> BagFile:
    """Opens a bag as it is now: closed, being written, or left by a killed writer.

    Raises:
        FileNotFoundError: No bag, or no separate limits.
        IsADirectoryError: A folder.
        CorruptError: The limits cannot be those of this file.
    """
    before = ''
    for _ in range(8):
        try:
            bag = _open_bag(store, path, options)
        except Retry:
            continue
        except IsADirectoryError:
            detail = 'expected a bag, which is a file, got a folder (bags.open opens datasets)'
            raise IsADirectoryError(errno.EISDIR, detail, path) from None
        except CorruptError as exc:
            # Perhaps no damage: a writer went on with the bag after the look for limits beside it, and has
            # closed it again since. Then the next look is at another file.
            if store.is_remote or str(exc) == before:
                raise
            before = str(exc)
        else:
            bag.options = options
            return bag
    raise CorruptError(path, None, 'keeps changing while it is being opened')


def _open_bag(store: Store, path: str, options: ReaderOptions) -> BagFile:
    hints = Hints(options.access_pattern, options.cache_policy, options.mapped, options.max_parallelism)
    plain = Hints(mapped=options.mapped, max_parallelism=options.max_parallelism)
    placement = options.limits_placement
    beside = limits_name(path, placement)
    separate = placement in (LimitsPlacement.SEPARATE, LimitsPlacement.IDX)
    # The limits are read before the records: a record is written before its limit is.
    limits = None
    if separate or not store.is_remote:
        try:
            limits = store.open(beside, plain)
        except FileNotFoundError:
            if separate:
                store.open(path, plain)  # If the bag is missing too, that is the error.
                raise
    file = store.open(path, hints)
    codec = codec_for(path, options.compression, options.max_record_size)
    # A policy for records is not meant for the limits behind them.
    source = file if hints == plain else store.open(path, plain)
    memory = options.limits_storage is LimitsStorage.IN_MEMORY
    if limits is not None:
        count = limits.size // ENTRY
        if not separate:
            tail = _closed_tail(store, source, limits, placement is LimitsPlacement.STARTS)
            if tail is not None:
                end, count = tail
                _check_same(file, source)
                return BagFile(path, file, source, source.size - count * ENTRY, count, end, codec, memory)
        return BagFile(path, file, limits, 0, count, file.size, codec, memory)
    try:
        end, count = _parse(source, placement is LimitsPlacement.STARTS)
    except CorruptError:
        if not store.is_remote and store.exists(beside):
            raise Retry from None
        raise
    _check_same(file, source)
    return BagFile(path, file, source, source.size - count * ENTRY, count, end, codec, memory)


def _check_same(file: File, source: File) -> None:
    """Limits that are read by a file of their own must not be those of what the bag has become since."""
    if file.size != source.size:
        raise Retry


def _parse(file: File, starts: bool) -> tuple[int, int]:
    """Returns the end of the records and their number, from the limits at the file's end."""
    if not file.size:
        return 0, 0
    if file.size < ENTRY:
        raise CorruptError(file.path, None, f'{file.size} bytes are too few to hold limits')
    last = _last(file.read(file.size - ENTRY, file.size))[0]
    try:
        end, count = parse_tail(file.size, last, starts)
    except ValueError as exc:
        raise CorruptError(file.path, None, str(exc)) from None
    if end < file.cached_from and not starts:
        # A request for what every read of a record checks anyway.
        return end, count
    first = _last(file.read(end, end + ENTRY))[0]
    if starts and first:
        raise CorruptError(file.path, None, f'expected limits that begin with 0, got {first}')
    if first > end:
        # Told at once, for what a file that was cut short has here are mostly bytes of a record.
        raise CorruptError(file.path, 0, f'limit {first} lies beyond the records ({end} bytes)')
    return end, count


def _closed_tail(store: Store, file: File, limits: File, starts: bool) -> tuple[int, int] | None:
    """Looks for limits at the end of a bag that has others beside it.

    Returns:
        The end of the records and their number, if the bag is closed after all (its writer was
        stopped between appending the limits and removing the file beside); None if it is not.

    Raises:
        CorruptError: There is a whole table at the end, and it is another one. Our writers never leave
            a bag that looks so by chance (`Writer._seal`).
        Retry: The limits beside it are not those that were opened any more.
    """
    try:
        end, count = _parse(file, starts)
    except CorruptError:
        return None
    if not count:
        return None
    tail = open_table(file, file.size - count * ENTRY, count, True)
    whole = bool((tail[1:] >= tail[:-1]).all()) and tail[0] >= 0 and tail[-1] == end
    if not whole:
        return None
    ends = open_table(limits, 0, limits.size // ENTRY, True)
    if count >= len(ends) and prefix_agrees(ends, tail):
        return end, count
    if _begins_tail(file, ends, starts):
        return None
    if not store.exists(limits.path) or store.size(limits.path) != limits.size:
        raise Retry
    raise CorruptError(
        file.path,
        None,
        f'has {count} limits at its end, but other ones ({len(ends)}) in {limits_name(file.path)}',
    )


def _begins_tail(file: File, ends: Int64s, starts: bool) -> bool:
    """Tells whether only a part of the limits is behind the records, which happen to look like limits."""
    last = int(ends[-1]) if len(ends) else 0
    tail = bytes(ENTRY * starts) + ends.tobytes()
    return 0 <= file.size - last < len(tail) and tail.startswith(bytes(file.read(last, file.size)))
