"""Base of the sources: a sequence that workers open, split into bundles of about equal bytes."""

from __future__ import annotations

import abc
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

from apache_beam.io import iobase, range_trackers

__all__ = ['SequenceSource', 'split']


class SequenceSource(iobase.BoundedSource, abc.ABC):  # type: ignore[misc]
    """Base of the sources of records and of datapoints. Pickled without the open sequence."""

    _sequence: Any = None

    @abc.abstractmethod
    def open(self) -> Any:
        """Opens the sequence: it has a length, a `size` in bytes, and `bytes_before`."""

    def sequence(self) -> Any:
        """Returns the sequence, opened once in each process."""
        if self._sequence is None:
            self._sequence = self.open()
        return self._sequence

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != '_sequence'}

    def estimate_size(self) -> int:
        size: int = self.sequence().size
        return size

    def split(
        self, desired_bundle_size: int, start_position: int | None = None, stop_position: int | None = None
    ) -> Iterator[iobase.SourceBundle]:
        sequence = self.sequence()
        stop = len(sequence) if stop_position is None else stop_position
        for first, last, size in split(start_position or 0, stop, desired_bundle_size, sequence.bytes_before):
            yield iobase.SourceBundle(size, self, first, last)

    def get_range_tracker(
        self, start_position: int | None, stop_position: int | None
    ) -> range_trackers.OffsetRangeTracker:
        stop = len(self.sequence()) if stop_position is None else stop_position
        return range_trackers.OffsetRangeTracker(start_position or 0, stop)


def split(
    start: int, stop: int, bundle_size: int, bytes_before: Callable[[int], int]
) -> Iterator[tuple[int, int, int]]:
    """Splits a range of indices into bundles of about equal bytes, also where records differ in length.

    Args:
        start, stop: The range.
        bundle_size: Bytes of a bundle, about: the bytes of the range are divided evenly.
        bytes_before: Returns the bytes before an index, which grow with it; called a few times a bundle.

    Yields:
        Start, stop and bytes of each bundle, none of them empty.
    """
    if start >= stop:
        return
    first = bytes_before(start)
    total = bytes_before(stop) - first
    count = max(1, min(stop - start, round(total / max(1, bundle_size))))
    begin, size = start, first
    for number in range(1, count + 1):
        goal = first + total * number // count
        # The index nearest to the goal.
        end = stop if number == count else bisect_left(range(stop), goal, begin, stop, key=bytes_before)
        if begin < end < stop and goal - bytes_before(end - 1) < bytes_before(end) - goal:
            end -= 1
        if end > begin:
            reached = bytes_before(end)
            yield begin, end, reached - size
            begin, size = end, reached
