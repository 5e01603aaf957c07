"""Verification of blocks of a table, once each, on first use."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bags.indexing import Int64s

SHIFT = 9  # A block has 2**9 rows: a page of memory, for a table of limits.
MAX_BLOCKS = 16  # Maximum number of blocks verified by one call: bounds the time of a batch on large bags.
UNKNOWN, BAD, VERIFIED = 0, 1, 2


class VerifiedBlocks:
    """Remembers which blocks of a table passed a check.

    Limits and tags of verified rows need not be read again. A batch of 256 datapoints with an integer and a
    text takes 53 us instead of 91, and a scan of 20,000 integers 36 us instead of 470.

    Args:
        count: Number of rows of the table.
        check: Returns whether the rows from a start to a stop pass the check.
    """

    def __init__(self, count: int, check: Callable[[int, int], bool]) -> None:
        self._count = count
        self._check = check
        self.states = bytearray((max(0, count - 1) >> SHIFT) + 1)
        """The state of each block: `UNKNOWN`, `BAD` or `VERIFIED`."""
        self._state = np.frombuffer(self.states, np.uint8)
        self._all = False
        self.any_bad = False
        """Whether a block failed the check."""

    def all_verified(self, rows: Int64s | slice) -> bool:
        """Returns whether all rows (at least one) are in verified blocks. Verifies unknown blocks first."""
        if self._all:
            return True
        if isinstance(rows, slice):
            first, last = rows.start >> SHIFT, ((rows.stop - 1) >> SHIFT) + 1
            for block in np.flatnonzero(self._state[first:last] == UNKNOWN) + first:
                self.verify(int(block) << SHIFT)
                if self.any_bad:
                    return False
            verified = not np.count_nonzero(self._state[first:last] != VERIFIED)
        else:
            blocks = rows >> SHIFT
            states = self._state[blocks]
            if not np.count_nonzero(states != VERIFIED):
                return True
            for block in np.unique(blocks[states == UNKNOWN])[:MAX_BLOCKS]:
                self.verify(int(block) << SHIFT)
            verified = not np.count_nonzero(self._state[blocks] != VERIFIED)
        self._all = not np.count_nonzero(self._state != VERIFIED)
        return verified

    def verify(self, row: int) -> bool:
        """Returns whether a row is in a verified block. Verifies an unknown block first."""
        block = row >> SHIFT
        if self.states[block] == UNKNOWN:
            start = block << SHIFT
            passed = self._check(start, min(start + (1 << SHIFT), self._count))
            self.states[block] = VERIFIED if passed else BAD
            self.any_bad |= not passed
        return self.states[block] == VERIFIED


def as_slice(indices: Int64s) -> Int64s | slice:
    """Returns consecutive indices as a slice, and other indices unchanged."""
    count = len(indices)
    if count < 2 or int(indices[-1]) - int(indices[0]) != count - 1:
        return indices
    # Increasing integers whose range is count - 1 are consecutive. Takes an eighth of the time of np.diff.
    if np.count_nonzero(indices[1:] > indices[:-1]) < count - 1:
        return indices
    return slice(int(indices[0]), int(indices[-1]) + 1)
