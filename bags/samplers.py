"""Orders of datapoints: which one is at a position of an epoch. Pure: no state, no I/O.

Sequential     one after the other
Sliding        windows that overlap or leave gaps, around the end to the beginning
Shuffled       all of them, each once, anywhere
ShardShuffled  each once, a few shards at a time
Random         any, with replacement
Mixture        of several datasets, in given proportions
Bucketed       each once, in batches of similar length

A sampler of your own has `__len__`, the positions of an epoch; `take(epoch, positions)`, which returns the
indices at positions; and a `repr` that tells it from others.
"""

from __future__ import annotations

import fractions
import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from bags.arguments import at_least
from bags.batch import offsets_of
from bags.loading.permutation import Permutation, hashed

__all__ = [
    'Bucketed',
    'Mixture',
    'Random',
    'Sampler',
    'Sequential',
    'ShardShuffled',
    'Shuffled',
    'Sliding',
    'shard_lengths',
]

Int64s = npt.NDArray[np.int64]

CYCLE = 1 << 22  # Positions after which the schedule of a mixture repeats, at most.
POOL = 64  # Batches that are made together, so that each finds datapoints of similar length.


@runtime_checkable
class Sampler(Protocol):
    """An order of datapoints for each epoch."""

    def __len__(self) -> int:
        """Returns the number of positions in an epoch."""
        ...

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        """Returns the indices at some positions of an epoch, int64 of the same shape."""
        ...


class Sequential:
    """Each datapoint once, in order."""

    def __init__(self, length: int) -> None:
        self.length = at_least('length', length, 0)

    def __len__(self) -> int:
        return self.length

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        return positions

    def __repr__(self) -> str:
        return f'Sequential({self.length})'


