"""The checked rows of `FIELD.links`."""

from __future__ import annotations

import numpy as np

from bags.bag.bag_file import BagFile
from bags.bag.checksums import digest_function
from bags.bag.limits import BlockTable
from bags.bag.verified import as_slice
from bags.errors import CorruptError
from bags.indexing import Int64s
from bags.links.rows import MAX_OFFSET, NUMBERS, ROW, ROW_BYTES, Rows, check_rows, parse_rows, ranges_of


class LinkTable:
    """The rows of `FIELD.links`, a bag, by index.

    Rows that are not mapped are kept in memory, as the limits of other bags are, and limits are not read:
    else each read of a linked record in an object store would wait for two requests.
    """

    def __init__(self, bag: BagFile) -> None:
        self.bag = bag
        is_table = bag.buffer is None and bag.end == ROW_BYTES * bag.count
        self._held = BlockTable(bag.file, 0, bag.count, ROW) if is_table else None
        bag.check_rows = lambda rows: check_rows(parse_rows(rows)) is None

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
        if are_checked and bag.length == ROW_BYTES and bag.verified.holds(where := as_slice(chosen)):
            return np.ndarray(bag.count, ROW, bag.buffer)[where]
        try:
            found = bag.fixed(chosen, ROW_BYTES) if self._held is None else self._held[chosen]
        except EOFError as exc:
            raise bag.cut_error(None, exc) from exc
        if found is None:
            lengths = bag.sizes(chosen)
            bad = int((lengths != ROW_BYTES).argmax())
            detail = f'expected a link of {ROW_BYTES} bytes, got {lengths[bad]}'
            raise CorruptError(bag.path, int(chosen[bad]), detail)
        rows = parse_rows(found)
        damage = check_rows(rows) if are_checked else None
        if damage is not None:
            raise CorruptError(bag.path, int(chosen[damage[0]]), damage[1])
        return rows

    def row(self, index: int) -> tuple[int, int, int]:
        """As `rows`, of one record, in a third of the time: the number of its file, start and end."""
        row = self.bag.get(index) if self._held is None else b''
        if len(row) == ROW_BYTES:
            number, digest, start, stop = NUMBERS.unpack(row)
            if digest_function()(row[:4] + row[8:]) & 0xFFFFFFFF == digest and start <= stop <= MAX_OFFSET:
                return number, start, stop
        numbers, starts, stops = ranges_of(self.rows(np.array([index])))
        return int(numbers[0]), int(starts[0]), int(stops[0])
