"""The protocol of samplers, and orders: sequential, in windows, shuffled, by shards or by length."""

from __future__ import annotations

import zlib
from collections.abc import Sequence, Sized
from typing import Any, Protocol, runtime_checkable

import numpy as np

from bags.dataset.reading.batch import Ragged
from bags.indexing import Int64s, offsets_of
from bags.samplers.permutation import permuted
from bags.validation import at_least, integer, item_count

POOL_BATCHES = 64


@runtime_checkable
class Sampler(Protocol):
    """An order of datapoints for each epoch.

    Examples:
        >>> class Reversed:
        ...     def __len__(self):
        ...         return len(dataset)
        ...
        ...     def take(self, epoch, positions):
        ...         return len(dataset) - 1 - np.asarray(positions)
        ...
        ...     def __repr__(self):
        ...         return f'Reversed({len(dataset)})'
        >>> next(iter(bags.Loader(dataset, 3, sampler=Reversed())))['id']
        array([7, 6, 5])
    """

    def __len__(self) -> int:
        """Returns the number of positions in an epoch."""
        ...

    def take(self, epoch: int, positions: Int64s) -> Int64s | Ragged:
        """Returns the indices at some positions of an epoch, int64 of the same shape.

        If a position may hold several datapoints, returns a `Ragged` with the indices at each position.
        """
        ...


def check_sampler(sampler: Any, dataset: Sized) -> None:
    """Checks that an object is a sampler for a dataset.

    Raises:
        TypeError: Not a sampler, e.g. a class or an array.
        ValueError: The sampler has more datapoints, or another number of weights or lengths, or the sources
            of a mixture are in another order than the parts of the dataset.
    """
    datapoints = len(dataset)
    if not isinstance(sampler, Sampler) or isinstance(sampler, type | np.ndarray):
        raise TypeError(
            'sampler: expected one of bags.samplers, or an object with __len__ and take, '
            f'got {f"the class {sampler.__name__}" if isinstance(sampler, type) else type(sampler).__name__}'
            ' (to load chosen datapoints, give the loader dataset.select(indices))'
        )
    argument, sampled = getattr(sampler, 'per_datapoint', None), getattr(sampler, 'datapoints', 0)
    if argument is not None and datapoints and sampled != datapoints:
        raise ValueError(
            f'sampler: expected {argument} of each of {datapoints} datapoints, got {sampled} {argument}'
        )
    if sampled > datapoints > 0:
        raise ValueError(
            f'sampler: expected an order of at most the {datapoints} datapoints of the dataset, '
            f'got one of {sampled}'
        )
    sources = getattr(sampler, 'source_datapoints', None)
    if sources is not None and len(sources) > 1:
        parts = shard_lengths(dataset).tolist()
        if parts != sources and sorted(parts) == sorted(sources):
            number = next(
                number for number, pair in enumerate(zip(parts, sources, strict=True)) if len({*pair}) > 1
            )
            raise ValueError(
                f'sampler: expected sources in the order of the datasets of the concat, got a source '
                f'{number} of {sources[number]} datapoints for a dataset of {parts[number]}'
            )


class Sequential:
    """Each datapoint once, in order: the sampler of `shuffle=False`. States of loaders contain its `repr`.

    Examples:
        >>> bags.Loader(dataset, 4, shuffle=False).sampler
        Sequential(8)
    """

    def __init__(self, length: int) -> None:
        self.length = self.datapoints = item_count('length', length, 0)

    def __len__(self) -> int:
        return self.length

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        return positions

    def __repr__(self) -> str:
        return f'Sequential({self.length})'


