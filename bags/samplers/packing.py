"""Bin packing of a million lengths: which bin each goes into, for one budget or several. No I/O, no chance.

For one budget, best-fit decreasing over the counts of equal lengths: the longest first, each into the fullest
bin that has room, all lengths and bins that are equal at once.

For several budgets, the tightest is packed alone. The bins that then exceed another budget are packed again
for all budgets, or everything is if these are many. For that, a number of bins that could just hold all is
filled in rounds. A round takes the next largest datapoints, one for each bin, and gives those that need
more of one budget than of the others to the bins that have more of it left, and among these the larger to
the emptier. Datapoints that then do not fit are tried again with other bins, and at last packed into more
bins in the same way.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np
import numpy.typing as npt

from bags.dataset.batch import spread
from bags.indexing import Int64s

__all__ = ['pack_bins']

Floats = npt.NDArray[np.float64]

KEYS = 1 << 16  # Arrays of 16-bit keys are sorted in linear time.
SKEW_LEVELS = 8
"""Groups of similar skew in a round: more balance the budgets better, and the bins worse."""
PASSES = 8
MIN_PLACED = 0.1  # Share of the datapoints left that a pass must place for another one to follow.
MAX_ROUNDS = 256
"""Datapoints of a bin, on average, above which small ones are packed several at a time."""
MAX_EXCEEDING = 1 / 16
"""Share of bins for one budget that are packed again; above it, those for all budgets are fuller."""
MAX_GROUP_SIZE = 1 / 8  # Of a budget.


def pack_bins(lengths: Int64s, budgets: Int64s) -> tuple[Int64s, int]:
    """Assigns datapoints to few bins, within the budgets.

    Args:
        lengths: Of each datapoint by each budget, shape (n, budgets), from 0 to the budget.
        budgets: Of a bin, shape (budgets,).

    Returns:
        The bin of each datapoint, shape (n,), and the number of bins. None is empty.
    """
    if not len(lengths):
        return np.empty(0, np.int64), 0
    tightest = int((lengths.sum(0) / budgets).argmax())
    bins, count = _best_fit(lengths[:, tightest], int(budgets[tightest]))
    if len(budgets) == 1:
        return bins, count
    order = np.argsort(bins, kind='stable')
    sums = np.add.reduceat(lengths[order], np.flatnonzero(np.diff(bins[order], prepend=-1)), axis=0)
    exceeds = np.any(sums > budgets, axis=1)
    if exceeds.mean() > MAX_EXCEEDING:
        return _in_groups(lengths, budgets)
    again = exceeds[bins]  # Datapoints.
    if again.any():
        bins = (np.cumsum(~exceeds) - 1)[bins]
        count -= int(exceeds.sum())
        bins[again], more = _in_groups(lengths[again], budgets)
        bins[again] += count
        count += more
    return bins, count


def _best_fit(lengths: Int64s, budget: int) -> tuple[Int64s, int]:
    """Packs for one budget."""
    values, counts = np.unique(lengths, return_counts=True)
    runs: list[tuple[int, int]] = []
    """First bin and number of bins, each of which gets one datapoint: the longest datapoints first."""
    spaces: list[int] = []  # Of bins that are not full, sorted.
    bins: dict[int, list[tuple[int, int]]] = {}  # By their space: runs of bins.
    total = 0

    def keep(space: int, run: tuple[int, int]) -> None:
        if space and space not in bins:
            insort(spaces, space)
        if space:
            bins.setdefault(space, []).append(run)

    for length, count in zip(values[::-1].tolist(), counts[::-1].tolist(), strict=True):
        while length and count:
            place = bisect_left(spaces, length)
            if place == len(spaces):
                each = budget // length
                for items, new in ((each, count // each), (count % each, 1)):
                    if items and new:
                        runs += [(total, new)] * items
                        keep(budget - items * length, (total, new))
                        total += new
                break
            space = spaces[place]
            first, number = bins[space].pop()
            taken = min(number, count)
            if taken < number:
                bins[space].append((first + taken, number - taken))
            elif not bins[space]:
                del bins[space], spaces[place]
            runs.append((first, taken))
            keep(space - length, (first, taken))
            count -= taken
    order = np.argsort(-lengths, kind='stable')
    total = max(total, 1)
    firsts, numbers = np.array(runs, np.int64).reshape(-1, 2).T
    placed = spread(firsts, numbers)
    empty = np.arange(len(lengths) - len(placed)) % total  # Datapoints of length 0.
    found = np.empty(len(lengths), np.int64)
    found[order] = np.concatenate([placed, empty])
    return found, total


def _in_groups(lengths: Int64s, budgets: Int64s) -> tuple[Int64s, int]:
    """Packs for several budgets: small datapoints in groups, if a bin has very many."""
    order = np.argsort(-(lengths / budgets).max(1), kind='stable')
    lengths = lengths[order]
    # Not more groups than so many for each bin.
    size = 2 * len(lengths) // (MAX_ROUNDS * _bin_count(lengths, budgets))
    large = np.count_nonzero((lengths * size > MAX_GROUP_SIZE * budgets).any(1)) if size > 1 else len(lengths)
    starts = np.concatenate([np.arange(large), np.arange(large, len(lengths), max(size, 1))])
    bins, total = _in_rounds(np.add.reduceat(lengths, starts, axis=0), budgets)
    found = np.empty(len(lengths), np.int64)
    found[order] = np.repeat(bins, np.diff(starts, append=len(lengths)))
    return found, total


def _bin_count(lengths: Int64s, budgets: Int64s) -> int:
    """Returns a number of bins below which there cannot be enough space for lengths."""
    above_half = np.count_nonzero(2 * lengths > budgets, axis=0)
    return max(1, int((-(-lengths.sum(0) // budgets)).max()), int(above_half.max()))


def _in_rounds(lengths: Int64s, budgets: Int64s) -> tuple[Int64s, int]:
    """Packs for several budgets."""
    found, total = np.empty(len(lengths), np.int64), 0
    left = np.argsort(-(lengths / budgets).max(1), kind='stable')
    while len(left):
        count = _bin_count(lengths[left], budgets)
        bins = _fill(lengths[left], budgets, count)
        placed = bins >= 0  # At least the first ones, which went into empty bins.
        found[left[placed]] = total + bins[placed]
        total += count
        left = left[~placed]
    return found, total


def _fill(lengths: Int64s, budgets: Int64s, count: int) -> Int64s:
    """Fills a number of bins with datapoints, the largest first; returns the bin of each, -1 for none."""
    found = np.full(len(lengths), -1)
    space = np.tile(budgets, (count, 1))
    left = np.arange(len(lengths))
    for _ in range(PASSES):
        for number, start in enumerate(range(0, len(left), count)):
            chosen = left[start : start + count]
            bins = np.arange(count)
            if len(chosen) < count:
                bins = np.argsort(-(space / budgets).min(1), kind='stable')[: len(chosen)]
            budget = number % len(budgets)
            chosen = chosen[_ranked(lengths[chosen] / budgets, budget)]
            bins = bins[_ranked(space[bins] / budgets, budget)]
            fits = (lengths[chosen] <= space[bins]).all(1)
            chosen, bins = chosen[fits], bins[fits]
            found[chosen] = bins
            space[bins] -= lengths[chosen]
        before, left = len(left), np.flatnonzero(found < 0)
        if len(left) > (1 - MIN_PLACED) * before:
            break
    return found


def _ranked(sizes: Floats, budget: int) -> Int64s:
    """Returns rows in order of their skew to one budget, in groups, and of their sum within a group."""
    sums = sizes.sum(1)
    skew = sizes[:, budget] * sizes.shape[1] - sums
    groups = np.empty(len(sizes), np.uint16)
    groups[np.argsort(_keys(skew, KEYS), kind='stable')] = np.arange(len(sizes)) * SKEW_LEVELS // len(sizes)
    width = KEYS // SKEW_LEVELS
    return np.argsort(groups * np.uint16(width) + _keys(sums, width), kind='stable')


def _keys(values: Floats, count: int) -> npt.NDArray[np.uint16]:
    """Returns values as integers in range(count)."""
    low, high = float(values.min()), float(values.max())
    return ((values - low) * ((count - 1) / (high - low) if high > low else 0)).astype(np.uint16)
