"""The fastest function from an index to a record of a mapped bag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def make_slicer(
    bag: Any, buffer: Any, record: Callable[[int], Any], decode: Callable[[Any], bytes] | None = None
) -> Callable[[int], Any]:
    """Returns the function for a `BagFile`; `record` handles unusual cases and errors.

    A closure, because a record of 100 bytes takes 0.2 us, and each attribute or call would add to it.
    """
    ends, count, end, sums = bag.ends_view(), bag.count, bag.end, bag.checksums
    digest: Any = None if sums is None else sums.digest
    values: Any = None if sums is None else sums.values

    def get(index: int) -> Any:
        if 0 < index < count:
            start, stop = ends[index - 1], ends[index]
            if start <= stop <= end:
                return buffer[start:stop]
        return record(index)

    def get_decoded(index: int) -> Any:
        if 0 < index < count:
            start, stop = ends[index - 1], ends[index]
            if start <= stop <= end:
                try:
                    return decode(buffer[start:stop])  # type: ignore[misc]
                except ValueError:
                    pass
        return record(index)

    def get_checked(index: int) -> Any:
        if 0 < index < count:
            start, stop = ends[index - 1], ends[index]
            if start <= stop <= end:
                data = buffer[start:stop]
                if digest(data) == values[index + 1]:
                    return data
        return record(index)

    if sums is not None:
        return record if values is None else get_checked
    return get if decode is None else get_decoded
