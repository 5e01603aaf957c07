"""The inputs of `bags.write`, grouped to tasks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bags.workers.outcome import Outcome

__all__ = ['MAX_INPUTS', 'Inputs', 'Task']

MIN_SECONDS, MAX_SECONDS = 0.03, 0.2
"""Time of a task outside of which the size of the next ones changes."""
MAX_INPUTS = 256
GOOD_BYTES = 1 << 22
"""Bytes of records of a task beyond which tasks do not grow; beyond twice as many they shrink."""


class Task(NamedTuple):
    """Consecutive inputs."""

    first: int
    """The number of the first."""
    inputs: list[Any]

    def __str__(self) -> str:
        last = self.first + len(self.inputs) - 1
        return f'input {self.first}' if last == self.first else f'inputs {self.first} to {last}'


class Inputs(Iterator[Task]):
    """Groups inputs to tasks, of a size at which handing them out costs little beside the work.

    Args:
        source: The inputs.
        done: How many of them an earlier run has written.
        max_size: Most inputs in a task.
    """

    def __init__(self, source: Iterable[Any], done: int, max_size: int = MAX_INPUTS) -> None:
        self._inputs = _remaining(source, done)
        self._first = done
        self._size = 1
        self._max_size = max_size

    def __next__(self) -> Task:
        inputs: list[Any] = []
        try:
            inputs.extend(itertools.islice(self._inputs, self._size))
        except Exception as exc:
            exc.add_note(f'from the source, at input {self._first + len(inputs)}')
            raise
        if not inputs:
            raise StopIteration
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


def _remaining(source: Iterable[Any], done: int) -> Iterator[Any]:
    """Returns the inputs after the first `done`.

    Raises:
        ValueError: There are fewer.
    """
    if isinstance(source, Sequence) and done <= len(source):
        return (source[place] for place in range(done, len(source)))
    iterator = iter(source)
    skipped = sum(1 for _ in itertools.islice(iterator, done))
    if skipped < done:
        raise ValueError(
            f'resume: expected at least {done} inputs, which an earlier run has written, got {skipped}'
        )
    return iterator
