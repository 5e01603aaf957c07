"""Bins of datapoints that fill a budget, e.g. of tokens, for training without padding."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bags.dataset.batch import Ragged, spread
from bags.indexing import Int64s, offsets_of
from bags.samplers.packing import pack_bins
from bags.samplers.permutation import Permutation
from bags.validation import at_least, integer

__all__ = ['Packed']


class Packed:
    """Each datapoint once, in bins whose lengths together fill a budget.

    A position is a bin, and so the `batch_size` of a loader counts bins. All bins are planned when the
    sampler is made, from the lengths alone: a second for a million datapoints. In each epoch the bins come in
    another random order, and datapoints of equal lengths change places.

    The loader adds two columns to each batch: `_datapoint`, the index of each datapoint, int64 (n,), and
    `_bin`, which bin of the batch it is in, int32 (n,).

    Args:
        budget: The most items of a bin; a mapping of names to such numbers for several budgets, e.g.
            `{'tokens': 8192, 'images': 16}`.
        lengths: Items of each datapoint, as `dataset.lengths(field)` returns them without reading any
            payload; for several budgets, a mapping with the same names.
        seed: Of the order, with the epoch.

    Raises:
        ValueError: A datapoint that is longer than the budget, a negative length, or lengths that differ in
            number or names.
        TypeError: Lengths that are not integers.
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
        # A budget above the sum of all lengths is no other than the sum.
        most = [min(limit, max(1, total)) for limit, total in zip(limits, totals, strict=True)]
        self._sizes = sizes
        # Mixed: sorted, equal lengths would come by those of the other budget, which would pile up in bins.
        mixed = Permutation(self.datapoints, 0)(np.arange(self.datapoints))
        bins = np.empty(self.datapoints, np.int64)
        bins[mixed], self.bins = pack_bins(sizes[np.lexsort(sizes.T)][mixed], np.array(most, np.int64))
        fill = [total / (limit * max(1, self.bins)) for limit, total in zip(limits, totals, strict=True)]
        self.fill = dict(zip(budgets, fill, strict=True)) if isinstance(budget, Mapping) else fill[0]
        """Mean share of the budget that the bins use; a mapping for several budgets."""
        # A place is one in the order of lengths. An epoch puts datapoints of equal lengths in random order:
        # each of them may be at any of their places.
        self._places = mixed[np.argsort(bins[mixed], kind='stable')]
        self._offsets = offsets_of(np.bincount(bins, minlength=self.bins))
        self._last: tuple[int, Int64s] = (-1, bins)

    def __len__(self) -> int:
        return self.bins

    def _members(self, epoch: int) -> Int64s:
        """Returns the datapoint at each place."""
        known, found = self._last
        if known != epoch:
            order = Permutation(self.datapoints, self.seed, epoch)(np.arange(self.datapoints))
            found = order[np.lexsort(self._sizes[order].T)]
            self._last = (epoch, found)
        return found

    def take(self, epoch: int, positions: Int64s) -> Ragged:
        """Returns the datapoints of the bins at some positions of an epoch."""
        bins = Permutation(self.bins, self.seed, epoch, 1)(np.reshape(positions, -1))
        counts = self._offsets[bins + 1] - self._offsets[bins]
        places = self._places[spread(self._offsets[bins], counts)]
        return Ragged(self._members(epoch)[places], offsets_of(counts))

    def __repr__(self) -> str:
        return f'Packed({self.budget}, {self.datapoints} lengths #{self._mark:08x}, seed={self.seed})'


def _checked(name: str, lengths: Any, budget: int) -> Int64s:
    """Returns lengths as an array, after checking them."""
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
            place = int(wrong.argmax())
            raise ValueError(f'{name}: expected {expected}, got {values[place]} for datapoint {place}')
    return values.astype(np.int64)
