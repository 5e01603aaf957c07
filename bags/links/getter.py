"""The fastest function from an index to a linked record, of links to bags that are mapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bags.bag.verified import SHIFT, VERIFIED
from bags.links.rows import NUMBERS, ROW_BYTES


def make_getter(records: Any, as_view: bool) -> Callable[[int], Any]:
    """Returns the function from an index to a record of `LinkedRecords`, as bytes or as a view.

    A closure, because a row with two linked fields takes 6.6 us with it, and 10 by `record`, which handles
    all that is unusual: other files, their first use, damage.
    """
    record: Callable[[int], Any] = records.record_view if as_view else records.record
    links = records.links
    if links.length != ROW_BYTES or records.checksums is not None:
        return record
    rows, unpack, mapped = links.buffer, NUMBERS.unpack_from, records.mapped
    count, states, verify = records.count, links.verified.states, links.verified.verify

    def get(index: int) -> Any:
        if 0 <= index < count and (states[index >> SHIFT] == VERIFIED or verify(index)):
            number, _, start, stop = unpack(rows, index * ROW_BYTES)
            found = mapped.get(number)
            if found is not None:
                buffer, view, decode, size = found
                if stop <= size:
                    if decode is None:
                        return view[start:stop] if as_view else buffer[start:stop]
                    try:
                        return decode(view[start:stop])
                    except ValueError:
                        pass
        return record(index)

    return get
