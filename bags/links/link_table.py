"""The checked rows of `FIELD.links`, and the entries of `FIELD.files`."""

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
    NUMBERS,
    ROW,
    ROW_BYTES,
    SEGMENT_BYTES,
    SEGMENT_ROW,
    Rows,
    check_rows,
    frames_of,
    parse_rows,
    ranges_of,
)
from bags.links.segments import shares_of

DTYPES = {ROW_BYTES: ROW, SEGMENT_BYTES: SEGMENT_ROW}
"""The rows by their size."""
ROWS_AT_ONCE = 1 << 20


class LinkTable:
    """The rows of `FIELD.links`, a bag, by index. The size of each tells whether it is that of a segment.

    Rows that are not mapped are kept in memory, as the limits of other bags are, and limits are not read:
    else each read of a linked record in an object store would wait for two requests.
    """

    def __init__(self, bag: BagFile) -> None:
        self.bag = bag
        sizes = [size for size in DTYPES if bag.end == size * bag.count]
        self._dtype = DTYPES[sizes[0]] if sizes else None
        """That of all rows, if they have one size."""
        dtype = self._dtype or ROW
        is_table = bag.buffer is None and self._dtype is not None
        self._held = BlockTable(bag.file, 0, bag.count, dtype) if is_table else None
        bag.check_rows = lambda rows: check_rows(parse_rows(rows, dtype)) is None

    def rows(self, indices: Int64s | range, are_checked: bool = True) -> Rows:
        """Returns rows, shape (n,).

        Args:
            indices: The rows.
            are_checked: False returns also rows that differ from their digests.

        Raises:
            CorruptError: A row is damaged, or of another size.
        """
        chosen, bag = np.asarray(indices, np.int64), self.bag
        if not len(chosen):
            return np.empty(0, ROW)
        dtype, found = self._dtype, None
        if dtype is not None:
            is_table = are_checked and bag.length == dtype.itemsize
            if is_table and bag.verified.all_verified(where := as_slice(chosen)):
                return np.ndarray(bag.count, dtype, bag.buffer)[where]
            try:
                found = bag.fixed(chosen, dtype.itemsize) if self._held is None else self._held[chosen]
            except EOFError as exc:
                raise bag.cut_error(None, exc) from exc
        if dtype is None or found is None:
            return self._of_sizes(chosen, are_checked)
        return self._parse(chosen, found, dtype, are_checked)

    def _of_sizes(self, indices: Int64s, are_checked: bool) -> Rows:
        """Returns rows of which only some are those of segments."""
        records = self.bag.read(indices)
        lengths = np.fromiter(map(len, records), np.int64, len(records))
        wrong = ~np.isin(lengths, list(DTYPES))
        if wrong.any():
            bad = int(wrong.argmax())
            detail = f'expected a link of {ROW_BYTES} or {SEGMENT_BYTES} bytes, got {lengths[bad]}'
            raise CorruptError(self.bag.path, int(indices[bad]), detail)
        rows = np.zeros(len(records), SEGMENT_ROW)
        for size, dtype in DTYPES.items():
            mine = np.flatnonzero(lengths == size)
            data = b''.join(records[position] for position in mine.tolist())
            found = self._parse(indices[mine], data, dtype, are_checked)
            for name in dtype.names or ():
                rows[name][mine] = found[name]
        return rows

    def _parse(self, indices: Int64s, data: Any, dtype: np.dtype[Any], are_checked: bool) -> Rows:
        rows = parse_rows(data, dtype)
        damage = check_rows(rows) if are_checked else None
        if damage is not None:
            raise CorruptError(self.bag.path, int(indices[damage[0]]), damage[1])
        return rows

    def row(self, index: int) -> tuple[int, int, int, int, int]:
        """As `rows`, of one record, in a third of the time.

        Returns:
            The number of the file, start and end, and the first frame and the end of a segment; zeros for
            another record.
        """
        bag = self.bag
        if bag.length == ROW_BYTES and bag.verified.states[index >> SHIFT] == VERIFIED:
            number, _, start, stop = NUMBERS.unpack_from(bag.buffer, index * ROW_BYTES)
            return number, start, stop, 0, 0
        row = bag.get(index) if self._held is None else b''
        if len(row) == ROW_BYTES:
            number, digest, start, stop = NUMBERS.unpack(row)
            if digest_function()(row[:4] + row[8:]) & 0xFFFFFFFF == digest and start <= stop <= MAX_OFFSET:
                return number, start, stop, 0, 0
        rows = self.rows(np.array([index]))
        names = ('file', 'start', 'end', 'first', 'stop')[: 3 if rows.dtype == ROW else 5]
        numbers = [int(rows[name][0]) for name in names]
        return (*numbers, 0, 0)[:5]  # type: ignore[return-value]

    def sizes(self, indices: Int64s) -> Int64s:
        """Returns the bytes of records: of a segment, its share of the bytes of its file."""
        return self.ends[indices + 1] - self.ends[indices]

    @cached_attribute
    def ends(self) -> Int64s:
        """The number of bytes of the records up to each one, of damaged links none, shape (n + 1,)."""
        columns = np.zeros((self.bag.count, 5), np.int64)
        for first in range(0, self.bag.count, ROWS_AT_ONCE):
            stop = min(first + ROWS_AT_ONCE, self.bag.count)
            with contextlib.suppress(CorruptError):
                rows = self.rows(range(first, stop), are_checked=False)
                columns[first:stop, :3] = np.stack(ranges_of(rows), 1)
                if (frames := frames_of(rows)) is not None:
                    columns[first:stop, 3:] = frames
        sizes = shares_of(columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3:])
        return np.cumsum(np.append(0, sizes))


def read_entry(files: BagFile, field: str, number: int) -> LinkedFile:
    """Returns the entry of a file by its number.

    Args:
        files: The entries.
        field: The field, for errors.
        number: The number, from 1 to their count.

    Raises:
        CorruptError: The entry is damaged.
    """
    try:
        entry = parse_file(files.record(number - 1))
        if entry.is_compressed != entry.path.endswith('.bagz'):
            raise ValueError(f'file {entry.path!r:.200} cannot be compressed={entry.is_compressed}')
    except ValueError as exc:
        if isinstance(exc, CorruptError):
            raise
        raise CorruptError(files.path, number - 1, f'field {field!r}: {exc}') from exc
    return entry
