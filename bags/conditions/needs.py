"""Reads only the data of datapoints that a condition needs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bags.conditions.comparison import COMPARED, Measure, Need
from bags.conditions.condition import parse_condition
from bags.dataset import above
from bags.dataset.base import Dataset
from bags.dataset.format.refs import is_missing
from bags.dataset.format.registry import VIDEO_FORMATS
from bags.dataset.reading.row_groups import Datapoint
from bags.dataset.reading.selection import Selection
from bags.indexing import Int64s


def bind_condition(
    dataset: Dataset, text: str
) -> tuple[Callable[[Mapping[str, Any]], bool], Callable[[Int64s], list[Datapoint]]]:
    """Returns the test of a condition, and a function that reads the data for the test of some datapoints.

    Raises:
        ValueError: The condition violates the grammar, names no field, or compares values of different
            types.
    """
    needs, measures, test = parse_condition(text, dataset.schema, dataset.metadata.get('fields'))
    return test, functools.partial(_read_needs, dataset, needs, measures)


def _read_needs(
    dataset: Dataset,
    needs: Mapping[str, Need],
    measures: Mapping[str, tuple[str, Measure]],
    indices: Int64s,
) -> list[Datapoint]:
    """Reads the data that a condition needs of each datapoint. Counting a sequence reads no records."""
    selection: Selection = {}
    for name, need in needs.items():
        if need == 'value' or dataset.schema[name].sequence:
            selection[name] = True if need == 'value' else slice(0, 0)
    rows = dataset.read_rows(indices, selection) if selection else [{} for _ in range(len(indices))]
    for name, need in needs.items():
        if need == 'count':
            for row, count in zip(rows, dataset.item_counts(indices, name).tolist(), strict=True):
                row[name] = None if row[name] is None else range(count)
        elif name not in selection:
            for row, record in zip(rows, dataset.read_records(indices, name), strict=True):
                row[name] = record
    for key, (name, measure) in measures.items():
        values = _sizes(dataset, name, indices) if measure == 'size' else _durations(dataset, name, indices)
        for row, value in zip(rows, values, strict=True):
            row[key] = value
    for name in (name for name in selection if dataset.schema[name].format in COMPARED):
        if any(isinstance(row[name], bytes | memoryview) for row in rows[:1]):
            raise ValueError(
                f'filter: a condition compares values: open {dataset.expression} without raw=True'
            )
    return rows


def _sizes(dataset: Dataset, name: str, indices: Int64s) -> list[int | None]:
    """Returns the stored bytes of a field of each datapoint, without reading records; None if missing."""
    ranges = dataset.record_ranges(indices, name)
    if ranges is None:
        raise ValueError(f'filter: field {name!r} has computed values, which are not stored')
    totals = np.zeros(len(indices), np.int64)
    for number, source in enumerate(ranges.sources):
        rows = np.flatnonzero((ranges.which == number) & (ranges.counts > 0))
        firsts, counts = ranges.firsts[rows], ranges.counts[rows]
        if not len(rows):
            continue
        starts = np.cumsum(counts) - counts
        records = np.arange(counts.sum()) + np.repeat(firsts - starts, counts)
        totals[rows] = np.add.reduceat(source.bag.sizes(records), starts)
    missing = is_missing(ranges.firsts, ranges.counts)
    return [None if none else size for none, size in zip(missing.tolist(), totals.tolist(), strict=True)]


def _durations(dataset: Dataset, name: str, indices: Int64s) -> list[float | None]:
    """Returns the duration in seconds of a video or sound of each datapoint; None if missing."""
    media: Any = above.Video if dataset.schema[name].format in VIDEO_FORMATS else above.Audio
    ranges = dataset.record_ranges(indices, name)
    if ranges is None:
        raise ValueError(f'filter: field {name!r} has computed values, which are not stored')
    missing = is_missing(ranges.firsts, ranges.counts).tolist()
    return [
        None if none else media(dataset.record(index, name, None)).duration
        for index, none in zip(indices.tolist(), missing, strict=True)
    ]
