"""Records of one length: read without a look at their limits, once those were looked over."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bags.bag.limits import Table
from bags.indexing import Int64s

__all__ = ['SHIFT', 'SOUND', 'Uniform', 'as_slice']

SHIFT = 9  # Limits are looked over in blocks of 2⁹: a page of memory.
SOUND = 255
UNEVEN = 254
OFTEN = 8  # A block that was used this often is looked over as a whole.
LOOKS = 16  # Blocks that one batch looks over, so that it costs the same on any bag.


class Uniform:
    """The one length that all records of a bag seem to have, as the ends of the first and the last say.

    Where it is known of a record, that is read in a third of the time, with a cache miss less. It is known
    once the block of limits that it is in was compared with what that should be, which is done for blocks
    that are used, and never for all at once.

    `marks`, a byte a block, is 255 where it is known. Functions on the hot path look there themselves:
    `marks[index >> 9] == 255`.
    """

    def __init__(self, ends: Table, length: int, check: Callable[[int, int], bool] | None = None) -> None:
        self.ends = ends
        self.length = length
        self.check = check
        """What else must hold of records, from one index to another, before they count as sound."""
        self.whole = False
        """Whether all records are known to be sound."""
        self.marks = bytearray(((len(ends) - 1) >> SHIFT) + 1)
        """By block: how often it was used, then SOUND or UNEVEN."""
        self._table = np.frombuffer(self.marks, np.uint8)

    @property
    def uneven(self) -> bool:
        """Whether a block is known not to be sound."""
        return UNEVEN in self.marks

    def touch(self, index: int) -> None:
        """Counts a use of a record, and looks its block over if there were enough."""
        block = index >> SHIFT
        mark = self.marks[block]
        if mark < OFTEN:
            self.marks[block] = mark + 1
        elif mark < UNEVEN:
            self._look(block, block + 1)

    def holds(self, chosen: Int64s | slice) -> bool:
        """Tells whether all of these records, at least one, are known to have the length.

        What is not known yet of some is looked into, so that it is the next time.
        """
        if self.whole:
            return True
        if isinstance(chosen, slice):
            first, last = chosen.start >> SHIFT, ((chosen.stop - 1) >> SHIFT) + 1
            if np.count_nonzero(self._table[first:last] != SOUND):
                self._look(first, last)
            is_known = not np.count_nonzero(self._table[first:last] != SOUND)
        else:
            blocks = chosen >> SHIFT
            marks = self._table[blocks]
            if not np.count_nonzero(marks != SOUND):
                return True
            unknown = blocks[marks < UNEVEN]
            if len(unknown):
                # Together with those behind it: so all are known soon, if it is all that are used.
                first = int(np.minimum.reduce(unknown))
                self._look(first, min(first + LOOKS, len(self.marks)))
            is_known = False
        # Counted, as another thread may look at the same blocks.
        self.whole = not np.count_nonzero(self._table != SOUND)
        return is_known

    def _look(self, first: int, last: int) -> None:
        """Looks blocks over: do their limits rise by the length, from where they should begin?"""
        start, stop = first << SHIFT, min(last << SHIFT, len(self.ends))
        found = self.ends[max(0, start - 1) : stop]
        expected = np.arange(stop - len(found) + 1, stop + 1) * self.length
        if bool((found == expected).all()) and (self.check is None or self.check(start, stop)):
            self._table[first:last] = SOUND
        elif last == first + 1:
            self._table[first] = UNEVEN
        else:
            for block in range(first, last):
                self._look(block, block + 1)


def as_slice(indices: Int64s) -> Int64s | slice:
    """Returns indices that follow one another as a slice, and others as they are."""
    count = len(indices)
    if count < 2 or int(indices[-1]) - int(indices[0]) != count - 1:
        return indices
    # So many integers over that distance that rise at all rise by one. (An eighth of what differences take.)
    if np.count_nonzero(indices[1:] > indices[:-1]) < count - 1:
        return indices
    return slice(int(indices[0]), int(indices[-1]) + 1)
