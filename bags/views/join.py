"""`Join`: the fields of several datasets of equal length, joined by position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bags.dataset.base import Dataset, View
from bags.dataset.format.metadata import Metadata, merge_metadata, metadata_of_fields
from bags.dataset.format.registry import INTEGER_FORMATS
from bags.dataset.format.spec import reordered
from bags.dataset.reading.key_values import Matches, read_keys
from bags.dataset.reading.row_groups import Datapoint, RowGroup
from bags.dataset.reading.selection import Selection
from bags.indexing import Int64s, check_index
from bags.views.concat import expressions

KEYS_AT_ONCE = 1 << 13
"""Number of values of a field in two datasets that are compared at once."""


class Join(View):
    """The fields of several datasets of equal length, the result of `bags.join`.

    Without `replace`, a field of several datasets must have equal values, which are read and compared here.
    """

    def __init__(self, datasets: Sequence[Dataset], replace: bool) -> None:
        self._replace = replace
        self._owners: dict[str, Dataset] = {}
        """The dataset from which each field is read."""
        for number, dataset in enumerate(datasets):
            if len(dataset) != len(datasets[0]):
                raise ValueError(
                    f'join: expected datasets of one length, got {len(datasets[0])} datapoints in the first '
                    f'and {len(dataset)} in dataset {number} (on= joins by a field of keys)'
                )
            for name in dataset.schema:
                if name in self._owners and not replace:
                    _expect_equal(name, self._owners[name], dataset, number)
                self._owners[name] = dataset
        schema = {name: owner.schema[name] for name, owner in self._owners.items()}
        super().__init__(datasets, reordered(schema, [dataset.schema for dataset in datasets]))

    @property
    def metadata(self) -> Metadata:
        owned = {
            id(dataset): [name for name in self._owners if self._owners[name] is dataset]
            for dataset in self.datasets
        }
        return merge_metadata(
            metadata_of_fields(dataset.metadata, owned[id(dataset)]) for dataset in self.datasets
        )

    def __len__(self) -> int:
        return len(self.datasets[0])

    def fingerprint_options(self) -> object:
        numbers = {id(dataset): number for number, dataset in enumerate(self.datasets)}
        return [(name, numbers[id(owner)]) for name, owner in self._owners.items()]

    def _shares(self, selection: Selection) -> list[tuple[Dataset, Selection]]:
        """Splits a selection by the dataset from which each field is read."""
        shares: dict[int, tuple[Dataset, Selection]] = {}
        for name, items in selection.items():
            owner = self._owners[name]
            shares.setdefault(id(owner), (owner, {}))[1][name] = items
        return list(shares.values())

    def plan_rows(self, indices: Int64s, selection: Selection) -> list[RowGroup]:
        return [
            group for owner, share in self._shares(selection) for group in owner.plan_rows(indices, share)
        ]

    def dataset_of(self, field: str) -> Dataset:
        return self._owners[field]

    def match_keys(self, field: str, keys: list[bytes | None]) -> Matches:
        return self._owners[field].match_keys(field, keys)

    def read_row(self, index: int, selection: Selection | None) -> Datapoint:
        if self.is_remote:
            return super().read_row(index, selection)  # Reads all datasets together.
        index = check_index(index, len(self))
        fields: Selection = dict.fromkeys(self.schema, True) if selection is None else selection
        datapoint: Datapoint = {}
        for owner, share in self._shares(fields):
            datapoint |= owner.read_row(index, share)
        return {name: datapoint[name] for name in fields}

    @property
    def expression(self) -> str:
        return f'bags.join([{expressions(self.datasets)}], replace={self._replace})'


def _expect_equal(field: str, first: Dataset, second: Dataset, number: int) -> None:
    """Checks that a field has equal values in two datasets; `number` is the number of the second dataset.

    Raises:
        ValueError: The values differ, or have a type that is not compared.
    """
    again = 'replace=True takes the later field'
    formats = {first.schema[field].format, second.schema[field].format}
    is_plain = not (first.schema[field].sequence or second.schema[field].sequence)
    if not is_plain or not (formats == {'utf8'} or formats.issubset(INTEGER_FORMATS)):
        raise ValueError(f'join: field {field!r} of dataset {number} is also in an earlier dataset ({again})')
    for start in range(0, len(first), KEYS_AT_ONCE):
        rows = np.arange(start, min(start + KEYS_AT_ONCE, len(first)))
        one, other = (
            [key for _, keys in read_keys(dataset, field, rows, KEYS_AT_ONCE) for key in keys]
            for dataset in (first, second)
        )
        if one == other:
            continue
        index = next(index for index, pair in enumerate(zip(one, other, strict=True)) if len({*pair}) > 1)
        got, before = (
            'no value' if key is None else f'{key.decode(errors="backslashreplace")!r:.80}'
            for key in (other[index], one[index])
        )
        raise ValueError(
            f'join: field {field!r} differs at datapoint {start + index}: expected {before}, as in an '
            f'earlier dataset, got {got} in dataset {number} (on= joins by a field of keys, {again})'
        )
