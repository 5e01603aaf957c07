"""New fields of a copy, computed by functions over batches of the dataset."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bags.dataset.base import Dataset
from bags.dataset.batch import Column
from bags.dataset.columns import read_column
from bags.dataset.encoder import Encoder, collect
from bags.dataset.field_writer import Run
from bags.dataset.refs import MISSING
from bags.dataset.spec import Spec
from bags.indexing import Int64s

__all__ = ['ComputedFields', 'run_of']


class ComputedFields:
    """Computes and encodes new fields.

    Args:
        dataset: What they are computed from.
        types: Of the new fields.
        functions: By field, from a batch to its values.
        encoder: For the new fields.
        batch_size: Most datapoints in a batch.
    """

    def __init__(
        self,
        dataset: Dataset,
        types: Spec,
        functions: Mapping[str, Callable[[Mapping[str, Any]], Any]],
        encoder: Encoder,
        batch_size: int,
    ) -> None:
        self.types = types
        self._dataset = dataset
        self._functions = functions
        self._encoder = encoder
        self._batch_size = batch_size
        self._lock = threading.Lock()

    def compute(self, indices: Int64s) -> dict[str, tuple[list[Run], Any]]:
        """Returns the records of each new field, and their refs, counted from the first of them.

        Raises:
            ValueError: A function does not return one value a datapoint.
            EncodeError: A value cannot be encoded.
        """
        encoded: dict[str, list[Any]] = {name: [] for name in self.types}
        for start in range(0, len(indices), self._batch_size):
            part = indices[start : start + self._batch_size]
            batch = LazyBatch(self._dataset, part)
            for name in self.types:
                encoded[name] += self._encode(name, batch, part)
        return {name: self._runs(name, entries) for name, entries in encoded.items()}

    def _encode(self, name: str, batch: LazyBatch, indices: Int64s) -> list[Any]:
        where = f'datapoints {int(indices[0])} to {int(indices[-1])}'
        try:
            with self._lock:
                values = self._functions[name](batch)
        except Exception as exc:
            exc.add_note(f'in the function of field {name!r}, on {where}')
            raise
        if not hasattr(values, '__len__') or len(values) != len(indices):
            got = f'{len(values)}' if hasattr(values, '__len__') else type(values).__name__
            raise ValueError(
                f'field {name!r}: expected {len(indices)} values of its function for {where}, got {got}'
            )
        optional = self.types[name].optional
        return collect(
            [
                None if value is None and optional else self._encoder.encode_field(name, value)
                for value in values
            ]
        )

    def _runs(self, name: str, entries: list[Any]) -> tuple[list[Run], Any]:
        present = np.fromiter((entry is not None for entry in entries), bool, len(entries))
        if self.types[name].sequence:
            counts = np.fromiter((len(entry or ()) for entry in entries), np.int64, len(entries))
            records = [record for entry in entries for record in entry or ()]
        else:
            counts = present.astype(np.int64)
            records = [entry for entry in entries if entry is not None]
        firsts = np.where(present, np.cumsum(counts) - counts, MISSING)
        return [run_of(records)], (firsts, counts) if self.types[name].sequence else firsts


def run_of(records: Sequence[Any], stored: bool = False) -> Run:
    """Returns records as a run; `stored` are those that are what the bag holds."""
    return Run(records, np.fromiter(map(len, records), np.int64, len(records)), stored)


class LazyBatch(Mapping[str, Column]):
    """The fields of some datapoints as columns, each read when it is first used."""

    def __init__(self, dataset: Dataset, indices: Int64s) -> None:
        self._dataset = dataset
        self._indices = indices
        self._columns: dict[str, Column] = {}

    def __getitem__(self, name: str) -> Column:
        if name not in self._columns:
            if name not in self._dataset._types:
                raise KeyError(f'no field {name!r}; there are {", ".join(map(repr, self._dataset._types))}')
            self._columns |= self._dataset._read(self._indices, {name: True}, read_column)
        return self._columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self._dataset._types

    def __iter__(self) -> Iterator[str]:
        return iter(self._dataset._types)

    def __len__(self) -> int:
        return len(self._dataset._types)

    def __repr__(self) -> str:
        return f'{len(self._indices)} datapoints of {", ".join(self._dataset._types)}'