class Sliding:
    """Windows over consecutive datapoints, each beginning `stride` after the one before.

    The datapoints are a circle: the last windows of an epoch go on at the beginning, and are never cut short.

    Args:
        length: Datapoints.
        window: Positions of a window.
        stride: From one window to the next; `window` unless given, so that each datapoint comes once, but
            for those that fill the last window.
    """

    def __init__(self, length: int, window: int, stride: int | None = None) -> None:
        self.length = at_least('length', length, 1)
        self.window = at_least('window', window, 1)
        self.stride = self.window if stride is None else at_least('stride', stride, 1)

    def __len__(self) -> int:
        return -(-self.length // self.stride) * self.window

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        number, within = np.divmod(positions, self.window)
        return (number * self.stride + within) % self.length

    def __repr__(self) -> str:
        return f'Sliding({self.length}, {self.window}, {self.stride})'


class Shuffled:
    """Each datapoint once, in an order that the seed and the epoch determine; takes no memory."""

    def __init__(self, length: int, seed: int = 0) -> None:
        self.length = at_least('length', length, 0)
        self.seed = seed
        self._last = (-1, Permutation(0))

    def __len__(self) -> int:
        return self.length

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        known, permutation = self._last
        if known != epoch:
            permutation = Permutation(self.length, self.seed, epoch)
            self._last = (epoch, permutation)
        return permutation(positions)

    def __repr__(self) -> str:
        return f'Shuffled({self.length}, seed={self.seed})'


class Random:
    """Any datapoint at any position: drawn with replacement.

    Args:
        length: Datapoints.
        seed: Of the draw, with the epoch.
        samples: Positions of an epoch; `length` unless given.
    """

    def __init__(self, length: int, seed: int = 0, samples: int | None = None) -> None:
        self.length = at_least('length', length, 1)
        self.seed = seed
        self.samples = self.length if samples is None else at_least('samples', samples, 1)

    def __len__(self) -> int:
        return self.samples

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        return hashed(positions, self.length, self.seed, epoch)

    def __repr__(self) -> str:
        return f'Random({self.length}, seed={self.seed}, samples={self.samples})'


class ShardShuffled:
    """Each datapoint once, of few shards at a time: what is read from far away can be read in large pieces.

    Shards are put in a random order and divided into windows of `window`; within a window datapoints come in
    a random order. All else being equal, more shards in a window mix better and need more room in a cache.

    Args:
        lengths: Datapoints of each shard; `shard_lengths(dataset)` finds them.
        seed: Of the order, with the epoch.
        window: Shards at a time.
    """

    def __init__(self, lengths: Sequence[int] | Int64s, seed: int = 0, window: int = 8) -> None:
        self.lengths = np.array(lengths, np.int64).reshape(-1)
        if len(self.lengths) and int(self.lengths.min()) < 0:
            raise ValueError(f'lengths: expected at least 0, got {int(self.lengths.min())}')
        self.seed = seed
        self.window = at_least('window', window, 1)
        self._starts = offsets_of(self.lengths)
        self._last: tuple[int, Any] = (-1, None)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def _epoch(self, epoch: int) -> Any:
        """Returns the order of the shards, and the positions at which each of them, and each window, ends."""
        known, found = self._last
        if known != epoch:
            order = Permutation(len(self.lengths), self.seed, epoch)(np.arange(len(self.lengths)))
            ends = offsets_of(self.lengths[order])
            found = order, ends, ends[np.append(np.arange(0, len(order), self.window), len(order))]
            self._last = (epoch, found)
        return found

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        order, starts, windows = self._epoch(epoch)
        flat = np.reshape(positions, -1)
        numbers = np.searchsorted(windows, flat, 'right') - 1
        found = np.empty(len(flat), np.int64)
        for number in np.unique(numbers).tolist():
            chosen = numbers == number
            start, stop = int(windows[number]), int(windows[number + 1])
            place = start + Permutation(stop - start, self.seed, epoch, number)(flat[chosen] - start)
            shard = np.searchsorted(starts, place, 'right') - 1
            found[chosen] = self._starts[order[shard]] + place - starts[shard]
        return found.reshape(np.shape(positions))

    def __repr__(self) -> str:
        return (
            f'ShardShuffled({len(self.lengths)} shards, {len(self)}, seed={self.seed}, window={self.window})'
        )


def shard_lengths(dataset: Any) -> Int64s:
    """Returns the number of datapoints of each shard of a reader, or of each part of a `concat`."""
    layout = getattr(dataset, 'layout', None)
    if layout is None:
        return np.array([len(dataset)], np.int64)
    starts: Int64s = np.asarray(layout.starts, np.int64)
    return starts[1:] - starts[:-1]


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
        self.seed = seed
        self.shuffle = shuffle
        self.samples = sum(self.lengths) if samples is None else at_least('samples', samples, 1)
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


def _whole(weights: Sequence[float]) -> list[int]:
    """Returns whole numbers in the proportions of weights."""
    for number, weight in enumerate(weights):
        if not 0 <= weight < math.inf:
            raise ValueError(
                f'weights: expected finite numbers of at least 0, got {weight} for dataset {number}'
            )
    exact = [fractions.Fraction(weight) for weight in weights]
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


class Bucketed:
    """Each datapoint once, in batches of similar length, so that little of them is padding.

    Batches are cut from pools: each of 64 batches of random datapoints, sorted by length. Their order is
    random within the pool.

    Args:
        lengths: Of each datapoint, as `dataset.lengths(field)` returns them without reading any payload.
        batch_size: Of all hosts together.
        seed: Of the order, with the epoch.
        pool: Batches of a pool: more of them are more alike in themselves, and less random.
    """

    def __init__(self, lengths: Any, batch_size: int, seed: int = 0, *, pool: int = POOL) -> None:
        self.lengths = np.array(lengths, np.int64).reshape(-1)
        self.batch_size = at_least('batch_size', batch_size, 1)
        self.seed = seed
        self.pool = at_least('pool', pool, 1)
        self._last: tuple[tuple[int, int], Int64s] = ((-1, -1), self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def _pool(self, epoch: int, number: int) -> Int64s:
        known, found = self._last
        if known != (epoch, number):
            size = self.batch_size * self.pool
            start, stop = number * size, min(len(self.lengths), (number + 1) * size)
            chosen = Permutation(len(self.lengths), self.seed, epoch)(np.arange(start, stop))
            chosen = chosen[np.argsort(self.lengths[chosen], kind='stable')]
            # A batch that is not whole stays where it is: at the end.
            count = len(chosen) // self.batch_size
            whole = chosen[: count * self.batch_size].reshape(count, self.batch_size)
            order = Permutation(count, self.seed, epoch, number)(np.arange(count))
            found = np.concatenate([whole[order].reshape(-1), chosen[count * self.batch_size :]])
            self._last = ((epoch, number), found)
        return found

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        flat = np.reshape(positions, -1)
        numbers, within = np.divmod(flat, self.batch_size * self.pool)
        found = np.empty(len(flat), np.int64)
        for number in np.unique(numbers).tolist():
            chosen = numbers == number
            found[chosen] = self._pool(epoch, number)[within[chosen]]
        return found.reshape(np.shape(positions))

    def __repr__(self) -> str:
        import zlib

        mark = zlib.crc32(self.lengths.tobytes())
        lengths = f'{len(self)} lengths #{mark:08x}'
        return f'Bucketed({lengths}, {self.batch_size}, seed={self.seed}, pool={self.pool})'
