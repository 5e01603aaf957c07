"""The inputs of a dataset that is written by many: dealt out as tasks, and which of them are done."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bags.authoring.progress_log import Provenance
from bags.authoring.workers import Outcome, Task

__all__ = ['Inputs', 'Ledger']

LONG = 0.2  # Seconds,
SHORT = 0.03
MOST = 256  # and inputs of a task.
LARGE = 1 << 22  # Bytes of its records.

Ranges = list[tuple[int, int]]


class Inputs:
    """Deals inputs out as tasks, of so many that handing them out costs little beside the work.

    Args:
        source: The inputs.
        done: Ranges of those that are done already, in order.
    """

    def __init__(self, source: Iterable[Any], done: Ranges) -> None:
        self._parts = _open(source, done)
        self._part: Iterator[Any] = iter(())
        self._first = 0
        self._size = 1

    def next(self) -> Task | None:
        """Returns the next task; None at the end."""
        while not (inputs := list(itertools.islice(self._part, self._size))):
            found = next(self._parts, None)
            if found is None:
                return None
            self._first, self._part = found
        task = Task(self._first, inputs)
        self._first += len(inputs)
        return task

    def took(self, outcome: Outcome, size: int) -> None:
        """Learns how long a task took, and how many bytes of records there are of it."""
        count = len(outcome.task.inputs)
        if count >= self._size and outcome.seconds < SHORT and size < LARGE:
            self._size = min(2 * self._size, MOST)
        elif count <= self._size and (outcome.seconds > LONG or size > 2 * LARGE):
            self._size = max(1, self._size // 2)


def _open(source: Iterable[Any], done: Ranges) -> Iterator[tuple[int, Iterator[Any]]]:
    """Returns the parts that are not done, each with the number of its first input."""
    parts: list[tuple[int, int | None]] = []
    reached = 0
    for begin, end in done:
        if begin > reached:
            parts.append((reached, begin))
        reached = max(reached, end)
    parts.append((reached, None))
    iterator = None if isinstance(source, Sequence) else iter(source)
    position = 0
    for start, stop in parts:
        if iterator is None:
            assert isinstance(source, Sequence)
            places = range(start, len(source) if stop is None else stop)
            yield start, map(source.__getitem__, places)
        else:
            skipped = sum(1 for _ in itertools.islice(iterator, start - position))
            if skipped < start - position:
                raise ValueError(
                    f'expected at least {start} inputs, as so many were written before, '
                    f'got {position + skipped}'
                )
            yield start, itertools.islice(iterator, None if stop is None else stop - start)
            position = start if stop is None else stop


class Ledger:
    """Which inputs are in a dataset that is written in whatever order they are done.

    A flush makes some more datapoints last; how many of them, nobody knows before it has succeeded, or after
    a crash. So it is noted before each flush what was done at the last one, and in which order datapoints
    came since.

    Args:
        provenance: Where it is kept.
        length: Datapoints that are there.
    """

    def __init__(self, provenance: Provenance, length: int) -> None:
        self._provenance = provenance
        known = provenance.state.get('ledger', {'length': length, 'done': [(0, length)], 'since': []})
        self.done: Ranges = [(start, stop) for start, stop in known['done']]
        """Ranges of inputs that are done, in order."""
        left = length - known['length']
        for start, stop in known['since']:
            if left > 0:
                self._add(start, min(stop, start + left))
                left -= stop - start
        self._length = length
        self._since: Ranges = []

    def wrote(self, first: int, count: int) -> None:
        """Is told of inputs whose datapoints were appended."""
        if self._since and self._since[-1][1] == first:
            self._since[-1] = self._since[-1][0], first + count
        else:
            self._since.append((first, first + count))

    def save(self) -> None:
        """Notes what is appended, before it is flushed."""
        self._provenance.state['ledger'] = {'length': self._length, 'done': self.done, 'since': self._since}
        self._provenance.save()

    def flushed(self) -> None:
        """Is told that all is flushed."""
        for start, stop in self._since:
            self._add(start, stop)
            self._length += stop - start
        self._since = []

    def _add(self, start: int, stop: int) -> None:
        merged: Ranges = []
        for begin, end in sorted([*self.done, (start, stop)]):
            if merged and merged[-1][1] == begin:
                merged[-1] = merged[-1][0], end
            else:
                merged.append((begin, end))
        self.done = merged
