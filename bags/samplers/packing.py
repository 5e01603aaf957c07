"""Bins of datapoints that fill a budget, e.g. of tokens, or several budgets, for training without padding.

One budget is packed by best-fit decreasing over the counts of equal lengths: the longest datapoints first,
each into the fullest bin with enough space. Equal lengths and equal bins are handled together.

Several budgets are packed for the tightest one first. Bins that exceed another budget are packed again for
all budgets; if there are many such bins, everything is packed again. To pack for all budgets, the minimum
number of bins is filled in rounds. A round takes the next largest datapoints, one for each bin. A datapoint
that needs more of one budget than of the others goes to a bin with more of this budget left; among these,
larger datapoints go to emptier bins. Datapoints that do not fit are tried with other bins, and finally packed
into more bins in the same way.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bags.dataset.reading.batch import Ragged, concat_ranges
from bags.indexing import Int64s, offsets_of
from bags.samplers.permutation import permuted
from bags.validation import at_least, integer

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


class Packed:
    """Each datapoint once, in bins whose lengths together fill a budget.

    A position is a bin, so the `batch_size` of a loader counts bins. All bins are planned when the sampler is
    created, from the lengths alone, which takes a second for a million datapoints. Each epoch has the bins
    in another random order, and exchanges datapoints of equal lengths.

    The loader adds two columns to each batch: `_datapoint`, the index of each datapoint, int64 (n,), and
    `_bin`, its bin within the batch, int32 (n,).

    Args:
        budget: Maximum number of items in a bin; for several budgets, a mapping of names to numbers, e.g.
            `{'tokens': 8192, 'images': 16}`.
        lengths: Number of items of each datapoint, as `dataset.lengths(field)` returns it from the refs
            alone; for several budgets, a mapping with the same names.
        seed: Seed of the order, with the epoch.

    Raises:
        ValueError: A datapoint is longer than the budget, a length is negative, or lengths differ in number
            or names.
        TypeError: Lengths are not integers.

    Examples:
        >>> sampler = bags.samplers.Packed(12, dataset.lengths('state'))
        >>> batch = next(iter(bags.Loader(dataset, 2, fields='state', sampler=sampler)))
        >>> batch['_bin'], len(batch['state'].values)
        (array([0, 1, 1], dtype=int32), 18)
    """

    per_datapoint = 'lengths'

    def __init__(self, budget: int | Mapping[str, int], lengths: Any, seed: int = 0) -> None:
        budgets: Mapping[Any, int] = budget if isinstance(budget, Mapping) else {None: budget}
        columns: Mapping[Any, Any] = lengths if isinstance(lengths, Mapping) else {None: lengths}
        if not budgets or set(budgets) != set(columns):
            raise ValueError(
                f'budget, lengths: expected one of each, or mappings with the same names, '
                f'got {budget!r:.80} and {lengths!r:.80}'
            )
        limits, checked = [], []
        for name in budgets:
            key = '' if name is None else f'[{name!r}]'
            limits.append(at_least(f'budget{key}', budgets[name], 1))
            checked.append(_checked(f'lengths{key}', columns[name], limits[-1]))
            if len(checked[-1]) != len(checked[0]):
                raise ValueError(
                    f'lengths{key}: expected one for each of {len(checked[0])} datapoints, '
                    f'got {len(checked[-1])}'
                )
        self.budget = dict(zip(budgets, limits, strict=True)) if isinstance(budget, Mapping) else limits[0]
        self.seed = integer('seed', seed)
        sizes = np.stack(checked, axis=1)
        self.datapoints = len(sizes)
        self._mark = zlib.crc32(sizes.tobytes())
        totals = sizes.sum(0).tolist()
        # A budget above the sum of all lengths is equivalent to the sum.
        most = [min(limit, max(1, total)) for limit, total in zip(limits, totals, strict=True)]
        self._sizes = sizes
        # Shuffled first: in sorted order, datapoints that are large in another budget would share bins.
        mixed = permuted(np.arange(self.datapoints), self.datapoints, 0)
        bins = np.empty(self.datapoints, np.int64)
        bins[mixed], self.bins = pack_bins(sizes[np.lexsort(sizes.T)][mixed], np.array(most, np.int64))
        fill = [total / (limit * max(1, self.bins)) for limit, total in zip(limits, totals, strict=True)]
        self.fill = dict(zip(budgets, fill, strict=True)) if isinstance(budget, Mapping) else fill[0]
        """Mean share of the budget that the bins use; a mapping for several budgets."""
        mean = [total / max(1, self.bins) for total in totals]
        self.mean = dict(zip(budgets, mean, strict=True)) if isinstance(budget, Mapping) else mean[0]
        """Mean number of items in a bin; a mapping for several budgets."""
        # Positions in the order of lengths. An epoch permutes datapoints of equal lengths.
        self._positions = mixed[np.argsort(bins[mixed], kind='stable')]
        self._offsets = offsets_of(np.bincount(bins, minlength=self.bins))
        self._last: tuple[int, Int64s] = (-1, bins)

    def __len__(self) -> int:
        return self.bins

    def _members(self, epoch: int) -> Int64s:
        """Returns the datapoint at each position."""
        last_epoch, datapoints = self._last
        if last_epoch != epoch:
            order = permuted(np.arange(self.datapoints), self.datapoints, self.seed, epoch)
            datapoints = order[np.lexsort(self._sizes[order].T)]
            self._last = (epoch, datapoints)
        return datapoints

    def take(self, epoch: int, positions: Int64s) -> Ragged:
        """Returns the datapoints of the bins at some positions of an epoch."""
        bins = permuted(np.reshape(positions, -1), self.bins, self.seed, epoch, 1)
        counts = self._offsets[bins + 1] - self._offsets[bins]
        chosen = self._positions[concat_ranges(self._offsets[bins], counts)]
        return Ragged(self._members(epoch)[chosen], offsets_of(counts))

    def __repr__(self) -> str:
        return f'Packed({self.budget}, {self.datapoints} lengths #{self._mark:08x}, seed={self.seed})'


def _checked(name: str, lengths: Any, budget: int) -> Int64s:
    """Checks lengths, and returns them as an array."""
    values = np.asarray(lengths)
    if values.ndim != 1 or (values.dtype.kind not in 'iu' and len(values)):
        raise TypeError(
            f'{name}: expected one dimension of integers, got {values.ndim} dimensions of {values.dtype}'
        )
    for wrong, expected in (
        (values < 0, 'at least 0'),
        (values > budget, f'at most the budget of {budget}'),
    ):
        if wrong.any():
            index = int(wrong.argmax())
            raise ValueError(f'{name}: expected {expected}, got {values[index]} for datapoint {index}')
    return values.astype(np.int64)


def pack_bins(lengths: Int64s, budgets: Int64s) -> tuple[Int64s, int]:
    """Assigns datapoints to few bins, within the budgets.

    Args:
        lengths: Length of each datapoint for each budget, shape (n, budgets), from 0 to the budget.
        budgets: Budgets of a bin, shape (budgets,).

    Returns:
        The bin of each datapoint, shape (n,), and the number of bins, which are not empty.
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
    """Packs for one budget, by best-fit decreasing."""
    values, counts = np.unique(lengths, return_counts=True)
    runs: list[tuple[int, int]] = []
    """First bin and number of bins that get one datapoint each: the longest datapoints first."""
    spaces: list[int] = []  # Spaces of bins that are not full, sorted.
    bins: dict[int, list[tuple[int, int]]] = {}  # Runs of bins, by their space.
    total = 0

    def keep(space: int, run: tuple[int, int]) -> None:
        if space and space not in bins:
            insort(spaces, space)
        if space:
            bins.setdefault(space, []).append(run)

    for length, count in zip(values[::-1].tolist(), counts[::-1].tolist(), strict=True):
        while length and count:
            position = bisect_left(spaces, length)
            if position == len(spaces):
                per_bin = budget // length
                for items, new in ((per_bin, count // per_bin), (count % per_bin, 1)):
                    if items and new:
                        runs += [(total, new)] * items
                        keep(budget - items * length, (total, new))
                        total += new
                break
            space = spaces[position]
            first, number = bins[space].pop()
            taken = min(number, count)
            if taken < number:
                bins[space].append((first + taken, number - taken))
            elif not bins[space]:
                del bins[space], spaces[position]
            runs.append((first, taken))
            keep(space - length, (first, taken))
            count -= taken
    order = np.argsort(-lengths, kind='stable')
    total = max(total, 1)
    firsts, numbers = np.array(runs, np.int64).reshape(-1, 2).T
    placed = concat_ranges(firsts, numbers)
    empty = np.arange(len(lengths) - len(placed)) % total  # Datapoints of length 0.
    assigned = np.empty(len(lengths), np.int64)
    assigned[order] = np.concatenate([placed, empty])
    return assigned, total


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
