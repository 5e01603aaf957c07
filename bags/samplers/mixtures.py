"""Several datasets mixed in exact proportions."""

from __future__ import annotations

import fractions
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bags.indexing import Int64s, offsets_of
from bags.samplers.permutation import Permutation
from bags.samplers.ramps import Ramp
from bags.validation import at_least, integer

__all__ = ['Mixture']

MAX_CYCLE = 1 << 22  # Positions after which the schedule of a mixture repeats.


class Mixture:
    """Several datasets, concatenated by `bags.concat`, in given proportions.

    The proportions are exact over each cycle of the schedule: of 4 positions for weights of 3 and 1, of 10
    for weights of 0.7 and 0.3. Within a cycle each dataset is spread evenly. Every datapoint of a dataset
    comes once before any comes again, across epochs.

    Args:
        lengths: Datapoints of each dataset.
        weights: Their shares, of any sum. Fractions with denominators up to a million are exact. Or a
            schedule: a mapping of positions, counted over all epochs, to such weights. The shares are linear
            between these positions, and constant before the first and after the last. Each dataset then stays
            within about as many positions of its share as there are datasets.
        seed: Of the order of each dataset.
        shuffle: False takes each dataset in order.
        samples: Positions of an epoch; the sum of the lengths unless given.
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
        self.lengths = [at_least('lengths', length, 0) for length in lengths]
        self._ramp: Ramp | None = None
        self.counts: list[int] | dict[int, list[str]]
        """Positions of each dataset in a cycle; in a schedule, their shares at each of its positions."""
        if isinstance(weights, Mapping):
            if not weights:
                raise ValueError('weights: expected at least one position, got none')
            shares: dict[int, list[fractions.Fraction]] = {}
            for position in weights:
                at = at_least('weights: position', position, 0)
                exact = self._exact(weights[position], f'weights[{position!r}]')
                shares[at] = [share / sum(exact) for share in exact]
            self._ramp = Ramp(shares)
            self.counts = {at: list(map(str, shares[at])) for at in sorted(shares)}
        else:
            self.counts = _integers(self._exact(weights, 'weights'))
            self._owners, self._ranks = _schedule(self.counts)
        self.seed = integer('seed', seed)
        self.shuffle = shuffle
        self.datapoints = sum(self.lengths)
        self.samples = self.datapoints if samples is None else at_least('samples', samples, 1)
        self._firsts = offsets_of(np.array(self.lengths, np.int64))

    def _exact(self, weights: Sequence[Any], name: str) -> list[fractions.Fraction]:
        """Returns weights as fractions, after checking them."""
        if len(weights) != len(self.lengths):
            raise ValueError(
                f'{name}: expected one for each of {len(self.lengths)} datasets, got {len(weights)}'
            )
        exact = _fractions(weights, name)
        for number, (length, share) in enumerate(zip(self.lengths, exact, strict=True)):
            if share and not length:
                raise ValueError(
                    f'dataset {number}: expected datapoints for a weight of {weights[number]}, got none'
                )
        return exact

    def __len__(self) -> int:
        return self.samples

    def place(self, epoch: int, positions: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the dataset at each position, and how many of its datapoints came before, in all epochs."""
        positions = positions + epoch * self.samples
        if self._ramp is not None:
            return self._ramp.place(positions)
        cycle, slot = np.divmod(positions, len(self._owners))
        owners = self._owners[slot]
        return owners, cycle * np.array(self.counts, np.int64)[owners] + self._ranks[slot]

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        owners, counts = self.place(epoch, positions)
        found = np.empty(np.shape(positions), np.int64)
        for owner in np.unique(owners).tolist():
            chosen = owners == owner
            length, first = self.lengths[owner], int(self._firsts[owner])
            rounds, within = np.divmod(counts[chosen], length)
            if self.shuffle:
                for number in np.unique(rounds).tolist():
                    now = rounds == number
                    within[now] = Permutation(length, self.seed, owner, number)(within[now])
            found[chosen] = first + within
        return found

    def __repr__(self) -> str:
        order = f'seed={self.seed}' if self.shuffle else 'shuffle=False'
        return f'Mixture({self.lengths}, {self.counts}, {order}, samples={self.samples})'


def _fractions(weights: Sequence[Any], name: str) -> list[fractions.Fraction]:
    """Returns weights as fractions, of which one is above 0."""
    for number, weight in enumerate(weights):
        if not hasattr(weight, '__float__'):
            raise TypeError(f'{name}: expected numbers, got {weight!r:.200} for dataset {number}')
        if not 0 <= weight < math.inf:
            raise ValueError(
                f'{name}: expected finite numbers of at least 0, got {weight} for dataset {number}'
            )
    if not any(weights):
        raise ValueError(f'{name}: expected one above 0, got {list(weights)}')
    exact = [fractions.Fraction(float(w) if isinstance(w, np.floating) else w) for w in weights]
    return [share.limit_denominator(10**6) or share for share in exact]


def _integers(shares: Sequence[fractions.Fraction]) -> list[int]:
    """Returns integers in the proportions of shares."""
    total = sum(shares)
    common = math.lcm(*(share.denominator for share in shares))
    counts = [int(share * common) for share in shares]
    divisor = math.gcd(*counts)
    if sum(counts) // divisor <= MAX_CYCLE:
        return [count // divisor for count in counts]
    # Too long a cycle: round to one of the maximal length, up where rounding down cuts off most.
    counts = [int(share * MAX_CYCLE / total) for share in shares]
    by_loss = sorted(range(len(shares)), key=lambda owner: counts[owner] - shares[owner] * MAX_CYCLE / total)
    for owner in by_loss[: MAX_CYCLE - sum(counts)]:
        counts[owner] += 1
    return counts


def _schedule(counts: Sequence[int]) -> tuple[Int64s, Int64s]:
    """Returns the dataset of each slot of a cycle, spread evenly, and how many of its slots come before."""
    owners = np.repeat(np.arange(len(counts)), counts)
    ranks = np.concatenate([np.arange(count) for count in counts])
    due = (ranks + 0.5) / np.array(counts)[owners]
    order = np.argsort(due, kind='stable')
    return owners[order], ranks[order]
