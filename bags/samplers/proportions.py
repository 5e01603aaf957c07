"""`Proportions`: divides positions over sources in exact shares, each source spread evenly. No I/O.

The sources are the leaves of a binary tree, in which sources of small shares are joined first. At each node,
the positions of the node are divided between both sides by rounding their share of the positions so far:

    shares 3 : 1 : 4          positions      0 1 2 3 4 5 6 7
         8                    of the third   x   x   x   x        round(4 / 8 * position)
       4   4                  of the first     x   x       x      round(3 / 4 * position), of those left
      3 1                     of the second            x

So the source of a position, and the number of its earlier positions, take a few operations for each level of
the tree. Nothing is stored but the shares, and for a short cycle a table of its positions.
"""

from __future__ import annotations

import fractions
import heapq
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bags.concurrency import cached_attribute
from bags.indexing import Int64s

Int32s = npt.NDArray[np.int32]

TABLE_LENGTH = 1 << 14
"""Maximum length of a cycle that is tabulated: 2,048 positions of 4 sources then take 77 us, else 230."""
MAX_CYCLE = 1 << 30
"""Approximate maximum length of a cycle: products of two positions within a cycle must fit int64."""


class Proportions:
    """The source of each position, for a number of positions of each source in a cycle.

    Args:
        counts: Positions of each source in a cycle, not all 0, with a sum of at most about `MAX_CYCLE`.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        self.counts = list(counts)
        self._counts = np.array(self.counts, np.int64)
        heap = [(count, number) for number, count in enumerate(self.counts) if count]
        heapq.heapify(heap)
        self._sides: dict[int, tuple[int, int, int, int]] = {}
        """The nodes and counts of both sides of each inner node. Nodes below `len(counts)` are sources."""
        while len(heap) > 1:
            (first_count, first), (second_count, second) = heapq.heappop(heap), heapq.heappop(heap)
            node = len(self.counts) + len(self._sides)
            self._sides[node] = first, second, first_count, second_count
            heapq.heappush(heap, (first_count + second_count, node))
        self._root = heap[0][1]
        self._cycle = heap[0][0]

    @cached_attribute
    def _table(self) -> tuple[Int32s, Int32s]:
        """The source of each position of a cycle, and the number of its earlier positions in the cycle."""
        sources, earlier = self._divide(np.arange(self._cycle))
        return sources.astype(np.int32), earlier.astype(np.int32)

    def locate(self, positions: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the source of each position, and the number of its earlier positions.

        Args:
            positions: From 0 to 2^62, shape (n,).
        """
        if self._cycle > TABLE_LENGTH:
            return self._divide(positions)
        sources, earlier = self._table
        cycles, slots = np.divmod(positions, self._cycle)
        found = sources[slots].astype(np.int64)
        return found, cycles * self._counts[found] + earlier[slots]

    def _divide(self, positions: Int64s) -> tuple[Int64s, Int64s]:
        """As `locate`, by the tree."""
        sources, earlier = np.empty((2, len(positions)), np.int64)
        pending = [(self._root, np.arange(len(positions)), positions)]
        while pending:
            node, rows, within = pending.pop()
            if not len(rows):
                continue
            if node not in self._sides:
                sources[rows], earlier[rows] = node, within
                continue
            first, second, count, other = self._sides[node]
            cycle = count + other
            cycles, slots = np.divmod(within, cycle)
            before = (slots * count + cycle // 2) // cycle
            is_first = ((slots + 1) * count + cycle // 2) // cycle > before
            before += cycles * count
            is_second = ~is_first
            pending.append((first, rows[is_first], before[is_first]))
            pending.append((second, rows[is_second], (within - before)[is_second]))
        return sources, earlier

    def before(self, position: int) -> Int64s:
        """Returns the number of positions of each source before a position, shape (sources,)."""
        totals = np.zeros(len(self.counts), np.int64)
        pending = [(self._root, position)]
        while pending:
            node, total = pending.pop()
            if node not in self._sides:
                totals[node] = total
                continue
            first, second, count, other = self._sides[node]
            cycles, slots = divmod(total, count + other)
            share = cycles * count + (slots * count + (count + other) // 2) // (count + other)
            pending += [(first, share), (second, total - share)]
        return totals


def integers_of(shares: Sequence[fractions.Fraction], limit: int = MAX_CYCLE) -> list[int]:
    """Returns integers in the proportions of shares, rounded if their sum would exceed a limit."""
    total = sum(shares)
    common = math.lcm(*(share.denominator for share in shares))
    counts = [int(share * common) for share in shares]
    divisor = math.gcd(*counts)
    if sum(counts) // divisor <= limit:
        return [count // divisor for count in counts]
    return [max(int(share > 0), round(share * limit / total)) for share in shares]
