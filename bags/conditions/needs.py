"""Reads what a condition needs of datapoints, and no more."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from bags.conditions.comparison import COMPARED, Need
from bags.conditions.condition import parse_condition
from bags.dataset.address import Datapoint
from bags.dataset.base import Dataset
from bags.dataset.selection import Selection
from bags.indexing import Int64s


def bind_condition(
    dataset: Dataset, text: str
) -> tuple[Callable[[Mapping[str, Any]], bool], Callable[[Int64s], list[Datapoint]]]:
    """Returns the test of a condition, and the function that reads what it takes of some datapoints.

    Raises:
        ValueError: The condition does not follow the grammar, names no field, or compares values of different
            types.
    """
    needs, test = parse_condition(text, dataset.types, dataset.metadata.get('fields'))
    return test, functools.partial(_read_needs, dataset, needs)


def _read_needs(dataset: Dataset, needs: Mapping[str, Need], indices: Int64s) -> list[Datapoint]:
    """Returns what a condition needs of each datapoint; of sequences that it counts no record is read."""
    selection: Selection = {}
    for name, need in needs.items():
        if need == 'value' or dataset.types[name].sequence:
            selection[name] = True if need == 'value' else slice(0, 0)
    rows = dataset.read_rows(indices, selection) if selection else [{} for _ in range(len(indices))]
    for name, need in needs.items():
        if need == 'count':
            for row, count in zip(rows, dataset.item_counts(indices, name).tolist(), strict=True):
                row[name] = None if row[name] is None else range(count)
        elif name not in selection:
            for row, record in zip(rows, dataset.read_records(indices, name), strict=True):
                row[name] = record
    for name in (name for name in selection if dataset.types[name].word in COMPARED):
        if any(isinstance(row[name], bytes | memoryview) for row in rows[:1]):
            raise ValueError(
                f'filter: a condition compares values: open {dataset.expression} without raw=True'
            )
    return rows
