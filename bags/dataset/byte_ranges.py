"""Splitting a range of records or datapoints into parts of about equal bytes. No I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

__all__ = ['split']


def split(
    start: int, stop: int, part_size: int, bytes_before: Callable[[int], int]
) -> Iterator[tuple[int, int, int]]:
    """Splits a range of indices into parts of about equal bytes, also where records differ in length.

    Args:
        start, stop: The range.
        part_size: Bytes of a part, about: the bytes of the range are divided evenly.
        bytes_before: Returns the bytes before an index, which grow with it; called a few times a part.

    Yields:
        Start, stop and bytes of each part, none of them empty.
    """
    if start >= stop:
        return
    first = bytes_before(start)
    total = bytes_before(stop) - first
    count = max(1, min(stop - start, round(total / max(1, part_size))))
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
