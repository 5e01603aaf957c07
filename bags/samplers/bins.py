"""Assigns lengths to few bins of a budget. No I/O.

One budget is packed from the histogram of the lengths, by best-fit decreasing: the longest datapoints first,
each into the fullest bin with enough space. Equal lengths and bins with equal space are handled together, so
that a million datapoints take as long as their distinct lengths: 20 ms for 8,192 of them.

With a maximum number of datapoints in a bin, best fit would leave bins of many short datapoints to the end.
Instead, the minimum number of bins is filled evenly: the longest datapoints first, each into the bin with the
most space, until the lengths are as short as the gaps that are left. Best fit packs the rest. The length at
which it begins, and the number of bins, are tried.

Several budgets are packed for the tightest one first. Bins that exceed another budget are packed again for
all budgets; if there are many such bins, everything is packed again. To pack for all budgets, the minimum
number of bins is filled in rounds. A round takes the next largest datapoints, one for each bin. A datapoint
that needs more of one budget than of the others goes to a bin with more of this budget left; among these,
larger datapoints go to emptier bins. Datapoints that do not fit are tried with other bins, and finally packed
into more bins in the same way.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bags.dataset.reading.batch import concat_ranges
from bags.indexing import Int64s

Floats = npt.NDArray[np.float64]

KEYS_16_BIT = 1 << 16  # Arrays of 16-bit keys are sorted in linear time.
SKEW_LEVELS = 8
"""Number of groups of similar skew in a round. More groups balance the budgets better, but the bins worse."""
PASSES = 8
MIN_PACKED = 0.1  # Share of the remaining datapoints that a pass must place for another pass to follow.
MAX_ROUNDS = 256
"""Mean number of datapoints in a bin above which small datapoints are packed in groups."""
MAX_EXCEEDING = 1 / 16
"""Maximum share of bins that are packed again; above it, packing everything again fills bins better."""
MAX_GROUP_SIZE = 1 / 8  # Share of a budget.
SLACKS = (0.0003, 0.001, 0.003, 0.01)
"""Shares of bins above the minimum that are tried, with a maximum number of datapoints in a bin."""
LIKE = 0.0002
"""Share of bins by which similar lengths may need more than those of the hint."""
EVEN_LENGTHS = (0.3, 0.25, 0.5, 1, 0.15, 0.4, 0.7, 1.4, 0)
"""Lengths below which best fit begins, relative to the budget of a datapoint; tried in this order."""


class Histogram(NamedTuple):
    """The numbers of datapoints of each length."""

    lengths: list[int]
    """Distinct lengths, the longest first."""
    counts: list[int]

    @classmethod
    def of(cls, lengths: npt.NDArray[np.integer], budget: int) -> Histogram:
        """Returns the histogram of lengths from 0 to the budget."""
        if budget <= 4 * len(lengths):
            counts = np.bincount(lengths, minlength=1)
            values = np.flatnonzero(counts)
            counts = counts[values]
        else:
            values, counts = np.unique(lengths, return_counts=True)
        return cls(values[::-1].tolist(), counts[::-1].tolist())


class Fit:
    """Packs the datapoints of a histogram into bins, as steps; a maximum of `cap` datapoints in a bin.

    A state of bins is an integer: their space in the budget, times `unit`, plus the number of datapoints that
    may follow. Without a cap, this number stays 1.
    """

    def __init__(self, budget: int, cap: int | None) -> None:
        self.budget = budget
        self.items = 1 if cap is None else cap
        self.unit = self.items + 1
        self.used = 0 if cap is None else 1
        self.empty = budget * self.unit + self.items
        self.full = 1 if cap is None else 0
        """The largest state that is full, beside states without further datapoints."""
        self.states: dict[int, int] = {}
        """Number of bins that are not full, by their state."""
        self.steps: list[tuple[int, int, int, int]] = []
        """The state of some bins, or -1 for new ones; how many there are; the number of datapoints that each
        gets; and the length of these datapoints."""
        self.bins = 0

    def fill_evenly(self, lengths: list[int], counts: list[int], bins: int, shortest: float) -> int:
        """Opens bins, and puts the longest datapoints into the bins with the most space.

        Args:
            lengths, counts: A histogram. The count of the first length that is not packed is set to the rest.
            bins: Number of bins to open.
            shortest: Stops at shorter lengths, and at lengths that do not fit.

        Returns:
            The position of the first length that is not packed.
        """
        states, unit, used, steps = self.states, self.unit, self.used, self.steps
        steps.append((-1, bins, 0, 0))
        self.bins = bins
        states[self.empty] = bins
        heap = [-self.empty]
        for position, (length, count) in enumerate(zip(lengths, counts, strict=True)):
            if length < shortest:
                return position
            need = length * unit
            while count:
                state = -heap[0] if heap else -1
                if state < need:
                    counts[position] = count
                    return position
                number = states[state]
                taken = min(number, count)
                count -= taken
                steps.append((state, taken, 1, length))
                if taken == number:
                    heapq.heappop(heap)
                    del states[state]
                else:
                    states[state] = number - taken
                state -= need + used
                if state in states:
                    states[state] += taken
                elif state % unit:
                    states[state] = taken
                    heapq.heappush(heap, -state)
        return len(lengths)

    def best_fit(self, lengths: list[int], counts: list[int]) -> None:
        """Puts datapoints into the bins with the least space that is enough, and into new bins."""
        states, unit, used, full, steps = self.states, self.unit, self.used, self.full, self.steps
        ordered = sorted(states)
        for length, count in zip(lengths, counts, strict=True):
            need = length * unit
            while count:
                position = bisect_left(ordered, need)
                if position == len(ordered):
                    self._open(length, count, ordered)
                    break
                state = ordered[position]
                number = states[state]
                if number <= count:
                    taken = number
                    del states[state], ordered[position]
                else:
                    taken = count
                    states[state] = number - count
                steps.append((state, taken, 1, length))
                count -= taken
                state -= need + used
                if state in states:
                    states[state] += taken
                elif state > full and state % unit:
                    states[state] = taken
                    insort(ordered, state)

    def _open(self, length: int, count: int, ordered: list[int]) -> None:
        """Puts datapoints of one length into new bins."""
        per_bin = self.budget // length if length else count
        per_bin = min(per_bin, self.items) if self.used else per_bin
        for items, bins in ((per_bin, count // per_bin), (count % per_bin, 1)):
            if items and bins:
                self.steps.append((-1, bins, items, length))
                self.bins += bins
                state = self.empty - items * (length * self.unit + self.used)
                if state in self.states:
                    self.states[state] += bins
                elif state > self.full and state % self.unit:
                    self.states[state] = bins
                    insort(ordered, state)

    def runs(self) -> tuple[Int64s, Int64s]:
        """Returns first bins and numbers of bins: consecutive bins get the next datapoints, one each.

        Datapoints are in the order of their lengths, the longest first.
        """
        firsts: list[int] = []
        numbers: list[int] = []
        pending: dict[int, list[tuple[int, int]]] = {}  # Runs of bins, by their state.
        total = 0
        for state, bins, items, length in self.steps:
            change = items * (length * self.unit + self.used)
            if state < 0:
                firsts += [total] * items
                numbers += [bins] * items
                pending.setdefault(self.empty - change, []).append((total, bins))
                total += bins
                continue
            before, after = pending[state], pending.setdefault(state - change, [])
            while bins:
                first, number = before.pop()
                taken = min(number, bins)
                if taken < number:
                    before.append((first + taken, number - taken))
                firsts.append(first)
                numbers.append(taken)
                after.append((first, taken))
                bins -= taken
        return np.array(firsts, np.int64), np.array(numbers, np.int64)


def fit(
    histogram: Histogram, budget: int, cap: int | None = None, hint: tuple[int, float] = (0, 1)
) -> tuple[Fit, tuple[int, float]]:
    """Packs lengths for one budget.

    Args:
        histogram: Lengths from 0 to the budget; without a cap, above 0.
        budget: Budget of a bin.
        cap: Maximum number of datapoints in a bin.
        hint: The second result for similar lengths. What led to it is tried first, and suffices.

    Returns:
        The bins; and what was tried that led to them, and their number divided by the minimum.
    """
    lengths, counts = histogram
    shortest = min((length for length in lengths if length), default=1)
    if cap is None or (budget // shortest <= cap and 0 not in lengths):
        simple = Fit(budget, None)
        simple.best_fit(lengths, counts)
        return simple, hint
    tokens = sum(length * count for length, count in zip(lengths, counts, strict=True))
    total = sum(counts)
    # Datapoints that fill a bin by themselves leave no space for others.
    alone = sum(count for length, count in zip(lengths, counts, strict=True) if length + lengths[-1] > budget)
    least = max(-(-tokens // budget), alone - (-(total - alone) // cap), 1)
    # If the number of datapoints is what fills bins, all of them are packed evenly.
    is_even = total * budget >= tokens * cap
    evens = sorted(EVEN_LENGTHS, key=lambda even: even > 0) if is_even else EVEN_LENGTHS
    tries = [(slack, even) for even in evens for slack in SLACKS]
    best: Fit | None = None
    number = 0
    for chosen in sorted(range(len(tries) + 1), key=lambda chosen: chosen != hint[0]):
        tried = Fit(budget, cap)
        left, position = [*counts], 0
        if chosen < len(tries):
            slack, even = tries[chosen]
            bins = min(total, least + int(least * slack))
            if best is not None and bins >= best.bins:
                continue
            position = tried.fill_evenly(lengths, left, bins, even * budget / cap)
        tried.best_fit(lengths[position:], left[position:])
        if tried.empty not in tried.states and (best is None or tried.bins < best.bins):
            best, number = tried, chosen
        if best is not None and best.bins <= least * max(hint[1] * (1 + LIKE), 1 + SLACKS[0]) + 1:
            break
    assert best is not None
    return best, (number, best.bins / least)


def pack_bins(lengths: Int64s, budgets: Int64s) -> tuple[Int64s, int]:
    """Assigns datapoints to few bins, within several budgets.

    Args:
        lengths: Length of each datapoint for each budget, shape (n, budgets), from 0 to the budget.
        budgets: Budgets of a bin, shape (budgets,).

    Returns:
        The bin of each datapoint, shape (n,), and the number of bins, which are not empty.
    """
    if not len(lengths):
        return np.empty(0, np.int64), 0
    tightest = int((lengths.sum(0) / budgets).argmax())
    bins, count = fit_each(lengths[:, tightest], int(budgets[tightest]))
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


def fit_each(lengths: Int64s, budget: int) -> tuple[Int64s, int]:
    """Packs for one budget; returns the bin of each datapoint, shape (n,), and the number of bins."""
    packed, _ = fit(Histogram.of(lengths[lengths > 0], budget), budget)
    order = np.argsort(-lengths, kind='stable')
    assigned = np.empty(len(lengths), np.int64)
    assigned[order] = place(packed, len(lengths))
    return assigned, max(packed.bins, 1)


def place(packed: Fit, count: int) -> Int64s:
    """Returns the bins of `count` datapoints, the longest first, shape (count,).

    Datapoints of length 0 that were not packed are distributed over all bins.
    """
    placed = concat_ranges(*packed.runs())
    return np.concatenate([placed, np.arange(count - len(placed)) % max(packed.bins, 1)])


def _in_groups(lengths: Int64s, budgets: Int64s) -> tuple[Int64s, int]:
    """Packs for several budgets; packs small datapoints in groups if bins have very many datapoints."""
    order = np.argsort(-(lengths / budgets).max(1), kind='stable')
    lengths = lengths[order]
    # Limits the number of groups for each bin.
    size = 2 * len(lengths) // (MAX_ROUNDS * _bin_count(lengths, budgets))
    large = np.count_nonzero((lengths * size > MAX_GROUP_SIZE * budgets).any(1)) if size > 1 else len(lengths)
    starts = np.concatenate([np.arange(large), np.arange(large, len(lengths), max(size, 1))])
    bins, total = _in_rounds(np.add.reduceat(lengths, starts, axis=0), budgets)
    assigned = np.empty(len(lengths), np.int64)
    assigned[order] = np.repeat(bins, np.diff(starts, append=len(lengths)))
    return assigned, total


def _bin_count(lengths: Int64s, budgets: Int64s) -> int:
    """Returns a lower bound for the number of bins."""
    above_half = np.count_nonzero(2 * lengths > budgets, axis=0)
    return max(1, int((-(-lengths.sum(0) // budgets)).max()), int(above_half.max()))


def _in_rounds(lengths: Int64s, budgets: Int64s) -> tuple[Int64s, int]:
    """Packs for several budgets, in rounds of new bins until all datapoints are placed."""
    assigned, total = np.empty(len(lengths), np.int64), 0
    left = np.argsort(-(lengths / budgets).max(1), kind='stable')
    while len(left):
        count = _bin_count(lengths[left], budgets)
        bins = _fill(lengths[left], budgets, count)
        placed = bins >= 0  # At least the first datapoints, which went into empty bins.
        assigned[left[placed]] = total + bins[placed]
        total += count
        left = left[~placed]
    return assigned, total


def _fill(lengths: Int64s, budgets: Int64s, count: int) -> Int64s:
    """Fills `count` bins with datapoints, the largest first; returns the bin of each datapoint, or -1."""
    assigned = np.full(len(lengths), -1)
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
            assigned[chosen] = bins
            space[bins] -= lengths[chosen]
        before, left = len(left), np.flatnonzero(assigned < 0)
        if len(left) > (1 - MIN_PACKED) * before:
            break
    return assigned


def _ranked(sizes: Floats, budget: int) -> Int64s:
    """Returns the order of rows: by groups of similar skew to one budget, and by sum within a group."""
    sums = sizes.sum(1)
    skew = sizes[:, budget] * sizes.shape[1] - sums
    groups = np.empty(len(sizes), np.uint16)
    groups[np.argsort(_keys(skew, KEYS_16_BIT), kind='stable')] = (
        np.arange(len(sizes)) * SKEW_LEVELS // len(sizes)
    )
    width = KEYS_16_BIT // SKEW_LEVELS
    return np.argsort(groups * np.uint16(width) + _keys(sums, width), kind='stable')


def _keys(values: Floats, count: int) -> npt.NDArray[np.uint16]:
    """Returns values as integers in range(count)."""
    low, high = float(values.min()), float(values.max())
    return ((values - low) * ((count - 1) / (high - low) if high > low else 0)).astype(np.uint16)
