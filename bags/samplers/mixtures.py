"""Several datasets mixed in exact proportions."""

from __future__ import annotations

import fractions
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bags.indexing import Int64s, offsets_of
from bags.samplers.permutation import permuted
from bags.validation import integer, item_count

MAX_CYCLE = 1 << 22  # Approximate maximum length of all cycles of a mixture together.


class Mixture:
    """Several datasets, concatenated by `bags.concat`, in given proportions.

    The proportions are exact over each cycle: 4 positions for weights of 3 and 1, 10 for weights of 0.7 and
    0.3. Weights whose cycle would have more than 4 million positions are rounded to a cycle of that length,
    in which each dataset has at least one position. Within a cycle, each dataset is spread evenly. Every
    datapoint of a dataset is delivered once before any is repeated, across epochs.

    Args:
        lengths: Number of datapoints of each dataset.
        weights: Share of each dataset, of any sum; 0 excludes a dataset. Or a mapping from positions, counted
            over all epochs, to the weights from that position on; the first weights also apply before it.
        seed: Seed of the order of each dataset.
        shuffle: Whether to shuffle each dataset.
        samples: Number of positions in an epoch. Default: the sum of the lengths.

    Examples:
        >>> both = bags.concat([dataset, dataset[:2]])
        >>> sampler = bags.samplers.Mixture([8, 2], weights=[3, 1], seed=0)
        >>> sampler.take(0, np.arange(8))
        array([4, 3, 8, 7, 2, 0, 9, 6])
        >>> next(iter(bags.Loader(both, 4, sampler=sampler)))['id']
        array([4, 3, 0, 7])
    """

    def __init__(
        self,
        lengths: Sequence[int],
        weights: Sequence[float] | Mapping[int, Sequence[float]],
        seed: int = 0,
        *,
        shuffle: bool = True,
        samples: int | None = None,
    ) -> None:
        self.lengths = [item_count('lengths', length, 0) for length in lengths]
        schedule = weights if isinstance(weights, Mapping) else {0: weights}
        if not schedule:
            raise ValueError('weights: expected at least one position, got none')
        counts_at: dict[int, list[int]] = {}
        for position in schedule:
            at = item_count('weights: position', position, 0)
            name = f'weights[{position!r}]' if schedule is weights else 'weights'
            counts_at[at] = _integers(self._exact(schedule[position], name), MAX_CYCLE // len(schedule))
        self.counts = counts_at if schedule is weights else counts_at[0]
        """Positions of each dataset in a cycle; for a mapping of weights, by position."""
        self._starts = np.array([0, *sorted(counts_at)[1:]], np.int64)
        """The positions at which the weights change."""
        self._cycles = [_cycle(counts_at[start]) for start in sorted(counts_at)]
        self._before = [np.zeros(len(self.lengths), np.int64)]
        """Positions of each dataset before each change."""
        for length, (owners, _, counts) in zip(np.diff(self._starts).tolist(), self._cycles, strict=False):
            cycles, slots = divmod(length, len(owners))
            rest = np.bincount(owners[:slots], minlength=len(counts))
            self._before.append(self._before[-1] + cycles * counts + rest)
        self.seed = integer('seed', seed)
        self.shuffle = shuffle
        self.datapoints = item_count('lengths: total', sum(self.lengths), 0)
        self.samples = self.datapoints if samples is None else item_count('samples', samples, 1)
        self._firsts = offsets_of(np.array(self.lengths, np.int64))

    def _exact(self, weights: Sequence[Any], name: str) -> list[fractions.Fraction]:
        """Returns weights as fractions, after checking them."""
        if len(weights) != len(self.lengths):
            raise ValueError(
                f'{name}: expected one for each of {len(self.lengths)} datasets, got {len(weights)}'
            )
        for number, (length, weight) in enumerate(zip(self.lengths, weights, strict=True)):
            if not hasattr(weight, '__float__'):
                raise TypeError(f'{name}: expected numbers, got {weight!r:.200} for dataset {number}')
            if not 0 <= weight < math.inf:
                expected = 'finite numbers of at least 0'
                raise ValueError(f'{name}: expected {expected}, got {weight} for dataset {number}')
            if weight and not length:
                raise ValueError(f'dataset {number}: expected datapoints for a weight of {weight}, got none')
        if not any(weights):
            raise ValueError(f'{name}: expected one above 0, got {list(weights)}')
        exact = [fractions.Fraction(float(w) if isinstance(w, np.floating) else w) for w in weights]
        return [share.limit_denominator(10**6) or share for share in exact]

    def __len__(self) -> int:
        return self.samples

    def locate(self, epoch: int, positions: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the dataset at each position, and the number of its earlier positions in all epochs.

        Raises:
            ValueError: The position over all epochs is 2^62 or more.
        """
        positions = positions + item_count(f'epoch {epoch}: position', int(epoch) * self.samples, 0)
        numbers = np.searchsorted(self._starts, positions, 'right') - 1
        owners, counts = np.empty((2, *np.shape(positions)), np.int64)
        for number in _distinct(numbers):
            chosen = np.nonzero(numbers == number)
            cycle, ranks, cycle_counts = self._cycles[number]
            cycles, slots = np.divmod(positions[chosen] - self._starts[number], len(cycle))
            owners[chosen] = datasets = cycle[slots]
            counts[chosen] = self._before[number][datasets] + cycles * cycle_counts[datasets] + ranks[slots]
        return owners, counts

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        owners, counts = self.locate(epoch, positions)
        indices = np.empty(np.shape(positions), np.int64)
        for owner in _distinct(owners):
            chosen = np.nonzero(owners == owner)
            length, first = self.lengths[owner], int(self._firsts[owner])
            rounds, within = np.divmod(counts[chosen], length)
            if self.shuffle:
                for number in np.unique(rounds).tolist():
                    in_round = rounds == number
                    within[in_round] = permuted(within[in_round], length, self.seed, owner, number)
            indices[chosen] = first + within
        return indices

    def __repr__(self) -> str:
        order = f'seed={self.seed}' if self.shuffle else 'shuffle=False'
        return f'Mixture({self.lengths}, {self.counts}, {order}, samples={self.samples})'


def _distinct(numbers: Int64s) -> list[int]:
    """Returns the sorted distinct values of small integers: 4,096 in 6 us, where `np.unique` takes 55."""
    return np.flatnonzero(np.bincount(numbers.reshape(-1))).tolist()


def _integers(shares: Sequence[fractions.Fraction], limit: int) -> list[int]:
    """Returns integers in the proportions of shares, rounded if their sum would exceed a limit."""
    total = sum(shares)
    common = math.lcm(*(share.denominator for share in shares))
    counts = [int(share * common) for share in shares]
    divisor = math.gcd(*counts)
    if sum(counts) // divisor <= limit:
        return [count // divisor for count in counts]
    return [max(bool(share), round(share * limit / total)) for share in shares]


def _cycle(counts: Sequence[int]) -> tuple[Int64s, Int64s, Int64s]:
    """Returns a cycle in which each dataset is spread evenly.

    Returns:
        The dataset of each slot; the number of earlier slots of the same dataset; the slots of each dataset.
    """
    owners = np.repeat(np.arange(len(counts)), counts)
    ranks = np.concatenate([np.arange(count) for count in counts])
    order = np.argsort((ranks + 0.5) / np.array(counts)[owners], kind='stable')
    return owners[order], ranks[order], np.array(counts)
