"""`concat`: the datapoints of several datasets, one after the other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np

from bags.bag.sharding import Concatenated
from bags.dataset.address import Address, Datapoint, MissingFields, divide_fields, group_by_part, row_of_part
from bags.dataset.base import Dataset, View, check_dataset
from bags.dataset.field import Field
from bags.dataset.key_values import Matches, sort_matches
from bags.dataset.selection import Selection
from bags.dataset.spec import reordered, unite, with_optional
from bags.indexing import Int64s, check_index, offsets_of
from bags.validation import one_of
from bags.views.optional import OptionalReader, optional_field

CommonFields = Literal['same', 'union', 'common']

SHOWN_DATASETS = 3
"""Maximum number of datasets that a `repr` names."""


class Concat(View):
    """The datapoints of several datasets, one after the other, as `bags.concat` returns them."""

    def __init__(self, datasets: Sequence[Dataset], fields: CommonFields = 'same') -> None:
        self._fields = fields
        specs = [dataset.types for dataset in datasets]
        if fields == 'union':
            specs = with_optional(specs)
        named = ((f'dataset {number}', types) for number, types in enumerate(specs))
        types = unite(named, 'the datasets before it')
        super().__init__(datasets, reordered(types, specs))
        self._made_optional = [
            {name for name, each in dataset.types.items() if self.types[name].optional > each.optional}
            for dataset in datasets
        ]
        """The fields of each dataset that are optional only here."""
        self._layout = Concatenated([len(dataset) for dataset in datasets])

    def __len__(self) -> int:
        return self._layout.total

    def resolve(self, indices: Int64s, selection: Selection) -> list[Address]:
        if not len(indices):
            owners = {
                name: next(part for part, each in enumerate(self.datasets) if name in each.types)
                for name in selection
            }
            return [
                address
                for name, part in owners.items()
                for address in self._resolve_part(part, indices, {name: selection[name]})
            ]
        addresses = []
        for part, within, share, positions in group_by_part(self._layout, indices, selection):
            there, rest = divide_fields(share, self.datasets[part].types)
            if there or not rest:
                addresses += [address.at(positions) for address in self._resolve_part(part, within, there)]
            if rest:
                addresses.append(Address(MissingFields(self.open_field), within, rest, positions))
        return addresses

    def _resolve_part(self, part: int, rows: Int64s, selection: Selection) -> list[Address]:
        found = self.datasets[part].resolve(rows, selection)
        optional = self._made_optional[part] & selection.keys()
        if not optional:
            return found
        return [each._replace(reader=OptionalReader(each.reader, optional)) for each in found]

    def open_field(self, name: str) -> Field:
        field = super().open_field(name)
        return optional_field(field) if self.types[name].optional else field

    def match_keys(self, field: str, keys: list[bytes | None]) -> Matches:
        parts = []
        for dataset, start in zip(self.datasets, offsets_of(np.array(self.part_lengths())), strict=False):
            if field in dataset.types:
                owners, rows = dataset.match_keys(field, keys)
                parts.append((owners, rows + start))
        return sort_matches(*map(np.concatenate, zip(*parts, strict=True)))

    def part_lengths(self) -> list[int]:
        return [len(dataset) for dataset in self.datasets]

    def read_row(self, index: int, selection: Selection | None) -> Datapoint:
        part, within = self._layout.one(check_index(index, self._layout.total))
        dataset = self.datasets[part]
        if len(dataset.types) == len(self.types):
            return dataset.read_row(within, selection)
        return row_of_part(dataset, within, selection, self.types)

    @property
    def expression(self) -> str:
        fields = '' if self._fields == 'same' else f', fields={self._fields!r}'
        return f'bags.concat([{expressions(self.datasets)}]{fields})'


def concat(datasets: Iterable[Dataset], fields: CommonFields = 'same') -> Concat:
    """Returns a view of the datapoints of several datasets, one after the other.

    Their specs may differ in optional fields, whose values are missing in datasets without the field.

    Args:
        datasets: The datasets.
        fields: 'same': all datasets have the same other fields. 'union': the view has the fields of all;
            those that a dataset lacks, or has as optional, are optional. 'common': it has the fields that
            all have.

    Raises:
        SpecError: The specs differ in other fields, or in the type of a field.

    Examples:
        >>> both = bags.concat([dataset, dataset[:2]])
        >>> len(both), both[8, 'id']
        (10, {'id': 0})
    """
    found = check_datasets('concat', datasets)
    one_of('fields', fields, get_args(CommonFields))
    if fields == 'common':
        common = [name for name in found[0].types if all(name in dataset.types for dataset in found)]
        found = [dataset.select(fields=common) for dataset in found]
    return Concat(found, 'union' if fields == 'common' else fields)


def check_datasets(what: str, datasets: Iterable[Any]) -> list[Dataset]:
    """Returns the datasets as a list, which is not empty; errors name the function `what`."""
    if isinstance(datasets, Dataset):
        raise TypeError(f'{what}: expected several datasets, got a {type(datasets).__name__} alone')
    if isinstance(datasets, str | os.PathLike) or not isinstance(datasets, Iterable):
        raise TypeError(f'{what}: expected several datasets, got {datasets!r}')
    found = list(datasets)
    for number, dataset in enumerate(found):
        check_dataset(f'{what}, dataset {number}', dataset)
    if not found:
        raise ValueError(f'{what}: expected at least one dataset, got none')
    return found


def expressions(datasets: Sequence[Dataset]) -> str:
    """Returns the expressions of the first datasets, and the number of others."""
    shown = [dataset.expression for dataset in datasets[:SHOWN_DATASETS]]
    more = len(datasets) - len(shown)
    return ', '.join(shown) + (f', … {more} more' if more else '')
