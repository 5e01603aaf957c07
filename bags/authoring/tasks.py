"""The inputs of `bags.write`, grouped into tasks, without those written by an earlier run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bags.dataset.resume import ProgressLog
from bags.workers.outcome import Outcome

MIN_SECONDS, MAX_SECONDS = 0.03, 0.2
"""Target range of the duration of a task; outside of it, the size of the next tasks changes."""
MAX_INPUTS = 256
GOOD_BYTES = 1 << 22
"""Bytes of the records of a task above which tasks do not grow; above twice as many they shrink."""

Ranges = list[tuple[int, int]]


class Task(NamedTuple):
    """Consecutive inputs."""

    first: int
    """The number of the first input."""
    inputs: list[Any]

    def __str__(self) -> str:
        last = self.first + len(self.inputs) - 1
        return f'input {self.first}' if last == self.first else f'inputs {self.first} to {last}'


class Inputs(Iterator[Task]):
    """Groups inputs into tasks. Their size adapts, so that sending them costs little compared to the work.

    Args:
        source: The inputs.
        done: Ranges of inputs to leave out, in order.
        max_size: Maximum number of inputs in a task.
    """

    def __init__(self, source: Iterable[Any], done: Ranges, max_size: int = MAX_INPUTS) -> None:
        self._ranges = _remaining(source, done)
        self._first = 0
        self._inputs: Iterator[Any] = iter(())
        self._size = 1
        self._max_size = max_size

    def __next__(self) -> Task:
        inputs: list[Any] = []
        while not inputs:
            try:
                inputs.extend(itertools.islice(self._inputs, self._size))
            except Exception as exc:
                exc.add_note(f'from the source, at input {self._first + len(inputs)}')
                raise
            if not inputs:
                self._first, self._inputs = next(self._ranges)
        task = Task(self._first, inputs)
        self._first += len(inputs)
        return task

    def learn(self, outcome: Outcome) -> None:
        """Adapts the size of tasks to the time and bytes that one took."""
        count = len(outcome.task.inputs)
        if count >= self._size and outcome.seconds < MIN_SECONDS and outcome.size < GOOD_BYTES:
            self._size = min(2 * self._size, self._max_size)
        elif count <= self._size and (outcome.seconds > MAX_SECONDS or outcome.size > 2 * GOOD_BYTES):
            self._size = max(1, self._size // 2)


def _remaining(source: Iterable[Any], done: Ranges) -> Iterator[tuple[int, Iterator[Any]]]:
    """Yields the ranges of inputs that are not done: the number of the first input, and the inputs.

    Raises:
        ValueError: There are fewer inputs than are done.
    """
    starts = [0, *(stop for _, stop in done)]
    stops = [*(start for start, _ in done), None]
    iterator = None if isinstance(source, Sequence) else iter(source)
    position = 0
    for start, stop in zip(starts, stops, strict=True):
        if start == stop:
            continue
        if iterator is None:
            assert isinstance(source, Sequence)
            places = range(start, len(source) if stop is None else stop)
            yield start, (source[place] for place in places)
            continue
        skipped = sum(1 for _ in itertools.islice(iterator, start - position))
        if skipped < start - position:
            raise ValueError(
                f'resume: expected at least {start} inputs, which an earlier run has written, '
                f'got {position + skipped}'
            )
        yield start, itertools.islice(iterator, None if stop is None else stop - start)
        position = start if stop is None else stop


class WrittenInputs:
    """The inputs that an unordered dataset holds.

    After a crash it is unknown how many datapoints the last flush made durable. The log is therefore written
    before each flush: the inputs that were durable after the previous flush (`length`, `done`), and the order
    of the datapoints since (`since`). With the length of the dataset, these give the inputs that it holds.

    Args:
        log: Holds these values, under the key 'ledger'.
        length: Number of datapoints in the dataset.
    """

    def __init__(self, log: ProgressLog, length: int) -> None:
        self._log = log
        saved = log.state.get('ledger', {'length': length, 'done': [(0, length)], 'since': []})
        self.done: Ranges = [(start, stop) for start, stop in saved['done']]
        """Ranges of inputs whose datapoints are durable, in order."""
        unsaved = length - saved['length']
        for start, stop in saved['since']:
            if unsaved > 0:
                self._add(start, min(stop, start + unsaved))
                unsaved -= stop - start
        self._length = length
        self._since: Ranges = []

    def append(self, first: int, count: int) -> None:
        """Records that the datapoints of inputs were appended."""
        if self._since and self._since[-1][1] == first:
            self._since[-1] = self._since[-1][0], first + count
        else:
            self._since.append((first, first + count))

    def save(self) -> None:
        """Writes the appended inputs to the log; called before a flush."""
        self._log.state['ledger'] = {'length': self._length, 'done': self.done, 'since': self._since}
        self._log.save()

    def flushed(self) -> None:
        """Records that all appended inputs are durable."""
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
