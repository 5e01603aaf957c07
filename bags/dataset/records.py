"""The records of one field over a dataset, as a sequence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, SupportsIndex

import numpy as np

from bags.indexing import as_indices, check_index

__all__ = ['Records']


class Records(Sequence[Any]):
    """The records of one field over a dataset, read on demand.

    Args:
        dataset: A `bags.Dataset`.
        field: A plain field: one record for each datapoint. A sequence field: the records of all items.
    """

    def __init__(self, dataset: Any, field: str) -> None:
        self._dataset = dataset
        self._field = field
        self._offsets = dataset._item_offsets(field) if dataset._types[field].sequence else None

    def __len__(self) -> int:
        return len(self._dataset) if self._offsets is None else int(self._offsets[-1])

    def locate(self, index: SupportsIndex) -> tuple[int, int]:
        """Returns the datapoint of an item, and the item's place in it."""
        index = check_index(index, len(self))
        if self._offsets is None:
            return index, 0
        row = int(np.searchsorted(self._offsets, index, 'right')) - 1
        return row, index - int(self._offsets[row])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.read_indices(range(len(self))[index])
        return self.read_indices([check_index(index, len(self))])[0]

    def read_indices(self, indices: Iterable[SupportsIndex]) -> list[Any]:
        """Returns records by index, read together."""
        chosen = as_indices(indices, len(self))
        rows, items = chosen, None
        if self._offsets is not None:
            rows = np.searchsorted(self._offsets, chosen, 'right') - 1
            items = chosen - self._offsets[rows]
        records: list[Any] = self._dataset._records(rows, self._field, items)
        return records

    def __iter__(self) -> Iterator[Any]:
        start, step = 0, 1
        while start < len(self):
            records = self.read_indices(range(start, min(start + step, len(self))))
            yield from records
            start += len(records)
            # About a megabyte at a time: a record may be a whole video.
            size = sum(len(record) for record in records if record is not None)
            step = min(2 * step, 1024) if size < 1 << 20 else max(1, step // 2)

    def __repr__(self) -> str:
        return f'{self._dataset!r}[{self._field!r}]'
