"""How much of a source is one bundle: by bytes, also where records differ in length."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

__all__ = ['cuts']


def cuts(start: int, stop: int, desired: int, before: Callable[[int], int]) -> Iterator[tuple[int, int, int]]:
    """Divides a range of indices into bundles of about equal bytes.

    Args:
        start, stop: The range.
        desired: Bytes of a bundle. They are divided so that none is much smaller than the others.
        before: Tells how many bytes lie before an index; it grows with it. Asked a few times a bundle.

    Yields:
        Start, stop and bytes of each bundle, none of them empty.
    """
    if start >= stop:
        return
    first = before(start)
    total = before(stop) - first
    count = max(1, min(stop - start, round(total / max(1, desired))))
    begin, size = start, first
    for number in range(1, count + 1):
        goal = first + total * number // count
        # The cut that comes nearest to the goal.
        end = stop if number == count else bisect_left(range(stop), goal, begin, stop, key=before)
        if begin < end < stop and goal - before(end - 1) < before(end) - goal:
            end -= 1
        if end > begin:
            reached = before(end)
            yield begin, end, reached - size
            begin, size = end, reached
