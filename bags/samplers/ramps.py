"""Proportions of datasets that change linearly over a run: which dataset is at a position. No I/O.

Until position p, dataset i is due W_i(p) times: its share, summed over the positions before. Its item number
j comes where W_i reaches j + 1/2, and positions take all items in the order in which they are due. So each
dataset is never more than about one item for each other dataset away from its proportion.

Items are sorted block by block. Blocks begin at the given positions and every `BLOCK_POSITIONS` after them;
how many items of each dataset come before a block is computed with fractions, and so is the same always.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np

from bags.indexing import Int64s

__all__ = ['Ramp']

BLOCK_POSITIONS = 1 << 12


class Ramp:
    """The schedule of a mixture whose proportions change.

    Args:
        shares: Of each dataset, of sum 1, at some positions; linear between these, and constant before the
            first and after the last.
    """

    def __init__(self, shares: Mapping[int, Sequence[Fraction]]) -> None:
        first = min(shares)
        points = sorted({0: shares[first], **shares}.items())
        self._points = np.array([position for position, _ in points], np.int64)
        self._shares = [list(values) for _, values in points]
        self._slopes = [
            [(after - before) / (stop - start) for before, after in zip(low, high, strict=True)]
            for (start, low), (stop, high) in pairwise(points)
        ]
        datasets = len(shares[first])
        self._slopes.append([Fraction(0)] * datasets)
        self._dues = [[Fraction(0)] * datasets]  # At each point.
        for number, (start, stop) in enumerate(pairwise(self._points.tolist())):
            self._dues.append(self._due(number, stop - start))
        self._block = max(BLOCK_POSITIONS, 4 * datasets)

    def _due(self, number: int, after: int) -> list[Fraction]:
        """Returns how often each dataset is due until so many positions after a point."""
        values = zip(self._dues[number], self._shares[number], self._slopes[number], strict=True)
        return [due + after * share + slope * after * after / 2 for due, share, slope in values]

    def place(self, positions: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the dataset at each position of a run, and how many of its items came before."""
        owners, ranks = np.zeros((2, *np.shape(positions)), np.int64)
        if not positions.size:
            return owners, ranks
        # Rounding moves the items of a block by half a position for each dataset at most.
        reach = len(self._shares[0])
        low, high = np.maximum(positions - reach, 0), positions + reach
        points = self._points[(self._points >= low.min()) & (self._points <= high.max())]
        for start in np.unique(np.concatenate([self._starts(low), self._starts(high), points])).tolist():
            first, block_owners, block_ranks = self._items(start)
            inside = (positions >= first) & (positions < first + len(block_owners))
            owners[inside] = block_owners[positions[inside] - first]
            ranks[inside] = block_ranks[positions[inside] - first]
        return owners, ranks

    def _starts(self, positions: Int64s) -> Int64s:
        """Returns where the blocks of positions begin."""
        starts = self._points[np.searchsorted(self._points, positions.reshape(-1), 'right') - 1]
        return starts + (positions.reshape(-1) - starts) // self._block * self._block

    def _items(self, start: int) -> tuple[int, Int64s, Int64s]:
        """Returns the first position of the items of a block, the dataset of each, and its number there."""
        number = int(np.searchsorted(self._points, start, 'right')) - 1
        point = int(self._points[number])
        stop = start + self._block
        if number + 1 < len(self._points):
            stop = min(stop, int(self._points[number + 1]))
        dues = self._due(number, start - point)
        befores = [int(due + Fraction(1, 2)) for due in dues]
        afters = [int(due + Fraction(1, 2)) for due in self._due(number, stop - point)]
        owners = np.repeat(np.arange(len(dues)), np.subtract(afters, befores))
        ranks = np.concatenate(
            [np.arange(before, after) for before, after in zip(befores, afters, strict=True)]
        )
        # Where share * x + slope * x * x / 2 = missing.
        slopes = np.array(self._slopes[number], np.float64)[owners]
        shares = np.array(self._shares[number], np.float64)[owners] + slopes * (start - point)
        offsets = np.array(
            [float(before + Fraction(1, 2) - due) for before, due in zip(befores, dues, strict=True)]
        )
        missing = offsets[owners] + (ranks - np.array(befores)[owners])
        roots = np.sqrt(np.maximum(0, shares * shares + 2 * slopes * missing))
        order = np.argsort(2 * missing / np.maximum(shares + roots, 1e-300), kind='stable')
        return sum(befores), owners[order], ranks[order]