class Sliding:
    """Windows over consecutive datapoints, each beginning `stride` after the previous one.

    The last windows of an epoch wrap around to the beginning: every window is full.

    Args:
        length: Number of datapoints.
        window: Number of positions in a window.
        stride: Positions from one window to the next. Default: `window`. Each datapoint then
            comes once, except the datapoints that fill the last window.

    Examples:
        >>> bags.samplers.Sliding(6, window=3, stride=2).take(0, np.arange(6))
        array([0, 1, 2, 2, 3, 4])
    """

    def __init__(self, length: int, window: int, stride: int | None = None) -> None:
        self.length = self.datapoints = item_count('length', length, 1)
        self.window = at_least('window', window, 1)
        self.stride = self.window if stride is None else item_count('stride', stride, 1)

    def __len__(self) -> int:
        return -(-self.length // self.stride) * self.window

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        number, within = np.divmod(positions, self.window)
        return (number * self.stride + within) % self.length

    def __repr__(self) -> str:
        return f'Sliding({self.length}, {self.window}, {self.stride})'


class Shuffled:
    """Each datapoint once, in an order that depends on the seed and the epoch; takes no memory.

    Examples:
        >>> sampler = bags.samplers.Shuffled(6, seed=0)
        >>> sampler.take(0, np.arange(6)), sampler.take(1, np.arange(6))
        (array([4, 2, 1, 0, 3, 5]), array([4, 1, 5, 0, 3, 2]))
    """

    def __init__(self, length: int, seed: int = 0) -> None:
        self.length = self.datapoints = item_count('length', length, 0)
        self.seed = integer('seed', seed)

    def __len__(self) -> int:
        return self.length

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        return permuted(positions, self.length, self.seed, epoch)

    def __repr__(self) -> str:
        return f'Shuffled({self.length}, seed={self.seed})'


class ShardShuffled:
    """Each datapoint once, a few shards at a time, so that a cache holds the next datapoints.

    Shards are put in random order and divided into windows; within a window, datapoints come in random order.
    More shards in a window mix better and need a larger cache.

    Args:
        lengths: Number of datapoints of each shard, as `shard_lengths(dataset)` returns them.
        seed: Seed of the order, with the epoch.
        window: Number of shards in a window.

    Examples:
        >>> lengths = bags.samplers.shard_lengths(dataset)
        >>> sampler = bags.samplers.ShardShuffled(lengths, seed=0, window=1)
        >>> sampler.take(0, np.arange(8))
        array([5, 7, 4, 6, 1, 0, 3, 2])
    """

    def __init__(self, lengths: Sequence[int] | Int64s, seed: int = 0, window: int = 8) -> None:
        self.lengths = np.array(lengths, np.int64).reshape(-1)
        if len(self.lengths) and int(self.lengths.min()) < 0:
            raise ValueError(f'lengths: expected at least 0, got {int(self.lengths.min())}')
        self.seed = integer('seed', seed)
        self.window = at_least('window', window, 1)
        self._starts = offsets_of(self.lengths)
        self.datapoints = int(self._starts[-1])
        self._last: tuple[int, Any] = (-1, None)

    def __len__(self) -> int:
        return self.datapoints

    def _epoch(self, epoch: int) -> Any:
        """Returns the order of the shards, and the positions of the starts and ends of shards and windows."""
        last_epoch, layout = self._last
        if last_epoch != epoch:
            order = permuted(np.arange(len(self.lengths)), len(self.lengths), self.seed, epoch)
            ends = offsets_of(self.lengths[order])
            layout = order, ends, ends[np.append(np.arange(0, len(order), self.window), len(order))]
            self._last = (epoch, layout)
        return layout

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        order, starts, windows = self._epoch(epoch)
        numbers = np.searchsorted(windows, positions, 'right') - 1
        indices = np.empty(np.shape(positions), np.int64)
        for number in np.unique(numbers).tolist():
            chosen = numbers == number
            start, stop = int(windows[number]), int(windows[number + 1])
            shuffled = start + permuted(positions[chosen] - start, stop - start, self.seed, epoch, number)
            shard = np.searchsorted(starts, shuffled, 'right') - 1
            indices[chosen] = self._starts[order[shard]] + shuffled - starts[shard]
        return indices

    def __repr__(self) -> str:
        # The order depends on the lengths of the shards.
        shards = f'{len(self.lengths)} shards #{zlib.crc32(self.lengths.tobytes()):08x}'
        return f'ShardShuffled({shards}, {len(self)}, seed={self.seed}, window={self.window})'


class Bucketed:
    """Each datapoint once, in batches of similar length, which need little padding.

    Random datapoints for 64 batches are sorted by length and cut into batches, whose order is then random.

    Args:
        lengths: Length of each datapoint, as `dataset.lengths(field)` returns it from the refs alone.
        batch_size: Batch size of all ranks together.
        seed: Seed of the order, with the epoch.
        pool: Number of batches that are sorted together. A larger pool makes lengths more similar, and
            batches less random.

    Examples:
        >>> lengths = dataset.lengths('state')
        >>> sampler = bags.samplers.Bucketed(lengths, 2, seed=0)
        >>> lengths[sampler.take(0, np.arange(8))].reshape(-1, 2)
        array([[ 5,  6],
               [ 9, 10],
               [ 3,  4],
               [ 7,  8]])
    """

    per_datapoint = 'lengths'

    def __init__(self, lengths: Any, batch_size: int, seed: int = 0, *, pool: int = POOL_BATCHES) -> None:
        self.lengths = np.array(lengths, np.int64).reshape(-1)
        self.datapoints = len(self.lengths)
        self.batch_size = item_count('batch_size', batch_size, 1)
        self.seed = integer('seed', seed)
        self.pool = at_least('pool', pool, 1)
        self._last: tuple[tuple[int, int], Int64s] = ((-1, -1), self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def _pool(self, epoch: int, number: int) -> Int64s:
        key, pool = self._last
        if key != (epoch, number):
            size = self.batch_size * self.pool
            start, stop = number * size, min(len(self.lengths), (number + 1) * size)
            chosen = permuted(np.arange(start, stop), len(self.lengths), self.seed, epoch)
            chosen = chosen[np.argsort(self.lengths[chosen], kind='stable')]
            # The incomplete batch stays at the end.
            count = len(chosen) // self.batch_size
            whole = chosen[: count * self.batch_size].reshape(count, self.batch_size)
            order = permuted(np.arange(count), count, self.seed, epoch, number)
            pool = np.concatenate([whole[order].reshape(-1), chosen[count * self.batch_size :]])
            self._last = ((epoch, number), pool)
        return pool

    def take(self, epoch: int, positions: Int64s) -> Int64s:
        numbers, within = np.divmod(positions, self.batch_size * self.pool)
        indices = np.empty(np.shape(positions), np.int64)
        for number in np.unique(numbers).tolist():
            chosen = numbers == number
            indices[chosen] = self._pool(epoch, number)[within[chosen]]
        return indices

    def __repr__(self) -> str:
        mark = zlib.crc32(self.lengths.tobytes())
        lengths = f'{len(self)} lengths #{mark:08x}'
        return f'Bucketed({lengths}, {self.batch_size}, seed={self.seed}, pool={self.pool})'


def shard_lengths(dataset: Sized) -> Int64s:
    """Returns the number of datapoints of each shard of a reader, or of each dataset of a `concat`.

    Examples:
        >>> bags.samplers.shard_lengths(dataset)
        array([4, 4])
    """
    lengths = dataset.part_lengths() if hasattr(dataset, 'part_lengths') else [len(dataset)]
    return np.array(lengths, np.int64)


def sampler_for(dataset: Sized, shuffle: bool | str, seed: int) -> Sampler:
    """Returns the sampler of the option `shuffle` of a loader: True, False or 'shards'."""
    if shuffle == 'shards':
        return ShardShuffled(shard_lengths(dataset), seed)
    if not isinstance(shuffle, bool):
        raise ValueError(f"shuffle: expected True, False or 'shards', got {shuffle!r}")
    return Shuffled(len(dataset), seed) if shuffle else Sequential(len(dataset))
