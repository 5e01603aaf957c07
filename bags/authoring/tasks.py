"""Groups the inputs of `bags.write` into tasks; leaves out inputs that an earlier run has written."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgpack
import numpy as np

from bags.workers.outcome import Outcome

MIN_SECONDS, MAX_SECONDS = 0.03, 0.2
"""Target duration of a task; outside of this range, the size of the next tasks changes."""
MAX_INPUTS = 256
TARGET_TASK_BYTES = 1 << 22
"""Record bytes of a task above which tasks stop growing; above twice this size, tasks shrink."""

MAX_HASHED_BYTES = 1 << 26
"""Bytes of the inputs from which a fingerprint is computed."""


class Task(NamedTuple):
    """Consecutive inputs."""

    first: int
    """Index of the first input."""
    inputs: list[Any]

    def __str__(self) -> str:
        last = self.first + len(self.inputs) - 1
        return f'input {self.first}' if last == self.first else f'inputs {self.first} to {last}'


class Inputs(Iterator[Task]):
    """Groups inputs into tasks. Their size adapts, so that sending them costs little compared to the work.

    Args:
        source: The inputs.
        start: Number of inputs to leave out at the beginning.
        max_size: Maximum number of inputs in a task.
    """

    def __init__(self, source: Iterable[Any], start: int, max_size: int = MAX_INPUTS) -> None:
        self._inputs = _from(source, start)
        self._first = start
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
        """Adapts the size of the next tasks to the duration and the bytes of a finished task."""
        count = len(outcome.task.inputs)
        if count >= self._size and outcome.seconds < MIN_SECONDS and outcome.size < TARGET_TASK_BYTES:
            self._size = min(2 * self._size, self._max_size)
        elif count <= self._size and (outcome.seconds > MAX_SECONDS or outcome.size > 2 * TARGET_TASK_BYTES):
            self._size = max(1, self._size // 2)


def _from(source: Iterable[Any], start: int) -> Iterator[Any]:
    """Yields the inputs from a position on.

    Raises:
        ValueError: There are fewer inputs.
    """
    if isinstance(source, Sequence):
        return (source[index] for index in range(start, len(source)))
    inputs = iter(source)
    skipped = sum(1 for _ in itertools.islice(inputs, start))
    if skipped < start:
        raise ValueError(
            f'resume: expected at least the {start} inputs that an earlier run has written, got {skipped}'
        )
    return inputs


def fingerprint_of_inputs(source: Any) -> str | None:
    """Returns a hash of the first 64 MiB of a list or array of plain values; None for other inputs.

    The items of other sequences may be slow to compute.
    Plain values are None, numbers, strings, bytes, paths, ranges, arrays, and lists and mappings of them.
    """
    if not isinstance(source, list | tuple | range | np.ndarray):
        return None
    from xxhash import xxh3_128

    digest, size = xxh3_128(), 0
    pack = msgpack.Packer(default=_plain, unicode_errors='surrogatepass').pack
    try:
        for value in [source] if isinstance(source, range) else source:
            packed = pack(value)
            digest.update(packed)
            size += len(packed)
            if size > MAX_HASHED_BYTES:
                break
    except (TypeError, ValueError, OverflowError):
        return None
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """Converts paths, ranges and arrays to values that msgpack supports."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, range):
        return [value.start, value.stop, value.step]
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        return [value.dtype.str, value.shape, value.tobytes()]
    raise TypeError(f'expected a plain value, got {type(value).__name__}')
