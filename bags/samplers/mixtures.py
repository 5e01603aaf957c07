"""Several datasets mixed in exact proportions."""

from __future__ import annotations

import bisect
import copy
import dataclasses
import fractions
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from bags.dataset.reading.batch import Ragged
from bags.indexing import Int64s, offsets_of
from bags.samplers.changes import Change, as_weights, positions_of_run, with_change
from bags.samplers.orders import Sampler
from bags.samplers.permutation import permuted
from bags.samplers.pieces import join_positions
from bags.samplers.proportions import Proportions, integers_of
from bags.validation import integer, item_count


class Mixture:
    """Several datasets, concatenated by `bags.concat`, in given proportions.

    The proportions are exact over each cycle: 4 positions for weights of 3 and 1, 10 for weights of 0.7 and
    0.3. Weights whose cycle would have more than 2^30 positions are rounded to a cycle of that length, in
    which each source has at least one position. Within a cycle, each source is spread evenly. Every position
    of a source comes once before any is repeated, across epochs of the mixture.

    Args:
        sources: The number of datapoints of each dataset, which are shuffled; or a sampler of each dataset,
            e.g. a `Packed`, whose epochs follow each other.
        weights: Share of the positions of each source, of any sum; 0 excludes a source. Or a mapping from
            positions, counted over all epochs, to the weights from that position on; the first weights also
            apply before it. A position of a source of bins is a bin.
        seed: Seed of the order of each dataset. Samplers have their own.
        shuffle: Whether to shuffle each dataset. Samplers have their own order.
        samples: Number of positions in an epoch. Default: the sum of the positions of the sources.
        weigh: What the weights are shares of. 'positions', or for bins the name of a budget: `weigh='tokens'`
            divides each weight by the mean number of tokens in a bin of the source. The name does not matter
            for sources with a single budget.

    Raises:
        ValueError: Weights are not finite numbers of at least 0, or all are 0, or a source with a weight has
            no positions.
        TypeError: Sources are neither integers nor samplers with an attribute `datapoints`.

    Examples:
        >>> both = bags.concat([dataset, dataset[:2]])
        >>> sampler = bags.samplers.Mixture([8, 2], weights=[3, 1], seed=0)
        >>> sampler.take(0, np.arange(8))
        array([4, 8, 3, 7, 2, 9, 0, 6])
        >>> next(iter(bags.Loader(both, 4, sampler=sampler)))['id']
        array([4, 0, 3, 7])
    """

    def __init__(
        self,
        sources: Sequence[int | Sampler],
        weights: Sequence[float] | Mapping[int, Sequence[float]],
        seed: int = 0,
        *,
        shuffle: bool = True,
        samples: int | None = None,
        weigh: str = 'positions',
    ) -> None:
        self.sources = [_checked(number, source) for number, source in enumerate(sources)]
        self.lengths = [source if isinstance(source, int) else len(source) for source in self.sources]
        """Positions of an epoch of each source."""
        self.weigh = weigh
        schedule = weights if isinstance(weights, Mapping) else {0: weights}
        if not schedule:
            raise ValueError('weights: expected at least one position, got none')
        counts_at: dict[int, list[int]] = {}
        for position in schedule:
            at = item_count('weights: position', position, 0)
            name = f'weights[{position!r}]' if schedule is weights else 'weights'
            counts_at[at] = integers_of(self._shares(schedule[position], name))
        self.counts = counts_at if schedule is weights else counts_at[0]
        """Positions of each source in a cycle; for a mapping of weights, by position."""
        self._starts = np.array([0, *sorted(counts_at)[1:]], np.int64)
        """The positions at which the weights change."""
        self._first = min(counts_at)
        """The first position of the schedule, whose weights also apply before it; 0 after a change there."""
        self._proportions = [Proportions(counts_at[start]) for start in sorted(counts_at)]
        self._before = [np.zeros(len(self.lengths), np.int64)]
        """Positions of each source before each change."""
        for length, proportions in zip(np.diff(self._starts).tolist(), self._proportions, strict=False):
            self._before.append(self._before[-1] + proportions.before(length))
        self._initial: Self | None = None
        self.changes: Mapping[int, Change] = {}
        self.seed = integer('seed', seed)
        self.shuffle = shuffle
        sizes = [source if isinstance(source, int) else _datapoints(source) for source in self.sources]
        self.source_datapoints = sizes
        """Datapoints of the dataset of each source."""
        self.datapoints = item_count('sources: total', sum(sizes), 0)
        total = item_count('sources: total', sum(self.lengths), 0)
        self.samples = total if samples is None else item_count('samples', samples, 1)
        self._firsts = offsets_of(np.array(sizes, np.int64))
        self._empty = [self._call(number, 0, np.empty(0, np.int64)) for number in range(len(self.sources))]
        """No datapoints of each source. The result of `take` has one type, whichever sources it has."""

    @property
    def per_datapoint(self) -> str | None:
        """What samplers of the mixture have of each datapoint, e.g. 'lengths'; None without any."""
        arguments = (getattr(source, 'per_datapoint', None) for source in self.sources)
        return next((argument for argument in arguments if argument is not None), None)

    def _shares(self, weights: Sequence[Any], name: str) -> list[fractions.Fraction]:
        """Returns the shares of positions as fractions, after checking the weights."""
        if len(weights) != len(self.lengths):
            raise ValueError(
                f'{name}: expected one for each of {len(self.lengths)} sources, got {len(weights)}'
            )
        for number, (length, weight) in enumerate(zip(self.lengths, weights, strict=True)):
            if not hasattr(weight, '__float__'):
                raise TypeError(f'{name}: expected numbers, got {weight!r:.200} for source {number}')
            if not 0 <= weight < math.inf:
                expected = 'finite numbers of at least 0'
                raise ValueError(f'{name}: expected {expected}, got {weight} for source {number}')
            if weight and not length:
                raise ValueError(f'source {number}: expected datapoints for a weight of {weight}, got none')
        if not any(weights):
            raise ValueError(f'{name}: expected one above 0, got {list(weights)}')
        exact = [fractions.Fraction(float(w) if isinstance(w, np.floating) else w) for w in weights]
        shares = [share.limit_denominator(10**6) or share for share in exact]
        if self.weigh == 'positions':
            return shares
        return [
            share and share / _mean(number, source, self.weigh)
            for number, (share, source) in enumerate(zip(shares, self.sources, strict=True))
        ]

    def __len__(self) -> int:
        return self.samples

    @property
    def initial(self) -> Self:
        """The order without changes of weights."""
        return self if self._initial is None else self._initial

    def with_weights(self, position: int, weights: Any) -> Self:
        """Returns this order with other weights from a position on, up to the next one of the schedule."""
        position, values = item_count('position', position, 0), as_weights(weights)
        counts = integers_of(self._shares(values.tolist(), f'weights from position {position} on'))
        changed = copy.copy(self)
        changed._initial = self.initial
        changed.changes = with_change(self.changes, position, values)
        starts, proportions = self._starts.tolist(), self._proportions
        if position < self._first:  # The weights of the schedule hold again from its first position on.
            starts, proportions = [0, self._first, *starts[1:]], [proportions[0], *proportions]
        changed._first = 0 if position <= self._first else self._first
        number = bisect.bisect_left(starts, position)
        rest = number + (number < len(starts) and starts[number] == position)
        starts = [*starts[:number], position, *starts[rest:]]
        changed._starts = np.array(starts, np.int64)
        changed._proportions = [*proportions[:number], Proportions(counts), *proportions[rest:]]
        changed.counts = {
            start: proportions.counts for start, proportions in zip(starts, changed._proportions, strict=True)
        }
        changed._before = self._before[: max(number, 1)]
        for at in range(len(changed._before), len(changed._starts)):
            earlier = changed._proportions[at - 1].before(starts[at] - starts[at - 1])
            changed._before.append(changed._before[-1] + earlier)
        return changed

    def locate(self, epoch: int, positions: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the source at each position, and the number of its earlier positions in all epochs.

        Raises:
            ValueError: The position over all epochs is 2^62 or more.
        """
        shape = np.shape(positions)
        positions = positions_of_run(epoch, np.reshape(positions, -1), self.samples)
        if len(self._proportions) == 1:
            owners, counts = self._proportions[0].locate(positions)
            return owners.reshape(shape), counts.reshape(shape)
        numbers = np.searchsorted(self._starts, positions, 'right') - 1
        owners, counts = np.empty((2, len(positions)), np.int64)
        for number in _distinct(numbers):
            chosen = np.flatnonzero(numbers == number)
            found, earlier = self._proportions[number].locate(positions[chosen] - self._starts[number])
            owners[chosen], counts[chosen] = found, self._before[number][found] + earlier
        return owners.reshape(shape), counts.reshape(shape)

    def take(self, epoch: int, positions: Int64s) -> Int64s | Ragged:
        """Returns the datapoints at some positions of an epoch: a `Ragged` if a source has bins."""
        owners, counts = (found.reshape(-1) for found in self.locate(epoch, positions))
        parts, rows = [*self._empty], [np.empty(0, np.int64)] * len(self._empty)
        for owner in _distinct(owners):
            rows[owner] = np.flatnonzero(owners == owner)
            parts[owner] = self._take(owner, counts[rows[owner]])
        taken = join_positions(parts, rows, len(owners))
        return taken if isinstance(taken, Ragged) else taken.reshape(np.shape(positions))

    def _take(self, owner: int, counts: Int64s) -> Int64s | Ragged:
        """Returns the datapoints, in the `concat`, at positions of a source, counted over all its epochs."""
        first = int(self._firsts[owner])
        epochs, within = np.divmod(counts, self.lengths[owner])
        if epochs.min() == epochs.max():
            taken = self._call(owner, int(epochs[0]), within)
        else:
            numbers = np.unique(epochs).tolist()
            rows = [np.flatnonzero(epochs == number) for number in numbers]
            parts = [
                self._call(owner, *call) for call in zip(numbers, (within[row] for row in rows), strict=True)
            ]
            taken = join_positions(parts, rows, len(counts))
        if isinstance(taken, Ragged):
            return dataclasses.replace(taken, values=taken.values + first)
        return taken + first

    def _call(self, owner: int, epoch: int, positions: Int64s) -> Int64s | Ragged:
        """Returns the datapoints at positions of an epoch of a source, as in its dataset."""
        source = self.sources[owner]
        if isinstance(source, int):
            if not self.shuffle or not len(positions):
                return positions
            return permuted(positions, source, self.seed, owner, epoch)
        try:
            taken = source.take(epoch, positions)
        except Exception as exc:
            exc.add_note(f'in source {owner} of the mixture')
            raise
        where = f'source {owner} of the mixture, {source!r:.200}: expected datapoints'
        if len(taken) != len(positions):
            raise ValueError(f'{where} for each of {len(positions)} positions, got {len(taken)}')
        values = taken.values if isinstance(taken, Ragged) else np.asarray(taken)
        datapoints = int(self._firsts[owner + 1] - self._firsts[owner])
        is_wrong = (values < 0) | (values >= datapoints)
        if is_wrong.any():
            raise ValueError(f'{where} below {datapoints}, got {values[int(is_wrong.argmax())]}')
        return taken if isinstance(taken, Ragged) else values

    def __repr__(self) -> str:
        order = f'seed={self.seed}' if self.shuffle else 'shuffle=False'
        weigh = '' if self.weigh == 'positions' else f', weigh={self.weigh!r}'
        changes = f', {len(self.changes)} changes' if self.changes else ''
        return (
            f'Mixture({self.sources}, weights={self.initial.counts}, {order}, samples={self.samples}{weigh}'
            f'{changes})'
        )


def _checked(number: int, source: Any) -> int | Sampler:
    """Returns the number of datapoints of a source, or its sampler."""
    if isinstance(source, Sampler) and not isinstance(source, type | np.ndarray):
        if not hasattr(source, 'datapoints'):
            raise TypeError(
                f'source {number}: expected a sampler with an attribute datapoints, the number of datapoints '
                f'of its dataset, got {source!r:.200}'
            )
        return source
    if not hasattr(source, '__index__') and not isinstance(source, float):
        raise TypeError(
            f'source {number}: expected a number of datapoints or one of bags.samplers, got {source!r:.200}'
        )
    return item_count(f'source {number}', source, 0)


def _datapoints(source: Sampler) -> int:
    return int(getattr(source, 'datapoints'))  # noqa: B009 - optional in the protocol


def _mean(number: int, source: int | Sampler, budget: str) -> fractions.Fraction:
    """Returns the mean number of items in a bin of a source.

    Raises:
        ValueError: The source has no bins, or no such budget, or bins of length 0.
    """
    means = getattr(source, 'mean', None)
    mean = means.get(budget) if isinstance(means, Mapping) else means
    if not mean:
        raise ValueError(
            f'weigh={budget!r}: expected bins with this budget, of lengths above 0, as of samplers.Packed; '
            f'got {source!r:.200} for source {number}'
        )
    return fractions.Fraction(mean)


def _distinct(numbers: Int64s) -> list[int]:
    """Returns the sorted distinct values of small integers: 4,096 in 6 us, where `np.unique` takes 55."""
    return np.flatnonzero(np.bincount(numbers)).tolist()
