"""`FieldRecords`: the records of a field in a datapoint, one of a plain field, or the items of a sequence."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, Self, SupportsIndex, TypeVar

import numpy as np

from bags.dataset.base import Dataset, check_dataset
from bags.dataset.reading.field_reader import Record
from bags.dataset.reading.selection import select_fields
from bags.indexing import check_index

MAX_OPEN_CLIPS = 16
"""Maximum number of open files of a joined video or recording."""
Part_co = TypeVar('Part_co', covariant=True)


class Parts(Protocol[Part_co]):
    """Consecutive videos or recordings, which are joined. Picklable."""

    @property
    def name(self) -> str:
        """The name in error messages."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether reads wait for a network; several parts are then read concurrently."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Part_co: ...


@dataclass(frozen=True)
class FieldRecords:
    """The records of a field in a datapoint. Picklable if the dataset is picklable."""

    dataset: Dataset
    row: int
    field: str

    @classmethod
    def of(
        cls, dataset: Dataset, index: SupportsIndex, field: str, formats: Collection[str], expected: str
    ) -> Self:
        """Returns the records of a field whose type has one of some formats.

        Raises:
            IndexError, KeyError: No such datapoint or field.
            TypeError: The field has another type than the `expected` one.
        """
        check_dataset('stream', dataset)
        select_fields(field, dataset.schema)
        field_type = dataset.schema[field]
        if field_type.format not in formats:
            raise TypeError(f'field {field!r} of type {field_type.text}: expected a type of {expected}')
        return cls(dataset, check_index(index, len(dataset)), field)

    @property
    def name(self) -> str:
        """The name in error messages."""
        return f'{self.dataset.expression}, datapoint {self.row}, field {self.field!r}'

    @property
    def is_remote(self) -> bool:
        """Whether reads wait for a network."""
        return self.dataset.reads_wait

    @property
    def is_sequence(self) -> bool:
        """Whether the records are the items of a sequence."""
        return self.dataset.schema[self.field].sequence

    @property
    def args(self) -> tuple[str, ...]:
        """The arguments of the type."""
        return self.dataset.schema[self.field].args

    def __len__(self) -> int:
        if not self.is_sequence:
            return 1
        return int(self.dataset.item_counts(np.array([self.row]), self.field)[0])

    def __getitem__(self, number: int) -> Record:
        record = self.dataset.record(self.row, self.field, number if self.is_sequence else None)
        if record is None:
            raise TypeError(f'{self.name}: expected stored values, got computed ones: save the dataset first')
        return record
