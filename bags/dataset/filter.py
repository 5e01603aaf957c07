"""`bags.filter`: the datapoints for which a function returns True, as a view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bags.concurrency import CPU_COUNT, map_in_threads
from bags.dataset.base import Datapoint, Dataset, Select, check_dataset
from bags.dataset.selection import Fields, select_fields
from bags.indexing import Int64s
from bags.validation import at_least_or_none

__all__ = ['filter']

DATAPOINTS_AT_ONCE = 256


def filter(
    dataset: Dataset,
    function: Callable[[Datapoint], Any],
    fields: Fields = None,
    *,
    workers: int | None = None,
) -> Select:
    """Returns a view of the datapoints for which a function returns True.

    All datapoints are read, but of their fields only `fields`; the view has all fields, and reads nothing
    again. For one numeric field, `bags.select(dataset, dataset.column('score') > 0.5)` is faster.

    Args:
        dataset: A reader or a view.
        function: Takes a datapoint, a dict of `fields`, and returns a bool.
        fields: What to read for it: as in `dataset.batch`; all fields unless given.
        workers: Threads that read and call the function; the number of processors unless given.

    Raises:
        TypeError: The function does not return a bool.
        Exception: What the function raises, with a note of the datapoint.
    """
    check_dataset('filter', dataset)
    workers = at_least_or_none('workers', workers, 1) or CPU_COUNT
    selection = select_fields(fields, dataset._types)

    def choose(start: int) -> Int64s:
        indices = np.arange(start, min(start + DATAPOINTS_AT_ONCE, len(dataset)))
        chosen = []
        for index, datapoint in zip(indices.tolist(), dataset._rows(indices, selection), strict=True):
            try:
                keeps = function(datapoint)
            except Exception as exc:
                exc.add_note(f'filter: the function raised this for datapoint {index} of {dataset!r}')
                raise
            if not isinstance(keeps, bool | np.bool_):
                raise TypeError(f'filter: expected a bool for datapoint {index}, got {keeps!r:.80}')
            if keeps:
                chosen.append(index)
        return np.array(chosen, np.int64)

    parts = map_in_threads(choose, range(0, len(dataset), DATAPOINTS_AT_ONCE), workers)
    return Select(dataset, np.concatenate([np.empty(0, np.int64), *parts]))
