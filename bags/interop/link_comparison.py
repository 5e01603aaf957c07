"""Compares the links of a dataset with the current state of its source."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from bags.bag.records import StoredRecords
from bags.dataset.base import Dataset
from bags.links.files import LinkedFile
from bags.links.link import Link
from bags.links.link_builder import LinkBuilder
from bags.links.sources import LinkOpener, OpenedLink


class LinkComparison:
    """Compares links with the links of a dataset: their ranges, and the sizes and samples of their files."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._existing = LinkBuilder()

    def agree(self, index: int, field: str, value: Any) -> bool:
        """Returns whether the links of a datapoint are the same as the current links of its source.

        Args:
            index: Index of the datapoint.
            field: The field.
            value: The value in the source: a link, bytes that cannot be linked, a list of these, or None.
        """
        values = [] if value is None else value if isinstance(value, list) else [value]
        ranges = self._dataset.record_ranges(np.array([index]), field)
        assert ranges is not None
        count = int(ranges.counts[0])
        if count != len(values):
            return False
        if not count:
            return True
        first, bag = int(ranges.firsts[0]), ranges.sources[int(ranges.which[0])].bag
        run = self._existing.link(bag, np.arange(first, first + count))
        frames = run.frames.tolist() if run.frames is not None else [[0, 0]] * count
        links = zip(values, run.which.tolist(), run.starts.tolist(), run.stops.tolist(), frames, strict=True)
        return all(_is_link(link, run.files[number], *part) for link, number, *part in links)

    def check_files(self, fields: Iterable[str], opener: LinkOpener) -> str:
        """Checks all linked files of some fields, except bags.

        Returns:
            A message about the first file that is missing or has changed; empty if all files are unchanged.
        """
        for field in fields:
            for bag in self.bags(field):
                for file in self._existing.files_of(bag):
                    if file.is_bag:
                        continue
                    try:
                        entry = opener.open(Link(file.path)).entry
                    except FileNotFoundError:
                        return f'{file.path} is missing'
                    if entry[1:3] != file[1:3]:
                        return f'{file.path} has changed'
        return ''

    def bags(self, field: str) -> Collection[StoredRecords]:
        """Returns the distinct bags of a field."""
        ranges = self._dataset.record_ranges(np.arange(len(self._dataset)), field)
        return {id(source.bag): source.bag for source in (ranges.sources if ranges else ())}.values()


def _is_link(value: Any, file: LinkedFile, start: int, stop: int, frames: list[int]) -> bool:
    if not isinstance(value, OpenedLink):
        return len(value) == stop - start
    actual = value.offset, value.stop, [*(value.frames or (0, 0))], value.entry.size, value.entry.sample
    return actual == (start, stop, frames, file.size, file.sample)
