"""Reads and checks the rows of `FIELD.links` and the entries of `FIELD.files`."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.checksums import digest_function
from bags.bag.limits import BlockTable
from bags.bag.verified import SHIFT, VERIFIED, as_slice
from bags.concurrency import cached_attribute
from bags.errors import CorruptError
from bags.indexing import Int64s
from bags.links.files import LinkedFile, parse_file
from bags.links.rows import (
    MAX_OFFSET,
    ROW,
    ROW_BYTES,
    ROW_NUMBERS,
    SEGMENT_BYTES,
    SEGMENT_ROW,
    Rows,
    check_rows,
    frames_of,
    parse_rows,
    ranges_of,
)
from bags.links.segments import shares_of

ROW_DTYPES = {ROW_BYTES: ROW, SEGMENT_BYTES: SEGMENT_ROW}
"""Maps the sizes of rows to their dtypes."""
PARSED_ROWS_AT_ONCE = 1 << 20


class LinkTable:
    """The rows of the bag `FIELD.links`, by index. The size of a row tells whether the record is a segment.

    Rows that are not memory-mapped are kept in memory, like the limits of other bags, and the limits of this
    bag are not read. Otherwise each read of a linked record in an object store would wait for two requests.
    """

    def __init__(self, bag: BagFile) -> None:
        self.bag = bag
        sizes = [size for size in ROW_DTYPES if bag.end == size * bag.count]
        self._dtype = ROW_DTYPES[sizes[0]] if sizes else None
        """The dtype of all rows, if they have the same size."""
        dtype = self._dtype or ROW
        is_table = bag.buffer is None and self._dtype is not None
        self._held = BlockTable(bag.file, 0, bag.count, dtype) if is_table else None
        bag.check_rows = lambda rows: check_rows(parse_rows(rows, dtype)) is None

    def rows(self, indices: Int64s | range, are_checked: bool = True) -> Rows:
        """Returns rows, shape (n,).

        Args:
            indices: Indices of the rows.
            are_checked: If False, also returns rows that differ from their digests.

        Raises:
            CorruptError: A row is damaged, or has an invalid size.
        """
        positions, bag = np.asarray(indices, np.int64), self.bag
        if not len(positions):
            return np.empty(0, ROW)
        dtype, data = self._dtype, None
        if dtype is not None:
            is_table = are_checked and bag.length == dtype.itemsize
            if is_table and bag.verified.all_verified(where := as_slice(positions)):
                return np.ndarray(bag.count, dtype, bag.buffer)[where]
            try:
                data = bag.fixed(positions, dtype.itemsize) if self._held is None else self._held[positions]
            except EOFError as exc:
                raise bag.cut_error(None, exc) from exc
        if dtype is None or data is None:
            return self._of_sizes(positions, are_checked)
        return self._parse(positions, data, dtype, are_checked)

    def _of_sizes(self, indices: Int64s, are_checked: bool) -> Rows:
        """Parses rows when only some of them are segments."""
        records = self.bag.read(indices)
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        wrong = ~np.isin(lengths, list(ROW_DTYPES))
        if wrong.any():
            bad = int(wrong.argmax())
            detail = f'expected a link of {ROW_BYTES} or {SEGMENT_BYTES} bytes, got {lengths[bad]}'
            raise CorruptError(self.bag.path, int(indices[bad]), detail)
        rows = np.zeros(len(records), SEGMENT_ROW)
        for size, dtype in ROW_DTYPES.items():
            positions = np.flatnonzero(lengths == size)
            data = b''.join(records[position] for position in positions.tolist())
            parsed = self._parse(indices[positions], data, dtype, are_checked)
            for name in dtype.names or ():
                rows[name][positions] = parsed[name]
        return rows

    def _parse(self, indices: Int64s, data: Any, dtype: np.dtype[Any], are_checked: bool) -> Rows:
        rows = parse_rows(data, dtype)
        damage = check_rows(rows) if are_checked else None
        if damage is not None:
            raise CorruptError(self.bag.path, int(indices[damage[0]]), damage[1])
        return rows

    def row(self, index: int) -> tuple[int, int, int, int, int]:
        """As `rows`, for one record, in a third of the time.

        Returns:
            File number, start, end, and the first frame and the end of a segment; the latter are zeros if the
            record is not a segment.
        """
        bag = self.bag
        if bag.length == ROW_BYTES and bag.verified.states[index >> SHIFT] == VERIFIED:
            number, _, start, stop = ROW_NUMBERS.unpack_from(bag.buffer, index * ROW_BYTES)
            return number, start, stop, 0, 0
        row = bag.get(index) if self._held is None else b''
        if len(row) == ROW_BYTES:
            number, digest, start, stop = ROW_NUMBERS.unpack(row)
            if digest_function()(row[:4] + row[8:]) & 0xFFFFFFFF == digest and start <= stop <= MAX_OFFSET:
                return number, start, stop, 0, 0
        rows = self.rows(np.array([index]))
        names = ('file', 'start', 'end', 'first', 'stop')[: 3 if rows.dtype == ROW else 5]
        numbers = [int(rows[name][0]) for name in names]
        return (*numbers, 0, 0)[:5]  # type: ignore[return-value]

    def sizes(self, indices: Int64s) -> Int64s:
        """Returns the number of bytes of records; for a segment, its share of the bytes of its range."""
        return self.ends[indices + 1] - self.ends[indices]

    @cached_attribute
    def ends(self) -> Int64s:
        """Cumulative number of bytes of the records, shape (n + 1,). Damaged links count as 0 bytes."""
        columns = np.zeros((self.bag.count, 5), np.int64)
        for first in range(0, self.bag.count, PARSED_ROWS_AT_ONCE):
            stop = min(first + PARSED_ROWS_AT_ONCE, self.bag.count)
            with contextlib.suppress(CorruptError):
                rows = self.rows(range(first, stop), are_checked=False)
                columns[first:stop, :3] = np.stack(ranges_of(rows), 1)
                if (frames := frames_of(rows)) is not None:
                    columns[first:stop, 3:] = frames
        sizes = shares_of(columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3:])
        return np.cumsum(np.append(0, sizes))


def read_entry(files: BagFile, field: str, number: int, record: bytes | None = None) -> LinkedFile:
    """Returns the entry of file `number`.

    Args:
        files: The bag of entries.
        field: The field, for errors.
        number: Number of the file, from 1 to the number of entries.
        record: The record of the entry, if it was read before.

    Raises:
        CorruptError: The entry is damaged.
    """
    try:
        entry = parse_file(files.record(number - 1) if record is None else record)
        if entry.is_compressed != entry.path.endswith('.bagz'):
            raise ValueError(f'file {entry.path!r:.200} cannot be compressed={entry.is_compressed}')
    except ValueError as exc:
        if isinstance(exc, CorruptError):
            raise
        raise CorruptError(files.path, number - 1, f'field {field!r}: {exc}') from exc
    return entry
