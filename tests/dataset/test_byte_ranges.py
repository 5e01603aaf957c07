"""Splitting ranges into parts of about equal bytes."""

import itertools

from bags.dataset.byte_ranges import split


def test_parts_cover_every_range():
    for start, stop, size in itertools.product((0, 3), (3, 4, 50), (1, 7, 1000)):
        found = list(split(start, stop, size, lambda index: index * index))
        assert [index for a, b, _ in found for index in range(a, b)] == list(range(start, stop))
        assert all(a < b for a, b, _ in found)
