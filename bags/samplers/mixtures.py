"""Several datasets in given proportions, which hold exactly."""

from __future__ import annotations

import fractions
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bags.indexing import offsets_of
from bags.samplers.permutation import Permutation
from bags.samplers.sampler import Int64s
from bags.validation import at_least, integer

__all__ = ['Mixture']

CYCLE = 1 << 22  # Positions after which the schedule of a mixture repeats, at most.


class Mixture:
    """Several datasets, one after the other in a `concat`, in given proportions.

    The proportions are exact: over a whole cycle of the schedule, which weights of 3 and 1 have after 4
    positions, and weights of 0.7 and 0.3 after 10; within one, each is spread evenly. Of each dataset, every
    datapoint comes once before any comes again. So it goes on over epochs.

    Args:
        lengths: Datapoints of each dataset.
        weights: Their shares; of any sum. Fractions with denominators up to a million are exact.
        seed: Of the order of each dataset.
        shuffle: False takes each of them in order.
        samples: Positions of an epoch; the sum of the lengths unless given.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        weights: Sequence[float],
        seed: int = 0,
        *,
        shuffle: bool = True,
        samples: int | None = None,
    ) -> None:
        self.lengths = [at_least('lengths', length, 0) for length in lengths]
        if len(weights) != len(self.lengths):
            raise ValueError(
                f'weights: expected one for each of {len(self.lengths)} datasets, got {len(weights)}'
            )
        self.counts = _whole(weights)
        """Positions of each dataset in a cycle."""
        for number, (length, count) in enumerate(zip(self.lengths, self.counts, strict=True)):
            if count and not length:
                raise ValueError(
                    f'dataset {number}: expected datapoints for a weight of {weights[number]}, got none'
                )
        self.seed = integer('seed', seed)
        self.shuffle = shuffle
        self.datapoints = sum(self.lengths)
        self.samples = self.datapoints if samples is None else at_least('samples', samples, 1)
        self._firsts = offsets_of(np.array(self.lengths, np.int64))
        self._owners, self._ranks = _schedule(self.counts)

    def __len__(self) -> int:
        return self.samples

    def place(self, epoch: int, positions: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the dataset at each position, and how many of it came before, from the first epoch on."""
        cycle, slot = np.divmod(positions + epoch * self.samples, len(self._owners))
        owners = self._owners[slot]
        return owners, cycle * np.array(self.counts, np.int64)[owners] + self._ranks[slot]

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        flat = np.reshape(positions, -1)
        owners, counts = self.place(epoch, flat)
        found = np.empty(len(flat), np.int64)
        for owner in np.unique(owners).tolist():
            chosen = owners == owner
            length, first = self.lengths[owner], int(self._firsts[owner])
            rounds, within = np.divmod(counts[chosen], length)
            if self.shuffle:
                for number in np.unique(rounds).tolist():
                    now = rounds == number
                    within[now] = Permutation(length, self.seed, owner, number)(within[now])
            found[chosen] = first + within
        return found.reshape(np.shape(positions))

    def __repr__(self) -> str:
        order = f'seed={self.seed}' if self.shuffle else 'shuffle=False'
        return f'Mixture({self.lengths}, {self.counts}, {order}, samples={self.samples})'


def _whole(weights: Sequence[Any]) -> list[int]:
    """Returns whole numbers in the proportions of weights."""
    for number, weight in enumerate(weights):
        if not hasattr(weight, '__float__'):
            raise TypeError(f'weights: expected numbers, got {weight!r:.200} for dataset {number}')
        if not 0 <= weight < math.inf:
            raise ValueError(
                f'weights: expected finite numbers of at least 0, got {weight} for dataset {number}'
            )
    exact = [fractions.Fraction(float(w) if isinstance(w, np.floating) else w) for w in weights]
    shares = [share.limit_denominator(10**6) or share for share in exact]
    total = sum(shares)
    if not total:
        raise ValueError(f'weights: expected one above 0, got {list(weights)}')
    common = math.lcm(*(share.denominator for share in shares))
    counts = [int(share * common) for share in shares]
    divisor = math.gcd(*counts)
    if sum(counts) // divisor <= CYCLE:
        return [count // divisor for count in counts]
    # Too long a cycle: the nearest of this one, those first that are cut off most.
    counts = [int(share * CYCLE / total) for share in shares]
    most = sorted(range(len(shares)), key=lambda owner: counts[owner] - shares[owner] * CYCLE / total)
    for owner in most[: CYCLE - sum(counts)]:
        counts[owner] += 1
    return counts


def _schedule(counts: Sequence[int]) -> tuple[Int64s, Int64s]:
    """Returns whose each slot of a cycle is, spread evenly, and how many of the owner's come before it."""
    owners = np.repeat(np.arange(len(counts)), counts)
    ranks = np.concatenate([np.arange(count) for count in counts])
    due = (ranks + 0.5) / np.array(counts)[owners]
    order = np.argsort(due, kind='stable')
    return owners[order], ranks[order]
