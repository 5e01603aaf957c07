"""`Packed`: bins of datapoints that fill a budget, e.g. of tokens, for training without padding.

Datapoints are divided into up to 64 blocks. The number of bins of each block is known at once, from the
histogram of its lengths. Which datapoints are in which bin is planned when a position of the block is taken:

    datapoints     0 … 63 | 64 … 127 | 128 … 191 | 192 … 255 | …      groups of 64
    block          0      | 1        | 0         | 1         | …      of two blocks
    epoch          the blocks in random order, and the bins of each in random order

So the datapoints of a block come from the whole dataset, and an epoch of 10⁸ datapoints begins at once.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from bags.dataset.reading.batch import Ragged, concat_ranges
from bags.indexing import Int64s, offsets_of
from bags.samplers.bins import Histogram, fit, pack_bins, place
from bags.samplers.permutation import permuted
from bags.samplers.pieces import Pieces, join_positions
from bags.validation import at_least, at_least_or_none, integer, item_count, one_of

Integers = npt.NDArray[np.integer[Any]]
Longer = Literal['error', 'drop', 'cut']

GROUP_LENGTH = 64
"""Number of consecutive datapoints in one block: 64 lengths of 4 bytes are a few cache lines."""
BLOCK_LENGTH = 1 << 17
"""Minimum number of datapoints in a block: it is planned in 40 ms, and 100 sources of a mixture in 4 s."""
BLOCK_BINS = 1 << 12
"""Approximate minimum number of bins in a block: the last bin of each is not full."""
MAX_BLOCKS = 64
"""Number of blocks above which they are longer: to count the bins of each takes 20 ms."""
MAX_BLOCK_LENGTH = 1 << 21
"""Number of datapoints in a block above which there are more blocks: it is planned in 0.6 s."""
CHECKED_LENGTHS = 1 << 22  # Lengths that are checked at a time.
KEPT_PLANS = 3
"""Number of blocks whose plans are kept: those at the beginning, the middle and the end of a batch."""
PLAN_SECONDS = 60.0
"""Maximum wait for another thread that makes the same plan: a lock may stay locked in a forked child."""


class Block(NamedTuple):
    """What is packed of the datapoints of a block: n datapoints, or the rest of those that are cut."""

    rows: Int64s
    """Their rows in the block, shape (n,)."""
    sizes: list[Integers]
    """Their lengths for each budget, shape (n,) each."""
    cut_rows: Int64s
    """Rows of the block that have whole pieces, which are bins of their own."""
    piece_counts: Int64s
    """Number of whole pieces of each of `cut_rows`."""
    totals: list[int]
    """Lengths of everything together, for each budget."""


class Plan(NamedTuple):
    """Which rows of a block are in which bin."""

    rows: npt.NDArray[np.int32]
    """Rows of the block, in the order of the bins, shape (n,)."""
    offsets: npt.NDArray[np.int32]
    """The first position in `rows` of each bin, and the end, shape (bins + 1,)."""
    cut_rows: npt.NDArray[np.int32]
    """Rows of the block that have whole pieces, in bins of their own, which follow the others."""
    cut_offsets: Int64s
    """The number of these bins before each of `cut_rows`, and in all."""


class Packed:
    """Each datapoint once, in bins whose lengths together fill a budget.

    A position is a bin, so the `batch_size` of a loader counts bins. The bins follow from the lengths alone.
    Up to 64 blocks of datapoints, each taken from the whole dataset, are planned when their first bin is
    used, a million datapoints in 0.3 s; creating the sampler takes 3 s for 10⁸ lengths. Each epoch has the
    blocks and the bins of each block in another random order, and exchanges datapoints of equal lengths.

    The loader adds two columns to each batch: `_datapoint`, the index of each datapoint, int64 (n,), and
    `_bin`, its bin within the batch, int32 (n,). With `longer='cut'`, it also adds `_start`, the first
    element of each piece in its datapoint, int64 (n,), and fields with elements have only those of the piece.

    Args:
        budget: Maximum number of items in a bin; for several budgets, a mapping of names to numbers, e.g.
            `{'tokens': 8192, 'images': 16}`.
        lengths: Number of items of each datapoint, as `dataset.lengths(field)` returns it from the refs
            alone; for several budgets, a mapping with the same names. Arrays are kept without a copy.
        seed: Seed of the order, with the epoch.
        longer: How to handle datapoints that are longer than a budget. 'error': raise. 'drop': leave them
            out; `dropped` counts them. 'cut': cut them into pieces of the budget from the start; the rest is
            packed as any datapoint, and `cut` counts them. Of several budgets, only datapoints whose lengths
            for the others are 0 can be cut.
        max_datapoints: Maximum number of datapoints, or of pieces, in a bin.
        overlap: Number of items that a piece repeats of the end of the previous piece. With 1, each token of
            a datapoint but the first is predicted once.

    Raises:
        ValueError: A datapoint is longer than the budget, a length is negative, or lengths differ in number
            or names. Or 'drop' would leave out all datapoints.
        TypeError: Lengths are not integers.

    Examples:
        >>> sampler = bags.samplers.Packed(12, dataset.lengths('state'))
        >>> batch = next(iter(bags.Loader(dataset, 2, fields='state', sampler=sampler)))
        >>> batch['_bin'], len(batch['state'].values)
        (array([0, 1, 1], dtype=int32), 22)
    """

    per_datapoint = 'lengths'

    def __init__(
        self,
        budget: int | Mapping[str, int],
        lengths: Any,
        seed: int = 0,
        *,
        longer: Longer = 'error',
        max_datapoints: int | None = None,
        overlap: int = 0,
    ) -> None:
        budgets: Mapping[Any, int] = budget if isinstance(budget, Mapping) else {None: budget}
        columns: Mapping[Any, Any] = lengths if isinstance(lengths, Mapping) else {None: lengths}
        if not budgets or set(budgets) != set(columns):
            raise ValueError(
                f'budget, lengths: expected one of each, or mappings with the same names, '
                f'got {budget!r:.80} and {lengths!r:.80}'
            )
        one_of('longer', longer, get_args(Longer))
        self.longer = longer
        self.max_datapoints = at_least_or_none('max_datapoints', max_datapoints, 1)
        self.overlap = item_count('overlap', overlap, 0)
        self.seed = integer('seed', seed)
        self._keys = ['' if name is None else f'[{name!r}]' for name in budgets]
        self._lengths: list[Integers] = []
        limits = []
        for key, name in zip(self._keys, budgets, strict=True):
            limits.append(at_least(f'budget{key}', budgets[name], 1))
            self._lengths.append(_checked(f'lengths{key}', columns[name], self._lengths))
        if self.overlap and (longer != 'cut' or self.overlap >= min(limits)):
            raise ValueError(
                f"overlap: expected longer='cut', and an overlap below the budget of {min(limits)}, "
                f'got an overlap of {overlap} with longer={longer!r}'
            )
        self.datapoints = len(self._lengths[0])
        totals = [int(values.sum(dtype=np.int64)) for values in self._lengths]
        # A budget above the sum of all lengths is equivalent to the sum.
        least = 1 + self.overlap
        self._limits = [min(limit, max(least, total)) for limit, total in zip(limits, totals, strict=True)]
        self.cut = self.dropped = 0
        self._count_longer(limits)
        self._mark = 0
        for values in self._lengths:
            self._mark = _mark(values, self._mark)
        bins = max(total // limit for total, limit in zip(totals, limits, strict=True))
        count = min(self.datapoints // BLOCK_LENGTH, bins // BLOCK_BINS, MAX_BLOCKS)
        self._block_count = max(count, self.datapoints // MAX_BLOCK_LENGTH, 1)
        self._hints: list[tuple[int, float]] = [(0, 1.0)]
        """What each block is packed like: the block before."""
        self._bins: list[int] = []
        """Number of bins of each block."""
        packed = [0] * len(limits)
        for number in range(self._block_count):
            block = self._block(number)
            bins, _, hint = self._assign(block.sizes, self._hints[-1], count_only=True)
            self._hints.append(hint)
            self._bins.append(bins + int(block.piece_counts.sum()))
            packed = [total + of_block for total, of_block in zip(packed, block.totals, strict=True)]
        self.bins = sum(self._bins)
        fill = [total / (limit * max(1, self.bins)) for limit, total in zip(limits, packed, strict=True)]
        mean = [total / max(1, self.bins) for total in packed]
        has_names = isinstance(budget, Mapping)
        self.budget = dict(zip(budgets, limits, strict=True)) if has_names else limits[0]
        self.fill = dict(zip(budgets, fill, strict=True)) if has_names else fill[0]
        """Mean share of the budget that the bins use; a mapping for several budgets."""
        self.mean = dict(zip(budgets, mean, strict=True)) if has_names else mean[0]
        """Mean number of items in a bin; a mapping for several budgets."""
        self._set_up()

    def _set_up(self) -> None:
        self._plans: dict[tuple[int, int], Plan] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ('_plans', '_lock')}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._set_up()

    def __len__(self) -> int:
        return self.bins

    def _count_longer(self, limits: list[int]) -> None:
        """Counts the datapoints that are longer than a budget.

        Raises:
            ValueError: They are not allowed, or all are to be left out.
        """
        columns = list(zip(self._keys, self._lengths, limits, strict=True))
        if not any(len(values) and int(values.max()) > limit for _, values, limit in columns):
            return
        for start in range(0, self.datapoints, CHECKED_LENGTHS):
            rows = slice(start, start + CHECKED_LENGTHS)
            are_longer = [values[rows] > limit for _, values, limit in columns]
            either = np.logical_or.reduce(are_longer)
            if self.longer == 'drop':
                self.dropped += int(either.sum())
                continue
            for (key, values, limit), longer in zip(columns, are_longer, strict=True):
                if self.longer == 'error' and longer.any():
                    index = start + int(longer.argmax())
                    raise ValueError(
                        f'lengths{key}: expected at most the budget of {limit}, got {values[index]} for '
                        f"datapoint {index} (longer='drop' leaves it out, and longer='cut' cuts it)"
                    )
                for other_key, other, _ in columns:
                    if other_key != key and (both := longer & (other[rows] > 0)).any():
                        index = start + int(both.argmax())
                        raise ValueError(
                            f'lengths{key}: datapoint {index} of length {values[index]} cannot be cut to '
                            f'the budget of {limit}: expected lengths{other_key} of 0, got {other[index]}'
                        )
            self.cut += int(either.sum())
        if self.dropped == self.datapoints:
            (key, values, limit), *_ = columns
            raise ValueError(
                f'lengths{key}: expected some within the budget of {limit}, got {self.datapoints} datapoints '
                f"to leave out; the shortest has {values.min()} (longer='cut' cuts them)"
            )

    # Blocks.

    def _indices(self, number: int, rows: Int64s) -> Int64s:
        """Returns the datapoints of rows of a block."""
        if self._block_count == 1:
            return rows
        groups, within = np.divmod(rows, GROUP_LENGTH)
        return (groups * self._block_count + number) * GROUP_LENGTH + within

    def _lengths_of(self, number: int) -> list[Integers]:
        """Returns the lengths of all rows of a block."""
        if self._block_count == 1:
            return [*self._lengths]
        groups = -(-self.datapoints // GROUP_LENGTH)
        rows = -(-(groups - number) // self._block_count) * GROUP_LENGTH
        if (groups - 1) % self._block_count == number:
            rows -= groups * GROUP_LENGTH - self.datapoints
        indices = self._indices(number, np.arange(rows))
        return [values[indices] for values in self._lengths]

    def _block(self, number: int) -> Block:
        """Returns what is packed of a block."""
        sizes, rows = self._lengths_of(number), None
        cut_rows, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        totals = [0] * len(sizes)
        if self.dropped:
            are_longer = [values > limit for values, limit in zip(sizes, self._limits, strict=True)]
            rows = np.flatnonzero(~np.logical_or.reduce(are_longer))
            sizes = [values[rows] for values in sizes]
        for which, limit in enumerate(self._limits if self.cut else ()):
            longer = np.flatnonzero(sizes[which] > limit)
            cut_rows.append(longer)
            counts.append(self._piece_count(sizes[which][longer], limit))
            totals[which] = int(counts[-1].sum()) * limit
            sizes[which] = sizes[which].copy()
            sizes[which][longer] -= (counts[-1] * (limit - self.overlap)).astype(sizes[which].dtype)
        totals = [
            total + int(values.sum(dtype=np.int64)) for total, values in zip(totals, sizes, strict=True)
        ]
        rows = np.arange(len(sizes[0])) if rows is None else rows
        return Block(rows, sizes, np.concatenate(cut_rows), np.concatenate(counts), totals)

    def _piece_count(self, lengths: Integers, limit: int) -> Int64s:
        """Returns the number of whole pieces before the rest of datapoints that are longer than a budget."""
        step = limit - self.overlap
        return -((limit - lengths.astype(np.int64)) // step)

    def _assign(
        self, sizes: list[Integers], hint: tuple[int, float], *, count_only: bool = False
    ) -> tuple[int, tuple[Int64s, Int64s], tuple[int, float]]:
        """Packs datapoints.

        Returns:
            The number of bins; an order of the datapoints, and the bin of each in this order; and a hint for
            similar datapoints. With `count_only`, order and bins may be empty.
        """
        none = np.empty(0, np.int64)
        count = len(sizes[0])
        if len(sizes) == 1:
            (values,), (limit,), cap = sizes, self._limits, self.max_datapoints
            histogram = Histogram.of(values if cap else values[values > 0], limit)
            packed, hint = fit(histogram, limit, cap, hint)
            bins = max(packed.bins, int(count > 0))
            if count_only:
                return bins, (none, none), hint
            # Keys of 16 bits are sorted in linear time.
            keys = (limit - values.astype(np.int64)).astype(np.uint16 if limit < 1 << 16 else np.int64)
            return bins, (np.argsort(keys, kind='stable'), place(packed, count)), hint
        limits = self._limits
        if self.max_datapoints is not None:
            sizes, limits = [*sizes, np.ones(count, np.int64)], [*limits, self.max_datapoints]
        table = np.stack(sizes, axis=1).astype(np.int64)
        order = np.lexsort(table.T)
        # Shuffled first: in sorted order, datapoints that are large in another budget would share bins.
        mixed = permuted(np.arange(count), count, 0)
        placed = np.empty(count, np.int64)
        placed[mixed], bins = pack_bins(table[order][mixed], np.array(limits, np.int64))
        return bins, (order, placed), hint

    # Plans.

    def _plan(self, epoch: int, number: int) -> Plan:
        """Returns the plan of a block in an epoch."""
        plan = self._plans.get((epoch, number))
        if plan is None:
            is_locked = self._lock.acquire(timeout=PLAN_SECONDS)
            try:
                plan = self._plans.get((epoch, number))
                if plan is None:
                    plan = self._make_plan(epoch, number)
                    kept = list(self._plans.items())[1 - KEPT_PLANS :]
                    self._plans = {**dict(kept), (epoch, number): plan}
            finally:
                if is_locked:
                    self._lock.release()
        return plan

    def _make_plan(self, epoch: int, number: int) -> Plan:
        rows, sizes, cut_rows, piece_counts, _ = self._block(number)
        shuffled = permuted(np.arange(len(rows)), len(rows), self.seed, epoch, 2, number)
        bins, (order, placed), _ = self._assign([values[shuffled] for values in sizes], self._hints[number])
        # In the order of lengths; then in the order of bins, and within a bin in random order.
        ordered = rows[shuffled[order]]
        ordered = ordered[shuffled[np.argsort(placed[shuffled], kind='stable')]]
        offsets = offsets_of(np.bincount(placed, minlength=bins)).astype(np.int32)
        return Plan(ordered.astype(np.int32), offsets, cut_rows.astype(np.int32), offsets_of(piece_counts))

    def take(self, epoch: int, positions: Int64s) -> Ragged:
        """Returns the datapoints of bins at positions of an epoch, as `Pieces` with `longer='cut'`."""
        positions = np.reshape(positions, -1)
        order = permuted(np.arange(self._block_count), self._block_count, self.seed, epoch, 0)
        starts = offsets_of(np.array(self._bins, np.int64)[order])
        found = np.searchsorted(starts, positions, 'right') - 1
        rows: list[Int64s] = []
        parts: list[Int64s | Ragged] = []
        for at in np.unique(found).tolist() or [0]:
            rows.append(np.flatnonzero(found == at))
            number, first = int(order[at]), int(starts[at])
            within = positions[rows[-1]] - first
            if len(within):
                within = permuted(within, self._bins[number], self.seed, epoch, 1, number)
            parts.append(self._take(epoch, number, within))
        taken = parts[0] if len(parts) == 1 else join_positions(parts, rows, len(positions))
        assert isinstance(taken, Ragged)
        return taken

    def _take(self, epoch: int, number: int, bins: Int64s) -> Ragged:
        """Returns the datapoints of bins of a block."""
        if not len(bins):
            indices, offsets, numbers = np.empty(0, np.int64), np.zeros(1, np.int64), bins
        else:
            plan = self._plan(epoch, number)
            packed = len(plan.offsets) - 1
            numbers = bins - packed  # Below 0 for bins of several datapoints.
            firsts = plan.offsets[np.minimum(bins, packed)].astype(np.int64)
            counts = plan.offsets[np.minimum(bins + 1, packed)] - firsts
            counts[numbers >= 0] = 1
            offsets = offsets_of(counts)
            is_whole = np.repeat(numbers >= 0, counts)
            rows = np.empty(len(is_whole), np.int64)
            rows[~is_whole] = plan.rows[concat_ranges(firsts, counts)[~is_whole]]
            of_bin = np.searchsorted(plan.cut_offsets, numbers[numbers >= 0], 'right') - 1
            rows[is_whole] = plan.cut_rows[of_bin]
            numbers = np.repeat(numbers, counts)
            numbers[is_whole] -= plan.cut_offsets[of_bin]
            indices = self._indices(number, rows)
        if self.longer != 'cut':
            return Ragged(indices, offsets)
        # `numbers` are now those of whole pieces within their datapoints; below 0 for datapoints and rests.
        starts = np.zeros(len(indices), np.int64)
        stops, element_counts = np.full((2, len(indices)), -1)
        for values, limit in zip(self._lengths, self._limits, strict=True):
            lengths = values[indices].astype(np.int64)
            are_longer = lengths > limit
            pieces = np.where(numbers < 0, self._piece_count(lengths, limit), numbers)
            first = pieces * (limit - self.overlap)
            starts = np.where(are_longer, first, starts)
            stops = np.where(are_longer, np.minimum(first + limit, lengths), stops)
            element_counts = np.where(are_longer, lengths, element_counts)
        return Pieces(indices, offsets, starts=starts, stops=stops, element_counts=element_counts)

    def __repr__(self) -> str:
        options = f'longer={self.longer!r}'
        options += f', dropped={self.dropped}' if self.longer == 'drop' else ''
        options += f', cut={self.cut}, overlap={self.overlap}' if self.longer == 'cut' else ''
        options += f', max_datapoints={self.max_datapoints}' if self.max_datapoints is not None else ''
        lengths = f'{self.datapoints} lengths #{self._mark:08x}'
        return f'Packed({self.budget}, {lengths}, seed={self.seed}, {options})'


def _checked(name: str, lengths: Any, others: list[Integers]) -> Integers:
    """Checks lengths, and returns them as an array, without a copy if they are one."""
    values = np.asarray(lengths)
    if values.ndim != 1 or (values.dtype.kind not in 'iu' and len(values)):
        raise TypeError(
            f'{name}: expected one dimension of integers, got {values.ndim} dimensions of {values.dtype}'
        )
    if not len(values):
        values = values.astype(np.int64)
    for wrong, expected in (
        (len(values) and int(values.min()) < 0, 'at least 0'),
        (len(values) and float(values.sum(dtype=float)) >= 1 << 62, 'a sum below 2^62'),
    ):
        if wrong:
            index = int(values.argmin() if expected == 'at least 0' else values.argmax())
            raise ValueError(f'{name}: expected {expected}, got {values[index]} for datapoint {index}')
    for other in others[:1]:
        if len(values) != len(other):
            raise ValueError(f'{name}: expected one for each of {len(other)} datapoints, got {len(values)}')
    return values


def _mark(values: Integers, mark: int) -> int:
    """Returns a checksum of lengths, which does not depend on their dtype."""
    is_small = not len(values) or int(values.max()) < 1 << 31
    for start in range(0, len(values), CHECKED_LENGTHS):
        part = np.ascontiguousarray(values[start : start + CHECKED_LENGTHS], '<i4' if is_small else '<i8')
        mark = zlib.crc32(part.data, mark)
    return mark
