"""Iterators that read ahead: the next batch is on its way while one is consumed."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

__all__ = ['Batch', 'batches', 'read_ahead']

Selection = TypeVar('Selection')
Item = TypeVar('Item')


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
