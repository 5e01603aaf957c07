"""Iterators over records that read ahead: the next batch is requested while the current one is consumed."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bags.bag.shards import Indices, Shards, global_indices
from bags.errors import BagsError
from bags.indexing import MAX_INT64, as_indices, check_index

MAX_BATCH_RECORDS = 4096
REMOTE_READ_AHEAD_FACTOR = 16
READ_ERRORS = (BagsError, LookupError, TypeError, ValueError, OSError)


class Batch(NamedTuple):
    """Indices or records, and an error to raise after them, if any."""

    items: Any
    error: Exception | None = None


def iterate(
    shards: Callable[[], Shards], chosen: range, indices: Iterator[Any] | None, read_ahead: int | None
) -> Iterator[bytes]:
    """Returns an iterator over records that reads ahead.

    Args:
        shards: Returns the shards to read; raises if they are closed.
        chosen: Global indices of the records.
        indices: Indices into `chosen`, possibly an infinite iterator; None for all records.
        read_ahead: Number of records per batch. By default, as many as fit in `read_ahead_bytes`.
    """
    if indices is None and not chosen:
        return iter(())
    is_remote = shards().bags[0].is_remote
    # Over a network, larger batches keep several requests in flight.
    size = _batch_size(shards(), REMOTE_READ_AHEAD_FACTOR if is_remote else 1)
    if read_ahead is not None:
        size = max(1, operator.index(read_ahead))
    if indices is not None:
        batches = _take(indices, size)
    elif size <= 2 and not is_remote:
        # For large local records, the read-ahead of the kernel suffices.
        return (shards().record(index) for index in chosen)
    else:
        everything = range(len(chosen))
        batches = (Batch(everything[start : start + size]) for start in everything[::size])

    def resolve(items: range | list[Any]) -> Indices:
        if isinstance(items, range):
            return chosen[items.start : items.stop]
        return global_indices(chosen, as_indices(items, len(chosen)))

    def read(batch: Batch) -> Batch:
        try:
            return Batch(shards().read_shared(resolve(batch.items)), batch.error)
        except READ_ERRORS:
            # Read one record at a time, up to the record or index that fails.
            records: list[bytes] = []
            for index in batch.items:
                try:
                    records.append(shards().record(chosen[_checked(index, len(chosen))]))
                except Exception as exc:
                    return Batch(records, exc)
            return Batch(records, batch.error)

    def will_need(batch: Batch) -> None:
        try:
            shards().will_need(resolve(batch.items))
        except READ_ERRORS:
            pass  # The error is raised when the batch is read.

    return itertools.chain.from_iterable(_read_ahead(batches, read, will_need, is_remote))


def _read_ahead(
    batches: Iterator[Batch],
    read: Callable[[Batch], Batch],
    will_need: Callable[[Batch], None],
    is_remote: bool,
) -> Iterator[list[bytes]]:
    """Yields the records of each batch.

    Over a network, the next batch is read in a thread that ends with the iterator. For local files, the next
    batch is announced to the kernel, which costs almost nothing if it is cached.
    """
    thread = None
    if is_remote:
        from concurrent.futures import ThreadPoolExecutor

        thread = ThreadPoolExecutor(1, 'bags-read-ahead')
    pending: Callable[[], Batch] | None = None
    try:
        for batch in itertools.chain(batches, (None,)):
            following = None
            if batch is not None and thread is not None:
                following = thread.submit(read, batch).result
            elif batch is not None:
                will_need(batch)
                following = functools.partial(read, batch)
            if pending is not None:
                records, error = pending()
                yield records
                if error is not None:
                    raise error
            pending = following
    finally:
        if thread is not None:
            thread.shutdown(wait=False, cancel_futures=True)


def _checked(index: Any, count: int) -> int:
    if isinstance(index, np.bool_):  # Older versions of NumPy accept it as an index.
        raise TypeError('index: expected an integer, got bool')
    if abs(operator.index(index)) > MAX_INT64:
        raise IndexOverflow(f'index {index} out of range [{-count}, {count})')
    return check_index(index, count)


class IndexOverflow(IndexError, OverflowError):
    """An index of more than 64 bits. bagz and Säckli raise OverflowError."""


def _take(source: Iterator[Any], size: int) -> Iterator[Batch]:
    """Yields the items of an iterator in batches of `size`, up to its end or its first error."""
    while True:
        items: list[Any] = []
        try:
            items.extend(itertools.islice(source, size))
        except Exception as exc:  # Raised after the preceding items.
            yield Batch(items, exc)
            return
        if not items:
            return
        yield Batch(items)


def _batch_size(shards: Shards, factor: int = 1) -> int:
    """Returns the number of records that fit in `read_ahead_bytes`, times a factor."""
    size = int(factor * shards.options.read_ahead_bytes // max(shards.mean, 1)) or 1
    return min(size, factor * MAX_BATCH_RECORDS)


def in_batches(shards: Shards, chosen: range) -> Iterator[list[bytes]]:
    """Yields the records at global indices, in lists."""
    size = _batch_size(shards)
    for start in range(0, len(chosen), size):
        yield shards.read(chosen[start : start + size])
