"""Iterators that read ahead: the next batch is on its way while one is consumed."""

from __future__ import annotations

import itertools
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from bags.bag.record_slice import RecordSlice
from bags.errors import BagsError
from bags.indexing import Int64s, as_indices

__all__ = ['Batch', 'batches', 'in_batches', 'iterate', 'read_ahead']

Selection = TypeVar('Selection')
Item = TypeVar('Item')

LONGEST = 4096  # Records read at a time, however small they are.
FAR = 16  # Times as much from a storage that is waited for.
FAULTS = (BagsError, LookupError, TypeError, ValueError, OSError)


class Batch(NamedTuple):
    """Things delivered together, and the error that came after them, if one did."""

    items: Any
    error: Exception | None = None


def batches(source: Iterable[Item], size: int) -> Iterator[Batch]:
    """Takes items from a source, perhaps an infinite one, in lists of `size`, up to its error."""
    iterator = iter(source)
    while True:
        items: list[Item] = []
        try:
            items.extend(itertools.islice(iterator, size))
        except Exception as exc:  # Whatever the source raises belongs behind what it gave before.
            yield Batch(items, exc)
            return
        if not items:
            return
        yield Batch(items)


def read_ahead(
    selections: Iterator[Batch],
    expect: Callable[[Any], None],
    read: Callable[[Any], Batch],
    threaded: bool,
) -> Iterator[list[Any]]:
    """Yields what `read` returns for each selection, with the next selection read ahead.

    Args:
        selections: What to read; an error in one comes out after what was selected before it.
        expect: Announces a selection without waiting for it.
        read: Reads one; its error comes out after its items.
        threaded: Read ahead in a thread (for storage that waits) and not by announcing only, which
            costs nothing where data is cached. The thread ends with the iterator.
    """
    threads = None
    if threaded:
        from concurrent.futures import ThreadPoolExecutor

        threads = ThreadPoolExecutor(1, 'bags-read-ahead')
    pending: deque[tuple[Any, Batch]] = deque()
    try:
        while True:
            while len(pending) < 2:
                selection = next(selections, None)
                if selection is None:
                    break
                if threads is not None:
                    pending.append((threads.submit(read, selection.items), selection))
                else:
                    if pending:
                        expect(selection.items)
                    pending.append((None, selection))
            if not pending:
                return
            future, selection = pending.popleft()
            batch = future.result() if future is not None else read(selection.items)
            yield batch.items
            error = batch.error or selection.error
            if error is not None:
                raise error
    finally:
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)


def iterate(
    part: Callable[[], RecordSlice], indices: Iterable[Any], read_ahead_count: int | None
) -> Iterator[bytes]:
    """Returns an iterator over records that reads ahead.

    Args:
        part: Returns what is read from; raises when that is closed.
        indices: A range of indices that are all there; or any iterable, with or without an end.
        read_ahead_count: Records read at a time; as many as the options have it unless given.
    """
    records = part()
    if isinstance(indices, range) and not indices:
        return iter(())
    # What is waited for is read further ahead, by several requests at once.
    length = _length(records, FAR if records.is_remote else 1)
    if read_ahead_count is not None:
        length = max(1, operator.index(read_ahead_count))
    if length <= 2 and isinstance(indices, range) and not records.is_remote:
        # Large records, mapped: the kernel reads ahead by itself.
        return (get(index) for get in [records.get] for index in indices)
    if isinstance(indices, range):
        starts = range(0, len(indices), length)
        selections: Iterator[Batch] = (Batch(indices[start : start + length]) for start in starts)
    else:
        selections = batches(indices, length)

    def expect(indices: Any) -> None:
        try:
            part().expect(_checked(part(), indices))
        except FAULTS:
            pass  # They wait for the read.

    def read(indices: Any) -> Batch:
        """Reads a batch; if that fails, one by one up to the record or index that is at fault."""
        try:
            chosen = _checked(part(), indices)
            return Batch(part().read(chosen) if isinstance(chosen, range) else part().read_shared(chosen))
        except FAULTS:
            found: list[bytes] = []
            for index in indices:
                try:
                    found.append(part().get(operator.index(index)))
                except Exception as exc:
                    return Batch(found, exc)
            return Batch(found)

    return itertools.chain.from_iterable(read_ahead(selections, expect, read, records.is_remote))


def _checked(part: RecordSlice, indices: Any) -> range | Int64s:
    return indices if isinstance(indices, range) else as_indices(indices, len(part.chosen))


def _length(part: RecordSlice, times: int = 1) -> int:
    """Returns how many records are read at a time."""
    mean = part.shards.size / part.shards.layout.total if part.shards.layout.total else 0.0
    length = int(times * part.shards.options.read_ahead_bytes // max(mean, 1)) or 1
    return min(length, times * LONGEST)


def in_batches(part: RecordSlice, start: int, stop: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yields all records from one index to another, in lists, and the index of the first of each."""
    length = _length(part)
    for first in range(start, stop, length):
        yield first, part.read(range(first, min(first + length, stop)))
