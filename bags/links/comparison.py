"""Compares the links of a dataset with links to what is there now."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from bags.bag.records import StoredRecords
from bags.links.existing import ExistingRecords
from bags.links.link import Link
from bags.links.sources import LinkOpener, OpenedLink


class LinkComparison:
    """Compares links with those of a dataset, by ranges, and by the sizes and samples of files."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._existing = ExistingRecords()

    def agree(self, index: int, field: str, value: Any) -> bool:
        """Returns whether a datapoint of the dataset has the links that its source has now.

        Args:
            index: The datapoint.
            field: The field.
            value: Its value in the source: a link, bytes that cannot be linked, a list of these, or None.
        """
        values = [] if value is None else value if isinstance(value, list) else [value]
        ranges = self._dataset.record_ranges(np.array([index]), field)
        count = int(ranges.counts[0])
        if count != len(values):
            return False
        if not count:
            return True
        first, bag = int(ranges.firsts[0]), ranges.sources[int(ranges.which[0])].bag
        run = self._existing.link(bag, np.arange(first, first + count))
        frames = run.frames.tolist() if run.frames is not None else [[0, 0]] * count
        found = zip(values, run.which.tolist(), run.starts.tolist(), run.stops.tolist(), frames, strict=True)
        return all(_is_link(each, run.files[number], *part) for each, number, *part in found)

    def check_files(self, fields: Iterable[str], opener: LinkOpener) -> str:
        """Looks at all files that the links of fields lead to, but at bags.

        Returns:
            A sentence about a file that is missing or has changed; empty if there is none.
        """
        for field in fields:
            for bag in self.bags(field):
                for file in self._existing.files_of(bag):
                    if file.is_bag:
                        continue
                    try:
                        found = opener.open(Link(file.path)).entry
                    except FileNotFoundError:
                        return f'{file.path} is missing'
                    if found[1:3] != file[1:3]:
                        return f'{file.path} has changed'
        return ''

    def bags(self, field: str) -> Collection[StoredRecords]:
        """Returns the bags of a field, each once."""
        ranges = self._dataset.record_ranges(np.arange(len(self._dataset)), field)
        return {id(each.bag): each.bag for each in (ranges.sources if ranges else ())}.values()


def _is_link(value: Any, file: Any, start: int, stop: int, frames: list[int]) -> bool:
    if not isinstance(value, OpenedLink):
        return len(value) == stop - start
    found = value.offset, value.stop, [*(value.frames or (0, 0))], value.entry.size, value.entry.sample
    return found == (start, stop, frames, file.size, file.sample)
